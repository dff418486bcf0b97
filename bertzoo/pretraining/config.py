"""The configuration of a pre-training run, read from a TOML file and checked."""

import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.models.config import EncoderConfig
from bertzoo.models.registry import FAMILIES
from bertzoo.pretraining.corpus import TokenCorpus
from bertzoo.pretraining.corpus_dataset import BatchSpec
from bertzoo.text.masking import Masking
from bertzoo.training.optimizer import AdamW

RECIPES = Path(__file__).with_name("recipes")


@dataclass(frozen=True)
class TrainingConfig:
    """The table [training].

    Args:
        steps: Batches; `gradient_accumulation_steps` of them make an update.
        learning_rate, weight_decay, beta_1, beta_2, epsilon, bias_correction, warmup, schedule: See `AdamW`.
        objective: A key of `bertzoo.pretraining.objectives.OBJECTIVES`.
        seed: Seed of the weights, examples, masks and dropout.
        dtype, dropout, attention_dropout, remat: See `Encoder`.
        global_clipnorm: Largest global norm of the gradients; 0 clips nothing.
        gradient_accumulation_steps: Batches of an update.
        short_seq_prob: Probability that an example is shorter than the batch (BERT).
        repeat_examples_after, repeat_masks_after: See `CorpusDataset`.
        log_every: Steps from one point of the loss curve to the next.
        verbose: 0 prints nothing.
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
    global_clipnorm: float | None = 1.0
    gradient_accumulation_steps: int = 1
    short_seq_prob: float = 0.1
    repeat_examples_after: int | None = None
    repeat_masks_after: int | None = None
    log_every: int = 100
    verbose: int = 1

    def __post_init__(self):
        accumulated = self.gradient_accumulation_steps
        if min(self.steps, self.log_every, accumulated) < 1:
            raise ValueError("[training] steps, log_every and gradient_accumulation_steps must be 1 or more.")
        if accumulated > self.steps:
            raise ValueError(
                f"[training] gradient_accumulation_steps must not exceed steps, or no weight would change. Received: "
                f"{accumulated} and {self.steps} steps."
            )

    def make_optimizer(self) -> AdamW:
        """An optimizer whose schedule covers the run."""
        accumulated = self.gradient_accumulation_steps
        optimizer = AdamW(
            **{name: getattr(self, name) for name in _ADAMW},
            global_clipnorm=self.global_clipnorm or None,
            gradient_accumulation_steps=accumulated if accumulated > 1 else None,
        )
        optimizer.set_total_steps(self.steps // accumulated)
        return optimizer

    def encoder_kwargs(self) -> dict[str, Any]:
        """The arguments of `Encoder` besides its configuration."""
        return {name: getattr(self, name) for name in ("dtype", "dropout", "attention_dropout", "remat")}


_ADAMW = ("learning_rate", "weight_decay", "beta_1", "beta_2", "epsilon", "bias_correction", "warmup", "schedule")
# Table -> its keys. Those of [encoder] depend on the family.
KEYS = {
    "training": tuple(field.name for field in fields(TrainingConfig)),
    "batches": tuple(field.name for field in fields(BatchSpec)),
    "masking": ("mlm_probability", "mask_prob", "random_prob", "whole_word_mask", "max_ngram", "rarity"),
    "generator": ("hidden", "layers", "weight", "sharing"),
    "distillation": ("teacher", "layers", "temperature", "alpha_ce", "alpha_mlm", "alpha_cos"),
}


@dataclass(frozen=True)
class PretrainConfig:
    """A pre-training run: the tables of its file, and the corpus.

    Args:
        encoder: The table [encoder]: fields of the family's configuration, or `from`, a preset to continue from.
        training: The table [training].
        batches: The tables [[batches]].
        masking: The table [masking]: arguments of `Masking.for_tokenizer`, and `rarity`, a power by which rarer tokens
            are masked more often.
        generator: The table [generator]: `hidden` and `layers`, the fractions of `generator_config`, and `weight` and
            `sharing` of `ReplacedTokenTraining`.
        distillation: The table [distillation]: `teacher`, a preset; `layers` of the student; and the temperature and
            weights of `Distillation`.
        corpus: The corpus.
    """

    encoder: dict[str, Any]
    training: TrainingConfig
    batches: tuple[BatchSpec, ...]
    masking: dict[str, Any]
    generator: dict[str, Any]
    distillation: dict[str, Any]
    corpus: TokenCorpus

    @classmethod
    def read(cls, path_or_recipe: str | Path, corpus: TokenCorpus) -> "PretrainConfig":
        """Reads a TOML file, or the recipe of this name that comes with bertzoo.

        Args:
            path_or_recipe: Path of the file, or name of the recipe, such as "bert_base".
            corpus: The corpus.

        Raises:
            ValueError: A table or key is missing or unknown, or a value is out of range.
        """
        content = read_toml(path_or_recipe)
        tables = {name: content.get(name, {}) for name in ("encoder", "masking", "generator", "distillation")}
        batches = tuple(BatchSpec(**table) for table in content["batches"])
        return cls(training=TrainingConfig(**content["training"]), batches=batches, corpus=corpus, **tables)

    def make_encoder_config(self) -> EncoderConfig:
        """The encoder's configuration, for the vocabulary of the corpus.

        Raises:
            ValueError: The family or a field is unknown, or the vocabulary does not fit.
        """
        table, tokenizer = dict(self.encoder), self.corpus.tokenizer
        model_type = table.get("model_type", "bert")
        if model_type not in FAMILIES:
            known = ", ".join(sorted(FAMILIES))
            raise ValueError(f"[encoder] model_type must be one of {known}. Received: {model_type!r}.")
        table = {"vocab_size": tokenizer.vocabulary_size, "pad_token_id": tokenizer.pad_id, **table}
        if table["vocab_size"] < tokenizer.vocabulary_size:
            raise ValueError(
                f"[encoder] vocab_size must be at least {tokenizer.vocabulary_size}, the corpus's vocabulary. "
                f"Received: {table['vocab_size']}. Leave it out."
            )
        try:
            return FAMILIES[model_type].config_class(**table)
        except TypeError as error:
            raise ValueError(f"[encoder] has a field that {model_type} does not know: {error}.") from None

    def make_masking(self, **defaults: Any) -> Masking:
        """The masking of the table [masking]; `defaults` are the objective's."""
        options = {**defaults, **self.masking}
        rarity = options.pop("rarity", 0.0)
        if rarity:
            options["weights"] = tuple(_rarity_weights(self.corpus, rarity).tolist())
        return Masking.for_tokenizer(self.corpus.tokenizer, **options)

    def fingerprint(self) -> dict[str, Any]:
        """Everything that defines the run, as plain values; a resumed run must agree in it."""
        training = {key: value for key, value in asdict(self.training).items() if key not in ("verbose", "log_every")}
        vocabulary = json.dumps(sorted(self.corpus.tokenizer.vocabulary.items()))
        return {
            **training,
            **{name: getattr(self, name) for name in ("encoder", "masking", "generator", "distillation")},
            "batches": [asdict(spec) for spec in self.batches],
            "tokens": len(self.corpus.tokens),
            "documents": len(self.corpus.documents) - 1,
            "vocabulary": hashlib.sha256(vocabulary.encode()).hexdigest()[:16],
        }

    def check_lengths(self, encoder_config: EncoderConfig) -> None:
        """Raises ValueError if examples are longer than the encoder's positions."""
        longest, limit = max(spec.length for spec in self.batches), encoder_config.max_length
        if longest > limit:
            raise ValueError(f"[[batches]] length must not exceed {limit}, the encoder's limit. Received: {longest}.")


