"""The seed, and random numbers that are the same on every backend.

The generators of backends differ. Random numbers on the host (weights, order, masks) come from NumPy's Philox; those
inside the compiled step (dropout, sampling) from an integer hash in int32 arithmetic.
"""

import zlib
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from bertzoo._keras_hooks import keras_seed
from bertzoo.types import Tensor

_seed: int | None = None


class Salt(IntEnum):
    """The numbers that keys are folded with, for all random draws inside a compiled step.

    The key of a training call is folded with the number of a layer (0 for the embeddings, then 1, 2, … for the blocks
    in the order in which they are applied, then one for the enhanced mask decoder) or with one of the key spaces from
    HEAD on. The key of a layer is folded with the salt of a dropout in it, which is unique within the layer.
    """

    ATTENTION_WEIGHTS = 0
    ATTENTION_OUTPUT = 1
    FEED_FORWARD = 2
    POSITION_TABLE = 3
    CONVOLUTION = 4
    GATED = 5
    # Of a head.
    DENSE_INPUT = 0
    LOGITS_INPUT = 1

    HEAD = 1 << 20
    GENERATOR = 1 << 21
    DISCRIMINATOR = (1 << 21) + 1
    DISCRIMINATOR_HEAD = (1 << 21) + 2
    REPLACED_TOKENS = (1 << 21) + 3
    ADVERSARIAL_NOISE = 1 << 22


def set_seed(seed: int) -> None:
    """Sets the seed of models, datasets and dropout that are created after this call, whatever Keras's seed is.

    Raises:
        ValueError: `seed` is not an integer from 0 to 2**63 - 1.

    Example:
        >>> bz.set_seed(7)
        >>> bz.get_seed()
        7
    """
    global _seed
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
        raise ValueError(f"Expected a seed from 0 to 2**63 - 1. Received: {seed!r}.")
    _seed = int(seed)


def get_seed() -> int:
    """The current seed: that of `set_seed`, by default that of `keras.utils.set_random_seed`, else 0."""
    return _seed if _seed is not None else keras_seed() or 0


def numpy_generator(seed: int, stream: str | tuple[str, ...]) -> np.random.Generator:
    """The NumPy Philox generator of a seed and a `stream`, such as a weight's name; streams are independent."""
    words = [zlib.crc32(name.encode()) for name in ([stream] if isinstance(stream, str) else stream)]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed & 0xFFFFFFFF, seed >> 32, *words])))


