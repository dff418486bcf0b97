"""The vectors of some tokens of each row."""

from keras import ops

FIRST = "first"


def vectors_at(x, places):
    """(batch, length, width) -> (batch, count, width): of the first token alone where `places` is FIRST, else at these
    places, int (batch, count)."""
    return x[:, :1] if is_first(places) else ops.take_along_axis(x, places[:, :, None], axis=1)


def with_first(places):
    """The first place put before others: int (batch, count) -> (batch, 1 + count)."""
    # Not `ops.pad`, which counts its calls: PyTorch would compile each step anew.
    return ops.concatenate([ops.zeros_like(places[:, :1]), places], axis=1)


def bias_at(bias, places):
    """The rows of queries at these places: (1, heads, length, length) -> (1 or batch, heads, count, length)."""
    return bias[:, :, :1] if is_first(places) else ops.transpose(ops.take(bias[0], places, axis=1), (1, 0, 2, 3))


def is_first(places) -> bool:
    """Whether they are FIRST; for an array, `==` would be one of its elements."""
    return isinstance(places, str)
