"""A model that is served: from texts to rows, through the batches, to answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from bertzoo.export.engine import group_rows
from bertzoo.serving.batching import Batcher, Reader, Work, gather_rows, keep
from bertzoo.serving.body import Inputs, describe
from bertzoo.serving.errors import RequestError, invalid, too_large
from bertzoo.text.encoded import Encoded
from bertzoo.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertzoo.export import OnnxModel

# Texts are tokenized in chunks, so that a long request holds the tokenizer and memory no longer than others.
CHUNK_TEXTS, CHUNK_CHARACTERS = 64, 65_536
# No token is as long; what is beyond so many characters a token would be truncated anyway.
CHARACTERS_PER_TOKEN = 256
LONGEST_TEXT = 1_000_000  # characters
MASK_LOGITS = "mask_logits"  # the output of a masked language model at masks alone
POOL_THREADS = 4  # that tokenize and read outputs


@dataclass
class Tally:
    """What a request took: tokens, and seconds by phase."""

    tokens: int = 0
    phases: dict[str, float] = field(default_factory=lambda: {"tokenization": 0.0, "queue": 0.0, "inference": 0.0})


@dataclass(frozen=True)
class Truncation:
    """Whether texts that are too long are cut, otherwise they are refused; and on which side, "left" or "right", or
    where None as the tokenizer's files say."""

    is_on: bool
    side: str | None = None


