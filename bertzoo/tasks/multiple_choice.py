"""The best of several endings or answers (Devlin et al. 2019, section 4.4)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.data.tuple_data import ChoiceData, flatten_tuple_inputs
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.probabilities import ABSENT, softmax
from bertzoo.tasks.task import Task, token_ids_shape
from bertzoo.text.encoded import PACKING
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class MultipleChoice(Task):
    """Scores choices, each read together with the question.

    `fit((questions, choices), answers)` takes lists of choices for each question, and the index or the text of the
    right one; tables too, see `bertzoo.data.schemas`.

    Args:
        backbone: The encoder.
        tokenizer: Turns question and choice into the encoder's inputs; None if the caller tokenizes.
        name: Name of the Keras model.

    Inputs are the encoder's with one more axis, int (batch, choices, length), and where rows have fewer choices than
    others `choice_mask` int (batch, choices), 0 at those that are none. The output is float32 logits (batch, choices).

    Raises:
        ValueError: The family's head reads the pooler, and the encoder was made without one.

    Example:
        >>> model = bz.MultipleChoice.from_preset("bert_mini_en", verbose=False)
        >>> model.compile(bz.AdamW(1e-3))
        >>> history = model.fit((["What do bees make?"], [["honey", "bricks"]]), ["honey"], epochs=10, verbose=0)
        >>> model.choose(("What do bees make?", ["honey", "bricks"]))["choice"]
        'honey'
    """

    heads = ("multiple_choice",)

    def __init__(
        self, backbone: Encoder, tokenizer: Tokenizer | None = None, name: str = "multiple_choice_task", **kwargs
    ):
        super().__init__(backbone, tokenizer, name=name, **kwargs)
        self.data = ChoiceData(tokenizer, backbone.config)
        self.multiple_choice = self.make_head("multiple_choice")
        self.build()

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        inputs = dict(inputs) if isinstance(inputs, dict) else {"token_ids": inputs}
        present = inputs.pop("choice_mask", None)
        if self.backbone.family.head_reads_padding(self.backbone.config, self.heads[0]):
            inputs = {key: array for key, array in inputs.items() if key not in PACKING}
        choices, rows = ops.shape(inputs["token_ids"])[1], flatten_tuple_inputs(inputs)
        outputs, key = self.encode_inputs(rows, training, query_positions=self.backbone.head_query_positions)
        name = self.heads[0]
        vectors = self.backbone.pool_for_head(outputs, rows, name in self.backbone.family.pooled_heads, name)
        logits = ops.reshape(self.multiple_choice(vectors, key=key), (-1, choices))
        return logits if present is None else ops.where(present > 0, logits, ABSENT)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return token_ids_shape(input_shape)[:2]

    def onnx_outputs(self, nodes: Any) -> dict[str, Any]:
        name = self.heads[0]
        vectors = nodes.pool_for_head(name in self.backbone.family.pooled_heads, name)
        return {"logits": nodes.choices(nodes.head(self.multiple_choice, vectors))}

    def outputs_by_onnx(self, model: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Logits float32 (batch, choices), as `Task.outputs_by_onnx`.

        Args:
            model, inputs: Same as in `Task.outputs_by_onnx`.
        """
        inputs = dict(inputs)
        present = inputs.pop("choice_mask", None)
        mask = inputs["padding_mask"].copy()
        mask[..., 0] = 1  # of choices that are none
        logits = super().outputs_by_onnx(model, {**inputs, "padding_mask": mask})
        return logits if present is None else np.where(present > 0, logits, np.float32(ABSENT))

    # ---- use

    def choose(self, x: Any, batch_size: int = 32, verbose: Any = 0) -> Any:
        """The best choice for each question.

        Args:
            x: A question with its choices, (question, [choice, …]), or several in any form that `fit` takes.
            batch_size, verbose: As for `predict`.

        Returns:
            For one question a dict, for several a list of them: `choice` (its text), `index`, `score` (its
            probability) and `scores`, all probabilities.
        """
        examples = self.data.parse(x)
        probabilities = softmax(self.predict(examples, batch_size=batch_size, verbose=verbose))
        answers = []
        for row, scores in zip(examples["choices"], probabilities):
            scores = scores[: len(row)]
            best = int(scores.argmax())
            answers.append(
                {"choice": row[best], "index": best, "score": float(scores[best]), "scores": scores.tolist()}
            )
        return examples.unwrap(answers)

    # ---- training

    def default_loss(self) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def default_metrics(self) -> list:
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