def read_toml(path_or_recipe: str | Path) -> dict[str, Any]:
    """The tables of a run's file, or of the recipe of that name.

    Raises:
        ValueError: The file is not TOML, or a table or key is missing or unknown.
    """
    path = Path(path_or_recipe)
    if not path.suffix and not path.exists() and (RECIPES / f"{path}.toml").is_file():
        path = RECIPES / f"{path}.toml"
    try:
        content = tomllib.loads(path.read_bytes().decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not a TOML file: {error}.") from None
    required = {"training": dict, "batches": list, **({} if "distillation" in content else {"encoder": dict})}
    missing = [name for name, kind in required.items() if not isinstance(content.get(name), kind)]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}: it needs [encoder], [training] and [[batches]].")
    unknown = set(content) - {"encoder", *KEYS}
    if unknown:
        raise ValueError(f"{path} has unknown tables: {', '.join(sorted(unknown))}.")
    for name, keys in KEYS.items():
        for table in content["batches"] if name == "batches" else [content.get(name, {})]:
            unknown = set(table) - set(keys)
            if unknown:
                raise ValueError(f"[{name}] has no key {', '.join(sorted(unknown))}; it has {', '.join(keys)}.")
    missing = [name for name in ("steps", "learning_rate") if name not in content["training"]]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)} in [training].")
    return content


def _rarity_weights(corpus: TokenCorpus, power: float) -> np.ndarray:
    """count ** -power for each token of the vocabulary, so that rare tokens are masked more often (DistilBERT: 0.7)."""
    counts = np.zeros(corpus.tokenizer.vocabulary_size)
    for first in range(0, len(corpus.tokens), 2**24):
        counts += np.bincount(corpus.tokens[first : first + 2**24], minlength=len(counts))
    return np.maximum(counts, 1.0) ** -power
