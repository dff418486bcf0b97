"""The training step on PyTorch: forward pass, loss and backward pass as one compiled graph."""

import types
import warnings
from typing import Any

import keras
import torch
from keras import ops

from bertzoo._keras_hooks import batch_loss, loss_tracker, without_side_effects_again
from bertzoo.layers.functional import dropout
from bertzoo.random import fold_in, random_bits
from bertzoo.training.calls import Calls, interrupts_wait

# The hash behind dropout uses what it has computed several times over. Up to this many operations inductor computes
# that anew for each use, which is exponential in the length of the hash; its own limit for CPUs takes minutes.
OPTIONS = {"realize_opcount_threshold": 30}


class TorchStep(Calls):
    """Mixed into models under PyTorch, before `keras.Model`.

    Keras hands its whole step to `torch.compile`, whose graph then breaks at the optimizer, the metrics and the log.
    Here the model, its loss and its metrics are one graph without breaks, and so is the backward pass that PyTorch
    derives from it. The optimizer runs outside, see `TorchUpdate`.

    The first shape of batch is compiled as it is, the next with the axis that changed as a variable, so that a run of
    many lengths needs two or three graphs. `jit_compile=True` asks for it; "auto" is Keras's, which compiles nothing on
    PyTorch. Predictions are never compiled: a few of them are sooner done.
    """

    def _device(self) -> torch.device:
        return next(self.parameters()).device

    def to_device(self, data: keras.utils.PyDataset) -> keras.utils.PyDataset:
        """The dataset with its batches on the device of the weights."""
        device = self._device()
        return OnDeviceDataset(data, device) if device.type == "cuda" else data

    def _should_torch_compile(self) -> bool:
        return False  # not by Keras

    _use_torch_compile = _should_torch_compile  # its name from Keras 3.16 on

    def fit(self, *args, **kwargs):
        _refuse_processes()  # here too: before it makes the step, Keras from 3.16 averages metrics over the processes
        return super().fit(*args, **kwargs)

    def make_train_function(self, force: bool = False):
        _refuse_processes()
        if force or self.train_function is None:
            self._forward_pass = self._compiled(_forward_pass) if self.jit_compile else _forward_pass
        return super().make_train_function(force)

    def _compiled(self, function):
        for known in (dropout, fold_in, random_bits):  # functions of tensors alone, most of what there is to trace
            torch.compiler.allow_in_graph(known)
        # Keras's tables of dtypes are behind such caches; that they are traced is as it should be.
        warnings.filterwarnings("ignore", "Dynamo detected a call to a `functools.lru_cache`")
        # PyTorch keeps graphs, and counts them, by code object: without a copy all models would share one count.
        own = types.FunctionType(function.__code__.replace(), function.__globals__, function.__name__)
        compiled = torch.compile(own, fullgraph=True, options=OPTIONS)
        return without_side_effects_again(compiled)

    def train_step(self, data):
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(to_device(data, self._device()))
        loss, logs = self._forward_pass(self, x, y, sample_weight)
        trained = self.trainable_weights[:]
        if not trained:
            warnings.warn("the model has no trainable weights.", stacklevel=2)
            return logs
        gradients = torch.autograd.grad(
            self.optimizer.scale_loss(loss), [weight.value for weight in trained], allow_unused=True
        )
        with torch.no_grad(), interrupts_wait():  # all weights are updated, or none
            self.optimizer.apply(list(gradients), trained)
        return logs


def _forward_pass(model, x, y, sample_weight):
    """The loss of a batch, and the log of all metrics so far."""
    y_pred = model(x, training=True)
    loss = batch_loss(model, x, y, y_pred, sample_weight)
    # With a gradient, the backward pass would take zeros for that of each output.
    with torch.no_grad():
        rows = next(part for part in keras.tree.flatten(x) if part is not None).shape[0]
        loss_tracker(model).update_state(loss.detach(), sample_weight=rows)
        y_pred = keras.tree.map_structure(torch.Tensor.detach, y_pred)
        return loss, model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)


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


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch's arrays as tensors on a device; copies to a GPU are asynchronous, from page-locked memory."""

    def one(part):
        if not isinstance(part, torch.Tensor):
            with keras.device("cpu"):
                part = ops.convert_to_tensor(part)
        if device.type == "cuda" and part.device.type == "cpu":
            part = part.pin_memory()
        return part.to(device, non_blocking=True)

    return keras.tree.map_structure(one, batch, none_is_leaf=False)


class OnDeviceDataset(keras.utils.PyDataset):
    """The batches of another dataset, as tensors on a device.

    Keras copies array by array, and each copy waits for the work queued on the GPU: a tenth of a step is lost.
    """

    def __init__(self, data: keras.utils.PyDataset, device: torch.device):
        super().__init__(data.workers, data.use_multiprocessing, data.max_queue_size)
        self.data, self.device = data, device

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int):
        return to_device(self.data[index], self.device)

    def on_epoch_begin(self) -> None:
        self.data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self.data.on_epoch_end()
