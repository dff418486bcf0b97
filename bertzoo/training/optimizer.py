"""AdamW for the BERT family: decay groups, layer-wise learning rates, warm-up and schedule, clipping."""

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import keras
from keras import ops

from bertzoo._keras_hooks import learning_rate_or_schedule, variable_index
from bertzoo.training.step import BACKEND, BackendOptimizer
from bertzoo.types import Tensor

GLOBAL_CLIPNORM = 1.0
SCHEDULES = ("linear", "cosine", "constant", "inverse_sqrt")
# By the last part of a variable's path: biases, and the scale and shift of a normalisation layer.
NO_DECAY = (r"(^|[/_])bias$", r"(^|[/_])(gamma|beta)$")
WARMUP = "0 or more: a fraction below 1, or a whole number of updates"
RULES: Sequence[tuple[Sequence[str], Callable[[Any], bool], str]] = (
    (["schedule"], lambda value: value in SCHEDULES, f"one of {', '.join(SCHEDULES)}"),
    (["weight_decay", "epsilon"], lambda value: value >= 0, "0 or more"),
    (["beta_1", "beta_2"], lambda value: 0 <= value < 1, "at least 0 and below 1"),
    (["warmup"], lambda value: 0 <= value < 1 or (value >= 1 and int(value) == value), WARMUP),
)


