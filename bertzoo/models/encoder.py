"""The encoder: embeddings, blocks and, where the family has one, the pooler."""

from pathlib import Path
from typing import Any

import keras
from keras import ops

from bertzoo.adapters.serialization import adapter_config, apply_adapters
from bertzoo.checkpoints.loading import check_options, load_model, save_model
from bertzoo.export import export_model
from bertzoo.layers.attention import make_attention_mask
from bertzoo.layers.block import block_caller
from bertzoo.layers.heads import FIRST, is_first, vectors_at
from bertzoo.models.config import EncoderConfig
from bertzoo.models.family import Family
from bertzoo.models.registry import FAMILIES, read_architecture
from bertzoo.random import StepCounter, fold_in
from bertzoo.text.encoded import ARRAYS, check_names
from bertzoo.training.step import BackendStep
from bertzoo.types import Tensor

try:
    import bertzoo.kernels  # noqa: F401 (registers the faster forms of operations)
except ModuleNotFoundError as error:
    if error.name != "bertzoo.kernels":  # without that folder everything runs, slower
        raise

INPUTS = (*ARRAYS, "perturbation")


@keras.saving.register_keras_serializable("bertzoo")
class Encoder(BackendStep, keras.Model):
    """An encoder of the BERT family, all of whose weights exist after construction.

    Inputs: a dict of int arrays `token_ids` (batch, length), and if wanted `segment_ids` (0 where left out) and
    `padding_mask` (1 at real tokens; all real where left out); or the token ids alone. Ids must be below
    `config.vocab_size`, which JAX does not check. Pass the number of real tokens, `lengths` (batch,), besides the mask
    when all padding is at the end of each row: JAX is then faster on a GPU. A `perturbation` (batch, length, width) is
    added to the normalised embeddings; see `bertzoo.training.SiFT`.

    Outputs: a dict with `sequence_output` (batch, length, hidden) and, where the family has a pooler, `pooled_output`
    (batch, hidden). Called with `return_all=True` also `hidden_states`, a list of applied blocks + 1 tensors (batch,
    length, hidden) of which the first is the embeddings' output, and `attentions`, a list of (batch, heads, length,
    length).

    Args:
        config: What defines the encoder.
        pooler: False leaves the pooler out.
        dropout: Share of elements dropped in training after the embeddings, attention and feed-forward parts; the
            configuration's `hidden_dropout_prob` where None.
        attention_dropout: Share of attention weights dropped in training. 0 keeps the backend's fused attention, so it
            is the default whatever the configuration says.
        remat: Recompute each block in the backward pass instead of storing what is inside it: less memory, more
            time.
        embeddings: Embeddings to use in place of the family's, built or not; for those that two encoders share.
        name: The encoder's name. Its weights' names, and so their initial values, depend on it.

    Raises:
        ValueError: The configuration names a family that bertzoo does not have, or is not of that family's class.
    """

    def __init__(
        self,
        config: EncoderConfig,
        pooler: bool = True,
        dropout: float | None = None,
        attention_dropout: float = 0.0,
        remat: bool = False,
        embeddings: keras.layers.Layer | None = None,
        name: str = "encoder",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        if config.model_type not in FAMILIES:
            known = ", ".join(sorted(FAMILIES))
            raise ValueError(f"model_type must be one of {known}. Received: {config.model_type!r}.")
        if not isinstance(config, FAMILIES[config.model_type].config_class):
            raise ValueError(
                f"a {config.model_type} encoder needs a "
                f"{FAMILIES[config.model_type].config_class.__name__}; config is a "
                f"{type(config).__name__}. EncoderConfig.from_hf makes the right one from the keys of a config.json."
            )
        self.config, self.remat = config, remat
        self.lora: dict[str, Any] | None = None  # the settings of LoRA's factors, where it has some
        # The configuration with the dropout rates in use, for blocks and heads; `config` keeps those of the file.
        self.dropout_config = config = config.with_(
            hidden_dropout_prob=config.hidden_dropout_prob if dropout is None else dropout,
            attention_probs_dropout_prob=attention_dropout,
        )
        family, dtype = self.family, {"dtype": self.dtype_policy}
        self.embeddings = family.embeddings(config, **dtype) if embeddings is None else embeddings
        self.position_bias = family.position_bias(config, **dtype)
        # Families that share weights apply a block more than once.
        self.layer_schedule = family.layer_schedule(config)
        self.blocks = [family.block(config, i, **dtype) for i in range(max(self.layer_schedule) + 1)]
        self.pooler = family.pooler(config, **dtype) if pooler else None
        self.step = StepCounter(name=f"{name}_step")
        self.build()

    @property
    def family(self) -> Family:
        """What differs from BERT in this encoder."""
        return FAMILIES[self.config.model_type]

    def build(self, input_shape=None):
        shape = (None, None, self.config.hidden_size)
        if not self.embeddings.built:
            self.embeddings.build((None, None))
        for layer in (self.position_bias, *self.blocks, self.pooler):
            if layer is not None:
                layer.build(shape)

    def call(
        self,
        inputs: dict[str, Tensor] | Tensor,
        training: bool = False,
        return_all: bool = False,
        dropout_key: Tensor | None = None,
        decoder: keras.layers.Layer | None = None,
        query_positions: Tensor | str | None = None,
    ) -> dict[str, Any]:
        """See the class. A model around the encoder passes its own `dropout_key`, int32 (2,).

        With a masked-LM head as `decoder` there is also what that head reads, `decoded_output` (batch, length, hidden).

        The last block computes only the tokens at `query_positions`, FIRST (the first of each row) or int (batch,
        count), where the family's attention allows it; `sequence_output` and `decoded_output` are then of these,
        (batch, count, hidden).
        """
        inputs = inputs if isinstance(inputs, dict) else {"token_ids": inputs}
        check_names(inputs, INPUTS)
        if training and dropout_key is None:
            dropout_key = self.step.next_key()
        # The number of a layer, from the embeddings on -> its key.
        key_of = (lambda i: fold_in(dropout_key, i)) if training else lambda i: None
        x, shared = self._embed(inputs, key_of(0))
        hidden_states, attentions = [x], []
        blocks = [self.blocks[i] for i in self.layer_schedule]
        subset = query_positions is not None and not return_all and blocks[-1].supports_query_subset
        call = self._block_caller(shared, training, attentions if return_all else None)
        for number, block in enumerate(blocks[:-1] if subset else blocks, start=1):
            before, x = x, call(block, x, key_of(number))
            if return_all:
                hidden_states.append(x)
        pooled = x
        if subset:
            before = x
            pooled, x = self._last_block(blocks[-1], x, key_of(len(blocks)), query_positions, **shared)
        outputs = {"sequence_output": x}
        if decoder is not None:

            def last_block(query, key):
                return blocks[-1](before, **shared, key=key, query=query)

            outputs["decoded_output"] = decoder.prepare_hidden(x, before, last_block, key_of(len(blocks) + 1))
        if query_positions is not None and not subset:
            outputs = {name: vectors_at(vectors, query_positions) for name, vectors in outputs.items()}
        if self.pooler is not None:
            outputs["pooled_output"] = self.pooler(pooled)
        if return_all:
            outputs.update(hidden_states=hidden_states, attentions=attentions)
        return outputs

    def _embed(self, inputs, key):
        """The embeddings' output, and what all blocks read besides."""
        token_ids, segment_ids, padding_mask = map(inputs.get, ("token_ids", "segment_ids", "padding_mask"))
        x = self.embeddings(token_ids, segment_ids, padding_mask, key=key, perturbation=inputs.get("perturbation"))
        mask = make_attention_mask(padding_mask, inputs.get("lengths"))
        bias = None if self.position_bias is None else self.position_bias(x)
        return x, {"attention_mask": mask, "position_bias": bias}

    def _block_caller(self, shared, training, attentions):
        """A function (block, x, key) -> x, which puts the attention weights into a list, if there is one."""
        call, (mask, bias) = block_caller(), shared.values()

        def call_with_weights(block, x, key):
            x, weights = block(x, **shared, key=key, return_attention=True)
            attentions.append(weights)
            return x

        def rematerialize(block, x, key):
            # What has a gradient is an argument: TensorFlow's recomputation gives none to what a closure holds.
            again = keras.remat(lambda x, key, bias=None: call(block, x, mask, bias, key))
            return again(x, key) if bias is None else again(x, key, bias)

        if attentions is not None:
            return call_with_weights
        return rematerialize if self.remat and training else lambda block, x, key: call(block, x, mask, bias, key)

    def _last_block(self, block, x, key, positions, attention_mask, position_bias):
        """What the pooler reads, and the block's output at these positions."""
        with_first = self.pooler is not None and not is_first(positions)
        if with_first:  # the pooler reads the first token, whatever else is read
            # Not `ops.pad`, which counts its calls: PyTorch would compile each step anew.
            positions = ops.concatenate([ops.zeros_like(positions[:, :1]), positions], axis=1)
        bias = position_bias
        if bias is not None and is_first(positions):
            bias = bias[:, :, :1]
        elif bias is not None:  # (1, heads, length, length) -> (batch, heads, count, length)
            bias = ops.transpose(ops.take(bias[0], positions, axis=1), (1, 0, 2, 3))
        x = block(x, attention_mask=attention_mask, position_bias=bias, key=key, query=vectors_at(x, positions))
        return x, x[:, 1:] if with_first else x

    def compute_output_shape(self, input_shape):
        shape = input_shape["token_ids"] if isinstance(input_shape, dict) else input_shape
        outputs = {"sequence_output": (*shape, self.config.hidden_size)}
        if self.pooler is not None:
            outputs["pooled_output"] = (shape[0], self.config.hidden_size)
        return outputs

    def compute_output_spec(
        self, inputs, training=False, return_all=False, dropout_key=None, decoder=None, query_positions=None
    ):
        batch, length = (inputs["token_ids"] if isinstance(inputs, dict) else inputs).shape
        count = length if query_positions is None else 1 if is_first(query_positions) else query_positions.shape[1]
        hidden = self.config.hidden_size
        shapes = {"sequence_output": (batch, count, hidden)}
        if decoder is not None:
            shapes["decoded_output"] = (batch, count, hidden)
        if self.pooler is not None:
            shapes["pooled_output"] = (batch, hidden)
        if return_all:
            shapes["hidden_states"] = [(batch, length, hidden)] * (len(self.layer_schedule) + 1)
        found = keras.tree.map_shape_structure(lambda shape: keras.KerasTensor(shape, self.compute_dtype), shapes)
        if return_all:
            shape = (batch, self.config.num_attention_heads, length, length)
            found["attentions"] = [keras.KerasTensor(shape, "float32") for _ in self.layer_schedule]
        return found

    @property
    def pooled_positions(self) -> str | None:
        """The `query_positions` of `call` for heads of whole inputs: FIRST, or None where they read all tokens."""
        return FIRST if self.family.heads_read_first_token else None

    def head_vectors(self, outputs: dict[str, Any], inputs: dict[str, Tensor] | Tensor, uses_pooler: bool) -> Tensor:
        """What a head of whole inputs reads, (batch, hidden): with `uses_pooler` the pooler's output, else the family's
        choice, from the outputs of the encoder for these inputs."""
        if uses_pooler:
            return outputs["pooled_output"]
        mask = inputs.get("padding_mask") if isinstance(inputs, dict) else None
        return self.family.head_vectors(self.config, outputs["sequence_output"], mask)

    def token_table(self) -> Tensor:
        """The token embeddings, (vocabulary, width), which tied decoders share."""
        return self.embeddings.token

    @classmethod
    def from_preset(cls, preset: str | Path, *, verbose: bool = True, **options) -> "Encoder":
        """Loads an encoder from a bundled name, a directory or `hf://owner/name[@revision]`.

        Args:
            preset: The checkpoint to load.
            verbose: Print the load report.
            options: `pooler`, `dropout`, `attention_dropout`, `remat`, `dtype`, `name`, as the constructor's.

        Raises:
            CheckpointError: The files can't be used.
            TypeError: An option is unknown.
        """
        check_options(cls, options)
        return load_model(preset, read_architecture, lambda config, _: cls(config, **options), verbose=verbose)

    def save_to_preset(self, directory: str | Path, tokenizer=None) -> None:
        """Writes a Hugging Face checkpoint directory that `transformers.AutoModel` loads."""
        save_model(self, directory, tokenizer=tokenizer)

    def export(self, filepath, format: str = "tf_saved_model", verbose=False, **options) -> None:
        """Writes a SavedModel, or with `format="onnx"` an ONNX file; see `bertzoo.export.export_model`."""
        export_model(self, filepath, format, verbose, **options)

    def get_config(self) -> dict[str, Any]:
        return {
            "config": self.config.to_hf(),
            "pooler": self.pooler is not None,
            "remat": self.remat,
            "dropout": self.dropout_config.hidden_dropout_prob,
            "attention_dropout": self.dropout_config.attention_probs_dropout_prob,
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            **adapter_config(self),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None) -> "Encoder":
        config = dict(config)
        adapters = config.pop("adapters", None)
        encoder = cls(EncoderConfig.from_hf(config.pop("config")), **config)
        apply_adapters(encoder, adapters)
        return encoder
