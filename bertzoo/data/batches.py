"""Batches of rows in an order that a seed fixes on every backend: the base of data sets, and rows of similar length."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from bertzoo.data.batch_shapes import batch_starts, choose_padded_lengths
from bertzoo.text.encoded import Encoded


class SeededDataset(keras.utils.PyDataset):
    """A Keras data set of rows, each of which is in one batch of an epoch; at most one batch is smaller.

    The order of epoch `e` depends on `(seed, e)` alone (NumPy's Philox), so that a run is the same on every backend and
    can be resumed anywhere: set `epoch`. Pass it to `fit` with `shuffle=False`, since Keras shuffles with an unseeded
    generator, and with `callbacks=[batches.initial_epoch_callback(initial_epoch)]`, see there.

    A batch is what `transform` makes of inputs `token_ids`, `segment_ids`, `padding_mask`, each (batch, length) int32,
    and `lengths` (batch,), see `Encoder`.

    Args:
        encoded: n rows of tokens, `Encoded` or `EncodedTuples`.
        batch_size: Rows in a batch.
        pad_id: The id of padding tokens.
        shuffle: False, for evaluate and predict: nothing changes between epochs.
        seed: Of the order.
        transform: Called as `transform(inputs, rows, rng)` with the padded inputs, the numbers of the rows (batch,) and
            a generator of its own for (seed, epoch, batch); it returns the batch, with targets and weights if any
            (masked-LM masking draws its masks here). `(inputs,)` where None.
    """

    def __init__(
        self,
        encoded: Encoded,
        *,
        batch_size: int = 32,
        pad_id: int = 0,
        shuffle: bool = True,
        seed: int = 0,
        transform: Callable | None = None,
    ):
        # One worker: with more, Keras 3.15 serves the batches that it read ahead before an epoch again in that epoch.
        super().__init__(workers=1, use_multiprocessing=False)
        self._encoded, self._transform = encoded, transform or (lambda inputs, rows, rng: (inputs,))
        self.batch_size, self._pad_id, self._shuffle, self._seed = batch_size, pad_id, shuffle, seed
        self._choose_shapes()
        self.epoch = self.passes = 0  # `passes` counts what was read to its end, where rows are not shuffled too

    def _choose_shapes(self) -> None:
        """Decides the shapes of batches, before the first plan is made."""
        raise NotImplementedError

    def _make_plan(self, epoch: int) -> list[np.ndarray]:
        """The rows of each batch of an epoch."""
        raise NotImplementedError

    def _make(self, epoch: int, plan: list[np.ndarray], index: int) -> tuple:
        """A batch of a plan."""
        raise NotImplementedError

    def _num_tokens(self, rows: np.ndarray) -> int:
        """How many tokens are computed for a batch, padding included."""
        raise NotImplementedError

    def _arrange(self, batches: list[np.ndarray]) -> list[np.ndarray]:
        """The batches of an epoch in the order in which they are served."""
        return batches

    def _pad(self, epoch: int, index: int, rows: np.ndarray, length: int) -> tuple:
        inputs = self._encoded.pad(rows, length, self._pad_id, return_lengths=True)
        return self._transform(inputs, rows, batch_generator(self._seed, epoch, index + 1))

    @property
    def epoch(self) -> int:
        """The epoch whose order is served now; setting it takes effect at once."""
        return self._epoch

    @epoch.setter
    def epoch(self, value: int) -> None:
        self._epoch = int(value)
        self._plan = self._make_plan(self._epoch)
        self._begun = self._read_to_the_end = False

    @property
    def row_order(self) -> np.ndarray:
        """(n,) int64: the row that each output of this epoch belongs to, in the order of the batches."""
        return np.concatenate(self._plan)

    @property
    def padding_efficiency(self) -> float:
        """Of the tokens computed in an epoch, the fraction that are not padding."""
        return int(self._encoded.text_lengths.sum()) / sum(map(self._num_tokens, self._plan))

    def split_into_datasets(self, rows_per_dataset: int) -> Iterator[BucketedDataset]:
        """The batches of this epoch in data sets of about so many rows each, for outputs that are to be fetched before
        the next are computed."""
        size = max(2, rows_per_dataset // self.batch_size)
        for begin in range(0, len(self._plan), size):
            chunk = copy.copy(self)
            chunk._plan = self._arrange(self._plan[begin : begin + size])
            yield chunk

    def unsort(self, outputs: Any) -> Any:
        """Outputs of `predict`, one array or a nest of arrays (n, …) in batch order, back in the order of the rows."""
        order = self.row_order

        def put_back(values):
            if len(values) != len(order):
                raise ValueError(f"outputs have {len(values)} rows, the data set has {len(order)}.")
            restored = np.empty_like(values)
            restored[order] = values
            return restored

        return keras.tree.map_structure(put_back, outputs)

    def initial_epoch_callback(self, initial_epoch: int) -> keras.callbacks.Callback:
        """A callback that sets `initial_epoch` once training starts, or, where another callback makes Keras begin with
        a later epoch (`bertzoo.training.resume`), that one.

        Needed for a run that is the same on every backend: before training Keras may draw a batch to build the model
        and end an "epoch" for it, on some backends and not on others, and for a data set of one or two batches that
        cannot be distinguished from a real epoch.
        """
        begun: list[int] = []

        def begin(first: int, logs=None) -> None:
            if not begun:
                begun.append(first)
                self.epoch = self.passes = first

        def begin_training(logs=None) -> None:
            self.epoch = self.passes = initial_epoch

        return keras.callbacks.LambdaCallback(on_train_begin=begin_training, on_epoch_begin=begin)

    def on_epoch_begin(self) -> None:
        """Called by Keras, also before it draws a batch to build the model."""
        self._begun = True

    def on_epoch_end(self) -> None:
        """Moves on to the next epoch if this one was read to its last batch.

        Keras ends an epoch also after building the model, and every `steps_per_epoch` batches while it goes on with
        the same pass; a new order then would repeat some rows and miss others.
        """
        if self._read_to_the_end:
            self._read_to_the_end = False
            self.passes += 1
            if self._shuffle:
                self.epoch += 1

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, index: int) -> tuple:
        # Read once: TensorFlow reads ahead in a thread, and a stale reader must get a whole batch of one epoch.
        epoch, plan = self._epoch, self._plan
        self.mark_served(index)
        return self._make(epoch, plan, index)

    def peek_batch(self, epoch: int, index: int) -> tuple:
        """A batch of any epoch, looked at without being served."""
        epoch = epoch if self._shuffle else self._epoch
        return self._make(epoch, self._plan if epoch == self._epoch else self._make_plan(epoch), index)

    def example_batches(self) -> list[tuple]:
        """A batch of each shape, in the order of their first uses in this epoch's first thousand batches."""
        first: dict[tuple[int, int], int] = {}
        for index, rows in enumerate(self._plan[:1000]):
            first.setdefault((len(rows), self._num_tokens(rows)), index)
        return [self._make(self._epoch, self._plan, index) for index in first.values()]

    def mark_served(self, index: int) -> None:
        """Takes notice that a batch of this epoch is served."""
        if self._begun and index == len(self._plan) - 1:
            self._read_to_the_end = True


def batch_generator(seed: int, epoch: int, stream: int) -> np.random.Generator:
    """The generator of an epoch's order (stream 0), or of its batches (from 1 on)."""
    # The counter's top word keeps the streams of an epoch 2^192 draws apart.
    return np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, 0, stream]))


