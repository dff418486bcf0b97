"""Rows of many requests, computed in batches by one thread.

A batch takes rows in the order of arrival until it is full, one row of each request in turn: a request of 10,000 texts
lets others pass between its rows. There is no delay: a free thread takes what is there.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from bertzoo.serving.errors import RequestError
from bertzoo.text.encoded import Encoded, lengths_to_row_splits

# (rows, the model's output that is wanted) -> one array for each row.
Compute = Callable[[Encoded, str], Sequence[np.ndarray]]
# (a row's token ids, its array) -> what is kept of it.
Reader = Callable[[np.ndarray, np.ndarray], Any]


def keep(ids: np.ndarray, values: np.ndarray) -> np.ndarray:
    """All of a row's array, as a copy: a view would keep the whole batch in memory."""
    return values.copy()


class Work:
    """The rows of one request that wait for the thread, and what is known of them.

    Attributes:
        queue_seconds: How long its first row waited.
        compute_seconds: How long the batches with its rows took, from the first to the last.
    """

    def __init__(self, rows: Encoded, output: str, read: Reader, loop: asyncio.AbstractEventLoop):
        self.rows, self.output, self.read, self.lengths = rows, output, read, rows.lengths.tolist()
        self.future: asyncio.Future[list[Any]] = loop.create_future()
        self.outputs: list[Any] = []
        self.taken = 0
        self.submitted, self.queue_seconds, self.compute_seconds = perf_counter(), 0.0, 0.0


Batch = list[tuple[Work, int]]


class Batcher:
    """One thread that computes the rows of a model.

    Args:
        compute: Computes rows. An error that it raises is the client's `Backend` error, without its message.
        max_tokens: The most tokens in a batch; a longer row is a batch of its own.
        observe: Called with the sizes (rows, tokens) of each batch.
        report: Called with the errors of `compute`.
    """

    def __init__(
        self,
        compute: Compute,
        max_tokens: int,
        observe: Callable[[int, int], None] = lambda rows, tokens: None,
        report: Callable[[BaseException], None] = lambda error: None,
    ):
        self._compute, self.max_tokens, self._observe, self._report = compute, max_tokens, observe, report
        self._queue: deque[Work] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="bertzoo-batches", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def submit(self, rows: Encoded, output: str, read: Reader = keep) -> Work:
        """Queues rows; the result of the work's `future` is what `read` gives for each. To drop the rows, cancel the
        future. Called on the event loop.

        Args:
            rows: The rows.
            output: Which of the model's outputs.
            read: What is kept of each row's array; called in the thread.

        Raises:
            RequestError: The batcher is closed.
        """
        work = Work(rows, output, read, asyncio.get_running_loop())
        if not len(rows):
            work.future.set_result([])
            return work
        with self._changed:
            if self._closed:
                raise RequestError("Unhealthy", "the server is shutting down.")
            self._queue.append(work)
            self._changed.notify()
        return work

    def close(self) -> None:
        """Computes what is queued, and ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _take(self) -> Batch:
        """The next batch; empty where all that was queued was cancelled."""
        batch: Batch = []
        others, tokens = [], 0
        while self._queue:
            work = self._queue.popleft()
            if work.future.cancelled():
                continue
            if batch and work.output != batch[0][0].output:
                others.append(work)
                continue
            length = work.lengths[work.taken]
            if batch and tokens + length > self.max_tokens:
                others.append(work)
                break
            batch.append((work, work.taken))
            work.taken, tokens = work.taken + 1, tokens + length
            if work.taken < len(work.lengths):
                self._queue.append(work)
        self._queue.extendleft(reversed(others))
        return batch

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                batch = self._take()
            if batch:
                self._answer(batch)

    def _answer(self, batch: Batch) -> None:
        begun = perf_counter()
        outputs = self._compute_safely(batch)
        finished: dict[asyncio.AbstractEventLoop, list[tuple[Work, BaseException | None]]] = {}
        for (work, row), output in zip(batch, outputs):
            if row == 0:
                work.queue_seconds = begun - work.submitted
            error = output if isinstance(output, BaseException) else None
            if error is None:
                work.outputs.append(output)
            if error is not None or len(work.outputs) == len(work.lengths):
                work.compute_seconds = perf_counter() - work.submitted - work.queue_seconds
                finished.setdefault(work.future.get_loop(), []).append((work, error))
        for loop, works in finished.items():
            try:
                loop.call_soon_threadsafe(_deliver, works)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return

    def _compute_safely(self, batch: Batch) -> list[Any]:
        """What is kept of each row, or an error. Where a batch fails, each request is computed alone, so that one
        request's rows spoil no other's."""
        try:
            rows = gather_rows([(work.rows, row) for work, row in batch])
            self._observe(len(rows), len(rows.token_ids))
            arrays = self._compute(rows, batch[0][0].output)
            return [work.read(rows.row(i), array) for i, ((work, _), array) in enumerate(zip(batch, arrays))]
        except Exception as error:
            works = {id(work): work for work, _ in batch}
            if len(works) == 1:
                self._report(error)
                return [RequestError("Backend", "the model failed on this request.")] * len(batch)
            alone: dict[int, list] = {}
            for key in works:
                alone[key] = self._compute_safely([entry for entry in batch if id(entry[0]) == key])[::-1]
            return [alone[id(work)].pop() for work, _ in batch]


def gather_rows(rows: Sequence[tuple[Encoded, int]]) -> Encoded:
    """Rows of several encodings side by side, without offsets and word ids."""
    places = [(encoded, slice(*encoded.row_splits[row : row + 2])) for encoded, row in rows]
    return Encoded(
        np.concatenate([encoded.token_ids[tokens] for encoded, tokens in places]),
        np.concatenate([encoded.segment_ids[tokens] for encoded, tokens in places]),
        lengths_to_row_splits(np.array([tokens.stop - tokens.start for _, tokens in places], np.int64)),
    )


def _deliver(works: list[tuple[Work, BaseException | None]]) -> None:
    for work, error in works:
        if work.future.done():  # cancelled, or failed in an earlier batch
            continue
        if error is None:
            work.future.set_result(work.outputs)
        else:
            work.future.set_exception(error)
