"""The vectors at some positions of each row."""

from keras import ops

FIRST = "first"


def vectors_at(x, positions):
    """(batch, length, width) -> (batch, count, width): of the first token where `positions` is FIRST, else at these
    positions, int (batch, count)."""
    return x[:, :1] if is_first(positions) else ops.take_along_axis(x, positions[:, :, None], axis=1)


def with_first(positions):
    """Position 0 before the others: int (batch, count) -> (batch, 1 + count)."""
    # Not `ops.pad`, which counts its calls: PyTorch would compile each step anew.
    return ops.concatenate([ops.zeros_like(positions[:, :1]), positions], axis=1)


def bias_at(bias, positions):
    """The rows of queries at these positions: (1, heads, length, length) -> (1 or batch, heads, count, length)."""
    if is_first(positions):
        return bias[:, :, :1]
    return ops.transpose(ops.take(bias[0], positions, axis=1), (1, 0, 2, 3))


def is_first(positions) -> bool:
    """Whether the positions are FIRST; `==` would compare an array element by element."""
    return isinstance(positions, str)
