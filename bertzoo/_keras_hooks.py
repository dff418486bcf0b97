"""Every private attribute of Keras, JAX and PyTorch that bertzoo uses, each in one small function with its reason.

tests/test_keras_hooks.py has a canary for each, and finds private attributes that are used elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import keras
from keras.src.backend.common import AutocastScope, global_state
from keras.src.backend.common.stateless_scope import in_stateless_scope as _in_stateless_scope
from keras.src.utils.io_utils import print_msg
from keras.src.utils.rng_utils import get_random_seed

# Private methods that classes of bertzoo override, by the class of Keras that calls them; all but the last backend's
# are in every Keras.
OVERRIDDEN: Mapping[str, Mapping[str, str]] = {
    "Optimizer": {
        "_apply_weight_decay": "AdamW decays by groups",
        "_backend_increment_gradient_accumulators": "on PyTorch one kernel for all",
        "_backend_reset_gradient_accumulators": "on PyTorch one kernel for all",
        "_backend_update_step": "AdamW corrects its moments once for all variables",
        "_clip_gradients": "fewer kernels, and gradients that are not float32",
        "_get_current_learning_rate": "the schedule starts anew with each fit",
        "_update_model_variables_moving_average": "on PyTorch one kernel for all",
    },
    "JAX trainer": {"_get_jax_state": "an interrupted step must not lose the weights"},
    # Its two names: until Keras 3.15, and from 3.16 on.
    "PyTorch trainer": dict.fromkeys(
        ("_should_torch_compile", "_use_torch_compile"), "bertzoo compiles forward pass and loss, without the optimizer"
    ),
}


# ---- layers


def sublayers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """The layer and all layers in it, in a fixed order; `layers` has the direct ones of a model alone."""
    return list(layer._flatten_layers())


def layer_attributes(layer: keras.layers.Layer) -> list[tuple[str, Any]]:
    """The attributes of a layer. Under PyTorch it is a module, which keeps its parts apart from the others."""
    return list({**vars(layer), **getattr(layer, "_modules", {})}.items())


def own_trainable_weights(layer: keras.layers.Layer) -> list[keras.Variable]:
    """The weights of a layer itself that were made to train: without those of its parts, and BatchNorm's averages."""
    return list(layer._trainable_variables)


@contextmanager
def unlocked(layer: keras.layers.Layer) -> Iterator[None]:
    """Within it, a built layer takes further variables and layers; Keras's own LoRA does the same."""
    layer._tracker.unlock()
    try:
        yield
    finally:
        if layer.built:
            layer._tracker.lock()


def replace_sublayer(owner: keras.layers.Layer, attribute: str, layer: keras.layers.Layer) -> None:
    """Puts a layer in the place of another, so that the order of weights stays."""
    with unlocked(owner):
        old = getattr(owner, attribute)
        index = owner._layers.index(old)
        delattr(owner, attribute)
        owner._tracker.untrack(old)  # deleting makes Keras forget variables only
        setattr(owner, attribute, layer)
        owner._layers.remove(layer)  # it came last
        owner._layers.insert(index, layer)


def in_stateless_scope() -> bool:
    """Whether variables stand for tensors, as in a step that JAX compiles: a layer can't make any there."""
    return _in_stateless_scope()


def without_autocast() -> AbstractContextManager:
    """Within it, variables are read in the dtype in which they are kept, whatever the policy of the layer."""
    return AutocastScope(None)


def without_values(make: Callable[[], Any]) -> Any:
    """What `make` makes, whose variables have shapes and no values.

    In a stateless scope Keras puts off giving variables their values and keeps a list of those that wait; it has no
    public way to drop them from it.
    """
    pending = "uninitialized_variables"
    before = list(global_state.get_global_attribute(pending, []))
    try:
        with keras.StatelessScope(initialize_variables=False):
            return make()
    finally:
        global_state.set_global_attribute(pending, before)


def print_message(text: str) -> None:
    """Prints as Keras does, so that `keras.config.disable_interactive_logging` sends it to the log instead."""
    print_msg(text)


def keras_seed() -> int | None:
    """The seed of `keras.utils.set_random_seed`, which has no getter; None if it was not called."""
    return get_random_seed()


