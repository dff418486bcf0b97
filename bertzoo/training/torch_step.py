"""The training step on PyTorch: forward pass, loss and backward pass as one compiled graph, the update as a few
kernels."""

import math
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import torch
from keras import ops

from bertzoo._keras_hooks import (
    accumulated_gradients,
    batch_loss,
    loss_tracker,
    torch_foreach,
    torch_fused_adamw,
    variable_index,
    weight_moving_averages,
    without_repeated_side_effects,
)
from bertzoo.layers.functional import dropout
from bertzoo.random import fold_in, random_bits
from bertzoo.training.calls import ThreadSafeModel, delay_interrupts
from bertzoo.training.cuda_graphs import GraphedPass

# The hash behind dropout uses what it has computed several times over. Up to this many operations inductor computes
# that anew for each use, which is exponential in the length of the hash; its own limit for CPUs takes minutes.
OPTIONS = {"realize_opcount_threshold": 30}


class TorchModel(ThreadSafeModel):
    """The base of models that train under PyTorch.

    Keras hands its whole step to `torch.compile`, whose graph then breaks at the optimizer, the metrics and the log.
    Here the model, its loss and its metrics are one graph without breaks, and so is the backward pass that PyTorch
    derives from it. The optimizer runs outside, see `TorchOptimizer`. Where a batch is computed in parts, the graph is
    of one part, since that of the whole would hold it as many times as there are parts.

    The first shape of batch is compiled as it is, the next with the axis that changed as a variable, so that a run of
    many lengths needs two or three graphs. `jit_compile=True` asks for it, for predictions too; "auto" is Keras's,
    which compiles nothing on PyTorch.
    """

    def _device(self) -> torch.device:
        return next(self.parameters()).device

    def dataset_on_device(self, dataset: keras.utils.PyDataset) -> keras.utils.PyDataset:
        """The dataset with its batches on the device of the weights."""
        device = self._device()
        return _OnDeviceDataset(dataset, device) if device.type == "cuda" else dataset

    def _should_torch_compile(self) -> bool:
        return False  # not by Keras

    _use_torch_compile = _should_torch_compile  # its name from Keras 3.16 on

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        _refuse_processes()  # here too: before it makes the step, Keras from 3.16 averages metrics over the processes
        try:
            return super().fit(*args, **kwargs)
        finally:
            if isinstance(training_pass := getattr(self, "_training_pass", None), GraphedPass):
                training_pass.forget()  # the gradients that it keeps are as large as the weights, for each shape

    def make_train_function(self, force: bool = False) -> None:
        _refuse_processes()
        if force or self.train_function is None:
            compiles_step = self.jit_compile and not self.runs_in_parts
            self._forward_pass = _compiled(_forward_pass) if compiles_step else _forward_pass
            self._compiled_parts: dict[Callable, Callable] = {}
            graphed = self.jit_compile_is_auto and self._device().type == "cuda" and not self.runs_in_parts
            self._training_pass = GraphedPass(_forward_backward) if graphed else _forward_backward
        super().make_train_function(force)

    def compiled_part(self, function: Callable) -> Callable:
        if not self.jit_compile or self.train_function is None:  # Keras builds metrics before it makes the step
            return function
        if function not in self._compiled_parts:
            self._compiled_parts[function] = _compiled(function)
        return self._compiled_parts[function]

    def make_predict_function(self, force: bool = False) -> Any:
        if force or self.predict_function is None:
            self._inference = _compiled(_inference) if self.jit_compile else _inference
        return super().make_predict_function(force)

    def predict_step(self, data: Any) -> Any:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(_to_device(data, self._device()))
        return self._inference(self, x)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(_to_device(data, self._device()))
        trainable = self.trainable_weights[:]
        if not trainable:
            warnings.warn("the model has no trainable weights.", stacklevel=2)
            return self._forward_pass(self, x, y, sample_weight)[1]
        logs, gradients = self._training_pass(self, x, y, sample_weight, [weight.value for weight in trainable])
        with torch.no_grad(), delay_interrupts():  # all weights are updated, or none
            self.optimizer.apply(list(gradients), trainable)
        return logs


