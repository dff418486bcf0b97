"""A small student learns from a large masked language model (Sanh et al. 2019)."""

import re
from pathlib import Path

import keras
import numpy as np
from keras import ops

from bertzoo.checkpoints.loading import weight_names
from bertzoo.layers.pooling import cosine
from bertzoo.models.config import EncoderConfig
from bertzoo.models.distilbert import DistilBertConfig
from bertzoo.models.encoder import Encoder
from bertzoo.pretraining.means import hits, weighted_mean
from bertzoo.tasks.masked_lm import MaskedLM
from bertzoo.text.masking import Masking
from bertzoo.training.loss_mean import LossMean
from bertzoo.training.optimizer import AdamW
from bertzoo.training.step import BackendStep

LAYER = re.compile(r"layer_(\d+)/")


def student_layers(teacher: int, student: int) -> tuple[int, ...]:
    """The teacher's layers that a student begins with, spread evenly from the first to the last.

    12 and 6 give 0, 2, 4, 7, 9 and 11, those of DistilBERT.

    Raises:
        ValueError: The student has no layer, or more than the teacher.
    """
    if not 1 <= student <= teacher:
        raise ValueError(f"the student must have from 1 to the teacher's {teacher} layers; it has {student}.")
    return tuple(round(i * (teacher - 1) / max(student - 1, 1)) for i in range(student))


def student_config(teacher: EncoderConfig, layers: int) -> EncoderConfig:
    """The configuration of a student: DistilBERT's for a BERT, the teacher's own family else (as DistilRoBERTa)."""
    if teacher.model_type != "bert":
        return teacher.with_(num_hidden_layers=layers)
    names = (
        "vocab_size",
        "hidden_size",
        "num_attention_heads",
        "intermediate_size",
        "hidden_act",
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "max_position_embeddings",
        "initializer_range",
        "pad_token_id",
    )
    return DistilBertConfig(num_hidden_layers=layers, **{name: getattr(teacher, name) for name in names})


def make_student(teacher: MaskedLM, layers: int, masking: Masking | None = None, **options) -> MaskedLM:
    """A student whose embeddings, layers and head begin as the teacher's, with every other layer or so left out.

    Args:
        teacher: The model to learn from.
        layers: The student's.
        masking: The student's rule; the teacher's where None.
        options: `dropout`, `attention_dropout`, `remat` and `dtype` of the student.

    Raises:
        ValueError: Students of the teacher's family are not made of its layers (ALBERT shares them).
    """
    config = teacher.backbone.config
    kept = student_layers(config.num_hidden_layers, layers)
    encoder = Encoder(student_config(config, layers), False, name="student", **options)
    dtype = {"dtype": options["dtype"]} if options.get("dtype") else {}
    student = MaskedLM(encoder, teacher.tokenizer, masking or teacher.masking, name="student_task", **dtype)
    sources = weight_names(teacher)
    for name, weight in weight_names(student).items():
        source = LAYER.sub(lambda found: f"layer_{kept[int(found[1])]}/", name)
        if source not in sources or sources[source].shape != weight.shape:
            raise ValueError(f"a {config.model_type} teacher has no {source} for a student to begin with.")
        # By way of NumPy: on JAX both would have one buffer, which a training step may not give up twice.
        weight.assign(ops.convert_to_numpy(sources[source]))
    return student


