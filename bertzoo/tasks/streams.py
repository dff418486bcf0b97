"""Data that comes in batches of its own: tf.data, torch DataLoader, grain, PyDataset, generators."""

from collections.abc import Iterator

import keras
import numpy as np

ROWS_AT_ONCE = 4096  # of a stream of texts without end


def is_stream(x) -> bool:
    """Whether x yields ready batches, in an order of its own, rather than being rows that we batch."""
    if isinstance(x, keras.utils.PyDataset):
        return True
    if hasattr(x, "__next__"):
        return True
    module = type(x).__module__.split(".")[0]
    inside = any(base.__module__.startswith("torch.utils.data") for base in type(x).__mro__)
    return module in ("tensorflow", "grain") or inside


class StreamBatches(keras.utils.PyDataset):
    """The batches of a stream, each turned by `convert` into what Keras takes; in the stream's order, anew each epoch.

    Args:
        stream: A PyDataset, or anything that can be iterated over again for each epoch. A generator can't: it is read
            once.
        convert: (x,), (x, y) or (x, y, sample weights) as the stream gives them -> the same for the model.
        steps: Batches an epoch; the stream's own length where None. Counted by a first pass where it tells none.

    Raises:
        ValueError: A generator comes without `steps`.
    """

    def __init__(self, stream, convert, steps: int | None = None):
        super().__init__()
        self.stream, self.convert = stream, convert
        if steps is None and hasattr(stream, "__next__"):
            raise ValueError("a generator has no length: pass steps_per_epoch, or a list.")
        self.steps = steps if steps is not None else _length(stream)
        self._iterator, self._position = None, 0

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int):
        if isinstance(self.stream, keras.utils.PyDataset):
            return self.convert(_as_tuple(self.stream[index]))
        if index == 0 and not hasattr(self.stream, "__next__"):
            self._iterator, self._position = iter(self.stream), 0
        elif self._iterator is None:
            self._iterator = iter(self.stream)
        batch = _as_tuple(next(self._iterator))
        return self.convert(tuple(_to_host(part) for part in batch))

    def on_epoch_begin(self) -> None:
        if isinstance(self.stream, keras.utils.PyDataset):
            self.stream.on_epoch_begin()

    def on_epoch_end(self) -> None:
        if isinstance(self.stream, keras.utils.PyDataset):
            self.stream.on_epoch_end()


def _length(stream) -> int:
    if hasattr(stream, "cardinality"):
        count = int(stream.cardinality())
        if count >= 0:
            return count
    try:
        return len(stream)
    except TypeError:
        return sum(1 for _ in stream)


def _as_tuple(batch) -> tuple:
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)


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


def in_chunks(rows: Iterator, size: int = ROWS_AT_ONCE) -> Iterator[list]:
    """Lists of at most `size` rows of a stream without end."""
    chunk = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
