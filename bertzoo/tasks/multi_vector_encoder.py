"""A vector for each token of a text, compared token by token (Khattab and Zaharia 2020, ColBERT)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo._keras_hooks import print_message
from bertzoo.checkpoints.errors import add_source_to_errors
from bertzoo.checkpoints.late_interaction import READING, read_late_interaction_files
from bertzoo.checkpoints.loading import save_model, take_encoder_options
from bertzoo.checkpoints.sentence_transformers import SentenceModule, build_sentence_transformer_files
from bertzoo.data.batches import SeededDataset
from bertzoo.data.parsing import Examples
from bertzoo.data.retrieval_data import SCORING_MASK, MultiVectorData
from bertzoo.data.tuple_data import EncodedTuples, column_prompt_types
from bertzoo.layers.base import build_dense
from bertzoo.layers.heads import Normalize
from bertzoo.losses.multi_vector import MultiVectorMultipleNegativesRanking
from bertzoo.metrics.maxsim import maxsim, pairwise_maxsim
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.embedding_task import EmbeddingTask
from bertzoo.tasks.sentence_modules import (
    VectorSimilarity,
    dense_layers,
    load_layer_weights,
    load_sentence_backbone,
    load_sentence_tokenizer,
    module_from_layer,
    prompt_options_from_settings,
)
from bertzoo.tasks.task import token_ids_shape
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.types import Tensor

EXPANSION = {"strategy": "fixed", "attend": False, "token": None, "length": None}
STRATEGIES = ("fixed", "min")


@keras.saving.register_keras_serializable("bertzoo")
class MultiVectorEncoder(VectorSimilarity, EmbeddingTask):
    """Turns each text into vectors of its tokens: an encoder, then dense layers, then vectors of length 1.

    Args:
        backbone: The encoder.
        tokenizer: Turns text into the encoder's inputs; None if the caller tokenizes.
        projection: The width of the vectors, of a dense layer without bias; or Keras `Dense` layers and `Normalize`,
            one after another.
        query_length, document_length: The longest query and document in tokens; None for the tokenizer's limit.
        query_expansion: What makes queries longer, a dict: tokens `token`, the mask token where None, are put after
            them up to `length` tokens; `strategy` is "fixed" where queries are cut there too, or "min" where they are
            not; other tokens see these only if `attend`. Their vectors count. None for none.
        skiplist_words: Tokens whose vectors do not count, such as punctuation; words that are no single token are left
            aside.
        skiplist_tasks: In which texts they do not: of "query" and "document", which are all others.
        prompts: Name -> text that `encode` puts before each text.
        default_prompt: The name of the prompt to use by default.
        settings: Further keys of config_sentence_transformers.json, which are carried through.
        name: Name of the Keras model.

    Called with inputs (batch, length) it gives float32 vectors (batch, length, width); with tuples of texts (batch,
    columns, length), as `fit` does, (batch, columns, length, width). With `scoring_mask`, shaped as `token_ids`, among
    the inputs, tokens where it is 0 have vectors of zeros, otherwise those of padding.

    Raises:
        ValueError: A layer is of another kind, or an argument is out of its range.

    Example:
        >>> encoder = bz.MultiVectorEncoder.from_preset("bert_mini_en", verbose=False)
        >>> documents = encoder.encode_document(["Paris is a city.", "Cats sleep."])
        >>> encoder.similarity(encoder.encode_query(["Where is Paris?"]), documents).shape
        (1, 2)
    """

    data: MultiVectorData
    token_vectors = True
    default_measure = "maxsim"
    similarity_function = staticmethod(maxsim)
    pairwise_function = staticmethod(pairwise_maxsim)
    config_keys = (
        "projection",
        *READING,
        "skiplist_words",
        "skiplist_tasks",
        "prompts",
        "default_prompt",
        "settings",
    )

    def __init__(
        self,
        backbone: Encoder,
        tokenizer: Tokenizer | None = None,
        projection: int | Sequence[keras.layers.Layer] = 128,
        query_length: int | None = None,
        document_length: int | None = None,
        query_expansion: Mapping[str, Any] | None = None,
        skiplist_words: Sequence[str] = (),
        skiplist_tasks: Sequence[str] = ("document",),
        prompts: Mapping[str, str] | None = None,
        default_prompt: str | None = None,
        settings: Mapping[str, Any] | None = None,
        name: str = "multi_vector_encoder",
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, name=name, **kwargs)
        if isinstance(projection, int):
            dense = keras.layers.Dense(projection, use_bias=False, name="projection", dtype="float32")
            projection = [dense, Normalize(name="normalize", dtype="float32")]
        self.projection = list(projection)
        for layer in self.projection:
            if not isinstance(layer, (keras.layers.Dense, Normalize)):
                raise ValueError(f"projection must hold Dense and Normalize layers. Received: {layer!r}.")
        self.query_length, self.document_length = query_length, document_length
        self.query_expansion = _checked_expansion(query_expansion, query_length)
        self.skiplist_words, self.skiplist_tasks = list(skiplist_words), list(skiplist_tasks)
        if not {"query", "document"}.issuperset(skiplist_tasks):
            raise ValueError(f'skiplist_tasks must be of "query" and "document". Received: {skiplist_tasks!r}.')
        self.set_prompts(prompts, default_prompt, settings)
        if backbone.pooler is not None:  # unused by the vectors, and kept for saving
            backbone.pooler.trainable = False
        self.build()
        self.data = MultiVectorData(
            tokenizer,
            backbone.config,
            self.width,
            {"query": query_length, "document": document_length},
            self.query_expansion,
            self.skiplist_words,
            self.skiplist_tasks,
        )

    def build(self, input_shape: Any = None) -> None:
        self.width = self.backbone.config.hidden_size
        for layer in self.projection:
            if isinstance(layer, keras.layers.Dense):
                if not layer.built:
                    build_dense(self, layer, self.width, self.backbone.config.initializer_range)
                self.width = layer.units

    def embed_texts(self, inputs: dict[str, Tensor], key: Tensor | None) -> Tensor:
        counted = inputs.pop(SCORING_MASK, inputs.get("padding_mask"))
        outputs = self.backbone(inputs, training=key is not None, dropout_key=key)
        x = ops.cast(outputs["sequence_output"], "float32")
        for layer in self.projection:
            x = layer(x)
        return x if counted is None else ops.where(ops.cast(counted, "bool")[:, :, None], x, 0.0)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*token_ids_shape(input_shape), self.width)

    def onnx_outputs(self, nodes: Any) -> dict[str, Any]:
        x = nodes.hidden
        for layer in self.projection:
            x = nodes.head(layer, x)
        return {"token_embeddings": nodes.padded(x, self.width)}

    def outputs_by_onnx(self, model: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Vectors float32 (batch, length, width), as `Task.outputs_by_onnx`.

        Args:
            model, inputs: Same as in `Task.outputs_by_onnx`.

        Raises:
            ValueError: A token is read that others do not attend to, or there are tuples of texts.
        """
        inputs = dict(inputs)
        counted = inputs.pop(SCORING_MASK, inputs["padding_mask"])
        if counted.ndim != 2 or (counted > inputs["padding_mask"]).any():
            received = "tuples of texts" if counted.ndim != 2 else "tokens that others do not attend to"
            raise ValueError(
                "onnx_inference needs single texts, whose query_expansion, if they have one, is attended. Received: "
                f"{received}."
            )
        return np.where(counted[:, :, None] > 0, super().outputs_by_onnx(model, inputs), np.float32(0))

    def exported_settings(self) -> dict[str, Any]:
        return {**super().exported_settings(), "width": self.width}

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
    ) -> "MultiVectorEncoder":
        """Loads a multi-vector encoder of sentence-transformers, PyLate or ColBERT, or a plain encoder, which gets a
        new projection to 128 numbers.

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
        read = read_late_interaction_files(preset)
        encoder = load_sentence_backbone(read.files.directory, **for_encoder)
        with add_source_to_errors(read.files.directory):
            layers = dense_layers(read.layers, first_number=1)
            in_files = {**read.options, **prompt_options_from_settings(read.settings)}
            if layers:
                in_files["projection"] = layers
            if "tokenizer" not in options:
                tokenizer = load_sentence_tokenizer(read.files, encoder.config, max_length, lowercase)
                in_files["tokenizer"] = _with_markers(tokenizer, read.markers)
            model = cls(encoder, **in_files | options)
        load_layer_weights(read.layers, layers)
        report = model.load_report = encoder.load_report
        report.source, report.unused = str(preset), [name for name in report.unused if name != "linear.weight"]
        report.new += [] if layers or "projection" in options else ["projection"]
        report.notes.append(f"token vectors of {model.width} numbers")
        if verbose:
            print_message(str(report))
        return model

    def save_to_preset(self, directory: str | Path) -> None:
        """Writes a directory that sentence-transformers loads as a MultiVectorEncoder with equal vectors, and
        transformers as an encoder."""
        dense = [module_from_layer(layer, "token_embeddings") for layer in self.projection]
        mask = {
            "skiplist_words": self.skiplist_words,
            "skiplist_tasks": self.skiplist_tasks,
            "keep_only_token_ids": None,
        }
        last = len(dense) - (bool(dense) and dense[-1].kind == "Normalize")
        modules = [*dense[:last], SentenceModule("MultiVectorMask", mask), *dense[last:]]
        settings = {"model_type": "MultiVectorEncoder", "similarity_fn_name": "maxsim", **self.prompt_settings()}
        reading = {key: value for key in READING if (value := getattr(self, key)) is not None}
        length = self.tokenizer.max_length if self.tokenizer else self.backbone.config.max_length
        files = build_sentence_transformer_files(modules, length, settings, reading)
        save_model(self.backbone, directory, tokenizer=self.tokenizer, extra_files=files)

    # ---- texts to vectors

    def encode(
        self,
        texts: Any,
        batch_size: int | None = None,
        prompt: str | None = None,
        *,
        prompt_name: str | None = None,
        prompt_type: str | None = None,
        show_progress_bar: bool | None = None,
    ) -> Any:
        """The token vectors of texts, in their order; texts of similar length are computed together.

        Args:
            texts, batch_size, prompt, prompt_name, show_progress_bar: As for `SentenceEncoder.encode`.
            prompt_type: "query" or "document", what the texts are: it chooses the prompt where none is given, the
                length, the expansion, and which tokens count. See `encode_query` and `encode_document`.

        Returns:
            A list of float32 (tokens, width), of the tokens that count; one array for a single string. An iterator
            gives an iterator of arrays.

        Raises:
            TypeError: A text is no string.
            ValueError: An argument is out of its range, or there is a prompt for token_ids.
        """
        prompt = self.resolve_prompt(prompt, prompt_name, prompt_type)
        return self.encode_texts(texts, prompt, prompt_type, batch_size, show_progress_bar)

    def vectors_of_batches(self, data: SeededDataset, callback: keras.callbacks.Callback) -> list[np.ndarray]:
        return self._in_order(data, callbacks=[callback])

    def predict_examples(self, examples: Examples, batch_size: int | None, **options: Any) -> list:
        """The vectors of each text, float32 (tokens, width), or for tuples of texts a list of these, in the order of
        the examples.

        Args:
            examples, batch_size, options: As for `Task.predict_examples`.
        """
        encoded = self.data.encode(examples)
        if not isinstance(encoded, EncodedTuples):
            return self._in_order(self.data.make_dataset(encoded, batch_size=batch_size), **options)
        # Column by column: TensorFlow compiles no function of batches that are now of texts, now of tuples.
        columns = []
        for column, kind in zip(encoded.columns, column_prompt_types(len(encoded.columns))):
            transform = self.data.input_transform([kind])
            data = self.data.make_dataset(column, batch_size=batch_size, transform=transform)
            columns.append(self._in_order(data, **options))
        return [list(texts) for texts in zip(*columns)]

    def _in_order(self, data: Any, **options: Any) -> list:
        """What `predict_each` gives, without the tokens that do not count, in the order of the data."""
        vectors: list[Any] = [None] * len(data.row_order)
        outputs = (ops.convert_to_numpy(batch) for batch in self.predict_each(data, **options))
        for row, text in zip(data.row_order, (text for batch in outputs for text in batch)):
            vectors[row] = text[text.any(axis=1)]
        return vectors

    def no_vectors(self) -> list:
        return []

    def default_loss(self) -> MultiVectorMultipleNegativesRanking:
        return MultiVectorMultipleNegativesRanking()


def _checked_expansion(expansion: Mapping[str, Any] | None, query_length: int | None) -> dict[str, Any] | None:
    """An expansion with all its keys.

    Raises:
        ValueError: It has another key or value.
    """
    if expansion is None:
        return None
    full = {**EXPANSION, **expansion}
    length = full["length"]
    well_formed = (
        full.keys() == EXPANSION.keys() and full["strategy"] in STRATEGIES and isinstance(full["attend"], bool)
    )
    if not (well_formed and isinstance(length, int) and length > 0 and length <= (query_length or length)):
        raise ValueError(
            f"query_expansion must have a strategy of {', '.join(STRATEGIES)}, a length of at most query_length, and "
            f"may have attend, true or false, and token. Received: {dict(expansion)} with query_length={query_length}."
        )
    return full


def _with_markers(tokenizer: Tokenizer, markers: Sequence[str]) -> Tokenizer:
    """The tokenizer, which takes what stands before queries and documents for tokens where the vocabulary has these:
    text such as "[unused0]" would be split."""
    tokens = []
    for marker in filter(str.strip, markers):
        whole, first = marker, marker.split(maxsplit=1)[0]
        known = next((token for token in (whole, first) if tokenizer.token_to_id(token) is not None), None)
        if known is not None and not _is_one_token(tokenizer, known):
            tokens.append(known)
    return tokenizer.with_special_tokens(tokens) if tokens else tokenizer


def _is_one_token(tokenizer: Tokenizer, token: str) -> bool:
    """Whether the tokenizer leaves a token of its vocabulary whole."""
    row = tokenizer.encode([token]).row(0)
    return len(row) == len(tokenizer.encode([""]).row(0)) + 1 and tokenizer.token_to_id(token) in row
