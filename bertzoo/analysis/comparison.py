"""The cost of encoders side by side: parameters, operations, memory, and measured time."""

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from bertzoo._keras_hooks import build_without_values
from bertzoo.analysis.parameters import EncoderDescription, describe
from bertzoo.backend import device_name, keras_versions_text
from bertzoo.layers import RelativeBias, RelativeEmbeddings
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder
from bertzoo.models.flops import encoder_flops

WARM_UPS = 2


@dataclass(frozen=True)
class EncoderCost:
    """The cost of one encoder. Lists have a value for each length.

    Attributes:
        name: The encoder.
        parameters: By part, as in `bertzoo.describe`.
        flops_per_token: Of a forward pass of `CostComparison.batch_size` texts without padding.
        activation_bytes: Of one text in float32, for the backward pass.
        milliseconds: The median of the forward pass of one text.
        tokens_per_second: Of batches of `CostComparison.batch_size` texts.
    """

    name: str
    parameters: dict[str, int]
    flops_per_token: list[float]
    activation_bytes: list[int]
    milliseconds: list[float]
    tokens_per_second: list[float]


@dataclass(frozen=True)
class CostComparison:
    """The costs of encoders at the same lengths, and the device and versions of the measurement."""

    lengths: list[int]
    batch_size: int
    device: str
    versions: str
    costs: list[EncoderCost]

    def to_dict(self) -> dict:
        """The comparison as plain values."""
        return asdict(self)


def compare_costs(
    names: Sequence[str], lengths: Sequence[int] = (32, 128), batch_size: int = 8, repeats: int = 5
) -> CostComparison:
    """Measures encoders on this machine, with random weights; nothing is downloaded.

    Args:
        names: Bundled presets, directories, or checkpoints of the catalog ("google-bert/bert-base-uncased").
        lengths: Tokens of a text, including special tokens.
        batch_size: Texts in a batch, for the throughput.
        repeats: Measured runs, after two for warming up; the median counts.

    Raises:
        ValueError: A name is unknown, there is none, or a length is out of range for one of the models.
    """
    descriptions = [describe(name) for name in names]
    lengths = sorted(set(lengths))
    if not descriptions or not lengths or min(*lengths, batch_size, repeats) < 1:
        raise ValueError("compare_costs needs a name and a length; lengths, batch_size and repeats must be at least 1.")
    for description in descriptions:  # before anything is measured
        limit = description.config.max_length
        if lengths[-1] > limit:
            raise ValueError(f"{description.name} takes up to {limit} tokens. Received: a length of {lengths[-1]}.")
    costs = [_cost(description, lengths, batch_size, repeats) for description in descriptions]
    return CostComparison(lengths, batch_size, device_name(), keras_versions_text(), costs)


def _cost(description: EncoderDescription, lengths: list[int], batch_size: int, repeats: int) -> EncoderCost:
    config = description.config
    return EncoderCost(
        description.name,
        description.parts,
        [encoder_flops(config, length, batch_size=batch_size) / length for length in lengths],
        [activation_bytes(config, length) for length in lengths],
        *_times(config, lengths, batch_size, repeats),
    )


def _times(config: EncoderConfig, lengths: list[int], batch_size: int, repeats: int) -> tuple[list[float], list[float]]:
    """(milliseconds of one text, tokens a second of batches) for each length."""
    encoder = Encoder(config, pooler=False)
    latency, throughput = [], []
    for length in lengths:
        latency.append(1000 * _seconds(encoder, 1, length, repeats))
        throughput.append(batch_size * length / _seconds(encoder, batch_size, length, repeats))
    return latency, throughput


def _seconds(encoder, rows: int, length: int, repeats: int) -> float:
    """The median time of a batch without padding, including the transfer of the result."""
    # Any token but padding, for which RoBERTa has other positions.
    ids = np.full((rows, length), 0 if encoder.config.pad_token_id == 1 else 1, "int32")
    inputs, taken = {"token_ids": ids, "padding_mask": np.ones_like(ids)}, []
    for _ in range(WARM_UPS + repeats):
        begun = time.perf_counter()
        encoder.predict_on_batch(inputs)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken[WARM_UPS:])


def activation_bytes(config: EncoderConfig, length: int, bytes_per_number: int = 4) -> int:
    """Bytes of activations that the backward pass of one text through an encoder needs.

    These are the inputs of matrix products, normalisations and activations, queries, keys and values, and the attention
    weights of families with a learnt position bias, which no fused kernel avoids. Not counted are what a backend keeps
    beyond that, for dropout and unfused kernels, and gradients, optimizer and weights, which do not depend on the text.
    Without fused attention a step keeps two to five times as much: Korthikanti et al. (2022), equation 1, count length
    × hidden × (34 + 5 × heads × length / hidden) bytes per layer in 16 bits.

    Args:
        config: The encoder's configuration.
        length: Tokens of the text.
        bytes_per_number: 4 in float32, 2 in half precision.
    """
    encoder = build_without_values(lambda: Encoder(config, pooler=False))
    numbers = _normalized_values(encoder.embeddings) + _kernel_inputs(encoder.embeddings)
    for index in encoder.block_order:
        block = encoder.blocks[index]
        kernel = block.intermediate.kernel.shape  # its output is the input of the activation
        gate = kernel[1] - block.output_dense.kernel.shape[0]  # and of a product, if gated
        numbers += _kernel_inputs(block) + _normalized_values(block) + kernel[1] + gate + 3 * config.hidden_size
        if isinstance(encoder.position_bias, (RelativeBias, RelativeEmbeddings)):
            numbers += config.num_attention_heads * length
    return int(np.int64(length) * numbers * bytes_per_number)


def _kernel_inputs(layer) -> int:
    """Values of a token that are inputs of kernels."""
    kernels = [weight for weight in layer.weights if weight.path.endswith("/kernel")]
    return sum(kernel.shape[-2] for kernel in kernels if "/position_" not in kernel.path)


def _normalized_values(layer) -> int:
    """Values of a token that are inputs of normalisations."""
    return sum(math.prod(weight.shape) for weight in layer.weights if weight.path.endswith("/gamma"))
