"""Texts whose tokens are masked batch by batch, for masked language modelling."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from bertzoo.data.batches import BucketedDataset
from bertzoo.data.parsing import Examples
from bertzoo.data.schemas import TEXTS
from bertzoo.data.task_data import TaskData
from bertzoo.models.config import EncoderConfig
from bertzoo.text.encoded import Encoded
from bertzoo.text.masking import Masking, StaticMasking
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.windows import whole_rows


class MaskedData(TaskData):
    """Texts, masked anew in each epoch, or once for evaluation.

    Args:
        tokenizer, config: As for `TaskData`.
        masking: The rule.
    """

    random_batches = True

    def __init__(self, tokenizer: Tokenizer | None, config: EncoderConfig, masking: Masking | None):
        super().__init__(tokenizer, config, dataclasses.replace(TEXTS, targets=()))
        self.masking: Any = masking  # None only without a tokenizer, and then there is nothing to mask

    def parse(self, x: Any, y: Any = None) -> Examples:
        self.require_tokenizer()
        if y is not None:
            raise ValueError("masked language modelling makes its own targets; pass no y.")
        return super().parse(x)

    def encode(self, examples: Examples, prompt: str = "") -> Encoded:
        """Tokenizes examples. A text that is longer than the model takes becomes several rows; pairs are truncated."""
        if examples.get("second text") is not None:  # at the longer text, so that each row keeps both
            return super().encode(examples, prompt)
        return whole_rows(self.require_tokenizer(), examples["text"])

    def prediction_batches(self, x: Any, batch_size: int | None) -> tuple[BucketedDataset, np.ndarray]:
        """Batches with the positions of [MASK] tokens, and the number of these in each text, int (n,).

        Texts that are longer than the model takes are truncated, so that each is one row.
        """
        encoded = super().encode(self.parse(x))
        counts = np.add.reduceat(encoded.token_ids == self.masking.mask_id, encoded.row_splits[:-1])
        most = max(1, int(counts.max(initial=0)))

        def add_positions(inputs, rows, rng):
            found = inputs["token_ids"] == self.masking.mask_id
            positions = np.argsort(~found, axis=1, kind="stable")[:, :most].astype("int32")
            # A batch of short texts may have fewer tokens than another text has masks.
            inputs["mask_positions"] = np.pad(positions, ((0, 0), (0, most - positions.shape[1])))
            return (inputs,)

        return self.make_dataset(encoded, batch_size=batch_size, transform=add_positions), counts

    def encode_targets(self, y: Any, count: int) -> None:
        return None

    def make_dataset(
        self,
        encoded: Encoded,
        targets: Any = None,
        weights: Any = None,
        batch_size: int | None = None,
        shuffle: bool = False,
        **options,
    ) -> BucketedDataset:
        if weights is not None:
            raise ValueError("masked language modelling weighs all masked tokens alike; pass no sample_weight.")
        if shuffle:
            options["transform"] = lambda inputs, rows, rng: self.masking(inputs, rng)
        elif "transform" not in options:
            masked = StaticMasking(self.masking, encoded, self.pad_id, self.seed)
            encoded, options["transform"] = masked.examples, masked.batch
        return super().make_dataset(encoded, None, None, batch_size, shuffle, **options)

    def convert_batch(self, batch: tuple, width: Callable, prompt: str = "") -> tuple:
        if isinstance(batch[0], dict) and "mask_positions" in batch[0]:
            return batch
        raise ValueError(
            "texts in a stream are not masked: pass a list of texts, or batches that are masked, inputs with "
            "mask_positions, labels and weights, as bertzoo.pretraining.CorpusDataset gives them."
        )
