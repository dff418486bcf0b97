"""Distillation of a masked language model into a smaller one (Sanh et al. 2019)."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from bertzoo.checkpoints.loading import weights_by_name
from bertzoo.layers.heads import cosine_similarity
from bertzoo.models.config import EncoderConfig
from bertzoo.models.distilbert import DistilBertConfig
from bertzoo.models.encoder import Encoder
from bertzoo.pretraining.masked_training import MaskedTraining, Scores, is_correct
from bertzoo.tasks.masked_lm import MaskedLM
from bertzoo.types import Tensor

LAYER = re.compile(r"layer_(\d+)/")


def student_layer_indices(num_teacher_layers: int, num_student_layers: int) -> tuple[int, ...]:
    """The indices of the teacher's layers that initialise a student, spread evenly from the first to the last.

    12 and 6 give 0, 2, 4, 7, 9 and 11, as in DistilBERT.

    Raises:
        ValueError: The student has no layer, or more than the teacher.
    """
    if not 1 <= num_student_layers <= num_teacher_layers:
        raise ValueError(
            f"the student must have 1 to {num_teacher_layers} layers, as the teacher. Received: {num_student_layers}."
        )
    return tuple(
        round(i * (num_teacher_layers - 1) / max(num_student_layers - 1, 1)) for i in range(num_student_layers)
    )


def _student_config(teacher: EncoderConfig, layers: int) -> EncoderConfig:
    """The configuration of a student: DistilBERT for a BERT, otherwise the teacher's family (as in DistilRoBERTa)."""
    if teacher.model_type != "bert":
        return teacher.replace(num_hidden_layers=layers)
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


def make_student(teacher: MaskedLM, num_layers: int, **options: Any) -> MaskedLM:
    """A student initialised with the teacher's embeddings, head and some of its layers.

    Args:
        teacher: The model to distill.
        num_layers: Number of the student's layers; see `student_layer_indices`.
        options: `dropout`, `attention_dropout`, `remat` and `dtype` of the student.

    Raises:
        ValueError: The teacher's layers do not fit the student's family (ALBERT shares its layers).

    Example:
        >>> teacher = bz.MaskedLM.from_preset("bert_mini_en", verbose=False)
        >>> bz.pretraining.make_student(teacher, 3).backbone.config.num_hidden_layers
        3
    """
    config = teacher.backbone.config
    kept = student_layer_indices(config.num_hidden_layers, num_layers)
    encoder = Encoder(_student_config(config, num_layers), False, name="student", **options)
    dtype = options.get("dtype")
    student = MaskedLM(encoder, teacher.tokenizer, teacher.masking, name="student_task", dtype=dtype)
    sources = weights_by_name(teacher)
    for name, weight in weights_by_name(student).items():
        source = LAYER.sub(lambda match: f"layer_{kept[int(match[1])]}/", name)
        if source not in sources or sources[source].shape != weight.shape:
            raise ValueError(f"the teacher must have {source}. Received: a {config.model_type} without it.")
        # Through NumPy: on JAX both would share one buffer, which a training step may not donate twice.
        weight.assign(ops.convert_to_numpy(sources[source]))
    return student