# ---- training


def loss_tracker(model: keras.Model) -> keras.metrics.Metric:
    """The mean loss that a compiled model reports; `metrics` has it among others."""
    return model._loss_tracker


def set_loss_tracker(model: keras.Model, tracker: keras.metrics.Metric) -> None:
    """Gives a compiled model another."""
    # Past Keras's tracking of attributes, under which it would be among the metrics twice.
    object.__setattr__(model, "_loss_tracker", tracker)


def batch_loss(model: keras.Model, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
    """What `compute_loss` gives, called as Keras's training step calls it; it may take less arguments than these."""
    return model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True)


def set_initial_epoch(model: keras.Model, epoch: int | None) -> None:
    """Makes the running `fit` begin at another epoch, as Keras's BackupAndRestore does; None afterwards."""
    model._initial_epoch = epoch


def build_metrics(model: keras.Model, batch: Any) -> None:
    """Makes a compiled model's metrics, which on TensorFlow come with the first step."""
    model._symbolic_build(data_batch=batch)


def model_of(callback: keras.callbacks.Callback) -> keras.Model:
    """A callback's model; `callback.model` takes the state out of JAX's hands, within a step too."""
    return callback._model


def batches_seen(optimizer: keras.optimizers.Optimizer) -> int:
    """Batches so far; with gradient accumulation, `iterations` counts the updates."""
    return int(keras.ops.convert_to_numpy(optimizer._iterations))


def rate_source(optimizer: keras.optimizers.Optimizer) -> Any:
    """The variable of the learning rate, or the schedule; `learning_rate` is the number now."""
    return optimizer._learning_rate


def variable_index(optimizer: keras.optimizers.Optimizer, variable: keras.Variable) -> int:
    """The variable's place among those that the optimizer was built for."""
    return optimizer._get_variable_index(variable)


def gradient_sums(optimizer: keras.optimizers.Optimizer) -> Sequence[keras.Variable]:
    """The variables in which an optimizer accumulates gradients."""
    return optimizer._accumulated_gradients


def moving_averages(optimizer: keras.optimizers.Optimizer) -> Sequence[keras.Variable | None]:
    """The moving averages of the model's variables, in their order."""
    return optimizer._model_variables_moving_average


# ---- JAX

JAX_STATE = "_jax_state"  # of a model in `fit`: the arrays that its variables get when they are next asked for


def is_traced(array: Any) -> bool:
    """Whether a JAX array stands for one that a compiled function will get."""
    import jax

    return isinstance(array, jax.core.Tracer)


def set_jax_state(model: keras.Model, state: dict[str, Any] | None) -> None:
    """What the variables of a model in `fit` are to become: arrays by kind of variable."""
    model._jax_state = state


def hand_over_to_jax(model: keras.Model, state: dict[str, Any], **kinds: bool) -> None:
    """Lets a compiled step have the memory of variables of these kinds; `state` is what they hold."""
    model._jax_state = state
    model._jax_state_synced = False
    model._purge_model_variables(**kinds)


def state_shardings(model: keras.Model) -> tuple:
    """How a `keras.distribution` lays out trainable, other, optimizer's and metrics' variables."""
    return model._get_state_sharding_spec()


# ---- PyTorch


def foreach(operation: str) -> Callable[..., Any]:
    """PyTorch's operation on lists of tensors in one kernel, such as "norm" or "add_"."""
    import torch

    return getattr(torch, f"_foreach_{operation}")


def fused_adamw(*arguments: Any, **options: Any) -> None:
    """PyTorch's AdamW update of a list of tensors in one kernel; `torch.optim` calls it with counters of its own."""
    import torch

    torch._fused_adamw_(*arguments, **options)


def without_side_effects_again(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled function whose recomputed parts do not repeat their side effects: Keras notes the names of the layers
    that it is in. Older versions of PyTorch have no such setting."""
    import torch

    setting = "skip_fwd_side_effects_in_bwd_under_checkpoint"
    if not hasattr(torch._dynamo.config, setting):
        return compiled
    return torch._dynamo.config.patch({setting: True})(compiled)
