"""Pairs of labelled texts, alike and unlike, for training on few of them (Tunstall et al. 2022, section 3)."""

from typing import Any

import numpy as np

from bertzoo.data.batches import SeededDataset, batch_generator
from bertzoo.data.packing import FEW_BATCHES, fit_packed_shape, packing_arrays, rows_needed
from bertzoo.text.encoded import Encoded


def contrastive_pairs(targets: np.ndarray, num_iterations: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of texts that the library setfit trains on, in its order: alike and unlike ones by turns.

    All combinations, each text with itself included, in the permutation of seed 42. The fewer kind is repeated from its
    beginning until it is as many as the other.

    Args:
        targets: int (n,), the class of each text; or 0 and 1 (n, labels): texts that share a label are alike.
        num_iterations: The number of pairs of each kind is n times this; where None, that of the more frequent kind.

    Returns:
        Indices of texts, int64 (pairs, 2), and float32 (pairs,): 1 for texts that are alike, 0 for others.

    Raises:
        ValueError: All texts are alike, or none is, or `num_iterations` is below 1.
    """
    if num_iterations is not None and num_iterations < 1:
        raise ValueError(f"num_iterations must be at least 1, or None for all pairs. Received: {num_iterations!r}.")
    count = len(targets)
    pairs = np.stack(np.triu_indices(count), axis=1)
    pairs = pairs[np.random.RandomState(42).permutation(len(pairs))]
    first, second = (targets[column] for column in pairs.T)
    is_alike = first == second if targets.ndim == 1 else np.logical_and(first, second).any(axis=1)
    alike, unlike = pairs[is_alike], pairs[~is_alike]
    if not (len(alike) and len(unlike)):
        raise ValueError(
            f"expected texts with different labels. Received: {count} texts, {len(alike)} pairs of which are alike and "
            f"{len(unlike)} are not. Pass examples of two classes or more."
        )
    each = max(len(alike), len(unlike)) if num_iterations is None else num_iterations * count
    by_turns = [kind[np.arange(each) % len(kind)] for kind in (alike, unlike)]
    return np.stack(by_turns, axis=1).reshape(-1, 2), np.tile(np.array([1, 0], "float32"), each)


class PairDataset(SeededDataset):
    """Packed batches of pairs of texts with scores, in which a text that is in several pairs stands once.

    Besides what a packed batch of single texts has, inputs have `text_index`, int32 (batch, 2): which texts make each
    pair. All batches have the same number of texts; where a batch needs fewer, the others are one padding token.

    Args:
        texts: The texts.
        pairs: Indices of texts, int (pairs, 2).
        scores: float32 (pairs,).
        options: As for `SeededDataset`.
    """

    def __init__(self, texts: Encoded, pairs: np.ndarray, scores: np.ndarray, **options: Any):
        self._pairs, self._scores = pairs, scores
        super().__init__(texts, **options)

    def _choose_shapes(self) -> None:
        self._length = int(self._encoded.lengths.max(initial=1))
        self._num_texts = min(len(self._encoded), 2 * self.batch_size)
        draws = [self._lengths_of(np.unique(self._pairs[rows])) for rows in self._make_plan(0)[:FEW_BATCHES]]
        _, self.shape = fit_packed_shape(draws, self._length)

    def _num_tokens(self, rows: np.ndarray) -> int:
        lengths = self._lengths_of(np.unique(self._pairs[rows]))
        return self.shape.num_rows(rows_needed(lengths, self.shape.row_length)) * self.shape.row_length

    @property
    def padding_efficiency(self) -> float:
        """Of the tokens computed in an epoch, the fraction that are not padding."""
        real = sum(int(self._encoded.lengths[np.unique(self._pairs[rows])].sum()) for rows in self._plan)
        return real / sum(map(self._num_tokens, self._plan))

    def _lengths_of(self, texts: np.ndarray) -> np.ndarray:
        """The tokens of a batch's texts, int (texts,)."""
        return np.append(self._encoded.lengths[texts], np.ones(self._num_texts - len(texts), dtype=int))

    def _make_plan(self, epoch: int) -> list[np.ndarray]:
        count = len(self._pairs)
        rows = batch_generator(self._seed, epoch, 0).permutation(count) if self._shuffle else np.arange(count)
        return np.split(rows, np.arange(self.batch_size, count, self.batch_size))

    def _make(self, epoch: int, plan: list[np.ndarray], index: int) -> tuple:
        texts, places = np.unique(self._pairs[plan[index]], return_inverse=True)
        inputs = self._encoded.pad(texts, self._length, self._pad_id, return_lengths=True)
        missing = self._num_texts - len(texts)
        inputs = {name: np.pad(x, [(0, missing), *[(0, 0)] * (x.ndim - 1)]) for name, x in inputs.items()}
        inputs |= packing_arrays(self._lengths_of(texts), self._length, self.shape)
        inputs["text_index"] = places.reshape(-1, 2).astype("int32")
        return inputs, self._scores[plan[index]]
