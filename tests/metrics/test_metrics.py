"""Every score against the field's own code, or against the rules written out again, on generated cases."""

import re
import string
from collections import Counter

import numpy as np
import pytest

from bertzoo import metrics

pytestmark = pytest.mark.once

TAGS = ["O"] + [f"{letter}-{kind}" for letter in "BI" for kind in ("PER", "LOC-X")]
BIOES = ["O"] + [f"{letter}-{kind}" for letter in "BIES" for kind in ("A", "B")]


# ---- entities, as seqeval


@pytest.mark.slow
@pytest.mark.parametrize("labels", [TAGS, BIOES], ids=["BIO", "BIOES"])
def test_entities_are_scored_as_seqeval_does(labels):
    """500 cases a scheme, tags in any order."""
    seqeval = pytest.importorskip("seqeval.metrics")
    rng = np.random.default_rng(0)
    for _ in range(500):
        lengths = rng.integers(0, 8, rng.integers(1, 6))
        truth = [[str(t) for t in rng.choice(labels, n)] for n in lengths]
        predicted = [[t if rng.random() < 0.6 else str(rng.choice(labels)) for t in tags] for tags in truth]
        actual = metrics.entity_scores(truth, predicted)
        for name, function in (("precision", "precision_score"), ("recall", "recall_score"), ("f1", "f1_score")):
            expected = getattr(seqeval, function)(truth, predicted, zero_division=0)
            assert actual[name] == pytest.approx(float(expected), abs=1e-12)
        if lengths.sum():
            assert actual["accuracy"] == pytest.approx(seqeval.accuracy_score(truth, predicted))
        report = metrics.entity_report(truth, predicted)
        if sum(row["support"] for row in report.values()):
            expected = seqeval.classification_report(truth, predicted, output_dict=True, zero_division=0)
            for kind, row in report.items():
                for ours_name, name in (("precision", "precision"), ("recall", "recall"), ("f1", "f1-score")):
                    assert row[ours_name] == pytest.approx(float(expected[kind][name]))
                assert row["support"] == expected[kind]["support"]


def test_entities_must_match_in_number():
    with pytest.raises(ValueError, match="1 sentences of tags and 2"):
        metrics.entity_scores([["O"]], [["O"], ["O"]])
    with pytest.raises(ValueError, match="sentence 0 has 1 tags and 2"):
        metrics.entity_scores([["O"]], [["O", "O"]])


# ---- answers: the rules of the official scripts, written out