def _signed(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value


# Odd constants without structure: 2**32 / golden ratio, and the multipliers of the murmur3 and lowbias32 finalisers.
GOLDEN = _signed(0x9E3779B9)
STRIDE = _signed(0x85EBCA6B)
MULTIPLIER_1 = _signed(0x7FEB352D)
MULTIPLIER_2 = _signed(0x846CA68B)


def _hash32(x: Tensor) -> Tensor:
    """Scrambles int32 tensors bit by bit (an invertible finaliser)."""
    x = x ^ _high_bits(x, 16)
    x = x * MULTIPLIER_1
    x = x ^ _high_bits(x, 15)
    x = x * MULTIPLIER_2
    return x ^ _high_bits(x, 16)


def _high_bits(x, count: int):
    """A logical right shift of int32 tensors."""
    # Only TensorFlow's tensors have no such operator. On PyTorch, `ops` would copy the number to the GPU each time.
    moved = ops.right_shift(x, count) if keras.backend.backend() == "tensorflow" else x >> count
    return moved & ((1 << (32 - count)) - 1)


class TokenKey(NamedTuple):
    """A key for rows in which several texts stand side by side: a token's random numbers are those that it has where
    each text is a row of its own.

    Attributes:
        key: int32 (2,).
        text_ids, position_ids: int32 (rows, length): the text that a token belongs to, and its position there.
    """

    key: Tensor
    text_ids: Tensor
    position_ids: Tensor


def drop_token_indices(key: Tensor | TokenKey | None) -> Tensor | None:
    """The same key, for tensors that are not of packed rows."""
    return key.key if isinstance(key, TokenKey) else key


def fold_in(key: Any, number: int) -> Any:
    """Derives a key from a key and a number: int32 (2,) -> int32 (2,), or TokenKey -> TokenKey."""
    if isinstance(key, TokenKey):
        return key._replace(key=fold_in(key.key, number))
    number = int(number)  # JAX does not accept members of an enumeration
    return _hash32(_hash32(key + _signed((number * 0x9E3779B9 + 0x7F4A7C15) & 0xFFFFFFFF)) ^ _signed(number))


def random_bits(key: Tensor | TokenKey, shape: Sequence[int]) -> Tensor:
    """Uniform int32 tensor of `shape` (example, …, channel), two axes or more.

    Each number depends on the key and its own indices only, so a mask does not change with padding, bucket or replica.
    With a TokenKey the shape is (rows, length, channels), or (rows, heads, length, length) for attention weights.
    """
    channels = ops.arange(shape[-1], dtype="int32")
    if not isinstance(key, TokenKey):
        first, second = _row_words(key, shape[:-1])
    elif len(shape) == 3:
        first, second = position_hash_words(*key)
    else:
        heads = ops.arange(shape[1], dtype="int32")[:, None]
        text_ids, position_ids = key.text_ids[:, None], key.position_ids[:, None]
        first, second = position_hash_words(key.key, text_ids, heads, position_ids)
        channels = position_ids[:, :, None]
    return random_bits_of_channels(first[..., None], second[..., None], channels)


def _row_words(key: Tensor, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Two int32 tensors of `shape` (example, …), from which `random_bits_of_channels` derives the channels' numbers."""
    last = len(shape) - 1
    return position_hash_words(
        key,
        *(ops.reshape(ops.arange(size, dtype="int32"), (-1, *[1] * (last - axis))) for axis, size in enumerate(shape)),
    )


def position_hash_words(key: Tensor, example_indices: Tensor, *position_indices: Tensor) -> tuple[Tensor, Tensor]:
    """`_row_words` of given examples and positions in them, int32 tensors that broadcast.

    With one word per position, the numbers of two positions could be shifted copies of each other.
    """
    words = _hash32(example_indices * GOLDEN + key[0])
    for index in position_indices:
        words = _hash32(words ^ (index * STRIDE + key[1]))
    return words, _hash32(words + GOLDEN)


def random_bits_of_channels(first_word: Tensor, second_word: Tensor, channel_indices: Tensor) -> Tensor:
    """The random numbers at int32 indices `channel_indices` of positions with these words.

    The last step of `_hash32`, which improves the low bits, is left out for speed: dropout depends on the high bits.
    """
    bits = ((channel_indices * GOLDEN + first_word) ^ second_word) * MULTIPLIER_1
    return (bits ^ _high_bits(bits, 15)) * MULTIPLIER_2


class StepCounter(keras.random.SeedGenerator):
    """The seed and the number of training calls of a model, from which its dropout keys are derived.

    It is a SeedGenerator so that Keras carries its state, int32 (3,), through compiled steps without counting it as a
    weight. The state holds the count and the two words of the seed, so that another seed needs no compilation.
    """

    def __init__(self, seed: int | None = None, name: str = "step"):
        self.name = name
        self.seed = get_seed() if seed is None else seed
        start = np.array([0, *_seed_words(self.seed)], "int32")
        # From a function, so that a model can be built without values (`_keras_hooks.build_without_values`).
        self.state = keras.Variable(
            lambda shape, dtype: ops.convert_to_tensor(start, dtype),
            shape=(3,),
            dtype="int32",
            trainable=False,
            name=name,
        )

    @property
    def num_calls(self) -> int:
        """The number of training calls so far."""
        return int(ops.convert_to_numpy(self.state)[0])

    def next_key(self) -> Tensor:
        """Counts a training call and returns its key, an int32 tensor (2,)."""
        # Created on the device: a NumPy array would be copied there each step, and break PyTorch's graph.
        self.state.assign_add(ops.cast(ops.arange(3, dtype="int32") == 0, "int32"))
        return self.current_key()

    def current_key(self) -> Tensor:
        """The key of the last counted training call."""
        state = ops.convert_to_tensor(self.state)
        return step_key((state[1], state[2]), state[0])

    def get_config(self) -> dict[str, Any]:
        return {"seed": self.seed, "name": self.name}


def step_key(seed: int | tuple[Tensor, Tensor], step: Tensor) -> Tensor:
    """The key of training call `step` (int32 scalar tensor), of a seed or its two words: an int32 tensor (2,)."""
    low, high = _seed_words(seed) if isinstance(seed, int) else seed
    first = _hash32(_hash32(step * GOLDEN + low) ^ high)
    return ops.stack([first, _hash32(first + STRIDE)])


def _seed_words(seed: int) -> tuple[int, int]:
    """The low and the high half of a seed, as int32."""
    return _signed(seed & 0xFFFFFFFF), _signed((seed >> 32) & 0xFFFFFFFF)
