"""english.py: what the notebooks show of real models, beside the file that the scores come from and another encoder."""

import json
from pathlib import Path

import check
import english
import numpy as np
import pytest

pytestmark = pytest.mark.once
COURSE = Path(__file__).resolve().parents[2] / "course"


def test_log_probabilities_are_those_of_the_capstone():
    bert = check.load(COURSE / "solutions/bert.py")
    config, vocabulary, weights = bert.load(english.bundled_presets_directory() / "bert_mini_en")
    texts = ["The keys to the cabinet [MASK] on the table.", "Paris is [MASK]."]
    answer = english.log_probabilities(texts)
    assert answer.shape == (2, len(vocabulary)) and np.allclose(np.exp(answer).sum(axis=1), 1, atol=1e-5)
    for row, text in zip(answer, texts):
        for word, probability in bert.fill_mask(text, config, vocabulary, weights):
            assert np.exp(row[vocabulary[word]]) == pytest.approx(probability, rel=1e-4)
    odds = english.log_odds(texts, "are", "is")
    assert odds == pytest.approx(answer[:, vocabulary["are"]] - answer[:, vocabulary["is"]]) and odds[0] > 0


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"one \[MASK\] in each"):
        english.log_probabilities(["[MASK] [MASK]"])
    with pytest.raises(ValueError, match="one piece each. Received: 'are', 'unputdownable'"):
        english.log_odds(["They [MASK]."], "are", "unputdownable")


def test_shown_scores_are_means_of_the_stored_runs(capsys):
    stored = json.loads((COURSE.parent / "weights/results.json").read_text(encoding="utf-8"))
    english.show("albert_small_en", "bert_small_en")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["SST-2", "MRPC", "STS-B", "WNUT-17", "EWT", "SQuAD", "mean"]
    means = {}
    for name, line in zip(("albert_small_en", "bert_small_en"), lines[1:3]):
        runs = [[run["score"] for run in stored[name][task].values()] for task in english.TASKS]
        means[name] = [sum(scores) / len(scores) for scores in runs]
        shown = line.replace("±", " ").split()
        assert shown[0] == name
        assert [float(x) for x in shown[1:-1:2]] == pytest.approx(means[name], abs=0.051)
        assert float(shown[-1]) == pytest.approx(sum(means[name]) / 6, abs=0.051)
    gaps = [a - b for a, b in zip(*means.values())]
    assert [float(x) for x in lines[3].split("last")[1].split()[:-1]] == pytest.approx(gaps, abs=0.051)
