"""`AdamW` on PyTorch: one kernel for each group of variables, without synchronising with the GPU."""

import math
from collections import defaultdict
from typing import NamedTuple

import keras
import torch

from bertzoo._keras_hooks import foreach, fused_adamw, gradient_sums, moving_averages, variable_index


class Group(NamedTuple):
    """Variables on one device, of one dtype, decay and factor of the rate: their indices among the variables that are
    updated, and the lists of their tensors, momentums and velocities."""

    multiplier: float
    decay: float
    indices: tuple[int, ...]
    tensors: tuple[list, list, list]


class TorchUpdate:
    """Mixed into `AdamW` under PyTorch, before Keras's optimizer.

    Keras keeps an optimizer's counters on the GPU and adds Python numbers to them, which copies the number there and
    waits for all queued work, several times a step. Here the scalars (iterations, rate, schedule) live on the host, and
    Keras's `apply` runs with the host as its default device; what touches the model's variables is written in torch
    operations, which stay where their tensors are.
    """

    def _counters_device(self):
        return keras.device("cpu")

    def build(self, variables) -> None:
        # The CPU kernel walks the tensors' memory side by side and would silently mix up a transposed one.
        for variable in variables:
            variable.value.data = variable.value.data.contiguous()
        # By device: the step at which the kernel's own bias correction, 1 - beta ** step, is exactly 1.
        self._last_step = {v.value.device: torch.full((), math.inf, device=v.value.device) for v in variables}
        self._grouped: tuple[tuple, list[Group]] = ((), [])
        super().build(variables)

    def apply(self, grads, trainable_variables=None) -> None:
        if not self.built and trainable_variables is not None:
            self.build(list(trainable_variables))
        with self._counters_device():
            super().apply(grads, trainable_variables)

    @torch.no_grad()
    def _clip_gradients(self, grads):
        if self.clipvalue:
            return [g.clamp(-self.clipvalue, self.clipvalue) for g in grads]
        if self.clipnorm:
            norms = foreach("norm")(grads)
            return foreach("mul")(grads, [torch.clamp(self.clipnorm / n, max=1.0) + (n - n) for n in norms])
        if not self.global_clipnorm:
            return grads
        norms = foreach("norm")(grads)
        norm = torch.linalg.vector_norm(torch.stack([n.to(norms[0].device, torch.float32) for n in norms]))
        # As in Keras, an infinite norm gives NaN instead of a zero step. (norm - norm is NaN then.)
        scale = torch.clamp(self.global_clipnorm / norm, max=1.0) + (norm - norm)
        return foreach("mul")(grads, scale)

    @torch.no_grad()
    def _backend_update_step(self, grads, trainable_variables, learning_rate) -> None:
        rate, correction, epsilon = map(float, learning_rate)
        for group in self._groups(trainable_variables):
            parameters, momentums, velocities = group.tensors
            gradients = [grads[i].to(parameters[0].dtype).contiguous() for i in group.indices]
            fused_adamw(
                parameters,
                gradients,
                momentums,
                velocities,
                [],
                [self._last_step[parameters[0].device]] * len(parameters),
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

    def _groups(self, variables) -> list[Group]:
        """What one kernel each updates. Found once: Keras changes what is in a variable's tensor, not the tensor."""
        names = tuple(map(id, variables))
        if names != self._grouped[0]:
            members = defaultdict(list)
            for number, variable in enumerate(variables):
                index, value = variable_index(self, variable), variable.value
                tensors = (value, self._momentums[index].value, self._velocities[index].value)
                key = (self._multipliers[index], self._decays[index], value.device, value.dtype)
                members[key].append((number, tensors))
            self._grouped = (
                names,
                [
                    Group(multiplier, decay, indices, tuple(map(list, zip(*tensors))))
                    for (multiplier, decay, *_), group in members.items()
                    for indices, tensors in [zip(*group)]
                ],
            )
        return self._grouped[1]

    @torch.no_grad()
    def _backend_reset_gradient_accumulators(self) -> None:
        foreach("zero_")([sums.value for sums in gradient_sums(self)])

    @torch.no_grad()
    def _backend_increment_gradient_accumulators(self, grads, acc_grads) -> None:
        foreach("add_")([sums.value for sums in acc_grads], grads)

    @torch.no_grad()
    def _update_model_variables_moving_average(self, trainable_variables) -> None:
        pairs = zip(moving_averages(self), trainable_variables)
        averages, values = zip(*((average.value, v.value) for average, v in pairs if average is not None))
        momentum = self.ema_momentum if int(self.iterations) > 0 else 0.0
        foreach("lerp_")(list(averages), list(values), 1.0 - momentum)