@keras.saving.register_keras_serializable("bertzoo")
class AdamW(BackendOptimizer):
    """Adam with decoupled weight decay, parameter groups, and a schedule that each `fit` starts anew.

    The step, for update `t` = 1, 2, … and a variable `p` with gradient `g` (clipped); `rate` = learning rate × factor:

        m += (1 - beta_1) (g - m);  v += (1 - beta_2) (g² - v)
        p -= rate × weight_decay × p  +  rate × m / c1(t) / (√(v / c2(t)) + epsilon)

    with `c1(t) = 1 - beta_1^t` and `c2(t) = 1 - beta_2^t`, or 1 without `bias_correction`. This is PyTorch's AdamW.
    Keras adds epsilon to √v before the correction, which at epsilon 1e-8 slows rare words' vectors, whose gradients are
    small, by up to a quarter in a short run.

    Before `set_total_steps` is called, the rate is the peak rate, without warm-up; the call starts the schedule at the
    present update. `learning_rate` is the peak, for reading as for setting, so that a callback such as
    `ReduceLROnPlateau` scales the peak; `current_learning_rate` reads the rate of the next update. The moments, the
    count of updates and the schedule's place are saved and loaded with the model.

    Args:
        learning_rate: The peak rate; or a Keras `LearningRateSchedule`, with which `warmup` and `schedule` do nothing.
        weight_decay: The fraction of a weight that an update at rate 1 takes away.
        beta_1, beta_2: Decay rates of the two moments.
        epsilon: Added to the root of the corrected second moment.
        bias_correction: False gives the optimizer of BERT's original code. It is unstable on small data sets (Mosbach
            et al. 2021, "On the Stability of Fine-tuning BERT", section 5).
        warmup: The rise to the peak, as a fraction of all updates if below 1, else as a number of updates. Update t of
            `n` has the rate peak × t / n. Hugging Face's schedules count from 0, so that their first update changes
            nothing, which in a run of one update is all of them.
        schedule: What follows it: "linear" to 0 at the end, "cosine" to 0 at the end, "constant", or "inverse_sqrt",
            which is peak × √(warmup / update), counted from 10,000 where there is no warm-up.
        no_decay: Regular expressions; a variable whose path one of them is found in is not decayed.
        lr_multipliers: Regular expression -> factor on the learning rate. The first that is found in a variable's
            path counts; without one the factor is 1. Do not anchor a pattern to the model's own name with "^": Keras
            leaves that out of the paths of some models when it loads them.
        global_clipnorm: The greatest norm of all gradients together; None to switch clipping off.
        name: The optimizer's name.
        kwargs: Those of every Keras optimizer: `loss_scale_factor`, `gradient_accumulation_steps`, `use_ema`,
            `ema_momentum`, `ema_overwrite_frequency`; and `clipnorm` or `clipvalue`, the greatest norm of each gradient
            or the greatest absolute value of its elements, in place of `global_clipnorm`, whose default then has no
            effect.

    Raises:
        ValueError: An argument is out of its range, `schedule` is unknown, or a regular expression is malformed.

    Source: Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019 (decoupled decay); Devlin et al. 2019, appendix
    A.2 (warm-up and linear decay).

    Example:
        >>> optimizer = bz.AdamW(2e-5, warmup=0.1, lr_multipliers={"embeddings": 0.5})
        >>> optimizer.set_total_steps(100)  # a task's `fit` does
        >>> rates = [float(optimizer.current_learning_rate)]
        >>> round(rates[0] / 2e-5, 2)  # a tenth of the peak at the first of ten updates of warm-up
        0.1
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 5e-5,
        weight_decay: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        *,
        bias_correction: bool = True,
        warmup: float = 0.1,
        schedule: str = "linear",
        no_decay: Sequence[str] = NO_DECAY,
        lr_multipliers: Mapping[str, float] | None = None,
        global_clipnorm: float | None = GLOBAL_CLIPNORM,
        name: str = "adamw",
        **kwargs: Any,
    ) -> None:
        clips_otherwise = kwargs.get("clipnorm") is not None or kwargs.get("clipvalue") is not None
        if clips_otherwise and global_clipnorm == GLOBAL_CLIPNORM:
            global_clipnorm = None
        with keras.device("cpu") if BACKEND == "torch" else nullcontext():  # see TorchOptimizer
            super().__init__(learning_rate, weight_decay, global_clipnorm=global_clipnorm, name=name, **kwargs)
            # Variables, not Python numbers: JAX and TensorFlow would compile a number's first value into the step.
            self._start, self._warmup_steps, self._total_steps = (
                self.add_variable((), dtype="int", aggregation="only_first_replica", name=f"schedule_{counter}")
                for counter in ("start", "warmup_steps", "total_steps")
            )
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.bias_correction, self.warmup, self.schedule = bias_correction, warmup, schedule
        for arguments, holds, expected in RULES:
            for argument in arguments:
                if not holds(getattr(self, argument)):
                    raise ValueError(f"{argument} must be {expected}. Received: {getattr(self, argument)!r}.")
        self.lr_multipliers = dict(lr_multipliers or {})
        self.no_decay = _check_patterns("no_decay", no_decay)
        _check_patterns("lr_multipliers", tuple(self.lr_multipliers))

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Makes the moments and puts each variable into its decay and rate group, by its path."""
        if self.built:
            return
        super().build(variables)
        self._momentums, self._velocities = self.add_optimizer_variables(variables, ["momentum", "velocity"])
        paths = [getattr(variable, "path", variable.name) for variable in variables]
        self._decays = [0.0 if _first_match(self.no_decay, path) else self.weight_decay for path in paths]
        matches = [_first_match(self.lr_multipliers, path) for path in paths]
        self._multipliers = [1.0 if pattern is None else float(self.lr_multipliers[pattern]) for pattern in matches]
        unused = [pattern for pattern in self.lr_multipliers if pattern not in matches]
        if unused:
            warnings.warn(
                f"lr_multipliers: no trainable variable has {unused} in its path, e.g. {paths[0]!r}.", stacklevel=2
            )

    def set_total_steps(self, total_steps: int) -> None:
        """Starts the schedule at the present update; `fit` calls it. Moments and the count of updates stay.

        Args:
            total_steps: The number of updates to come, counted like `iterations`: with gradient accumulation the number
                of batches // `gradient_accumulation_steps`.

        Raises:
            ValueError: `total_steps` is not a positive whole number.
        """
        if isinstance(total_steps, bool) or int(total_steps) != total_steps or total_steps < 1:
            raise ValueError(f"total_steps must be a whole number of updates, 1 or more. Received: {total_steps!r}.")
        # Against the float error of the product: 0.07 × 100 is 7.000000000000001.
        warmup_steps = self.warmup if self.warmup >= 1 else math.ceil(self.warmup * total_steps - 1e-9)
        self._start.assign(int(ops.convert_to_numpy(self.iterations)))
        self._warmup_steps.assign(int(warmup_steps))
        self._total_steps.assign(int(total_steps))

    def _backend_update_step(self, grads, trainable_variables, learning_rate) -> None:
        # Computed for each variable again, the correction would be a fifth of the operations that TensorFlow traces.
        rate = (self.current_learning_rate, *self._corrections())
        super()._backend_update_step(grads, trainable_variables, rate)

    def update_step(self, gradient: Tensor, variable: keras.Variable, learning_rate: Any) -> None:
        """Updates one variable (JAX and TensorFlow; PyTorch updates whole groups).

        Args:
            gradient: The gradient, of the variable's shape.
            variable: The variable.
            learning_rate: The rate, and what `_corrections` gives.
        """
        index = variable_index(self, variable)
        momentum, velocity = self._momentums[index], self._velocities[index]
        multiplier, decay = self._multipliers[index], self._decays[index]
        rate, correction, epsilon = learning_rate
        rate = rate if multiplier == 1 else rate * multiplier
        gradient = ops.cast(gradient, momentum.dtype)
        self.assign_add(momentum, (gradient - momentum) * (1 - self.beta_1))
        self.assign_add(velocity, (ops.square(gradient) - velocity) * (1 - self.beta_2))
        denominator = ops.sqrt(velocity) + ops.cast(epsilon, variable.dtype)
        step = ops.cast(rate * correction, variable.dtype) * momentum / denominator
        self.assign_sub(variable, ops.cast(rate * decay, variable.dtype) * variable + step if decay else step)

    def exclude_from_weight_decay(self, var_list: Any = None, var_names: Any = None) -> None:
        """Not offered: Keras forgets it when it saves the optimizer.

        Args:
            var_list, var_names: As Keras's.

        Raises:
            ValueError: Always.
        """
        raise ValueError("exclude_from_weight_decay is lost in .keras files: pass regular expressions as no_decay=(…).")

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments; `learning_rate` is the peak rate."""
        config = super().get_config()
        names = ("beta_1", "beta_2", "epsilon", "bias_correction", "warmup", "schedule", "lr_multipliers")
        return {**config, **{name: getattr(self, name) for name in names}, "no_decay": list(self.no_decay)}

    @property
    def learning_rate(self) -> Tensor:
        """The peak of the rate, or of a Keras schedule the rate of the next update. Setting it sets the peak."""
        return super()._get_current_learning_rate()

    @learning_rate.setter
    def learning_rate(self, peak: Any) -> None:
        keras.optimizers.Optimizer.learning_rate.fset(self, peak)

    @property
    def current_learning_rate(self) -> Tensor:
        """The rate of the next update."""
        return self._get_current_learning_rate()

    @property
    def has_own_schedule(self) -> bool:
        """Whether warm-up and schedule make the rate of an update another than `learning_rate`."""
        return isinstance(learning_rate_or_schedule(self), keras.Variable) and (
            self.warmup > 0 or self.schedule != "constant"
        )

    def _get_current_learning_rate(self):
        peak = super()._get_current_learning_rate()
        if not isinstance(learning_rate_or_schedule(self), keras.Variable):
            return peak
        step = ops.cast(self.iterations - self._start, "float32")
        warmup_steps, total_steps = ops.cast(self._warmup_steps, "float32"), ops.cast(self._total_steps, "float32")
        factor = _schedule_factor(self.schedule, step, warmup_steps, total_steps)
        return peak * ops.where(total_steps > 0, factor, 1.0)

    def _corrections(self):
        """Of m / (√v + epsilon): the factor √c2 / c1, and epsilon × √c2, which both roots are thus corrected by."""
        if not self.bias_correction:
            return 1.0, self.epsilon
        step = ops.cast(self.iterations + 1, "float32")
        log_1, log_2 = (math.log(beta) if beta > 0 else -math.inf for beta in (self.beta_1, self.beta_2))
        # expm1, because 1 - 0.999 ** step has only four right digits in float32 at the first steps.
        root = ops.sqrt(-ops.expm1(step * log_2))
        return root / -ops.expm1(step * log_1), root * self.epsilon

    def _apply_weight_decay(self, variables) -> None:
        """Nothing: the update itself decays, by each variable's group."""


