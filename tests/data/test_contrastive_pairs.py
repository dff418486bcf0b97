"""Pairs of labelled texts as setfit makes them, and batches in which a text of several pairs stands once."""

import numpy as np
import pytest

from bertzoo.data.contrastive_pairs import PairDataset, contrastive_pairs
from bertzoo.text.encoded import Encoded

# What ContrastiveDataset of setfit 1.2.0 gives: (first text, second text, whether they are alike).
SETFIT = [
    (
        [0, 0, 1, 1, 2],
        None,
        "221 240 001 340 111 140 011 020 441 040 231 130 331 030 221 120",
    ),
    ([0, 1, 1], 3, "001 010 221 020 121 010 111 020 001 010 221 020 121 010 111 020 001 010"),
    ([[1, 0], [1, 1], [0, 1], [0, 0]], None, "011 230 121 020 001 330 221 030 111 130"),
]


@pytest.mark.once
@pytest.mark.parametrize(("targets", "num_iterations", "expected"), SETFIT)
def test_pairs_are_those_of_setfit_in_its_order(targets, num_iterations, expected):
    pairs, scores = contrastive_pairs(np.array(targets), num_iterations)
    given = [f"{first}{second}{score:.0f}" for (first, second), score in zip(pairs, scores)]
    assert given == expected.split()


@pytest.mark.once
def test_texts_of_one_label_make_no_pairs():
    with pytest.raises(ValueError, match="expected texts with different labels. Received: 3 texts, 6 pairs of which"):
        contrastive_pairs(np.zeros(3, int))


@pytest.fixture
def dataset():
    rng = np.random.default_rng(0)
    texts = Encoded.from_rows([[1, *rng.integers(5, 50, length), 2] for length in rng.integers(1, 20, 9)])
    pairs, scores = contrastive_pairs(np.arange(9) % 2)
    return texts, pairs, scores, PairDataset(texts, pairs, scores, batch_size=4)


@pytest.mark.once
def test_an_epoch_has_each_pair_once_and_no_text_twice_in_a_batch(dataset):
    texts, pairs, scores, batches = dataset
    seen, shapes = [], set()
    for index in range(len(batches)):
        inputs, targets = batches[index]
        rows = [tuple(ids[:length]) for ids, length in zip(inputs["token_ids"], inputs["lengths"]) if length]
        assert len(set(rows)) == len(rows)
        # A token of a packed row is that of its text: the padding of the padded batch is nowhere among them.
        packed = inputs["packing"][inputs["packing"] >= 0]
        real = inputs["padding_mask"].ravel() == 1
        assert np.array_equal(np.sort(packed[real[packed]]), np.flatnonzero(real))
        assert (~real[packed]).sum() == len(inputs["lengths"]) - len(rows)
        seen += [(rows[a], rows[b], float(t)) for (a, b), t in zip(inputs["text_index"], targets)]
        shapes.add(inputs["token_ids"].shape)
    expected = [(tuple(texts.row(a)), tuple(texts.row(b)), float(t)) for (a, b), t in zip(pairs, scores)]
    assert sorted(seen) == sorted(expected) and seen != expected and len(shapes) == 1
    assert batches.padding_efficiency > 0.6
