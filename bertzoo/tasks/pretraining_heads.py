"""The models that pre-training leaves behind: an encoder with the heads of its objectives."""

from collections.abc import Callable
from typing import Any, NoReturn

import keras
import numpy as np
from keras import ops

from bertzoo.data.parsing import Examples
from bertzoo.data.task_data import TaskData
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.masked_lm import MaskingTask
from bertzoo.tasks.onnx_inference import run_batch
from bertzoo.tasks.task import Task, token_ids_shape
from bertzoo.text.masking import Masking
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.training.compiled_losses import MEAN
from bertzoo.training.metrics import LossMean
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class NextSentencePredictor(Task):
    """Judges whether two segments belong together.

    The output is float32 logits (batch, 2). Class 0: the second segment follows the first (BERT, section 3.1 of Devlin
    et al. 2019), or the two are in order (ALBERT, section 3.1 of Lan et al. 2020). Class 1: it is a random one, or they
    are swapped.

    Args:
        backbone: The encoder, with its pooler.
        tokenizer: Turns pairs of texts into the encoder's inputs; None if the caller tokenizes.
        name: Name of the Keras model.

    Raises:
        ValueError: The encoder has no pooler, or its family no such head.
    """

    heads = ("pair",)

    def __init__(self, backbone: Encoder, tokenizer: Tokenizer | None = None, name: str = "sentence_pair", **kwargs):
        super().__init__(backbone, tokenizer, name=name, **kwargs)
        self.pair = self.make_head("pair")
        self.build()

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        outputs, key = self.encode_inputs(inputs, training)
        return self.pair(outputs["pooled_output"], key=key)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (token_ids_shape(input_shape)[0], 2)

    def onnx_outputs(self, nodes: Any) -> dict[str, Any]:
        return {"logits": nodes.rows(nodes.head(self.pair, nodes.pooled()), 2)}


class _MaskedBatches(TaskData):
    """Batches that are masked already."""

    def encode_targets(self, examples: Examples) -> NoReturn:
        raise ValueError("ForPreTraining is trained on batches of bertzoo.pretraining, which are masked.")

    def convert_batch(self, batch: tuple, choose_length: Callable) -> tuple:
        if isinstance(batch[0], dict) and "mask_positions" in batch[0]:
            return batch
        self.encode_targets(batch[0])


