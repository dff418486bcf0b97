"""The way of a task's data, from what a user passes to batches: parse, tokenize, encode the targets, batch."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from bertzoo.data.batch_shapes import (
    UNCOMPILED_TOKENS,
    check_batch_size,
    choose_max_shapes,
    choose_num_buckets,
    is_any_batch_shape_fast,
)
from bertzoo.data.batches import BucketedDataset, SeededDataset
from bertzoo.data.labels import class_weight_array, encode_sample_weight, encode_targets
from bertzoo.data.packed_batches import PackedDataset
from bertzoo.data.parsing import Examples, Schema, parse_inputs, take_rows
from bertzoo.data.schemas import TEXTS, TextSchema
from bertzoo.data.streams import StreamDataset, is_batch_stream
from bertzoo.models.config import EncoderConfig
from bertzoo.random import get_seed, numpy_generator
from bertzoo.text.encoded import Encoded, encoded_from_arrays, prepend_prompt
from bertzoo.text.masking import Masking, StaticMasking
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.windows import encode_without_truncation
from bertzoo.types import REGRESSION, SINGLE_LABEL


class TaskData:
    """Parses, tokenizes and batches what users pass to a task: here texts and pairs of texts.

    `parse` reads and validates the input once; `encode` and `encode_targets` make arrays of it; `make_dataset` is the
    one place where rows of tokens become batches.

    Args:
        tokenizer: Turns texts into tokens; None if the caller tokenizes.
        config: The encoder's, for the size of its vocabulary and its padding token.
        schema: What the task reads.
    """

    # The labels that `fit`'s class_weight weighs; None where it can't.
    weighed_labels: list[str] | None = None
    # Whether texts may be laid side by side in rows: not where a token is read that others do not attend to.
    packs: bool = True
    # Whether what is done to inputs may be done to batches of any shape.
    transforms_any_shape: bool = False

    def __init__(self, tokenizer: Tokenizer | None, config: EncoderConfig, schema: Schema = TEXTS):
        self.tokenizer, self.config, self.schema, self.seed = tokenizer, config, schema, get_seed()

    # ---- what kinds of data define

    def parse(self, x: Any, y: Any = None) -> Examples:
        """Reads x and y in any form that the schema allows; without a tokenizer, a dict of arrays or `token_ids`."""
        if self.tokenizer is not None or isinstance(x, Examples):
            return parse_inputs(x, y, schema=self.schema)
        return Examples(x if isinstance(x, dict) else {"token_ids": x}, y)

    def encode(self, examples: Examples) -> Any:
        """Tokenizes examples, to `Encoded` or another class that `SeededDataset` takes."""
        if self.tokenizer is None:
            return encoded_from_arrays(examples.columns, self.config.vocab_size)
        return self.tokenizer.encode(examples["text"], examples.get("second text"))

    def encode_targets(self, examples: Examples) -> np.ndarray | None:
        """The targets of examples as an array, or None where batches make their own."""
        raise NotImplementedError

    def stratification_classes(self, examples: Examples) -> np.ndarray | None:
        """The class of each example, int (n,), by which `validation_split` is stratified; None where there are none."""
        return None

    # ---- the path

    def require_tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            ValueError: There is none.
        """
        if self.tokenizer is None:
            raise ValueError("the task has no tokenizer: call the model with token_ids (and mask_positions) instead.")
        return self.tokenizer

    @property
    def pad_id(self) -> int:
        """The id of padding tokens."""
        return self.config.pad_token_id if self.tokenizer is None else self.tokenizer.pad_id

    def class_weight_array(self, class_weight: Mapping[Any, float] | None) -> np.ndarray | None:
        """`fit`'s class_weight as float32 (classes,); None stays None.

        Raises:
            ValueError: The task has no classes, or a key is not a class.
        """
        if class_weight is None:
            return None
        if self.weighed_labels is None or not isinstance(class_weight, Mapping):
            raise ValueError(
                "class_weight must be a dict of weights by label, for a task with one label a text or word (a CRF "
                f"scores whole sentences: pass sample_weight). Received: {class_weight!r:.80}."
            )
        return class_weight_array(class_weight, self.weighed_labels)

    def batches(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        shuffle: bool = True,
        steps: int | None = None,
        with_targets: bool | None = None,
        prompt: str = "",
        batch_size: int | None = None,
    ) -> SeededDataset | StreamDataset:
        """Batches of what a user passes.

        Args:
            x: Examples in any form that `parse` takes, or a stream of batches.
            y: Targets, where x does not hold them.
            sample_weight: float (n,).
            shuffle: A seeded order, another one in each epoch.
            steps: Batches of a stream in an epoch.
            with_targets: Whether the batches need targets; where None, if there are some, or for shuffled batches.
            prompt: Text before the first text of each example of a stream.
            batch_size: Examples in a batch; 32 where None.
        """
        if isinstance(x, (SeededDataset, StreamDataset)):
            return x
        if is_batch_stream(x):
            if y is not None or sample_weight is not None:
                raise ValueError("a stream has targets and weights in its batches: pass no y and no sample_weight.")
            convert = partial(self._convert_prompted, prompt=prompt) if prompt else self.convert_batch
            return StreamDataset(x, convert, steps)
        examples = self.parse(x, y)
        if len(examples) == 0:
            raise ValueError("x is empty.")
        with_targets = examples.targets is not None or shuffle if with_targets is None else with_targets
        weights = encode_sample_weight(sample_weight, len(examples))
        return self.make_dataset_of_examples(examples, weights, with_targets, batch_size=batch_size, shuffle=shuffle)

    def add_prompt(self, examples: Examples, prompt: str) -> Examples:
        """Examples with a prompt before the first text of each; arrays stay as they are."""
        if not prompt or "text" not in examples.columns:
            return examples
        prompted = {**examples.columns, "text": prepend_prompt(examples["text"], prompt)}
        return dataclasses.replace(examples, columns=prompted)

    def _convert_prompted(self, batch: tuple, choose_length: Callable, prompt: str) -> tuple:
        x, *rest = batch
        x = x if is_tokenized(x) else self.add_prompt(self.parse(x), prompt)
        return self.convert_batch((x, *rest), choose_length)

    def make_dataset_of_examples(
        self, examples: Examples, sample_weights: np.ndarray | None, with_targets: bool, **options
    ) -> SeededDataset:
        """Examples -> tokens and targets -> batches; `options` are those of `make_dataset`."""
        encoded = self.encode(examples)
        targets = self.encode_targets(examples) if with_targets else None
        return self.make_dataset(encoded, targets, sample_weights, **options)

    def make_dataset(
        self,
        encoded: Any,
        targets: Any = None,
        sample_weights: np.ndarray | None = None,
        *,
        batch_size: int | None = None,
        shuffle: bool = False,
        group_by_length: bool | None = None,
        **options,
    ) -> SeededDataset:
        """Rows of tokens -> batches.

        Args:
            encoded: The rows.
            targets, sample_weights: Arrays (n, …) that go into the batches.
            batch_size: Rows in a batch; 32 where None.
            shuffle: A seeded order, another one in each epoch.
            group_by_length: Whether rows of similar length share a batch, for outputs that do not depend on the rest of
                the batch; where None, those that are not shuffled. Else batches are packed.
            options: Further ones of `BucketedDataset`, or of `PackedDataset`.
        """
        batch_size = 32 if batch_size is None else batch_size
        check_batch_size(batch_size)
        packs = shuffle if group_by_length is None else not group_by_length
        any_shape = options.get("transform") is None or self.transforms_any_shape
        if not packs and targets is None and any_shape and is_any_batch_shape_fast():
            options |= {"num_buckets": None, "max_tokens": UNCOMPILED_TOKENS}
        if targets is not None:
            columns = [targets] if sample_weights is None else [targets, sample_weights]
            finish = options.get("transform") or (lambda inputs, rows, rng: (inputs,))
            options["transform"] = lambda *batch: (*finish(*batch), *(column[batch[1]] for column in columns))
        options |= {"batch_size": batch_size, "pad_id": self.pad_id, "seed": self.seed}
        if packs:
            shapes = choose_max_shapes(len(encoded), batch_size)
            return PackedDataset(encoded, shuffle=shuffle, max_shapes=shapes, pack=self.packs, **options)
        options.setdefault("num_buckets", choose_num_buckets(len(encoded), batch_size))
        return BucketedDataset(encoded, **options)

    def convert_batch(self, batch: tuple, choose_length: Callable) -> tuple:
        """A batch of a stream, of texts or of arrays, for the model; see `StreamDataset` for `choose_length`."""
        x, *rest = batch
        if is_tokenized(x):
            return (x, self.encode_targets(Examples(x, rest[0])), *rest[1:]) if rest else batch
        tokenizer = self.require_tokenizer()
        examples = self.parse(x, rest[0] if rest else None)
        encoded = self.encode(examples)
        longest = choose_length(int(encoded.lengths.max(initial=0)), tokenizer.max_length)
        inputs = self.finish_inputs(encoded, encoded.pad(np.arange(len(encoded)), longest, self.pad_id))
        return (inputs,) if examples.targets is None else (inputs, self.encode_targets(examples), *rest[1:])

    def finish_inputs(self, encoded: Any, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The inputs of a batch of a stream, from rows of tokens and these padded."""
        return inputs

    def split_validation(self, x: Any, y: Any, sample_weight: Any, validation_fraction: float) -> tuple[tuple, ...]:
        """What `fit` takes in two parts, (examples, None, sample weights) each; the second for validation."""
        if is_batch_stream(x):
            raise ValueError("validation_split needs rows, and x is a stream of batches: pass validation_data instead.")
        examples = self.parse(x, y)
        rows = split_row_indices(len(examples), validation_fraction, self.seed, self.stratification_classes(examples))
        return tuple((examples.select(part), None, take_rows(sample_weight, part)) for part in rows)


def is_tokenized(x: Any) -> bool:
    """Whether a batch of a stream holds the encoder's inputs rather than texts."""
    return isinstance(x, dict) and "token_ids" in x


class LabelData(TaskData):
    """Texts or pairs of texts with labels or numbers.

    Args:
        tokenizer, config, schema: As for `TaskData`.
        labels: The names of the labels.
        problem_type: One of `bertzoo.types.PROBLEM_TYPES`.
        target_range: The least and greatest number that a regression may have, if there are limits.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        config: EncoderConfig,
        labels: list[str],
        problem_type: str,
        schema: Schema = TEXTS,
        target_range: tuple[float, float] = (-np.inf, np.inf),
    ):
        super().__init__(tokenizer, config, schema)
        self.labels, self.problem_type, self.limits = labels, problem_type, target_range
        self.weighed_labels = labels if problem_type == SINGLE_LABEL else None

    def encode_targets(self, examples: Examples) -> np.ndarray:
        targets = encode_targets(examples.targets, self.labels, self.problem_type, len(examples))
        low, high = self.limits
        if self.problem_type == REGRESSION and (targets.min() < low or targets.max() > high):
            raise ValueError(
                f"scores must lie between {low:g} and {high:g}. Received: values from {targets.min():g} to "
                f"{targets.max():g}. Scale them."
            )
        return targets

    def stratification_classes(self, examples: Examples) -> np.ndarray | None:
        return self.encode_targets(examples) if self.problem_type == SINGLE_LABEL else None


class MaskedData(TaskData):
    """Texts for masked language modelling, masked anew in each epoch, or once for evaluation.

    Args:
        tokenizer, config: As for `TaskData`.
        masking: The rule.
    """

    def __init__(self, tokenizer: Tokenizer | None, config: EncoderConfig, masking: Masking | None):
        super().__init__(tokenizer, config, TextSchema(targets=()))
        self.masking: Any = masking  # None only without a tokenizer, and then there is nothing to mask

    def parse(self, x: Any, y: Any = None) -> Examples:
        self.require_tokenizer()
        if y is not None:
            raise ValueError("masked language modelling makes its own targets; pass no y.")
        return super().parse(x)

    def encode(self, examples: Examples) -> Encoded:
        """Tokenizes examples. A text that is longer than the model takes becomes several rows; pairs are truncated."""
        if examples.get("second text") is not None:  # at the longer text, so that each row keeps both
            return super().encode(examples)
        return encode_without_truncation(self.require_tokenizer(), examples["text"])

    def dataset_and_mask_counts(self, x: Any, batch_size: int | None) -> tuple[SeededDataset, np.ndarray]:
        """Batches with the positions of [MASK] tokens, and the number of these in each text, int (n,).

        Texts that are longer than the model takes are truncated, so that each is one row.
        """
        encoded = super().encode(self.parse(x))
        counts = np.add.reduceat(encoded.token_ids == self.masking.mask_id, encoded.row_splits[:-1])
        most = max(1, int(counts.max(initial=0)))

        def add_positions(inputs, rows, rng):
            is_mask = inputs["token_ids"] == self.masking.mask_id
            positions = np.argsort(~is_mask, axis=1, kind="stable")[:, :most].astype("int32")
            # A batch of short texts may have fewer tokens than another text has masks.
            inputs["mask_positions"] = np.pad(positions, ((0, 0), (0, most - positions.shape[1])))
            return (inputs,)

        return self.make_dataset(encoded, batch_size=batch_size, transform=add_positions), counts

    def encode_targets(self, examples: Examples) -> None:
        return None

    def make_dataset(
        self, encoded: Encoded, targets: Any = None, sample_weights: Any = None, *, shuffle: bool = False, **options
    ) -> SeededDataset:
        if sample_weights is not None:
            raise ValueError("masked language modelling weighs all masked tokens alike; pass no sample_weight.")
        if shuffle:
            options["transform"] = lambda inputs, rows, rng: self.masking(inputs, rng)
            options["predictions_per_token"] = self.masking.mlm_probability
        elif "transform" not in options:
            masked = StaticMasking(self.masking, encoded, self.pad_id, self.seed)
            encoded, options["transform"] = masked.examples, masked.batch
        return super().make_dataset(encoded, shuffle=shuffle, **options)

    def convert_batch(self, batch: tuple, choose_length: Callable) -> tuple:
        if isinstance(batch[0], dict) and "mask_positions" in batch[0]:
            return batch
        raise ValueError(
            "texts in a stream are not masked: pass a list of texts, or batches that are masked, inputs with "
            "mask_positions, labels and weights, as bertzoo.pretraining.CorpusDataset gives them."
        )


def split_row_indices(
    num_rows: int, validation_fraction: float, seed: int, classes: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of both parts, ascending, int64: those to train on, and `int(fraction × count)` to validate with.

    Args:
        num_rows: Number of rows.
        validation_fraction: Of the second part.
        seed: Of the draw.
        classes: int (count,); each class then has its part of the second, to within one row.

    Raises:
        ValueError: `validation_fraction` leaves a part empty.
    """
    if not 0 < validation_fraction < 1:
        raise ValueError(f"validation_split must lie between 0 and 1. Received: {validation_fraction}.")
    held = int(num_rows * validation_fraction)
    if held in (0, num_rows):
        raise ValueError(f"validation_split={validation_fraction} leaves a part of the {num_rows} rows empty.")
    rng = numpy_generator(seed, "validation_split")
    order = rng.permutation(num_rows)
    if classes is not None:
        _, number, sizes = np.unique(np.asarray(classes)[order], return_inverse=True, return_counts=True)
        exact = sizes * held / num_rows
        quota = np.floor(exact).astype(int)
        # The rows still wanted go to the largest remainders, those alike in a drawn order; no class loses all its rows
        # to validation as long as there are others.
        order_of_classes = np.lexsort((rng.permutation(len(sizes)), quota - exact, quota + 1 >= sizes))
        quota[order_of_classes[: held - quota.sum()]] += 1
        by_class = np.argsort(number, kind="stable")
        rank = np.empty(num_rows, dtype=np.int64)  # of each row among those of its class
        rank[by_class] = np.arange(num_rows) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        order = order[np.argsort(rank >= quota[number], kind="stable")]
    return np.sort(order[held:]), np.sort(order[:held])
