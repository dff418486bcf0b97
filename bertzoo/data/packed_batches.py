"""Packed batches: random examples whatever their lengths, their texts side by side in rows without padding."""

import math
from collections import Counter
from typing import Any

import keras
import numpy as np

from bertzoo.data.batches import SeededDataset, batch_generator
from bertzoo.data.packing import PackedShape, choose_packed_shape, packing_arrays, rows_needed
from bertzoo.text.encoded import Encoded

ROUNDS, DRAWS = 20, 200  # to part rows that should not meet
MOST_DRAWS = 1_000_000  # in a round, a few seconds; where more rows clash, they are hardly all to be parted


class PackedDataset(SeededDataset):
    """A data set whose batches are the next rows of a seeded shuffle, or of the given order, whatever their lengths.

    So the loss is that of the same examples padded to the longest. Texts are packed into rows of one length
    (`bertzoo.data.packing`): besides the padded arrays, all of which are as long as the longest text, a batch has
    `packing` and `text_starts`, and an `Encoder` computes hardly any padding. The numbers of rows are few and the same
    in every epoch, so that each is compiled once. Where there is hardly any padding to save, batches are not packed.

    Args:
        encoded, options: As for `SeededDataset`.
        max_shapes: The largest number of shapes; the smaller batch of an epoch has one more.
        predictions_per_token: Where `transform` masks tokens, the fraction that it masks: its `mask_positions`, labels
            and weights, (batch, predictions of the longest text), are laid out anew, see `pack_predictions`.
        keep_apart_ids: int (n, numbers). Rows that share a number do not meet in a batch, as far as possible, so that
            equal texts are not negatives of each other.
        mini_batch_size: With it, no row holds texts of two mini-batches, which have at most so many examples and
            equally many rows, and a packed batch has `first_texts`, int32 (mini-batches,), the number of each one's
            first text; see `bertzoo.tasks.mini_batches`.
        pack: False leaves all batches padded.

    Raises:
        ValueError: There are no rows.
    """

    def __init__(
        self,
        encoded: Encoded,
        *,
        max_shapes: int = 4,
        predictions_per_token: float | None = None,
        keep_apart_ids: np.ndarray | None = None,
        mini_batch_size: int | None = None,
        pack: bool = True,
        **options: Any,
    ):
        self._mini_batch_size, self._pack = mini_batch_size, pack
        self._max_shapes, self._apart, self._predictions = max_shapes, keep_apart_ids, predictions_per_token
        super().__init__(encoded, **options)

    def _choose_shapes(self) -> None:
        if len(self._encoded) == 0:
            raise ValueError("there are no rows to make batches of.")
        self._length = int(self._encoded.lengths.max(initial=1))
        rng, lengths = batch_generator(self._seed, 0, -1), self._encoded.text_lengths
        self.shape = self._smaller = None
        if self._pack:
            groups = self._num_groups(self.batch_size)
            self.shape = choose_packed_shape(lengths, self.batch_size, rng, self._max_shapes, groups)
        if self.shape and (rest := len(self._encoded) % self.batch_size):
            options = {"max_count": 1, "row_length": self.shape.row_length, "num_groups": self._num_groups(rest)}
            self._smaller = choose_packed_shape(lengths, rest, rng, **options)

    def example_batches(self) -> list[tuple]:
        """A batch of each shape that may come, whatever this epoch's are: not all of its texts may have a place."""
        if self.shape is None:
            return super().example_batches()
        examples, sizes = [], set()
        for index, rows in enumerate(self._plan):
            shape, _ = self._shape_and_groups(rows)
            if shape is not None and len(rows) not in sizes:
                sizes.add(len(rows))
                examples += [self._make(self._epoch, self._plan, index, count) for count in shape.row_counts]
        return examples

    def _make(self, epoch: int, plan: list[np.ndarray], index: int, num_rows: int | None = None) -> tuple:
        inputs, *targets = self._pad(epoch, index, plan[index], self._length)
        shape, groups = self._shape_and_groups(plan[index])
        if shape is None:
            return inputs, *targets
        if num_rows is not None:
            shape = PackedShape(shape.row_length, (num_rows,))
        arrays = packing_arrays(inputs["lengths"], self._length, shape, groups)
        inputs = {**inputs, **arrays, "packing": arrays["packing"][:num_rows]}
        if self._mini_batch_size is not None:
            texts = inputs["lengths"][: -(-len(plan[index]) // groups)].size  # of a mini-batch
            inputs["first_texts"] = np.arange(groups, dtype="int32") * texts
        if self._predictions is None:
            return inputs, *targets
        count = 1 + math.ceil(self._predictions * inputs["packing"].size / len(inputs["lengths"]))
        labels, weights = targets
        return pack_predictions(inputs, labels, weights, count)

    def _shape_and_groups(self, rows: np.ndarray) -> tuple[PackedShape | None, int]:
        shape = self.shape if len(rows) == self.batch_size else self._smaller
        return shape, self._num_groups(len(rows))

    def _num_groups(self, batch_size: int) -> int:
        """The number of groups of texts that share no row in a batch of this size."""
        if self._mini_batch_size is not None:
            return -(-batch_size // self._mini_batch_size)
        return _num_devices(batch_size) if batch_size == self.batch_size else 1

    def _num_tokens(self, rows: np.ndarray) -> int:
        lengths, (shape, groups) = self._encoded.text_lengths[rows], self._shape_and_groups(rows)
        if shape is None:
            return lengths.size * self._length
        return shape.num_rows(rows_needed(lengths, shape.row_length, groups)) * shape.row_length

    def _make_plan(self, epoch: int) -> list[np.ndarray]:
        rng = batch_generator(self._seed, epoch, 0)
        rows = rng.permutation(len(self._encoded)) if self._shuffle else np.arange(len(self._encoded))
        if self._apart is not None:
            rows = _kept_apart(rows, self._apart, self.batch_size, rng)
        return np.split(rows, np.arange(self.batch_size, len(rows), self.batch_size))


def pack_predictions(inputs: dict[str, np.ndarray], labels: np.ndarray, weights: np.ndarray, count: int) -> tuple:
    """Lays the masked tokens of a packed batch out with room for about as many as there are, not for as many in each
    text as the longest could have.

    Args:
        inputs: The batch, with `mask_positions`.
        labels, weights: (batch, predictions).
        count: How many predictions each text gets room for on average.

    Returns:
        The inputs, labels and weights with (batch, count) predictions in place of (batch, predictions). A prediction
        may be of another text's token: `mask_positions` count from the first token of the text in whose place it is.
        Where there are more, all are as before.
    """
    used, starts = weights > 0, inputs["text_starts"][:, None]
    if count >= labels.shape[1] or used.sum() > len(labels) * count:
        return inputs, labels, weights
    shape = (len(labels), count)

    def lay_out(values, fill):
        laid = np.broadcast_to(fill, shape).ravel().astype(values.dtype)
        laid[: used.sum()] = values[used]
        return laid.reshape(shape)

    places = lay_out((starts + inputs["mask_positions"]).astype("int32"), starts)
    return {**inputs, "mask_positions": places - starts}, lay_out(labels, 0), lay_out(weights, 0)


def _num_devices(batch_size: int) -> int:
    """On how many devices a batch is computed."""
    distribution = keras.distribution.distribution()
    count = 1 if distribution is None else int(np.prod(distribution.device_mesh.shape))
    return count if batch_size % count == 0 else 1


def _kept_apart(rows: np.ndarray, numbers: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Reorders rows so that no batch of `size` has a number twice, as far as possible: a row that shares a number with
    another of its batch swaps places with a row of another batch, drawn until both fit."""
    rows, numbers_of = rows.copy(), numbers.tolist()
    counts = [Counter(n for row in rows[i : i + size] for n in set(numbers_of[row])) for i in range(0, len(rows), size)]

    def fits(row: int, batch: int, removed: int) -> bool:
        return all(counts[batch][number] <= (number in numbers_of[removed]) for number in numbers_of[row])

    before = len(rows) + 1
    for _ in range(ROUNDS):
        clashing = [i for i, row in enumerate(rows) if any(counts[i // size][n] > 1 for n in numbers_of[row])]
        draws = min(DRAWS, MOST_DRAWS // max(1, len(clashing)))
        if not clashing or (draws < DRAWS and len(clashing) > 0.9 * before):
            break
        before = len(clashing)
        for index in clashing:
            row, batch = rows[index], index // size
            for other in rng.integers(0, len(rows), draws).tolist() if not fits(row, batch, row) else ():
                other_row, other_batch = rows[other], other // size
                if other_batch != batch and fits(row, other_batch, other_row) and fits(other_row, batch, row):
                    rows[index], rows[other] = other_row, row
                    for changed, removed, added in ((batch, row, other_row), (other_batch, other_row, row)):
                        counts[changed].subtract(set(numbers_of[removed]))
                        counts[changed].update(set(numbers_of[added]))
                    break
    return rows
