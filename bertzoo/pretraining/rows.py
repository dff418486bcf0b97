"""Batches cut from a corpus, masked as they are read (RoBERTa's full sentences, Liu et al. 2019, section 4.2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import keras
import numpy as np

from bertzoo.pretraining.shards import Shards

SENTENCE_ENDS = (".", "?", "!")


@dataclass(frozen=True)
class Shape:
    """Batches of `batch_size` rows of `length` tokens; `share` of each round of batches, a whole number, has this
    shape."""

    length: int
    batch_size: int
    share: int = 1


class CorpusRows(keras.utils.PyDataset):
    """[CLS], a sentence of the corpus and what follows it until the row is full, [SEP]; over documents' ends if need
    be.

    Batch `i` depends on (seed, i) alone, so that a run is the same on every backend and can be taken up anywhere: each
    row begins at a sentence drawn anew. `short` of the rows end with their first sentence, since a model that only ever
    saw full rows is poor at single sentences (for the same reason BERT has short_seq_prob).

    Args:
        shards: The corpus.
        shapes: One or more; they take turns, so that all positions are trained throughout.
        transform: (inputs, generator) -> batch; masking, as a rule.
        steps: Batches in all.
        seed: Of the rows and the masks.
        short: Share of rows that hold one sentence.
        first_step: Batches that an earlier part of the run has had.

    Raises:
        ValueError: The corpus has fewer tokens than a row.
    """

    def __init__(
        self,
        shards: Shards,
        shapes: Sequence[Shape],
        transform: Callable,
        *,
        steps: int,
        seed: int = 0,
        short: float = 0.1,
        first_step: int = 0,
    ):
        super().__init__(workers=1)
        self.shards, self.transform = shards, transform
        self.steps, self.seed, self.short, self.first_step = steps, seed, short, first_step
        self.turns = [shape for shape in shapes for _ in range(shape.share)][::-1]
        longest = max(shape.length for shape in shapes)
        if len(shards.tokens) < longest:
            raise ValueError(f"the corpus has {len(shards.tokens)} tokens; one row takes {longest}.")
        self.starts = _sentence_starts(shards, longest)

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> tuple:
        step = self.first_step + index
        shape = self.turns[step % len(self.turns)]
        rng = np.random.Generator(np.random.Philox(key=[self.seed, 0], counter=[0, 0, 0, step]))
        return self.transform(self._rows(shape, rng), rng)

    def _rows(self, shape: Shape, rng: np.random.Generator) -> dict[str, np.ndarray]:
        tokenizer, room = self.shards.tokenizer, shape.length - 2
        chosen = rng.integers(0, len(self.starts) - 1, shape.batch_size)
        starts = self.starts[chosen]
        sizes = np.where(rng.random(shape.batch_size) < self.short, self.starts[chosen + 1] - starts, room)
        sizes = np.minimum(sizes, room)[:, None]
        places = np.arange(shape.length)
        ids = self.shards.tokens[starts[:, None] + np.minimum(places, room)].astype("int32")
        ids = np.concatenate([np.full((shape.batch_size, 1), tokenizer.cls_id, "int32"), ids[:, :-1]], axis=1)
        # A row that ends with its document has that document's separator already.
        sizes = sizes - (np.take_along_axis(ids, sizes, axis=1) == tokenizer.sep_id)
        ids[places > sizes] = tokenizer.pad_id
        np.put_along_axis(ids, sizes + 1, tokenizer.sep_id, axis=1)
        return {"token_ids": ids, "padding_mask": (places <= sizes + 1).astype("int32")}


def _sentence_starts(shards: Shards, longest: int) -> np.ndarray:
    """Where sentences begin, int64, ascending; the last that leave no room for a row are left out."""
    ends = [shards.tokenizer.token_to_id(mark) for mark in SENTENCE_ENDS]
    ends = [end for end in ends if end is not None] + [shards.tokenizer.sep_id]
    found = np.concatenate([[0], np.flatnonzero(np.isin(shards.tokens, np.array(ends, shards.tokens.dtype))) + 1])
    # "." is followed by the separator at a document's end: the next document begins one later.
    found = found[found < len(shards.tokens)]
    found = found[shards.tokens[found] != shards.tokenizer.sep_id]
    room = len(shards.tokens) - longest
    fitting = found[found <= room]
    return fitting if len(fitting) > 1 else np.array([0, min(room, 1)], dtype=np.int64)