def _forward_backward(model, x, y, sample_weight, weights):
    """The log of all metrics so far, and the gradients of a batch."""
    loss, logs = model._forward_pass(model, x, y, sample_weight)
    return logs, torch.autograd.grad(model.optimizer.scale_loss(loss), weights, allow_unused=True)


def _forward_pass(model, x, y, sample_weight):
    """The loss of a batch, and the log of all metrics so far."""
    y_pred = model(x, training=True)
    loss = batch_loss(model, x, y, y_pred, sample_weight)
    # With a gradient, the backward pass would take zeros for that of each output.
    with torch.no_grad():
        examples = next(array for array in keras.tree.flatten(x) if array is not None).shape[0]
        loss_tracker(model).update_state(loss.detach(), sample_weight=examples)
        y_pred = keras.tree.map_structure(torch.Tensor.detach, y_pred)
        return loss, model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)


def _inference(model, x):
    return model(x, training=False)


def _compiled(function: Any) -> Callable:
    for known in (dropout, fold_in, random_bits):  # pure functions of tensors, which are most of the graph
        torch.compiler.allow_in_graph(known)
    # Keras's tables of dtypes are behind such caches, and may be traced.
    warnings.filterwarnings("ignore", "Dynamo detected a call to a `functools.lru_cache`")
    # PyTorch keeps graphs, and counts them, by code object: without a copy all models would share one count.
    copy = types.FunctionType(function.__code__.replace(), function.__globals__, function.__name__)
    compiled = torch.compile(copy, fullgraph=True, options=OPTIONS)
    return without_repeated_side_effects(compiled)


def _refuse_processes() -> None:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    processes = torch.distributed.get_world_size()
    if processes > 1:  # Keras from 3.16 would wrap the model, which this step does not go through
        raise NotImplementedError(
            f"under PyTorch, bertzoo trains in one process. Received: torch.distributed with {processes} processes, "
            "whose gradients would not be averaged. Train on one device, or on several with KERAS_BACKEND=jax and "
            "keras.distribution.DataParallel."
        )


def _to_device(batch: Any, device: torch.device) -> Any:
    """A batch's arrays as tensors on a device; copies to a GPU are asynchronous, from page-locked memory."""

    def copy(array):
        if not isinstance(array, torch.Tensor):
            with keras.device("cpu"):
                array = ops.convert_to_tensor(array)
        if device.type == "cuda" and array.device.type == "cpu":
            array = array.pin_memory()
        return array.to(device, non_blocking=True)

    return keras.tree.map_structure(copy, batch, none_is_leaf=False)


class _OnDeviceDataset(keras.utils.PyDataset):
    """The batches of another dataset, as tensors on a device.

    Keras copies array by array, and each copy waits for the work queued on the GPU: a tenth of a step is lost.
    """

    def __init__(self, data: keras.utils.PyDataset, device: torch.device):
        super().__init__(data.workers, data.use_multiprocessing, data.max_queue_size)
        self.data, self.device = data, device

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        return _to_device(self.data[index], self.device)

    def on_epoch_begin(self) -> None:
        self.data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self.data.on_epoch_end()


@dataclass
class Group:
    """Variables on one device, of one dtype, decay and factor of the rate, which one kernel updates: their indices
    among the variables that are updated, and the tensors of their values and moments."""

    multiplier: float
    decay: float
    indices: list[int] = field(default_factory=list)
    values: list[torch.Tensor] = field(default_factory=list)
    momentums: list[torch.Tensor] = field(default_factory=list)
    velocities: list[torch.Tensor] = field(default_factory=list)


