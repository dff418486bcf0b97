"""One vector for each text, whose cosine measures the similarity of texts (Reimers and Gurevych 2019)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo._keras_hooks import print_message
from bertzoo.checkpoints.errors import add_source_to_errors
from bertzoo.checkpoints.loading import save_model, take_encoder_options
from bertzoo.checkpoints.sentence_transformers import build_sentence_transformer_files, read_sentence_transformer_files
from bertzoo.data.batches import SeededDataset
from bertzoo.data.tuple_data import TupleData
from bertzoo.layers.base import build_dense
from bertzoo.layers.functional import FIRST
from bertzoo.layers.heads import Normalize, Pooling
from bertzoo.losses.base import SentenceLoss
from bertzoo.losses.pairs import CosineRegression
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.embedding_task import EmbeddingTask
from bertzoo.tasks.few_shot import fit_few_shot
from bertzoo.tasks.mteb import ARGUMENTS, MtebEncoder
from bertzoo.tasks.sentence_modules import (
    VectorSimilarity,
    layers_from_modules,
    load_layer_weights,
    load_sentence_backbone,
    load_sentence_tokenizer,
    module_from_layer,
    prompt_options_from_settings,
)
from bertzoo.tasks.static_distillation import distil_static
from bertzoo.tasks.static_encoder import StaticEncoder
from bertzoo.tasks.task import token_ids_shape
from bertzoo.tasks.text_classifier import TextClassifier
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.types import Tensor

ROWS_KEPT = 2**17  # vectors that wait on an accelerator


@keras.saving.register_keras_serializable("bertzoo")
class SentenceEncoder(VectorSimilarity, EmbeddingTask):
    """Turns texts into vectors.

    Args:
        backbone: The encoder.
        tokenizer: Turns text into the encoder's inputs; None if the caller tokenizes.
        pooling: A `Pooling` layer, or its modes: what makes one vector of a text's tokens.
        after_pooling: Keras `Dense` layers and `Normalize` that follow.
        prompts: Name -> text that `encode` puts before each text.
        default_prompt: The name of the prompt to use by default.
        settings: Further keys of config_sentence_transformers.json, which are carried through.
        name: Name of the Keras model.

    Called with inputs (batch, length) it gives float32 vectors (batch, width); with tuples of texts (batch, columns,
    length), as `fit` does, (batch, columns, width).

    Raises:
        ValueError: A layer is of another kind, or `default_prompt` is not among the prompts.

    Example:
        >>> encoder = bz.SentenceEncoder.from_preset("sentence_mini_en", verbose=False)
        >>> vectors = encoder.encode(["A cat sleeps.", "A kitten is napping.", "Shares fell."])
        >>> vectors.shape
        (3, 256)
        >>> encoder.similarity(vectors[0], vectors).argsort()[..., ::-1].tolist()
        [[0, 1, 2]]
    """

    config_keys = ("pooling", "after_pooling", "prompts", "default_prompt", "settings")
    gives_layers = True

    def __init__(
        self,
        backbone: Encoder,
        tokenizer: Tokenizer | None = None,
        pooling: str | Sequence[str] | Pooling = "mean",
        after_pooling: Sequence[keras.layers.Layer] = (),
        prompts: Mapping[str, str] | None = None,
        default_prompt: str | None = None,
        settings: Mapping[str, Any] | None = None,
        name: str = "sentence_encoder",
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, name=name, **kwargs)
        self.pooling = pooling if isinstance(pooling, Pooling) else Pooling(pooling)
        self.after_pooling = list(after_pooling)
        for layer in self.after_pooling:
            if not isinstance(layer, (keras.layers.Dense, Normalize)):
                raise ValueError(f"after_pooling must hold Dense and Normalize layers. Received: {layer!r}.")
        self.set_prompts(prompts, default_prompt, settings)
        if backbone.pooler is not None:  # unused by the vectors, and kept for saving
            backbone.pooler.trainable = False
        self.build()
        self.data = TupleData(tokenizer, backbone.config, self.width)

    def build(self, input_shape: Any = None) -> None:
        width = self.backbone.config.hidden_size
        if not self.pooling.built:
            self.pooling.build((None, None, width))
        width *= len(self.pooling.modes)
        for layer in self.after_pooling:
            if isinstance(layer, keras.layers.Dense):
                if not layer.built:
                    build_dense(self, layer, width, self.backbone.config.initializer_range)
                width = layer.units
        self.width = width

    def embed(self, inputs: dict[str, Tensor], key: Tensor | None) -> Tensor:
        # Not `super()`, a closure, which PyTorch does not compile.
        vectors = EmbeddingTask.embed(self, inputs, key)
        # A single text is then an example of one, so that losses find the layers on the same axis.
        return vectors[:, None] if self._reads_layers(key) and len(inputs["token_ids"].shape) == 2 else vectors

    def _reads_layers(self, key: Tensor | None) -> bool:
        return key is not None and self.data.loss is not None and self.data.loss.reads_layers

    def embed_texts(self, inputs: dict[str, Tensor], key: Tensor | None) -> Tensor:
        """The vectors of texts: (batch, width), or in training by a loss that reads them those of all layers (batch,
        layers, width).

        Args:
            inputs, key: As in `EmbeddingTask`.
        """
        options: dict[str, Any] = {"training": key is not None, "dropout_key": key}
        counted = inputs.pop("pooling_mask", inputs.get("padding_mask"))
        if self._reads_layers(key):
            outputs = self.backbone(inputs, return_layers=True, **options)
            return ops.stack([self._pool(x, counted) for x in outputs["hidden_states"]], axis=1)
        # "cls" is the first token that counts. With lengths besides the mask, that is the first there is.
        first = counted is None or (counted is inputs.get("padding_mask") and "lengths" in inputs)
        if first and type(self.pooling) is Pooling and self.pooling.modes == ("cls",):
            return self._pool(self.backbone(inputs, query_positions=FIRST, **options)["sequence_output"], None)
        return self._pool(self.backbone(inputs, **options)["sequence_output"], counted)

    def _pool(self, x: Tensor, counted: Tensor | None) -> Tensor:
        """Token vectors (batch, length, hidden) -> (batch, width)."""
        x = self.pooling(x, counted)
        for layer in self.after_pooling:
            x = layer(x)
        return x

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*token_ids_shape(input_shape)[:-1], self.width)

    def onnx_outputs(self, nodes: Any) -> dict[str, Any]:
        x = nodes.pool(self.pooling)
        for layer in self.after_pooling:
            x = nodes.head(layer, x)
        tokens = nodes.padded(nodes.hidden, self.backbone.config.hidden_size)
        return {"sentence_embedding": nodes.rows(x, self.width), "token_embeddings": tokens}

    def outputs_by_onnx(self, model: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Vectors float32 (batch, width), or (batch, columns, width), as `Task.outputs_by_onnx`.

        Args:
            model, inputs: Same as in `Task.outputs_by_onnx`.
        """
        shape = inputs["token_ids"].shape
        if len(shape) == 2:
            return super().outputs_by_onnx(model, inputs)
        rows = super().outputs_by_onnx(model, {name: x.reshape(-1, *x.shape[2:]) for name, x in inputs.items()})
        return rows.reshape(*shape[:2], -1)

    def exported_settings(self) -> dict[str, Any]:
        pooling = {"pooling": list(self.pooling.modes), "include_prompt": self.pooling.include_prompt}
        return {**super().exported_settings(), **pooling, "width": self.width}

    # ---- presets

    @classmethod
    def from_preset(
        cls,
        preset: str | Path,
        *,
        max_length: int | None = None,
        lowercase: bool | None = None,
        verbose: bool = True,
        **options: Any,
    ) -> "SentenceEncoder":
        """Loads a sentence-transformers directory or repository, or a plain encoder, which gets mean pooling.

        Args:
            preset: A bundled name, a directory, or `hf://owner/name[@revision]`.
            max_length: Longest input in tokens, where it is not to be the file's.
            lowercase, verbose: See `Task.from_preset`.
            options: `dtype`, `dropout`, `attention_dropout` and `remat`, see `Task.from_preset`; and what the
                constructor takes, in place of what the files say.

        Raises:
            CheckpointError: The files can't be used.
            TypeError: An option is unknown.
        """
        for_encoder = take_encoder_options(cls, options)
        files = read_sentence_transformer_files(preset)
        encoder = load_sentence_backbone(files.directory, **for_encoder)
        with add_source_to_errors(files.directory):
            layers = layers_from_modules(files.modules) if files.modules else []
            in_files = prompt_options_from_settings(files.settings)
            if layers:
                in_files |= {"pooling": layers[0], "after_pooling": layers[1:]}
            if "tokenizer" not in options:
                in_files["tokenizer"] = load_sentence_tokenizer(files, encoder.config, max_length, lowercase)
            model = cls(encoder, **in_files | options)
        load_layer_weights(files.modules, layers)
        model.load_report = encoder.load_report
        model.load_report.source = str(preset)
        model.load_report.notes.append(f"sentence vectors of {model.width} numbers: {model.describe()}")
        if verbose:
            print_message(str(model.load_report))
        return model

    def describe(self) -> str:
        """The layers after the encoder, in a few words."""
        layers = [" + ".join(self.pooling.modes) + " pooling", *(type(layer).__name__ for layer in self.after_pooling)]
        length = self.tokenizer.max_length if self.tokenizer else None
        return " -> ".join(layers) + (f", of at most {length} tokens" if length else "")

    def save_to_preset(self, directory: str | Path) -> None:
        """Writes a directory that sentence-transformers loads with equal vectors, and transformers as an encoder.

        Attention pooling alone is beyond sentence-transformers, which then refuses the directory.
        """
        settings = {"similarity_fn_name": "cosine", **self.prompt_settings()}
        length = self.tokenizer.max_length if self.tokenizer else self.backbone.config.max_length
        save_model(
            self.backbone,
            directory,
            tokenizer=self.tokenizer,
            extra_files=build_sentence_transformer_files(
                [module_from_layer(layer) for layer in (self.pooling, *self.after_pooling)], length, settings
            ),
        )

    def encode(
        self,
        texts: Any,
        batch_size: int | None = None,
        normalize: bool = False,
        prompt: str | None = None,
        output: str = "numpy",
        truncate_dim: int | None = None,
        *,
        prompt_name: str | None = None,
        show_progress_bar: bool | None = None,
        **mteb: Any,
    ) -> Any:
        """The vectors of texts, in their order; texts of similar length are computed together.

        Args:
            texts: A string, a list, array or Series of strings, or an iterator of them of any length; without
                tokenizer, a dict of arrays.
            batch_size: Texts computed at once; where None, as many as hold about 4,096 tokens, or on an accelerator
                131,072.
            normalize: Scale each vector to length 1 (a model that ends in `Normalize` does so anyway).
            prompt: Put before each text; "" for none.
            output: "numpy", or "tensor" for the backend's.
            truncate_dim: Keep the first numbers of each vector only, before they are normalized (see `Matryoshka`); as
                many as the model's files say where None.
            prompt_name: Which of the model's prompts to take; its default prompt where neither is given.
            show_progress_bar: Show a progress bar; by default only for 100 or more batches in an interactive session.
            mteb: Further arguments that the package `mteb` passes: `prompt_type` chooses the prompt.

        Returns:
            float32 (n, width), (0, width) for no texts; (width,) for a single string. An iterator gives an iterator of
            vectors (width,), read and computed 4,096 texts at a time.

        Raises:
            TypeError: A text is no string.
            ValueError: An argument is out of its range, or there is a prompt for token_ids.
        """
        if output not in ("numpy", "tensor"):
            raise ValueError(f'output must be "numpy" or "tensor". Received: {output!r}.')
        if truncate_dim is None:
            truncate_dim = min(self.settings.get("truncate_dim") or self.width, self.width)
        if not 1 <= truncate_dim <= self.width:
            raise ValueError(f"truncate_dim must be from 1 to {self.width}. Received: {truncate_dim!r}.")
        if set(mteb) - ARGUMENTS:
            raise TypeError(f"encode has no argument {', '.join(sorted(set(mteb) - ARGUMENTS))}.")
        prompt = self.resolve_prompt(prompt, prompt_name, mteb.get("prompt_type"))

        def finish(vectors):
            vectors = vectors[:, :truncate_dim]
            if normalize:
                vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
            return vectors if output == "numpy" else ops.convert_to_tensor(vectors)

        return self.encode_texts(texts, prompt, mteb.get("prompt_type"), batch_size, show_progress_bar, finish)

    def default_loss(self) -> SentenceLoss:
        return CosineRegression()

    @property
    def includes_prompt(self) -> bool:
        return self.pooling.include_prompt

    def vectors_of_batches(self, data: SeededDataset, callback: keras.callbacks.Callback) -> np.ndarray:
        """The vectors of texts, float32 (n, width), in their order.

        Args:
            data, callback: As in `EmbeddingTask`.
        """
        vectors = np.empty((len(data.row_order), self.width), "float32")
        # Keras leaves what it predicts on the accelerator until it has all, and then makes two copies of it.
        for chunk in data.split_into_datasets(ROWS_KEPT):
            vectors[chunk.row_order] = self.predict_batches(chunk, verbose=0, callbacks=[callback])
        return vectors

    def no_vectors(self) -> np.ndarray:
        return np.zeros((0, self.width), "float32")

    def to_static(self, width: int = 256, sif_coefficient: float | None = 1e-4) -> StaticEncoder:
        """Static vectors of this model (model2vec, Tulkens and van Dongen 2024): each token alone through the model,
        principal components, and weights by frequency.

        Args:
            width: The width of the vectors, at most the model's.
            sif_coefficient: a of the weight a / (a + p), p the token's probability by Zipf's law, where tokens are
                ordered by frequency, as WordPiece vocabularies are; None for no weights.

        Returns:
            An encoder whose rows are float16.

        Raises:
            ValueError: The model has no tokenizer, or a number is not positive.
        """
        return distil_static(self, width, sif_coefficient)

    def fit_classifier(
        self,
        x: Any,
        y: Any,
        labels: int | Sequence[str],
        *,
        problem_type: str | None = None,
        num_iterations: int | None = None,
        epochs: int = 1,
        batch_size: int = 32,
        learning_rate: float = 4e-5,
        verbose: Any = "auto",
    ) -> TextClassifier:
        """Trains a classifier on few labelled texts, 8 or 16 of each class (SetFit, Tunstall et al. 2022).

        This encoder is trained to give texts of one class vectors of cosine 1 and others of cosine 0, on pairs of the
        texts (see `bertzoo.data.contrastive_pairs`). Then the classifier's last layer, a logistic regression, is fit to
        its vectors. The embedding layer stays as it is, so that words which no example has keep their relations to
        those that one has.

        Args:
            x, y, labels, problem_type: Single texts and their labels, as for `TextClassifier`.
            num_iterations: Pairs of each kind, alike and unlike, are `num_iterations` times the texts; None uses all
                pairs, the rarer kind repeated.
            epochs: Passes over the pairs.
            batch_size: Pairs in a batch.
            learning_rate: The peak rate of `bertzoo.AdamW`.
            verbose: As for `fit`.

        Returns:
            A classifier that shares this model's encoder.

        Raises:
            ValueError: The model has no tokenizer or a default prompt, the texts have one label alone, or they are
                pairs or have numbers as targets.
        """
        return fit_few_shot(
            self, x, y, labels, problem_type, num_iterations, epochs, batch_size, learning_rate, verbose
        )

    def for_mteb(self) -> MtebEncoder:
        """This model for the package `mteb`: `mteb.evaluate(model.for_mteb(), tasks)`."""
        return MtebEncoder(self)
