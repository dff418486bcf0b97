"""The span of a text that answers a question (Devlin et al. 2019, sections 4.2 and 4.3)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.data.parsing import Examples
from bertzoo.data.window_data import AnswerData
from bertzoo.metrics.squad import best_threshold
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.presets import own_block
from bertzoo.tasks.probabilities import softmax
from bertzoo.tasks.task import token_shape
from bertzoo.tasks.token_task import WindowedTask
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.types import Tensor

SETTINGS: dict[str, Any] = {"stride": None, "max_query_length": 64, "no_answer_threshold": None}


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

    The output is float32 logits (batch, length, 2): at each token, for the answer's start and for its end.
    """

    heads = ("qa",)
    config_keys = tuple(SETTINGS)

    def __init__(
        self,
        backbone: Encoder,
        tokenizer: Tokenizer | None = None,
        stride: int | None = SETTINGS["stride"],
        max_query_length: int = SETTINGS["max_query_length"],
        no_answer_threshold: float | None = None,
        name: str = "question_answerer",
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, name=name, **kwargs)
        self.stride, self.max_query_length, self.no_answer_threshold = stride, max_query_length, no_answer_threshold
        self.data = AnswerData(tokenizer, backbone.config, stride, max_query_length)
        self.qa = backbone.family.head(backbone.dropout_config, "qa", dtype=self.dtype_policy)
        self.build()

    def build(self, input_shape: Any = None) -> None:
        self.qa.build((None, None, self.backbone.config.hidden_size))

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        outputs, key = self.encode_inputs(inputs, training)
        return self.qa(outputs["sequence_output"], key=key)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*token_shape(input_shape), 2)

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
        asked = self.data.parse(question if context is None else (question, context))
        found = self._candidates(asked, max(n_best, 20), max_answer_length, batch_size, verbose)
        answers = [self._ranked(*candidates) for candidates in found]
        return asked.unwrap([rows[0] if n_best == 1 else rows[:n_best] for rows in answers])

    def fit_threshold(self, records: Any, batch_size: int = 32, verbose: Any = 0) -> float:
        """Sets and returns the `no_answer_threshold` with the best F1 on held-out records (SQuAD 2.0's rule)."""
        asked = self.data.parse(records)
        if asked.targets is None:
            raise ValueError("the records have no answers to compare with.")
        self.no_answer_threshold = None
        best = self.answer(asked, batch_size=batch_size, verbose=verbose)
        truth = [[text for text, _ in answers] for answers in asked.targets]
        self.no_answer_threshold = best_threshold(
            [answer["text"] for answer in best], [answer["null_score"] for answer in best], truth
        )
        return self.no_answer_threshold

    def _candidates(self, asked: Examples, count: int, limit: int, batch_size: int, verbose):
        """For each question: (candidates (score, first character, last), score of none, context), best first."""
        windows = self.data.cut(asked)
        logits = self.predict_rows(windows.rows, batch_size, verbose)
        found: list[list] = [[] for _ in range(len(asked))]
        none = np.full(len(asked), np.inf)
        for w, source in enumerate(windows.source):
            rows, begin, column = logits[w].astype("float64"), int(windows.begin[w]), int(windows.column[w])
            none[source] = min(none[source], rows[0].sum())
            inner = rows[column : column + int(windows.end[w]) - begin]
            own = slice(int(windows.own_begin[w]) - begin, int(windows.own_end[w]) - begin)
            # More than asked for, since some cover no character.
            for score, first, last in best_spans(inner[:, 0], inner[:, 1], own, limit, 2 * count):
                found[source].append((score, begin + first, begin + last))
        answers = []
        for i, spans in enumerate(found):
            offsets, context = windows.offsets(i), asked["context"][i]
            spans = [(s, *_stripped(context, offsets[a, 0], offsets[b, 1])) for s, a, b in sorted(spans, reverse=True)]
            spans = [span for span in spans if span[1] < span[2]]
            answers.append((spans[:count], float(none[i]), context))
        return answers

    def _ranked(self, spans: list, none: float, context: str) -> list[dict[str, Any]]:
        best = spans[0][0] if spans else -np.inf
        rows = [(score, begin, end) for score, begin, end in spans]
        if self.no_answer_threshold is not None or not spans:
            said_none = none - best > (self.no_answer_threshold or 0.0)
            rows.insert(0 if said_none else len(rows), (none, 0, 0))
        return [
            {"text": context[a:b], "score": float(p), "start": a, "end": b, "null_score": float(none - best)}
            for (_, a, b), p in zip(rows, softmax([row[0] for row in rows]))
        ]

    # ---- training

    def default_loss(self) -> Any:
        return SpanLoss()

    def default_metrics(self) -> list:
        return [keras.metrics.MeanMetricWrapper(span_accuracy, name="span_accuracy")]

    # ---- files

    @classmethod
    def options_from_files(cls, config: EncoderConfig) -> dict[str, Any]:
        own = own_block(config)
        return {key: own[key] for key in SETTINGS if key in own}

    def config_changes(self) -> dict[str, Any]:
        values = {key: getattr(self, key) for key in SETTINGS}
        return {"bertzoo": self.own_block(**{k: None if v == SETTINGS[k] else v for k, v in values.items()})}


def _stripped(text: str, begin: int, end: int) -> tuple[int, int]:
    """The span without spaces at its ends, which some tokenizers count to a token."""
    begin, end = int(begin), int(end)
    while begin < end and text[begin].isspace():
        begin += 1
    while begin < end and text[end - 1].isspace():
        end -= 1
    return begin, end


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
    found = ops.argmax(_without_padding(y_true, y_pred), axis=1)
    return ops.cast(ops.all(found == ops.argmax(y_true, axis=1), axis=1), "float32")


def _without_padding(y_true, y_pred):
    return ops.where(ops.cast(y_true, "float32") < 0, -1e9, ops.cast(y_pred, "float32"))


def best_spans(
    starts: np.ndarray, ends: np.ndarray, own: slice, limit: int, count: int
) -> list[tuple[float, int, int]]:
    """The spans of highest score, (score, first token, last token), best first.

    Args:
        starts, ends: float (tokens,), the logits of a row's text.
        own: Which tokens a span may start at.
        limit: Most tokens in a span.
        count: How many to give.
    """
    first = np.arange(len(starts))[own]
    if not len(first):
        return []
    padded = np.concatenate([ends, np.full(limit, -np.inf)])
    scores = starts[first][:, None] + padded[first[:, None] + np.arange(limit)]  # (starts, lengths - 1)
    flat = scores.ravel()
    count = min(count, int(np.isfinite(flat).sum()))
    top = np.argpartition(-flat, count - 1)[:count]
    top = top[np.argsort(-flat[top], kind="stable")]
    return [(float(flat[i]), int(first[i // limit]), int(first[i // limit] + i % limit)) for i in top]
