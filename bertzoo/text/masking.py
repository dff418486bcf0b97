"""Masking for masked language modelling (Devlin et al. 2019, section 3.1)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bertzoo.text.encoded import Encoded, row_splits_from
from bertzoo.text.span_masking import SpanSampler, word_starts
from bertzoo.text.tokenizer import Tokenizer

ROWS_AT_ONCE = 256


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
            `SpanSampler`.
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
        if len(self.ordinary) == 0:
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
        return ~np.isin(np.arange(self.vocab_size), self.ordinary)

    @cached_property
    def ordinary(self) -> np.ndarray:
        """The ids that are not special, ascending."""
        return np.setdiff1d(np.arange(self.vocab_size, dtype="int32"), np.asarray(self.special_ids, dtype="int32"))

    @cached_property
    def _spans(self) -> SpanSampler | None:
        if not self.starts and self.max_ngram == 1:
            return None
        starts = np.isin(np.arange(self.vocab_size), self.starts) if self.starts else np.ones(self.vocab_size, bool)
        return SpanSampler(starts, self.max_ngram)

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
        other = self.ordinary[rng.integers(0, len(self.ordinary), labels.shape)]
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

    `examples` are the masked ones; `batch` completes a batch of them, as the `transform` of `BucketedDataset`.

    Args:
        masking: The masking.
        encoded: The examples.
        pad_id: The padding token.
        seed: Seed of the masks.
    """

    def __init__(self, masking: Masking, encoded: Encoded, pad_id: int, seed: int):
        self.masking = masking
        ids, places, labels, counts = encoded.token_ids.copy(), [], [], []
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
            places.append(masked["mask_positions"][counted])
            labels.append(guessed[counted])
        self.examples = Encoded(ids, encoded.segment_ids, encoded.row_splits)
        self.places, self.labels = np.concatenate(places), np.concatenate(labels)
        self.row_splits = row_splits_from(np.concatenate(counts))

    def batch(self, inputs: dict[str, np.ndarray], rows: np.ndarray, rng=None) -> tuple[dict, np.ndarray, np.ndarray]:
        """Inputs, labels and weights as `Masking` returns them, from padded examples and their indices `rows`."""
        counts = self.row_splits[rows + 1] - self.row_splits[rows]
        index = np.arange(self.masking.max_predictions_per_seq(inputs["token_ids"].shape[1]))
        counted = index < counts[:, None]
        flat_index = np.where(counted, self.row_splits[rows][:, None] + index, 0)
        places, labels = (np.where(counted, flat[flat_index], 0).astype("int32") for flat in (self.places, self.labels))
        return {**inputs, "mask_positions": places}, labels, counted.astype("float32")
