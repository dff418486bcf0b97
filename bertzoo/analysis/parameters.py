"""How many parameters a model has, by part, without making it."""

import math
from collections.abc import Callable

import keras
from keras.src.backend.common import global_state

from bertzoo.config import EncoderConfig
from bertzoo.encoder import Encoder

PENDING = "uninitialized_variables"


def count_parameters(
    config: EncoderConfig, pooler: bool = True, task: Callable[[Encoder], keras.Model] | None = None
) -> dict[str, int]:
    """The parameters of each part of an encoder, such as `embeddings`, `layer_0` and `pooler`, and of a task's head.

    No weight is allocated, so it takes a moment and no memory for models of any size. A table that two parts share
    counts once, and so do blocks that are applied several times.

    Args:
        config: The encoder's configuration.
        pooler: Whether to count the pooler, where the family has one.
        task: Makes a task of the encoder, such as `bertzoo.MaskedLM`, whose head counts too.
    """
    encoder = without_weights(lambda: Encoder(config, pooler=pooler))
    model = encoder if task is None else without_weights(lambda: task(encoder))
    counts: dict[str, int] = {}
    for weight in model.weights:
        # "encoder/layer_0/…" within the encoder, "head/…" or "task/head/…" outside it.
        part = weight.path.split("/")[1]
        counts[part] = counts.get(part, 0) + math.prod(weight.shape)
    return counts


def without_weights(make: Callable[[], keras.Model]) -> keras.Model:
    """What `make` makes, with weights that have shapes and no values.

    In a stateless scope Keras puts off giving variables their values, and keeps a list of those that wait; it has no
    public way to drop them from it.
    """
    before = list(global_state.get_global_attribute(PENDING, []))
    try:
        with keras.StatelessScope(initialize_variables=False):
            return make()
    finally:
        global_state.set_global_attribute(PENDING, before)
