"""BERT's masking rule, counted over a million tokens."""

import numpy as np
import pytest

from bertzoo.text.masking import Masking

pytestmark = pytest.mark.once

SPECIAL = (0, 1, 2, 3, 4)
CLS, SEP, MASK, VOCABULARY = 2, 3, 4, 1000


@pytest.fixture(scope="module")
def masking():
    return Masking(VOCABULARY, MASK, SPECIAL)


def make_batch(rows, length, lengths, seed=0):
    mask = np.arange(length) < np.asarray(lengths)[:, None]
    ids = np.random.default_rng(seed).integers(5, VOCABULARY, (rows, length)) * mask
    ids[:, 0] = CLS
    ids[np.arange(rows), np.asarray(lengths) - 1] = SEP
    return {"token_ids": ids.astype("int32"), "padding_mask": mask.astype("int32")}


@pytest.fixture(scope="module")
def million(masking):
    lengths = np.random.default_rng(1).integers(40, 129, 12_500)
    inputs = make_batch(len(lengths), 128, lengths)
    return inputs, lengths, *masking(inputs, np.random.default_rng(2))


def test_fifteen_percent_of_each_row(million):
    inputs, lengths, batch, _, weights = million
    assert lengths.sum() > 10**6
    np.testing.assert_array_equal(weights.sum(axis=1), np.maximum(1, np.round(0.15 * lengths)))
    assert batch["mask_positions"].shape == weights.shape == (len(lengths), round(0.15 * 128))
    assert abs(weights.sum() / inputs["padding_mask"].sum() - 0.15) < 0.003


def test_labels_are_what_stood_there_and_nothing_else_changes(million):
    inputs, _, batch, labels, weights = million
    rows = np.arange(len(labels))[:, None]
    counted = weights > 0
    assert (inputs["token_ids"][rows, batch["mask_positions"]] == labels)[counted].all()
    assert not labels[~counted].any() and not batch["mask_positions"][~counted].any()
    chosen = np.zeros(inputs["token_ids"].shape, bool)
    np.put_along_axis(chosen, np.where(counted, batch["mask_positions"], batch["mask_positions"][:, :1]), True, axis=1)
    assert chosen.sum() == counted.sum()  # no position twice
    assert (batch["token_ids"] == inputs["token_ids"])[~chosen].all()


def test_special_tokens_are_never_chosen_and_never_put_in(million):
    """Fault 8."""
    inputs, _, batch, labels, weights = million
    counted = weights > 0
    assert not np.isin(labels[counted], SPECIAL).any()
    put = batch["token_ids"][np.arange(len(labels))[:, None], batch["mask_positions"]][counted]
    assert set(np.unique(put[np.isin(put, SPECIAL)])) == {MASK}


def test_eighty_ten_ten(million):
    inputs, _, batch, labels, weights = million
    counted = weights > 0
    put = batch["token_ids"][np.arange(len(labels))[:, None], batch["mask_positions"]][counted]
    count = len(put)
    assert count > 150_000
    masked, stayed = (put == MASK).mean(), (put == labels[counted]).mean()
    # 0.3 points, and the same within four standard errors; a random token is the old one once in 995.
    assert abs(masked - 0.8) < min(0.003, 4 * np.sqrt(0.16 / count) + 1e-4)
    assert abs(stayed - 0.1001) < 0.003 and abs(1 - masked - stayed - 0.0999) < 0.003
    replaced = put[(put != MASK) & (put != labels[counted])]
    drawn = np.bincount(replaced, minlength=VOCABULARY)[5:]
    expected = len(replaced) / 995
    assert ((drawn - expected) ** 2 / expected).sum() < 994 + 5 * np.sqrt(2 * 994)


def test_positions_are_drawn_evenly(masking):
    rows, length = 20_000, 32
    inputs = make_batch(rows, length, [length] * rows)
    batch, _, weights = masking(inputs, np.random.default_rng(3))
    hits = np.bincount(batch["mask_positions"][weights > 0], minlength=length)
    assert hits[0] == hits[-1] == 0
    expected = weights.sum() / 30
    assert np.abs(hits[1:-1] - expected).max() < 5 * np.sqrt(expected)


def test_short_and_odd_rows(masking):
    """A row without ordinary tokens has nothing to guess; a row with one has one."""
    inputs = {
        "token_ids": np.array([[2, 3, 0, 0], [2, 9, 3, 0], [2, 4, 3, 0]], "int32"),
        "padding_mask": np.array([[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0]], "int32"),
    }
    _, labels, weights = masking(inputs, np.random.default_rng(0))
    np.testing.assert_array_equal(weights, [[0], [1], [0]])
    np.testing.assert_array_equal(labels, [[0], [9], [0]])


def test_shares_can_be_set_and_draws_repeat():
    inputs = make_batch(64, 40, [40] * 64)
    everything = Masking(VOCABULARY, MASK, SPECIAL, mlm_probability=0.4, mask_prob=1.0, random_prob=0.0)
    batch, _, weights = everything(inputs, np.random.default_rng(0))
    assert weights.sum() == 64 * 16 == (batch["token_ids"] == MASK).sum()
    again, _, _ = everything(inputs, np.random.default_rng(0))
    np.testing.assert_array_equal(again["token_ids"], batch["token_ids"])
    assert (inputs["token_ids"] != MASK).all()  # the caller's array is as it was


@pytest.mark.parametrize(
    "wrong", [{"mlm_probability": 0}, {"mlm_probability": 1.0}, {"mask_prob": 0.95}, {"random_prob": -0.1}]
)
def test_wrong_shares_are_named(wrong):
    with pytest.raises(ValueError, match="mlm_probability must lie between 0 and 1"):
        Masking(VOCABULARY, MASK, SPECIAL, **wrong)


def test_a_vocabulary_of_special_tokens_is_refused():
    with pytest.raises(ValueError, match="special tokens only"):
        Masking(5, MASK, SPECIAL)