@keras.saving.register_keras_serializable("bertzoo")
class ForPreTraining(MaskingTask):
    """Both heads of BERT's and ALBERT's pre-training.

    Inputs and arguments are those of `MaskedLM` and `NextSentencePredictor`. The output is a dict of their outputs,
    `masked_lm` (batch, positions or length, vocabulary) and `pair` (batch, 2). The loss is the sum of two means: over
    the masked tokens, and over the rows. `fit` takes the batches of `bertzoo.pretraining.corpus_dataset.CorpusDataset`.

    Args:
        backbone: The encoder, with its pooler.
        tokenizer: Turns text into the encoder's inputs; None if the caller tokenizes.
        masking: The rule; BERT's 15 % and 80/10/10 where None.
        name: Name of the Keras model.
    """

    heads = ("masked_lm", "pair")
    hf_class = "ForPreTraining"

    def __init__(
        self,
        backbone: Encoder,
        tokenizer: Tokenizer | None = None,
        masking: Masking | None = None,
        name: str = "masked_lm_and_pair",
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, masking, name=name, **kwargs)
        self.data = _MaskedBatches(tokenizer, backbone.config)
        self.pair = self.make_head("pair")
        self.means = {head: keras.metrics.Mean(name=f"{head}_loss") for head in self.heads}
        self.build()

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        inputs = dict(inputs) if isinstance(inputs, dict) else {"token_ids": inputs}
        positions = inputs.pop("mask_positions", None)
        outputs, key = self.encode_inputs(inputs, training, query_positions=positions)
        logits = self.masked_lm(outputs["sequence_output"], self.backbone.token_embedding_table())
        return {"masked_lm": logits, "pair": self.pair(outputs["pooled_output"], key=key)}

    def compute_output_shape(self, input_shape: Any) -> Any:
        shape = self._logits_shape(input_shape)
        return {"masked_lm": shape, "pair": (shape[0], 2)}

    def onnx_outputs(self, nodes: Any) -> dict[str, Any]:
        logits = nodes.head(self.masked_lm, nodes.hidden)
        return {
            "masked_lm": nodes.padded(logits, self.backbone.config.vocab_size),
            "pair": nodes.rows(nodes.head(self.pair, nodes.pooled()), 2),
        }

    def outputs_by_onnx(self, model: Any, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Logits float32: `masked_lm` (batch, length, vocabulary), `pair` (batch, 2), as `Task.outputs_by_onnx`.

        Args:
            model, inputs: Same as in `Task.outputs_by_onnx`.
        """
        return {name: run_batch(model, inputs, name) for name in self.heads}

    def mask_batch(self, inputs: dict[str, np.ndarray], rng: np.random.Generator) -> tuple[dict, dict, dict]:
        """Masks a batch: -> inputs, targets and weights, keyed as the outputs are.

        Args:
            inputs: Padded arrays (batch, length), and the label `pair` (batch,) of each row.
            rng: The random generator.
        """
        inputs = dict(inputs)
        pair = inputs.pop("pair")
        inputs, labels, weights = self.masking(inputs, rng)
        return (
            inputs,
            {"masked_lm": labels, "pair": pair},
            {"masked_lm": weights, "pair": np.ones(len(pair), "float32")},
        )

    def default_loss(self) -> Any:
        return {
            head: keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=MEAN, name=head)
            for head in self.heads
        }

    def default_metrics(self) -> dict:
        names = {"masked_lm": "masked_accuracy", "pair": "accuracy"}
        return {head: [keras.metrics.SparseCategoricalAccuracy(name=name)] for head, name in names.items()}

    def _loss_mean_options(self) -> dict[str, Any]:
        return {"num_terms": len(self.heads)}

    def compile(
        self, optimizer: Any = None, loss: Any = None, loss_weights: Any = None, *options: Any, **kwargs: Any
    ) -> None:
        """As `Task.compile`; the accuracies are those of masked tokens and of pairs.

        Args:
            optimizer, loss, options, kwargs: Same as in `Task.compile`.
            loss_weights: Head -> weight.
        """
        self.loss_weights = {"masked_lm": 1.0, "pair": 1.0, **(loss_weights or {})}
        super().compile(optimizer, loss, loss_weights, *options, **kwargs)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Tensor = None, sample_weight: Any = None, training: bool = True
    ) -> Tensor:
        """The sum of the heads' means, each over its own examples."""
        losses, weights = [], []
        for head in self.heads:
            weight = None if sample_weight is None else sample_weight[head]
            losses.append(self.loss[head](y[head], y_pred[head], weight))
            size = ops.prod(ops.shape(y[head])) if weight is None else ops.sum(ops.cast(weight, "float32"))
            weights.append(ops.cast(size, "float32"))
            self.means[head].update_state(ops.stop_gradient(losses[-1]), weights[-1])
        losses = [loss * self.loss_weights[head] for head, loss in zip(self.heads, losses)]
        LossMean.record_batch(self, losses, weights)
        return losses[0] + losses[1]


@keras.saving.register_keras_serializable("bertzoo")
class ReplacedTokenDetector(Task):
    """Tells which tokens were replaced (Clark et al. 2020, section 2).

    The output is a float32 logit per token (batch, length); above 0 it is likelier a replacement than the original.

    Args:
        backbone: The encoder.
        tokenizer: Turns text into the encoder's inputs; None if the caller tokenizes.
        name: Name of the Keras model.

    Raises:
        ValueError: The family has no such head.
    """

    heads = ("rtd",)

    def __init__(
        self, backbone: Encoder, tokenizer: Tokenizer | None = None, name: str = "replaced_token_detector", **kwargs
    ):
        super().__init__(backbone, tokenizer, name=name, **kwargs)
        self.rtd = self.make_head("rtd")
        self.build()

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        outputs, key = self.encode_inputs(inputs, training)
        return self.rtd(outputs["sequence_output"], key=key)[..., 0]

    def compute_output_shape(self, input_shape: Any) -> Any:
        return token_ids_shape(input_shape)

    def onnx_outputs(self, nodes: Any) -> dict[str, Any]:
        return {"logits": nodes.padded(nodes.head(self.rtd, nodes.hidden))}
