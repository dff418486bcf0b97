"""Dropout whose masks are the same on every backend, because a hash of the element's indices makes them."""

from keras import ops

from bertzoo.random import fold_in, random_bits


def dropout(x, rate: float, key, salt: int = 0):
    """Sets a share `rate` of the elements of x to 0 and scales the others by 1 / (1 - rate); same shape as x.

    Args:
        x: Float tensor (example, …, channel), two axes or more.
        rate: Share to drop, from 0 up to but not including 1.
        key: int32 tensor (2,), or None for no dropout (inference).
        salt: Tells the dropouts that share a key apart.

    Raises:
        ValueError: The rate is out of its range.
    """
    if not 0 <= rate < 1:
        raise ValueError(f"a dropout rate must be at least 0 and below 1; it is {rate!r}.")
    if key is None or rate == 0:
        return x
    bits = random_bits(fold_in(key, salt), ops.shape(x))
    keep = bits >= round(rate * 2**32) - 2**31
    return ops.where(keep, x * (1.0 / (1.0 - rate)), ops.zeros((), x.dtype))
