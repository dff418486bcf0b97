"""Texts of any length for tasks with an output for each token: cut into windows, with targets for their tokens."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bertzoo.data.batches import SeededDataset
from bertzoo.data.labels import IGNORED, encode_word_targets
from bertzoo.data.parsing import Examples, take_rows
from bertzoo.data.schemas import QUESTIONS, WORDS
from bertzoo.data.task_data import TaskData, is_tokenized
from bertzoo.models.config import EncoderConfig
from bertzoo.text.encoded import Encoded
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.windows import Windows, cut_windows
from bertzoo.text.word_alignment import align_words


class WindowedData(TaskData):
    """Texts of any length, cut into windows, with a target for each token of the windows, end to end; padding is
    `IGNORED`."""

    def make_windows(self, examples: Examples) -> Windows:
        """The windows of the texts."""
        raise NotImplementedError

    def encode_window_targets(self, examples: Examples, windows: Windows) -> np.ndarray:
        """Targets for the tokens of the windows' rows, int (tokens, …)."""
        raise NotImplementedError

    def _array_targets(self, examples: Examples, encoded: Encoded) -> np.ndarray:
        """The same for the tokens of arrays of the caller's."""
        raise NotImplementedError

    def _weigh(self, targets: np.ndarray, weights: np.ndarray | None) -> tuple:
        """(targets,) or (targets, weights) as the loss takes them, of padded targets int (batch, length, …) and weights
        float (batch,)."""
        raise NotImplementedError

    def make_dataset_of_examples(
        self, examples: Examples, sample_weights: np.ndarray | None, with_targets: bool, **options
    ) -> SeededDataset:
        if self.tokenizer is None:
            encoded = self.encode(examples)
            targets = None if examples.targets is None else self._array_targets(examples, encoded)
            return self.make_dataset(encoded, targets, sample_weights, **options)
        windows = self.make_windows(examples)
        targets = self.encode_window_targets(examples, windows) if with_targets else None
        return self.make_dataset(windows.rows, targets, take_rows(sample_weights, windows.source), **options)

    def make_dataset(
        self, encoded: Encoded, targets: Any = None, sample_weights: Any = None, **options
    ) -> SeededDataset:
        if targets is not None:
            flat = Encoded(targets, np.zeros(len(targets), np.int8), encoded.row_splits)

            def add_targets(inputs, rows, rng):
                padded = flat.pad(rows, inputs["token_ids"].shape[1], IGNORED)["token_ids"]
                return inputs, *self._weigh(padded, take_rows(sample_weights, rows))

            options["transform"] = add_targets
        return super().make_dataset(encoded, **options)

    def convert_batch(self, batch: tuple, choose_length: Callable) -> tuple:
        x, *rest = batch
        if is_tokenized(x):
            return batch
        data = self.batches(x, *rest, batch_size=1 << 30, shuffle=False)
        # The only batch is as long as the last of the lengths.
        data.lengths[-1] = choose_length(int(data.lengths[-1]), self.require_tokenizer().max_length)
        return data[0]


class TagData(WindowedData):
    """Words with tags, or texts with entities.

    Args:
        tokenizer, config: As for `TaskData`.
        labels: The names of the tags.
        scheme: As of `bertzoo.text.tags.detect_tag_scheme`.
        label_all_tokens: Whether all tokens of a word learn its label, or only its first one.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        config: EncoderConfig,
        labels: list[str],
        scheme: str | None,
        label_all_tokens: bool,
    ):
        super().__init__(tokenizer, config, WORDS)
        self.labels, self.scheme, self.label_all_tokens = labels, scheme, label_all_tokens
        self.weighed_labels = labels

    def make_windows(self, examples: Examples) -> Windows:
        return cut_windows(self.require_tokenizer(), examples["text"])

    def encode_window_targets(self, examples: Examples, windows: Windows) -> np.ndarray:
        """int32, a label for each token of the windows' rows, end to end; -1 for tokens without a label."""
        flat = np.full(len(windows.pieces.token_ids), IGNORED, dtype=np.int32)
        for i, ids in enumerate(encode_word_targets(examples, self.labels, self.scheme)):
            alignment, at = align_words(windows.text_offsets(i), examples["words"][i]), windows.pieces.row_splits[i]
            for (begin, _), (first, last) in zip(alignment.words, alignment.tokens):
                flat[at + first : at + (last if self.label_all_tokens else first + 1)] = ids[begin]
        return windows.to_window_tokens(flat, IGNORED)

    def _array_targets(self, examples: Examples, encoded: Encoded) -> np.ndarray:
        ids, y = np.asarray(examples["token_ids"]), np.asarray(examples.targets)
        if y.shape != ids.shape or y.dtype.kind not in "iu":
            raise ValueError(
                f"without a tokenizer, y must be integers of shape {ids.shape}. Received: {y.dtype} {y.shape}."
            )
        self._check_ids(y)
        mask = examples.get("padding_mask")
        return np.maximum(y[np.ones_like(ids) > 0 if mask is None else np.asarray(mask) > 0], IGNORED)

    def _weigh(self, targets: np.ndarray, weights: np.ndarray | None) -> tuple:
        counts = (targets != IGNORED).astype("float32")
        return np.maximum(targets, 0), counts if weights is None else counts * weights[:, None]

    def convert_batch(self, batch: tuple, choose_length: Callable) -> tuple:
        x, *rest = super().convert_batch(batch, choose_length)
        if not rest:
            return (x,)
        ids, weights = np.asarray(rest[0]), rest[1] if len(rest) > 1 else None
        self._check_ids(ids)
        if weights is None:
            weights = x.get("padding_mask", np.ones_like(ids)) if isinstance(x, dict) else np.ones_like(ids)
        return x, np.maximum(ids, 0), np.where(ids < 0, 0.0, np.asarray(weights)).astype("float32")

    def _check_ids(self, y: np.ndarray) -> None:
        if y.size and y.max() >= len(self.labels):
            raise ValueError(
                f"y holds {y.max()}; labels are numbers from 0 to {len(self.labels) - 1}, or below 0 for tokens "
                "without a label."
            )


