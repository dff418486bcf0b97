"""The span of a text that answers a question (Devlin et al. 2019, sections 4.2 and 4.3)."""

from typing import Any, ClassVar

import keras
from keras import ops

from bertzoo.data.window_data import AnswerData
from bertzoo.metrics.squad import best_no_answer_threshold
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.answers.spans import find_candidates, rank_answers
from bertzoo.tasks.probabilities import ABSENT
from bertzoo.tasks.task import WindowedTask, token_ids_shape
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class QuestionAnswerer(WindowedTask):
    """Finds the answer to a question in a text, as in SQuAD.

    `fit(records)` takes dicts with `question`, `context` and `answers` (see `bertzoo.data.schemas`);
    an empty list of answers says that the text holds none. Contexts may have any length: they are cut into overlapping
    windows, and a window that does not hold the answer points to its first token.

    Args:
        backbone: The encoder.
        tokenizer: Turns question and text into the encoder's inputs; None if the caller tokenizes.
        stride: How many tokens two neighbouring windows share; where None, windows start 128 tokens apart, as in the
            paper's code.
        max_query_length: Tokens after which a question is cut off.
        no_answer_threshold: None: there always is an answer (SQuAD 1.1). A number: none is given where the score of
            having none exceeds that of the best answer by more (SQuAD 2.0); `fit_threshold` finds it.
        name: Name of the Keras model.

    The output is float32 logits (batch, length, 2): at each token, for the answer's start and for its end; -1e9 at
    padding, so that the loss of a row does not depend on the rows beside it.

    Example:
        >>> record = {"question": "Where did we meet?", "context": "We met in Rome.", "answers": ["Rome"]}
        >>> model = bz.QuestionAnswerer.from_preset("bert_mini_en", verbose=False)
        >>> model.compile(bz.AdamW(1e-3))
        >>> history = model.fit([record], epochs=10, verbose=0)
        >>> model.answer("Where did we meet?", "We met in Rome.")["text"]
        'Rome'
    """

    heads = ("qa",)
    own_options: ClassVar[dict[str, Any]] = {"stride": None, "max_query_length": 64, "no_answer_threshold": None}
    config_keys = tuple(own_options)

    def __init__(
        self,
        backbone: Encoder,
        tokenizer: Tokenizer | None = None,
        stride: int | None = None,
        max_query_length: int = 64,
        no_answer_threshold: float | None = None,
        name: str = "question_answerer",
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, name=name, **kwargs)
        self.stride, self.max_query_length, self.no_answer_threshold = stride, max_query_length, no_answer_threshold
        self.data = AnswerData(tokenizer, backbone.config, stride, max_query_length)
        self.qa = self.make_head("qa")
        self.build()

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        outputs, key = self.encode_inputs(inputs, training)
        logits = self.qa(outputs["sequence_output"], key=key)
        mask = inputs.get("padding_mask") if isinstance(inputs, dict) else None
        return logits if mask is None else ops.where(mask[:, :, None] > 0, logits, ABSENT)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*token_ids_shape(input_shape), 2)

    def onnx_outputs(self, nodes: Any) -> dict[str, Any]:
        return {"logits": nodes.padded(nodes.head(self.qa, nodes.hidden), 2)}

    # ---- use

    def answer(
        self,
        question: Any,
        context: Any = None,
        n_best: int = 1,
        max_answer_length: int = 30,
        batch_size: int = 32,
        verbose: Any = 0,
    ) -> Any:
        """Answers from texts of any length.

        Args:
            question: A question or a list of them; or a record or several, as `fit` takes them, without `context`.
            context: The text, or a list of as many.
            n_best: How many answers to give for each question.
            max_answer_length: Most tokens in an answer.
            batch_size: Windows at once.
            verbose: 1 shows a progress bar.

        Returns:
            For one question a dict, for a list a list of them, best answer first where `n_best` > 1: `text`, which is
            exactly `context[start:end]`; `start` and `end` in characters; `score`, its probability among the twenty
            best and, with a `no_answer_threshold`, having no answer; `null_score`, by how much having none scores
            above the best answer. No answer is an empty text at 0.
        """
        self.data.require_tokenizer()
        examples = self.data.parse(question if context is None else (question, context))
        windows = self.data.make_windows(examples)
        logits = self.predict_rows(windows.rows, batch_size, verbose)
        candidates = find_candidates(windows, logits, examples["context"], max(n_best, 20), max_answer_length)
        answers = [
            rank_answers(found, context, self.no_answer_threshold)
            for found, context in zip(candidates, examples["context"])
        ]
        return examples.unwrap([row[0] if n_best == 1 else row[:n_best] for row in answers])

    def fit_threshold(self, records: Any, batch_size: int = 32, verbose: Any = 0) -> float:
        """Sets and returns the `no_answer_threshold` with the best F1 on held-out records (SQuAD 2.0's rule).

        Args:
            records: Questions with contexts and answers, in any form that `fit` takes.
            batch_size, verbose: As for `answer`.

        Raises:
            ValueError: The records have no answers.
        """
        examples = self.data.parse(records)
        if examples.targets is None:
            raise ValueError("the records have no answers to compare with.")
        self.no_answer_threshold = None
        best = self.answer(examples, batch_size=batch_size, verbose=verbose)
        truth = [[text for text, _ in answers] for answers in examples.targets]
        self.no_answer_threshold = best_no_answer_threshold(
            [answer["text"] for answer in best], [answer["null_score"] for answer in best], truth
        )
        return self.no_answer_threshold

    # ---- training

    def default_loss(self) -> Any:
        return SpanLoss()

    def default_metrics(self) -> list:
        return [keras.metrics.MeanMetricWrapper(span_accuracy, name="span_accuracy")]


@keras.saving.register_keras_serializable("bertzoo")
class SpanLoss(keras.losses.Loss):
    """The mean of two cross-entropies over the tokens of a row: where the span starts and where it ends (Devlin et al.
    2019, section 4.2).

    Targets are float (batch, length, 2): 1 at the right token, 0 elsewhere, -1 at padding, which can't be chosen;
    predictions are logits of this shape.
    """

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        logs = ops.log_softmax(_without_padding(y_true, y_pred), axis=1)
        return -0.5 * ops.sum(ops.maximum(ops.cast(y_true, logs.dtype), 0.0) * logs, axis=(1, 2))


@keras.saving.register_keras_serializable("bertzoo")
def span_accuracy(y_true: Tensor, y_pred: Tensor) -> Tensor:
    """Whether both ends of a span are right, float (batch,), for targets and predictions as in `SpanLoss`."""
    predicted = ops.argmax(_without_padding(y_true, y_pred), axis=1)
    return ops.cast(ops.all(predicted == ops.argmax(y_true, axis=1), axis=1), "float32")


def _without_padding(y_true, y_pred):
    return ops.where(ops.cast(y_true, "float32") < 0, -1e9, ops.cast(y_pred, "float32"))
