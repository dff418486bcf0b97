"""Data that comes in batches of its own: tf.data, torch DataLoader, grain, PyDataset, generators."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import keras
import numpy as np

ROWS_AT_ONCE = 4096  # of a stream of texts without end
LOOKED_AT = 16  # batches that Keras, reading ahead, may look at before it begins
ENDLESS = -1  # tf.data.INFINITE_CARDINALITY


def is_batch_stream(value: Any) -> bool:
    """Whether x yields ready batches, in an order of its own, rather than being rows that we batch."""
    if isinstance(value, keras.utils.PyDataset) or hasattr(value, "__next__"):
        return True
    is_torch = any(base.__module__.startswith("torch.utils.data") for base in type(value).__mro__)
    return is_torch or type(value).__module__.split(".")[0] in ("tensorflow", "grain")


def is_text_loader(value: Any) -> bool:
    """Whether it gives batches with a column "text", as mteb's and PyTorch's loaders do."""
    return hasattr(value, "__iter__") and not hasattr(value, "__getitem__") and hasattr(value, "batch_size")


def refuse_steps_without_stream(steps: int | None) -> None:
    """Refuses `steps` for anything but a stream: batches are sorted by length, so they are not the first rows."""
    if steps is not None:
        raise ValueError(
            f"steps ({steps!r}) counts the batches of a stream, and x is not a stream: pass fewer examples."
        )


class StreamDataset(keras.utils.PyDataset):
    """The batches of a stream, each turned by `convert_batch` into what Keras takes; in the stream's order, anew each
    epoch.

    With fewer `steps_per_epoch` than a PyDataset has batches, an epoch goes on where the one before it stopped; a
    generator does so anyhow.

    Args:
        stream: A PyDataset, or anything that can be iterated over again for each epoch. A generator can't: it is read
            once.
        convert_batch: (x,), (x, y) or (x, y, sample weights) as the stream gives them, and a function: (tokens of the
            longest row, most tokens of any, None if there is no limit) -> tokens to pad to; -> the same for the model.
            Texts may come as a list alone.
        steps_per_epoch: Batches in an epoch; the stream's own length where None, counted in a first pass if it has no
            `len`.

    Raises:
        ValueError: A generator or a dataset without end comes without `steps_per_epoch`, or the data end before their
            time.
    """

    def __init__(self, stream: Any, convert_batch: Callable, steps_per_epoch: int | None = None):
        super().__init__()
        self.stream, self.convert = stream, convert_batch
        self._once = hasattr(stream, "__next__")
        if steps_per_epoch is None and self._once:
            raise ValueError("a generator has no length: pass steps_per_epoch, or a list.")
        self.steps = steps_per_epoch if steps_per_epoch is not None else _length(stream)
        self._iterator: Iterator | None = None
        self._looked_at: dict[int, tuple] = {}
        self._epoch, self._is_training = 0, False
        self._first_width = self._least_width = 0

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> tuple:
        if isinstance(self.stream, keras.utils.PyDataset):
            position = (self._epoch * self.steps + index) % len(self.stream)
            return self._convert(self.stream[position], index)
        # Keras reads the first batches before training, and then again. A generator yields them once.
        if index in self._looked_at:
            return self._looked_at.pop(index)
        batch = self._convert(self._next(index), index)
        if self._once and index < LOOKED_AT:
            self._looked_at[index] = batch
        return batch

    def _convert(self, batch: Any, index: int) -> tuple:
        # Loaders of PyTorch give a list; a list of strings is x.
        texts = isinstance(batch, list) and all(isinstance(part, str) for part in batch)
        batch = tuple(batch) if isinstance(batch, (tuple, list)) and not texts else (batch,)
        if not isinstance(self.stream, keras.utils.PyDataset):
            batch = tuple(map(_to_host, batch))
        return self.convert(batch, partial(self._width, index))

    def _width(self, index: int, longest: int, most: int | None) -> int:
        # On TensorFlow Keras infers from the first two batches which dimensions vary and refuses later ones that do.
        if keras.backend.backend() == "tensorflow":
            if index == 0:
                self._first_width = longest
            elif index == 1 and longest == self._first_width:
                if most is None or longest < most:
                    return longest + 1
                self._least_width = longest
        return max(longest, self._least_width)

    def _next(self, index: int):
        if self._iterator is None or (index == 0 and not self._once):
            self._iterator = iter(self.stream)
        try:
            return next(self._iterator)
        except StopIteration:
            raise ValueError(
                f"the data ended at batch {index + 1} of epoch {self._epoch + 1}; an epoch has {self.steps}."
            ) from None

    def initial_epoch_callback(self, initial_epoch: int) -> keras.callbacks.Callback:
        """A callback that counts the epochs of training. Keras ends an "epoch" also after it looked at the data."""
        self._is_training = True

        def begin(number: int, logs=None) -> None:
            self._epoch = number
            if number != initial_epoch:
                self._looked_at = {}

        return keras.callbacks.LambdaCallback(on_epoch_begin=begin)

    def on_epoch_begin(self) -> None:
        if isinstance(self.stream, keras.utils.PyDataset):
            self.stream.on_epoch_begin()

    def on_epoch_end(self) -> None:
        if not self._is_training:  # what Keras looked at to build the model is still to be evaluated
            self._epoch += 1
        if isinstance(self.stream, keras.utils.PyDataset):
            self.stream.on_epoch_end()


def _length(stream) -> int:
    if hasattr(stream, "cardinality"):
        count = int(stream.cardinality())
        if count == ENDLESS:
            raise ValueError("the data have no end: pass steps_per_epoch, or steps to evaluate or predict.")
        if count >= 0:
            return count
    try:
        return len(stream)
    except TypeError:
        return sum(1 for _ in stream)


def _to_host(part):
    """Tensors to NumPy; strings of tf.data are bytes there."""
    if isinstance(part, dict):
        return {key: _to_host(value) for key, value in part.items()}
    if isinstance(part, (list, tuple)):
        return type(part)(part)
    array = np.asarray(part.numpy() if hasattr(part, "numpy") else part)
    if array.dtype.kind in "SO":
        return [item.decode("utf-8") if isinstance(item, bytes) else item for item in array.tolist()]
    return array


def iterate_chunks(rows: Iterator, chunk_size: int = ROWS_AT_ONCE) -> Iterator[list]:
    """Lists of at most `chunk_size` rows of a stream without end."""
    while chunk := list(islice(rows, chunk_size)):
        yield chunk
