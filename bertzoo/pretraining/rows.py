"""Batches cut from a corpus, masked as they are read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import keras
import numpy as np

from bertzoo.pretraining.sentences import Sentences
from bertzoo.pretraining.shards import Shards


@dataclass(frozen=True)
class Shape:
    """Batches of `batch_size` rows of `length` tokens; `share` of each round of batches, a whole number, has this
    shape."""

    length: int
    batch_size: int
    share: int = 1


class CorpusRows(keras.utils.PyDataset):
    """Batches without end, drawn anew from a corpus; none is ever stored.

    Rows are drawn with replacement: steps that hold as many tokens as the corpus read about 63 % of them (1 - 1/e) once
    or more, and no step count reads all for sure. `pretrain` says at its start how much that is.

    Batch `i` depends on (seed, i) alone, so that a run is the same on every backend and can be taken up anywhere. With
    `epoch`, the rows of a batch come again after that many; their masks are new each time (dynamic masking, Liu et al.
    2019, section 4.1), unless `copies` says how many kinds there are (static: BERT made 10).

    Args:
        rows: (shape, generator) -> inputs, int32: `FullSentences` or another rule over the corpus.
        shapes: One or more; they take turns, so that all positions are trained throughout.
        transform: (inputs, generator) -> batch; masking, as a rule.
        steps: Batches in all.
        seed: Of the rows and the masks.
        first_step: Batches that an earlier part of the run has had.
        epoch: Batches after which the rows come again; never where None.
        copies: Kinds of masks that the rows of an epoch get; always new ones where None.

    Raises:
        ValueError: The corpus has fewer tokens than a row, or there are copies without an epoch.
    """

    def __init__(
        self,
        rows: Callable[[Shape, np.random.Generator], dict[str, np.ndarray]],
        shapes: Sequence[Shape],
        transform: Callable,
        *,
        steps: int,
        seed: int = 0,
        first_step: int = 0,
        epoch: int | None = None,
        copies: int | None = None,
    ):
        super().__init__(workers=1)
        self.rows, self.transform = rows, transform
        self.steps, self.seed, self.first_step = steps, seed, first_step
        self.epoch, self.copies = epoch, copies
        if copies is not None and epoch is None:
            raise ValueError("copies of masks need an epoch, after which the rows come again.")
        self.turns = [shape for shape in shapes for _ in range(shape.share)][::-1]
        total, longest = len(rows.shards.tokens), max(shape.length for shape in shapes)
        if total < longest:
            raise ValueError(f"the corpus has {total} tokens; one row takes {longest}.")

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> tuple:
        step = self.first_step + index
        row_step = step if self.epoch is None else step % self.epoch
        mask_step = step if self.copies is None else step % (self.epoch * self.copies)
        inputs = self.rows(self.shape(step), self._generator(row_step, 0))
        return self.transform(inputs, self._generator(mask_step, 1))

    def shape(self, step: int) -> Shape:
        """The shape of batch `step` of the run."""
        row_step = step if self.epoch is None else step % self.epoch
        return self.turns[row_step % len(self.turns)]

    def _generator(self, step: int, use: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=[self.seed, use], counter=[0, 0, 0, step]))


class FullSentences:
    """[CLS], a sentence and what follows it until the row is full, [SEP]; over documents' ends if need be.

    Each row begins at a sentence drawn anew. `short` of the rows end with their first sentence, since a model that only
    ever saw full rows is poor at single sentences (for the same reason BERT has short_seq_prob).

    Source: Liu et al. 2019, section 4.2.

    Raises:
        ValueError: The corpus holds no words.
    """

    def __init__(self, shards: Shards, short: float = 0.1, sentences: Sentences | None = None):
        self.shards, self.short = shards, short
        self.sentences = sentences or Sentences(shards)
        if len(self.sentences.starts) == 0:
            raise ValueError("the corpus holds no words.")

    def __call__(self, shape: Shape, rng: np.random.Generator) -> dict[str, np.ndarray]:
        tokenizer, tokens, room = self.shards.tokenizer, self.shards.tokens, shape.length - 2
        # The last sentences, which leave no room for a row, begin none.
        fitting = max(1, np.searchsorted(self.sentences.starts, len(tokens) - shape.length, "right"))
        chosen = rng.integers(0, fitting, shape.batch_size)
        starts = self.sentences.starts[chosen]
        sizes = np.where(rng.random(shape.batch_size) < self.short, self.sentences.ends[chosen] - starts, room)
        sizes = np.minimum(sizes, room)[:, None]
        places = np.arange(shape.length)
        ids = tokens[np.minimum(starts[:, None] + np.minimum(places, room), len(tokens) - 1)].astype("int32")
        ids = np.concatenate([np.full((shape.batch_size, 1), tokenizer.cls_id, "int32"), ids[:, :-1]], axis=1)
        # A row that ends with its document has that document's separator already.
        sizes = sizes - (np.take_along_axis(ids, sizes, axis=1) == tokenizer.sep_id)
        ids[places > sizes] = tokenizer.pad_id
        np.put_along_axis(ids, sizes + 1, tokenizer.sep_id, axis=1)
        lengths = (sizes[:, 0] + 2).astype("int32")
        return {"token_ids": ids, "padding_mask": (places < lengths[:, None]).astype("int32"), "lengths": lengths}
