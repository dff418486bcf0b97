"""Scores of pairs, read together: slower than vectors and finer, for ranking again what a search found."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.sentence_transformers import (
    SCORES,
    build_cross_encoder_files,
    is_modular_reranker,
    read_sentence_transformers_config,
)
from bertzoo.data.parsing import parse_inputs
from bertzoo.data.ranking_data import RankingData
from bertzoo.data.schemas import TextSchema
from bertzoo.data.streams import is_batch_stream
from bertzoo.data.tuple_data import flatten_tuple_inputs
from bertzoo.losses.ranking import RankingLoss
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.probabilities import sigmoid, softmax
from bertzoo.tasks.sentence_modules import PromptedTask, prompt_options_from_settings
from bertzoo.tasks.text_classifier import TextClassifier
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.types import REGRESSION, SINGLE_LABEL, Tensor

# What predict makes of logits: its name in sentence-transformers' files, and the function.
ACTIVATIONS: dict[str, tuple[str, Callable]] = {
    "sigmoid": ("torch.nn.modules.activation.Sigmoid", sigmoid),
    "linear": ("torch.nn.modules.linear.Identity", np.asarray),
    "softmax": ("torch.nn.modules.activation.Softmax", softmax),
    "tanh": ("torch.nn.modules.activation.Tanh", np.tanh),
}
PAIRS = TextSchema(least=2)


@keras.saving.register_keras_serializable("bertzoo")
class CrossEncoder(PromptedTask, TextClassifier):
    """Scores pairs of texts (Nogueira and Cho 2019; Reimers and Gurevych 2019, section 1).

    Args:
        backbone, tokenizer, head: See `TextClassifier`.
        labels: 1 for a score, which is the usual; more for classes of pairs, such as those of NLI.
        problem_type: As of `TextClassifier`; by default "regression" for one label, classes for more.
        activation: What `predict` makes of the logits: "sigmoid", "linear", "tanh" or, of several labels, "softmax";
            the first for one label, the second for more, where None.
        prompts: Name -> text that `predict` puts before the first text of each pair.
        default_prompt: The name of the prompt to use by default.
        settings: Further keys of config_sentence_transformers.json, which are carried through.
        name: Name of the Keras model.

    One label is trained with scores from 0 to 1 and binary cross-entropy, or by lists of documents with a
    `bertzoo.losses.RankingLoss`; more with classes and cross-entropy. The checkpoint is that of a text classifier,
    which sentence-transformers loads.

    Raises:
        ValueError: The activation is unknown, or `TextClassifier` refuses the labels.

    Example:
        >>> reranker = bz.CrossEncoder.from_preset("bert_mini_en", verbose=False)  # with a new head
        >>> reranker.compile(bz.AdamW(1e-3))
        >>> pairs = [("capital of France", "Paris"), ("capital of France", "Cats sleep")]
        >>> history = reranker.fit(pairs, [1, 0], epochs=10, verbose=0)
        >>> reranker.rank("capital of France", ["Cats sleep", "Paris"])[0]["text"]
        'Paris'
    """

    config_keys = ("labels", "problem_type", "head", "activation", "prompts", "default_prompt", "settings")

    def __init__(
        self,
        backbone: Encoder,
        tokenizer: Tokenizer | None = None,
        labels: int | Sequence[str] = 1,
        problem_type: str | None = None,
        head: keras.layers.Layer | None = None,
        activation: str | None = None,
        prompts: Mapping[str, str] | None = None,
        default_prompt: str | None = None,
        settings: Mapping[str, Any] | None = None,
        name: str = "cross_encoder",
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, labels, problem_type, head, name=name, **kwargs)
        self.data: RankingData = RankingData(tokenizer, backbone.config, self.labels, self.problem_type, PAIRS)
        self.activation = activation or ("sigmoid" if len(self.labels) == 1 else "linear")
        _function(self.activation)
        self.set_prompts(prompts, default_prompt, settings)

    def predict(
        self,
        x: Any,
        batch_size: int | None = 32,
        verbose: Any = 0,
        steps: int | None = None,
        callbacks: Any = None,
        activation: str | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
    ) -> Any:
        """Scores of pairs, in their order.

        Args:
            x: A pair of strings, which gives its score alone; or pairs in any form that `fit` takes.
            batch_size, verbose, steps, callbacks: As `keras.Model.predict`.
            activation: "sigmoid", "linear" (the logits), "tanh" or "softmax", where it is not to be the model's.
            prompt: Put before the first text of each pair; "" for none.
            prompt_name: Which of the model's prompts to take; its default prompt where neither is given.

        Returns:
            float32 (n,), or (n, labels) for several labels.

        Raises:
            ValueError: The activation is unknown.
        """
        function = _function(self.activation if activation is None else activation)
        prompt = self.resolve_prompt(prompt, prompt_name)
        single = False
        if not is_batch_stream(x) and self.tokenizer is not None:
            x = parse_inputs(x, schema=PAIRS)
            single = x.single
        logits = self.logits(x, batch_size, prompt=prompt, verbose=verbose, steps=steps, callbacks=callbacks)
        scores = function(logits).astype("float32")
        scores = scores[:, 0] if len(self.labels) == 1 else scores
        return scores[0] if single else scores

    def logits(self, x: Any, batch_size: int | None = None, *, prompt: str | None = None, **options: Any) -> np.ndarray:
        """As `Task.logits`, float32 (n, labels).

        Args:
            x, batch_size, options: Same as in `Task.logits`.
            prompt: Put before the first text of each pair; the default prompt where None.
        """
        if hasattr(x, "__len__") and len(x) == 0:
            return np.zeros((0, len(self.labels)), "float32")
        return super().logits(x, batch_size, prompt=self.resolve_prompt(prompt), **options)

    def rank(
        self,
        query: str | Sequence[str],
        documents: Sequence[str],
        top_k: int | None = None,
        batch_size: int = 32,
        verbose: Any = 0,
    ) -> list:
        """Orders documents by how well they fit a query, the best first.

        Args:
            query: The query, or a list of them.
            documents: The documents.
            top_k: How many to give; all where None.
            batch_size, verbose: As for `predict`.

        Returns:
            For one query, a list of dicts: `corpus_id`, the index of the document, `score`, and `text`. For a list of
            queries, a list of these lists.

        Raises:
            TypeError: A query or a document is no string.
            ValueError: The model has several labels, of which none is a score.
        """
        if len(self.labels) != 1:
            raise ValueError(
                f"rank needs a model with one label, its score. Received: a model with the labels {self.labels}."
            )
        if isinstance(query, (list, tuple)):
            return [self.rank(one, documents, top_k, batch_size, verbose) for one in query]
        if not isinstance(query, str):
            raise TypeError(f"query must be a string or a list of strings. Received: {query!r:.60}.")
        if isinstance(documents, str):
            raise TypeError(f"documents must be a list of strings. Received: {documents!r:.60}.")
        documents = list(documents)
        scores = self.predict([(query, text) for text in documents], batch_size, verbose) if documents else np.zeros(0)
        order = np.argsort(-scores, kind="stable")[:top_k]
        return [{"corpus_id": int(i), "score": float(scores[i]), "text": documents[i]} for i in order]

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        inputs = dict(inputs) if isinstance(inputs, dict) else {"token_ids": inputs}
        if len(inputs["token_ids"].shape) == 2:
            return super().call(inputs, training)
        documents = inputs["token_ids"].shape[1]
        return ops.reshape(super().call(flatten_tuple_inputs(inputs), training), (-1, documents))

    def compile(self, optimizer: Any = None, loss: Any = None, *options: Any, **kwargs: Any) -> None:
        """As `TextClassifier.compile`.

        With a loss of lists, `fit((queries, documents), labels)` takes a list of documents for each query, and a list
        of labels as long, where the loss has some; tables too, see `bertzoo.data.schemas`.

        Args:
            optimizer, options, kwargs: Same as in `TextClassifier.compile`.
            loss: By default binary cross-entropy of scores from 0 to 1; "mse" for a teacher's scores; or a loss of a
                query's documents, a `bertzoo.losses.RankingLoss`.

        Raises:
            ValueError: A loss of a query's documents is for a model with several labels.
        """
        ranking = loss if isinstance(loss, RankingLoss) else None
        if ranking is not None and len(self.labels) != 1:
            raise ValueError(
                f"{type(loss).__name__} compares scores. Received: a model with {len(self.labels)} labels. Make it "
                "with labels=1."
            )
        super().compile(optimizer, loss, *options, **kwargs)
        binary = isinstance(self.loss, keras.losses.BinaryCrossentropy)
        self.data.set_loss(ranking, (0, 1) if binary else (-np.inf, np.inf))

    def default_loss(self) -> Any:
        if self.problem_type == REGRESSION:
            return keras.losses.BinaryCrossentropy(from_logits=True)
        return super().default_loss()

    def default_metrics(self) -> list:
        return [] if self.problem_type == REGRESSION else super().default_metrics()

    def _readable(self, logits: np.ndarray) -> dict[str, Any]:
        # A number is what `predict` gives. The probabilities of labels come from logits, whatever the activation.
        if self.problem_type == REGRESSION:
            logits = _function(self.activation)(logits).astype("float32")
        return super()._readable(logits)

    @classmethod
    def from_preset(cls, preset: str | Path, **options: Any) -> "CrossEncoder":
        """As `Task.from_preset`; a checkpoint of sentence-transformers brings its activation.

        Args:
            preset, options: Same as in `Task.from_preset`.
        """
        settings = read_sentence_transformers_config(preset)
        named = settings.pop("activation_fn", None)
        if "activation" not in options and named is not None:
            options["activation"] = _activation(named)
        return super().from_preset(preset, **prompt_options_from_settings(settings) | options)

    _is_modular = staticmethod(is_modular_reranker)
    _module_output = SCORES

    def _module_settings(self) -> dict[str, Any]:
        activation = ACTIVATIONS[self.activation][0]
        return {**self.prompt_settings(), "model_type": "CrossEncoder", "activation_fn": activation}

    @classmethod
    def _options_from_files(cls, config: EncoderConfig) -> dict[str, Any]:
        options = super()._options_from_files(config)
        # sentence-transformers reads no problem, and keeps what another model of the files had: one score is no class.
        if options.get("problem_type") == SINGLE_LABEL and len(options.get("labels", [0])) == 1:
            del options["problem_type"]
        # Before version 4 of sentence-transformers it was a key of its own.
        named = (config.extra.get("sentence_transformers") or {}).get("activation_fn")
        named = named or config.extra.get("sbert_ce_default_activation_function")
        return options if named is None else {**options, "activation": _activation(named)}

    def _config_changes(self) -> dict[str, Any]:
        kept = self.backbone.config.extra.get("sentence_transformers") or {}
        return {
            **super()._config_changes(),
            "sentence_transformers": {**kept, "activation_fn": ACTIVATIONS[self.activation][0]},
        }

    def _extra_files(self) -> dict[str, Any]:
        if not (self.prompts or self.settings):
            return {}
        return build_cross_encoder_files({**self.prompt_settings(), "activation_fn": ACTIVATIONS[self.activation][0]})


def _function(activation: str) -> Callable:
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}. Received: {activation!r}.")
    return ACTIVATIONS[activation][1]


def _activation(hf_name: str) -> str:
    names = {name: activation for activation, (name, _) in ACTIVATIONS.items()}
    if hf_name not in names:
        raise CheckpointError(
            f"the files name the activation {hf_name!r}; bertzoo has {', '.join(names)}. "
            'Pass activation="sigmoid" or "linear".'
        )
    return names[hf_name]