class AnswerData(WindowedData):
    """Questions about texts, with answers.

    Args:
        tokenizer, config: As for `TaskData`.
        stride, max_query_length: As of `bertzoo.text.windows.cut_windows`.
    """

    def __init__(
        self, tokenizer: Tokenizer | None, config: EncoderConfig, stride: int | None = None, max_query_length: int = 64
    ):
        super().__init__(tokenizer, config, QUESTIONS)
        self.stride, self.max_query_length = stride, max_query_length

    def parse(self, x: Any, y: Any = None) -> Examples:
        if y is not None and self.tokenizer is not None:
            raise ValueError("answers belong into the records: pass dicts with question, context, answers, and no y.")
        return super().parse(x, y)

    def make_windows(self, examples: Examples) -> Windows:
        return cut_windows(
            self.require_tokenizer(),
            examples["context"],
            examples["question"],
            stride=self.stride,
            max_query_length=self.max_query_length,
        )

    def encode_window_targets(self, examples: Examples, windows: Windows) -> np.ndarray:
        """int8 (tokens, 2): 1 at the answers' first and last tokens; where a window does not hold the whole answer,
        both are its first token."""
        if examples.targets is None:
            raise ValueError("there are no answers to learn from: the records need the field answers.")
        tokens = np.full((len(examples), 2), -1, dtype=np.int64)
        for i, answers in enumerate(examples.targets):
            if answers:
                text, start = answers[0]
                alignment = align_words(windows.text_offsets(i), np.array([[start, start + len(text)]]))
                if len(alignment.tokens):
                    tokens[i] = alignment.tokens[0] - [0, 1]
        first, last = tokens[windows.source].T
        inside = (first >= windows.begin) & (last < windows.end) & (first >= 0)
        shift = windows.column - windows.begin
        return _mark(np.where(inside, [first + shift, last + shift], 0).T, windows.rows)

    def _array_targets(self, examples: Examples, encoded: Encoded) -> np.ndarray:
        y, count = np.asarray(examples.targets), len(examples)
        if y.shape != (count, 2) or y.dtype.kind not in "iu":
            raise ValueError(
                f"y must be each answer's first and last token, integers of shape ({count}, 2). Received: {y.shape}."
            )
        outside = (y < 0).any(axis=1) | (y >= encoded.lengths[:, None]).any(axis=1)
        if outside.any():
            row = int(np.argmax(outside))
            raise ValueError(
                f"y[{row}] is {y[row].tolist()}; the row has {encoded.lengths[row]} tokens, from 0 on. Where it holds "
                "no answer, both are 0."
            )
        return _mark(y, encoded)

    def _weigh(self, targets: np.ndarray, weights: np.ndarray | None) -> tuple:
        ends = targets.astype("float32")
        return (ends,) if weights is None else (ends, weights)


def _mark(columns: np.ndarray, encoded: Encoded) -> np.ndarray:
    """int8 (tokens, 2): 1 at two columns of each row, (rows, 2)."""
    marks = np.zeros((len(encoded.token_ids), 2), dtype=np.int8)
    for end in (0, 1):
        marks[encoded.row_splits[:-1] + columns[:, end], end] = 1
    return marks
