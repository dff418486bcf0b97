"""The encoder: embeddings -> blocks -> one vector per token, and one for the whole input where the family pools."""

from typing import Any

import keras

from bertzoo.adapters.applied import alter, described_alterations
from bertzoo.layers.attention import SelfAttention, attention_mask
from bertzoo.layers.block import EncoderBlock
from bertzoo.layers.block_calls import block_calls
from bertzoo.layers.places import FIRST, bias_at, is_first, vectors_at, with_first
from bertzoo.models.config import EncoderConfig
from bertzoo.models.family import Family
from bertzoo.models.registry import FAMILIES
from bertzoo.random import StepCounter, fold
from bertzoo.text.encoded import ARRAYS, check_names
from bertzoo.training.step import BackendStep

INPUTS = (*ARRAYS, "perturbation")


@keras.saving.register_keras_serializable("bertzoo")
class Encoder(BackendStep, keras.Model):
    """An encoder of the BERT family, all of whose weights exist after construction.

    Inputs: a dict of int arrays `token_ids` (batch, length), and if wanted `segment_ids` (0 where left out) and
    `padding_mask` (1 at real tokens; all real where left out); or the token ids alone. Ids must be below
    `config.vocab_size`: JAX, called directly, does not check that and gives numbers all the same. With `lengths`
    (batch,) besides the mask, the caller vouches that row i is `lengths[i]` real tokens and then padding; JAX is faster
    for it on a GPU. A `perturbation` (batch, length, width) moves the normalised embeddings; see
    `bertzoo.training.SiFT`.

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
        recompute: Recompute each block in the backward pass instead of storing what is inside it: less memory, more
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
        recompute: bool = False,
        embeddings: keras.layers.Layer | None = None,
        name: str = "encoder",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        if config.model_type not in FAMILIES:
            raise ValueError(f"model_type must be one of {', '.join(sorted(FAMILIES))}; it is {config.model_type!r}.")
        if not isinstance(config, FAMILIES[config.model_type].config_class):
            raise ValueError(
                f"a {config.model_type} encoder needs a "
                f"{FAMILIES[config.model_type].config_class.__name__}; config is a "
                f"{type(config).__name__}. EncoderConfig.from_hf makes the right one from the keys of a config.json."
            )
        self.config, self.recompute = config, recompute
        self.lora: dict[str, Any] | None = None  # the settings of LoRA's factors, where it has some
        # The rates in use; `config` keeps those of the file.
        self.rates = {
            "hidden_dropout_prob": config.hidden_dropout_prob if dropout is None else dropout,
            "attention_probs_dropout_prob": attention_dropout,
        }
        config = config.with_(**self.rates)
        family, dtype = self.family, {"dtype": self.dtype_policy}
        self.embeddings = family.embeddings(config, **dtype) if embeddings is None else embeddings
        self.relative = family.relative(config, **dtype)
        # Families that share weights apply a block more than once.
        self.order = family.order(config)
        self.blocks = [family.block(config, i, **dtype) for i in range(max(self.order) + 1)]
        self.pooler = family.pooler(config, **dtype) if pooler else None
        self.training_calls = StepCounter(name=f"{name}_training_calls")
        self.build()

    @property
    def run_config(self) -> EncoderConfig:
        """The configuration with the dropout rates in use, for heads."""
        return self.config.with_(**self.rates)

    @property
    def family(self):
        """What differs from BERT in this encoder."""
        return FAMILIES[self.config.model_type]

    def build(self, input_shape=None):
        shape = (None, None, self.config.hidden_size)
        if not self.embeddings.built:
            self.embeddings.build((None, None))
        if self.relative is not None:
            self.relative.build(shape)
        for block in self.blocks:
            block.build(shape)
        if self.pooler is not None:
            self.pooler.build(shape)

    def call(
        self, inputs, training: bool = False, return_all: bool = False, dropout_key=None, decoder=None, places=None
    ):
        """See the class. A model around the encoder passes its own `dropout_key`, int32 (2,).

        With a masked-LM head as `decoder` there is also what that head reads, `decoded_output` (batch, length, hidden).

        `places` are the tokens that a head reads, where it reads no others: FIRST, the first alone, or int (batch,
        count). `sequence_output` and `decoded_output` are then of these, (batch, count, hidden), and the last block
        computes no others where the family's attention allows it.
        """
        if not isinstance(inputs, dict):
            inputs = {"token_ids": inputs}
        check_names(inputs, INPUTS)
        padding_mask = inputs.get("padding_mask")
        if training and dropout_key is None:
            dropout_key = self.training_calls.next_key()
        keys = [None if not training else fold(dropout_key, i) for i in range(len(self.order) + 1)]
        x = self.embeddings(
            inputs["token_ids"],
            inputs.get("segment_ids"),
            padding_mask,
            key=keys[0],
            perturbation=inputs.get("perturbation"),
        )
        attend = attention_mask(padding_mask, inputs.get("lengths"))
        relative = None if self.relative is None else self.relative(x)
        hidden_states, attentions = [x], []
        apart = places is not None and not return_all and self.takes_any_queries(self.blocks[self.order[-1]])
        # The pooler reads the first token, whatever else is read.
        pooled_too = apart and not is_first(places) and self.pooler is not None
        call = block_calls()
        for place, (index, key) in enumerate(zip(self.order, keys[1:]), start=1):
            block, before = self.blocks[index], x
            if return_all:
                x, weights = block(x, attend=attend, relative=relative, key=key, return_attention=True)
                hidden_states.append(x)
                attentions.append(weights)
            elif apart and place == len(self.order):
                asking = with_first(places) if pooled_too else places
                bias = None if relative is None else bias_at(relative, asking)
                x = block(x, attend=attend, relative=bias, key=key, query=vectors_at(x, asking))
            elif self.recompute and training:
                x = _recomputed(call, block, attend)(x, key, *([] if relative is None else [relative]))
            else:
                x = call(block, x, attend, relative, key)
        outputs = {"sequence_output": x}
        if decoder is not None:

            def last_block(query, key):
                return block(before, attend=attend, relative=relative, key=key, query=query)

            key = fold(dropout_key, len(keys)) if training else None
            outputs["decoded_output"] = decoder.decode(x, before, last_block, key)
        if pooled_too:
            outputs = {name: vectors[:, 1:] for name, vectors in outputs.items()}
        elif places is not None and not apart:
            outputs = {name: vectors_at(vectors, places) for name, vectors in outputs.items()}
        if self.pooler is not None:
            outputs["pooled_output"] = self.pooler(x)
        if return_all:
            outputs.update(hidden_states=hidden_states, attentions=attentions)
        return outputs

    def takes_any_queries(self, block) -> bool:
        """Whether its queries may be fewer than its keys: not in families with terms of their own."""
        return type(block) is EncoderBlock and type(block.attention) is SelfAttention

    def compute_output_shape(self, input_shape):
        shape = input_shape["token_ids"] if isinstance(input_shape, dict) else input_shape
        outputs = {"sequence_output": (*shape, self.config.hidden_size)}
        if self.pooler is not None:
            outputs["pooled_output"] = (shape[0], self.config.hidden_size)
        return outputs

    def compute_output_spec(
        self, inputs, training=False, return_all=False, dropout_key=None, decoder=None, places=None
    ):
        batch, length = (inputs["token_ids"] if isinstance(inputs, dict) else inputs).shape
        count = length if places is None else 1 if is_first(places) else places.shape[1]
        hidden = self.config.hidden_size
        shapes = {"sequence_output": (batch, count, hidden)}
        if decoder is not None:
            shapes["decoded_output"] = (batch, count, hidden)
        if self.pooler is not None:
            shapes["pooled_output"] = (batch, hidden)
        if return_all:
            shapes["hidden_states"] = [(batch, length, hidden)] * (len(self.order) + 1)
        found = keras.tree.map_shape_structure(lambda shape: keras.KerasTensor(shape, self.compute_dtype), shapes)
        if return_all:
            shape = (batch, self.config.num_attention_heads, length, length)
            found["attentions"] = [keras.KerasTensor(shape, "float32") for _ in self.order]
        return found

    @property
    def head_places(self) -> str | None:
        """What heads of whole inputs read, as `places` of `call`: the first token alone, by the pooler or without it,
        or all."""
        return FIRST if type(self.family).head_vectors is Family.head_vectors else None

    def head_vectors(self, outputs, inputs, pools: bool):
        """What a head of whole inputs reads, (batch, hidden): with `pools` the pooler's output, else the family's
        choice, from the outputs of the encoder for these inputs."""
        if pools:
            return outputs["pooled_output"]
        mask = inputs.get("padding_mask") if isinstance(inputs, dict) else None
        return self.family.head_vectors(self.config, outputs["sequence_output"], mask)

    def token_table(self):
        """The token embeddings, (vocabulary, width), which tied decoders share."""
        return self.embeddings.token

    @classmethod
    def from_preset(cls, preset, **options) -> "Encoder":
        """Loads an encoder from a bundled name, a directory or `hf://owner/name[@revision]`.

        Args:
            preset: Where from.
            options: `pooler`, `dropout`, `attention_dropout`, `recompute`, `dtype`, `name` as the constructor's, and
                `verbose=False` to keep the load report to yourself.
        """
        from bertzoo.checkpoints.loading import load_encoder

        return load_encoder(preset, **options)

    def save_to_preset(self, directory, tokenizer=None) -> None:
        """Writes a Hugging Face checkpoint directory that `transformers.AutoModel` loads."""
        from bertzoo.checkpoints.loading import save_encoder

        save_encoder(self, directory, tokenizer)

    def export(self, filepath, format: str = "tf_saved_model", verbose=False, **options) -> None:
        """Writes a SavedModel, or with `format="onnx"` an ONNX file; see `bertzoo.export.export_model`."""
        from bertzoo.export import export_model

        export_model(self, filepath, format, verbose, **options)

    def get_config(self) -> dict[str, Any]:
        return {
            "config": self.config.to_hf(),
            "pooler": self.pooler is not None,
            "recompute": self.recompute,
            "dropout": self.rates["hidden_dropout_prob"],
            "attention_dropout": self.rates["attention_probs_dropout_prob"],
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            **described_alterations(self),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        altered = config.pop("altered", None)
        encoder = cls(EncoderConfig.from_hf(config.pop("config")), **config)
        alter(encoder, altered)
        return encoder


def _recomputed(call, block, attend):
    # What has a gradient is an argument: TensorFlow's recomputation gives none to what a closure holds.
    return keras.remat(lambda x, key, relative=None: call(block, x, attend, relative, key))
