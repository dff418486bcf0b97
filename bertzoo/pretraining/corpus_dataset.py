"""Batches of examples sampled from a corpus, masked when they are read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from bertzoo.pretraining.corpus import CorpusSentences, TokenCorpus

KINDS = ("nsp", "sop")
ATTEMPTS = 10
SINGLE_SEGMENT_PROB = 0.1  # of ELECTRA's examples


@dataclass(frozen=True)
class BatchSpec:
    """The shape of batches.

    Args:
        length: Tokens of an example.
        batch_size: Examples of a batch.
        share: Batches of this shape in each round of shapes.
    """

    length: int
    batch_size: int
    share: int = 1


class ExampleSampler:
    """The base of what samples examples from a corpus; called with a `BatchSpec` and a generator, it returns a batch.

    A batch has `token_ids` and `padding_mask`, int32 (batch, length), `lengths`, int32 (batch,), and where examples
    have two segments `segment_ids`, int32 (batch, length).

    Args:
        corpus: The corpus.
        short_seq_prob: Probability that an example is shorter than the batch.
        sentences: The sentences of the corpus; computed if None.

    Raises:
        ValueError: The corpus holds no words.
    """

    def __init__(self, corpus: TokenCorpus, short_seq_prob: float = 0.1, sentences: CorpusSentences | None = None):
        self.corpus, self.short_seq_prob = corpus, short_seq_prob
        self.sentences = sentences or CorpusSentences(corpus)
        if len(self.sentences.starts) == 0:
            raise ValueError("the corpus holds no words.")

    def __call__(self, spec: BatchSpec, rng: np.random.Generator) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def _sample_lengths(self, count: int, shortest: int, longest: int, rng: np.random.Generator) -> np.ndarray:
        """Numbers of tokens (count,): `longest`, or for short examples a random one from `shortest` on."""
        is_short = rng.random(count) < self.short_seq_prob
        return np.where(is_short, rng.integers(shortest, longest + 1, count), longest)

    def _window(
        self, sampled: np.ndarray, target: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """The first and last sentences, int (batch,) each, of windows of `target` tokens (batch,) around sampled
        sentences (batch,), within their documents.

        The sampled sentence lies at a random position of the window. If windows began with it, the ends of documents
        would make many examples short, and first sentences would be rare.
        """
        starts, ends, bounds = self.sentences.starts, self.sentences.ends, self.sentences.bounds
        document = self.sentences.document_indices(sampled)
        first, last = bounds[document], bounds[document + 1] - 1
        start = starts[sampled] - (rng.random(len(sampled)) * target).astype(np.int64)
        start = np.clip(start, starts[first], np.maximum(starts[first], ends[last] - target))
        begin = np.searchsorted(starts, start, "right") - 1
        end = np.searchsorted(starts, start + target, "left") - 1
        return begin, np.clip(end, begin, last)

    def _join_segments(
        self, length: int, a: np.ndarray, a_sizes: np.ndarray, b: np.ndarray, b_sizes: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The batch of [CLS] A [SEP] B [SEP], or [CLS] A [SEP] where B is empty, from the first tokens and the sizes of
        the segments, int (batch,) each."""
        tokens, tokenizer, columns = self.corpus.tokens, self.corpus.tokenizer, np.arange(length)
        a, a_sizes, b, b_sizes = (array[:, None] for array in (a, a_sizes, b, b_sizes))
        source = np.where(columns <= a_sizes, a + columns - 1, b + columns - a_sizes - 2)
        ids = tokens[np.clip(source, 0, len(tokens) - 1)].astype("int32")
        lengths = a_sizes + 2 + np.where(b_sizes > 0, b_sizes + 1, 0)
        real = columns < lengths
        ids[~real] = tokenizer.pad_id
        ids[:, 0] = tokenizer.cls_id
        ids[(columns == a_sizes + 1) | (columns == lengths - 1)] = tokenizer.sep_id
        return {
            "token_ids": ids,
            "segment_ids": (real & (columns > a_sizes + 1)).astype("int32"),
            "padding_mask": real.astype("int32"),
            "lengths": lengths[:, 0].astype("int32"),
        }


