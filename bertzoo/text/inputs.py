"""Validates texts: a list of strings, or an error that names the wrong item."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np


class Texts(list):
    """A list whose items are known to be strings, so that they are not checked again."""


def as_texts(texts: Any, name: str = "texts") -> Texts:
    """Strings as a list, from a string, list, tuple, NumPy array, pandas Series or other sequence of strings.

    Raises:
        TypeError: An item is no string (None, NaN, a number, a nested list); the message gives its index.
    """
    if isinstance(texts, Texts):
        return texts
    if isinstance(texts, np.ndarray) and texts.ndim > 1:
        raise TypeError(f"{name} must be a one-dimensional array of strings. Received: shape {texts.shape}.")
    values = texts.tolist() if hasattr(texts, "tolist") else texts  # of NumPy and pandas
    if isinstance(values, str):
        return Texts([values])
    if not isinstance(values, Sequence) or isinstance(values, (bytes, bytearray)):
        raise TypeError(
            f"{name} must be a string or a sequence of strings (list, tuple, NumPy array, pandas Series), "
            f"got {type(texts).__name__}: {texts!r:.60}."
        )
    for index, text in enumerate(values):
        if not isinstance(text, str):
            raise TypeError(_describe_wrong_item(text, index, name))
    return Texts(values)


def with_prompt(texts: Texts, prompt: str) -> Texts:
    """Texts with a prompt before each of them."""
    return Texts(prompt + text for text in texts) if prompt else texts


def as_pairs(texts: Any, pairs: Any) -> tuple[Texts, Texts | None]:
    """Both columns as equally long lists of strings; `pairs` may be None.

    Raises:
        TypeError: An item is no string, or one column is a single string and the other a list.
        ValueError: The lengths differ.
    """
    firsts = as_texts(texts)
    if pairs is None:
        return firsts, None
    if isinstance(texts, str) != isinstance(pairs, str):
        raise TypeError(
            f"texts and pairs must both be strings or both be lists of strings. Received: {type(texts).__name__} and "
            f"{type(pairs).__name__}; to set one string against many, repeat it: [text] * len(pairs)."
        )
    seconds = as_texts(pairs, "pairs")
    if len(firsts) != len(seconds):
        raise ValueError(
            f"texts and pairs must be equally long. Received: {len(firsts)} texts and {len(seconds)} pairs."
        )
    return firsts, seconds


def check_encodable(texts: Texts, name: str) -> None:
    """Refuses half of a surrogate pair, as the Rust library does, but names the text.

    Raises:
        ValueError: A text holds one.
    """
    for index, text in enumerate(texts):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{name}[{index}] holds a lone surrogate {text[error.start]!r} at character {error.start} and is no "
                f"valid Unicode text; decode the source with errors='replace', or drop the character."
            ) from None


def _describe_wrong_item(item: Any, index: int, name: str) -> str:
    message = f"{name}[{index}] must be a string. Received: {type(item).__name__}: {item!r:.60}."
    if isinstance(item, (list, tuple)):
        return message + " For sentence pairs, pass the first column as `texts` and the second as `pairs`."
    if isinstance(item, bytes):
        return message + " Decode it first: value.decode('utf-8')."
    if item is None or type(item).__name__ == "NAType" or (isinstance(item, float) and item != item):
        return message + " Drop the missing rows, or fill them with an empty string."
    return message


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Switches garbage collection off.

    Rust makes a hundred thousand objects without a step of Python in between, except for JAX's callback when Python
    collects garbage; Ctrl-C would be raised in that callback and lost.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
