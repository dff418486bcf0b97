"""What variants cost, side by side: parameters, operations, memory, and time measured on this machine."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from bertzoo.accelerator import device_name, keras_versions
from bertzoo.analysis.memory import activation_bytes
from bertzoo.analysis.parameters import describe
from bertzoo.models.config import EncoderConfig
from bertzoo.models.flops import encoder_flops

WARM_UPS = 2


@dataclass(frozen=True)
class Cost:
    """What one encoder costs. Lists have one number for each length.

    parameters: by part, as `bertzoo.describe` has them. flops_per_token: of a forward pass of `Comparison.batch_size`
    rows without padding. activation_bytes: of one row, float32, for its backward pass. milliseconds: of one row's
    forward pass, the median;
    tokens_per_second: of batches of `Comparison.batch_size` rows.
    """

    name: str
    parameters: dict[str, int]
    flops_per_token: list[float]
    activation_bytes: list[int]
    milliseconds: list[float]
    tokens_per_second: list[float]


@dataclass(frozen=True)
class Comparison:
    """The costs of several encoders at the same lengths, and what they were measured on."""

    lengths: list[int]
    batch_size: int
    device: str
    versions: str
    costs: list[Cost]

    def to_json(self) -> dict:
        """All of it as plain values."""
        return asdict(self)


def compare(
    names: Sequence[str], lengths: Sequence[int] = (32, 128), batch_size: int = 8, repeats: int = 5
) -> Comparison:
    """Measures encoders on this machine. Nothing is downloaded: no cost depends on the weights' values.

    Args:
        names: Bundled presets, directories, or checkpoints of the catalog ("google-bert/bert-base-uncased").
        lengths: Tokens in a row, special tokens included.
        batch_size: Rows of the batches whose throughput is measured.
        repeats: Runs of which the median counts, after two that do not.

    Raises:
        ValueError: A name is unknown, there are none, or a length is out of range for one of the models.
    """
    found = [describe(name) for name in names]
    lengths = sorted(set(lengths))
    if not found or not lengths or min(*lengths, batch_size, repeats) < 1:
        raise ValueError("compare needs a name and a length, and lengths, batch_size and repeats of at least 1.")
    for one in found:  # before anything takes time
        if lengths[-1] > one.config.max_length:
            raise ValueError(
                f"{one.name} takes up to {one.config.max_length} tokens; compare it at lengths below {lengths[-1]}."
            )
    costs = [_cost(one, lengths, batch_size, repeats) for one in found]
    return Comparison(lengths, batch_size, device_name(), keras_versions(), costs)


def _cost(found, lengths: list[int], batch_size: int, repeats: int) -> Cost:
    config = found.config
    return Cost(
        found.name,
        found.parts,
        [encoder_flops(config, length, batch_size=batch_size) / length for length in lengths],
        [activation_bytes(config, length) for length in lengths],
        *_times(config, lengths, batch_size, repeats),
    )


def _times(config: EncoderConfig, lengths: list[int], batch_size: int, repeats: int) -> tuple[list[float], list[float]]:
    """(milliseconds of a row, tokens a second of batches), for each length."""
    from bertzoo.models.encoder import Encoder

    encoder = Encoder(config, pooler=False)
    latency, throughput = [], []
    for length in lengths:
        latency.append(1000 * _seconds(encoder, 1, length, repeats))
        throughput.append(batch_size * length / _seconds(encoder, batch_size, length, repeats))
    return latency, throughput


def _seconds(encoder, rows: int, length: int, repeats: int) -> float:
    """The median time of a batch without padding, the transfer of the result included."""
    # Any token but padding, whose positions RoBERTa counts otherwise.
    ids = np.full((rows, length), 0 if encoder.config.pad_token_id == 1 else 1, "int32")
    inputs, taken = {"token_ids": ids, "padding_mask": np.ones_like(ids)}, []
    for _ in range(WARM_UPS + repeats):
        begun = time.perf_counter()
        encoder.predict_on_batch(inputs)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken[WARM_UPS:])
