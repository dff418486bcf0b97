"""The best of several endings or answers (Devlin et al. 2019, section 4.4)."""

from itertools import zip_longest
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.data.choices import NO_ANSWERS, Choices, answer_ids, find_columns, read_choices
from bertzoo.data.streams import is_stream
from bertzoo.data.text_tuples import EncodedTuples, one_by_one
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.probabilities import softmax
from bertzoo.tasks.task import Task
from bertzoo.text.tokenizer import Tokenizer

ABSENT = -1e9  # the logit of a choice that is none


@keras.saving.register_keras_serializable("bertzoo")
class MultipleChoice(Task):
    """Scores choices, each read together with the question.

    `fit((questions, choices), answers)` takes lists of choices for each question, and the index or the text of the
    right one; tables too, see `bertzoo.data.choices.read_choices`.

    Args:
        backbone: The encoder.
        tokenizer: Turns question and choice into the encoder's inputs; None if the caller tokenizes.

    Inputs are the encoder's with one more axis, int (batch, choices, length), and where rows have fewer choices than
    others `choice_mask` int (batch, choices), 0 at those that are none. The output is float32 logits (batch, choices).

    Raises:
        ValueError: The family's head reads the pooler, and the encoder was made without one.
    """

    heads = ("multiple_choice",)

    def __init__(
        self, backbone: Encoder, tokenizer: Tokenizer | None = None, name: str = "multiple_choice_task", **kwargs
    ):
        super().__init__(backbone, tokenizer, name=name, **kwargs)
        self.uses_pooler = backbone.family.multiple_choice_uses_pooler
        if self.uses_pooler and backbone.pooler is None:
            raise ValueError(
                f"multiple choice of {backbone.family.hf_name} reads the pooler; make the encoder with pooler=True."
            )
        self.multiple_choice = backbone.family.multiple_choice(backbone.dropout_config, dtype=self.dtype_policy)
        self.build()

    def build(self, input_shape=None):
        self.multiple_choice.build((None, self.backbone.config.hidden_size))

    def call(self, inputs, training: bool = False):
        inputs = dict(inputs) if isinstance(inputs, dict) else {"token_ids": inputs}
        present = inputs.pop("choice_mask", None)
        choices, rows = ops.shape(inputs["token_ids"])[1], one_by_one(inputs)
        outputs, key = self.encode_inputs(rows, training, query_positions=self.backbone.pooled_positions)
        vectors = self.backbone.head_vectors(outputs, rows, self.uses_pooler)
        logits = ops.reshape(self.multiple_choice(vectors, key=key), (-1, choices))
        return logits if present is None else ops.where(present > 0, logits, ABSENT)

    def compute_output_shape(self, input_shape):
        shape = input_shape["token_ids"] if isinstance(input_shape, dict) else input_shape
        return tuple(shape[:2])

    # ---- use

    def choose(self, x, batch_size: int = 32, verbose=0) -> list[dict[str, Any]]:
        """The best choice for each question, in any form that `fit` takes: dicts with `choice` (its text), `index`,
        `score` (its probability) and `scores`, all probabilities. A single (question, choices) gives a list of one."""
        columns = read_choices(x)
        probabilities = softmax(self.predict(columns, batch_size=batch_size, verbose=verbose))
        return [
            {"choice": row[best], "index": int(best), "score": float(scores[best]), "scores": scores.tolist()}
            for row, scores, best in (
                (row, scores[: len(row)], scores.argmax()) for row, scores in zip(columns.choices, probabilities)
            )
        ]

    # ---- data

    def batches(self, x, y=None, sample_weight=None, *, batch_size: int = 32, shuffle: bool = True, steps=None):
        """As `Task.batches`; without a tokenizer x is a stream of ready batches."""
        if self.tokenizer is None and not is_stream(x):
            raise ValueError("without a tokenizer, pass ready batches of (inputs, answers), or call the model.")
        return super().batches(x, y, sample_weight, batch_size=batch_size, shuffle=shuffle, steps=steps)

    find_columns = staticmethod(find_columns)

    def read(self, x, y=None) -> Choices:
        return read_choices(x, y)

    def encode_rows(self, x, y=None):
        columns = self.read(x, y)
        if not columns.questions:
            raise ValueError("there is nothing to do: x has no rows.")
        # A row with fewer choices than another gets empty ones, which the loss and the probabilities leave out.
        seconds, counts = columns.seconds(), [len(row) for row in columns.choices]
        filled = list(zip_longest(*seconds, fillvalue=""))
        present = np.arange(max(counts)) < np.array(counts)[:, None]
        encoded = [self.tokenizer.encode(columns.questions, list(choices)) for choices in filled]
        encoded = EncodedTuples(encoded, None if present.all() else present)
        return encoded, None if columns.answers is None else answer_ids(columns)

    def _convert_batch(self, batch: tuple, width) -> tuple:
        x, *rest = super()._convert_batch(batch, width)
        choices = x["token_ids"].shape[1]
        if rest and len(rest[0]) and not 0 <= np.min(rest[0]) <= np.max(rest[0]) < choices:
            raise ValueError(
                f"answers are numbers from 0 to {choices - 1}, one of the {choices} choices; they go from "
                f"{np.min(rest[0])} to {np.max(rest[0])}."
            )
        return (x, *rest)

    def encode_targets(self, y, count: int):
        if y is None:
            raise ValueError(NO_ANSWERS)
        return y

    # ---- training

    def default_loss(self):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def default_metrics(self) -> list:
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    @classmethod
    def needs_pooler(cls, config: EncoderConfig) -> bool:
        from bertzoo.models.registry import FAMILIES

        return FAMILIES[config.model_type].multiple_choice_uses_pooler
