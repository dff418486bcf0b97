"""Callbacks: scores of whole tasks after each epoch, an end to training on NaN, and helpers for lists of callbacks."""

import math
from typing import Any

import keras
import numpy as np

from bertzoo.metrics.entities import entity_scores
from bertzoo.metrics.squad import squad_scores

LARGEST = {"float16": "65,504"}


def with_callback(callbacks: Any, first: keras.callbacks.Callback) -> Any:
    """The callbacks that a caller passed, in any of Keras's forms, with one put before them."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.append(first)
        return callbacks
    return [first, *(callbacks if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else [])]


def check_rate_callbacks(optimizer: Any, callbacks: Any) -> None:
    """Refuses a `LearningRateScheduler` beside a schedule of the optimizer's own, which would scale what it sets.

    Raises:
        ValueError: The two meet.
    """
    callbacks = getattr(callbacks, "callbacks", callbacks)
    callbacks = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
    sets = any(isinstance(callback, keras.callbacks.LearningRateScheduler) for callback in callbacks)
    if sets and getattr(optimizer, "scales_the_rate", False):
        raise ValueError(
            "LearningRateScheduler sets the learning rate, and so does the optimizer's own schedule (warm-up, then "
            f"{optimizer.schedule!r}): compile with AdamW(rate, warmup=0, schedule='constant'), or leave the callback "
            "out."
        )


class NaNGuard(keras.callbacks.Callback):
    """Stops `fit` with an error once the loss is NaN or infinite. A task's `fit` has one already.

    Args:
        every: Batches from one look at the loss to the next; each look waits for the device.

    Raises:
        FloatingPointError: In `fit`. The message says between which batches it happened, at which learning rate, and
            which weights are not finite.
    """

    # Keras then calls it from another thread, so that steps do not wait; it must not touch the model's weights there.
    async_safe = True

    def __init__(self, every: int = 50):
        super().__init__()
        self.every, self.last_good = every, 0
        self.last_loss: float | None = None
        self.found: int | None = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.last_good = 0

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self.found is None and logs and ((batch + 1) % self.every == 0 or batch == 0):
            loss = float(logs.get("loss", 0.0))
            if math.isfinite(loss):
                self.last_good, self.last_loss = batch + 1, loss
            else:
                self.found = batch + 1
                self._model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
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
            share = f"{len(wrong)} of {len(self.model.weights)} weights are not finite, the first {wrong[0]}"
            share += ": an update was too large"
        else:
            share = "all weights are still finite: the outputs or the targets overflowed, not an update"
        optimizer = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        rate = float(keras.ops.convert_to_numpy(getattr(optimizer, "current_learning_rate", optimizer.learning_rate)))
        dtype = self.model.compute_dtype
        advice = f"a lower rate than {rate:g} or a longer warm-up"
        if dtype in LARGEST:
            advice += f"; {dtype} ends at {LARGEST[dtype]}: mixed_bfloat16 does not overflow"
        return f"{where}{before}. {share}. What helps: {advice}, and targets that are finite numbers."


def _numbers(weight) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(weight), dtype="float32")


class EntityF1(keras.callbacks.Callback):
    """Entity F1 of a `TokenClassifier` on held-out sentences, after each epoch, as `val_entity_f1`, 0 to 1.

        f1 = bz.training.EntityF1(dev_sentences, dev_tags)
        best = keras.callbacks.EarlyStopping("val_entity_f1", mode="max", restore_best_weights=True)
        model.fit(sentences, tags, callbacks=[f1, best])  # in this order

    Args:
        sentences: Lists of words.
        tags: Their true tags, as many.
        batch_size: Rows at once.
    """

    def __init__(self, sentences: Any, tags: Any, batch_size: int = 32):
        super().__init__()
        self.sentences, self.tags, self.batch_size = sentences, tags, batch_size

    def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        predicted = self.model.tag_words(self.sentences, batch_size=self.batch_size)
        logs["val_entity_f1"] = entity_scores(self.tags, predicted)["f1"]


class AnswerF1(keras.callbacks.Callback):
    """F1 and exact match of a `QuestionAnswerer` on held-out records, after each epoch, as `val_answer_f1` and
    `val_exact_match`, in percent; by the rules of SQuAD 2.0 where a record has no answer, else of 1.1.

    Args:
        records: As `QuestionAnswerer.fit` takes them.
        batch_size: Windows at once.
    """

    def __init__(self, records: Any, batch_size: int = 32):
        super().__init__()
        self.records, self.batch_size = records, batch_size

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.asked = self.model.data.parse(self.records)
        if self.asked.targets is None:
            raise ValueError("the records have no answers to compare with.")
        self.truth = [[text for text, _ in answers] for answers in self.asked.targets]

    def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        found = self.model.answer(self.asked, batch_size=self.batch_size)
        version = "1.1" if all(self.truth) else "2.0"
        scores = squad_scores([answer["text"] for answer in found], self.truth, version)
        logs["val_answer_f1"], logs["val_exact_match"] = scores["f1"], scores["exact_match"]