class TorchOptimizer(keras.optimizers.Optimizer):
    """The base of `AdamW` under PyTorch.

    Keras keeps an optimizer's counters on the GPU and adds Python numbers to them, which copies the number there and
    waits for all queued work, several times a step. Here the scalars (iterations, rate, schedule) live on the host, and
    Keras's `apply` runs with the host as its default device; what touches the model's variables is written in torch
    operations, which stay where their tensors are.
    """

    def build(self, variables: Sequence[keras.Variable]) -> None:
        # The CPU kernel walks the tensors' memory side by side and would silently mix up a transposed one.
        for variable in variables:
            variable.value.data = variable.value.data.contiguous()
        # By device: the step at which the kernel's own bias correction, 1 - beta ** step, is exactly 1.
        self._last_step = {v.value.device: torch.full((), math.inf, device=v.value.device) for v in variables}
        self._groups: list[Group] = []
        self._grouped: tuple[int, ...] = ()  # the ids of the variables in `_groups`
        super().build(variables)

    def apply(self, grads: Sequence, trainable_variables: Any = None) -> None:
        if not self.built and trainable_variables is not None:
            self.build(list(trainable_variables))
        with keras.device("cpu"):
            super().apply(grads, trainable_variables)

    @torch.no_grad()
    def _clip_gradients(self, grads):
        if self.clipvalue:
            return [g.clamp(-self.clipvalue, self.clipvalue) for g in grads]
        if self.clipnorm:
            norms = torch_foreach("norm")(grads)
            return torch_foreach("mul")(grads, [torch.clamp(self.clipnorm / n, max=1.0) + (n - n) for n in norms])
        if not self.global_clipnorm:
            return grads
        norms = torch_foreach("norm")(grads)
        norm = torch.linalg.vector_norm(torch.stack([n.to(norms[0].device, torch.float32) for n in norms]))
        # As in Keras, an infinite norm gives NaN instead of a zero step. (norm - norm is NaN then.)
        scale = torch.clamp(self.global_clipnorm / norm, max=1.0) + (norm - norm)
        return torch_foreach("mul")(grads, scale)

    @torch.no_grad()
    def _backend_update_step(self, grads, trainable_variables, learning_rate) -> None:
        rate, correction, epsilon = map(float, learning_rate)
        for group in self._group(trainable_variables):
            values = group.values
            torch_fused_adamw(
                values,
                [grads[i].to(values[0].dtype).contiguous() for i in group.indices],
                group.momentums,
                group.velocities,
                [],
                [self._last_step[values[0].device]] * len(values),
                # The kernel's own correction, whose count of steps would lie on the device, is made 1. The correction
                # goes into the rate and epsilon; the decay, which the kernel multiplies by the rate, loses it again.
                lr=rate * group.multiplier * correction,
                weight_decay=group.decay / correction,
                beta1=self.beta_1,
                beta2=self.beta_2,
                eps=epsilon,
                amsgrad=False,
                maximize=False,
            )

    def _group(self, variables) -> list[Group]:
        """The groups of variables. Made once: Keras changes what is in a variable's tensor, not the tensor."""
        ids = tuple(map(id, variables))
        if ids != self._grouped:
            groups: dict[tuple, Group] = {}
            for number, variable in enumerate(variables):
                index, value = variable_index(self, variable), variable.value
                multiplier, decay = self._multipliers[index], self._decays[index]
                group = groups.setdefault((multiplier, decay, value.device, value.dtype), Group(multiplier, decay))
                group.indices.append(number)
                group.values.append(value)
                group.momentums.append(self._momentums[index].value)
                group.velocities.append(self._velocities[index].value)
            self._groups, self._grouped = list(groups.values()), ids
        return self._groups

    @torch.no_grad()
    def _backend_reset_gradient_accumulators(self) -> None:
        torch_foreach("zero_")([sums.value for sums in accumulated_gradients(self)])

    @torch.no_grad()
    def _backend_increment_gradient_accumulators(self, grads, acc_grads) -> None:
        torch_foreach("add_")([sums.value for sums in acc_grads], grads)

    @torch.no_grad()
    def _update_model_variables_moving_average(self, trainable_variables) -> None:
        pairs = zip(weight_moving_averages(self), trainable_variables)
        averages, values = zip(*((average.value, v.value) for average, v in pairs if average is not None))
        momentum = self.ema_momentum if int(self.iterations) > 0 else 0.0
        torch_foreach("lerp_")(list(averages), list(values), 1.0 - momentum)
