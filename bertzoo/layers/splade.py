"""SPLADE: a weight for each word of the vocabulary, from the masked-LM logits of a text (Formal et al. 2021)."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bertzoo.dispatch import dispatched_operation
from bertzoo.layers.base import Layer
from bertzoo.layers.functional import lookup_rows
from bertzoo.types import Tensor

POOLINGS = ("max", "sum")
ACTIVATIONS = ("relu", "log1p_relu")
BLOCK = 32  # tokens of a text that are pooled together where texts are packed
LOGITS_AT_ONCE = 2**25  # 128 MB


@keras.saving.register_keras_serializable("bertzoo")
class SpladePooling(Layer):
    """(batch, length, width) -> float32 (batch, vocabulary), at least 0.

    The logits of all tokens, (batch, length, vocabulary), would take gigabytes: they are computed and pooled for a part
    of the vocabulary at a time, and computed anew for the gradient.

    Args:
        pooling: "max" or "sum", over the tokens of a text.
        activation: "relu" for log(1 + max(0, logit)); "log1p_relu" for log(1 + log(1 + max(0, logit))) (Shen et al.
            2025, arXiv 2504.14839).
        name: The layer's name.

    Raises:
        ValueError: The pooling or the activation is unknown.
    """

    def __init__(self, pooling: str = "max", activation: str = "relu", name: str = "splade_pooling", **kwargs):
        super().__init__(name=name, **kwargs)
        if pooling not in POOLINGS or activation not in ACTIVATIONS:
            raise ValueError(
                f"Expected a pooling of {', '.join(POOLINGS)} and an activation of {', '.join(ACTIVATIONS)}. Received: "
                f"{pooling!r} and {activation!r}."
            )
        self.pooling, self.activation = pooling, activation

    def call(
        self,
        x: Tensor,
        table: Tensor,
        bias: Tensor,
        padding_mask: Tensor | None = None,
        num_packed_tokens: Any = None,
    ) -> Tensor:
        """
        Args:
            x: (batch, length, width), what the decoder of the masked-LM head multiplies, see `MaskedLMHead.transform`.
            table: (vocabulary, width), the decoder.
            bias: (vocabulary,).
            padding_mask: (batch, length), 1 at the tokens that count; all where None.
            num_packed_tokens: Where texts are packed, the tokens of the packed rows: padding beyond is not computed. It
                must be at the end of each text.
        """
        batch = ops.shape(x)[0]
        counts = ops.ones_like(x[:, :, 0], dtype="bool") if padding_mask is None else ops.cast(padding_mask, "bool")
        per_text, slots = 1, None
        if num_packed_tokens is not None:
            x, counts, per_text, slots = _real_blocks(x, counts, num_packed_tokens)

        def pool(x: Tensor, table: Tensor, bias: Tensor) -> Tensor:
            logits = ops.cast(ops.matmul(x, ops.transpose(table)), "float32") + bias
            pooled = self._pool(ops.where(counts[:, :, None], logits, 0.0))
            if slots is None:
                return pooled
            of_none = ops.zeros_like(pooled[:1])
            by_text = ops.take(ops.concatenate([pooled, of_none]), slots, axis=0)
            return self._join(ops.reshape(by_text, (batch, per_text, -1)))

        table, bias = ops.cast(table, x.dtype), ops.cast(bias, "float32")
        weights = pool_by_words(pool, x, table, bias, _words_at_once(x, table.shape[0]))
        return self._activate(weights) if self.pooling == "max" else weights

    def _pool(self, logits: Tensor) -> Tensor:
        # The activation grows with the logit, so that of the largest is the largest.
        return ops.amax(logits, axis=1) if self.pooling == "max" else ops.sum(self._activate(logits), axis=1)

    def _join(self, parts: Tensor) -> Tensor:
        return ops.amax(parts, axis=1) if self.pooling == "max" else ops.sum(parts, axis=1)

    def _activate(self, logits: Tensor) -> Tensor:
        x = ops.log1p(ops.relu(logits))
        return ops.log1p(x) if self.activation == "log1p_relu" else x

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "pooling": self.pooling, "activation": self.activation}


@dispatched_operation
def pool_by_words(pool: Callable[..., Tensor], x: Tensor, table: Tensor, bias: Tensor, words: int) -> Tensor:
    """`pool(x, table, bias)`, (batch, vocabulary), computed for a part of the vocabulary at a time, and again for its
    gradient.

    Args:
        pool: (x, rows of the table, their biases) -> (batch, rows).
        x: float (…, width).
        table: (vocabulary, width).
        bias: (vocabulary,).
        words: The most rows of the table at a time.
    """
    count = table.shape[0]
    # Tensors with gradients are arguments: TensorFlow's recomputation gives no gradient to those in a closure.
    parts = [keras.remat(pool)(x, table[i : i + words], bias[i : i + words]) for i in range(0, count, words)]
    return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)


def _words_at_once(x: Tensor, vocab_size: int) -> int:
    """How many words have at most `LOGITS_AT_ONCE` logits, in equal parts of the vocabulary."""
    tokens = None if None in x.shape[:2] else x.shape[0] * x.shape[1]
    parts = -(-vocab_size * (tokens or 2**14) // LOGITS_AT_ONCE)
    return -(-vocab_size // min(parts, vocab_size))


def _real_blocks(x: Tensor, counts: Tensor, num_packed_tokens: Any) -> tuple[Tensor, Tensor, Any, Tensor]:
    """The tokens of texts in blocks of `BLOCK`, without those of padding alone.

    Args:
        x, counts: Vectors (batch, length, width), and which of them count (batch, length); padding is at the end.
        num_packed_tokens: The most tokens that count.

    Returns:
        The vectors in blocks (blocks, BLOCK, width), which of them count, how many blocks a text has room for, and the
        block of each such slot, (batch * slots,): the number of blocks where a slot has none.
    """
    batch, length = ops.shape(x)[0], ops.shape(x)[1]
    per_text = (length + BLOCK - 1) // BLOCK
    num_blocks = num_packed_tokens // BLOCK + batch  # at least, each text has at most one that is not full
    slots = ops.arange(batch * per_text, dtype="int32")
    texts, first = slots // per_text, slots % per_text * BLOCK
    lengths = ops.sum(ops.cast(counts, "int32"), axis=1)
    used = first < ops.take(lengths, texts, axis=0)
    blocks = ops.argsort(ops.where(used, slots, slots + batch * per_text))[:num_blocks]
    texts, first = ops.take(texts, blocks, axis=0), ops.take(first, blocks, axis=0)
    positions = first[:, None] + ops.arange(BLOCK, dtype="int32")
    counted = positions < ops.take(lengths, texts, axis=0)[:, None]
    flat = ops.reshape(x, (-1, x.shape[-1]))
    vectors = lookup_rows(flat, texts[:, None] * length + ops.minimum(positions, length - 1))
    count = ops.shape(blocks)[0]
    # Keras looks for shapes with inputs that are all 1, which are more tokens than were packed.
    numbers = ops.minimum(ops.cumsum(ops.cast(used, "int32")) - 1, count)
    return vectors, counted, per_text, ops.where(used, numbers, count)


@keras.saving.register_keras_serializable("bertzoo")
class SparseStaticEmbedding(Layer):
    """A weight for each word of the vocabulary, such as its inverse document frequency: a text's vector without an
    encoder, for queries (Geng et al. 2024, arXiv 2411.04403). Words that occur more than once count once.

    int (batch, words) -> float32 (batch, vocabulary).

    Args:
        vocab_size: Words of the vocabulary.
        frozen: Whether the weights stay as they are in training.
        name: The layer's name.
    """

    def __init__(self, vocab_size: int, frozen: bool = False, name: str = "static_embedding", **kwargs):
        super().__init__(name=name, **kwargs)
        self.vocab_size, self.frozen = vocab_size, frozen
        self.build()

    def build(self, input_shape: Any = None) -> None:
        self.weight = self.add_weight(
            name="weight", shape=(self.vocab_size,), initializer="ones", trainable=not self.frozen, dtype="float32"
        )

    def call(self, word_ids: Tensor) -> Tensor:
        """
        Args:
            word_ids: int (batch, words), those of a text each once, -1 at padding.
        """
        batch, count = ops.shape(word_ids)[0], ops.shape(word_ids)[1]
        columns = ops.reshape(ops.where(word_ids < 0, self.vocab_size, word_ids), (-1,))  # padding gets one more column
        rows = ops.repeat(ops.arange(batch, dtype=word_ids.dtype), count)
        weights = ops.concatenate([ops.convert_to_tensor(self.weight), ops.zeros((1,), "float32")])
        values = lookup_rows(weights[:, None], columns)[:, 0]
        shape = (batch, self.vocab_size + 1)
        return ops.scatter(ops.stack([rows, columns], axis=1), values, shape)[:, :-1]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "vocab_size": self.vocab_size, "frozen": self.frozen}
