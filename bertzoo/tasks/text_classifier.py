"""Classes, several labels at once, or numbers, from one text or a pair (Devlin et al. 2019, section 4.1)."""

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar

import keras
import numpy as np

from bertzoo.data.labels import make_label_names
from bertzoo.data.streams import is_batch_stream, iterate_chunks
from bertzoo.data.task_data import LabelData
from bertzoo.layers.heads import PooledHead
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.answers.classes import ClassReader
from bertzoo.tasks.modular_head import ModularHeadTask
from bertzoo.tasks.probabilities import best_temperature, best_thresholds, sigmoid, softmax
from bertzoo.tasks.task import token_ids_shape
from bertzoo.text.encoded import to_text_list
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.training.adversarial import SiFT
from bertzoo.training.compiled_losses import SmoothedCrossentropy
from bertzoo.types import MULTI_LABEL, PROBLEM_TYPES, REGRESSION, SINGLE_LABEL, Tensor


@keras.saving.register_keras_serializable("bertzoo")
class TextClassifier(ModularHeadTask):
    """Classifies texts, or pairs of texts.

    Args:
        backbone: The encoder.
        tokenizer: Turns text into the encoder's inputs; None if the caller tokenizes.
        labels: The names of the classes, or their number.
        problem_type: "single_label_classification", "multi_label_classification" (any number of labels at once) or
            "regression" (numbers).
        head: A Keras layer (batch, hidden) -> (batch, labels) in place of the family's head. The two-layer GELU head:
            `bertzoo.layers.ClassificationHead(3, dense_activation="gelu")`.
        temperature: `classify` divides logits by it; `fit_temperature` sets it.
        thresholds: For several labels at once, the probability above which `classify` names each; 0.5 where None.
            `fit_thresholds` sets them.
        name: Name of the Keras model.

    The output is float32 logits (batch, labels).

    Raises:
        ValueError: The labels are not different names, or the problem type is unknown.

    Example:
        >>> classifier = bz.TextClassifier.from_preset("bert_mini_en", labels=["bad", "good"], verbose=False)
        >>> classifier.compile(bz.AdamW(1e-3))
        >>> history = classifier.fit(["a gripping film", "dull"], ["good", "bad"], epochs=10, verbose=0)
        >>> classifier.classify("a gripping film")["label"]
        'good'
    """

    data: LabelData
    heads: tuple[str, ...] = ("classifier",)
    config_keys: ClassVar[tuple[str, ...]] = ("labels", "problem_type", "head", "temperature", "thresholds")
    own_options: ClassVar[dict[str, Any]] = {"head": None, "temperature": 1.0, "thresholds": None}

    def __init__(
        self,
        backbone: Encoder,
        tokenizer: Tokenizer | None = None,
        labels: int | Sequence[str] = 2,
        problem_type: str | None = None,
        head: keras.layers.Layer | None = None,
        temperature: float = 1.0,
        thresholds: Sequence[float] | None = None,
        name: str = "text_classifier",
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, name=name, **kwargs)
        self.labels = make_label_names(labels)
        self.problem_type = problem_type or (REGRESSION if len(self.labels) == 1 else SINGLE_LABEL)
        if self.problem_type not in PROBLEM_TYPES:
            raise ValueError(f"problem_type must be one of {', '.join(PROBLEM_TYPES)}. Received: {problem_type!r}.")
        if self.problem_type == SINGLE_LABEL and len(self.labels) < 2:
            raise ValueError(
                "classification needs at least two labels; for one yes-or-no label use multi_label_classification."
            )
        if not temperature > 0 or (thresholds is not None and len(thresholds) != len(self.labels)):
            raise ValueError(
                f"temperature must be above 0, and thresholds as many as labels, {len(self.labels)}. Received: "
                f"{temperature!r} and {thresholds!r}."
            )
        self.data = LabelData(tokenizer, backbone.config, self.labels, self.problem_type)
        self.sparse_targets = self.problem_type == SINGLE_LABEL
        self.temperature, self.thresholds = temperature, None if thresholds is None else [*map(float, thresholds)]
        self.custom_head = head
        if head is not None:
            self.heads, self.hf_class = (), "Model"  # none of the family's
        self.uses_pooler = "classifier" in backbone.family.pooled_heads and backbone.pooler is not None
        self.classifier = head or self.make_head("classifier", len(self.labels))
        self.head_takes_key = "key" in inspect.signature(self.classifier.call).parameters
        self.build()

    def build(self, input_shape: Any = None) -> None:
        if not self.classifier.built:  # a head of the caller's own may be
            self.classifier.build((None, self.backbone.config.hidden_size))

    @property
    def head(self) -> keras.layers.Layer | None:
        """The head of the caller's own, or None."""
        return self.custom_head

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        if isinstance(self.classifier, PooledHead):
            outputs, _ = self.encode_inputs(inputs, training)
            mask = inputs.get("padding_mask") if isinstance(inputs, dict) else None
            return self.classifier(outputs["sequence_output"], mask)
        outputs, key = self.encode_inputs(inputs, training, query_positions=self.backbone.head_query_positions)
        vectors = self.backbone.pool_for_head(outputs, inputs, self.uses_pooler, head=self.classifier)
        return self.classifier(vectors, key=key) if self.head_takes_key else self.classifier(vectors)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (token_ids_shape(input_shape)[0], len(self.labels))

    def onnx_outputs(self, nodes: Any) -> dict[str, Any]:
        if isinstance(self.classifier, PooledHead):
            x = nodes.pool(self.classifier.pooling)
            for layer in self.classifier.after_pooling:
                x = nodes.head(layer, x)
            return {"logits": nodes.rows(x, len(self.labels))}
        vectors = nodes.pool_for_head(self.uses_pooler, layer=self.classifier)
        return {"logits": nodes.rows(nodes.head(self.classifier, vectors), len(self.labels))}

    def classify(self, x: Any, batch_size: int = 32, verbose: Any = 0) -> Any:
        """Labels with probabilities.

        Args:
            x: A text, texts in any form that `predict` takes, or a generator of texts or pairs of any length.
            batch_size, verbose: As for `predict`.

        Returns:
            A dict for one text, a list of dicts for several, a generator for a generator. For classes they have
            `label`, `score` (its probability) and `scores` (label -> probability); for several labels `labels` (those
            above their thresholds) and `scores`; for regression `value`, or `values` by label.
        """
        if hasattr(x, "__next__"):
            return (answer for chunk in iterate_chunks(x) for answer in self.classify(chunk, batch_size, verbose))
        if is_batch_stream(x):
            return [self._readable(row) for row in self.logits(x, batch_size, verbose=verbose)]
        examples = self.data.parse(x)
        if len(examples) == 0:
            return []
        return examples.unwrap([self._readable(row) for row in self.logits(examples, batch_size, verbose=verbose)])

    def _readable(self, logits: np.ndarray) -> dict[str, Any]:
        return ClassReader(self.labels, self.problem_type, self.temperature, self.thresholds)(logits)

    def zero_shot(
        self,
        x: Any,
        labels: Sequence[str],
        template: str = "This example is {}.",
        multi_label: bool = False,
        batch_size: int = 32,
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """Sorts texts into classes that the model, one of natural-language inference, was never trained on: whether
        each text entails `template` with each label in it (Yin et al. 2019).

        The model's labels must have one that begins with "entail", and, for `multi_label`, one with "contra" or "not".

        Args:
            x: A text or a list of them.
            labels: The candidates.
            template: A sentence with {} where the label goes.
            multi_label: Each label is judged alone, entailment against contradiction; otherwise they compete.
            batch_size: Pairs at once.

        Returns:
            For one text a dict, for several a list of them: `label` and `score` of the best candidate, `scores` of all,
            best first.

        Raises:
            ValueError: The model is not one of inference, the template has no {}, or there are no labels.
        """
        if "{}" not in template:
            raise ValueError(f"template must hold {{}} where the label goes. Received: {template!r}.")
        if isinstance(labels, str) or not labels:
            raise ValueError(f"labels must be a list of candidates. Received: {labels!r}.")
        texts = to_text_list(x)
        if not texts:
            return []
        entails = self._inference_label("entail")
        pairs = [(text, template.replace("{}", label)) for text in texts for label in labels]
        logits = self.logits(pairs, batch_size).astype("float64").reshape(len(texts), len(labels), -1)
        if multi_label:
            probabilities = sigmoid(logits[:, :, entails] - logits[:, :, self._inference_label("contra", "not")])
        else:
            probabilities = softmax(logits[:, :, entails])
        answers = []
        for row in probabilities:
            scores = {labels[i]: float(row[i]) for i in np.argsort(-row, kind="stable")}
            best = next(iter(scores))
            answers.append({"label": best, "score": scores[best], "scores": scores})
        return answers[0] if isinstance(x, str) else answers

    def _inference_label(self, *beginnings: str) -> int:
        matches = [i for i, name in enumerate(self.labels) if name.lower().startswith(beginnings)]
        if len(matches) != 1:
            raise ValueError(
                "zero-shot classification needs a model of natural-language inference with one label that begins with "
                f"{' or '.join(beginnings)}; this one has {', '.join(self.labels)}."
            )
        return matches[0]

    def fit_temperature(self, x: Any, y: Any = None, batch_size: int = 32) -> float:
        """Fits the softmax temperature on held-out data (minimum NLL; Guo et al. 2017), and returns it.

        Predicted labels do not change. The temperature is saved with the model.

        Args:
            x, y: Held-out texts and labels, in any form that `fit` takes.
            batch_size: As for `predict`.

        Raises:
            ValueError: The problem type is regression.
        """
        logits, targets = self._held_out(x, y, batch_size, (SINGLE_LABEL, MULTI_LABEL))
        self.temperature = best_temperature(logits, targets)
        return self.temperature

    def fit_thresholds(self, x: Any, y: Any = None, batch_size: int = 32) -> dict[str, float]:
        """Finds the threshold of each label with the best F1 on held-out data, and returns them by label.

        Call it after `fit_temperature`. The thresholds are saved with the model.

        Args:
            x, y: Held-out texts and labels, in any form that `fit` takes.
            batch_size: As for `predict`.

        Raises:
            ValueError: The problem type is not multi_label_classification.
        """
        logits, targets = self._held_out(x, y, batch_size, (MULTI_LABEL,))
        self.thresholds = best_thresholds(sigmoid(logits / self.temperature), targets)
        return dict(zip(self.labels, self.thresholds))

    def _held_out(self, x, y, batch_size: int, problem_types: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        if self.problem_type not in problem_types:
            raise ValueError(
                f"this needs problem_type {' or '.join(problem_types)}. Received: a classifier with "
                f"problem_type={self.problem_type!r}."
            )
        examples = self.data.parse(x, y)
        targets = self.data.encode_targets(examples)
        return self.logits(examples, batch_size).astype("float64"), targets

    def compile(
        self,
        optimizer: Any = None,
        loss: Any = None,
        *options: Any,
        label_smoothing: float = 0.0,
        adversarial: SiFT | None = None,
        **kwargs: Any,
    ) -> None:
        """As `Task.compile`.

        Args:
            optimizer, loss, options, kwargs: Same as in `Task.compile`.
            label_smoothing: The part of the target that is spread over all classes (Szegedy et al. 2016, section 7).
            adversarial: What adds to the loss of training how far predictions move under the worst perturbation.

        Raises:
            ValueError: `label_smoothing` is combined with a loss, or with regression.
        """
        if label_smoothing:
            if loss is not None or self.problem_type == REGRESSION:
                raise ValueError("label_smoothing is for the default losses of classes and of several labels.")
            if self.problem_type == SINGLE_LABEL:
                loss = SmoothedCrossentropy(label_smoothing)
            else:
                loss = keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=label_smoothing)
        self.adversarial = adversarial
        super().compile(optimizer, loss, *options, **kwargs)

    def batch_loss(self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any, training: bool) -> Tensor:
        """The mean loss over a batch's examples, with that of adversarial training.

        Args:
            x, y, y_pred, sample_weight, training: As `keras.Model.compute_loss`.
        """
        loss = super().batch_loss(x, y, y_pred, sample_weight, training)
        return loss if self.adversarial is None or not training else loss + self.adversarial.loss(self, x, y_pred)

    def get_compile_config(self) -> dict[str, Any] | None:
        config = super().get_compile_config()
        return config and {**config, "adversarial": keras.saving.serialize_keras_object(self.adversarial)}

    def freeze(self, num_layers: int | None = None) -> None:
        """Freezes the embeddings and the lowest `num_layers` blocks; the whole encoder where None.

        Raises:
            ValueError: There are fewer blocks than that.
        """
        blocks = self.backbone.blocks
        if num_layers is not None and not 0 <= num_layers <= len(blocks):
            raise ValueError(f"num_layers must be from 0 to {len(blocks)}. Received: {num_layers}.")
        self.backbone.trainable = num_layers is not None
        if num_layers is not None:
            for layer in [self.backbone.embeddings, *blocks[:num_layers]]:
                layer.trainable = False

    def default_loss(self) -> Any:
        if self.problem_type == SINGLE_LABEL:
            return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        if self.problem_type == MULTI_LABEL:
            return keras.losses.BinaryCrossentropy(from_logits=True)
        return keras.losses.MeanSquaredError()

    def default_metrics(self) -> list:
        if self.problem_type == SINGLE_LABEL:
            return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
        if self.problem_type == MULTI_LABEL:
            return [keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)]  # logits
        return [keras.metrics.MeanAbsoluteError(name="mae")]

    # ---- presets

    @classmethod
    def _options_from_files(cls, config: EncoderConfig) -> dict[str, Any]:
        problem_type = config.extra.get("problem_type")
        return super()._options_from_files(config) | ({"problem_type": problem_type} if problem_type else {})

    def _config_changes(self) -> dict[str, Any]:
        return {**super()._config_changes(), "problem_type": self.problem_type}
