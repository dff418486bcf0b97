"""LAMB, with which ALBERT is pre-trained: AdamW whose step for each weight is as large as the weight allows."""

from contextlib import nullcontext

import keras
from keras import ops

from bertzoo.training.optimizer import AdamW


@keras.saving.register_keras_serializable("bertzoo")
class LAMB(AdamW):
    """Layer-wise adaptive moments for batches of thousands of rows (You et al. 2020, algorithm 2).

    For a weight `p` with Adam's moments `m` and `v`, and `rate` = learning rate × factor:

        update = m / c1(t) / (√(v / c2(t)) + epsilon) + weight_decay × p
        p -= rate × ‖p‖ / ‖update‖ × update

    Where a norm is 0, and for weights that are not decayed (biases, LayerNorm), the ratio is 1. Schedule, decay groups,
    clipping and all arguments are those of `AdamW`; the defaults are those of ALBERT's code: epsilon 1e-6, no bias
    correction.
    """

    def __init__(
        self,
        learning_rate=1.76e-3,
        weight_decay: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        *,
        bias_correction: bool = False,
        name: str = "lamb",
        **options,
    ) -> None:
        super().__init__(
            learning_rate,
            weight_decay,
            beta_1,
            beta_2,
            epsilon,
            bias_correction=bias_correction,
            name=name,
            **options,
        )

    def _counters_device(self):
        # The update below is written in Keras's operations, which on PyTorch work where the counters are.
        return nullcontext()

    def _backend_update_step(self, grads, trainable_variables, learning_rate) -> None:
        rate = self.current_learning_rate
        for gradient, variable in zip(grads, trainable_variables):
            self.update_step(gradient, variable, rate)

    def update_step(self, gradient, variable, learning_rate) -> None:
        """One variable's update."""
        index = self._get_variable_index(variable)
        momentum, velocity, decay = self._momentums[index], self._velocities[index], self._decays[index]
        self._update_moments(gradient, momentum, velocity)
        correction, epsilon = (ops.cast(value, variable.dtype) for value in self._corrections())
        update = correction * momentum / (ops.sqrt(velocity) + epsilon)
        rate = ops.cast(learning_rate * self._multipliers[index], variable.dtype)
        if decay:
            update = update + decay * variable
            size, length = _norm(variable), _norm(update)
            rate = rate * ops.where((size > 0) & (length > 0), size / ops.maximum(length, 1e-30), 1.0)
        self.assign_sub(variable, rate * update)


def _norm(x):
    return ops.sqrt(ops.sum(ops.square(ops.convert_to_tensor(x))))
