"""Masking for masked language modelling: tokens, whole words and n-grams (Devlin et al. 2019, section 3.1; Joshi et al.
2020; Lan et al. 2020, section 4.1)."""

import string
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bertzoo.text.encoded import Encoded, lengths_to_row_splits
from bertzoo.text.tokenizer import Tokenizer

ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class _SpanSampler:
    """Samples whole words, or n-grams of them with n drawn in the proportion 1 : 1/2 : 1/3.

    As in ALBERT's code, the words of a row are tried in random order as the first word of an n-gram. An n-gram that
    exceeds the row's budget is shortened; one that overlaps an earlier n-gram is skipped. ALBERT's code then draws n
    again, so that long n-grams, which overlap more often, become rare; here n is kept until an n-gram fits. An n-gram
    never spans a special token.

    Args:
        starts: bool (vocabulary,), the tokens that begin a word.
        max_ngram: The largest n.
    """

    starts: np.ndarray
    max_ngram: int = 1

    def choose(self, ids: np.ndarray, is_candidate: np.ndarray, budgets: np.ndarray, rng) -> np.ndarray:
        """
        Args:
            ids: int (rows, length).
            is_candidate: bool (rows, length), the tokens that may be masked.
            budgets: int (rows,), tokens to choose in each row; fewer are chosen if no word fits the rest.
            rng: The random generator.

        Returns:
            int (rows, length): 0 for tokens that are not chosen, else the number of their n-gram, from 1.
        """
        before = np.concatenate([np.zeros((len(ids), 1), bool), is_candidate[:, :-1]], axis=1)
        begins = is_candidate & (self.starts[ids] | ~before)
        ends = self._ends(begins, is_candidate)
        order = np.argsort(np.where(begins, rng.random(ids.shape, dtype=np.float32), 2.0), axis=1)
        law = np.cumsum(1 / np.arange(1, self.max_ngram + 1))
        sizes = 1 + np.searchsorted(law / law[-1], rng.random((len(ids), int(budgets.max(initial=0)) + 1)))
        return self._place(order, begins, ends, sizes, budgets)

    def _ends(self, begins, is_candidate) -> np.ndarray:
        """(max_ngram, rows, length): where n-grams of 1, 2 … words from a position end; length + 1: none."""
        rows, length = begins.shape
        bounds = np.where(begins | ~is_candidate, np.arange(length), length)
        following = np.minimum.accumulate(bounds[:, ::-1], axis=1)[:, ::-1]
        # Columns length and length + 1: the row's end, from which no n-gram goes on.
        first = np.full((rows, length + 2), length + 1)
        first[:, : length - 1], first[:, length - 1] = following[:, 1:], length
        first[:, :length][~is_candidate] = length + 1
        ends = [first]
        for _ in range(1, self.max_ngram):
            ends.append(np.take_along_axis(first, ends[-1], axis=1))
        return np.stack(ends)

    def _place(self, order, begins, ends, sizes, budgets) -> np.ndarray:
        rows, length = begins.shape
        every, count, left = np.arange(rows), np.zeros(rows, int), budgets.astype(int).copy()
        taken = np.zeros((rows, length + 2), bool)
        number, closes = np.zeros((rows, length + 2), int), np.zeros((rows, length + 2), int)
        for column in range(int(begins.sum(axis=1).max(initial=0))):
            active = np.flatnonzero((left > 0) & begins[every, order[:, column]])
            if not len(active) and not (left > 0).any():
                break
            position, n = order[active, column], sizes[active, count[active]]
            reach = ends[:, active, position]
            there = reach[n - 1, np.arange(len(active))] <= length
            fitting = ((reach - position <= left[active]) & (np.arange(1, self.max_ngram + 1)[:, None] <= n)).sum(
                axis=0
            )
            free = ~taken[active, position]
            for k in range(1, self.max_ngram):
                free &= (fitting <= k) | ~taken[active, np.minimum(reach[k - 1], length + 1)]
            good = there & (fitting > 0) & free
            active, position, fitting, reach = active[good], position[good], fitting[good], reach[:, good]
            end = reach[fitting - 1, np.arange(len(active))]
            taken[active, position] = True
            for k in range(1, self.max_ngram):
                more = fitting > k
                taken[active[more], reach[k - 1, more]] = True
            left[active] -= end - position
            count[active] += 1
            number[active, position] = count[active]
            closes[active, end] = count[active]
        # An n-gram's number holds from its first token up to its end.
        return np.cumsum(number - closes, axis=1)[:, :length]