class ServedModel:
    """A model with its batcher.

    Args:
        name: What clients call it.
        model: The exported model, with its tokenizer.
        pool: Threads for tokenization and for reading outputs.
        max_batch_tokens: Most tokens in a batch.
        observe, report: As of `Batcher`.
        observe_length: Called with the length of each row.

    Raises:
        ValueError: The model has no tokenizer.
    """

    def __init__(
        self,
        name: str,
        model: OnnxModel,
        pool: ThreadPoolExecutor,
        max_batch_tokens: int,
        observe: Callable[[int, int], None] = lambda rows, tokens: None,
        report: Callable[[BaseException], None] = lambda error: None,
        observe_length: Callable[[float], None] = lambda length: None,
    ):
        if model.tokenizer is None:
            raise ValueError(f"a served model needs a tokenizer. Received: {name}, which has none.")
        self.name, self._model = name, model
        self.task, self.settings, self.dtype = model.task, model.settings, model.dtype
        self.tokenizer: Tokenizer = model.tokenizer
        self.max_length = int(self.tokenizer.max_length or self.settings["max_length"])
        self._pool, self._observe_length = pool, observe_length
        self.batcher = Batcher(self._compute, max_batch_tokens, observe, report)

    # ---- tokenization, in the pool

    async def in_pool(self, function: Callable, *arguments: Any) -> Any:
        """Runs a function beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None, truncation: Truncation) -> Encoded:
        """Rows of texts or pairs.

        Raises:
            RequestError: A row is too long and is not to be truncated, or is no valid text.
        """
        if truncation.is_on:
            most, side = CHARACTERS_PER_TOKEN * self.max_length, truncation.side or self.tokenizer.truncation_side
            limit = slice(-most, None) if side == "left" else slice(most)
            texts = [text[limit] for text in texts]
            pairs = None if pairs is None else [text[limit] for text in pairs]
        else:
            for text in (*texts, *(pairs or ())):
                check_characters(text)
        try:
            encoded = self.tokenizer.encode(texts, pairs, truncate=truncation.is_on, truncation_side=truncation.side)
        except ValueError as error:
            raise RequestError("Tokenizer", str(error)) from None
        if len(encoded) and encoded.lengths.max() > self.max_length:
            raise invalid(
                f"texts must have at most {self.max_length} tokens. Received: one of {encoded.lengths.max()}. "
                'Shorten it, or send "truncate": true.'
            )
        return encoded

    def encode_ids(self, rows: Sequence[Sequence[int]]) -> Encoded:
        """Rows of token ids, special tokens included.

        Raises:
            RequestError: An id is beyond the vocabulary, or a row is too long.
        """
        size = self.settings["vocab_size"]
        for row in rows:
            if len(row) > self.max_length:
                raise invalid(f"rows must have at most {self.max_length} token ids. Received: one of {len(row)}.")
            if not 0 <= min(row) <= max(row) < size:
                wrong = next(i for i in row if not 0 <= i < size)
                raise RequestError("Tokenizer", f"token ids must be from 0 to {size - 1}. Received: {wrong}.")
        return Encoded.from_rows(rows)

    # ---- from texts to outputs

    async def outputs(
        self,
        inputs: Inputs,
        truncation: Truncation,
        tally: Tally,
        output: str,
        prompt: str = "",
        read: Reader = keep,
    ) -> list[Any]:
        """What `read` gives of the model's output for each text or row of ids."""
        if inputs.ids is None:
            texts = [prompt + text for text in inputs.texts or ()]
            return await self.text_outputs(texts, None, truncation, tally, output, read)
        rows = inputs.ids
        if prompt:
            raise invalid("a prompt goes before texts. Received: token ids. Send texts, or no prompt.")
        chunks = split_into_chunks(rows)
        return await self._collect(chunks, lambda chunk: self.encode_ids(rows[chunk]), output, tally, read)

    async def text_outputs(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None,
        truncation: Truncation,
        tally: Tally,
        output: str,
        read: Reader = keep,
    ) -> list[Any]:
        """What `read` gives of the model's output for each text or pair."""

        def encode(chunk: slice) -> Encoded:
            return self.encode(texts[chunk], None if pairs is None else pairs[chunk], truncation)

        return await self._collect(split_into_chunks(texts, pairs), encode, output, tally, read)

    async def _collect(
        self, chunks: Iterator[slice], encode: Callable[[slice], Encoded], output: str, tally: Tally, read: Reader
    ) -> list[Any]:
        stream = self.stream(chunks, lambda chunk: (encode(chunk), None), output, tally, read)
        return [row async for _, outputs in stream for row in outputs]

    async def stream(
        self,
        chunks: Iterator[Any],
        encode: Callable[[Any], tuple[Encoded, Any]],
        output: str,
        tally: Tally,
        read: Reader = keep,
    ) -> AsyncGenerator[tuple[Any, list[Any]]]:
        """What `encode` gives besides rows and the outputs of these rows, chunk by chunk. A chunk is tokenized while
        the one before it is computed."""
        running: tuple[Work, Any] | None = None
        try:
            for chunk in chunks:
                begun = perf_counter()
                rows, extra = await self.in_pool(encode, chunk)
                tally.phases["tokenization"] += perf_counter() - begun
                tally.tokens += len(rows.token_ids)
                for length in rows.lengths.tolist():
                    self._observe_length(length)
                if running is not None:
                    yield await self._finish(*running, tally)
                running = self.batcher.submit(rows, output, read), extra
            if running is not None:
                yield await self._finish(*running, tally)
        finally:
            if running is not None:
                running[0].future.cancel()

    async def _finish(self, work: Work, extra: Any, tally: Tally) -> tuple[Any, list[np.ndarray]]:
        outputs = await work.future
        tally.phases["queue"] += work.queue_seconds
        tally.phases["inference"] += work.compute_seconds
        return extra, outputs

    # ---- the model, in the batcher's thread

    def _compute(self, rows: Encoded, output: str) -> list[np.ndarray]:
        if output == MASK_LOGITS:
            is_mask = rows.token_ids == self.settings["mask_token_id"]
            counts = np.add.reduceat(is_mask, rows.row_splits[:-1], dtype=np.int64)
            return np.split(self._model.run(rows, [output])[output], np.cumsum(counts)[:-1])
        if not self._model.is_per_token(output):
            return list(self._model.run(rows, [output])[output])
        results: list[Any] = [None] * len(rows)
        for group in group_rows(rows.lengths):  # one run of all would pad each output to the longest row
            array = self._model.run(gather_rows([(rows, i) for i in group.tolist()]), [output])[output]
            for i, values in zip(group.tolist(), array):
                results[i] = values[: rows.lengths[i]]
        return results

    @property
    def mask_token(self) -> str | None:
        """The token for which `/fill_mask` finds words."""
        return None if self.tokenizer.mask_id is None else self.tokenizer.id_to_token(self.tokenizer.mask_id)

    def close(self) -> None:
        """Answers what is queued."""
        self.batcher.close()


def check_characters(text: str) -> None:
    """Refuses texts that would hold the tokenizer for long."""
    if len(text) > LONGEST_TEXT:
        raise too_large(f"a text may have {LONGEST_TEXT} characters. Received: {len(text)} ({describe(text[:20])}).")


def split_into_chunks(texts: Sequence[Sized], pairs: Sequence[Sized] | None = None) -> Iterator[slice]:
    """Slices of at most `CHUNK_TEXTS` texts, or rows of ids, and about `CHUNK_CHARACTERS` characters."""
    begin, size = 0, 0
    for i, text in enumerate(texts):
        size += len(text) + (len(pairs[i]) if pairs is not None else 0)
        if i + 1 - begin == CHUNK_TEXTS or size >= CHUNK_CHARACTERS:
            yield slice(begin, i + 1)
            begin, size = i + 1, 0
    if begin < len(texts):
        yield slice(begin, len(texts))
