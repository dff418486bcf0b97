"""Callbacks: scores of whole tasks after each epoch, an error where the loss is NaN, and helpers for lists of
callbacks."""

import math
from typing import Any

import keras
import numpy as np

from bertzoo._keras_hooks import model_of_callback
from bertzoo.metrics.entities import entity_scores
from bertzoo.metrics.squad import squad_scores


def prepend_callback(callbacks: Any, callback: keras.callbacks.Callback) -> Any:
    """The callbacks that a caller passed, in any of Keras's forms, with one put before them."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.append(callback)
        return callbacks
    return [callback, *(callbacks if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else [])]


def check_learning_rate_callbacks(optimizer: Any, callbacks: Any) -> None:
    """Refuses a `LearningRateScheduler` beside a schedule of the optimizer's own, which would scale what it sets.

    Raises:
        ValueError: The two meet.
    """
    callbacks = keras.tree.flatten(getattr(callbacks, "callbacks", callbacks))
    sets_rate = any(isinstance(callback, keras.callbacks.LearningRateScheduler) for callback in callbacks)
    if sets_rate and getattr(optimizer, "has_own_schedule", False):
        raise ValueError(
            "LearningRateScheduler sets the learning rate, and so does the optimizer's own schedule (warm-up, then "
            f"{optimizer.schedule!r}): compile with AdamW(rate, warmup=0, schedule='constant'), or leave the callback "
            "out."
        )


class NaNGuard(keras.callbacks.Callback):
    """Stops `fit` with an error once the loss is NaN or infinite. A task's `fit` has one already.

    Args:
        every_batches: Batches from one look at the loss to the next; each look waits for the device.

    Raises:
        FloatingPointError: In `fit`. The message says between which batches it happened, at which learning rate, and
            which weights are not finite.
    """

    # Keras then calls it from another thread, so that steps do not wait; it must not touch the model's weights there.
    async_safe = True

    def __init__(self, every_batches: int = 50):
        super().__init__()
        self.every_batches, self.last_good = every_batches, 0
        self.last_loss: float | None = None
        self.bad_batch: int | None = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.last_good = 0

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self.bad_batch is None and logs and ((batch + 1) % self.every_batches == 0 or batch == 0):
            loss = float(logs.get("loss", 0.0))
            if math.isfinite(loss):
                self.last_good, self.last_loss = batch + 1, loss
            else:
                self.bad_batch = batch + 1
                model_of_callback(self).stop_training = True

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        loss = float((logs or {}).get("loss", 0.0))
        if self.bad_batch is None and math.isfinite(loss):
            return
        end = "the end of the epoch" if self.bad_batch is None else f"batch {self.bad_batch}"
        before = "" if self.last_loss is None else f"; the mean before was {self.last_loss:.4g}"
        paths = [
            weight.path
            for weight in self.model.weights
            if not np.isfinite(np.asarray(keras.ops.convert_to_numpy(weight), "float32")).all()
        ]
        cause = "all weights are still finite: the outputs or the targets overflowed, not an update"
        if paths:
            cause = f"{len(paths)} of {len(self.model.weights)} weights are not finite, the first {paths[0]}"
            cause += ": an update was too large"
        optimizer = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        rate = float(keras.ops.convert_to_numpy(getattr(optimizer, "current_learning_rate", optimizer.learning_rate)))
        advice = f"a lower rate than {rate:g} or a longer warm-up"
        if self.model.compute_dtype == "float16":
            advice += "; float16 ends at 65,504: mixed_bfloat16 does not overflow"
        raise FloatingPointError(
            f"the loss is {loss} in epoch {epoch + 1}, first between batch {self.last_good} and {end}{before}. "
            f"{cause}. What helps: {advice}, and targets that are finite numbers."
        )


class EntityF1(keras.callbacks.Callback):
    """Entity F1 of a `TokenClassifier` on held-out sentences, after each epoch, as `val_entity_f1`, 0 to 1.

        f1 = bz.training.EntityF1(dev_sentences, dev_tags)
        best = keras.callbacks.EarlyStopping("val_entity_f1", mode="max", restore_best_weights=True)
        model.fit(sentences, tags, callbacks=[f1, best])  # in this order

    Args:
        sentences: Lists of words.
        tags: Their true tags.
        batch_size: Sentences in a batch.
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
        batch_size: Windows in a batch.
    """

    def __init__(self, records: Any, batch_size: int = 32):
        super().__init__()
        self.records, self.batch_size = records, batch_size

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.examples = self.model.data.parse(self.records)
        if self.examples.targets is None:
            raise ValueError("the records have no answers to compare with.")
        self.references = [[text for text, _ in answers] for answers in self.examples.targets]

    def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        answers = self.model.answer(self.examples, batch_size=self.batch_size)
        version = "1.1" if all(self.references) else "2.0"
        scores = squad_scores([answer["text"] for answer in answers], self.references, version)
        logs["val_answer_f1"], logs["val_exact_match"] = scores["f1"], scores["exact_match"]
