"""Pooling of token vectors to one vector per text (Reimers and Gurevych 2019, section 3)."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bertzoo.layers.base import Layer
from bertzoo.types import Tensor

# The modes of sentence-transformers, in the order in which it concatenates them; and a learnt one.
SHARED_POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
POOLINGS = (*SHARED_POOLINGS, "attention")

_MASKED = -1e30  # finite, so that a text without any token left gives no NaN


@keras.saving.register_keras_serializable("bertzoo")
class Pooling(Layer):
    """(batch, length, hidden) -> float32 (batch, modes × hidden); padding never counts.

    Args:
        modes: One of "cls" (the first token), "lasttoken", "max", "mean", "mean_sqrt_len_tokens" (the sum over the
            square root of the count), "weightedmean" (by position, 1, 2, …; Muennighoff 2022, section 3.1.1), and
            "attention" (a softmax of the products with a learnt vector, which starts as the mean; Yang et al. 2016,
            equations 5 to 7, without the hidden layer); or several, whose vectors are joined.
        include_prompt: False leaves the tokens of a prompt out; `SentenceEncoder.encode` then masks them.
        name: The layer's name.

    Raises:
        ValueError: A mode is unknown, or there is none.
    """

    def __init__(
        self, modes: str | Sequence[str] = "mean", include_prompt: bool = True, name: str = "pooling", **kwargs
    ):
        super().__init__(name=name, **kwargs)
        self.modes = (modes,) if isinstance(modes, str) else tuple(modes)
        unknown = [mode for mode in self.modes if mode not in POOLINGS]
        if unknown or not self.modes:
            raise ValueError(f"Expected poolings of {', '.join(POOLINGS)}. Received: {modes!r}.")
        self.include_prompt = include_prompt

    def build(self, x_shape: Any, padding_mask_shape: Any = None) -> None:
        self.hidden_size = x_shape[-1]
        if "attention" in self.modes:
            self.attention = self.add_weight(
                name="attention", shape=(x_shape[-1],), initializer="zeros", dtype="float32"
            )

    def call(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """
        Args:
            x: (batch, length, hidden).
            padding_mask: (batch, length), 1 at the tokens that count; all where None.
        """
        x = ops.cast(x, "float32")
        mask = ops.ones_like(x[:, :, 0]) if padding_mask is None else ops.cast(padding_mask, "float32")
        vectors = [getattr(self, f"_{mode}")(x, mask) for mode in self.modes]
        return vectors[0] if len(vectors) == 1 else ops.concatenate(vectors, axis=-1)

    def _cls(self, x, mask):
        positions = _positions(x)
        return _first_by(x, ops.where(mask > 0, ops.max(positions) + 1 - positions, -positions))

    def _lasttoken(self, x, mask):
        positions = _positions(x)
        return _first_by(x, ops.where(mask > 0, positions + 1, -positions))

    def _max(self, x, mask):
        return ops.amax(ops.where(mask[:, :, None] > 0, x, _MASKED), axis=1)

    def _mean(self, x, mask):
        return weighted_mean(x, mask)

    def _mean_sqrt_len_tokens(self, x, mask):
        count = ops.maximum(ops.sum(mask, axis=1, keepdims=True), 1e-9)
        return _sum(x, mask) / ops.sqrt(count)

    def _weightedmean(self, x, mask):
        positions = ops.arange(ops.shape(x)[1], dtype="float32")
        return weighted_mean(x, mask * (positions + 1))

    def _attention(self, x, mask):
        scores = ops.matmul(x, ops.convert_to_tensor(self.attention))
        return _sum(x, ops.softmax(ops.where(mask > 0, scores, _MASKED), axis=1))

    def compute_output_spec(self, x: Tensor, padding_mask: Tensor | None = None) -> keras.KerasTensor:
        return keras.KerasTensor((x.shape[0], len(self.modes) * x.shape[-1]), "float32")


@keras.saving.register_keras_serializable("bertzoo")
class Normalize(keras.layers.Layer):
    """(batch, width) -> the same vectors, of length 1."""

    def call(self, x: Tensor) -> Tensor:
        return normalized(x)


def normalized(x: Tensor) -> Tensor:
    """Vectors divided by their L2 norm, at least 1e-12; as torch.nn.functional.normalize."""
    # The argument of the root is at least (1e-12)²: the derivative of a root at 0 is infinite.
    return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), axis=-1, keepdims=True), 1e-24))


def cosine(u: Tensor, v: Tensor) -> Tensor:
    """The cosine of two vectors, 0 if one is 0: (…, width) twice -> (…)."""
    return ops.sum(normalized(u) * normalized(v), axis=-1)


def _sum(x, weights):
    return ops.einsum("btd,bt->bd", x, weights)


def weighted_mean(x: Tensor, weights: Tensor) -> Tensor:
    """float32 (batch, length, width), (batch, length) -> (batch, width); 0 where all weights are 0."""
    return _sum(x, weights) / ops.maximum(ops.sum(weights, axis=1, keepdims=True), 1e-9)


def _positions(x):
    """0, 1, … of the tokens: float32 (1, length)."""
    return ops.arange(ops.shape(x)[1], dtype="float32")[None]


def _first_by(x, order):
    """The token of each row with the highest number, which must be unique: (batch, width).

    A sum, not a look-up: exporters take the sizes of look-ups for constants, and TensorFlow's argmax has no ONNX form.
    """
    return _sum(x, ops.cast(order == ops.max(order, axis=1, keepdims=True), "float32"))
