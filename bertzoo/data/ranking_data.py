"""Queries with lists of documents, each read together with its query: what rerankers are trained with."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from bertzoo.data.labels import target_rows
from bertzoo.data.parsing import Examples, Schema
from bertzoo.data.schemas import RANKINGS
from bertzoo.data.task_data import LabelData
from bertzoo.data.tuple_data import EncodedTuples
from bertzoo.losses.ranking import RankingLoss
from bertzoo.models.config import EncoderConfig
from bertzoo.random import numpy_generator
from bertzoo.text.encoded import CheckedTexts, Encoded, lengths_to_row_splits
from bertzoo.text.tokenizer import Tokenizer


class RankingData(LabelData):
    """Pairs of texts with labels; for a `RankingLoss`, queries with documents.

    Args:
        tokenizer, config, labels, problem_type: As for `LabelData`.
        pairs: The schema of pairs.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        config: EncoderConfig,
        labels: list[str],
        problem_type: str,
        pairs: Schema,
    ):
        super().__init__(tokenizer, config, labels, problem_type, pairs)
        self._pairs = pairs
        self.loss: RankingLoss | None = None

    def set_loss(self, loss: RankingLoss | None, target_range: tuple[float, float] = (-np.inf, np.inf)) -> None:
        """Makes rows and targets those of a loss.

        Args:
            loss: The loss of queries with documents; None for one of pairs.
            target_range: The least and greatest label that it allows.
        """
        self.loss, self.limits = loss, target_range
        self.schema = self._pairs if loss is None else RANKINGS

    def encode(self, examples: Examples) -> Encoded | EncodedTuples:
        if "documents" not in examples.columns:
            return super().encode(examples)
        documents, columns = examples["documents"], []
        for number in range(max(map(len, documents))):
            rows = [row for row, texts in enumerate(documents) if len(texts) > number]
            encoded = self.require_tokenizer().encode(
                CheckedTexts(examples["query"][row] for row in rows),
                CheckedTexts(documents[row][number] for row in rows),
            )
            columns.append(_fill_up(encoded, np.array(rows), len(documents), self.pad_id))
        return EncodedTuples(columns)

    def encode_targets(self, examples: Examples) -> np.ndarray:
        if "documents" not in examples.columns:
            return super().encode_targets(examples)
        target = self.loss.target if self.loss else "labels"
        return encode_ranking_targets(examples.targets, list(map(len, examples["documents"])), target)

    def make_dataset_of_examples(
        self, examples: Examples, sample_weights: np.ndarray | None, with_targets: bool, **options: Any
    ) -> Any:
        if with_targets and self.loss is not None and self.loss.num_negatives:
            drawn = draw_negatives(examples, self.loss.num_negatives, self.seed)
            examples = dataclasses.replace(examples, columns={**examples.columns, "documents": drawn})
        return super().make_dataset_of_examples(examples, sample_weights, with_targets, **options)


def draw_negatives(examples: Examples, count: int, seed: int) -> list[list[str]]:
    """The documents of each query, and behind them `count` drawn documents of other queries; fewer where there are not
    so many others.

    Args:
        examples: Queries with documents.
        count: How many to draw for each.
        seed: Of the draw.
    """
    known: dict[str, set[str]] = {}
    for query, texts in zip(examples["query"], examples["documents"]):
        known.setdefault(query, set()).update(texts)
    pool = np.array(sorted(set().union(*known.values())), dtype=object)
    rng = numpy_generator(seed, "negatives")
    extended: list[list[str]] = []
    for query, texts in zip(examples["query"], examples["documents"]):
        # As many more as could be the query's own.
        drawn = rng.choice(len(pool), min(len(pool), count + len(known[query])), replace=False)
        others = [text for text in pool[drawn].tolist() if text not in known[query]]
        extended.append(CheckedTexts([*texts, *others[:count]]))
    return extended


def encode_ranking_targets(y: Any, counts: Sequence[int], target: str | None) -> np.ndarray:
    """The labels of each query's documents, float32 (n, most documents), NaN where a query has fewer.

    Args:
        y: A list of numbers for each query, one for each of its documents, in their order; for "margins" it may be one
            fewer; unused where `target` is None.
        counts: How many documents each query has.
        target: As of `bertzoo.losses.RankingLoss`.

    Raises:
        ValueError: There are no labels, too few or too many, or one is no finite number.
    """
    allowed = {count: (count, count - 1) if target == "margins" else (count,) for count in counts}
    rows = [[0.0] * count for count in counts] if target is None else target_rows(y, len(counts))
    rows = [[row] if np.ndim(row) == 0 else row for row in rows]
    for number, (row, count) in enumerate(zip(rows, counts)):
        if len(row) not in allowed[count]:
            fewer = ", or one fewer for margins" if target == "margins" else ""
            raise ValueError(
                f"y[{number}] must have a label for each of {count} documents{fewer}. Received: {len(row)}."
            )
    widths = sorted({len(row) for row in rows})
    if target == "margins" and (len(set(counts)) > 1 or len(widths) > 1):
        raise ValueError(
            "this loss compares equally many documents for all queries, with as many labels, one fewer for margins. "
            f"Received: queries with {_listed(counts)} documents and {_listed(widths)} labels."
        )
    targets = np.full((len(rows), max(widths)), np.nan, "float32")
    for number, row in enumerate(rows):
        values = np.asarray(row, "float32")
        if not np.isfinite(values).all():
            raise ValueError(f"y[{number}] must hold finite numbers. Received: {row!r:.60}.")
        targets[number, : len(values)] = values
    return targets


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(set(numbers))))


def _fill_up(encoded: Encoded, rows: np.ndarray, num_rows: int, pad_id: int) -> Encoded:
    """Encoded texts as these rows of more, whose others are one padding token: where a query has no document, next to
    nothing is computed."""
    lengths = np.ones(num_rows, np.int64)
    lengths[rows] = encoded.lengths
    is_real = np.repeat(np.isin(np.arange(num_rows), rows), lengths)
    ids, segments = np.full(len(is_real), pad_id, np.int32), np.zeros(len(is_real), np.int8)
    ids[is_real], segments[is_real] = encoded.token_ids, encoded.segment_ids
    return Encoded(ids, segments, lengths_to_row_splits(lengths))
