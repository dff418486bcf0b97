"""Whole words and n-grams, against hand-made rows and the authors' code written out."""

import numpy as np
import pytest

from bertzoo.text.masking import Masking, _SpanSampler

pytestmark = pytest.mark.once

SPECIAL = (0, 1, 2, 3, 4)
CLS, SEP, MASK, VOCABULARY = 2, 3, 4, 1000
STARTS = tuple(range(800))  # 800 … 999 go on with a word


def make_batch(rows, length, seed=0, continued=0.3):
    """Rows [CLS] … [SEP] … [SEP] with a share of tokens that go on with a word."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, 800, (rows, length))
    ids = np.where(rng.random(ids.shape) < continued, rng.integers(800, VOCABULARY, ids.shape), ids)
    ids[:, 0], ids[:, -1] = CLS, SEP
    ids[np.arange(rows), rng.integers(2, length - 2, rows)] = SEP
    return {"token_ids": ids.astype("int32"), "padding_mask": np.ones((rows, length), "int32")}


def words_of(row):
    """Lists of positions: a word's first token and those that go on with it; special tokens part words."""
    words, before = [], False
    for position, token in enumerate(row):
        if token in SPECIAL:
            before = False
        elif token >= 800 and before:
            words[-1].append(position)
        else:
            words.append([position])
            before = True
    return words


def chosen_positions(batch, weights):
    for positions, counts in zip(batch["mask_positions"], weights):
        yield set(positions[counts > 0].tolist())


@pytest.mark.parametrize("max_ngram", [1, 3])
def test_words_are_chosen_whole_and_no_row_exceeds_its_share(max_ngram):
    inputs = make_batch(400, 64)
    rule = Masking(VOCABULARY, MASK, SPECIAL, starts=STARTS, max_ngram=max_ngram)
    batch, labels, weights = rule(inputs, np.random.default_rng(1))
    for row, positions, label, count in zip(inputs["token_ids"], chosen_positions(batch, weights), labels, weights):
        assert len(positions) == count.sum() <= round(0.15 * 64)
        for word in words_of(row):
            assert positions.isdisjoint(word) or positions.issuperset(word)
        assert not positions & set(np.flatnonzero(np.isin(row, SPECIAL)))
        np.testing.assert_array_equal(sorted(row[list(positions)]), sorted(label[count > 0]))


def authors_whole_words(row, budget, rng):
    """google-research/bert, create_pretraining_data.py: how many tokens are chosen."""
    words, chosen = words_of(row), 0
    rng.shuffle(words)
    for word in words:
        if chosen >= budget:
            break
        if chosen + len(word) <= budget:
            chosen += len(word)
    return chosen


def test_as_many_tokens_are_chosen_as_by_the_authors_code():
    inputs, rng = make_batch(4000, 48, continued=0.5), np.random.default_rng(3)
    _, _, weights = Masking(VOCABULARY, MASK, SPECIAL, starts=STARTS)(inputs, rng)
    expected = np.array([authors_whole_words(row, round(0.15 * 48), rng) for row in inputs["token_ids"]])
    actual = weights.sum(axis=1)
    for size in range(round(0.15 * 48) + 1):
        fraction = (expected == size).mean()
        assert abs((actual == size).mean() - fraction) < 4 * np.sqrt(2 * fraction / 4000) + 1e-3


def test_lengths_of_ngrams_are_six_to_three_to_two():
    inputs = make_batch(3000, 512, continued=0.2)
    candidate = ~np.isin(inputs["token_ids"], SPECIAL)
    budget = np.full(3000, round(0.15 * 512))
    starts = np.isin(np.arange(VOCABULARY), STARTS)
    numbers = _SpanSampler(starts, 3).choose(inputs["token_ids"], candidate, budget, np.random.default_rng(0))
    assert 0.149 < (numbers > 0).mean() <= budget[0] / 512
    begins = candidate & (starts[inputs["token_ids"]] | ~np.roll(candidate, 1, axis=1))
    last = numbers.max(axis=1)
    words = [np.bincount(row[begin & (row > 0)], minlength=100) for row, begin in zip(numbers, begins)]
    # The last n-grams of a row had to be as short as what was left of its share.
    whole = np.concatenate([counts[1 : end - 1] for counts, end in zip(words, last)])
    assert len(whole) > 100_000
    np.testing.assert_allclose(np.bincount(whole)[1:] / len(whole), np.array([6, 3, 2]) / 11, atol=0.01)
    every = np.concatenate([counts[1 : end + 1] for counts, end in zip(words, last)])
    np.testing.assert_allclose(np.bincount(every)[1:] / len(every), np.array([6, 3, 2]) / 11, atol=0.02)