class CorpusDataset(keras.utils.PyDataset):
    """Batches sampled from a corpus; none is ever stored.

    Examples are sampled with replacement: steps that hold as many tokens as the corpus read about 63 % of it (1 - 1/e)
    at least once.

    Batch `i` depends on (seed, i) only, so that a run is the same on every backend and can be resumed at any step. With
    `repeat_examples_after`, the examples repeat after that many batches with new masks (dynamic masking, Liu et al.
    2019, section 4.1); with `repeat_masks_after` the masks repeat too (static masking: in BERT every 10 epochs).

    Args:
        sampler: What samples the examples: `FullSentenceSampler`, `SentencePairSampler` or `ElectraSampler`.
        batch_specs: The shapes of batches; they alternate, so that all positions are trained throughout.
        transform: (inputs, generator) -> batch; usually the masking.
        num_batches: Number of batches.
        seed: Seed of the examples and masks.
        first_batch: Index of the first batch: the number of batches in an earlier part of the run.
        repeat_examples_after: Batches after which the examples repeat; None for never.
        repeat_masks_after: Batches after which the masks repeat, a multiple of `repeat_examples_after`; None for never.

    Raises:
        ValueError: The corpus has fewer tokens than an example, or `repeat_masks_after` is no multiple.
    """

    def __init__(
        self,
        sampler: ExampleSampler,
        batch_specs: Sequence[BatchSpec],
        transform: Callable[[dict[str, np.ndarray], np.random.Generator], Any],
        *,
        num_batches: int,
        seed: int = 0,
        first_batch: int = 0,
        repeat_examples_after: int | None = None,
        repeat_masks_after: int | None = None,
    ):
        super().__init__(workers=1)
        self.examples, self.transform = sampler, transform
        self._length, self.seed, self.first_batch = num_batches, seed, first_batch
        never = 2**62
        self.example_period, self.mask_period = repeat_examples_after or never, repeat_masks_after or never
        if repeat_masks_after and repeat_masks_after % self.example_period:
            raise ValueError(
                "repeat_masks_after must be a multiple of repeat_examples_after. Received: "
                f"{repeat_masks_after} and {repeat_examples_after}."
            )
        self.round = [spec for spec in batch_specs for _ in range(spec.share)][::-1]
        total, longest = len(sampler.corpus.tokens), max(spec.length for spec in batch_specs)
        if total < longest:
            raise ValueError(f"an example takes {longest} tokens. Received: a corpus of {total}.")

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        index += self.first_batch
        inputs = self.examples(self.batch_spec(index), self._generator(index % self.example_period, 0))
        return self.transform(inputs, self._generator(index % self.mask_period, 1))

    def batch_spec(self, index: int) -> BatchSpec:
        """The shape of a batch of the run."""
        return self.round[index % self.example_period % len(self.round)]

    def _generator(self, index: int, use: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=[self.seed, use], counter=[0, 0, 0, index]))


class FullSentenceSampler(ExampleSampler):
    """[CLS], a sentence and the text that follows it until the example is full, [SEP]; also across documents.

    With probability `short_seq_prob`, an example ends with its first sentence, since a model trained on full examples
    only is poor at single sentences.

    Source: Liu et al. 2019, section 4.2.
    """

    def __call__(self, spec: BatchSpec, rng: np.random.Generator) -> dict[str, np.ndarray]:
        tokens, room = self.corpus.tokens, spec.length - 2
        starts, ends = self.sentences.starts, self.sentences.ends
        # No example begins at the last sentences, which leave no room for one.
        count = max(1, int(np.searchsorted(starts, len(tokens) - spec.length, "right")))
        sampled = rng.integers(0, count, spec.batch_size)
        is_short = rng.random(spec.batch_size) < self.short_seq_prob
        a = starts[sampled]
        sizes = np.minimum(np.where(is_short, ends[sampled] - a, room), room)
        # An example that ends with its document already has the document's separator.
        sizes = sizes - (tokens[np.minimum(a + sizes, len(tokens)) - 1] == self.corpus.tokenizer.sep_id)
        batch = self._join_segments(spec.length, a, sizes, a, np.zeros_like(sizes))
        del batch["segment_ids"]
        return batch


