"""Rows of tokens whose batches tell which rows they hold."""

import numpy as np

from bertzoo.text.encoded import Encoded, lengths_to_row_splits


def make_encoded(rows: int, longest: int = 60, seed: int = 0) -> Encoded:
    """Row i starts with token i + 1, so that a batch tells its rows."""
    lengths = np.minimum(np.random.default_rng(seed).geometric(0.08, rows) + 1, longest)
    starts = lengths_to_row_splits(lengths)
    ids = np.full(starts[-1], 100_000, np.int32)
    ids[starts[:-1]] = np.arange(rows) + 1
    return Encoded(ids, np.zeros(len(ids), np.int8), starts)


def labelled(labels):
    return lambda inputs, rows, rng: (inputs, labels[rows])


def rows_of(batch) -> list[int]:
    return (batch[0]["token_ids"][:, 0] - 1).tolist()
