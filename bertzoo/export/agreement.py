"""Whether a model in 8 bits agrees with itself in float32 on this machine: on texts that come with the package.

Processors differ in how they multiply 8-bit numbers, and models in how much they suffer from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bertzoo.text.encoded import Encoded, lengths_to_row_splits
from bertzoo.text.label_prompts import LABEL, WORD, rows_of_prompts
from bertzoo.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertzoo.export.engine import OnnxModel

LEAST = 0.99
MAX_LENGTH = 64  # tokens of a text
COSINE, LABELS, CORRELATION = "mean cosine", "share of equal labels", "correlation of scores"
# Rows to compare: more where each gives one label, few where each token gives a vocabulary of logits.
ROWS, ROWS_OF_LABELS, ROWS_OF_VOCABULARIES = 64, 200, 16
LABELLED_TOKENS = ("TokenClassifier", "MaskedLM", "ForPreTraining")


class Agreement(NamedTuple):
    """How far two models agree: what was measured, and the value, 1 for equal outputs."""

    measure: str
    value: float

    @property
    def is_enough(self) -> bool:
        return self.value >= LEAST  # NaN is not

    def __str__(self) -> str:
        return f"{self.measure} {self.value:.4f}"


def package_texts() -> list[str]:
    """Texts of many kinds and languages, then reviews in English."""
    package = Path(__file__).resolve().parents[1]
    reviews = (package / "data" / "reviews_en.tsv").read_text(encoding="utf-8").splitlines()[1:]
    texts = (package / "export" / "texts.txt").read_text(encoding="utf-8").splitlines()
    return [*texts, *(line.split("\t")[0] for line in reviews)]


def example_rows(
    tokenizer: Tokenizer | None,
    vocab_size: int,
    max_length: int,
    for_calibration: bool,
    prompts: Mapping[str, Any] | None = None,
) -> Encoded:
    """Rows of tokens: of every other text for calibration, of the others to compare; random ids without a tokenizer.

    Args:
        tokenizer: The model's, if it has one.
        vocab_size, max_length: What its ids and rows are limited to.
        for_calibration: Which half of the texts.
        prompts: The settings of a model that reads prompts of label names; its rows then hold the tokens' roles.
    """
    limit = min(max_length, MAX_LENGTH)
    if tokenizer is not None:
        texts = package_texts()[int(for_calibration) :: 2][: ROWS if for_calibration else ROWS_OF_LABELS]
        if prompts is not None:
            return rows_of_prompts(tokenizer, prompts, texts, limit)
        return tokenizer.encode(texts, max_length=limit)
    rng = np.random.default_rng(int(for_calibration))
    lengths = rng.integers(1 if prompts is None else 2, limit + 1, ROWS_OF_LABELS)
    return random_rows(rng, lengths, vocab_size, with_roles=prompts is not None)


def random_rows(rng: np.random.Generator, lengths: np.ndarray, vocab_size: int, with_roles: bool) -> Encoded:
    """Rows of random token ids.

    Args:
        rng: Draws the ids.
        lengths: int (rows,), the tokens of each row.
        vocab_size: One more than the largest id.
        with_roles: Whether `segment_ids` are the tokens' roles: each row's first token stands for a label, the others
            for words.
    """
    ids = rng.integers(0, vocab_size, lengths.sum(), dtype="int32")
    splits, segments = lengths_to_row_splits(lengths), np.zeros(len(ids), "int8")
    if with_roles:
        segments[:] = WORD
        segments[splits[:-1]] = LABEL
    return Encoded(ids, segments, splits)


def example_rows_of(model: OnnxModel, for_calibration: bool) -> Encoded:
    """`example_rows` for an exported model."""
    settings = model.settings
    prompts = settings if model.reads_token_roles else None
    return example_rows(model.tokenizer, settings["vocab_size"], settings["max_length"], for_calibration, prompts)


def measure_agreement(exact: OnnxModel, other: OnnxModel) -> Agreement:
    """How far the outputs of two exports of one model agree.

    Args:
        exact: The model in float32.
        other: The same in 8 bits.
    """
    settings, output = exact.settings, exact.output_names[0]
    rows = example_rows_of(exact, for_calibration=False)
    has_vocabulary = exact.task in ("MaskedLM", "ForPreTraining")
    labels_rows = exact.task == "NextSentencePredictor" or (
        settings.get("problem_type") == "single_label_classification"
    )
    count = ROWS_OF_VOCABULARIES if has_vocabulary else ROWS_OF_LABELS if labels_rows else ROWS
    rows = rows.slice_rows(0, min(count, len(rows)))
    first, second = (model.run(rows, [output])[output] for model in (exact, other))
    if exact.is_per_token(output):
        real = np.arange(first.shape[1]) < rows.lengths[:, None]
        first, second = first[real], second[real]
    if labels_rows or exact.task in LABELLED_TOKENS:
        return Agreement(LABELS, float((first.argmax(axis=-1) == second.argmax(axis=-1)).mean()))
    if output == "logits":
        return Agreement(CORRELATION, float(np.corrcoef(first.ravel(), second.ravel())[0, 1]))
    norms = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return Agreement(COSINE, float(((first * second).sum(axis=-1) / np.maximum(norms, 1e-30)).mean()))
