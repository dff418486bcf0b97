"""Everything about an encoder but its forward pass: files, configuration, symbolic outputs, inputs of heads."""

from pathlib import Path
from typing import Any

import keras

from bertzoo.adapters.serialization import apply_adapters_config, get_adapters_config
from bertzoo.checkpoints.loading import check_constructor_options, load_model, save_model
from bertzoo.export.exporting import export_model
from bertzoo.layers.eurobert import LatePoolingHead
from bertzoo.layers.functional import FIRST
from bertzoo.models.config import EncoderConfig
from bertzoo.models.family import Family
from bertzoo.models.registry import FAMILIES, config_and_family_from_hf
from bertzoo.types import Tensor


class EncoderBase(keras.Model):
    """Loading, saving, configuration and output shapes of `Encoder`."""

    @property
    def family(self) -> Family:
        """What differs from BERT in this encoder."""
        return FAMILIES[self.config.model_type]

    @property
    def head_query_positions(self) -> str | None:
        """The `query_positions` of `call` for sequence-level heads: FIRST, or None if they read all tokens."""
        return FIRST if self.family.heads_read_first_token else None

    def pool_for_head(
        self,
        outputs: dict[str, Any],
        inputs: dict[str, Tensor] | Tensor,
        uses_pooler: bool,
        head_name: str = "classifier",
        head: keras.layers.Layer | None = None,
    ) -> Tensor:
        """What a sequence-level head reads, (batch, hidden).

        Args:
            outputs, inputs: The encoder's.
            uses_pooler: Whether the head reads the pooler's output; else the family's choice.
            head_name: The head's name in the family's `heads`.
            head: The head, which may have a layer for tokens.
        """
        if uses_pooler:
            return outputs["pooled_output"]
        mask = inputs.get("padding_mask") if isinstance(inputs, dict) else None
        sequence = outputs["sequence_output"]
        if isinstance(head, LatePoolingHead):
            sequence = head.prepare_tokens(sequence)
        return self.family.pool_for_head(self.config, sequence, mask, head_name)

    def token_embedding_table(self) -> Tensor:
        """The token embeddings, (vocabulary, width), which tied decoders share."""
        return self.embeddings.token

    @classmethod
    def from_preset(cls, preset: str | Path, *, verbose: bool = True, **options: Any) -> Any:
        """Loads an encoder from a bundled name, a directory or `hf://owner/name[@revision]`.

        Args:
            preset: The checkpoint to load.
            verbose: Print the load report.
            options: `pooler`, `dropout`, `attention_dropout`, `remat`, `dtype`, `name`, as the constructor's; there is
                a pooler by default if Hugging Face's model without a head has one.

        Raises:
            CheckpointError: The files can't be used.
            TypeError: An option is unknown.
        """
        check_constructor_options(cls, options)

        def make(config: EncoderConfig, directory: Path) -> Any:
            return cls(config, **{"pooler": FAMILIES[config.model_type].has_pooler_alone, **options})

        return load_model(preset, config_and_family_from_hf, make, verbose=verbose)

    def save_to_preset(self, directory: str | Path, tokenizer: Any = None) -> None:
        """Writes a Hugging Face checkpoint directory that `transformers.AutoModel` loads.

        Args:
            directory: Where to; made if need be.
            tokenizer: A `Tokenizer` to write besides.
        """
        save_model(self, directory, tokenizer=tokenizer)

    def export(
        self, filepath: str | Path, format: str = "tf_saved_model", verbose: bool = False, **options: Any
    ) -> None:
        """Writes a SavedModel, or with `format="onnx"` an ONNX file.

        Args:
            filepath, format, verbose, options: See `bertzoo.export.export_model`.
        """
        export_model(self, filepath, format, verbose, **options)

    def onnx_outputs(self, nodes: Any) -> dict[str, Any]:
        """The outputs of an export: name -> tensor and shape; see `bertzoo.export.encoder_nodes.EncoderNodes`.

        Args:
            nodes: The encoder's forward pass in the graph.
        """
        width = self.config.hidden_size
        outputs = {"last_hidden_state": nodes.padded(nodes.hidden, width)}
        if self.pooler is not None:
            outputs["pooler_output"] = nodes.rows(nodes.pooled(), width)
        return outputs

    def exported_settings(self) -> dict[str, Any]:
        """What an export holds besides the graph, as JSON values."""
        config = self.config
        return {
            "task": type(self).__name__,
            "model_type": config.model_type,
            "hidden_size": config.hidden_size,
            "vocab_size": config.vocab_size,
            "max_length": config.max_length,
            "pad_token_id": config.pad_token_id or 0,
        }

    def get_config(self) -> dict[str, Any]:
        return {
            "config": self.config.to_hf(),
            "pooler": self.pooler is not None,
            "remat": self.remat,
            "dropout": self.dropout_config.hidden_dropout_prob,
            "attention_dropout": self.dropout_config.attention_probs_dropout_prob,
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            **get_adapters_config(self),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        config = dict(config)
        adapters = config.pop("adapters", None)
        encoder = cls(EncoderConfig.from_hf(config.pop("config")), **config)
        apply_adapters_config(encoder, adapters)
        return encoder

    def compute_output_spec(
        self,
        inputs: dict[str, Tensor] | Tensor,
        training: bool = False,
        return_all: bool = False,
        dropout_key: Tensor | None = None,
        decoder: keras.layers.Layer | None = None,
        query_positions: Tensor | str | None = None,
    ) -> dict[str, Any]:
        batch, length = (inputs["token_ids"] if isinstance(inputs, dict) else inputs).shape
        count = (
            1 if isinstance(query_positions, str) else length if query_positions is None else query_positions.shape[1]
        )
        applied, heads = len(self.block_order), self.config.num_attention_heads

        def vectors(*positions: int | None) -> keras.KerasTensor:
            return keras.KerasTensor((batch, *positions, self.config.hidden_size), self.compute_dtype)

        specs: dict[str, Any] = {"sequence_output": vectors(count)}
        if decoder is not None:
            specs["decoded_output"] = vectors(count)
        if self.pooler is not None:
            specs["pooled_output"] = vectors()
        if return_all:
            specs["hidden_states"] = [vectors(length) for _ in range(applied + 1)]
            specs["attentions"] = [keras.KerasTensor((batch, heads, length, length), "float32") for _ in range(applied)]
        return specs