@dataclass(frozen=True)
class Masking:
    """Selects tokens of each row and replaces most of them with [MASK] and some with a random token.

    The defaults are BERT's; whole words of n-grams up to 3 are ALBERT's rule, mask_prob = 0.85 and random_prob = 0
    ELECTRA's.

    Args:
        vocab_size: Size of the vocabulary.
        mask_id: The id of [MASK].
        special_ids: Tokens that are never selected and never inserted as random tokens.
        mlm_probability: Share of a row's tokens that is selected: max(1, round(mlm_probability × tokens)), where
            special tokens count, as in BERT.
        mask_prob, random_prob: Shares of the selected tokens that become [MASK] and a random token; the others stay
            unchanged. The draws are independent, also within a word or n-gram, as in the authors' code.
        starts: Ids of the tokens that begin a word, for whole-word masking. A word that would exceed the share is
            skipped, so that some rows have fewer masks.
        max_ngram: Largest number of words (or tokens, where `starts` is empty) that are selected together; see
            `_SpanSampler`.
        weights: Relative selection weight of each token of the vocabulary (DistilBERT favours rare tokens); uniform
            where empty. Only for single tokens.

    Raises:
        ValueError: A probability is out of range, all tokens are special, or the weights do not fit.
    """

    vocab_size: int
    mask_id: int
    special_ids: tuple[int, ...] = ()
    mlm_probability: float = 0.15
    mask_prob: float = 0.8
    random_prob: float = 0.1
    starts: tuple[int, ...] = ()
    max_ngram: int = 1
    weights: tuple[float, ...] = ()

    def __post_init__(self):
        shares = self.mask_prob, self.random_prob
        if not 0 < self.mlm_probability < 1 or min(shares) < 0 or sum(shares) > 1 + 1e-9:
            raise ValueError(
                f"mlm_probability must lie between 0 and 1, and mask_prob + random_prob must not exceed 1. Received: "
                f"mlm_probability={self.mlm_probability}, mask_prob={self.mask_prob}, random_prob={self.random_prob}."
            )
        if self.max_ngram < 1:
            raise ValueError(f"max_ngram must be 1 or more. Received: {self.max_ngram}.")
        if len(self.non_special_ids) == 0:
            raise ValueError("expected ordinary tokens in the vocabulary. Received: special tokens only.")
        if self.weights and (len(self.weights) != self.vocab_size or self._spans is not None):
            raise ValueError(
                f"expected a weight for each of {self.vocab_size} tokens, and masking of single tokens only. Received: "
                f"{len(self.weights)} weights."
            )

    @classmethod
    def for_tokenizer(cls, tokenizer: Tokenizer, whole_word_mask: bool = False, **options) -> "Masking":
        """The masking for a tokenizer's vocabulary.

        Args:
            tokenizer: Defines the vocabulary, its special tokens and which tokens begin a word.
            whole_word_mask: Mask whole words.
            options: Other arguments of the constructor.

        Raises:
            ValueError: The tokenizer has no mask token, or its tokens do not mark where words begin.
        """
        if tokenizer.mask_id is None:
            raise ValueError("masked language modelling needs a tokenizer with a mask token. Received: one without.")
        if whole_word_mask:
            options["starts"] = tuple(np.flatnonzero(word_starts(tokenizer)).tolist())
        return cls(tokenizer.vocabulary_size, tokenizer.mask_id, tokenizer.special_ids, **options)

    @classmethod
    def from_config(cls, config: dict | None) -> "Masking | None":
        """Reverses `dataclasses.asdict`, also after JSON has turned tuples into lists."""
        if config is None:
            return None
        options: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in config.items()}
        return cls(**options)

    @cached_property
    def _is_special(self) -> np.ndarray:
        return ~np.isin(np.arange(self.vocab_size), self.non_special_ids)

    @cached_property
    def non_special_ids(self) -> np.ndarray:
        """The ids that are not special, ascending."""
        return np.setdiff1d(np.arange(self.vocab_size, dtype="int32"), np.asarray(self.special_ids, dtype="int32"))

    @cached_property
    def _spans(self) -> _SpanSampler | None:
        if not self.starts and self.max_ngram == 1:
            return None
        starts = np.isin(np.arange(self.vocab_size), self.starts) if self.starts else np.ones(self.vocab_size, bool)
        return _SpanSampler(starts, self.max_ngram)

    @cached_property
    def _weights(self) -> np.ndarray:
        return np.asarray(self.weights, "float32")

    def max_predictions_per_seq(self, length: int) -> int:
        """The number of masked positions for which each row of a batch of this length has room."""
        return max(1, round(self.mlm_probability * length))

    def __call__(self, inputs: dict[str, np.ndarray], rng: np.random.Generator) -> tuple[dict, np.ndarray, np.ndarray]:
        """Masks a batch.

        Args:
            inputs: `token_ids` and `padding_mask`, int32 (batch, length), and the model's other inputs.
            rng: The random generator.

        Returns:
            The inputs with masked `token_ids` and `mask_positions`, int32 (batch, predictions); the labels, which are
            the original tokens at these positions, int32 (batch, predictions); and weights, float32 (batch,
            predictions), 0 for the unused positions of rows with fewer masks.
        """
        ids = inputs["token_ids"]
        rows = np.arange(len(ids))[:, None]
        is_candidate = inputs["padding_mask"].astype(bool) & ~self._is_special[ids]
        lengths = inputs["padding_mask"].sum(axis=1)
        budgets = np.maximum(1, np.round(self.mlm_probability * lengths)).astype(int)
        chosen, counted = self._choose(ids, is_candidate, budgets, rng)
        labels = ids[rows, chosen]
        draw = rng.random(labels.shape, dtype=np.float32)
        replacement = np.where(draw < self.mask_prob, np.int32(self.mask_id), labels)
        other = self.non_special_ids[rng.integers(0, len(self.non_special_ids), labels.shape)]
        replacement = np.where(
            (draw >= self.mask_prob) & (draw < self.mask_prob + self.random_prob), other, replacement
        )
        masked = ids.copy()
        masked[rows, chosen] = np.where(counted, replacement, labels)
        positions = np.where(counted, chosen, 0).astype("int32")
        batch = {**inputs, "token_ids": masked, "mask_positions": positions}
        return batch, np.where(counted, labels, 0).astype("int32"), counted.astype("float32")

    def _choose(self, ids, is_candidate, budgets, rng) -> tuple[np.ndarray, np.ndarray]:
        """Positions (rows, predictions), distinct within a row, and which of them are in use."""
        size, length = self.max_predictions_per_seq(ids.shape[1]), ids.shape[1]
        if self._spans is not None:
            taken = self._spans.choose(ids, is_candidate, budgets, rng) > 0
            chosen = np.argsort(~taken, axis=1, kind="stable")[:, :size]
            return chosen, np.take_along_axis(taken, chosen, axis=1)
        # The first of a random order are a sample without replacement: uniform, or weighted (Efraimidis and Spirakis).
        if self.weights:
            order = rng.standard_exponential(ids.shape, dtype=np.float32) / np.maximum(self._weights[ids], 1e-30)
        else:
            order = rng.random(ids.shape, dtype=np.float32)
        order = np.where(is_candidate, order, np.inf)
        chosen = np.argpartition(order, size - 1, axis=1)[:, :size] if size < length else np.argsort(order, axis=1)
        sort = np.argsort(np.take_along_axis(order, chosen, axis=1), axis=1)
        chosen = np.take_along_axis(chosen, sort, axis=1)
        counted = (np.arange(size) < budgets[:, None]) & np.take_along_axis(is_candidate, chosen, axis=1)
        return chosen, counted


