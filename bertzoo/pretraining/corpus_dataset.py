"""Batches of examples sampled from a corpus, masked when they are read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import keras
import numpy as np

from bertzoo.pretraining.corpus import Sentences, TokenCorpus, sentences_of


@dataclass(frozen=True)
class BatchSpec:
    """Batches of `batch_size` examples of `length` tokens; in each round there are `share` batches of this shape."""

    length: int
    batch_size: int
    share: int = 1


class CorpusDataset(keras.utils.PyDataset):
    """Batches sampled from a corpus; none is ever stored.

    Examples are sampled with replacement: steps that hold as many tokens as the corpus read about 63 % of it (1 - 1/e)
    at least once.

    Batch `i` depends on (seed, i) only, so that a run is the same on every backend and can be resumed at any step. With
    `steps_per_epoch`, the examples repeat after that many batches with new masks (dynamic masking, Liu et al. 2019,
    section 4.1); with `dupe_factor` the masks repeat too, after that many epochs (static masking: 10 in BERT).

    Args:
        examples: (spec, generator) -> inputs, int32: `FullSentences` or another sampler.
        batches: The shapes of batches; they alternate, so that all positions are trained throughout.
        transform: (inputs, generator) -> batch; usually the masking.
        steps: Number of batches.
        seed: Seed of the examples and masks.
        first_step: Number of batches of an earlier part of the run.
        steps_per_epoch: Batches after which the examples repeat; None for never.
        dupe_factor: Epochs after which the masks repeat; None for never.

    Raises:
        ValueError: The corpus has fewer tokens than an example, or there is a dupe_factor without steps_per_epoch.
    """

    def __init__(
        self,
        examples: Callable[[BatchSpec, np.random.Generator], dict[str, np.ndarray]],
        batches: Sequence[BatchSpec],
        transform: Callable | None,
        *,
        steps: int,
        seed: int = 0,
        first_step: int = 0,
        steps_per_epoch: int | None = None,
        dupe_factor: int | None = None,
    ):
        super().__init__(workers=1)
        self.examples, self.transform = examples, transform
        self.steps, self.seed, self.first_step = steps, seed, first_step
        self.steps_per_epoch, self.dupe_factor = steps_per_epoch, dupe_factor
        if dupe_factor is not None and steps_per_epoch is None:
            raise ValueError("dupe_factor needs steps_per_epoch, after which the examples repeat.")
        self.round = [spec for spec in batches for _ in range(spec.share)][::-1]
        total, longest = len(examples.corpus.tokens), max(spec.length for spec in batches)
        if total < longest:
            raise ValueError(f"an example takes {longest} tokens. Received: a corpus of {total}.")

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> tuple:
        step = self.first_step + index
        mask_step = step if self.dupe_factor is None else step % (self.steps_per_epoch * self.dupe_factor)
        inputs = self.examples(self.spec(step), self._generator(self._step_of_epoch(step), 0))
        return self.transform(inputs, self._generator(mask_step, 1))

    def spec(self, step: int) -> BatchSpec:
        """The shape of batch `step` of the run."""
        return self.round[self._step_of_epoch(step) % len(self.round)]

    def _step_of_epoch(self, step: int) -> int:
        return step if self.steps_per_epoch is None else step % self.steps_per_epoch

    def _generator(self, step: int, use: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=[self.seed, use], counter=[0, 0, 0, step]))


class FullSentences:
    """[CLS], a sentence and the text that follows it until the example is full, [SEP]; also across documents.

    Source: Liu et al. 2019, section 4.2.

    Args:
        corpus: The corpus.
        short_seq_prob: Share of the examples that end with their first sentence, since a model trained on full
            examples only is poor at single sentences.
        sentences: The sentences of the corpus; found if None.

    Raises:
        ValueError: The corpus holds no words.
    """

    def __init__(self, corpus: TokenCorpus, short_seq_prob: float = 0.1, sentences: Sentences | None = None):
        self.corpus, self.short_seq_prob = corpus, short_seq_prob
        self.sentences = sentences_of(corpus, sentences)

    def __call__(self, spec: BatchSpec, rng: np.random.Generator) -> dict[str, np.ndarray]:
        tokenizer, tokens, room = self.corpus.tokenizer, self.corpus.tokens, spec.length - 2
        # No example begins at the last sentences, which leave no room for one.
        fitting = max(1, np.searchsorted(self.sentences.starts, len(tokens) - spec.length, "right"))
        chosen = rng.integers(0, fitting, spec.batch_size)
        starts = self.sentences.starts[chosen]
        sizes = np.where(rng.random(spec.batch_size) < self.short_seq_prob, self.sentences.ends[chosen] - starts, room)
        sizes = np.minimum(sizes, room)[:, None]
        columns = np.arange(spec.length)
        ids = tokens[np.minimum(starts[:, None] + np.minimum(columns, room), len(tokens) - 1)].astype("int32")
        ids = np.concatenate([np.full((spec.batch_size, 1), tokenizer.cls_id, "int32"), ids[:, :-1]], axis=1)
        # An example that ends with its document already has the document's separator.
        sizes = sizes - (np.take_along_axis(ids, sizes, axis=1) == tokenizer.sep_id)
        ids[columns > sizes] = tokenizer.pad_id
        np.put_along_axis(ids, sizes + 1, tokenizer.sep_id, axis=1)
        lengths = (sizes[:, 0] + 2).astype("int32")
        return {"token_ids": ids, "padding_mask": (columns < lengths[:, None]).astype("int32"), "lengths": lengths}
