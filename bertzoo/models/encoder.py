"""The encoder: embeddings, blocks and, where the family has one, the pooler."""

from typing import Any

import keras
from keras import ops

from bertzoo.dispatch import make_block_caller, rematerialize_block_calls
from bertzoo.layers.attention import make_attention_mask
from bertzoo.layers.functional import gather_positions
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder_base import EncoderBase
from bertzoo.models.registry import FAMILIES, check_family_config
from bertzoo.random import StepCounter, fold_in
from bertzoo.text.encoded import ARRAYS, check_input_names
from bertzoo.training.step import BackendModel
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class Encoder(BackendModel, EncoderBase):
    """An encoder of the BERT family, all of whose weights exist after construction.

    Inputs: a dict of int arrays `token_ids` (batch, length), and optionally `segment_ids` (default 0) and
    `padding_mask` (1 at real tokens; default 1); or the token ids alone. Ids must be below `config.vocab_size`, which
    JAX does not check. Pass the number of real tokens, `lengths` (batch,), besides the mask when all padding is at the
    end of each row: JAX is then faster on a GPU. A `perturbation` (batch, length, width) is added to the normalised
    embeddings; see `bertzoo.training.SiFT`.

    Outputs: a dict with `sequence_output` (batch, length, hidden) and, where the family has a pooler, `pooled_output`
    (batch, hidden). With `return_all=True` also lists: `hidden_states`, the outputs of the embeddings and of each
    applied block, and `attentions`, the weights (batch, heads, length, length) of each.

    Args:
        config: What defines the encoder.
        pooler: False leaves the pooler out.
        dropout: Fraction of elements dropped in training after the embeddings, attention and feed-forward parts; the
            configuration's `hidden_dropout_prob` where None.
        attention_dropout: Fraction of attention weights dropped in training. 0 keeps the backend's fused attention, so
            it is the default whatever the configuration says.
        remat: Recompute each block in the backward pass instead of storing its activations: less memory, more time.
        embeddings: Embeddings to use in place of the family's, for two encoders that share them.
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
        check_family_config(config)
        self.config, self.remat, family = config, remat, FAMILIES[config.model_type]
        self.lora: dict[str, Any] | None = None  # the settings of LoRA's factors, where it has some
        # The configuration with the dropout rates in use, for blocks and heads; `config` keeps those of the file.
        self.dropout_config = config = config.replace(
            hidden_dropout_prob=config.hidden_dropout_prob if dropout is None else dropout,
            attention_probs_dropout_prob=attention_dropout,
        )
        dtype = {"dtype": self.dtype_policy}
        self.embeddings = family.build_embeddings(config, **dtype) if embeddings is None else embeddings
        self.position_bias = family.build_position_bias(config, **dtype)
        # Families that share weights apply a block more than once.
        self.block_order = family.block_order(config)
        self.blocks = [family.build_block(config, i, **dtype) for i in range(max(self.block_order) + 1)]
        self.pooler = family.build_pooler(config, **dtype) if pooler else None
        self.step = StepCounter(name=f"{name}_step")
        self.build()

    def build(self, input_shape: Any = None) -> None:
        if not self.embeddings.built:
            self.embeddings.build((None, None))
        for layer in (self.position_bias, *self.blocks, self.pooler):
            if layer is not None:
                layer.build((None, None, self.config.hidden_size))

    def call(
        self,
        inputs: dict[str, Tensor] | Tensor,
        training: bool = False,
        return_all: bool = False,
        dropout_key: Tensor | None = None,
        decoder: keras.layers.Layer | None = None,
        query_positions: Tensor | str | None = None,
    ) -> dict[str, Any]:
        """See the class for inputs and outputs.

        Args:
            dropout_key: int32 (2,), of a model around the encoder; by default the encoder counts its training calls.
            decoder: A masked-LM head, for what it reads: `decoded_output` (batch, length, hidden).
            query_positions: FIRST or int (batch, count), the tokens to return; the last block may compute no others.
        """
        inputs = inputs if isinstance(inputs, dict) else {"token_ids": inputs}
        check_input_names(inputs, (*ARRAYS, "perturbation"))
        if training and dropout_key is None:
            dropout_key = self.step.next_key()
        # The number of a layer, from the embeddings on -> its key.
        key_of = (lambda i: fold_in(dropout_key, i)) if training else lambda i: None

        x, shared = self._embed(inputs, key_of(0))
        blocks = [self.blocks[i] for i in self.block_order]
        call_block = rematerialize_block_calls(make_block_caller()) if self.remat and training else make_block_caller()
        queries = None if return_all or not blocks[-1].supports_query_subset else query_positions
        hidden_states, attentions = [x], []
        for number, block in enumerate(blocks, start=1):
            before, key = x, key_of(number)
            if return_all:
                x, weights = block(x, **shared, key=key, return_attention=True)
                hidden_states.append(x)
                attentions.append(weights)
            elif queries is not None and number == len(blocks):
                pooler_input, x = self._call_at(queries, block, x, key, **shared)
            else:
                x = call_block(block, x, **shared, key=key)

        outputs: dict[str, Any] = {"sequence_output": x}
        if decoder is not None:

            def last_block(query, key):
                return blocks[-1](before, **shared, key=key, query=query)

            outputs["decoded_output"] = decoder.hidden_states_to_decode(x, before, last_block, key_of(len(blocks) + 1))
        if query_positions is not None and queries is None:
            outputs = {name: gather_positions(vectors, query_positions) for name, vectors in outputs.items()}
        if self.pooler is not None:
            outputs["pooled_output"] = self.pooler(x if queries is None else pooler_input)
        if return_all:
            outputs.update(hidden_states=hidden_states, attentions=attentions)
        return outputs

    def _embed(self, inputs: dict[str, Tensor], key: Tensor | None) -> tuple[Tensor, dict[str, Any]]:
        """The embeddings' output, and what all blocks read besides."""
        token_ids, segment_ids, padding_mask = map(inputs.get, ("token_ids", "segment_ids", "padding_mask"))
        x = self.embeddings(token_ids, segment_ids, padding_mask, key=key, perturbation=inputs.get("perturbation"))
        bias = None if self.position_bias is None else self.position_bias(x)
        return x, {"attention_mask": make_attention_mask(padding_mask, inputs.get("lengths")), "position_bias": bias}

    def _call_at(self, positions: Any, block: Any, x: Tensor, key: Any, attention_mask: Any, position_bias: Any) -> Any:
        """A block's output for the pooler, and the output at these positions; it computes no other tokens."""
        bias, with_first = position_bias, self.pooler is not None and not isinstance(positions, str)
        if with_first:  # the pooler reads the first token, whatever else is read
            # Not `ops.pad`, which counts its calls: PyTorch would compile each step anew.
            positions = ops.concatenate([ops.zeros_like(positions[:, :1]), positions], axis=1)
        if bias is not None and isinstance(positions, str):
            bias = bias[:, :, :1]
        elif bias is not None:  # (1, heads, length, length) -> (batch, heads, count, length)
            bias = ops.transpose(ops.take(bias[0], positions, axis=1), (1, 0, 2, 3))
        x = block(x, attention_mask=attention_mask, position_bias=bias, key=key, query=gather_positions(x, positions))
        return x, x[:, 1:] if with_first else x
