"""What tasks with an output for each token share: windows over long texts, and outputs as long as their rows."""

from typing import Any, NamedTuple

import keras
import numpy as np

from bertzoo.data.batches import BucketedDataset
from bertzoo.data.streams import StreamDataset, check_steps, is_stream
from bertzoo.data.targets import row_weights
from bertzoo.tasks.task import Task
from bertzoo.text.encoded import Encoded, encoded_from_arrays
from bertzoo.text.windows import Windows


class WindowedTask(Task):
    """A task with an output for each token, on texts of any length, cut into windows.

    Subclasses state how they read what `fit` takes (`read`), cut it (`cut`), and make targets of it (`window_targets`,
    `array_targets`, `batch_targets`).
    """

    draws_all_lengths = True

    def read(self, x, y=None) -> NamedTuple:
        """As `Task.read`; the texts are the first of the columns."""
        raise NotImplementedError

    def cut(self, columns) -> Windows:
        """The windows of the texts."""
        raise NotImplementedError

    def window_targets(self, columns, windows: Windows) -> np.ndarray:
        """Targets for the rows of the windows, as `batch_targets` takes them."""
        raise NotImplementedError

    def array_targets(self, x, y) -> np.ndarray:
        """Targets for arrays that the caller made, as `batch_targets` takes them."""
        raise NotImplementedError

    def batch_targets(self, inputs: dict, rows: np.ndarray, targets, starts: np.ndarray, weights) -> tuple:
        """(targets,) or (targets, weights) for a batch of padded rows, of which `rows` are the numbers and `starts` the
        first tokens of all; `weights` are float, one a row of all, or None."""
        raise NotImplementedError

    def check_text(self) -> None:
        """Refuses to work on text without a tokenizer."""
        if self.tokenizer is None:
            raise ValueError("the task has no tokenizer: call the model with token_ids instead.")

    # ---- data

    def batches(
        self, x, y=None, sample_weight=None, *, batch_size: int | None = None, shuffle: bool = True, steps=None
    ):
        """As `Task.batches`; `sample_weight` is float, one a text."""
        if is_stream(x):
            return super().batches(x, y, sample_weight, batch_size=batch_size, shuffle=shuffle, steps=steps)
        if self.tokenizer is None:
            targets, encoded = None if y is None else self.array_targets(x, y), self._rows_of(x)
            weights = row_weights(sample_weight, len(encoded))
            return self.make_batches(encoded, targets, weights, batch_size, shuffle)
        columns = self.read(x, y)
        if not columns[0]:
            raise ValueError("there is nothing to do: x has no rows.")
        windows = self.cut(columns)
        if columns[-1] is None and not shuffle:
            return self.make_batches(windows.rows, None, None, batch_size, shuffle)
        if sample_weight is not None:
            sample_weight = row_weights(sample_weight, len(columns[0]))[windows.source]
        return self.make_batches(
            windows.rows, self.window_targets(columns, windows), sample_weight, batch_size, shuffle
        )

    def _rows_of(self, arrays) -> Encoded:
        return encoded_from_arrays(arrays, self.backbone.config.vocab_size)

    def make_batches(self, encoded: Encoded, targets, sample_weight, batch_size: int, shuffle: bool):
        def add_targets(inputs, rows, rng):
            return inputs, *self.batch_targets(inputs, rows, targets, encoded.row_splits, sample_weight)

        transform = None if targets is None else add_targets
        return super().make_batches(encoded, None, None, batch_size, shuffle, transform=transform)

    def _convert_batch(self, batch: tuple, width) -> tuple:
        x, *rest = batch
        if isinstance(x, dict) and "token_ids" in x:
            return batch
        self.check_text()
        converted = self.batches(x, *rest, batch_size=1 << 30)[0]
        tokens = converted[0]["token_ids"].shape[1]
        wider = width(tokens, self.tokenizer.max_length) - tokens
        # No row of targets is as long as one of tokens, but those of tokens, where 0 counts nothing as in a mask.
        return keras.tree.map_structure(
            lambda part: np.pad(part, ((0, 0), (0, wider))) if wider and part.shape[1:2] == (tokens,) else part,
            converted,
        )

    # ---- outputs

    def predict(self, x, batch_size: int | None = None, verbose="auto", steps=None, callbacks=None):
        """Logits.

        Args:
            x: Texts in any form that `fit` takes; without a tokenizer a dict of arrays; or a stream of batches of
                arrays.
            batch_size, verbose, callbacks: As `keras.Model.predict`.
            steps: How many batches of a stream to take.

        Returns:
            For texts, a list of float32 (tokens, logits), one a text, joined from windows, special tokens left out.
            For a dict of arrays (without a tokenizer) float32 (n, length, logits), 0 at padding. For a stream what
            `keras.Model.predict` gives.

        Raises:
            ValueError: A stream gives texts, or there are steps without a stream.
        """
        if is_stream(x):
            ready = x if isinstance(x, BucketedDataset) else StreamDataset(x, _tokens_alone, steps)
            return super().predict(ready, batch_size, verbose, steps, callbacks)
        check_steps(x, steps)
        if self.tokenizer is not None:
            windows = self.cut(self.read(x))
            return windows.join(predict_rows(self, windows.rows, batch_size, verbose, callbacks))
        ids = np.asarray(x["token_ids"] if isinstance(x, dict) else x)
        rows = predict_rows(self, self._rows_of(x), batch_size, verbose, callbacks)
        out = np.zeros((*ids.shape, rows[0].shape[-1] if rows else 0), dtype="float32")
        for row, logits in enumerate(rows):
            out[row, : len(logits)] = logits
        return out


def predict_rows(
    task: Task, encoded: Encoded, batch_size: int, verbose: Any = 0, callbacks: Any = None
) -> list[np.ndarray]:
    """What a task gives for each row of tokens, (length, …), padding taken off, in the order of the rows."""
    if len(encoded) == 0:
        return []
    data = task.make_batches(encoded, None, None, batch_size, shuffle=False)
    # With the progress bar, which is one of them.
    told = keras.callbacks.CallbackList(
        callbacks, add_progbar=bool(verbose), model=task, verbose=verbose, epochs=1, steps=len(data)
    )
    outputs = []
    told.on_predict_begin()
    for i in range(len(data)):
        told.on_predict_batch_begin(i)
        found = task.predict_on_batch(data[i][0])
        outputs += list(found)
        told.on_predict_batch_end(i, {"outputs": found})
    told.on_predict_end()
    restored: list = [None] * len(encoded)
    for row, output in zip(data.order, outputs):
        restored[row] = np.asarray(output)[: encoded.lengths[row]]
    return restored


def _tokens_alone(batch: tuple, width) -> tuple:
    """A batch of a stream to predict from, without its targets."""
    if not (isinstance(batch[0], dict) and "token_ids" in batch[0]):
        raise ValueError(
            "the stream gives texts, which are cut into windows: pass them as a list, or batches with token_ids."
        )
    return batch[:1]
