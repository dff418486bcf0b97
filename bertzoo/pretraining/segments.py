"""ELECTRA's rows of one or two segments (google-research/electra, build_pretraining_dataset.py)."""

import numpy as np

from bertzoo.pretraining.pairs import pair_rows, window
from bertzoo.pretraining.rows import Shape
from bertzoo.pretraining.sentences import Sentences
from bertzoo.pretraining.shards import Shards

SINGLE = 0.1


class Segments:
    """[CLS] A [SEP] B [SEP], or [CLS] A [SEP] in a tenth of the rows; A and B follow one another in a document.

    A takes sentences up to half of the row; the one with which it would exceed that goes to A or B by the toss of a
    coin. What does not fit is cut off at the end. (In the authors' code a later short sentence may still go to A.)

    Args:
        shards: The corpus.
        short: Share of rows with a random number of tokens from 5 on, instead of all that there is room for.
        sentences: Those of the shards; found anew where None.

    Raises:
        ValueError: The corpus holds no words.
    """

    def __init__(self, shards: Shards, short: float = 0.05, sentences: Sentences | None = None):
        self.shards, self.short = shards, short
        self.sentences = sentences or Sentences(shards)
        if len(self.sentences.starts) == 0:
            raise ValueError("the corpus holds no words.")

    def __call__(self, shape: Shape, rng: np.random.Generator) -> dict[str, np.ndarray]:
        found, rows, length = self.sentences, shape.batch_size, shape.length
        target = np.where(rng.random(rows) < self.short, rng.integers(min(5, length), length + 1, rows), length)
        begin, end = window(found, rng.integers(0, len(found.starts), rows), target, rng)
        a, stop = found.starts[begin], found.ends[end]
        half = np.where(rng.random(rows) < SINGLE, stop - a + 1, (target - 3) // 2)
        # The sentence that holds the half's end is the one for the coin.
        last = np.clip(np.searchsorted(found.ends, a + half, "left") - 1, begin - 1, end)
        more = (last < begin) | ((last < end) & (rng.random(rows) < 0.5))
        between = found.ends[np.minimum(last + more, end)]
        a_sizes = np.minimum(between - a, length - 2)
        b_sizes = np.clip(length - a_sizes - 3, 0, stop - between)
        return pair_rows(self.shards, length, a, a_sizes, between, b_sizes)
