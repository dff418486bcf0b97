"""The best of several endings or answers (Devlin et al. 2019, section 4.4)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.config import EncoderConfig
from bertzoo.encoder import Encoder
from bertzoo.tasks.choices import Choices, answer_ids, read_choices
from bertzoo.tasks.streams import is_stream
from bertzoo.tasks.task import Task, shapes_for
from bertzoo.text.batches import LengthBatches
from bertzoo.text.encoded import Encoded, starts_from
from bertzoo.text.preprocessor import Preprocessor


@keras.saving.register_keras_serializable("bertzoo")
class MultipleChoice(Task):
    """Scores choices, each read together with the question.

    `fit((questions, choices), answers)` takes lists of as many choices for each question, and the number or the text of
    the right one; tables too, see `bertzoo.tasks.choices.read_choices`.

    Args:
        backbone: The encoder.
        preprocessor: Turns question and choice into the encoder's inputs; None if the caller tokenizes.

    Inputs are the encoder's with one more axis, int (batch, choices, length). The output is float32 logits (batch,
    choices).

    Raises:
        ValueError: The family's head reads the pooler, and the encoder was made without one.
    """

    heads = ("multiple_choice",)

    def __init__(
        self, backbone: Encoder, preprocessor: Preprocessor | None = None, name: str = "multiple_choice_task", **kwargs
    ):
        super().__init__(backbone, preprocessor, name=name, **kwargs)
        self.pools = backbone.family.multiple_choice_pools
        if self.pools and backbone.pooler is None:
            raise ValueError(
                f"multiple choice of {backbone.family.hf_name} reads the pooler; make the encoder with pooler=True."
            )
        self.multiple_choice = backbone.family.multiple_choice(backbone.run_config, dtype=self.dtype_policy)
        self.build()

    def build(self, input_shape=None):
        self.multiple_choice.build((None, self.backbone.config.hidden_size))

    def call(self, inputs, training: bool = False):
        if not isinstance(inputs, dict):
            inputs = {"token_ids": inputs}
        _, choices, length = ops.shape(inputs["token_ids"])
        rows = {name: ops.reshape(x, (-1, length)) for name, x in inputs.items() if len(x.shape) == 3}
        outputs, key = self.encode_inputs(rows, training)
        vectors = self.backbone.head_vectors(outputs, rows, self.pools)
        return ops.reshape(self.multiple_choice(vectors, key=key), (-1, choices))

    def compute_output_shape(self, input_shape):
        shape = input_shape["token_ids"] if isinstance(input_shape, dict) else input_shape
        return tuple(shape[:2])

    # ---- use

    def choose(self, x, batch_size: int = 32, verbose=0) -> list[dict[str, Any]]:
        """The best choice for each question, in any form that `fit` takes: dicts with `choice` (its text), `index`,
        `score` (its probability) and `scores`, all probabilities. A single (question, choices) gives a list of one."""
        columns = read_choices(x)
        logits = self.predict(columns, batch_size=batch_size, verbose=verbose).astype("float64")
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        return [
            {"choice": row[best], "index": int(best), "score": float(scores[best]), "scores": scores.tolist()}
            for row, scores, best in zip(columns.choices, odds, odds.argmax(axis=1))
        ]

    # ---- data

    def batches(self, x, y=None, sample_weight=None, *, batch_size: int = 32, shuffle: bool = True, steps=None):
        """As `Task.batches`; without preprocessor x is a dict of arrays (n, choices, length)."""
        if is_stream(x):
            return super().batches(x, y, sample_weight, batch_size=batch_size, shuffle=shuffle, steps=steps)
        if self.preprocessor is None:
            raise ValueError("without preprocessor, pass ready batches of (inputs, answers), or call the model.")
        columns = read_choices(x, y)
        if not columns.questions:
            raise ValueError("there is nothing to do: x has no rows.")
        count = len(columns.choices[0])
        firsts = [question for question in columns.questions for _ in range(count)]
        pairs = self.preprocessor.encode(firsts, [text for row in columns.choices for text in row])
        targets = answer_ids(columns) if shuffle or columns.answers is not None else None
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype="float32")

        def choices(inputs, rows, rng):
            every = (rows[:, None] * count + np.arange(count)).ravel()
            length = inputs["token_ids"].shape[1]
            flat = pairs.pad(every, length, self.pad_id)
            inputs = {name: values.reshape(len(rows), count, length) for name, values in flat.items()}
            extra = [] if targets is None else [targets[rows]] if weights is None else [targets[rows], weights[rows]]
            return inputs, *extra

        return LengthBatches(
            _longest(pairs, count),
            batch_size=batch_size,
            pad_id=self.pad_id,
            shuffle=shuffle,
            seed=self.seed,
            max_shapes=shapes_for(len(columns.questions), batch_size, shuffle),
            transform=choices,
        )

    def evaluate(self, x=None, y=None, **options):
        """As `Task.evaluate`."""
        if not is_stream(x) and read_choices(x, y).answers is None:
            raise ValueError("there are no targets: pass y, or a table with a column called label.")
        return super().evaluate(x, y, **options)

    def _convert_batch(self, batch: tuple) -> tuple:
        x, *rest = batch
        if isinstance(x, dict) and "token_ids" in x:
            return batch
        return self.batches(x, *rest, batch_size=1 << 30, shuffle=bool(rest))[0]

    def _split(self, x, y, sample_weight, share: float):
        if not 0 < share < 1:
            raise ValueError(f"validation_split must lie between 0 and 1; it is {share}.")
        columns = read_choices(x, y)
        first = len(columns.questions) - int(len(columns.questions) * share)

        def part(rows):
            cut = [None if column is None else column[rows] for column in (*columns, sample_weight)]
            return Choices(*cut[:-1]), None, cut[-1]

        return part(slice(0, first)), part(slice(first, None))

    # ---- training

    def default_loss(self):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def default_metrics(self) -> list:
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    @classmethod
    def needs_pooler(cls, config: EncoderConfig) -> bool:
        from bertzoo.families import FAMILIES

        return FAMILIES[config.model_type].multiple_choice_pools


def _longest(pairs: Encoded, count: int) -> Encoded:
    """Rows as long as the longest of each question's choices, by which batches are made."""
    lengths = pairs.lengths.reshape(-1, count).max(axis=1)
    return Encoded(np.zeros(lengths.sum(), np.int32), np.zeros(lengths.sum(), np.int8), starts_from(lengths))
