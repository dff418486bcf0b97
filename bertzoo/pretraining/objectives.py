"""The objectives: each with its examples, its model, and how examples become batches."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import keras

from bertzoo.models.encoder import Encoder
from bertzoo.models.flops import encoder_flops, head_flops
from bertzoo.pretraining.config import PretrainConfig
from bertzoo.pretraining.continuing import load_task
from bertzoo.pretraining.corpus_dataset import BatchSpec, ElectraSegments, FullSentences, Sampler, SentencePairs
from bertzoo.pretraining.distillation import Distillation, make_student
from bertzoo.pretraining.replaced_tokens import ReplacedTokenTraining, generator_config
from bertzoo.tasks.masked_lm import MaskedLM
from bertzoo.tasks.pretraining_heads import ForPreTraining


@dataclass(frozen=True)
class Objective:
    """What `pretrain` needs to know about an objective.

    Attributes:
        examples: (corpus, short_seq_prob=, sentences=) -> what samples the examples.
        model: config -> a model that is not compiled, with the encoder to keep as its `backbone`.
        transform: model -> a function that makes a batch of examples.
        continues: Whether `[encoder] from` may name a checkpoint to start from.
    """

    examples: Callable[..., Sampler]
    model: Callable[[PretrainConfig], keras.Model]
    transform: Callable[[keras.Model], Callable] = attrgetter("mask")
    continues: bool = False


def _task(task: type[MaskedLM] | type[ForPreTraining], config: PretrainConfig) -> Any:
    masking, options = config.make_masking(), config.training.encoder_options()
    if "from" in config.encoder:
        return load_task(task, config.encoder, config.corpus.tokenizer, masking, options)
    encoder_config = config.encoder_config()
    encoder = Encoder(encoder_config, task.needs_pooler(encoder_config), **options)
    return task(encoder, config.corpus.tokenizer, masking, dtype=options["dtype"])


def _replaced_tokens(config: PretrainConfig) -> ReplacedTokenTraining:
    encoder_config, table = config.encoder_config(), dict(config.generator)
    weight = table.pop("weight", 50.0)
    sharing = table.pop("sharing", "disentangled" if encoder_config.model_type.startswith("deberta") else "plain")
    return ReplacedTokenTraining(
        encoder_config,
        generator_config(encoder_config, **table),
        config.corpus.tokenizer,
        config.make_masking(mask_prob=0.85, random_prob=0.0),
        weight,
        sharing,
        **config.training.encoder_options(),
    )


def _distillation(config: PretrainConfig) -> Distillation:
    table = dict(config.distillation)
    if "teacher" not in table or "layers" not in table:
        raise ValueError("[distillation] needs teacher and layers, the number of the student's layers.")
    options = config.training.encoder_options()
    source = {"from": table.pop("teacher")}
    teacher = load_task(MaskedLM, source, config.corpus.tokenizer, config.make_masking(), {"dtype": options["dtype"]})
    return Distillation(teacher, make_student(teacher, table.pop("layers"), **options), **table)


OBJECTIVES = {
    "mlm": Objective(FullSentences, partial(_task, MaskedLM), attrgetter("masking"), continues=True),
    "mlm+nsp": Objective(partial(SentencePairs, kind="nsp"), partial(_task, ForPreTraining), continues=True),
    "mlm+sop": Objective(partial(SentencePairs, kind="sop"), partial(_task, ForPreTraining), continues=True),
    "rtd": Objective(ElectraSegments, _replaced_tokens),
    "distillation": Objective(FullSentences, _distillation),
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
        head = head_flops(encoder.config, predictions) if has_head else 0.0
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
