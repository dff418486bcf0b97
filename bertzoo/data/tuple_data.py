"""Examples of several texts, each encoded alone: the rows of sentence losses, and the choices of multiple choice."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np
from keras import ops

from bertzoo.data.batch_shapes import check_batch_size, choose_batch_size, choose_num_buckets_for_embedding
from bertzoo.data.batches import SeededDataset
from bertzoo.data.labels import encode_choice_targets, encode_sentence_targets
from bertzoo.data.parsing import Examples
from bertzoo.data.schemas import CHOICES, TUPLES, TupleSchema
from bertzoo.data.task_data import TaskData
from bertzoo.losses.base import SentenceLoss
from bertzoo.models.config import EncoderConfig
from bertzoo.text.encoded import CheckedTexts, Encoded, encoded_from_arrays, prepend_prompt, to_text_list
from bertzoo.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class EncodedTuples:
    """Rows of several texts, as `SeededDataset` takes them; padded they are int32 (rows, columns, length).

    With `present` bool (n, columns), False where a row lacks a text, batches have a `choice_mask`.
    """

    columns: Sequence[Encoded]
    present: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def texts(self) -> Sequence[Encoded]:
        """The texts of each column, those too that the encoder does not read."""
        return self.columns

    @cached_property
    def text_lengths(self) -> np.ndarray:
        """(n, columns) int64: tokens of each text."""
        return np.stack([column.lengths for column in self.columns], axis=1)

    @property
    def lengths(self) -> np.ndarray:
        """(n,) int64: tokens of the longest text of each row."""
        return self.text_lengths.max(axis=1)

    def pad(
        self, row_indices: Any, length: int, pad_id: int = 0, return_lengths: bool = False
    ) -> dict[str, np.ndarray]:
        """`token_ids`, `segment_ids` and `padding_mask`, each int32 (len(row_indices), columns, length)."""
        padded = [column.pad(row_indices, length, pad_id, return_lengths) for column in self.columns]
        batch = {name: np.stack([column[name] for column in padded], axis=1) for name in padded[0]}
        return batch if self.present is None else {**batch, "choice_mask": self.present[row_indices].astype("int32")}


def flatten_tuple_inputs(inputs: Mapping) -> dict:
    """Inputs for tuples of texts, (rows, columns, …), as those for rows * columns single texts."""
    whole = ("packing", "first_text")
    return {name: x if name in whole else ops.reshape(x, (-1, *ops.shape(x)[2:])) for name, x in inputs.items()}


def column_prompt_types(count: int) -> list[str]:
    """What the texts of each column are: the first a query, the others documents."""
    return ["query", *["document"] * (count - 1)]


def _repeated_texts(tuples: EncodedTuples | Encoded) -> np.ndarray | None:
    """int (rows, columns): equal numbers for equal texts, as the encoder reads them; None where all differ."""
    numbers: dict[bytes, int] = {}
    columns = [
        [numbers.setdefault(column.row(i).tobytes(), len(numbers)) for i in range(len(column))]
        for column in getattr(tuples, "texts", [tuples])
    ]
    rows = np.array(columns).T
    within = sum(len(set(row)) for row in rows.tolist())  # a text may occur twice in its own row
    return rows if len(numbers) < within else None


class TupleData(TaskData):
    """Tuples of texts for a sentence loss.

    Args:
        tokenizer, config: As for `TaskData`.
        vector_width: Numbers in a vector.
    """

    def __init__(self, tokenizer: Tokenizer | None, config: EncoderConfig, vector_width: int):
        super().__init__(tokenizer, config, TUPLES)
        self.width = vector_width
        self.loss: SentenceLoss | None = None
        self.column_prompts: tuple[str, ...] = ()
        self.mini_batch_size: int | None = None
        self.no_duplicates: bool | None = None

    def set_loss(
        self,
        loss: SentenceLoss,
        column_prompts: Sequence[str] = (),
        mini_batch_size: int | None = None,
        no_duplicates: bool | None = None,
    ) -> None:
        """Makes rows and targets those of a loss.

        Args:
            loss: The loss.
            column_prompts, mini_batch_size, no_duplicates: See `SentenceEncoder.compile`.
        """
        self.loss, self.column_prompts = loss, tuple(column_prompts)
        self.mini_batch_size, self.no_duplicates = mini_batch_size, no_duplicates
        self.schema = TUPLES if loss.target is not None else TupleSchema(targets=())

    @property
    def loss_options(self) -> dict[str, Any]:
        """The arguments of `set_loss` besides the loss, by name."""
        return {name: getattr(self, name) for name in ("column_prompts", "mini_batch_size", "no_duplicates")}

    def require_loss(self) -> SentenceLoss:
        """The loss, which defines what rows and targets must be.

        Raises:
            ValueError: The task is not compiled.
        """
        if self.loss is None:
            raise ValueError("call compile() first: the loss defines what rows and targets must be.")
        return self.loss

    def encode(self, examples: Examples) -> Encoded | EncodedTuples:
        if self.tokenizer is None:
            return super().encode(examples)
        columns = list(examples.columns.values())
        prompts, kinds = self.prompts_for(len(columns)), column_prompt_types(len(columns))
        encoded = [
            self.encode_texts(prepend_prompt(texts, prompt), kind)
            for texts, prompt, kind in zip(columns, prompts, kinds)
        ]
        return encoded[0] if len(encoded) == 1 else EncodedTuples(encoded)

    def prompts_for(self, count: int) -> list[str]:
        """What is put before the texts of each of `count` columns: the last prompt before those of all further ones."""
        prompts = self.column_prompts or ("",)
        return [*prompts, *prompts[-1:] * count][:count]

    def encode_texts(self, texts: CheckedTexts, prompt_type: str | None) -> Encoded:
        """Tokenizes texts, prompts included; here, queries, documents and others (None) alike."""
        return self.require_tokenizer().encode(texts)

    def input_transform(self, prompt_types: Sequence[str | None]) -> Callable | None:
        """What is done to the inputs of each batch, as the `transform` of `SeededDataset`; here nothing.

        Args:
            prompt_types: What the texts of each column are: "query", "document" or None.
        """
        return None

    def _transform_of(self, encoded: Encoded | EncodedTuples) -> Callable | None:
        if isinstance(encoded, EncodedTuples):
            return self.input_transform(column_prompt_types(len(encoded.columns)))
        return self.input_transform([None])

    def finish_inputs(self, encoded: Any, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        transform = self._transform_of(encoded)
        return inputs if transform is None else transform(inputs, None, None)[0]

    def text_batches(
        self,
        texts: Any,
        prompt: str,
        include_prompt: bool,
        batch_size: int | None,
        padded_lengths: np.ndarray | None = None,
        prompt_type: str | None = None,
    ) -> SeededDataset | None:
        """Batches of single texts, to predict vectors from; None for no texts.

        Args:
            texts: A string or several; without a tokenizer a dict of arrays.
            prompt: Put before each text.
            include_prompt: Whether the pooling reads the prompt's tokens; else batches have a `pooling_mask`.
            batch_size: Texts in a batch; as many as keep the machine busy where None.
            padded_lengths: The padded lengths to use.
            prompt_type: What the texts are: "query", "document", or None.
        """
        if self.tokenizer is not None:
            encoded = self.encode_texts(prepend_prompt(to_text_list(texts), prompt), prompt_type)
        elif not prompt:
            encoded = encoded_from_arrays(texts, self.config.vocab_size)
        else:
            raise ValueError(
                f"without a tokenizer, the prompt {prompt!r:.60} can't be put before token_ids: put its tokens into "
                'them and pass prompt="".'
            )
        if len(encoded) == 0:
            return None
        options: dict[str, Any] = {}
        if prompt and not include_prompt:
            row = self.require_tokenizer().encode([prompt]).row(0)
            length = len(row) - (row[-1] in self.require_tokenizer().special_ids)

            def leave_out_prompt(inputs, rows, rng):
                inputs["pooling_mask"] = inputs["padding_mask"].copy()
                inputs["pooling_mask"][:, :length] = 0
                return (inputs,)

            options["transform"] = leave_out_prompt
        batch_size = choose_batch_size(encoded.lengths) if batch_size is None else batch_size
        check_batch_size(batch_size)
        options["num_buckets"] = choose_num_buckets_for_embedding(len(encoded), batch_size)
        options["padded_lengths"] = padded_lengths if options["num_buckets"] else None
        options.setdefault("transform", self.input_transform([prompt_type]))
        return self.make_dataset(encoded, batch_size=batch_size, pad_to_multiple_of=1, **options)

    def encode_targets(self, examples: Examples) -> np.ndarray:
        loss = self.require_loss()
        targets = encode_sentence_targets(examples.targets, loss.target, len(examples))
        loss.check_target_shape(targets)
        loss.check_targets(targets, self.width)
        return targets

    def stratification_classes(self, examples: Examples) -> np.ndarray | None:
        return self.encode_targets(examples) if self.require_loss().target == "classes" else None

    def make_dataset(
        self, encoded: Any, targets: Any = None, sample_weights: Any = None, *, shuffle: bool = False, **options
    ) -> SeededDataset:
        options.setdefault("transform", self._transform_of(encoded))
        if targets is not None:
            loss = self.require_loss()
            loss.check_columns(getattr(encoded, "texts", [encoded]))
            if loss.compares_examples:  # texts of similar length would be the negatives of each other
                options["group_by_length"] = False
            if loss.compares_examples or shuffle:  # packed
                options["mini_batch_size"] = self.mini_batch_size
            apart = loss.in_batch_negatives if self.no_duplicates is None else self.no_duplicates
            if shuffle and apart:
                options["keep_apart_ids"] = _repeated_texts(encoded)
        return super().make_dataset(encoded, targets, sample_weights, shuffle=shuffle, **options)


class ChoiceData(TaskData):
    """Questions with choices, each read together with its question."""

    def __init__(self, tokenizer: Tokenizer | None, config: EncoderConfig):
        super().__init__(tokenizer, config, CHOICES)

    def parse(self, x: Any, y: Any = None) -> Examples:
        if self.tokenizer is None:
            raise ValueError("without a tokenizer, pass ready batches of (inputs, answers), or call the model.")
        return super().parse(x, y)

    def encode(self, examples: Examples) -> EncodedTuples:
        # A row with fewer choices than another gets empty ones, which the loss and the probabilities leave out.
        counts = [len(row) for row in examples["choices"]]
        present = np.arange(max(counts)) < np.array(counts)[:, None]
        columns = zip_longest(*examples["second texts"], fillvalue="")
        tokenizer = self.require_tokenizer()
        encoded = [tokenizer.encode(examples["question"], list(column)) for column in columns]
        return EncodedTuples(encoded, None if present.all() else present)

    def encode_targets(self, examples: Examples) -> np.ndarray:
        if "choices" in examples.columns:
            return encode_choice_targets(examples)
        answers, choices = np.asarray(examples.targets), np.shape(examples["token_ids"])[1]
        if len(answers) and not 0 <= answers.min() <= answers.max() < choices:
            raise ValueError(
                f"answers are numbers from 0 to {choices - 1}, one of the {choices} choices. Received: values from "
                f"{answers.min()} to {answers.max()}."
            )
        return answers