class StaticMasking:
    """Examples masked once, for evaluation: their masks depend on their order and the seed, not on the batches.

    `examples` are the masked ones; `batch` completes a batch of them, as the `transform` of `SeededDataset`.

    Args:
        masking: The masking.
        encoded: The examples.
        pad_id: The padding token.
        seed: Seed of the masks.
    """

    def __init__(self, masking: Masking, encoded: Encoded, pad_id: int, seed: int):
        self.masking = masking
        ids, positions, labels, counts = encoded.token_ids.copy(), [], [], []
        for begin in range(0, len(encoded), ROWS_AT_ONCE):
            rows = np.arange(begin, min(begin + ROWS_AT_ONCE, len(encoded)))
            padded = encoded.pad(rows, int(encoded.lengths[rows].max()), pad_id)
            rng = np.random.Generator(np.random.Philox(key=[seed, begin]))
            masked, guessed, weights = masking(padded, rng)
            ids[encoded.row_splits[begin] : encoded.row_splits[rows[-1] + 1]] = masked["token_ids"][
                padded["padding_mask"] > 0
            ]
            counted = weights > 0
            counts.append(counted.sum(axis=1))
            positions.append(masked["mask_positions"][counted])
            labels.append(guessed[counted])
        self.examples = Encoded(ids, encoded.segment_ids, encoded.row_splits)
        self.positions, self.labels = np.concatenate(positions), np.concatenate(labels)
        self.row_splits = lengths_to_row_splits(np.concatenate(counts))

    def batch(
        self, inputs: dict[str, np.ndarray], row_indices: np.ndarray, rng=None
    ) -> tuple[dict, np.ndarray, np.ndarray]:
        """Inputs, labels and weights as `Masking` returns them, from padded examples and their `row_indices`."""
        counts = self.row_splits[row_indices + 1] - self.row_splits[row_indices]
        index = np.arange(self.masking.max_predictions_per_seq(inputs["token_ids"].shape[1]))
        counted = index < counts[:, None]
        flat_index = np.where(counted, self.row_splits[row_indices][:, None] + index, 0)
        positions, labels = (np.where(counted, a[flat_index], 0).astype("int32") for a in (self.positions, self.labels))
        return {**inputs, "mask_positions": positions}, labels, counted.astype("float32")


