"""A loss that is no number ends training at once, and says where it came from."""

import math

import keras
import numpy as np

from bertzoo._keras_hooks import model_of

LARGEST = {"float16": "65,504"}


class NaNGuard(keras.callbacks.Callback):
    """Stops `fit` with an error once the loss is NaN or infinite. A task's `fit` has one already.

    Args:
        every: Batches from one look at the loss to the next; each look waits for the device.

    Raises:
        FloatingPointError: In `fit`. The message says between which batches it happened, at which learning rate, and
            which weights are no numbers.
    """

    # Keras then calls it from another thread, so that steps do not wait; it must not touch the model's weights there.
    async_safe = True

    def __init__(self, every: int = 50):
        super().__init__()
        self.every, self.last_good, self.last_loss, self.found = every, 0, None, None

    def on_epoch_begin(self, epoch, logs=None):
        self.last_good = 0

    def on_train_batch_end(self, batch, logs=None):
        if self.found is None and logs and ((batch + 1) % self.every == 0 or batch == 0):
            loss = float(logs.get("loss", 0.0))
            if math.isfinite(loss):
                self.last_good, self.last_loss = batch + 1, loss
            else:
                self.found = batch + 1
                model_of(self).stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        loss = float((logs or {}).get("loss", 0.0))
        if self.found is None and math.isfinite(loss):
            return
        raise FloatingPointError(self._explain(epoch, self.found, loss))

    def _explain(self, epoch: int, batch: int | None, loss: float) -> str:
        end = "the end of the epoch" if batch is None else f"batch {batch}"
        where = f"the loss is {loss} in epoch {epoch + 1}, first between batch {self.last_good} and {end}"
        before = "" if self.last_loss is None else f"; the mean before was {self.last_loss:.4g}"
        wrong = [w.path for w in self.model.weights if not np.isfinite(_numbers(w)).all()]
        if wrong:
            share = f"{len(wrong)} of {len(self.model.weights)} weights are no numbers any more, the first {wrong[0]}"
            share += ": an update was too large"
        else:
            share = "all weights are still numbers: the outputs or the targets overflowed, not an update"
        optimizer = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        rate = float(keras.ops.convert_to_numpy(getattr(optimizer, "current_learning_rate", optimizer.learning_rate)))
        dtype = self.model.compute_dtype
        advice = f"a lower rate than {rate:g} or a longer warm-up"
        if dtype in LARGEST:
            advice += f"; {dtype} ends at {LARGEST[dtype]}: mixed_bfloat16 does not overflow"
        return f"{where}{before}. {share}. What helps: {advice}, and targets that are finite numbers."


def _numbers(weight) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(weight), dtype="float32")
