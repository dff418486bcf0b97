"""The encoder: embeddings, blocks and, where the family has one, the pooler."""

from functools import partial
from typing import Any

import keras
from keras import ops

from bertzoo.dispatch import make_block_caller, rematerialize_block_calls
from bertzoo.layers.attention import make_attention_mask, make_text_mask
from bertzoo.layers.functional import FIRST
from bertzoo.layers.packed_rows import PackedRows, Selection, layer_keys
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder_base import EncoderBase
from bertzoo.models.registry import FAMILIES, check_family_config
from bertzoo.random import StepCounter, TokenKey
from bertzoo.text.encoded import ARRAYS, PACKING, check_input_names
from bertzoo.training.step import BackendModel
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class Encoder(BackendModel, EncoderBase):
    """An encoder of the BERT family, all of whose weights exist after construction.

    Inputs: a dict of int arrays `token_ids` (batch, length), and optionally `segment_ids` (default 0) and
    `padding_mask` (1 at real tokens; default 1); or the token ids alone. Ids must be below `config.vocab_size`, which
    JAX does not check. Pass the number of real tokens, `lengths` (batch,), besides the mask when all padding is at the
    end of each row: JAX is then faster on a GPU. With `packing` and `text_starts` too (see `bertzoo.data.packing`), the
    texts are computed side by side in fewer rows; the outputs are the same, 0 at padding. A `perturbation` (batch,
    length, width) is added to the normalised embeddings; see `bertzoo.training.SiFT`. Where a batch is a part of
    another, `first_text` is the number of its first text there, so that its dropout is that of the whole.

    Outputs: a dict with `sequence_output` (batch, length, hidden) and, where the family has a pooler, `pooled_output`
    (batch, hidden). With `return_all=True` also lists: `hidden_states`, the outputs of the embeddings and of each
    applied block, and `attentions`, the weights (batch, heads, length, length) of each; with `return_layers=True`
    `hidden_states` alone, which is possible with `packing` too.

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

    Example:
        >>> sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        >>> encoder = bz.Encoder(bz.EncoderConfig(vocab_size=100, **sizes))
        >>> outputs = encoder(np.array([[2, 5, 6, 3]]))
        >>> tuple(outputs["sequence_output"].shape), tuple(outputs["pooled_output"].shape)
        ((1, 4, 32), (1, 32))
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
        return_layers: bool = False,
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
        check_input_names(inputs, (*ARRAYS, *PACKING, "perturbation", "first_text"))
        if training and dropout_key is None:
            dropout_key = self.step.next_key()
        rows = None if return_all else PackedRows.of(inputs)
        key_of = layer_keys(dropout_key if training else None, inputs, rows)
        # The pooler reads the first token, whatever else is read.
        adds_first = self.pooler is not None and query_positions is not None and not isinstance(query_positions, str)
        if adds_first:
            # Not `ops.pad`, which counts its calls: PyTorch would compile each step anew.
            positions: Any = query_positions
            query_positions = ops.concatenate([ops.zeros_like(positions[:, :1]), positions], axis=1)
        select = None if query_positions is None else Selection(query_positions, rows)

        x, shared = self._embed(inputs, rows, key_of(0))
        hidden_states = [x] if return_layers else []
        if return_all:
            hidden_states, attentions = self._apply_and_record(x, shared, key_of)
            before, x = hidden_states[-2:]
            x = x if select is None else select(x)
        else:
            keep = hidden_states if return_layers else None
            before, x = self._apply_blocks(x, shared, key_of, select, self.remat and training, keep)
        outputs: dict[str, Any] = {"sequence_output": x}
        if decoder is not None:
            key = key_of(len(self.block_order) + 1)
            last_block = partial(self._apply_last_block, before, shared, select)
            positions = None if rows is None else rows.position_ids
            outputs["decoded_output"] = decoder.hidden_states_to_decode(x, before, last_block, key, positions)
        pooler_input = x
        if rows is not None and select is None:
            outputs = {name: rows.unpack(vectors, inputs["padding_mask"]) for name, vectors in outputs.items()}
            hidden_states = [rows.unpack(vectors, inputs["padding_mask"]) for vectors in hidden_states]
            pooler_input = rows.gather(x, FIRST)
        elif adds_first:
            outputs = {name: vectors[:, 1:] for name, vectors in outputs.items()}
        if self.pooler is not None:
            outputs["pooled_output"] = self.pooler(pooler_input)
        if return_all or return_layers:
            outputs["hidden_states"] = hidden_states
        if return_all:
            outputs["attentions"] = attentions
        return outputs

    def _embed(
        self, inputs: dict[str, Tensor], rows: PackedRows | None, key: Tensor | TokenKey | None
    ) -> tuple[Tensor, dict[str, Any]]:
        """The embeddings' output, and what all blocks read besides."""
        arrays = {name: inputs.get(name) for name in ("token_ids", "segment_ids", "padding_mask", "perturbation")}
        if rows is None:
            attention_mask = make_attention_mask(arrays["padding_mask"], inputs.get("lengths"))
        else:
            arrays["position_ids"] = self.embeddings.position_rows(arrays["token_ids"])
            arrays = {name: rows.pack(array) for name, array in arrays.items()}
            attention_mask = make_text_mask(rows.text_ids)
        x = self.embeddings(**arrays, key=key)
        bias = None
        if self.position_bias is not None:
            bias = self.position_bias(x, None if rows is None else rows.position_ids)
        return x, {"attention_mask": attention_mask, "position_bias": bias}

    def _apply_blocks(
        self, x: Tensor, shared: dict, key_of: Any, select: Any, remat: bool, keep: list[Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """The input of the last block, and its output, of the selected tokens if there are any; a list to `keep` gets
        the outputs of all blocks."""
        call_block = rematerialize_block_calls(make_block_caller()) if remat else make_block_caller()
        *first_blocks, last_block = (self.blocks[i] for i in self.block_order)
        for number, block in enumerate(first_blocks, start=1):
            x = call_block(block, x, **shared, key=key_of(number))
            if keep is not None:
                keep.append(x)
        key = key_of(len(self.block_order))
        if select is None:
            last = call_block(last_block, x, **shared, key=key)
            if keep is not None:
                keep.append(last)
            return x, last
        return x, last_block(x, **shared, key=key, select=select)

    def _apply_last_block(
        self, x: Tensor, shared: dict, select: Any, query: Tensor, key: Any, selected: bool = False
    ) -> Tensor:
        """The last block once more, of other queries, as a decoder calls it."""
        block = self.blocks[self.block_order[-1]]
        return block(x, **shared, key=key, query=query, select=select if selected else None)

    def _apply_and_record(self, x: Tensor, shared: dict, key_of: Any) -> tuple[list[Tensor], list[Tensor]]:
        """The outputs of the embeddings and of each block, and each block's attention weights."""
        hidden_states, attentions = [x], []
        for number, index in enumerate(self.block_order, start=1):
            options = {**shared, "key": key_of(number), "return_attention": True}
            x, weights = self.blocks[index](hidden_states[-1], **options)
            hidden_states.append(x)
            attentions.append(weights)
        return hidden_states, attentions