class BucketedDataset(SeededDataset):
    """A data set in which examples of similar length share a batch, so that little padding is computed.

    It is for outputs that do not depend on the rest of the batch, not for training: see
    `bertzoo.data.packed_batches.PackedDataset`. Rows come shortest first, padded to one of a few lengths chosen from
    the data (`choose_padded_lengths`), so that few shapes are compiled; `unsort` brings outputs back into the order of
    the rows.

    Args:
        encoded, options: As for `SeededDataset`, without `shuffle`.
        num_buckets: The largest number of shapes. None, for where nothing is compiled: every batch is as long as its
            longest row, and has no `padding_mask` where all its rows are.
        pad_to_multiple_of: Lengths are multiples of this, up to the longest row.
        max_tokens: With `num_buckets=None`, rows are cut into batches of at most so many tokens, and where their
            lengths change, so that most batches have no padding.
        padded_lengths: The padded lengths, ascending, in place of a choice.

    Raises:
        ValueError: There are no rows, or a number is out of range.
    """

    def __init__(
        self,
        encoded: Encoded,
        *,
        num_buckets: int | None = 8,
        pad_to_multiple_of: int = 8,
        max_tokens: int | None = None,
        padded_lengths: np.ndarray | None = None,
        **options: Any,
    ):
        if num_buckets is not None and num_buckets < 2:
            raise ValueError(f"num_buckets must be at least 2. Received: {num_buckets!r}.")
        self._num_buckets, self._multiple, self._max_tokens = num_buckets, pad_to_multiple_of, max_tokens
        self._given_lengths = padded_lengths
        super().__init__(encoded, shuffle=False, **options)

    def _choose_shapes(self) -> None:
        longest = int(self._encoded.lengths.max(initial=1))
        if self._given_lengths is not None:
            self.lengths = self._given_lengths
        elif self._num_buckets is None:
            self.lengths = np.arange(1, longest + 1)
        else:
            count = self._num_buckets - (len(self._encoded) % self.batch_size > 0)
            self.lengths = choose_padded_lengths(self._encoded.lengths, longest, count, self._multiple)
        self._bucket = np.searchsorted(self.lengths, self._encoded.lengths)

    def _make(self, epoch: int, plan: list[np.ndarray], index: int) -> tuple:
        batch = self._pad(epoch, index, plan[index], self._length_of(plan[index]))
        if self._num_buckets is None and batch[0]["padding_mask"].all():
            batch[0].pop("padding_mask")
        return batch

    def _num_tokens(self, rows: np.ndarray) -> int:
        return self._encoded.text_lengths[rows].size * self._length_of(rows)

    def _length_of(self, rows: np.ndarray) -> int:
        return int(self.lengths[self._bucket[rows].max()])

    def _make_plan(self, epoch: int) -> list[np.ndarray]:
        rows = np.argsort(self._encoded.lengths, kind="stable")
        # Consecutive cuts: what one length leaves over moves up to the next.
        starts = np.arange(0, len(rows), self.batch_size)
        if self._max_tokens is not None:
            starts = batch_starts(self._encoded.lengths[rows], self.batch_size, self._max_tokens)
        return self._arrange(np.split(rows, starts[1:]))

    def _arrange(self, batches: list[np.ndarray]) -> list[np.ndarray]:
        # On TensorFlow Keras infers from the first two batches which dimensions vary and refuses later ones that do.
        for other in range(1, len(batches)):
            if self._num_tokens(batches[other]) != self._num_tokens(batches[0]):
                batches[1], batches[other] = batches[other], batches[1]
                break
        return batches
