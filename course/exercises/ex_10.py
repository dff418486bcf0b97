"""Exercises of notebook 10."""

from collections.abc import Callable

SHARES = ("none", "attention", "feed-forward", "all")


def block_parameters(answer: Callable) -> str | None:
    for width, inner, layers in ((2, 3, 1), (2, 3, 4), (768, 3072, 12), (5, 7, 3)):
        attention = 4 * width * width + 6 * width
        feed_forward = 2 * width * inner + inner + 3 * width
        for share in SHARES:
            copies = [1 if share in (part, "all") else layers for part in ("attention", "feed-forward")]
            expected = copies[0] * attention + copies[1] * feed_forward
            actual = answer(width, inner, layers, share)
            if actual != expected:
                return f"block_parameters({width}, {inner}, {layers}, {share!r}): {_hint(actual, expected, layers)}"
    return None


def _hint(actual, expected: int, layers: int) -> str:
    if not isinstance(actual, int):
        return f"it gives {actual!r}, expected a whole number."
    if layers == 1:
        return f"it gives {actual}. With one layer nothing can be shared: count the matrices, biases and norms again."
    return f"it gives {actual}, which is too {'many' if actual > expected else 'few'}. One layer was right."


CHECKS = {"10.1": block_parameters}
