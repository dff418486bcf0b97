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
    if isinstance(texts, str):
        return Texts([str(texts)])
    rows = Texts(_as_list(texts, name))
    for index, row in enumerate(rows):
        if not isinstance(row, str):
            raise TypeError(_wrong_row(row, index, name))
    return rows


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


def explain_unencodable(columns: dict[str, list[str] | None]) -> str | None:
    """Names the text with half of a surrogate pair, which the Rust library refuses; None where there is none."""
    for name, rows in columns.items():
        for index, row in enumerate(rows or ()):
            try:
                row.encode("utf-8")
            except UnicodeEncodeError as error:
                return (
                    f"{name}[{index}] holds a lone surrogate {row[error.start]!r} at character {error.start} and is no "
                    f"valid Unicode text; decode the source with errors='replace', or drop the character."
                )
    return None


def _as_list(texts, name: str) -> list:
    if isinstance(texts, np.ndarray):
        if texts.ndim == 0 and isinstance(texts.item(), str):
            return [texts.item()]
        if texts.ndim != 1:
            raise TypeError(f"{name} must be a one-dimensional array of strings. Received: shape {texts.shape}.")
        return texts.tolist()
    if isinstance(texts, Sequence) and not isinstance(texts, (bytes, bytearray)):
        return list(texts)
    if hasattr(texts, "tolist"):  # a pandas Series or Index
        return texts.tolist()
    raise TypeError(
        f"{name} must be a string or a sequence of strings (list, tuple, NumPy array, pandas Series), "
        f"got {type(texts).__name__}: {_short(texts)}."
    )


def _wrong_row(row, index: int, name: str) -> str:
    message = f"{name}[{index}] must be a string. Received: {type(row).__name__}: {_short(row)}."
    if isinstance(row, (list, tuple)):
        return message + " For sentence pairs, pass the first column as `texts` and the second as `pairs`."
    if isinstance(row, bytes):
        return message + " Decode it first: value.decode('utf-8')."
    if row is None or type(row).__name__ == "NAType" or (isinstance(row, float) and row != row):
        return message + " Drop the missing rows, or fill them with an empty string."
    return message


def _short(value) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


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
