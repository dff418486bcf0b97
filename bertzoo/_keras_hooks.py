"""Every private attribute of Keras, JAX and PyTorch that bertzoo uses, each in one small function with its reason.

tests/test_keras_hooks.py has a canary for each.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import keras
from keras.src.backend.common import AutocastScope
from keras.src.backend.common.stateless_scope import in_stateless_scope as _in_stateless_scope
from keras.src.utils.io_utils import print_msg
from keras.src.utils.rng_utils import get_random_seed


def sublayers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """The layer and all layers in it, in a fixed order; `layers` has the direct ones of a model alone."""
    return list(layer._flatten_layers())


def in_stateless_scope() -> bool:
    """Whether variables stand for tensors, as in a step that JAX compiles: a layer can't make any there."""
    return _in_stateless_scope()


def without_autocast() -> AbstractContextManager:
    """Within it, variables are read in the dtype in which they are kept, whatever the policy of the layer."""
    return AutocastScope(None)


def keras_seed() -> int | None:
    """The seed of `keras.utils.set_random_seed`, which has no getter; None if it was not called."""
    return get_random_seed()


@contextmanager
def unlocked(layer: keras.layers.Layer) -> Iterator[None]:
    """Within it, a built layer takes further variables and layers; Keras's own LoRA does the same."""
    layer._tracker.unlock()
    try:
        yield
    finally:
        if layer.built:
            layer._tracker.lock()


def is_traced(array) -> bool:
    """Whether a JAX array stands for one that a compiled function will get; `jax.core.Tracer` has no public name."""
    import jax

    return isinstance(array, jax.core.Tracer)


def print_message(text: str) -> None:
    """Prints as Keras does, so that `keras.config.disable_interactive_logging` sends it to the log instead."""
    print_msg(text)


def layer_attributes(layer: keras.layers.Layer) -> list[tuple[str, Any]]:
    """The attributes of a layer. Under PyTorch it is a module, which keeps its parts apart from the others."""
    return list({**vars(layer), **getattr(layer, "_modules", {})}.items())


def own_trainable_weights(layer: keras.layers.Layer) -> list[keras.Variable]:
    """The weights of a layer itself that were made to train: without those of its parts, and BatchNorm's averages."""
    return list(layer._trainable_variables)


def replace_sublayer(owner: keras.layers.Layer, attribute: str, layer: keras.layers.Layer) -> None:
    """Puts another layer in the place of a built layer's part; weights stay in their order."""
    with unlocked(owner):
        old = getattr(owner, attribute)
        index = owner._layers.index(old)
        delattr(owner, attribute)
        owner._tracker.untrack(old)  # deleting makes Keras forget variables only
        setattr(owner, attribute, layer)
        owner._layers.remove(layer)  # it came last
        owner._layers.insert(index, layer)


def loss_tracker(model: keras.Model) -> keras.metrics.Metric | None:
    """The metric that Keras reports as `loss`; None before `compile`."""
    return model._loss_tracker


def set_loss_tracker(model: keras.Model, metric: keras.metrics.Metric) -> None:
    """Reports another metric as `loss`. Past Keras's tracking of attributes, which would list it among the metrics
    twice."""
    object.__setattr__(model, "_loss_tracker", metric)


def micro_batches(optimizer: keras.optimizers.Optimizer) -> keras.Variable:
    """How many batches an optimizer has accumulated or applied; `iterations` counts updates."""
    return optimizer._iterations
