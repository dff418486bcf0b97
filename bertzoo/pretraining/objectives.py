"""The objectives: each with its model, its examples, and how they become batches."""

from collections.abc import Callable
from dataclasses import dataclass

import keras

from bertzoo.models.encoder import Encoder
from bertzoo.models.flops import encoder_flops, head_flops
from bertzoo.pretraining.config import PretrainConfig
from bertzoo.pretraining.continuing import load_task
from bertzoo.pretraining.corpus import Sentences, TokenCorpus
from bertzoo.pretraining.corpus_dataset import BatchSpec, FullSentences
from bertzoo.pretraining.distillation import Distillation, make_student
from bertzoo.pretraining.replaced_tokens import ReplacedTokenTraining, generator_config
from bertzoo.pretraining.sentence_pairs import ElectraSegments, SentencePairs
from bertzoo.tasks.masked_lm import MaskedLM
from bertzoo.tasks.pretraining_heads import ForPreTraining
from bertzoo.tasks.task import Task


@dataclass(frozen=True)
class Objective:
    """What `pretrain` needs to know about an objective.

    Attributes:
        examples: (corpus, short_seq_prob, sentences) -> a function that samples examples.
        model: config -> a model that is not compiled, with the encoder to keep as its `backbone`.
        transform: model -> a function that makes a batch of examples.
        flops: (model, spec) -> multiplications and additions of one batch's training step.
    """

    examples: Callable[[TokenCorpus, float, Sentences], Callable]
    model: Callable[[PretrainConfig], keras.Model]
    transform: Callable[[keras.Model], Callable]
    flops: Callable[[keras.Model, BatchSpec], float]


def _task(task: type[Task]) -> Callable[[PretrainConfig], Task]:
    def make(config: PretrainConfig) -> Task:
        masking, options = config.make_masking(), config.training.encoder_options()
        if "from" in config.encoder:
            return load_task(task, config.encoder, config.corpus.tokenizer, masking, options)
        encoder_config = config.encoder_config()
        encoder = Encoder(encoder_config, task.needs_pooler(encoder_config), **options)
        return task(encoder, config.corpus.tokenizer, masking, dtype=options["dtype"])

    return make


def _replaced_tokens(config: PretrainConfig) -> ReplacedTokenTraining:
    _refuse_pretrained(config)
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
    _refuse_pretrained(config)
    table = dict(config.distillation)
    if "teacher" not in table or "layers" not in table:
        raise ValueError("[distillation] needs teacher and layers, the number of the student's layers.")
    options = config.training.encoder_options()
    source = {"from": table.pop("teacher")}
    teacher = load_task(MaskedLM, source, config.corpus.tokenizer, config.make_masking(), {"dtype": options["dtype"]})
    return Distillation(teacher, make_student(teacher, table.pop("layers"), **options), **table)


def _refuse_pretrained(config: PretrainConfig) -> None:
    if "from" in config.encoder:
        objective = config.training.objective
        raise ValueError(f"[encoder] from is for masked LM and sentence pairs. Received: {objective!r}.")


def _forward_flops(encoder: Encoder, predictions: int, spec: BatchSpec, reads_all: bool = False) -> float:
    """A row's forward pass through an encoder and its masked-LM head at so many tokens; with `reads_all`, another loss
    reads all tokens of the last block."""
    queries = None if reads_all else predictions + (encoder.pooler is not None)
    return encoder_flops(encoder.config, spec.length, queries, spec.batch_size) + head_flops(
        encoder.config, predictions
    )


def _masked_lm_flops(model: keras.Model, spec: BatchSpec) -> float:
    # The backward pass takes twice as many operations as the forward pass.
    predictions = model.masking.max_predictions_per_seq(spec.length)
    return 3 * spec.batch_size * _forward_flops(model.backbone, predictions, spec)


def _replaced_token_flops(model: ReplacedTokenTraining, spec: BatchSpec) -> float:
    predictions = model.masking.max_predictions_per_seq(spec.length)
    generator = _forward_flops(model.generator.backbone, predictions, spec)
    discriminator = encoder_flops(model.backbone.config, spec.length, batch_size=spec.batch_size)
    return 3 * spec.batch_size * (generator + discriminator)


def _distillation_flops(model: Distillation, spec: BatchSpec) -> float:
    predictions = model.masking.max_predictions_per_seq(spec.length)
    teacher, student = (
        _forward_flops(task.backbone, predictions, spec, reads_all=True) for task in (model.teacher, model.student)
    )
    return spec.batch_size * (3 * student + teacher)


def _pairs(kind: str) -> Objective:
    return Objective(
        lambda corpus, short_seq_prob, sentences: SentencePairs(corpus, kind, short_seq_prob, sentences),
        _task(ForPreTraining),
        lambda model: model.mask,
        _masked_lm_flops,
    )


OBJECTIVES = {
    "mlm": Objective(FullSentences, _task(MaskedLM), lambda model: model.masking, _masked_lm_flops),
    "mlm+nsp": _pairs("nsp"),
    "mlm+sop": _pairs("sop"),
    "rtd": Objective(ElectraSegments, _replaced_tokens, lambda model: model.mask, _replaced_token_flops),
    "distillation": Objective(FullSentences, _distillation, lambda model: model.mask, _distillation_flops),
}
