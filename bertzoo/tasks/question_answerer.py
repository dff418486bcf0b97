"""The span of a text that answers a question (Devlin et al. 2019, sections 4.2 and 4.3)."""

from typing import Any

import keras
import numpy as np

from bertzoo.data.questions import Questions, find_columns, read_questions
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.probabilities import softmax
from bertzoo.tasks.spans import PADDING, SpanLoss, best_spans, span_accuracy
from bertzoo.tasks.token_task import WindowedTask, predict_rows
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.windows import Windows, cut_windows
from bertzoo.text.word_alignment import align_words

SETTINGS = {"stride": None, "max_query_length": 64, "no_answer_threshold": None}


@keras.saving.register_keras_serializable("bertzoo")
class QuestionAnswerer(WindowedTask):
    """Finds the answer to a question in a text, as in SQuAD.

    `fit(records)` takes dicts with `question`, `context` and `answers` (see `bertzoo.data.questions.read_questions`);
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
        self.qa = backbone.family.qa(backbone.dropout_config, dtype=self.dtype_policy)
        self.build()

    def build(self, input_shape=None):
        self.qa.build((None, None, self.backbone.config.hidden_size))

    def call(self, inputs, training: bool = False):
        outputs, key = self.encode_inputs(inputs, training)
        return self.qa(outputs["sequence_output"], key=key)

    def compute_output_shape(self, input_shape):
        shape = input_shape["token_ids"] if isinstance(input_shape, dict) else input_shape
        return (*shape, 2)

    # ---- use

    def answer(
        self, question, context=None, n_best: int = 1, max_answer_length: int = 30, batch_size: int = 32, verbose=0
    ):
        """Answers from texts of any length.

        Args:
            question: A question or a list of them; or records, as `fit` takes them, without `context`.
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
        single = isinstance(question, str)
        asked = read_questions(question, context)
        found = self._candidates(asked, max(n_best, 20), max_answer_length, batch_size, verbose)
        answers = [self._ranked(*candidates) for candidates in found]
        answers = [rows[0] if n_best == 1 else rows[:n_best] for rows in answers]
        return answers[0] if single else answers

    def fit_threshold(self, records, batch_size: int = 32, verbose=0) -> float:
        """Sets and returns the `no_answer_threshold` with the best F1 on held-out records (SQuAD 2.0's rule)."""
        from bertzoo.metrics.squad import best_threshold

        asked = read_questions(records)
        if asked.answers is None:
            raise ValueError("the records have no answers to compare with.")
        self.no_answer_threshold = None
        best = self.answer(asked, batch_size=batch_size, verbose=verbose)
        truth = [[text for text, _ in answers] for answers in asked.answers]
        self.no_answer_threshold = best_threshold(
            [answer["text"] for answer in best], [answer["null_score"] for answer in best], truth
        )
        return self.no_answer_threshold

    def _candidates(self, asked: Questions, count: int, limit: int, batch_size: int, verbose):
        """For each question: (candidates (score, first character, last), score of none, context), best first."""
        windows = self.cut(asked)
        logits = predict_rows(self, windows.rows, batch_size, verbose)
        found: list[list] = [[] for _ in asked.contexts]
        none = np.full(len(asked.contexts), np.inf)
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
            offsets, context = windows.offsets(i), asked.contexts[i]
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

    # ---- data

    find_columns = staticmethod(find_columns)

    def read(self, x, y=None) -> Questions:
        if y is not None:
            raise ValueError("answers belong into the records: pass dicts with question, context, answers, and no y.")
        return read_questions(x)

    def cut(self, columns: Questions) -> Windows:
        self.check_text()
        return cut_windows(
            self.tokenizer,
            columns.contexts,
            columns.questions,
            stride=self.stride,
            max_query_length=self.max_query_length,
        )

    def window_targets(self, columns: Questions, windows: Windows) -> np.ndarray:
        """The columns of the answers' first and last tokens, int32 (windows, 2); 0, the first token, where a window
        does not hold the whole answer."""
        if columns.answers is None:
            raise ValueError("there are no answers to learn from: the records need the field answers.")
        tokens = np.full((len(columns.contexts), 2), -1, dtype=np.int64)
        for i, answers in enumerate(columns.answers):
            if answers:
                text, start = answers[0]
                alignment = align_words(windows.offsets(i), np.array([[start, start + len(text)]]))
                if len(alignment.tokens):
                    tokens[i] = alignment.tokens[0] - [0, 1]
        first, last = tokens[windows.source].T
        inside = (first >= windows.begin) & (last < windows.end) & (first >= 0)
        shift = windows.column - windows.begin
        return np.where(inside[:, None], np.stack([first + shift, last + shift], axis=1), 0).astype(np.int32)

    def array_targets(self, x, y) -> np.ndarray:
        y, count = np.asarray(y), len(x["token_ids"] if isinstance(x, dict) else x)
        if y.shape != (count, 2) or y.dtype.kind not in "iu":
            raise ValueError(f"y must be each answer's first and last token, integers ({count}, 2); it is {y.shape}.")
        lengths = self._rows_of(x).lengths
        if (y < 0).any() or (y >= lengths[:, None]).any():
            row = int(np.argmax((y < 0).any(axis=1) | (y >= lengths[:, None]).any(axis=1)))
            raise ValueError(
                f"y[{row}] is {y[row].tolist()}; the row has {lengths[row]} tokens, from 0 on. Where it holds no "
                "answer, both are 0."
            )
        return y.astype("int32")

    def batch_targets(self, inputs, rows, targets, starts, weights) -> tuple:
        target = np.where(inputs["padding_mask"][:, :, None] > 0, 0.0, PADDING).astype("float32").repeat(2, axis=2)
        for end in (0, 1):
            target[np.arange(len(rows)), targets[rows, end], end] = 1.0
        return (target,) if weights is None else (target, weights[rows])

    # ---- training

    def default_loss(self):
        return SpanLoss()

    def default_metrics(self) -> list:
        return [keras.metrics.MeanMetricWrapper(span_accuracy, name="span_accuracy")]

    # ---- files

    @classmethod
    def options_from_files(cls, config: EncoderConfig) -> dict[str, Any]:
        own = config.extra.get("bertzoo") or {}
        return {key: own[key] for key in SETTINGS if key in own}

    def config_changes(self) -> dict[str, Any]:
        own = {k: v for k, v in (self.backbone.config.extra.get("bertzoo") or {}).items() if k not in SETTINGS}
        own.update({key: getattr(self, key) for key, usual in SETTINGS.items() if getattr(self, key) != usual})
        return {"bertzoo": own or None}

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **{key: getattr(self, key) for key in SETTINGS}}


def _stripped(text: str, begin: int, end: int) -> tuple[int, int]:
    """The span without spaces at its ends, which some tokenizers count to a token."""
    begin, end = int(begin), int(end)
    while begin < end and text[begin].isspace():
        begin += 1
    while begin < end and text[end - 1].isspace():
        end -= 1
    return begin, end
