"""Batches of rows of like length, in an order that a seed fixes on every backend."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import keras
import numpy as np

from bertzoo.text.encoded import Encoded
from bertzoo.text.lengths import choose_lengths, cut_alike


class LengthBatches(keras.utils.PyDataset):
    """A Keras data set in which sentences of like length share a batch, so that little padding is computed.

    Rows are padded to one of a few lengths chosen from the data (`choose_lengths`). Each epoch shuffles the rows, sorts
    them by padded length, cuts full batches (left-overs of one length move up to the next), and shuffles the batches;
    at most one batch an epoch is smaller. No row is repeated or made up. There are at most `max_shapes` shapes
    (batch, length), the same in every epoch, so that each is compiled once. Lengths are multiples of `multiple`.

    With `max_shapes=None`, for where nothing is compiled, every batch is as long as its longest row, and has no
    `padding_mask` where all its rows are. With `tokens` too, unshuffled rows are cut where their lengths change, so
    that most batches are without padding, and where a batch would hold more than so many tokens.

    The order of epoch `e` depends on `(seed, e)` alone (NumPy's Philox), so that a run is the same on every backend and
    can be taken up anywhere: set `epoch`. Hand it to `fit` with `shuffle=False`, since Keras shuffles with an unseeded
    generator, and with `callbacks=[batches.begin_at(initial_epoch)]`, see there.

    encoded: n rows. labels, sample_weight: an array or a nested dict (list, tuple) of arrays, n rows first, or None.
    pad_id: the tokenizer's. max_length: the longest row that the model takes; None = the longest row here, which
    padding then never exceeds. lengths: the padded lengths to take, ascending, in place of a choice. transform: called
    as `transform(inputs, rows, rng)` with the padded inputs, the numbers of the rows (batch,) and a generator of its
    own for (seed, epoch, batch); what it returns is the batch (masked-LM masking draws its masks here). With
    `shuffle=False`, for evaluate and predict, rows come shortest first, nothing changes between epochs, and `restore`
    brings outputs back into the order of the rows.

    A batch is `(inputs,)`, `(inputs, labels)` or `(inputs, labels, sample_weight)` with inputs `token_ids`,
    `segment_ids`, `padding_mask`, each (batch, length) int32, and `lengths` (batch,), see `Encoder`. Raises
    `ValueError` for no rows, labels of another length, a negative seed, and `transform` together with labels.
    """

    def __init__(
        self,
        encoded: Encoded,
        labels=None,
        sample_weight=None,
        *,
        batch_size: int = 32,
        pad_id: int = 0,
        shuffle: bool = True,
        seed: int = 0,
        transform: Callable | None = None,
        max_shapes: int | None = 8,
        multiple: int = 8,
        max_length: int | None = None,
        tokens: int | None = None,
        lengths: np.ndarray | None = None,
    ):
        # One worker: with more, Keras 3.15 serves the batches that it read ahead before an epoch again in that epoch.
        super().__init__(workers=1, use_multiprocessing=False)
        if batch_size < 1 or (max_shapes is not None and max_shapes < 2) or seed < 0:
            raise ValueError(
                f"batch_size must be at least 1, max_shapes at least 2 and seed not negative; "
                f"got {batch_size}, {max_shapes} and {seed}."
            )
        if transform is not None and (labels is not None or sample_weight is not None):
            raise ValueError("give either labels or a transform, which makes its own: the labels would not be used.")
        if sample_weight is not None and labels is None:
            raise ValueError("sample_weight needs labels to weigh.")
        self._encoded = encoded
        self._labels = _arrays(labels, len(encoded), "labels")
        self._sample_weight = _arrays(sample_weight, len(encoded), "sample_weight")
        self._batch_size, self._pad_id, self._shuffle, self._seed = batch_size, pad_id, shuffle, seed
        self._transform, self._free, self._tokens = transform, max_shapes is None, tokens
        partial = len(encoded) % batch_size > 0
        maximum = int(encoded.lengths.max(initial=1)) if max_length is None else max_length
        if lengths is not None:
            self.lengths = lengths
        elif max_shapes is None:
            self.lengths = np.arange(1, maximum + 1)
        else:
            self.lengths = choose_lengths(encoded.lengths, maximum, count=max_shapes - partial, multiple=multiple)
        self._bucket = np.searchsorted(self.lengths, encoded.lengths)
        self.epoch = 0

    @property
    def epoch(self) -> int:
        """The epoch whose order is served now; setting it takes effect at once."""
        return self._epoch

    @epoch.setter
    def epoch(self, value: int) -> None:
        self._epoch = int(value)
        self._plan = self._make_plan()
        self._begun = self._read_to_the_end = False

    @property
    def has_labels(self) -> bool:
        """Whether the batches hold targets."""
        return self._labels is not None or self._transform is not None

    @property
    def order(self) -> np.ndarray:
        """(n,) int64: the row that each output of this epoch belongs to, in the order of the batches."""
        return np.concatenate(self._plan)

    @property
    def real_share(self) -> float:
        """Of the tokens computed in an epoch, the share that are not padding."""
        computed = sum(len(rows) * self._length_of(rows) for rows in self._plan)
        return len(self._encoded.token_ids) / computed

    def parts(self, rows: int) -> Iterator[LengthBatches]:
        """The batches of this epoch in data sets of about so many rows each, for outputs that are to be fetched before
        the next are computed."""
        size = max(2, rows // self._batch_size)
        for begin in range(0, len(self._plan), size):
            part = copy.copy(self)
            part._plan = self._vary_first_two(self._plan[begin : begin + size])
            yield part

    def restore(self, outputs):
        """Outputs of `predict`, one array or a nest of arrays (n, …) in batch order, back in the order of the rows."""
        order = self.order

        def put_back(values):
            values = np.asarray(values)
            if len(values) != len(order):
                raise ValueError(f"outputs have {len(values)} rows, the data set has {len(order)}.")
            restored = np.empty_like(values)
            restored[order] = values
            return restored

        return keras.tree.map_structure(put_back, outputs)

    def begin_at(self, epoch: int) -> keras.callbacks.Callback:
        """A callback that sets `epoch` once training starts, or, where another callback makes Keras begin with a later
        epoch (`bertzoo.training.resume`), that one.

        Needed for a run that is the same on every backend: before training Keras may draw a batch to build the model
        and end an "epoch" for it, on some backends and not on others, and for a data set of one or two batches that
        cannot be told from a real epoch.
        """
        begun: list[int] = []

        def begin(first: int, logs=None) -> None:
            if not begun:
                begun.append(first)
                self.epoch = first

        return keras.callbacks.LambdaCallback(
            on_train_begin=lambda logs: setattr(self, "epoch", epoch), on_epoch_begin=begin
        )

    def on_epoch_begin(self) -> None:
        """Called by Keras, also before it draws a batch to build the model."""
        self._begun = True

    def on_epoch_end(self) -> None:
        """Moves on to the next epoch if this one was read to its last batch.

        Keras ends an epoch also after building the model, and every `steps_per_epoch` batches while it goes on with
        the same pass; a new order then would repeat some rows and miss others.
        """
        if self._shuffle and self._read_to_the_end:
            self.epoch += 1

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, index: int) -> tuple:
        # Read once: TensorFlow reads ahead in a thread, and a stale reader must get a whole batch of one epoch.
        epoch, plan = self._epoch, self._plan
        rows = plan[index]
        inputs = self._encoded.pad(rows, self._length_of(rows), self._pad_id, lengths=True)
        if self._begun and index == len(plan) - 1:
            self._read_to_the_end = True
        batch = self._batch(inputs, rows, epoch, index)
        if self._free and inputs["padding_mask"].all():
            batch[0].pop("padding_mask")
        return batch

    def _batch(self, inputs: dict[str, np.ndarray], rows: np.ndarray, epoch: int, index: int) -> tuple:
        if self._transform is not None:
            return self._transform(inputs, rows, _generator(self._seed, epoch, index + 1))
        if self._labels is None:
            return (inputs,)
        batch = (inputs, keras.tree.map_structure(lambda values: values[rows], self._labels))
        if self._sample_weight is None:
            return batch
        return (*batch, keras.tree.map_structure(lambda values: values[rows], self._sample_weight))

    def _length_of(self, rows: np.ndarray) -> int:
        return int(self.lengths[self._bucket[rows[-1]]])  # rows of a batch ascend by bucket

    def _make_plan(self) -> list[np.ndarray]:
        if self._shuffle:
            rng = _generator(self._seed, self._epoch, 0)
            rows = rng.permutation(len(self._encoded))
            rows = rows[np.argsort(self._bucket[rows], kind="stable")]
        else:
            rows = np.argsort(self._encoded.lengths, kind="stable")
        # Consecutive cuts are what moves left-overs up: a batch across a border takes the larger length.
        starts = range(0, len(rows), self._batch_size)
        if self._tokens is not None and not self._shuffle:
            starts = cut_alike(self._encoded.lengths[rows], self._batch_size, self._tokens)
        batches = np.split(rows, starts[1:])
        if self._shuffle:
            batches = [batches[i] for i in rng.permutation(len(batches))]
        return self._vary_first_two(batches)

    def _vary_first_two(self, batches: list[np.ndarray]) -> list[np.ndarray]:
        # On TensorFlow Keras infers from the first two batches which dimensions vary and refuses later ones that do.
        for other in range(1, len(batches)):
            if self._length_of(batches[other]) != self._length_of(batches[0]):
                batches[1], batches[other] = batches[other], batches[1]
                break
        return batches


def check_batch_size(batch_size) -> None:
    """Raises ValueError where it is no whole number of at least 1."""
    if not isinstance(batch_size, (int, np.integer)) or isinstance(batch_size, bool) or batch_size < 1:
        raise ValueError(f"batch_size must be a whole number of at least 1; it is {batch_size!r}.")


def _generator(seed: int, epoch: int, stream: int) -> np.random.Generator:
    # The counter's top word keeps the streams of an epoch 2^192 draws apart.
    return np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, 0, stream]))


def _arrays(values, rows: int, name: str):
    """A nest of arrays, `rows` first. Lists inside a nest are structure, so that a plain list is refused."""
    if values is None:
        return None
    if not isinstance(values, (np.ndarray, dict, tuple, list)):
        raise TypeError(f"{name} must be a NumPy array or a nested dict of arrays, got {type(values).__name__}.")
    for values_of_one in keras.tree.flatten(values):
        if not isinstance(values_of_one, np.ndarray) or values_of_one.ndim == 0:
            raise TypeError(f"{name} must be NumPy arrays with {rows} rows, got {values_of_one!r}; use np.asarray.")
        if len(values_of_one) != rows:
            raise ValueError(f"{name} have {len(values_of_one)} rows, the texts have {rows}.")
    return values