class SentencePairSampler(ExampleSampler):
    """[CLS] A [SEP] B [SEP], where A and B are consecutive sentences of a document, split at a random one.

    In half of the examples, those with `pair` = 1, B comes from another document ("nsp", next-sentence prediction) or A
    and B are swapped ("sop", sentence-order prediction); in the others `pair` = 0 and B follows A. `pair` is int32
    (batch,).

    As in the authors' code, an example takes sentences until it is full, and tokens are then removed from the longer
    segment, at random from its front or back. Two things differ: examples surround randomly sampled sentences instead
    of following one another, and there are two sentences even if one would fill the example. (The authors' code then
    takes B from another document, so that more than half of its examples are negative.)

    Source: Devlin et al. 2019, A.2; Lan et al. 2020, section 3.1.

    Args:
        corpus: The corpus.
        kind: "nsp" or "sop".
        short_seq_prob: Probability that an example has a random number of tokens instead of the maximum.
        sentences: The sentences of the corpus; computed if None.

    Raises:
        ValueError: No document has two sentences; or the kind is "nsp" and there is one document.
    """

    def __init__(
        self, corpus: TokenCorpus, kind: str, short_seq_prob: float = 0.1, sentences: CorpusSentences | None = None
    ):
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}. Received: {kind!r}.")
        super().__init__(corpus, short_seq_prob, sentences)
        self.kind = kind
        if len(self.sentences.followed_indices) == 0:
            raise ValueError("sentence pairs need documents of two or more sentences. Received: a corpus without any.")
        if kind == "nsp" and len(self.sentences.bounds) < 3:
            raise ValueError(
                "next-sentence prediction needs second segments of other documents. Received: a corpus of one "
                "document. Separate documents by blank lines, or use sentence order (sop)."
            )

    def __call__(self, spec: BatchSpec, rng: np.random.Generator) -> dict[str, np.ndarray]:
        count, room = spec.batch_size, spec.length - 3
        target = self._sample_lengths(count, 2, room, rng)
        a, between, b_end = self._segments(target, rng)
        a_sizes, b, b_sizes = between - a, between.copy(), b_end - between
        pair = rng.integers(0, 2, count)
        negative = pair == 1
        if self.kind == "nsp":
            least = np.where(a_sizes + b_sizes >= room, room - a_sizes, 0)  # of a full example, which must stay full
            b[negative], b_sizes[negative] = self._elsewhere(
                a[negative], b_sizes[negative], least[negative], target[negative], rng
            )
        else:
            a, b = np.where(negative, b, a), np.where(negative, a, b)
            a_sizes, b_sizes = np.where(negative, b_sizes, a_sizes), np.where(negative, a_sizes, b_sizes)
        segments = _truncate_pairs(a, a_sizes, b, b_sizes, room, rng)
        return {**self._join_segments(spec.length, *segments), "pair": pair.astype("int32")}

    def _segments(self, target: np.ndarray, rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where A begins, where it ends and B begins, and where B ends: token indices (batch,)."""
        sentences, count = self.sentences, len(target)
        sampled = sentences.followed_indices[rng.integers(0, len(sentences.followed_indices), count)]
        begin, end = self._window(sampled, target, rng)
        last = sentences.bounds[sentences.document_indices(begin) + 1] - 1
        begin = np.minimum(begin, last - 1)
        end = np.maximum(end, begin + 1)
        second = begin + 1 + (rng.random(count) * (end - begin)).astype(np.int64)
        return sentences.starts[begin], sentences.starts[second], sentences.ends[end]

    def _elsewhere(self, positions, sizes, least, target, rng) -> tuple[np.ndarray, np.ndarray]:
        """Starts and sizes of segments from other documents than those of `positions`. Their sizes are as close to
        `sizes` as whole sentences allow, so that the length does not reveal the label, and at least `least`."""
        starts, ends, bounds = self.sentences.starts, self.sentences.ends, self.sentences.bounds
        own = self.sentences.document_indices(np.searchsorted(starts, positions))
        first, after = bounds[own], bounds[own + 1]
        begin, end = np.zeros((2, len(positions)), np.int64)
        is_short = np.ones(len(positions), bool)
        for _ in range(ATTEMPTS):  # most documents may be shorter
            sampled = (rng.random(len(positions)) * (len(starts) - (after - first))).astype(np.int64)
            sampled += np.where(sampled >= first, after - first, 0)
            candidates = self._window(sampled, target, rng)
            begin, end = np.where(is_short, candidates[0], begin), np.where(is_short, candidates[1], end)
            is_short = ends[end] - starts[begin] < sizes
        ideal = ends[end] - sizes
        start = np.clip(np.searchsorted(starts, ideal, "right") - 1, begin, end)
        later = np.minimum(start + 1, end)
        is_nearer = starts[later] - ideal < ideal - starts[start]
        start = starts[np.where(is_nearer & (ends[end] - starts[later] >= least), later, start)]
        return start, ends[end] - start


class ElectraSampler(ExampleSampler):
    """[CLS] A [SEP] B [SEP], or [CLS] A [SEP] in a tenth of the examples; B follows A in the document.

    A takes sentences up to half of the example; the sentence that exceeds the half goes to A or B at random. The end is
    truncated. (In the authors' code a later short sentence may still go to A.)

    Source: google-research/electra, build_pretraining_dataset.py.

    Args:
        corpus: The corpus.
        short_seq_prob: Probability that an example has a random number of tokens, at least 5, instead of the maximum.
        sentences: The sentences of the corpus; computed if None.
    """

    def __init__(self, corpus: TokenCorpus, short_seq_prob: float = 0.05, sentences: CorpusSentences | None = None):
        super().__init__(corpus, short_seq_prob, sentences)

    def __call__(self, spec: BatchSpec, rng: np.random.Generator) -> dict[str, np.ndarray]:
        starts, ends, count, length = self.sentences.starts, self.sentences.ends, spec.batch_size, spec.length
        target = self._sample_lengths(count, min(5, length), length, rng)
        begin, end = self._window(rng.integers(0, len(starts), count), target, rng)
        a, stop = starts[begin], ends[end]
        half = np.where(rng.random(count) < SINGLE_SEGMENT_PROB, stop - a + 1, (target - 3) // 2)
        # The sentence that spans the end of the half goes to A or B at random.
        last = np.clip(np.searchsorted(ends, a + half, "left") - 1, begin - 1, end)
        more = (last < begin) | ((last < end) & (rng.random(count) < 0.5))
        between = ends[np.minimum(last + more, end)]
        a_sizes = np.minimum(between - a, length - 2)
        b_sizes = np.clip(length - a_sizes - 3, 0, stop - between)
        return self._join_segments(length, a, a_sizes, between, b_sizes)


def _truncate_pairs(
    a: np.ndarray, a_sizes: np.ndarray, b: np.ndarray, b_sizes: np.ndarray, room: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Starts and sizes of the segments after removing tokens of the longer one until both fit into `room`."""
    half = room // 2
    a_left = np.where(b_sizes <= half, room - b_sizes, np.where(a_sizes <= half, a_sizes, room - half))
    b_left = np.where(a_sizes <= half, room - a_sizes, np.where(b_sizes <= half, b_sizes, half))
    a_left, b_left = np.minimum(a_sizes, a_left), np.minimum(b_sizes, b_left)
    a_front, b_front = rng.binomial(a_sizes - a_left, 0.5), rng.binomial(b_sizes - b_left, 0.5)
    return a + a_front, a_left, b + b_front, b_left