def word_starts(tokenizer: Tokenizer) -> np.ndarray:
    """bool (vocabulary,): whether a token begins a word.

    WordPiece: all but those that begin with ##. Byte-level BPE: those that begin with a space, as in fairseq.
    SentencePiece: those that begin with ▁ and, as in ALBERT's code, punctuation and pieces with letters outside a to z.
    Special tokens count as words.

    Raises:
        ValueError: No token of the vocabulary marks the beginning of a word.
    """
    vocabulary = {index: token for token, index in tokenizer.vocabulary.items()}  # which may have gaps
    tokens = np.array([vocabulary.get(i, "") for i in range(tokenizer.vocabulary_size)], dtype=object)
    special = np.isin(np.arange(len(tokens)), tokenizer.special_ids)
    marks = {mark: sum(token.startswith(mark) for token in tokens) for mark in ("##", "Ġ", "▁")}
    mark = max(marks, key=marks.__getitem__)
    if not marks[mark]:
        raise ValueError(f"whole-word masking expects tokens that begin with {', '.join(marks)}. Received: none do.")
    begins = np.array([token.startswith(mark) for token in tokens])
    if mark == "##":
        return special | ~begins | (tokens == "##")
    if mark == "Ġ":
        return special | begins
    english = set(string.ascii_letters)
    return special | begins | np.array([not set(token) <= english for token in tokens])
