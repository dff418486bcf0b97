"""The objectives: each with its examples, its model, and how examples become batches.

A model starts from new weights, or continues from a checkpoint on another corpus, with a larger vocabulary (Gururangan
et al. 2020).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import keras
from keras import ops

from bertzoo.checkpoints.loading import weights_by_name
from bertzoo.models.encoder import Encoder
from bertzoo.models.flops import encoder_flops, masked_lm_head_flops
from bertzoo.pretraining.config import PretrainConfig
from bertzoo.pretraining.corpus_dataset import (
    BatchSpec,
    ElectraSampler,
    ExampleSampler,
    FullSentenceSampler,
    SentencePairSampler,
)
from bertzoo.pretraining.distillation import Distillation, make_student
from bertzoo.pretraining.replaced_tokens import ReplacedTokenTraining, generator_config
from bertzoo.tasks.added_tokens import extend_token_table
from bertzoo.tasks.masked_lm import MaskedLM
from bertzoo.tasks.pretraining_heads import ForPreTraining
from bertzoo.text.masking import Masking
from bertzoo.text.tokenizer import Tokenizer

# Keys of the table [generator] -> arguments of `generator_config`.
GENERATOR_FRACTIONS = {"hidden": "width_fraction", "layers": "depth_fraction"}


@dataclass(frozen=True)
class Objective:
    """What `pretrain` needs to know about an objective.

    Attributes:
        examples: (corpus, short_seq_prob=, sentences=) -> what samples the examples.
        model: config -> a model that is not compiled, with the encoder to keep as its `backbone`.
        transform: model -> a function that makes a batch of examples.
        continues: Whether `[encoder] from` may name a checkpoint to start from.
    """

    examples: Callable[..., ExampleSampler]
    model: Callable[[PretrainConfig], keras.Model]
    transform: Callable[[keras.Model], Callable] = attrgetter("mask_batch")
    continues: bool = False


def _task(task: type[MaskedLM] | type[ForPreTraining], config: PretrainConfig) -> Any:
    masking, options = config.make_masking(), config.training.encoder_kwargs()
    if "from" in config.encoder:
        return load_task(task, config.encoder, config.corpus.tokenizer, masking, options)
    encoder_config = config.make_encoder_config()
    encoder = Encoder(encoder_config, task.needs_pooler(encoder_config), **options)
    return task(encoder, config.corpus.tokenizer, masking, dtype=options["dtype"])


def _replaced_tokens(config: PretrainConfig) -> ReplacedTokenTraining:
    encoder_config, table = config.make_encoder_config(), dict(config.generator)
    weight = table.pop("weight", 50.0)
    sharing = table.pop("sharing", "disentangled" if encoder_config.model_type.startswith("deberta") else "plain")
    fractions = {name: table[key] for key, name in GENERATOR_FRACTIONS.items() if key in table}
    return ReplacedTokenTraining(
        encoder_config,
        generator_config(encoder_config, **fractions),
        config.corpus.tokenizer,
        config.make_masking(mask_prob=0.85, random_prob=0.0),
        weight,
        sharing,
        **config.training.encoder_kwargs(),
    )


def _distillation(config: PretrainConfig) -> Distillation:
    table = dict(config.distillation)
    if "teacher" not in table or "layers" not in table:
        raise ValueError("[distillation] needs teacher and layers, the number of the student's layers.")
    options = config.training.encoder_kwargs()
    source = {"from": table.pop("teacher")}
    teacher = load_task(MaskedLM, source, config.corpus.tokenizer, config.make_masking(), {"dtype": options["dtype"]})
    return Distillation(teacher, make_student(teacher, table.pop("layers"), **options), **table)


OBJECTIVES = {
    "mlm": Objective(FullSentenceSampler, partial(_task, MaskedLM), attrgetter("masking"), continues=True),
    "mlm+nsp": Objective(partial(SentencePairSampler, kind="nsp"), partial(_task, ForPreTraining), continues=True),
    "mlm+sop": Objective(partial(SentencePairSampler, kind="sop"), partial(_task, ForPreTraining), continues=True),
    "rtd": Objective(ElectraSampler, _replaced_tokens),
    "distillation": Objective(FullSentenceSampler, _distillation),
}


def find_objective(config: PretrainConfig) -> Objective:
    """The objective of a run.

    Raises:
        ValueError: Its name is unknown, or it can't start from the checkpoint that `[encoder] from` names.
    """
    name = config.training.objective
    if name not in OBJECTIVES:
        raise ValueError(f"[training] objective must be one of {', '.join(OBJECTIVES)}. Received: {name!r}.")
    if "from" in config.encoder and not OBJECTIVES[name].continues:
        raise ValueError(f"[encoder] from is for masked LM and sentence pairs. Received: {name!r}.")
    return OBJECTIVES[name]


def step_flops(model: keras.Model, spec: BatchSpec) -> float:
    """Floating-point operations of the training step on one batch."""
    predictions = model.masking.max_predictions_per_seq(spec.length)

    def forward(encoder: Encoder, has_head: bool = True, reads_all: bool = False) -> float:
        # Without `reads_all`, the last block computes only the tokens that the heads read.
        queries = None if reads_all else predictions + (encoder.pooler is not None)
        head = masked_lm_head_flops(encoder.config, predictions) if has_head else 0.0
        return encoder_flops(encoder.config, spec.length, queries, spec.batch_size) + head

    # The backward pass takes twice as many operations as the forward pass.
    if isinstance(model, ReplacedTokenTraining):
        operations = 3 * (forward(model.generator.backbone) + forward(model.backbone, has_head=False, reads_all=True))
    elif isinstance(model, Distillation):
        teacher, student = (forward(task.backbone, reads_all=True) for task in (model.teacher, model.student))
        operations = 3 * student + teacher
    else:
        operations = 3 * forward(model.backbone)
    return spec.batch_size * operations


def extend_tokenizer(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """A tokenizer with these words as additional tokens.

    Words are matched after normalisation, so in any case if the tokenizer lowercases, and as whole words only. They may
    contain single spaces. Words that are tokens already, duplicates after normalisation and empty strings are skipped.

    Args:
        tokenizer: The tokenizer, which does not change.
        words: The words to add.

    Raises:
        ValueError: A word contains other white space than single spaces.
    """
    config = tokenizer.get_config()
    content = json.loads(config["files"]["tokenizer.json"])
    number = tokenizer.vocabulary_size
    for word in dict.fromkeys(tokenizer.normalize_text(word.strip()) for word in words):
        if " ".join(word.split()) != word:
            raise ValueError(f"words may contain no white space other than single spaces. Received: {word!r}.")
        if not word or tokenizer.token_to_id(word) is not None:
            continue
        token = {"id": number, "content": word, "single_word": True, "lstrip": False, "rstrip": False}
        content["added_tokens"].append({**token, "normalized": True, "special": False})
        number += 1
    config["files"]["tokenizer.json"] = json.dumps(content)
    return Tokenizer.from_config(config)


def load_task(
    task_class: type[MaskedLM] | type[ForPreTraining],
    encoder_table: dict[str, Any],
    tokenizer: Tokenizer,
    masking: Masking,
    encoder_kwargs: dict[str, Any],
) -> Any:
    """Loads a task for a tokenizer whose vocabulary is the preset's or extends it.

    The embeddings of new tokens are the mean of those of the pieces into which the old tokenizer splits them.

    Args:
        task_class: The class of the task.
        encoder_table: {"from": preset}, as in the file of a run.
        tokenizer: The tokenizer.
        masking: The masking of the task.
        encoder_kwargs: `dropout`, `attention_dropout`, `remat` and `dtype`, as for `from_preset`.

    Raises:
        ValueError: The table has other keys, or the tokenizer has another vocabulary.
    """
    if set(encoder_table) != {"from"}:
        other_keys = ", ".join(sorted(set(encoder_table) - {"from"}))
        raise ValueError(f"[encoder] from takes no other keys, which the checkpoint defines. Received: {other_keys}.")
    preset = encoder_table["from"]
    loaded = task_class.from_preset(preset, masking=masking, verbose=False, **encoder_kwargs)
    old, vocabulary = loaded.tokenizer, tokenizer.vocabulary
    token = next((token for token, index in old.vocabulary.items() if vocabulary.get(token) != index), None)
    if token is not None:
        raise ValueError(
            f"the corpus must be tokenized with the vocabulary of {preset}, in which {token!r} is token "
            f"{old.vocabulary[token]}. Received: a corpus of another vocabulary. Make it with "
            f"`bertzoo prepare --tokenizer {preset}`."
        )
    if tokenizer.vocabulary_size <= old.vocabulary_size:
        loaded.tokenizer = tokenizer
        return loaded
    size = loaded.backbone.config.vocab_size  # may exceed the vocabulary
    config = loaded.backbone.config.replace(vocab_size=max(size, tokenizer.vocabulary_size))
    encoder = Encoder(config, loaded.backbone.pooler is not None, **encoder_kwargs)
    larger = task_class(encoder, tokenizer, masking, dtype=encoder_kwargs.get("dtype"))
    sources = weights_by_name(loaded)
    for name, weight in weights_by_name(larger).items():
        value = ops.convert_to_numpy(sources[name])
        by_token = name.endswith(("/token", "/bias", "/decoder")) and value.shape[0] == size
        weight.assign(extend_token_table(value, old, tokenizer, config.vocab_size) if by_token else value)
    return larger
