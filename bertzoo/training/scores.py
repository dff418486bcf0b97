"""Scores of whole tasks during `fit`, under names that other callbacks can watch."""

import keras
from keras import ops

from bertzoo.metrics.entities import entity_scores
from bertzoo.metrics.squad import squad_scores


@keras.saving.register_keras_serializable("bertzoo")
class MacroF1(keras.metrics.Metric):
    """The mean F1 of classes over all rows, 0 to 1, from logits: `compile(metrics=["accuracy", MacroF1()])` gives
    `val_macro_f1` in `fit`.

    For one class a row, of the classes that occur, as labels or as answers; for several labels a row (each named where
    its logit is above 0), of all labels. A class without a right answer has 0. As scikit-learn's
    `f1_score(average="macro", zero_division=0)`.
    """

    def __init__(self, name: str = "macro_f1", **kwargs):
        super().__init__(name=name, **kwargs)
        self.counts = None

    def update_state(self, y_true, y_pred, sample_weight=None) -> None:
        labels = y_pred.shape[-1]
        if self.counts is None:
            self.counts = self.add_variable(shape=(3, labels), initializer="zeros", name="counts")
        self.multi_label = len(y_true.shape) == len(y_pred.shape) and y_true.shape[-1] == labels
        if self.multi_label:
            true, found = ops.cast(y_true, "float32"), ops.cast(y_pred > 0, "float32")
        else:
            true = ops.one_hot(ops.reshape(ops.cast(y_true, "int32"), (-1,)), labels)
            found = ops.one_hot(ops.reshape(ops.argmax(y_pred, axis=-1), (-1,)), labels)
        if sample_weight is not None:
            weights = ops.reshape(ops.cast(sample_weight, "float32"), (-1, 1))
            true, found, both = true * weights, found * weights, true * found * weights
        else:
            both = true * found
        self.counts.assign_add(ops.stack([ops.sum(part, axis=0) for part in (both, true, found)]))

    def result(self):
        if self.counts is None:
            return ops.zeros(())
        both, true, found = self.counts[0], self.counts[1], self.counts[2]
        scores = ops.divide_no_nan(2 * both, true + found)
        occurs = ops.ones_like(true) if self.multi_label else ops.cast(true + found > 0, "float32")
        return ops.divide_no_nan(ops.sum(scores), ops.sum(occurs))

    def reset_state(self) -> None:
        if self.counts is not None:
            self.counts.assign(ops.zeros(self.counts.shape))


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

    def __init__(self, sentences, tags, batch_size: int = 32):
        super().__init__()
        self.sentences, self.tags, self.batch_size = sentences, tags, batch_size

    def on_epoch_end(self, epoch, logs=None):
        predicted = self.model.tag_words(self.sentences, batch_size=self.batch_size)
        logs["val_entity_f1"] = entity_scores(self.tags, predicted)["f1"]


class AnswerF1(keras.callbacks.Callback):
    """F1 and exact match of a `QuestionAnswerer` on held-out records, after each epoch, as `val_answer_f1` and
    `val_exact_match`, in percent; by the rules of SQuAD 2.0 where a record has no answer, else of 1.1.

    Args:
        records: As `QuestionAnswerer.fit` takes them.
        batch_size: Windows at once.
    """

    def __init__(self, records, batch_size: int = 32):
        super().__init__()
        self.records, self.batch_size = records, batch_size

    def on_train_begin(self, logs=None):
        self.asked = self.model.data.parse(self.records)
        if self.asked.targets is None:
            raise ValueError("the records have no answers to compare with.")
        self.truth = [[text for text, _ in answers] for answers in self.asked.targets]

    def on_epoch_end(self, epoch, logs=None):
        found = self.model.answer(self.asked, batch_size=self.batch_size)
        version = "1.1" if all(self.truth) else "2.0"
        scores = squad_scores([answer["text"] for answer in found], self.truth, version)
        logs["val_answer_f1"], logs["val_exact_match"] = scores["f1"], scores["exact_match"]
