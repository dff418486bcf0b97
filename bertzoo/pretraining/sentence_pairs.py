"""Examples of two segments for NSP, SOP and ELECTRA (Devlin et al. 2019, A.2; Lan et al. 2020, section 3.1)."""

import numpy as np

from bertzoo.pretraining.corpus import Sentences, TokenCorpus, sentences_of
from bertzoo.pretraining.corpus_dataset import BatchSpec

KINDS = ("nsp", "sop")
ATTEMPTS = 10
SINGLE = 0.1  # share of ELECTRA's rows that have one segment


class SentencePairs:
    """[CLS] A [SEP] B [SEP], where A and B are consecutive sentences of a document, split at a random one.

    In half of the examples, those with `pair` = 1, B comes from another document ("nsp", next-sentence prediction) or A
    and B are swapped ("sop", sentence-order prediction); in the others `pair` = 0 and B follows A.

    As in the authors' code, an example takes sentences until it is full, and tokens are then removed from the longer
    segment, at random from its front or back. Two things differ: examples surround randomly sampled sentences instead
    of following one another, and there are two sentences even if one would fill the example. (The authors' code then
    takes B from another document, so that more than half of its examples are negative.)

    Args:
        corpus: The corpus.
        kind: "nsp" or "sop".
        short_seq_prob: Share of examples with a random number of tokens instead of the maximum.
        sentences: The sentences of the corpus; found if None.

    Raises:
        ValueError: No document has two sentences; or the kind is "nsp" and there is one document.
    """

    def __init__(self, corpus: TokenCorpus, kind: str, short_seq_prob: float = 0.1, sentences: Sentences | None = None):
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}. Received: {kind!r}.")
        self.corpus, self.kind, self.short_seq_prob = corpus, kind, short_seq_prob
        self.sentences = sentences or Sentences(corpus)
        if len(self.sentences.followed) == 0:
            raise ValueError("sentence pairs need documents of two or more sentences. Received: a corpus without any.")
        if kind == "nsp" and len(self.sentences.bounds) < 3:
            raise ValueError(
                "next-sentence prediction needs second segments of other documents. Received: a corpus of one "
                "document. Separate documents by blank lines, or use sentence order (sop)."
            )

    def __call__(self, spec: BatchSpec, rng: np.random.Generator) -> dict[str, np.ndarray]:
        rows, room = spec.batch_size, spec.length - 3
        target = np.where(rng.random(rows) < self.short_seq_prob, rng.integers(2, room + 1, rows), room)
        a, between, b_end = self._segments(target, rng)
        a_sizes, b, b_sizes = between - a, between.copy(), b_end - between
        pair = rng.integers(0, 2, rows)
        negative = pair == 1
        if self.kind == "nsp":
            least = np.where(a_sizes + b_sizes >= room, room - a_sizes, 0)  # of a full example, which must stay full
            b[negative], b_sizes[negative] = self._elsewhere(
                *(values[negative] for values in (a, b_sizes, least, target)), rng
            )
        else:
            a, b = np.where(negative, b, a), np.where(negative, a, b)
            a_sizes, b_sizes = np.where(negative, b_sizes, a_sizes), np.where(negative, a_sizes, b_sizes)
        a, a_sizes, b, b_sizes = truncate(a, a_sizes, b, b_sizes, room, rng)
        return {**pair_examples(self.corpus, spec.length, a, a_sizes, b, b_sizes), "pair": pair.astype("int32")}

    def _segments(self, target: np.ndarray, rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where A begins, where it ends and B begins, and where B ends: token indices (rows,)."""
        sentences, rows = self.sentences, len(target)
        sampled = sentences.followed[rng.integers(0, len(sentences.followed), rows)]
        begin, end = window(sentences, sampled, target, rng)
        last = sentences.bounds[sentences.document(begin) + 1] - 1
        begin = np.minimum(begin, last - 1)
        end = np.maximum(end, begin + 1)
        second = begin + 1 + (rng.random(rows) * (end - begin)).astype(np.int64)
        return sentences.starts[begin], sentences.starts[second], sentences.ends[end]

    def _elsewhere(self, positions, sizes, least, target, rng) -> tuple[np.ndarray, np.ndarray]:
        """Starts and sizes of segments from other documents than those of `positions`. Their sizes are as close to
        `sizes` as whole sentences allow, so that the length does not reveal the label, and at least `least`."""
        sentences, rows = self.sentences, len(positions)
        own = sentences.document(np.searchsorted(sentences.starts, positions))
        first, after = sentences.bounds[own], sentences.bounds[own + 1]
        begin, end = np.zeros((2, rows), np.int64)
        short = np.ones(rows, bool)
        for _ in range(ATTEMPTS):  # most documents may be shorter
            sampled = (rng.random(rows) * (len(sentences.starts) - (after - first))).astype(np.int64)
            sampled += np.where(sampled >= first, after - first, 0)
            others = window(sentences, sampled, target, rng)
            begin, end = np.where(short, others[0], begin), np.where(short, others[1], end)
            short = sentences.ends[end] - sentences.starts[begin] < sizes
        wanted = sentences.ends[end] - sizes
        start = np.clip(np.searchsorted(sentences.starts, wanted, "right") - 1, begin, end)
        later = np.minimum(start + 1, end)
        nearer = sentences.starts[later] - wanted < wanted - sentences.starts[start]
        fills = sentences.ends[end] - sentences.starts[later] >= least
        start = sentences.starts[np.where(nearer & fills, later, start)]
        return start, sentences.ends[end] - start


class ElectraSegments:
    """[CLS] A [SEP] B [SEP], or [CLS] A [SEP] in a tenth of the examples; B follows A in the document.

    A takes sentences up to half of the example; the sentence that exceeds the half goes to A or B at random. The end is
    truncated. (In the authors' code a later short sentence may still go to A.)

    Source: google-research/electra, build_pretraining_dataset.py.

    Args:
        corpus: The corpus.
        short_seq_prob: Share of examples with a random number of tokens, at least 5, instead of the maximum.
        sentences: The sentences of the corpus; found if None.

    Raises:
        ValueError: The corpus holds no words.
    """

    def __init__(self, corpus: TokenCorpus, short_seq_prob: float = 0.05, sentences: Sentences | None = None):
        self.corpus, self.short_seq_prob = corpus, short_seq_prob
        self.sentences = sentences_of(corpus, sentences)

    def __call__(self, spec: BatchSpec, rng: np.random.Generator) -> dict[str, np.ndarray]:
        sentences, rows, length = self.sentences, spec.batch_size, spec.length
        target = np.where(
            rng.random(rows) < self.short_seq_prob, rng.integers(min(5, length), length + 1, rows), length
        )
        begin, end = window(sentences, rng.integers(0, len(sentences.starts), rows), target, rng)
        a, stop = sentences.starts[begin], sentences.ends[end]
        half = np.where(rng.random(rows) < SINGLE, stop - a + 1, (target - 3) // 2)
        # The sentence that spans the end of the half goes to A or B at random.
        last = np.clip(np.searchsorted(sentences.ends, a + half, "left") - 1, begin - 1, end)
        more = (last < begin) | ((last < end) & (rng.random(rows) < 0.5))
        between = sentences.ends[np.minimum(last + more, end)]
        a_sizes = np.minimum(between - a, length - 2)
        b_sizes = np.clip(length - a_sizes - 3, 0, stop - between)
        return pair_examples(self.corpus, length, a, a_sizes, between, b_sizes)


def window(
    sentences: Sentences, sampled: np.ndarray, target: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The first and last sentences of windows of `target` tokens around sampled sentences, within their documents.

    The sampled sentence lies at a random position of the window. If windows began with it, the ends of documents would
    make many examples short, and first sentences would be rare.
    """
    document = sentences.document(sampled)
    first, last = sentences.bounds[document], sentences.bounds[document + 1] - 1
    start = sentences.starts[sampled] - (rng.random(len(sampled)) * target).astype(np.int64)
    start = np.clip(start, sentences.starts[first], np.maximum(sentences.starts[first], sentences.ends[last] - target))
    begin = np.searchsorted(sentences.starts, start, "right") - 1
    end = np.searchsorted(sentences.starts, start + target, "left") - 1
    return begin, np.clip(end, begin, last)


def truncate(
    a: np.ndarray, a_sizes: np.ndarray, b: np.ndarray, b_sizes: np.ndarray, room: int, rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Starts and sizes of the segments after removing tokens of the longer one until both fit into `room`."""
    half = room // 2
    a_left = np.where(b_sizes <= half, room - b_sizes, np.where(a_sizes <= half, a_sizes, room - half))
    b_left = np.where(a_sizes <= half, room - a_sizes, np.where(b_sizes <= half, b_sizes, half))
    a_left, b_left = np.minimum(a_sizes, a_left), np.minimum(b_sizes, b_left)
    a_front, b_front = rng.binomial(a_sizes - a_left, 0.5), rng.binomial(b_sizes - b_left, 0.5)
    return a + a_front, a_left, b + b_front, b_left


def pair_examples(
    corpus: TokenCorpus, length: int, a: np.ndarray, a_sizes: np.ndarray, b: np.ndarray, b_sizes: np.ndarray
) -> dict[str, np.ndarray]:
    """`token_ids`, `segment_ids` and `padding_mask`, int32 (rows, length), and `lengths` (rows,); without a second
    segment an example is [CLS] A [SEP]."""
    tokenizer, columns = corpus.tokenizer, np.arange(length)
    a, a_sizes, b, b_sizes = (array[:, None] for array in (a, a_sizes, b, b_sizes))
    source = np.where(columns <= a_sizes, a + columns - 1, b + columns - a_sizes - 2)
    ids = corpus.tokens[np.clip(source, 0, len(corpus.tokens) - 1)].astype("int32")
    lengths = a_sizes + 2 + np.where(b_sizes > 0, b_sizes + 1, 0)
    ids[columns >= lengths] = tokenizer.pad_id
    ids[:, 0] = tokenizer.cls_id
    np.put_along_axis(ids, a_sizes + 1, tokenizer.sep_id, axis=1)
    np.put_along_axis(ids, lengths - 1, tokenizer.sep_id, axis=1)
    real = columns < lengths
    return {
        "token_ids": ids,
        "segment_ids": (real & (columns > a_sizes + 1)).astype("int32"),
        "padding_mask": real.astype("int32"),
        "lengths": lengths[:, 0].astype("int32"),
    }