def rule_normalize(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\s+", " ", re.sub(r"\b(a|an|the)\b", " ", text)).strip()


def rule_f1(prediction, gold, version):
    output, right = rule_normalize(prediction).split(), rule_normalize(gold).split()
    if version == "2.0" and (not output or not right):
        return int(output == right)
    shared = sum((Counter(output) & Counter(right)).values())
    if shared == 0:
        return 0
    precision, recall = shared / len(output), shared / len(right)
    return 2 * precision * recall / (precision + recall)


def rule_scores(predictions, answers, version):
    exact, overlap = [], []
    for output, golds in zip(predictions, answers):
        if version == "2.0":
            golds = [gold for gold in golds if rule_normalize(gold)] or [""]
        exact.append(max(rule_normalize(output) == rule_normalize(gold) for gold in golds))
        overlap.append(max(rule_f1(output, gold, version) for gold in golds))
    return 100 * np.mean(exact), 100 * np.mean(overlap)


WORDS = [
    "the",
    "a",
    "An",
    "cat",
    "Cat!",
    "dog",
    "dogs",
    "U.S.",
    "1,000",
    "…",
    "«x»",
    "",
    "theatre",
    "é",
    "the\u00a0cat",
    "-",
]


def random_answer(rng):
    return " ".join(rng.choice(WORDS, rng.integers(0, 5)))


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_answers_are_scored_by_the_rules(version):
    """1,000 cases."""
    rng = np.random.default_rng(1)
    for _ in range(1000):
        count = rng.integers(1, 5)
        fewest = 0 if version == "2.0" else 1
        answers = [[random_answer(rng) for _ in range(rng.integers(fewest, 4))] for _ in range(count)]
        output = [golds[0] if golds and rng.random() < 0.3 else random_answer(rng) for golds in answers]
        actual = metrics.squad_scores(output, answers, version)
        assert (actual["exact_match"], actual["f1"]) == pytest.approx(rule_scores(output, answers, version))


def test_answers_are_scored_as_torchmetrics_does():
    """SQuAD 1.1; of answers of which normalising leaves nothing there are none here, it scores them as 2.0 does."""
    squad = pytest.importorskip("torchmetrics.functional.text").squad
    rng = np.random.default_rng(2)
    for _ in range(60):
        answers = [["cat " + random_answer(rng) for _ in range(rng.integers(1, 4))] for _ in range(3)]
        output = ["dog " + random_answer(rng) for _ in answers]
        reference = squad(
            [{"prediction_text": text, "id": str(i)} for i, text in enumerate(output)],
            [
                {"answers": {"answer_start": [0] * len(golds), "text": golds}, "id": str(i)}
                for i, golds in enumerate(answers)
            ],
        )
        actual = metrics.squad_scores(output, answers)
        assert actual == pytest.approx({name: float(value) for name, value in reference.items()}, abs=1e-3)


def test_no_answer_is_scored_apart():
    scores = metrics.squad_scores(["", "cat", "cat"], [[], [], ["cat"]], "2.0")
    assert scores["no_answer_f1"] == scores["no_answer_exact_match"] == 50
    assert scores["has_answer_f1"] == 100 and scores["f1"] == pytest.approx(200 / 3)


def with_threshold(threshold, output, null, answers):
    given = ["" if n > threshold else text for text, n in zip(output, null)]
    return metrics.squad_scores(given, answers, "2.0")["f1"]


def test_the_threshold_is_the_best_of_all():
    rng = np.random.default_rng(3)
    for _ in range(200):
        count = int(rng.integers(1, 8))
        answers = [[random_answer(rng)] if rng.random() < 0.5 else [] for _ in range(count)]
        output = [golds[0] if golds and rng.random() < 0.5 else random_answer(rng) for golds in answers]
        null = rng.integers(-3, 4, count).astype(float)  # with ties
        result = metrics.best_no_answer_threshold(output, null, answers)
        best = max(with_threshold(t, output, null, answers) for t in np.arange(-4.5, 4))
        assert with_threshold(result, output, null, answers) == pytest.approx(best)


def test_errors_of_answers():
    with pytest.raises(ValueError, match="version='2.0'"):
        metrics.squad_scores(["x"], [[]])
    with pytest.raises(ValueError, match="version"):
        metrics.answer_f1("x", ["x"], "3")
    with pytest.raises(ValueError, match="list of right answers"):
        metrics.answer_f1("x", "x")
    with pytest.raises(ValueError, match="1 predictions for 2"):
        metrics.squad_scores(["x"], [["x"], ["x"]])


# ---- classes and numbers, as scikit-learn and SciPy


@pytest.mark.slow
def test_classes_are_scored_as_scikit_learn_does():
    """300 cases, since scikit-learn takes 20 ms for each."""
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(4)
    for _ in range(300):
        classes, count = int(rng.integers(1, 5)), int(rng.integers(1, 20))
        truth, predicted = rng.integers(0, classes, count), rng.integers(0, classes, count)
        assert metrics.accuracy(truth, predicted) == pytest.approx(sklearn.accuracy_score(truth, predicted))
        assert metrics.matthews_corrcoef(truth, predicted) == pytest.approx(
            sklearn.matthews_corrcoef(truth, predicted), abs=1e-9
        )
        for average in ("macro", "micro", "weighted"):
            expected = sklearn.f1_score(truth, predicted, average=average, zero_division=0)
            assert metrics.f1(truth, predicted, average) == pytest.approx(expected)
        if classes <= 2:
            assert metrics.f1(truth, predicted) == pytest.approx(sklearn.f1_score(truth, predicted, zero_division=0))
        named = [str(i) for i in truth], [str(i) for i in predicted]
        assert metrics.f1(*named, "macro") == pytest.approx(metrics.f1(truth, predicted, "macro"))


@pytest.mark.slow
def test_numbers_are_correlated_as_scipy_does():
    """1,000 cases, many with ties."""
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(5)
    for _ in range(1000):
        count = int(rng.integers(3, 30))
        a = rng.integers(0, 6, count) if rng.random() < 0.5 else rng.normal(size=count) * 10.0 ** rng.integers(-8, 8)
        b = a * rng.normal() + rng.normal(size=count).round(1)
        if np.ptp(a) == 0 or np.ptp(b) == 0:
            continue
        assert metrics.pearson(a, b) == pytest.approx(stats.pearsonr(a, b).statistic, abs=1e-9)
        assert metrics.spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-9)
    assert np.isnan(metrics.pearson([1, 1], [1, 2])) and np.isnan(metrics.spearman([1, 2], [3, 3]))


def test_errors_of_classes_and_numbers():
    with pytest.raises(ValueError, match="2 truths and 1"):
        metrics.accuracy([1, 2], [1])
    with pytest.raises(ValueError, match="average"):
        metrics.f1([1], [1], "best")
    with pytest.raises(ValueError, match="not one of the classes"):
        metrics.confusion_matrix([1], [2], [1])
    with pytest.raises(ValueError, match="at least two"):
        metrics.pearson([1], [1])
