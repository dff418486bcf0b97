"""The training step on JAX: an interrupted call leaves the weights in the model, and an update takes few kernels."""

import math
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras
import numpy as np

from bertzoo._keras_hooks import JAX_STATE, donate_variables_to_jax, set_jax_state, state_shardings
from bertzoo.training.calls import ThreadSafeModel, delay_interrupts
from bertzoo.training.processes import dataset_of_process, end_together, num_processes

# Steps × weights up to which XLA's search for the fastest products takes longer on a GPU than it saves.
SHORT_RUN = 4e10
STATE = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")


class _Run(NamedTuple):
    """Whether a run is short, and what gives an example of each shape of its batches until they are compiled."""

    is_short: bool = False
    example_batches: Callable[[], list] | None = None


class JaxModel(ThreadSafeModel):
    """The base of models that train under JAX.

    Keras takes the weights out of the model during a call and gives their memory to XLA: an interrupted call loses
    them. Here, prediction and evaluation leave the weights in the model, and training, which needs their memory, stores
    the result of a step before anything can interrupt it.
    """

    train_function: Any  # these are None until Keras makes them
    test_function: Any
    predict_function: Any
    _run = _Run()

    def __setattr__(self, name: str, value: Any) -> None:
        # The trainer sets the state at each step, hundreds of arrays. Keras would look at each for something to track,
        # and copy their lists: a millisecond for BERT-base, while a GPU waits for the next short step.
        if name == JAX_STATE:
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    @contextmanager
    def exclusive_call(self) -> Iterator[None]:
        with super().exclusive_call():
            self.jax_state_sync()  # a callback calls in the middle of `fit`
            try:
                yield
            except BaseException as error:
                self.jax_state_sync()
                if any(weight.value.is_deleted() for weight in self.weights):
                    raise RuntimeError(
                        "JAX failed within a step of training. Steps compute the weights in place, so these are lost: "
                        "load the model again. If it ran out of memory, take a smaller batch_size; "
                        "gradient_accumulation_steps makes up for it."
                    ) from error
                raise
            finally:
                self.jax_state_sync()
                set_jax_state(self, None)

    def fit(self, x: Any = None, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        epochs = kwargs.get("epochs", 1) - kwargs.get("initial_epoch", 0)
        kwargs["validation_data"] = dataset_of_process(kwargs.get("validation_data"))
        with self._call_lock, self._run_over(x, kwargs.get("steps_per_epoch"), epochs), end_together():
            return super().fit(dataset_of_process(x), *args, **kwargs)

    def evaluate(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("_use_cached_eval_dataset"):  # within `fit`, which has it already
            return super().evaluate(x, *args, **kwargs)
        with self._call_lock, self._run_over(x, kwargs.get("steps"), compile_ahead=self.test_function is None):
            return super().evaluate(dataset_of_process(x), *args, **kwargs)

    # On the other backends predictions share no state, so several may run at once.

    def predict(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        if num_processes() > 1:
            raise ValueError(f"predict needs a run of one process. Received: {num_processes()} processes.")
        first = self.predict_function is None
        with self.exclusive_call(), self._run_over(x, kwargs.get("steps"), compile_ahead=first):
            return super().predict(x, *args, **kwargs)

    @contextmanager
    def _run_over(self, x: Any, steps: int | None, epochs: int = 1, compile_ahead: bool = True) -> Iterator[None]:
        """Within it, `_Program` knows what it has to of a run over a data set; with `compile_ahead` an example of each
        shape of its batches too, which takes making them."""
        before = self._run  # a callback predicts within `fit`
        steps = steps or (len(x) if isinstance(x, keras.utils.PyDataset) else None)
        is_short = False
        if self.jit_compile_is_auto and steps is not None and _fast_compile_options() is not None:
            is_short = steps * epochs * sum(math.prod(weight.shape) for weight in self.weights) <= SHORT_RUN
        # With several devices Keras places the batches, on which the compiled step depends.
        compile_ahead = compile_ahead and keras.distribution.distribution() is None
        find = getattr(x, "example_batches", None) if compile_ahead else None
        self._run = _Run(is_short, find)
        try:
            yield
        finally:
            self._run = before

    def predict_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        with self.exclusive_call():
            return super().predict_on_batch(*args, **kwargs)

    def _get_jax_state(self, purge_model_variables: bool = False, **kinds: bool):
        state = super()._get_jax_state(**kinds)
        if purge_model_variables and kinds.get("optimizer_variables"):
            donate_variables_to_jax(self, dict(zip((name for name in STATE if kinds.get(name)), state)), **kinds)
        return state

    def make_train_function(self, force: bool = False) -> None:
        if self.train_function is not None and not force:
            return
        if self.run_eagerly or not self.jit_compile or self.steps_per_execution > 1:
            super().make_train_function(force=True)
            step = self.train_function
        else:
            step = self._make_step()

        def train(state, iterator):
            batch = next(iterator)  # may take any time, or raise
            with delay_interrupts():
                logs, state = step(state, chain((batch,), iterator))
                set_jax_state(self, dict(zip(STATE, state)))
            return logs, state

        self.train_function = train

    def _make_step(self) -> Callable:
        """The training step as Keras compiles it, except for what `_Program` does."""
        shardings = None if keras.distribution.distribution() is None else (None, tuple(state_shardings(self)))
        return _Program(self, self.train_step, donate_argnums=0, out_shardings=shardings)

    def make_test_function(self, force: bool = False) -> None:
        if self.steps_per_execution > 1:  # Keras's own, which reads several batches at once
            super().make_test_function(force)
        elif self.test_function is None or force:
            self.test_function = self._compiled(self.test_step, metrics=True)

    def make_predict_function(self, force: bool = False) -> None:
        if self.steps_per_execution > 1:
            super().make_predict_function(force)
        elif self.predict_function is None or force:
            step = self._compiled(self.predict_step)
            self.predict_function = lambda state, iterator: (step(state, iterator)[0], state)

    def _compiled(self, step, metrics: bool = False):
        """As Keras compiles it, except that the arguments keep their memory, and for what `_Program` does."""
        if self.run_eagerly or not self.jit_compile:
            return lambda state, iterator: step(state, next(iterator))
        shardings = None
        if keras.distribution.distribution() is not None:
            trainable, other, _, of_metrics = state_shardings(self)
            shardings = (None, (trainable, other, of_metrics) if metrics else other)
        return _Program(self, step, out_shardings=shardings)


class _Program:
    """A step of (state, iterator), compiled for each shape of batch: for a short run without the search for the fastest
    kernels, and the shapes of a data set's batches side by side.

    Args:
        model: Tells of its run.
        step: A function of (state, batch).
        options: Those of `jax.jit`.
    """

    def __init__(self, model: JaxModel, step: Callable, **options: Any):
        self._model, self._step = model, jax.jit(step, **options)
        quick = _fast_compile_options()
        self._quick_step = jax.jit(step, compiler_options=quick, **options) if quick else self._step
        self._compiling: dict[Hashable, Future] = {}

    def __call__(self, state: Any, iterator: Iterator) -> Any:
        run = self._model._run
        step = self._quick_step if run.is_short else self._step
        if run.example_batches is not None:
            self._compiling = _compile_side_by_side(step, state, run.example_batches())
            self._model._run = run._replace(example_batches=None)
        batch = next(iterator)
        if future := self._compiling.pop(_shapes(batch), None):
            future.result()
        return step(state, batch)


def _fast_compile_options() -> dict[str, Any] | None:
    """XLA's options with which it compiles in less than half the time, for products that are about a third slower; None
    where there are none."""
    if jax.default_backend() != "gpu":
        return None
    return {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}


def _compile_side_by_side(step: Any, state: Any, batches: Sequence[Any]) -> dict[Hashable, Future]:
    """Begins to compile a jitted step for each batch; what is compiled is in the step's cache.

    Tracing needs Python and comes one after another, while XLA compiles what was traced before.
    """
    if len(batches) < 2:
        return {}
    executor = ThreadPoolExecutor(min(len(batches), os.cpu_count() or 1))
    compiling = {_shapes(batch): executor.submit(step.lower(state, batch).compile) for batch in batches}
    executor.shutdown(wait=False)
    return compiling


def _shapes(batch: Any) -> Hashable:
    return tuple(array.shape for array in jax.tree.leaves(batch))


class JaxOptimizer(keras.optimizers.Optimizer):
    """The base of `AdamW` under JAX.

    XLA compiles a program for each shape of zeros that it makes, a twentieth of a second each: half of one for the
    moments of a BERT.
    """

    def add_optimizer_variables(self, trainable_variables: Sequence, name: Any, initializer: Any = "zeros") -> Any:
        if initializer == "zeros" and keras.distribution.distribution() is None:
            initializer = _HostZeros()
        return super().add_optimizer_variables(trainable_variables, name, initializer)

    def _clip_gradients(self, grads):
        """As Keras's, except for the order of the sum: over the last axis of each array, then over all results.

        The time of a small batch depends on the number of kernels, and a fifth of BERT-base's were sums of one array.
        """
        if not self.global_clipnorm:
            return super()._clip_gradients(grads)
        squares = [jnp.square(gradient.astype(jnp.float32)) for gradient in grads if gradient is not None]
        sums = [array.ravel() if array.ndim < 2 else array.sum(axis=-1).ravel() for array in squares]
        # The barrier keeps XLA from summing each to a number after all.
        norm = jnp.sqrt(jnp.sum(jax.lax.optimization_barrier(jnp.concatenate(sums))))
        # norm - norm is NaN if the norm is infinite, so that an overflow does not become a zero gradient.
        scale = self.global_clipnorm / jnp.maximum(norm, self.global_clipnorm) + (norm - norm)
        return [None if gradient is None else gradient * scale for gradient in grads]


class _HostZeros(keras.initializers.Initializer):
    """Zeros that are copied to the device, not made there."""

    def __call__(self, shape: Sequence[int], dtype: str | None = None) -> jax.Array:
        return jax.device_put(np.zeros(shape, dtype))
