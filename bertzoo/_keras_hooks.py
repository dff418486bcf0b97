"""Every private attribute of Keras, JAX and PyTorch that bertzoo uses, each in one small function with its reason.

tests/test_keras_hooks.py has a canary for each, and finds private attributes that are used elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from typing import Any

import keras
from keras.src.backend.common import AutocastScope, global_state
from keras.src.backend.common.stateless_scope import in_stateless_scope as _in_stateless_scope
from keras.src.utils.io_utils import print_msg
from keras.src.utils.rng_utils import get_random_seed

# Private methods of Keras that classes of bertzoo override, by the class of Keras that calls them.
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


def flatten_layers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """The layer and all layers in it, in a fixed order; `layers` has the direct ones of a model alone."""
    return list(layer._flatten_layers())


def layer_attributes(layer: keras.layers.Layer) -> list[tuple[str, Any]]:
    """The attributes of a layer. Under PyTorch a layer is a module, which keeps its submodules elsewhere."""
    return list({**vars(layer), **getattr(layer, "_modules", {})}.items())


def own_trainable_weights(layer: keras.layers.Layer) -> list[keras.Variable]:
    """The weights that a layer itself created as trainable, frozen or not; without those of its sublayers."""
    return list(layer._trainable_variables)


@contextmanager
def unlocked_layer(layer: keras.layers.Layer) -> Iterator[None]:
    """A context in which a built layer accepts new variables and layers; Keras's own LoRA does the same."""
    layer._tracker.unlock()
    try:
        yield
    finally:
        if layer.built:
            layer._tracker.lock()


def replace_sublayer(parent: keras.layers.Layer, attribute_name: str, new_layer: keras.layers.Layer) -> None:
    """Replaces a sublayer by another one and keeps the order of weights."""
    with unlocked_layer(parent):
        old = getattr(parent, attribute_name)
        index = parent._layers.index(old)
        delattr(parent, attribute_name)
        parent._tracker.untrack(old)  # deleting makes Keras forget variables only
        setattr(parent, attribute_name, new_layer)
        parent._layers.remove(new_layer)  # it came last
        parent._layers.insert(index, new_layer)


def in_stateless_scope() -> bool:
    """Whether a stateless scope is open, as in a step that JAX compiles: layers can't create variables in it."""
    return _in_stateless_scope()


def without_autocast() -> AbstractContextManager:
    """A context in which variables are read in the dtype in which they are stored, whatever the layer's policy."""
    return AutocastScope(None)


def build_without_values(build_model: Callable[[], Any]) -> Any:
    """The result of `build_model`, whose variables have shapes but no values.

    In a stateless scope Keras defers the initialization of variables and keeps a list of them, without a public way to
    remove them from it.
    """
    pending = "uninitialized_variables"
    before = list(global_state.get_global_attribute(pending, []))
    try:
        with keras.StatelessScope(initialize_variables=False):
            return build_model()
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
    """The metric of a compiled model that averages the loss; `metrics` has it among others."""
    return model._loss_tracker


def set_loss_tracker(model: keras.Model, tracker: keras.metrics.Metric) -> None:
    """Replaces that metric."""
    # Past Keras's tracking of attributes, under which it would be among the metrics twice.
    object.__setattr__(model, "_loss_tracker", tracker)


def batch_loss(model: keras.Model, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
    """The loss of a batch, computed as Keras's training step does; `compute_loss` may accept fewer arguments."""
    return model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True)


def set_initial_epoch(model: keras.Model, epoch: int | None) -> None:
    """Lets the running `fit` start at another epoch, as Keras's BackupAndRestore does; None resets it."""
    model._initial_epoch = epoch


def build_metrics(model: keras.Model, batch: Any) -> None:
    """Builds a compiled model's metrics, which TensorFlow builds in the first step."""
    model._symbolic_build(data_batch=batch)


def model_of_callback(callback: keras.callbacks.Callback) -> keras.Model:
    """A callback's model; `callback.model` would write JAX's state back to the variables, even within a step."""
    return callback._model


def num_batches_seen(optimizer: keras.optimizers.Optimizer) -> int:
    """The number of batches so far; with gradient accumulation, `iterations` counts the updates."""
    return int(keras.ops.convert_to_numpy(optimizer._iterations))


def learning_rate_or_schedule(optimizer: keras.optimizers.Optimizer) -> Any:
    """The variable of the learning rate, or the schedule; `learning_rate` is its current value."""
    return optimizer._learning_rate


def variable_index(optimizer: keras.optimizers.Optimizer, variable: keras.Variable) -> int:
    """The variable's index among those that the optimizer was built for."""
    return optimizer._get_variable_index(variable)


def accumulated_gradients(optimizer: keras.optimizers.Optimizer) -> Sequence[keras.Variable]:
    """The variables in which an optimizer accumulates gradients."""
    return optimizer._accumulated_gradients


def weight_moving_averages(optimizer: keras.optimizers.Optimizer) -> Sequence[keras.Variable | None]:
    """The moving averages of the model's variables, in their order."""
    return optimizer._model_variables_moving_average


# ---- JAX

JAX_STATE = "_jax_state"  # of a model in `fit`: the arrays that its variables get at the next synchronization


def is_jax_tracer(array: Any) -> bool:
    """Whether a JAX array is a tracer."""
    import jax

    return isinstance(array, jax.core.Tracer)


def set_jax_state(model: keras.Model, state: dict[str, Any] | None) -> None:
    """Sets the arrays, by kind of variable, that the variables of a model in `fit` get."""
    model._jax_state = state


def donate_variables_to_jax(model: keras.Model, state: dict[str, Any], **kinds: bool) -> None:
    """Donates the memory of variables of these kinds to a compiled step; `state` holds their values."""
    model._jax_state = state
    model._jax_state_synced = False
    model._purge_model_variables(**kinds)


def state_shardings(model: keras.Model) -> tuple:
    """The shardings that a `keras.distribution` gives to trainable, other, optimizer's and metrics' variables."""
    return model._get_state_sharding_spec()


def jax_coordination_client() -> Any:
    """The client of the key-value store that the processes of `jax.distributed` share."""
    from jax._src import distributed

    return distributed.global_state.client


# ---- PyTorch


def has_torch_distribution() -> bool:
    """Whether this Keras implements `keras.distribution` for PyTorch; it has no public way to ask. 3.15 does not."""
    return find_spec("keras.src.backend.torch.distribution_lib") is not None


def torch_foreach(operation_name: str) -> Callable[..., Any]:
    """PyTorch's operation on lists of tensors in one kernel, such as "norm" or "add_"."""
    import torch

    return getattr(torch, f"_foreach_{operation_name}")


def torch_fused_adamw(*arguments: Any, **options: Any) -> None:
    """PyTorch's AdamW update of a list of tensors in one kernel; `torch.optim` calls it with counters of its own."""
    import torch

    torch._fused_adamw_(*arguments, **options)


def without_repeated_side_effects(compiled_function: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled function that does not repeat side effects when it recomputes activations: Keras keeps a stack of the
    names of layers. Older versions of PyTorch have no such setting."""
    import torch

    setting = "skip_fwd_side_effects_in_bwd_under_checkpoint"
    if not hasattr(torch._dynamo.config, setting):
        return compiled_function
    return torch._dynamo.config.patch({setting: True})(compiled_function)
