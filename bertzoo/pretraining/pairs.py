"""Rows of two segments, which belong together or do not (Devlin et al. 2019, A.2; Lan et al. 2020, section 3.1)."""

import numpy as np

from bertzoo.pretraining.rows import Shape
from bertzoo.pretraining.sentences import Sentences
from bertzoo.pretraining.shards import Shards

KINDS = ("nsp", "sop")
ATTEMPTS = 10


class SentencePairs:
    """[CLS] A [SEP] B [SEP], A and B whole sentences of one document as far as there is room, cut at random between.

    In half of the rows, those with `pair` = 1, B comes from another document ("nsp", next-sentence prediction) or A and
    B are swapped ("sop", sentence-order prediction); in the others `pair` = 0 and B follows A.

    As the authors' code does, a row takes sentences until it is full, and the longer segment then loses tokens at its
    ends, each at the front or the back by the toss of a coin. Two things differ: rows lie around sentences drawn anew
    instead of following one another, and a row that one sentence would fill takes two all the same. (The authors' code
    then takes B from another document, so that more than half of its rows are negative.)

    Args:
        shards: The corpus.
        kind: "nsp" or "sop".
        short: Share of rows with a random number of tokens instead of all that there is room for.
        sentences: Those of the shards; found anew where None.

    Raises:
        ValueError: No document has two sentences; or the kind is "nsp" and there is one document.
    """

    def __init__(self, shards: Shards, kind: str, short: float = 0.1, sentences: Sentences | None = None):
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}; it is {kind!r}.")
        self.shards, self.kind, self.short = shards, kind, short
        self.sentences = sentences or Sentences(shards)
        if len(self.sentences.followed) == 0:
            raise ValueError("pairs of sentences need documents of two or more; the corpus has none.")
        if kind == "nsp" and len(self.sentences.bounds) < 3:
            raise ValueError(
                "next-sentence prediction takes half of its second segments from another document; the corpus has one "
                "document. Part documents by blank lines, or use sentence order (sop)."
            )

    def __call__(self, shape: Shape, rng: np.random.Generator) -> dict[str, np.ndarray]:
        rows, room = shape.batch_size, shape.length - 3
        target = np.where(rng.random(rows) < self.short, rng.integers(2, room + 1, rows), room)
        a, between, b_end = self._segments(target, rng)
        a_sizes, b, b_sizes = between - a, between.copy(), b_end - between
        pair = rng.integers(0, 2, rows)
        negative = pair == 1
        if self.kind == "nsp":
            least = np.where(a_sizes + b_sizes >= room, room - a_sizes, 0)  # of a full row, which is to be full again
            b[negative], b_sizes[negative] = self._elsewhere(
                *(values[negative] for values in (a, b_sizes, least, target)), rng
            )
        else:
            a, b = np.where(negative, b, a), np.where(negative, a, b)
            a_sizes, b_sizes = np.where(negative, b_sizes, a_sizes), np.where(negative, a_sizes, b_sizes)
        a, a_sizes, b, b_sizes = truncate(a, a_sizes, b, b_sizes, room, rng)
        return {**pair_rows(self.shards, shape.length, a, a_sizes, b, b_sizes), "pair": pair.astype("int32")}

    def _segments(self, target: np.ndarray, rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where A begins, where it ends and B begins, and where B ends: token places (rows,)."""
        found, rows = self.sentences, len(target)
        drawn = found.followed[rng.integers(0, len(found.followed), rows)]
        begin, end = window(found, drawn, target, rng)
        last = found.bounds[found.document(begin) + 1] - 1
        begin = np.minimum(begin, last - 1)
        end = np.maximum(end, begin + 1)
        second = begin + 1 + (rng.random(rows) * (end - begin)).astype(np.int64)
        return found.starts[begin], found.starts[second], found.ends[end]

    def _elsewhere(self, places, sizes, least, target, rng) -> tuple[np.ndarray, np.ndarray]:
        """Starts and sizes of as many segments, each from another document than that of the place, and as long as
        whole sentences allow, so that their length does not give them away, but of `least` tokens if there are."""
        found, rows = self.sentences, len(places)
        own = found.document(np.searchsorted(found.starts, places))
        first, after = found.bounds[own], found.bounds[own + 1]
        begin, end = np.zeros((2, rows), np.int64)
        short = np.ones(rows, bool)
        for _ in range(ATTEMPTS):  # most documents may be shorter than that of the place
            drawn = (rng.random(rows) * (len(found.starts) - (after - first))).astype(np.int64)
            drawn += np.where(drawn >= first, after - first, 0)
            others = window(found, drawn, target, rng)
            begin, end = np.where(short, others[0], begin), np.where(short, others[1], end)
            short = found.ends[end] - found.starts[begin] < sizes
        wanted = found.ends[end] - sizes
        start = np.clip(np.searchsorted(found.starts, wanted, "right") - 1, begin, end)
        later = np.minimum(start + 1, end)
        nearer = found.starts[later] - wanted < wanted - found.starts[start]
        fills = found.ends[end] - found.starts[later] >= least
        start = found.starts[np.where(nearer & fills, later, start)]
        return start, found.ends[end] - start


def window(found: Sentences, drawn: np.ndarray, target: np.ndarray, rng) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last of the sentences around drawn ones that fill `target` tokens, within their documents.

    The window lies evenly around the drawn sentence and is moved into the document: were it to begin there, documents'
    ends would make many rows short, and their first sentences would be rare.
    """
    document = found.document(drawn)
    first, last = found.bounds[document], found.bounds[document + 1] - 1
    start = found.starts[drawn] - (rng.random(len(drawn)) * target).astype(np.int64)
    start = np.clip(start, found.starts[first], np.maximum(found.starts[first], found.ends[last] - target))
    begin = np.searchsorted(found.starts, start, "right") - 1
    end = np.searchsorted(found.starts, start + target, "left") - 1
    return begin, np.clip(end, begin, last)


def truncate(a, a_sizes, b, b_sizes, room: int, rng) -> tuple:
    """Starts and sizes of segments of which the longer has lost tokens until both fit into `room`."""
    half = room // 2
    a_left = np.where(b_sizes <= half, room - b_sizes, np.where(a_sizes <= half, a_sizes, room - half))
    b_left = np.where(a_sizes <= half, room - a_sizes, np.where(b_sizes <= half, b_sizes, half))
    a_left, b_left = np.minimum(a_sizes, a_left), np.minimum(b_sizes, b_left)
    a_front, b_front = rng.binomial(a_sizes - a_left, 0.5), rng.binomial(b_sizes - b_left, 0.5)
    return a + a_front, a_left, b + b_front, b_left


def pair_rows(shards: Shards, length: int, a, a_sizes, b, b_sizes) -> dict[str, np.ndarray]:
    """`token_ids`, `segment_ids` and `padding_mask`, int32 (rows, length), and `lengths` (rows,); rows whose second
    segment is empty are [CLS] A [SEP]."""
    tokenizer, places = shards.tokenizer, np.arange(length)
    a, a_sizes, b, b_sizes = (array[:, None] for array in (a, a_sizes, b, b_sizes))
    source = np.where(places <= a_sizes, a + places - 1, b + places - a_sizes - 2)
    ids = shards.tokens[np.clip(source, 0, len(shards.tokens) - 1)].astype("int32")
    lengths = a_sizes + 2 + np.where(b_sizes > 0, b_sizes + 1, 0)
    ids[places >= lengths] = tokenizer.pad_id
    ids[:, 0] = tokenizer.cls_id
    np.put_along_axis(ids, a_sizes + 1, tokenizer.sep_id, axis=1)
    np.put_along_axis(ids, lengths - 1, tokenizer.sep_id, axis=1)
    real = places < lengths
    return {
        "token_ids": ids,
        "segment_ids": (real & (places > a_sizes + 1)).astype("int32"),
        "padding_mask": real.astype("int32"),
        "lengths": lengths[:, 0].astype("int32"),
    }
