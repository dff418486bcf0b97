"""One sparse vector for each text, a weight for each word of the vocabulary (Formal et al. 2021, SPLADE)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo._keras_hooks import print_message, unlocked_layer
from bertzoo.checkpoints.errors import CheckpointError, add_source_to_errors
from bertzoo.checkpoints.loading import save_model
from bertzoo.checkpoints.sentence_transformers import (
    DOCUMENT_ENCODER,
    SentenceModule,
    SentenceTransformerFiles,
    build_sentence_transformer_files,
    read_sentence_transformer_files,
)
from bertzoo.data.batches import SeededDataset
from bertzoo.data.retrieval_data import QUERY_IDS, SparseData
from bertzoo.layers.splade import SparseStaticEmbedding, SpladePooling
from bertzoo.losses.sparse import RegularizerSchedule, SpladeLoss
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.answers.sparse_vectors import SparseVector, SparseVectors
from bertzoo.tasks.embedding_task import EmbeddingTask
from bertzoo.tasks.sentence_modules import (
    VectorSimilarity,
    load_sentence_tokenizer,
    prompt_options_from_settings,
)
from bertzoo.tasks.task import token_ids_shape
from bertzoo.text.encoded import prepend_prompt, to_text_list
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class SparseEncoder(VectorSimilarity, EmbeddingTask):
    """Turns texts into sparse vectors of words: SPLADE pooling over the masked-LM head of an encoder.

    Args:
        backbone: The encoder.
        tokenizer: Turns text into the encoder's inputs; None if the caller tokenizes.
        pooling: A `SpladePooling` layer, or "max" or "sum".
        query_embedding: A `SparseStaticEmbedding`, with which queries need no encoder; None if they are encoded as
            documents are.
        max_active_dims: The most words of a vector that `encode` gives, those of the largest weights; None for all.
        prompts: Name -> text that `encode` puts before each text.
        default_prompt: The name of the prompt to use by default.
        settings: Further keys of config_sentence_transformers.json, which are carried through.
        name: Name of the Keras model.

    Called with inputs (batch, length) it gives float32 vectors (batch, vocabulary); with tuples of texts (batch,
    columns, length), as `fit` does, (batch, columns, vocabulary).

    Raises:
        ValueError: The encoder's family has no masked-LM head, or an argument is out of its range.

    Example:
        >>> encoder = bz.SparseEncoder.from_preset("bert_mini_en", verbose=False)
        >>> vectors = encoder.encode_document(["Paris is the capital of France."], max_active_dims=64)
        >>> ids, weights = vectors[0]
        >>> len(ids), vectors.to_dense().shape
        (64, (1, 16000))
    """

    data: SparseData
    heads = ("masked_lm",)
    default_measure = "dot"
    similarity_function = staticmethod(SparseVectors.similarity)
    pairwise_function = staticmethod(SparseVectors.pairwise_similarity)
    config_keys = ("pooling", "query_embedding", "max_active_dims", "prompts", "default_prompt", "settings")

    def __init__(
        self,
        backbone: Encoder,
        tokenizer: Tokenizer | None = None,
        pooling: str | SpladePooling = "max",
        query_embedding: SparseStaticEmbedding | None = None,
        max_active_dims: int | None = None,
        prompts: Mapping[str, str] | None = None,
        default_prompt: str | None = None,
        settings: Mapping[str, Any] | None = None,
        name: str = "sparse_encoder",
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, name=name, **kwargs)
        self.masked_lm = self.make_head("masked_lm")
        self.pooling = pooling if isinstance(pooling, SpladePooling) else SpladePooling(pooling)
        self.query_embedding, self.width = query_embedding, backbone.config.vocab_size
        if query_embedding is not None and query_embedding.vocab_size != self.width:
            raise ValueError(
                f"query_embedding must have a weight for each of the {self.width} words of the encoder. Received: "
                f"{query_embedding.vocab_size}."
            )
        self.max_active_dims = _check_max_active_dims(max_active_dims)
        self.set_prompts(prompts, default_prompt, settings)
        self.regularizer_schedule = RegularizerSchedule(backbone.step)
        self.build()
        self.data = SparseData(tokenizer, backbone.config, query_embedding is not None)

    def embed(self, inputs: dict[str, Tensor], key: Tensor | None) -> Tensor:
        query_ids = inputs.get(QUERY_IDS)
        # Not `super()`, a closure, which PyTorch does not compile.
        vectors = EmbeddingTask.embed(self, {name: x for name, x in inputs.items() if name != QUERY_IDS}, key)
        if query_ids is None or self.query_embedding is None:
            return vectors
        return ops.concatenate([self.query_embedding(query_ids)[:, None], vectors], axis=1)

    def embed_texts(self, inputs: dict[str, Tensor], key: Tensor | None) -> Tensor:
        outputs = self.backbone(inputs, training=key is not None, dropout_key=key, decoder=self.masked_lm)
        packed = ops.shape(inputs["packing"]) if "packing" in inputs else None
        return self.pooling(
            self.masked_lm.transform(outputs["decoded_output"]),
            self.masked_lm.decoder_table(self.backbone.token_embedding_table()),
            self.masked_lm.bias_or_zeros(),
            inputs.get("padding_mask"),
            num_packed_tokens=None if packed is None else packed[0] * packed[1],
        )

    def compute_output_shape(self, input_shape: Any) -> Any:
        *batch, _ = token_ids_shape(input_shape)
        if len(batch) == 2 and isinstance(input_shape, dict) and QUERY_IDS in input_shape:
            batch[1] = batch[1] and batch[1] + 1
        return (*batch, self.width)

    def onnx_outputs(self, nodes: Any) -> dict[str, Any]:
        return {"sparse_embedding": nodes.rows(nodes.splade(self.pooling, self.masked_lm), self.width)}

    def exported_settings(self) -> dict[str, Any]:
        return {**super().exported_settings(), "pooling": self.pooling.pooling, "width": self.width}

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
    ) -> "SparseEncoder":
        """Loads a sentence-transformers directory or repository of a sparse encoder, or a masked language model, which
        gets SPLADE pooling with the maximum.

        Args:
            preset, max_length, lowercase, verbose, options: See `Task.from_preset`. Of `options`, what the constructor
                takes is in place of what the files say.

        Raises:
            CheckpointError: The files can't be used.
            TypeError: An option is unknown.
        """
        files = read_sentence_transformer_files(preset, task="fill-mask")
        in_files = prompt_options_from_settings(files.settings)
        in_files["max_active_dims"] = in_files["settings"].pop("max_active_dims", None)
        with add_source_to_errors(files.directory):
            in_files["pooling"] = _pooling_of(files.modules)
        model = super().from_preset(files.directory, verbose=False, **{"tokenizer": None, **in_files, **options})
        if "tokenizer" not in options:
            with add_source_to_errors(files.directory):
                model.tokenizer = load_sentence_tokenizer(files, model.backbone.config, max_length, lowercase)
        if files.query_modules and "query_embedding" not in options:
            with unlocked_layer(model):
                model.query_embedding = _query_embedding_of(files, model)
            model.data.static_queries = True
        model.load_report.source = str(preset)
        if verbose:
            print_message(str(model.load_report))
        return model

    def save_to_preset(self, directory: str | Path) -> None:
        """Writes a directory that sentence-transformers loads as a SparseEncoder with equal vectors, and transformers
        as a masked language model."""
        settings = {"model_type": "SparseEncoder", "similarity_fn_name": "dot", **self.prompt_settings()}
        if self.max_active_dims is not None:
            settings["max_active_dims"] = self.max_active_dims
        pooling = {"pooling_strategy": self.pooling.pooling, "activation_function": self.pooling.activation}
        modules = [SentenceModule("SpladePooling", {**pooling, "embedding_dimension": self.width})]
        reading = {
            "transformer_task": "fill-mask",
            "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
            "module_output_name": "token_embeddings",
        }
        length = self.tokenizer.max_length if self.tokenizer else self.backbone.config.max_length
        query = self._query_module()
        files = build_sentence_transformer_files(modules, length, settings, reading, query)
        if query is not None and self.tokenizer is not None:
            files |= {f"query_0_{query.kind}/{name}": file for name, file in self.tokenizer.file_contents().items()}
        save_model(
            self,
            directory,
            head_names=self.heads,
            hf_class_suffix=self.backbone.family.heads["masked_lm"].hf_class,
            tokenizer=self.tokenizer,
            extra_files=files,
            folder="" if query is None else DOCUMENT_ENCODER,
            ignored=[] if self.query_embedding is None else self.query_embedding.weights,
        )

    def _query_module(self) -> SentenceModule | None:
        if self.query_embedding is None:
            return None
        weights = {"weight": ops.convert_to_numpy(self.query_embedding.weight)}
        return SentenceModule("SparseStaticEmbedding", {"frozen": self.query_embedding.frozen}, weights)

    # ---- texts to vectors

    def encode(
        self,
        texts: Any,
        batch_size: int | None = None,
        prompt: str | None = None,
        *,
        prompt_name: str | None = None,
        prompt_type: str | None = None,
        max_active_dims: int | None = None,
        show_progress_bar: bool | None = None,
    ) -> Any:
        """The sparse vectors of texts, in their order; texts of similar length are computed together.

        Args:
            texts, batch_size, prompt, prompt_name, show_progress_bar: As for `SentenceEncoder.encode`.
            prompt_type: "query" or "document", what the texts are: it chooses the prompt where none is given, and
                "query" the `query_embedding` if there is one. See `encode_query` and `encode_document`.
            max_active_dims: The most words of a vector; the model's own limit where None.

        Returns:
            `SparseVectors` (n, vocabulary); a `SparseVector`, ids and weights, for a single string. An iterator gives
            an iterator of these.

        Raises:
            TypeError: A text is no string.
            ValueError: An argument is out of its range, or there is a prompt for token_ids.
        """
        prompt = self.resolve_prompt(prompt, prompt_name, prompt_type)
        most = self.max_active_dims if max_active_dims is None else _check_max_active_dims(max_active_dims)
        if getattr(prompt_type, "value", prompt_type) == "query" and self.query_embedding is not None:
            words = self.data.query_words(prepend_prompt(to_text_list(texts), prompt))
            weights = ops.convert_to_numpy(self.query_embedding.weight)[words.token_ids]
            vectors = SparseVectors(words.row_splits, words.token_ids, weights, self.width)
            vectors = vectors.keep_largest(self.width if most is None else most)
            return vectors[0] if isinstance(texts, str) else vectors

        def finish(vectors):
            return vectors if most is None else vectors.keep_largest(most)

        return self.encode_texts(texts, prompt, prompt_type, batch_size, show_progress_bar, finish)

    def vectors_of_batches(self, data: SeededDataset, callback: keras.callbacks.Callback) -> SparseVectors:
        # Batch by batch: dense vectors of all texts would take 120 KB each.
        outputs = self.predict_each(data, callbacks=[callback])
        parts = [SparseVectors.from_dense(ops.convert_to_numpy(batch)) for batch in outputs]
        vectors, positions = SparseVectors.concatenate(parts, self.width), np.empty(len(data.row_order), np.int64)
        positions[data.row_order] = np.arange(len(positions))
        return vectors[positions]

    def no_vectors(self) -> SparseVectors:
        return SparseVectors.concatenate([], self.width)

    def decode(self, vectors: SparseVector | SparseVectors, top_k: int | None = None) -> list:
        """The words of vectors with their weights, the largest first.

        Args:
            vectors: What `encode` gave.
            top_k: How many words; all where None.

        Returns:
            A list of (word, weight) for a single vector; a list of such lists for several.

        Raises:
            ValueError: The task has no tokenizer.
        """
        if isinstance(vectors, SparseVectors):
            return [self.decode(vector, top_k) for vector in vectors]
        tokenizer = self.data.require_tokenizer()
        order = np.argsort(-vectors.weights, kind="stable")[:top_k]
        return [(tokenizer.id_to_token(int(vectors.ids[i])), float(vectors.weights[i])) for i in order]

    # ---- training

    def default_loss(self) -> SpladeLoss:
        return SpladeLoss(query_regularizer_weight=5e-5 if self.query_embedding is None else None)

    def compile(self, optimizer: Any = None, loss: Any = None, *options: Any, **kwargs: Any) -> None:
        """As `EmbeddingTask.compile`, with `SpladeLoss()` as the default loss.

        Args:
            optimizer, loss, options, kwargs: Same as in `EmbeddingTask.compile`.
        """
        loss = self.default_loss() if loss is None else loss
        if isinstance(loss, SpladeLoss):
            loss.schedule = self.regularizer_schedule
        super().compile(optimizer, loss, *options, **kwargs)

    def begin_fit(self, total_steps: int, done: int) -> None:
        if isinstance(self.data.loss, SpladeLoss):
            self.data.loss.set_total_steps(total_steps, done)


def _pooling_of(modules: Sequence[SentenceModule]) -> SpladePooling:
    if not modules:
        return SpladePooling()
    if [module.kind for module in modules] != ["SpladePooling"]:
        kinds = ", ".join(module.kind for module in modules)
        raise CheckpointError(f"modules.json must list one SpladePooling after the encoder. Received: {kinds}.")
    settings = modules[0].settings
    return SpladePooling(settings.get("pooling_strategy", "max"), settings.get("activation_function", "relu"))


def _query_embedding_of(files: SentenceTransformerFiles, model: SparseEncoder) -> SparseStaticEmbedding:
    """The static weights of the files, for the words of the model's tokenizer."""
    (module,), tokenizer = files.query_modules, model.tokenizer
    with add_source_to_errors(module.source):
        weights = np.zeros(model.width, "float32")
        if path := module.settings.get("path"):
            if tokenizer is None:
                raise CheckpointError(f"the weights by word in {path} need the files' tokenizer. Received: none.")
            for word, weight in json.loads((module.source / path).read_text("utf-8")).items():
                weights[tokenizer.token_to_id(word)] = weight
        else:
            stored = module.tensors.get("weight", np.zeros(0))
            if stored.shape != weights.shape:
                raise CheckpointError(
                    f"its tensor weight must have a number for each of {model.width} words. Received: shape "
                    f"{stored.shape}."
                )
            weights = stored
            own = Tokenizer.from_directory(module.source).vocabulary
            if tokenizer is not None and own != tokenizer.vocabulary:
                raise CheckpointError(
                    f"its tokenizer must have the vocabulary of the encoder for documents, {len(tokenizer.vocabulary)} "
                    f"tokens. Received: another vocabulary, {len(own)} tokens."
                )
        layer = SparseStaticEmbedding(model.width, bool(module.settings.get("frozen")))
        layer.weight.assign(weights)
        return layer


def _check_max_active_dims(count: int | None) -> int | None:
    if count is not None and count < 1:
        raise ValueError(f"max_active_dims must be at least 1, or None. Received: {count!r}.")
    return count
