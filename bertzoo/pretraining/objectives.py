"""What each objective trains: its model, the rows that it reads, and how they become batches."""

from collections.abc import Callable
from dataclasses import dataclass

import keras

from bertzoo.analysis.flops import encoder_flops, head_flops
from bertzoo.models.encoder import Encoder
from bertzoo.pretraining.continuing import load_task
from bertzoo.pretraining.distillation import Distillation, make_student
from bertzoo.pretraining.electra import ReplacedTokenTraining, generator_config
from bertzoo.pretraining.pairs import SentencePairs
from bertzoo.pretraining.plan import Plan
from bertzoo.pretraining.rows import FullSentences, Shape
from bertzoo.pretraining.segments import Segments
from bertzoo.pretraining.sentences import Sentences
from bertzoo.pretraining.shards import Shards
from bertzoo.tasks.masked_lm import MaskedLM
from bertzoo.tasks.pretraining_heads import ForPreTraining
from bertzoo.tasks.task import Task


@dataclass(frozen=True)
class Objective:
    """rows: (shards, share of short rows, sentences) -> what cuts rows from a corpus.
    model: plan -> a model that is not compiled, with the encoder to keep as its `backbone`.
    transform: model -> what makes a batch of its rows.
    flops: (model, shape) -> multiplications and additions of one batch's training step."""

    rows: Callable[[Shards, float, Sentences], Callable]
    model: Callable[[Plan], keras.Model]
    transform: Callable[[keras.Model], Callable]
    flops: Callable[[keras.Model, Shape], float]


def _task(task: type[Task]) -> Callable[[Plan], Task]:
    def make(plan: Plan) -> Task:
        masking, options = plan.masking(), plan.training.encoder_options()
        if "from" in plan.encoder:
            return load_task(task, plan.encoder, plan.shards.tokenizer, masking, options)
        config = plan.config()
        encoder = Encoder(config, task.needs_pooler(config), **options)
        return task(encoder, plan.shards.tokenizer, masking, dtype=options["dtype"])

    return make


def _replaced_tokens(plan: Plan) -> ReplacedTokenTraining:
    _refuse_from(plan)
    config, table = plan.config(), dict(plan.generator)
    weight = table.pop("weight", 50.0)
    sharing = table.pop("sharing", "disentangled" if config.model_type.startswith("deberta") else "plain")
    return ReplacedTokenTraining(
        config,
        generator_config(config, **table),
        plan.shards.tokenizer,
        plan.masking(masked=0.85, random=0.0),
        weight,
        sharing,
        **plan.training.encoder_options(),
    )


def _distillation(plan: Plan) -> Distillation:
    _refuse_from(plan)
    table = dict(plan.distillation)
    if "teacher" not in table or "layers" not in table:
        raise ValueError("distillation needs a teacher and the number of the student's layers in [distillation].")
    options = plan.training.encoder_options()
    source = {"from": table.pop("teacher")}
    teacher = load_task(MaskedLM, source, plan.shards.tokenizer, plan.masking(), {"dtype": options["dtype"]})
    return Distillation(teacher, make_student(teacher, table.pop("layers"), **options), **table)


def _refuse_from(plan: Plan) -> None:
    if "from" in plan.encoder:
        raise ValueError(f"[encoder] from goes with masked language modelling, not {plan.training.objective!r}.")


def _masked_flops(encoder: Encoder, places: int, shape: Shape, reads_all: bool = False) -> float:
    """Of a row's forward pass through an encoder and its masked-LM head, which reads so many places. `reads_all`: so
    that another loss does too."""
    asking = None if reads_all else places + (encoder.pooler is not None)
    operations = encoder_flops(encoder.config, shape.length, asking, shape.batch_size)
    return operations + head_flops(encoder.config, places)


def _trained(model: keras.Model, shape: Shape) -> float:
    # The backward pass takes twice what the forward pass does.
    return 3 * shape.batch_size * _masked_flops(model.backbone, model.masking.slots(shape.length), shape)


def _replaced_flops(model: ReplacedTokenTraining, shape: Shape) -> float:
    generator = _masked_flops(model.generator.backbone, model.masking.slots(shape.length), shape)
    reader = encoder_flops(model.backbone.config, shape.length, batch_size=shape.batch_size)
    return 3 * shape.batch_size * (generator + reader)


def _distilled_flops(model: Distillation, shape: Shape) -> float:
    slots = model.masking.slots(shape.length)
    teacher, student = (
        _masked_flops(task.backbone, slots, shape, reads_all=True) for task in (model.teacher, model.student)
    )
    return shape.batch_size * (3 * student + teacher)


def _pairs(kind: str) -> Objective:
    return Objective(
        lambda shards, short, sentences: SentencePairs(shards, kind, short, sentences),
        _task(ForPreTraining),
        lambda model: model.mask,
        _trained,
    )


OBJECTIVES = {
    "mlm": Objective(FullSentences, _task(MaskedLM), lambda model: model.masking, _trained),
    "mlm+nsp": _pairs("nsp"),
    "mlm+sop": _pairs("sop"),
    "rtd": Objective(Segments, _replaced_tokens, lambda model: model.mask, _replaced_flops),
    "distillation": Objective(FullSentences, _distillation, lambda model: model.mask, _distilled_flops),
}
