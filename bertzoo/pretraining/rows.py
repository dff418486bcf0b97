"""Batches of full rows cut from a corpus, masked as they are read (RoBERTa's full sentences, Liu et al. 2019, section 4.2)."""

from collections.abc import Callable

import keras
import numpy as np

from bertzoo.pretraining.shards import Shards


class PackedRows(keras.utils.PyDataset):
    """[CLS] and length - 2 tokens that follow each other in the corpus and [SEP]: no padding, rows go over documents' ends.

    Epoch `e` starts its cuts at another place and shuffles the rows, both from (seed, e). A batch is what `transform` makes
    of the inputs and the generator of (seed, batch number): masking, as a rule.

    Args:
        shards: The corpus.
        length: Tokens in a row, special tokens included.
        batch_size: Rows in a batch.
        transform: (inputs, generator) -> batch.
        seed: Of the order and the masks.
        steps: Batches in all, over as many epochs as they take.
        first_step: Batches that an earlier part of the run has had.

    Raises:
        ValueError: The corpus has fewer rows than a batch.
    """

    def __init__(self, shards: Shards, length: int, batch_size: int, transform: Callable, *, seed: int = 0, steps: int = 1000,
                 first_step: int = 0):
        super().__init__(workers=1)
        self.shards, self.length, self.batch_size, self.transform = shards, length, batch_size, transform
        self.seed, self.steps, self.first_step = seed, steps, first_step
        # One row is given up to the shift of each epoch.
        self.batches_an_epoch = (len(shards.tokens) // (length - 2) - 1) // batch_size
        if self.batches_an_epoch < 1:
            raise ValueError(
                f"the corpus has {len(shards.tokens)} tokens, fewer than one batch of {batch_size} rows of {length} needs."
            )
        self._epoch, self._starts = -1, None

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> tuple:
        step = self.first_step + index
        epoch, batch = divmod(step, self.batches_an_epoch)
        starts = self._starts_of(epoch)[batch * self.batch_size : (batch + 1) * self.batch_size]
        ids = np.empty((self.batch_size, self.length), dtype="int32")
        ids[:, 0], ids[:, -1] = self.shards.tokenizer.cls_id, self.shards.tokenizer.sep_id
        ids[:, 1:-1] = self.shards.tokens[starts[:, None] + np.arange(self.length - 2)]
        inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
        return self.transform(inputs, _generator(self.seed, 1, step))

    def _starts_of(self, epoch: int) -> np.ndarray:
        if epoch != self._epoch:
            rng = _generator(self.seed, 0, epoch)
            shift = rng.integers(0, self.length - 2)
            rows = rng.permutation(len(self.shards.tokens) // (self.length - 2) - 1)
            self._epoch, self._starts = epoch, rows.astype(np.int64) * (self.length - 2) + shift
        return self._starts


def _generator(seed: int, kind: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, kind], counter=[0, 0, 0, number]))