def test_ngrams_are_consecutive_words_of_one_segment():
    inputs = make_batch(500, 64)
    candidate = ~np.isin(inputs["token_ids"], SPECIAL)
    starts = np.isin(np.arange(VOCABULARY), STARTS)
    budget = np.full(500, 20)
    numbers = _SpanSampler(starts, 3).choose(inputs["token_ids"], candidate, budget, np.random.default_rng(0))
    for row, marks in zip(inputs["token_ids"], numbers):
        words = words_of(row)
        for number in range(1, marks.max() + 1):
            positions = np.flatnonzero(marks == number)
            np.testing.assert_array_equal(positions, np.arange(positions[0], positions[-1] + 1))
            assert not np.isin(row[positions], SPECIAL).any()
            covered = [word for word in words if set(word) & set(positions)]
            assert 1 <= len(covered) <= 3 and sum(covered, []) == positions.tolist()


def test_one_word_too_long_for_its_share_is_left_alone():
    ids = np.array([[2, 10, 900, 901, 902, 3, 0, 0], [2, 10, 900, 11, 12, 13, 14, 3]], "int32")
    inputs = {"token_ids": ids, "padding_mask": (ids > 0).astype("int32")}
    rule = Masking(VOCABULARY, MASK, SPECIAL, mlm_probability=0.25, starts=STARTS)
    for seed in range(20):
        batch, labels, weights = rule(inputs, np.random.default_rng(seed))
        assert weights.sum(axis=1).tolist() == [0, 2]
        assert (batch["token_ids"][0] == ids[0]).all()
        assert sorted(labels[1]) == [10, 900] or not {10, 900} & set(labels[1])


def test_ngrams_of_tokens():
    """Without words, n-grams are of tokens, and the share is met exactly."""
    inputs = make_batch(300, 64)
    batch, _, weights = Masking(VOCABULARY, MASK, SPECIAL, max_ngram=3)(inputs, np.random.default_rng(0))
    assert (weights.sum(axis=1) == round(0.15 * 64)).all()
    neighbours = np.mean(
        [len(positions & {position + 1 for position in positions}) for positions in chosen_positions(batch, weights)]
    )
    _, _, weights = single = Masking(VOCABULARY, MASK, SPECIAL)(inputs, np.random.default_rng(0))
    alone = np.mean([len(p & {position + 1 for position in p}) for p in chosen_positions(single[0], weights)])
    assert neighbours > alone + 2


def test_weights_favour_tokens():
    """Drawn one by one without replacement: of two tokens that weigh 3 and 1, the first is chosen in 3 of 4 rows."""
    ids = np.tile(np.array([[2, 10, 11, 3]], "int32"), (20_000, 1))
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
    weights = np.zeros(VOCABULARY)
    weights[10], weights[11] = 3, 1
    rule = Masking(VOCABULARY, MASK, SPECIAL, weights=tuple(weights))
    _, labels, _ = rule(inputs, np.random.default_rng(0))
    assert abs((labels == 10).mean() - 0.75) < 4 * np.sqrt(0.75 * 0.25 / 20_000)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_ngram": 0}, "max_ngram must be 1 or more"),
        ({"weights": (1.0,)}, "a weight for each of 1000 tokens"),
        ({"weights": (1.0,) * VOCABULARY, "max_ngram": 2}, "single tokens only"),
    ],
)
def test_mistakes_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        Masking(VOCABULARY, MASK, SPECIAL, **wrong)
