"""Probes on labels that a layer must or cannot hold."""

import numpy as np
import pytest

import bertzoo as bz
from bertzoo.analysis import probe

RNG = np.random.default_rng(0)
NOUNS, OTHERS = ["film", "plot", "actor", "story"], ["was", "not", "very", "and", "with", "it"]


@pytest.fixture(scope="module")
def task(write_checkpoint):
    return bz.TextClassifier.from_preset(write_checkpoint("BertForSequenceClassification")[0], verbose=False)


def test_a_words_kind_is_in_its_embedding(task):
    texts, labels = [], []
    for _ in range(32):
        picked = RNG.permutation(NOUNS + OTHERS)[:5].tolist()
        texts.append(" ".join(picked))
        labels.append(["noun" if word in NOUNS else "other" for word in picked])
    actual = probe(task, texts, labels)
    assert actual.accuracy.shape == actual.control_task.shape == (3,)
    assert actual.accuracy[0] > 0.95 > actual.majority > 0.4
    # Ten words are few enough for a probe to learn by heart, so it is not selective, and no training is needed.
    assert (
        actual.control_task[0] > 0.95 and abs(actual.selectivity[0]) < 0.06 and abs(actual.gain_over_random[0]) < 0.06
    )
    again = probe(task, texts, labels)
    np.testing.assert_array_equal(again.random_encoder, actual.random_encoder)
    np.testing.assert_allclose(actual.selectivity, actual.accuracy - actual.control_task)


def test_labels_of_texts(task):
    texts = [
        " ".join(RNG.permutation(["good" if i % 2 else "bad", "the", "film", "was", *OTHERS[:3]])) for i in range(64)
    ]
    actual = probe(task, texts, [i % 2 for i in range(64)])
    assert actual.accuracy[0] == 1 and actual.majority < 0.7
    assert actual.control_task.mean() < 0.8


def test_what_cannot_be_probed(task):
    with pytest.raises(ValueError, match="one label, or sequence of labels"):
        probe(task, ["a film"], [])
    with pytest.raises(ValueError, match="all labels are the same"):
        probe(task, ["a film", "a plot"], [1, 1])
    with pytest.raises(ValueError, match="Received: 1 labels"):
        probe(task, ["a film", "a plot"], [["x"], ["x", "y"]])
    with pytest.raises(ValueError, match="leaves nothing"):
        probe(task, ["a film", "a plot"], [0, 1], held_out=0)
