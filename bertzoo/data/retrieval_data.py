"""Queries and documents, which some models read differently."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertzoo.data.parsing import Examples
from bertzoo.data.tuple_data import EncodedTuples, TupleData
from bertzoo.models.config import EncoderConfig
from bertzoo.text.encoded import CheckedTexts, Encoded, lengths_to_row_splits, prepend_prompt
from bertzoo.text.tokenizer import Tokenizer

QUERY_IDS = "query_ids"  # the input with the words of queries that the encoder does not read


@dataclass(frozen=True)
class DocumentsOfQueries(EncodedTuples):
    """The documents of each row, and the words of its query, which are an input of their own, `query_ids`."""

    queries: Encoded = dataclasses.field(kw_only=True)

    @property
    def texts(self) -> Sequence[Encoded]:
        return (self.queries, *self.columns)

    def pad(
        self, row_indices: Any, length: int, pad_id: int = 0, return_lengths: bool = False
    ) -> dict[str, np.ndarray]:
        """As `EncodedTuples.pad`, with `query_ids` int32 (len(row_indices), most words of a query), -1 at padding.

        Args:
            row_indices, length, pad_id, return_lengths: Same as in `EncodedTuples.pad`.
        """
        longest = int(self.queries.lengths.max(initial=1))
        words = self.queries.pad(row_indices, longest, pad_id=-1)["token_ids"]
        return {**super().pad(row_indices, length, pad_id, return_lengths), QUERY_IDS: words}


class SparseData(TupleData):
    """Tuples of texts for sparse vectors.

    Args:
        tokenizer, config: As for `TupleData`.
        static_queries: Whether queries are sets of words, which the encoder does not read.
    """

    def __init__(self, tokenizer: Tokenizer | None, config: EncoderConfig, static_queries: bool):
        super().__init__(tokenizer, config, config.vocab_size)
        self.static_queries = static_queries

    def encode(self, examples: Examples) -> Encoded | EncodedTuples:
        if not self.static_queries or self.tokenizer is None or len(examples.columns) < 2:
            return super().encode(examples)
        prompts = self.prompts_for(len(examples.columns))
        queries, *documents = map(prepend_prompt, examples.columns.values(), prompts)
        columns = [self.encode_texts(texts, "document") for texts in documents]
        return DocumentsOfQueries(columns, queries=self.query_words(queries))

    def query_words(self, texts: CheckedTexts) -> Encoded:
        """The ids of each text's words, each once and ascending, without the special tokens that a model adds."""
        tokenizer = self.require_tokenizer()
        special = tokenizer.encode([""]).row(0)
        before = int(len(special) > 0 and special[0] == tokenizer.cls_id)
        encoded = tokenizer.encode(texts, truncate=False)
        rows = np.repeat(np.arange(len(encoded)), encoded.lengths)
        positions = np.arange(len(encoded.token_ids)) - encoded.row_splits[rows] - before
        lengths = np.minimum(encoded.lengths - len(special), tokenizer.max_length or self.config.max_length)
        kept = (positions >= 0) & (positions < lengths[rows])
        words, count = np.unique(rows[kept] * self.width + encoded.token_ids[kept]), np.zeros(len(encoded), np.int64)
        np.add.at(count, words // self.width, 1)
        ids = (words % self.width).astype("int32")
        return Encoded(ids, np.zeros(len(ids), np.int8), lengths_to_row_splits(count))


SCORING_MASK = "scoring_mask"  # the input with the tokens whose vectors count


class MultiVectorData(TupleData):
    """Tuples of texts for vectors of tokens: how long queries and documents are, and which of their tokens count.

    Args:
        tokenizer, config: As for `TupleData`.
        vector_width: Numbers in a token's vector.
        lengths: The longest "query" and "document" in tokens; None for the tokenizer's limit.
        query_expansion: See `MultiVectorEncoder`.
        skiplist_words: Tokens that do not count.
        skiplist_tasks: In which texts they do not, "query" and "document", of which others are taken for the latter.

    Raises:
        ValueError: The vocabulary has no token to expand queries with.
    """

    transforms_any_shape = True

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        config: EncoderConfig,
        vector_width: int,
        lengths: Mapping[str | None, int | None],
        query_expansion: Mapping[str, Any] | None,
        skiplist_words: Sequence[str],
        skiplist_tasks: Sequence[str],
    ):
        super().__init__(tokenizer, config, vector_width)
        self.lengths, self.expansion, self.skiplist_tasks = lengths, query_expansion, skiplist_tasks
        self.packs = query_expansion is None or query_expansion["attend"]
        self._skiplist_words = skiplist_words

    @property
    def skiplist_ids(self) -> list[int]:
        """The ids of the skiplist's words, without those that are no single token."""
        ids = [self.tokenizer.token_to_id(word) for word in self._skiplist_words if self.tokenizer is not None]
        return [i for i in ids if i is not None]

    @property
    def expansion_id(self) -> int:
        """The id of the token that queries are expanded with.

        Raises:
            ValueError: The vocabulary has no such token.
        """
        tokenizer, token = self.require_tokenizer(), (self.expansion or {}).get("token")
        found = tokenizer.mask_id if token is None else tokenizer.token_to_id(token)
        if found is None:
            raise ValueError(
                f"the vocabulary has no token {token or 'of a mask'!r} to expand queries with: name one as the "
                "expansion's token."
            )
        return found

    def encode_texts(self, texts: CheckedTexts, prompt_type: str | None) -> Encoded:
        tokenizer, longest = self.require_tokenizer(), self.lengths.get(prompt_type)
        if prompt_type != "query" or self.expansion is None:
            return tokenizer.encode(texts, max_length=longest)
        least = self.expansion["length"]
        if self.expansion["strategy"] == "fixed":
            longest = least
        elif longest is not None:
            longest = max(longest, least)
        return _widened(tokenizer.encode(texts, max_length=longest), least, self.expansion_id)

    def input_transform(self, prompt_types: Sequence[str | None]) -> Callable:
        expanded = [kind == "query" and self.expansion is not None for kind in prompt_types]
        skips = [(kind or "document") in self.skiplist_tasks for kind in prompt_types]

        def add_scoring_mask(inputs, rows, rng):
            ids, mask = inputs["token_ids"], inputs["padding_mask"]
            by_column = (len(skips), 1) if ids.ndim == 3 else (1, 1)
            skipped = np.isin(ids, self.skiplist_ids) & np.reshape(skips, by_column)
            inputs[SCORING_MASK] = mask * ~skipped
            if any(expanded) and not self.packs:
                attended = mask & ~(_is_expansion(ids, mask, self.expansion_id) & np.reshape(expanded, by_column))
                inputs["padding_mask"] = attended.astype(mask.dtype)
                inputs.pop("lengths", None)
            return (inputs,)

        return add_scoring_mask


def _widened(encoded: Encoded, least: int, token_id: int) -> Encoded:
    """Rows with a token after their end, up to `least` tokens."""
    lengths = np.maximum(encoded.lengths, least)
    splits = lengths_to_row_splits(lengths)
    ids, segments = np.full(splits[-1], token_id, np.int32), np.zeros(splits[-1], np.int8)
    positions = np.arange(len(encoded.token_ids)) + np.repeat(splits[:-1] - encoded.row_splits[:-1], encoded.lengths)
    ids[positions], segments[positions] = encoded.token_ids, encoded.segment_ids
    return Encoded(ids, segments, splits)


def _is_expansion(ids: np.ndarray, mask: np.ndarray, token_id: int) -> np.ndarray:
    """bool (…, length): the expansion tokens at the end of a row, and its padding."""
    others = (ids != token_id) & (mask > 0)
    return np.cumsum(others[..., ::-1], axis=-1)[..., ::-1] == 0
