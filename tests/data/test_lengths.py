from itertools import combinations

import numpy as np
import pytest

from bertzoo.data.batch_shapes import choose_padded_lengths

pytestmark = pytest.mark.once


def tokens(lengths: np.ndarray, chosen) -> int:
    return int(np.asarray(chosen)[np.searchsorted(chosen, lengths)].sum())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_as_good_as_trying_all_sets_of_lengths(seed, count):
    lengths = np.minimum(np.random.default_rng(seed).geometric(0.12, 300), 40)
    chosen = choose_padded_lengths(lengths, 40, count, pad_to_multiple_of=2, tolerance=0.0)
    top = -(-int(lengths.max()) // 2) * 2
    sets = [(*below, top) for k in range(count) for below in combinations(range(2, top, 2), k)]
    assert tokens(lengths, chosen) == min(tokens(lengths, candidate) for candidate in sets)
    assert len(chosen) <= count


def test_the_fewest_lengths_within_the_tolerance():
    lengths = np.random.default_rng(0).integers(1, 129, 5000)
    best = tokens(lengths, choose_padded_lengths(lengths, 128, 8, tolerance=0.0))
    chosen = choose_padded_lengths(lengths, 128, 8, tolerance=0.05)
    assert tokens(lengths, chosen) <= 1.05 * best
    fewer = choose_padded_lengths(lengths, 128, len(chosen) - 1, tolerance=0.0)
    assert tokens(lengths, fewer) > 1.05 * best


def test_lengths_stay_under_the_maximum():
    assert choose_padded_lengths(np.array([3, 49, 50]), 50).tolist() == [8, 50]
    assert choose_padded_lengths(np.array([3, 49, 50]), 512).tolist() == [8, 56]
    assert choose_padded_lengths(np.array([7] * 5), 512).tolist() == [8]


def test_wrong_lengths_are_named():
    with pytest.raises(ValueError, match="no rows"):
        choose_padded_lengths(np.array([], int), 8)
