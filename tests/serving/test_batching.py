"""Batches: full, fair, and none is spoilt by another's rows."""

import asyncio
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from bertzoo.serving import loading
from bertzoo.serving.batching import Batcher
from bertzoo.serving.errors import RequestError
from bertzoo.serving.model import split_into_chunks
from bertzoo.text.encoded import Encoded, lengths_to_row_splits

pytestmark = pytest.mark.once


def make_rows(*rows):
    ids = np.array([i for row in rows for i in row], np.int32)
    return Encoded(ids, np.zeros(len(ids), np.int8), lengths_to_row_splits(np.array([len(row) for row in rows])))


class Recorder:
    """Computes the sums of rows, and waits at each batch until `go` is set."""

    def __init__(self):
        self.go, self.batches = threading.Event(), []
        self.go.set()

    def __call__(self, rows, output):
        assert self.go.wait(10)
        self.batches.append([rows.row(i).tolist() for i in range(len(rows))])
        if 13 in rows.token_ids:
            raise RuntimeError("no luck")
        return [rows.row(i).sum(keepdims=True) for i in range(len(rows))]


def run(max_tokens, job):
    """Runs `job(batcher, recorder)` on a loop."""
    recorder = Recorder()
    batcher = Batcher(recorder, max_tokens)

    async def main():
        return await asyncio.wait_for(job(batcher, recorder), 10)

    try:
        return asyncio.run(main()), recorder.batches
    finally:
        recorder.go.set()
        batcher.close()


async def held(batcher, recorder, *requests):
    """Works of requests that all wait when the first batch, of the row [99], is taken."""
    recorder.go.clear()
    first = batcher.submit(make_rows([99]), "x")
    while len(batcher):
        await asyncio.sleep(0.001)
    works = [batcher.submit(make_rows(*rows), "x") for rows in requests]
    recorder.go.set()
    await first.future
    return works


def test_requests_take_turns_and_batches_are_full_of_tokens():
    async def job(batcher, recorder):
        works = await held(batcher, recorder, [[1, 1], [1, 2], [1, 3], [1, 4]], [[2, 1]], [[3, 1], [3, 2]])
        return [np.concatenate(await work.future).tolist() for work in works]

    sums, batches = run(6, job)
    assert sums == [[2, 3, 4, 5], [3], [4, 5]]
    assert batches == [[[99]], [[1, 1], [2, 1], [3, 1]], [[1, 2], [3, 2], [1, 3]], [[1, 4]]]


def test_a_row_longer_than_a_batch_is_computed_alone():
    async def job(batcher, recorder):
        works = await held(batcher, recorder, [[1] * 9], [[2]])
        return [np.concatenate(await work.future).tolist() for work in works]

    assert run(4, job) == ([[9], [2]], [[[99]], [[1] * 9], [[2]]])


def test_cancelled_rows_are_not_computed():
    async def job(batcher, recorder):
        works = await held(batcher, recorder, [[1], [1]], [[2]])
        return works

    async def cancelled(batcher, recorder):
        recorder.go.clear()
        first = batcher.submit(make_rows([99]), "x")
        while len(batcher):
            await asyncio.sleep(0.001)
        gone, stays = batcher.submit(make_rows([1], [1]), "x"), batcher.submit(make_rows([2]), "x")
        gone.future.cancel()
        recorder.go.set()
        await first.future
        return (await stays.future)[0].tolist()

    assert run(8, cancelled) == ([2], [[[99]], [[2]]])


def test_a_failing_request_fails_alone():
    async def job(batcher, recorder):
        works = await held(batcher, recorder, [[1], [5]], [[13], [2]], [[3]])
        return await asyncio.gather(*(work.future for work in works), return_exceptions=True)

    (first, failed, last), _ = run(100, job)
    assert np.concatenate(first).tolist() == [1, 5] and np.concatenate(last).tolist() == [3]
    assert isinstance(failed, RequestError) and failed.kind == "Backend" and "no luck" not in str(failed)


def test_rows_for_another_output_wait_for_the_next_batch():
    async def job(batcher, recorder):
        recorder.go.clear()
        works = [batcher.submit(make_rows([99]), "x")]
        while len(batcher):
            await asyncio.sleep(0.001)
        works += [batcher.submit(make_rows([i]), "y" if i % 2 else "x") for i in range(4)]
        recorder.go.set()
        return [(await work.future)[0].tolist() for work in works]

    assert run(100, job) == ([[99], [0], [1], [2], [3]], [[[99]], [[0], [2]], [[1], [3]]])


def test_closing_answers_what_is_queued_and_refuses_more():
    async def job(batcher, recorder):
        works = await held(batcher, recorder, [[1], [2], [3]])
        await asyncio.to_thread(batcher.close)
        with pytest.raises(RequestError, match="shutting down"):
            batcher.submit(make_rows([4]), "x")
        return np.concatenate(await works[0].future).tolist()

    assert run(1, job)[0] == [1, 2, 3]


def test_chunks_hold_every_text_once_and_are_bounded():
    texts = ["x" * size for size in (5, 70_000, 1, 1, 40_000, 40_000)] + ["y"] * 200
    chunks = list(split_into_chunks(texts))
    assert [text for chunk in chunks for text in texts[chunk]] == texts
    assert all(len(texts[chunk]) <= 64 for chunk in chunks)
    assert all(sum(map(len, texts[chunk][:-1])) < 65_536 for chunk in chunks)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (lambda tokens: tokens * 5e-5, 256),  # more rows are not faster
        (lambda tokens: 0.008 + tokens * 2e-5, 2048),  # twice as many would take more than 50 ms
        (lambda tokens: tokens * 2e-5 * (1 if tokens <= 1024 else 1.5) + 0.005, 1024),  # more fit no cache
        (lambda tokens: tokens * 2.5e-4, 200),  # a row of 256 takes 64 ms
        (lambda tokens: tokens * 1e-2, loading.FEWEST),
    ],
)
def test_a_batch_holds_as_many_tokens_as_make_the_fastest(monkeypatch, seconds, expected):
    monkeypatch.setattr(loading, "_seconds_of_batch", lambda model, rows, length: seconds(rows * length))
    model = SimpleNamespace(settings={"max_length": 512})
    assert loading.measure_batch_tokens(model) == expected
