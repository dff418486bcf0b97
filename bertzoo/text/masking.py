"""Which tokens a masked language model must guess, and what stands in their place (Devlin et al. 2019, section 3.1)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bertzoo.text.masked_spans import Spans
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.whole_words import word_starts


@dataclass(frozen=True)
class Masking:
    """A share of each row's tokens is chosen; most become [MASK], some a random token, some stay. The defaults are
    BERT's; whole words of n-grams up to 3 are ALBERT's rule, masked = 0.85 and random = 0 ELECTRA's.

    Args:
        vocab_size: Tokens are 0 … vocab_size - 1.
        mask_id: The id of [MASK].
        special_ids: Never chosen, and never put in as random tokens.
        share: Share of a row's tokens that is chosen: max(1, round(share × tokens)), special tokens counted as BERT
            does.
        masked, random: Shares of the chosen that become [MASK] and a random token; the rest stay as they are. Each
            token of a word or n-gram has its own draw, as the authors' code has it.
        starts: Ids of the tokens that begin a word; if given, whole words are chosen. A word that would exceed the
            share is passed over, so that some rows have fewer.
        max_ngram: Up to as many words, or tokens where `starts` is empty, are chosen together; see `Spans`.
        weights: How readily each token of the vocabulary is chosen, relative to others (DistilBERT favours rare ones);
            all alike where empty. Only for single tokens.

    Raises:
        ValueError: A share is out of range, there are no ordinary tokens, or weights do not fit.
    """

    vocab_size: int
    mask_id: int
    special_ids: tuple[int, ...] = ()
    share: float = 0.15
    masked: float = 0.8
    random: float = 0.1
    starts: tuple[int, ...] = ()
    max_ngram: int = 1
    weights: tuple[float, ...] = ()

    def __post_init__(self):
        if not 0 < self.share < 1 or min(self.masked, self.random) < 0 or self.masked + self.random > 1 + 1e-9:
            raise ValueError(
                f"share must lie between 0 and 1, and masked + random be at most 1; they are "
                f"{self.share}, {self.masked} and {self.random}."
            )
        if self.max_ngram < 1:
            raise ValueError(f"max_ngram must be 1 or more; it is {self.max_ngram}.")
        if len(self.ordinary) == 0:
            raise ValueError("the vocabulary has special tokens only.")
        if self.weights and (len(self.weights) != self.vocab_size or self._spans is not None):
            raise ValueError(
                f"weights must be one for each of {self.vocab_size} tokens, and go with single tokens only; there are "
                f"{len(self.weights)}."
            )

    @classmethod
    def for_tokenizer(cls, tokenizer: Tokenizer, words: bool = False, **rule) -> "Masking":
        """The rule for a tokenizer's vocabulary.

        Args:
            tokenizer: Tells the vocabulary, its special tokens and which tokens begin a word.
            words: Choose whole words.
            rule: Other arguments of the constructor.

        Raises:
            ValueError: It has no mask token, or its tokens do not tell where words begin.
        """
        if tokenizer.mask_id is None:
            raise ValueError("the tokenizer has no mask token; masked language modelling needs one.")
        if words:
            rule["starts"] = tuple(np.flatnonzero(word_starts(tokenizer)).tolist())
        return cls(tokenizer.vocabulary_size, tokenizer.mask_id, tokenizer.special_ids, **rule)

    @classmethod
    def from_config(cls, config: dict | None) -> "Masking | None":
        """What `dataclasses.asdict` was given, after JSON has made lists of its tuples."""
        if config is None:
            return None
        return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in config.items()})

    @cached_property
    def _is_special(self) -> np.ndarray:
        return ~np.isin(np.arange(self.vocab_size), self.ordinary)

    @cached_property
    def ordinary(self) -> np.ndarray:
        """The ids that are not special, ascending."""
        return np.setdiff1d(np.arange(self.vocab_size, dtype="int32"), np.asarray(self.special_ids, dtype="int32"))

    @cached_property
    def _spans(self) -> Spans | None:
        if not self.starts and self.max_ngram == 1:
            return None
        starts = np.isin(np.arange(self.vocab_size), self.starts) if self.starts else np.ones(self.vocab_size, bool)
        return Spans(starts, self.max_ngram)

    @cached_property
    def _weights(self) -> np.ndarray:
        return np.asarray(self.weights, "float32")

    def slots(self, length: int) -> int:
        """Places for chosen tokens in each row of a batch of this length."""
        return max(1, round(self.share * length))

    def __call__(self, inputs: dict[str, np.ndarray], rng: np.random.Generator) -> tuple[dict, np.ndarray, np.ndarray]:
        """Masks a batch.

        Args:
            inputs: `token_ids` and `padding_mask`, int32 (batch, length), and what else the model takes.
            rng: Source of the draws.

        Returns:
            The inputs with masked `token_ids` and `mask_positions`, int32 (batch, slots); the right tokens there, int32
            (batch, slots); and float32 (batch, slots) weights, 0 at slots that a shorter row leaves empty.
        """
        ids = inputs["token_ids"]
        rows = np.arange(len(ids))[:, None]
        candidate = inputs["padding_mask"].astype(bool) & ~self._is_special[ids]
        lengths = inputs["padding_mask"].sum(axis=1)
        wanted = np.maximum(1, np.round(self.share * lengths)).astype(int)
        chosen, counted = self._choose(ids, candidate, wanted, rng)
        labels = ids[rows, chosen]
        draw = rng.random(labels.shape, dtype=np.float32)
        put = np.where(draw < self.masked, np.int32(self.mask_id), labels)
        other = self.ordinary[rng.integers(0, len(self.ordinary), labels.shape)]
        put = np.where((draw >= self.masked) & (draw < self.masked + self.random), other, put)
        masked = ids.copy()
        masked[rows, chosen] = np.where(counted, put, labels)
        positions = np.where(counted, chosen, 0).astype("int32")
        batch = {**inputs, "token_ids": masked, "mask_positions": positions}
        return batch, np.where(counted, labels, 0).astype("int32"), counted.astype("float32")

    def _choose(self, ids, candidate, wanted, rng) -> tuple[np.ndarray, np.ndarray]:
        """Places (rows, slots), none twice in a row, and which of them count."""
        slots, length = self.slots(ids.shape[1]), ids.shape[1]
        if self._spans is not None:
            taken = self._spans.choose(ids, candidate, wanted, rng) > 0
            chosen = np.argsort(~taken, axis=1, kind="stable")[:, :slots]
            return chosen, np.take_along_axis(taken, chosen, axis=1)
        # The first of a random order are drawn without replacement: evenly, or by weights (Efraimidis and Spirakis).
        if self.weights:
            order = rng.standard_exponential(ids.shape, dtype=np.float32) / np.maximum(self._weights[ids], 1e-30)
        else:
            order = rng.random(ids.shape, dtype=np.float32)
        order = np.where(candidate, order, np.inf)
        chosen = np.argpartition(order, slots - 1, axis=1)[:, :slots] if slots < length else np.argsort(order, axis=1)
        sort = np.argsort(np.take_along_axis(order, chosen, axis=1), axis=1)
        chosen = np.take_along_axis(chosen, sort, axis=1)
        counted = (np.arange(slots) < wanted[:, None]) & np.take_along_axis(candidate, chosen, axis=1)
        return chosen, counted
