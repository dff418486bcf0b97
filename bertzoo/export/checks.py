"""The test that every export passes before it is written: rows of other lengths give the model's outputs."""

from collections.abc import Sequence

import keras
import numpy as np


def example_inputs(model: keras.Model) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Inputs of an encoder or task, int32, and its mask, bool: three rows of unlike lengths."""
    rng, config = np.random.default_rng(0), getattr(model, "backbone", model).config
    shape: tuple[int, ...] = (3, min(11, config.max_length))
    if "multiple_choice" in getattr(model, "heads", ()):
        shape = (shape[0], 2, shape[1])
    mask = np.arange(shape[-1]) < rng.integers(1, shape[-1] + 1, (*shape[:-1], 1))
    mask[-1] = True
    arrays: dict[str, np.ndarray] = {"token_ids": rng.integers(0, config.vocab_size, shape), "padding_mask": mask}
    if config.type_vocab_size > 1:
        arrays["segment_ids"] = np.zeros(shape)
    return {name: array.astype("int32") for name, array in arrays.items()}, mask


def check_equal(
    expected: Sequence[np.ndarray], outputs: Sequence[np.ndarray], mask: np.ndarray, tolerance: float
) -> None:
    """Raises RuntimeError where outputs differ by more than `tolerance`, relative to the largest, at real tokens."""
    for reference, output in zip(expected, outputs, strict=True):
        if reference.shape[: mask.ndim] == mask.shape:  # outputs at padding do not matter
            reference, output = reference[mask], output[mask]
        largest = tolerance * max(1, np.abs(reference).max())
        if reference.shape != output.shape or not np.allclose(reference, output, rtol=tolerance, atol=largest):
            raise RuntimeError("the exported model gives other outputs than the model, so nothing was written.")
