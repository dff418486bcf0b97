"""What a TOML file asks for: read, checked, and turned into models, rows and numbers."""

import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.models.config import EncoderConfig
from bertzoo.models.registry import FAMILIES
from bertzoo.pretraining.rows import Shape
from bertzoo.pretraining.shards import Shards
from bertzoo.text.masking import Masking
from bertzoo.training.optimizer import AdamW

RECIPES = Path(__file__).with_name("recipes")
MASKING = ("share", "masked", "random", "words", "max_ngram", "rarity")
GENERATOR = ("hidden", "layers", "weight", "sharing")
DISTILLATION = ("teacher", "layers", "temperature", "soft", "hard", "cosine")


@dataclass(frozen=True)
class Training:
    """The table `training`.

    steps: batches; `accumulate` of them make an update. objective: see `bertzoo.pretraining.objectives`. seed: of the
    weights, rows, masks and dropout. dtype, dropout, attention_dropout, remat: of the encoder. learning_rate to
    clip: of the optimizer; a `clip` of 0 clips nothing. short: share of short rows. epoch, mask_copies: see
    `CorpusRows`. every: steps to a point of the curve. verbose: 0 prints nothing.
    """

    steps: int
    learning_rate: float
    objective: str = "mlm"
    seed: int = 0
    dtype: str = "float32"
    dropout: float | None = None
    attention_dropout: float = 0.0
    remat: bool = False
    weight_decay: float = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.98
    epsilon: float = 1e-8
    bias_correction: bool = True
    warmup: float = 0.05
    schedule: str = "linear"
    clip: float | None = 1.0
    accumulate: int = 1
    short: float = 0.1
    epoch: int | None = None
    mask_copies: int | None = None
    every: int = 100
    verbose: int = 1

    def optimizer(self) -> AdamW:
        """An optimizer whose schedule covers the run."""
        optimizer = AdamW(
            self.learning_rate,
            self.weight_decay,
            self.beta_1,
            self.beta_2,
            self.epsilon,
            bias_correction=self.bias_correction,
            warmup=self.warmup,
            schedule=self.schedule,
            global_clipnorm=self.clip or None,
            gradient_accumulation_steps=self.accumulate if self.accumulate > 1 else None,
        )
        optimizer.set_total_steps(max(1, self.steps // self.accumulate))
        return optimizer

    def encoder_options(self) -> dict[str, Any]:
        """What `Encoder` takes besides its configuration."""
        names = ("dtype", "dropout", "attention_dropout", "remat")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Plan:
    """A run: its tables, and the corpus.

    Raises:
        ValueError: A table or key is missing or unknown, or a value does not suit the corpus.
    """

    encoder: dict[str, Any]
    training: Training
    shapes: tuple[Shape, ...]
    masking_table: dict[str, Any]
    generator: dict[str, Any]
    distillation: dict[str, Any]
    shards: Shards

    @classmethod
    def read(cls, file: str | Path, shards: Shards) -> "Plan":
        """Reads a file, or the recipe of that name that bertzoo carries."""
        content = read_toml(file)
        names = [field.name for field in fields(Training)]
        training = Training(**_checked("training", content["training"], names))
        if training.steps < 1 or training.every < 1 or training.accumulate < 1:
            raise ValueError("[training] steps, every and accumulate must be 1 or more.")
        if training.accumulate > training.steps:
            raise ValueError(
                f"[training] accumulate is {training.accumulate} and there are {training.steps} steps, so that no "
                "weight would change: raise steps, or accumulate fewer."
            )
        rows = [_checked("batches", row, ("length", "batch_size", "share")) for row in content["batches"]]
        return cls(
            content.get("encoder", {}),
            training,
            tuple(Shape(**row) for row in rows),
            _checked("masking", content.get("masking", {}), MASKING),
            _checked("generator", content.get("generator", {}), GENERATOR),
            _checked("distillation", content.get("distillation", {}), DISTILLATION),
            shards,
        )

    def config(self) -> EncoderConfig:
        """The encoder's configuration, for the vocabulary of the shards."""
        table, tokenizer = dict(self.encoder), self.shards.tokenizer
        model_type = table.get("model_type", "bert")
        if model_type not in FAMILIES:
            raise ValueError(
                f"[encoder] model_type must be one of {', '.join(sorted(FAMILIES))}; it is {model_type!r}."
            )
        table = {"vocab_size": tokenizer.vocabulary_size, "pad_token_id": tokenizer.pad_id, **table}
        if table["vocab_size"] < tokenizer.vocabulary_size:
            raise ValueError(
                f"[encoder] vocab_size is {table['vocab_size']}; the shards' vocabulary has "
                f"{tokenizer.vocabulary_size} pieces. Leave it out."
            )
        try:
            return FAMILIES[model_type].config_class(**table)
        except TypeError as error:
            raise ValueError(f"[encoder] has a field that {model_type} does not know: {error}.") from None

    def masking(self, **defaults) -> Masking:
        """The rule of the table `masking`."""
        rule = {**defaults, **self.masking_table}
        rarity = rule.pop("rarity", 0.0)
        if rarity:
            rule["weights"] = tuple(rarity_weights(self.shards, rarity).tolist())
        return Masking.for_tokenizer(self.shards.tokenizer, **rule)

    def fingerprint(self) -> dict[str, Any]:
        """What makes this run and no other, as JSON has it, for a run that goes on to compare with."""
        training = {key: value for key, value in asdict(self.training).items() if key not in ("verbose", "every")}
        tables = ("encoder", "masking_table", "generator", "distillation")
        vocabulary = json.dumps(sorted(self.shards.tokenizer.vocabulary.items()))
        return {
            **training,
            **{name: getattr(self, name) for name in tables},
            "batches": [asdict(shape) for shape in self.shapes],
            "tokens": len(self.shards.tokens),
            "documents": len(self.shards.documents) - 1,
            "vocabulary": hashlib.sha256(vocabulary.encode()).hexdigest()[:16],
        }

    @property
    def longest(self) -> int:
        """Tokens in the longest rows."""
        return max(shape.length for shape in self.shapes)

    def check_lengths(self, config: EncoderConfig) -> None:
        """Raises ValueError where rows are longer than the encoder takes."""
        if self.longest > config.max_length:
            raise ValueError(f"[[batches]] has rows of {self.longest} tokens; the encoder takes {config.max_length}.")


def read_toml(file: str | Path) -> dict[str, Any]:
    """The tables of a run's file, or of the recipe of that name.

    Raises:
        ValueError: It is no TOML, or a table or needed key is missing.
    """
    path = Path(file)
    if not path.suffix and not path.exists() and (RECIPES / f"{path}.toml").is_file():
        path = RECIPES / f"{path}.toml"
    try:
        content = tomllib.loads(path.read_bytes().decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no TOML: {error}.") from None
    kinds = {"training": dict, "batches": list}
    if "distillation" not in content:
        kinds = {"encoder": dict, **kinds}
    missing = [name for name, kind in kinds.items() if not isinstance(content.get(name), kind)]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}: it needs [encoder], [training] and [[batches]].")
    unknown = set(content) - {"encoder", "training", "batches", "masking", "generator", "distillation"}
    if unknown:
        raise ValueError(f"{path} has tables that mean nothing here: {', '.join(sorted(unknown))}.")
    missing = [name for name in ("steps", "learning_rate") if name not in content["training"]]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)} in [training].")
    return content


def _checked(table: str, content: dict[str, Any], known) -> dict[str, Any]:
    unknown = sorted(set(content) - set(known))
    if unknown:
        raise ValueError(f"[{table}] has no key {', '.join(unknown)}; it has {', '.join(known)}.")
    return content


def rarity_weights(shards: Shards, power: float) -> np.ndarray:
    """count ** -power for each token of the vocabulary, so that rare ones are masked more readily (DistilBERT: 0.7)."""
    counts = np.zeros(shards.tokenizer.vocabulary_size)
    for first in range(0, len(shards.tokens), 2**24):
        counts += np.bincount(shards.tokens[first : first + 2**24], minlength=len(counts))
    return np.maximum(counts, 1.0) ** -power
