"""What tasks with an output for each token share: windows over long texts, and outputs as long as their rows."""

from typing import Any

import keras
import numpy as np

from bertzoo.data.batches import BucketedDataset
from bertzoo.data.streams import StreamDataset, check_steps, is_stream
from bertzoo.data.task_data import is_tokenized
from bertzoo.data.window_data import WindowedData
from bertzoo.tasks.task import Task
from bertzoo.text.encoded import Encoded


class WindowedTask(Task):
    """A task with an output for each token, on texts of any length, cut into windows. Its `data` is `WindowedData`."""

    data: WindowedData

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> list[np.ndarray] | np.ndarray:
        """Logits.

        Args:
            x: Texts in any form that `fit` takes; without a tokenizer a dict of arrays; or a stream of batches of
                arrays.
            batch_size, verbose, callbacks: As `keras.Model.predict`.
            steps: How many batches of a stream to take.

        Returns:
            For texts, a list of float32 (tokens, logits), one for each text, joined from windows, special tokens left
            out. For a dict of arrays (without a tokenizer) float32 (n, length, logits), 0 at padding. For a stream what
            `keras.Model.predict` gives.

        Raises:
            ValueError: A stream gives texts, or there are steps without a stream.
        """
        if is_stream(x):
            ready = x if isinstance(x, BucketedDataset) else StreamDataset(x, _inputs_alone, steps)
            return super().predict(ready, batch_size, verbose, steps, callbacks)
        check_steps(x, steps)
        examples = self.data.parse(x)
        if self.tokenizer is not None:
            windows = self.data.cut(examples)
            return windows.join(self.predict_rows(windows.rows, batch_size, verbose, callbacks))
        rows = self.predict_rows(self.data.encode(examples), batch_size, verbose, callbacks)
        out = np.zeros((*np.shape(examples["token_ids"]), rows[0].shape[-1] if rows else 0), dtype="float32")
        for row, logits in enumerate(rows):
            out[row, : len(logits)] = logits
        return out

    def predict_rows(
        self, encoded: Encoded, batch_size: int | None = None, verbose: Any = 0, callbacks: Any = None
    ) -> list[np.ndarray]:
        """Logits of each row of tokens, (length, …), without padding, in the order of the rows."""
        if len(encoded) == 0:
            return []
        data = self.data.make_dataset(encoded, batch_size=batch_size)
        callbacks = keras.callbacks.CallbackList(
            callbacks, add_progbar=bool(verbose), model=self, verbose=verbose, epochs=1, steps=len(data)
        )
        outputs: list = []
        callbacks.on_predict_begin()
        for i in range(len(data)):
            callbacks.on_predict_batch_begin(i)
            logits = self.predict_on_batch(data[i][0])
            outputs += list(logits)
            callbacks.on_predict_batch_end(i, {"outputs": logits})
        callbacks.on_predict_end()
        in_order: list = [None] * len(encoded)
        for row, output in zip(data.order, outputs):
            in_order[row] = np.asarray(output)[: encoded.lengths[row]]
        return in_order


def _inputs_alone(batch: tuple, width) -> tuple:
    """A batch of a stream to predict from, without its targets."""
    if not is_tokenized(batch[0]):
        raise ValueError(
            "the stream gives texts, which are cut into windows: pass them as a list, or batches with token_ids."
        )
    return batch[:1]