def _schedule_factor(schedule: str, step, warmup_steps, total_steps):
    """The factor of the peak rate for update `step` = 0, 1, … of a schedule; all are float32 scalars."""
    left = ops.clip((total_steps - step) / ops.maximum(total_steps - warmup_steps, 1.0), 0.0, 1.0)
    if schedule == "linear":
        after = left
    elif schedule == "cosine":
        after = 0.5 - 0.5 * ops.cos(math.pi * left)
    elif schedule == "constant":
        after = ops.ones_like(left)
    else:
        timescale = ops.where(warmup_steps > 0, warmup_steps, 10_000.0)
        after = ops.sqrt(timescale / ops.maximum(step - warmup_steps + timescale, 1.0))
    return ops.where(step < warmup_steps, (step + 1.0) / ops.maximum(warmup_steps, 1.0), after)


def _first_match(patterns, path: str) -> str | None:
    return next((pattern for pattern in patterns if re.search(pattern, path)), None)


def _check_patterns(argument: str, patterns: Sequence[str]) -> tuple[str, ...]:
    if isinstance(patterns, str):
        raise ValueError(f"{argument} must be a sequence of regular expressions. Received: the string {patterns!r}.")
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{argument}: {pattern!r} is not a regular expression ({error}).") from error
    return tuple(patterns)