class Distillation(BackendStep, keras.Model):
    """Trains a student to guess as its teacher does.

    The loss is `soft` times T² KL(teacher ‖ student), distributions softened by the temperature T, mean over masked
    tokens; plus `hard` times the loss of masked language modelling, mean over masked tokens; plus `cosine` times
    1 - cos of both encoders' last vectors, mean over real tokens. T² keeps the gradient's size as T grows. The defaults
    are those of the authors' code, which has an option to compare the distributions at masked tokens only; here that
    is the rule, since the logits elsewhere would cost more than both encoders.

    Inputs: those of an encoder without segments, and `mask_positions`, `mask_labels`, int (batch, places), with
    `mask_weights`, float (batch, places), as `mask` makes them. Outputs: `student` and `teacher` logits (batch, places,
    vocabulary) and `student_output` and `teacher_output` (batch, length, hidden).

    Raises:
        ValueError: The two differ in vocabulary or width.
    """

    # keras.distillation has no weights for tokens: it would take means over padding and empty slots too. Its teacher
    # is called on the student's inputs, and both would give logits for all tokens.

    def __init__(
        self,
        teacher: MaskedLM,
        student: MaskedLM,
        temperature: float = 2.0,
        soft: float = 5.0,
        hard: float = 2.0,
        cosine: float = 1.0,
        name: str = "distillation",
    ):
        super().__init__(name=name)
        for field in ("vocab_size", "hidden_size"):
            ours, theirs = (getattr(task.backbone.config, field) for task in (student, teacher))
            if ours != theirs:
                raise ValueError(f"teacher and student must agree in {field}; they have {theirs} and {ours}.")
        if temperature <= 0 or min(soft, hard, cosine) < 0:
            raise ValueError("the temperature must be above 0, and no loss may weigh less than 0.")
        teacher.trainable = False
        self.teacher, self.student, self.masking = teacher, student, student.masking
        self.temperature, self.soft, self.hard, self.cosine = temperature, soft, hard, cosine
        names = ("soft_loss", "masked_lm_loss", "cosine_loss", "masked_accuracy")
        self.scores = {name: keras.metrics.Mean(name=name) for name in names}
        self.built = True

    @property
    def backbone(self) -> Encoder:
        """The student's encoder."""
        return self.student.backbone

    def mask(self, inputs: dict[str, np.ndarray], rng: np.random.Generator) -> tuple[dict]:
        """Masks rows: -> a batch."""
        inputs, labels, weights = self.masking({k: v for k, v in inputs.items() if k != "segment_ids"}, rng)
        return ({**inputs, "mask_labels": labels, "mask_weights": weights},)

    def call(self, inputs, training: bool = False):
        inputs = {key: value for key, value in inputs.items() if key not in ("mask_labels", "mask_weights")}
        positions = inputs.pop("mask_positions")
        outputs = {}
        for name, task, trained in (("teacher", self.teacher, False), ("student", self.student, training)):
            found = task.backbone(inputs, training=trained, decoder=task.masked_lm)
            outputs[name] = task.masked_lm(found["decoded_output"], task.backbone.token_table(), positions)
            outputs[f"{name}_output"] = ops.cast(found["sequence_output"], "float32")
        return {key: ops.stop_gradient(value) if "teacher" in key else value for key, value in outputs.items()}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        labels, counted = x["mask_labels"], ops.cast(x["mask_weights"], "float32")
        real = ops.cast(x["padding_mask"], "float32")
        student, teacher = y_pred["student"], y_pred["teacher"]
        soft = weighted_mean(soft_divergence(teacher, student, self.temperature), counted)
        hard = weighted_mean(ops.sparse_categorical_crossentropy(labels, student, from_logits=True), counted)
        far = weighted_mean(1 - cosine(y_pred["student_output"], y_pred["teacher_output"]), real)
        right = weighted_mean(hits(student, labels), counted)
        values = {"soft_loss": soft, "masked_lm_loss": hard, "masked_accuracy": right}
        for name, value in values.items():
            self.scores[name].update_state(ops.stop_gradient(value), ops.sum(counted))
        self.scores["cosine_loss"].update_state(ops.stop_gradient(far), ops.sum(real))
        terms = [self.soft * soft, self.hard * hard, self.cosine * far]
        LossMean.record(self, terms, [ops.sum(counted), ops.sum(counted), ops.sum(real)])
        return terms[0] + terms[1] + terms[2]

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return self.get_metrics_result()

    def compile(self, optimizer=None, **kwargs) -> None:
        """As `keras.Model.compile`; the loss is the model's own, the default optimizer the authors'."""
        if optimizer is None:
            optimizer = AdamW(5e-4, 0.0, epsilon=1e-6, warmup=0.05, global_clipnorm=5.0)
        super().compile(optimizer=optimizer, **kwargs)
        LossMean.track(self, terms=3)
        # TensorFlow traces the step twice where its first trace makes the moments.
        self.optimizer.build(self.trainable_variables)

    def save_to_preset(self, directory: str | Path) -> None:
        """Writes the student, which transformers loads as DistilBertForMaskedLM."""
        self.student.save_to_preset(directory)


def soft_divergence(teacher, student, temperature: float):
    """T² KL(softmax(teacher / T) ‖ softmax(student / T)): (…, classes) twice -> (…) (Hinton et al. 2015, section 2)."""
    sure, guess = ops.log_softmax(teacher / temperature), ops.log_softmax(student / temperature)
    return temperature**2 * ops.sum(ops.exp(sure) * (sure - guess), axis=-1)
