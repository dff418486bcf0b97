"""Training, evaluation and prediction on JAX that leave the weights in the model when they are interrupted."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import jax
import keras

from bertzoo._keras_hooks import JAX_STATE, hand_over_to_jax, set_jax_state, state_shardings
from bertzoo.training.calls import Calls, interrupts_wait

STATE = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")


class JaxStep(Calls):
    """Mixed into models under JAX, before `keras.Model`.

    Keras takes the weights out of the model during a call and gives their memory to XLA: an interrupted call loses
    them. Here, prediction and evaluation leave the weights in the model, and training, which needs their memory, stores
    the result of a step before anything can interrupt it.
    """

    def __setattr__(self, name, value):
        # The trainer sets the state at each step, hundreds of arrays. Keras would look at each for something to track,
        # and copy their lists: a millisecond for BERT-base, while a GPU waits for the next short step.
        if name == JAX_STATE:
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def to_device(self, data: keras.utils.PyDataset) -> keras.utils.PyDataset:
        """The dataset itself: JAX copies a batch while it computes another."""
        return data

    @contextmanager
    def _whole(self) -> Iterator[None]:
        with super()._whole():
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

    def _get_jax_state(self, purge_model_variables: bool = False, **wanted: bool):
        state = super()._get_jax_state(**wanted)
        if purge_model_variables and wanted.get("optimizer_variables"):
            hand_over_to_jax(self, dict(zip((name for name in STATE if wanted.get(name)), state)), **wanted)
        return state

    def make_train_function(self, force: bool = False) -> None:
        made = self.train_function
        super().make_train_function(force)
        if self.train_function is made:
            return
        step = self.train_function

        def train(state, iterator):
            batch = next(iterator)  # may take any time, or raise
            with interrupts_wait():
                logs, state = step(state, chain((batch,), iterator))
                set_jax_state(self, dict(zip(STATE, state)))
            return logs, state

        self.train_function = train

    def make_test_function(self, force: bool = False) -> None:
        if self.steps_per_execution > 1:  # Keras's, since the form of what it reads is Keras's own affair
            super().make_test_function(force)
        elif self.test_function is None or force:
            step = self._compiled(self.test_step, metrics=True)
            self.test_function = lambda state, iterator: step(state, next(iterator))

    def make_predict_function(self, force: bool = False) -> None:
        if self.steps_per_execution > 1:
            super().make_predict_function(force)
        elif self.predict_function is None or force:
            step = self._compiled(self.predict_step)
            self.predict_function = lambda state, iterator: (step(state, next(iterator))[0], state)

    def _compiled(self, step, metrics: bool = False):
        """As Keras compiles it, except that what was handed in stays."""
        if self.run_eagerly or not self.jit_compile:
            return step
        shardings = None
        if keras.distribution.distribution() is not None:
            trained, fixed, _, counted = state_shardings(self)
            shardings = (None, (trained, fixed, counted) if metrics else fixed)
        return jax.jit(step, out_shardings=shardings)
