"""DeBERTa (He et al. 2021): relative positions in every attention, absolute ones in the masked-LM head alone."""

import re
from collections.abc import Container
from typing import Any

import keras

from bertzoo.layers.deberta import EnhancedMaskDecoder, MaskedEmbeddings
from bertzoo.layers.disentangled import DisentangledAttention, FirstDisentangledAttention, RelativeEmbeddings
from bertzoo.models.bert import Bert
from bertzoo.models.config import EncoderConfig
from bertzoo.models.deberta_config import DebertaConfig
from bertzoo.models.family import PLAIN_HEADS, Family, Head, Names, dense

POSITIONS = "embeddings.position_embeddings.weight"
SELF = "encoder.layer.{i}.attention.self."

# What blocks and embeddings of both versions have.
SHARED_NAMES = (
    *(pair for pair in Bert.names if "pooler/" not in pair[0] and "/qkv/" not in pair[0]),
    ("embeddings/projection/kernel", "embeddings.embed_proj.weight"),
    ("relative/table", "encoder.rel_embeddings.weight"),
    ("masked_lm/position", POSITIONS),
)
# The masked-LM head of Microsoft's files, and of Hugging Face's with legacy = false.
ORIGINAL_MASKED_LM = tuple(
    (ours, re.sub(r"cls\.predictions(\.transform)?", "lm_predictions.lm_head", theirs))
    for ours, theirs in Bert.heads["masked_lm"].names
)


def pooled(name: str, hf_class: str) -> Head:
    """A head with the first token's dense layer, which the files call the pooler."""
    return Head(
        hf_class,
        (
            *dense(f"{name}/dense", "pooler.dense"),
            *dense(f"{name}/logits", "classifier"),
        ),
    )


class Deberta(Family):
    model_type = "deberta"
    hf_name = "Deberta"
    prefix = "deberta."
    former_prefixes = ("bert.",)
    config_class = DebertaConfig
    names = (
        *SHARED_NAMES,
        ("layer_{i}/attention/qkv/kernel", SELF + "in_proj.weight"),
        ("layer_{i}/attention/query_bias", SELF + "q_bias"),
        ("layer_{i}/attention/value_bias", SELF + "v_bias"),
        ("layer_{i}/attention/position_key/kernel", SELF + "pos_proj.weight"),
        *dense("layer_{i}/attention/position_query", SELF + "pos_q_proj"),
    )
    heads = {
        **PLAIN_HEADS,
        "masked_lm": Bert.heads["masked_lm"],
        "classifier": pooled("classifier", "ForSequenceClassification"),
        "multiple_choice": pooled("multiple_choice", "ForMultipleChoice"),
    }
    has_pooler = classifier_uses_pooler = multiple_choice_uses_pooler = False
    decoder = "cls.predictions.decoder.weight"
    inert_tensors = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "embeddings.position_ids")
    aliases = Bert.aliases
    attention: type[DisentangledAttention] = FirstDisentangledAttention

    def embeddings(self, config: Any, **options: Any) -> keras.layers.Layer:
        if not config.position_biased_input:
            options["max_positions"] = 0
        if config.embedding_size != config.hidden_size:
            options["projection"] = config.hidden_size
        return super().embeddings(config, layer=MaskedEmbeddings, **options)

    def position_bias(self, config: Any, **options: Any) -> keras.layers.Layer | None:
        if not config.relative_attention:
            return None
        options.setdefault("span", config.max_distance)
        return RelativeEmbeddings(hidden_size=config.hidden_size, initializer_range=config.initializer_range, **options)

    def block(self, config: Any, index: int, **options: Any) -> keras.layers.Layer:
        return super().block(config, index, attention=self.make_attention(config, dtype=options["dtype"]), **options)

    def make_attention(self, config: Any, **options: Any) -> keras.layers.Layer:
        # Without relative attention, files have no kernels for it.
        options.setdefault("share_projections", not config.relative_attention)
        return self.attention(
            config.hidden_size,
            config.num_attention_heads,
            config.attention_probs_dropout_prob,
            config.initializer_range,
            config.terms,
            config.max_distance,
            position_dropout=config.hidden_dropout_prob,
            **options,
        )

    def head_options(self, config: Any, name: str) -> dict[str, Any]:
        options = super().head_options(config, name)
        if name in ("classifier", "multiple_choice"):
            options |= {"dense_activation": config.pooler_hidden_act, "first_dropout": config.pooler_dropout}
        elif name == "token_classifier":
            options["dropout_rate"] = config.hidden_dropout_prob
        elif name == "masked_lm" and config.enhanced_mask_decoder:
            options |= {"layer": EnhancedMaskDecoder, "max_positions": config.max_position_embeddings}
        return options

    def names_of_head(self, config: Any, head: str) -> Names:
        return ORIGINAL_MASKED_LM if head == "masked_lm" and not config.legacy else super().names_of_head(config, head)

    def infer_config_from_tensors(self, config: Any, tensors: Container[str]) -> EncoderConfig:
        """Original files do not say that their masked-LM head is the paper's: its tensors tell."""
        if "lm_predictions.lm_head.bias" not in tensors:
            return config
        return config.with_(legacy=False, enhanced_mask_decoder=config.may_decode and POSITIONS in tensors)