class Distillation(MaskedTraining):
    """Trains a student to predict as its teacher does.

    The loss is the sum of three terms: `alpha_ce` times T² KL(teacher ‖ student), with distributions softened by the
    temperature T, a mean over masked tokens; `alpha_mlm` times the loss of masked language modelling, a mean over
    masked tokens; and `alpha_cos` times 1 - cos of the last hidden states of both encoders, a mean over non-padding
    tokens. T² keeps the size of the gradient as T grows. The defaults are those of the authors' code, which compares
    distributions at all tokens by default; here only at masked tokens, since the other logits would cost more than both
    encoders.

    Inputs: those of an encoder without segments, `mask_positions` and `mask_labels`, int (batch, predictions), and
    `mask_weights`, float (batch, predictions), as `mask_batch` returns them. Outputs: `student` and `teacher`, logits
    (batch, predictions, vocabulary), and `student_output` and `teacher_output` (batch, length, hidden).

    Args:
        teacher: The trained model, which is frozen.
        student: The model to train; its masking is used.
        temperature: T.
        alpha_ce, alpha_mlm, alpha_cos: Weights of the three terms.

    Raises:
        ValueError: The models differ in vocabulary or width, or a weight or the temperature is out of range.
    """

    # keras.distillation has no weights for tokens: its means would include padding and unused positions. It calls the
    # teacher on the student's inputs, and both would compute logits for all tokens.

    score_names = ("soft_loss", "masked_lm_loss", "cosine_loss", "masked_accuracy")
    recipe = {"learning_rate": 5e-4, "weight_decay": 0.0, "epsilon": 1e-6, "warmup": 0.05, "global_clipnorm": 5.0}

    def __init__(
        self,
        teacher: MaskedLM,
        student: MaskedLM,
        temperature: float = 2.0,
        alpha_ce: float = 5.0,
        alpha_mlm: float = 2.0,
        alpha_cos: float = 1.0,
    ):
        super().__init__(student.masking, name="distillation")
        for field in ("vocab_size", "hidden_size"):
            sizes = [getattr(task.backbone.config, field) for task in (teacher, student)]
            if sizes[0] != sizes[1]:
                raise ValueError(f"teacher and student must agree in {field}. Received: {sizes[0]} and {sizes[1]}.")
        if temperature <= 0 or min(alpha_ce, alpha_mlm, alpha_cos) < 0:
            raise ValueError("the temperature must be above 0, and no weight of a loss may be negative.")
        teacher.trainable = False
        self.teacher, self.student, self.temperature = teacher, student, temperature
        self.alpha_ce, self.alpha_mlm, self.alpha_cos = alpha_ce, alpha_mlm, alpha_cos
        self.built = True

    @property
    def backbone(self) -> Encoder:
        """The student's encoder."""
        return self.student.backbone

    def mask_batch(self, inputs: dict[str, np.ndarray], rng: np.random.Generator) -> tuple[dict[str, np.ndarray]]:
        """Masks a batch and leaves its segments out.

        Args:
            inputs: The batch, int (batch, length) arrays as an encoder takes them.
            rng: The generator of the masks.

        Returns:
            A tuple of the inputs with `mask_positions`, `mask_labels` and `mask_weights`, (batch, predictions).
        """
        return super().mask_batch({name: value for name, value in inputs.items() if name != "segment_ids"}, rng)

    def call(self, inputs: dict[str, Tensor], training: bool = False) -> dict[str, Tensor]:
        inputs = {name: value for name, value in inputs.items() if name not in ("mask_labels", "mask_weights")}
        positions = inputs.pop("mask_positions")
        outputs = {}
        for name, task, is_training in (("teacher", self.teacher, False), ("student", self.student, training)):
            encoded = task.backbone(inputs, training=is_training, decoder=task.masked_lm)
            outputs[name] = task.masked_lm(encoded["decoded_output"], task.backbone.token_embedding_table(), positions)
            outputs[f"{name}_output"] = ops.cast(encoded["sequence_output"], "float32")
        return {name: ops.stop_gradient(value) if "teacher" in name else value for name, value in outputs.items()}

    def _scores(self, x: dict[str, Tensor], y_pred: dict[str, Tensor]) -> Scores:
        labels, student = x["mask_labels"], y_pred["student"]
        masked, real = (ops.cast(x[name], "float32") for name in ("mask_weights", "padding_mask"))
        soft = soft_kl_divergence(y_pred["teacher"], student, self.temperature)
        masked_lm = ops.sparse_categorical_crossentropy(labels, student, from_logits=True)
        distance = 1 - cosine_similarity(y_pred["student_output"], y_pred["teacher_output"])
        return {
            "soft_loss": (self.alpha_ce, soft, masked),
            "masked_lm_loss": (self.alpha_mlm, masked_lm, masked),
            "masked_accuracy": (None, is_correct(student, labels), masked),
            "cosine_loss": (self.alpha_cos, distance, real),
        }

    def save_to_preset(self, directory: str | Path) -> None:
        """Saves the student, which transformers loads as DistilBertForMaskedLM."""
        self.student.save_to_preset(directory)


def soft_kl_divergence(teacher_logits: Tensor, student_logits: Tensor, temperature: float) -> Tensor:
    """T² KL(softmax(teacher / T) ‖ softmax(student / T)): (…, classes) twice -> (…) (Hinton et al. 2015, section 2)."""
    target, predicted = ops.log_softmax(teacher_logits / temperature), ops.log_softmax(student_logits / temperature)
    return temperature**2 * ops.sum(ops.exp(target) * (target - predicted), axis=-1)
