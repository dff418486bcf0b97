"""Scores of whole tasks during `fit`, under names that other callbacks can watch."""

import keras

from bertzoo.metrics.entities import entity_scores
from bertzoo.metrics.squad import squad_scores
from bertzoo.tasks.questions import read_questions


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
        self.asked, self.batch_size = read_questions(records), batch_size
        if self.asked.answers is None:
            raise ValueError("the records have no answers to compare with.")
        self.truth = [[text for text, _ in answers] for answers in self.asked.answers]

    def on_epoch_end(self, epoch, logs=None):
        found = self.model.answer(self.asked, batch_size=self.batch_size)
        version = "1.1" if all(self.truth) else "2.0"
        scores = squad_scores([answer["text"] for answer in found], self.truth, version)
        logs["val_answer_f1"], logs["val_exact_match"] = scores["f1"], scores["exact_match"]
