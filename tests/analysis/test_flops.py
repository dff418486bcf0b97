"""FLOPs against those that PyTorch counts in transformers' models."""

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

import bertzoo as bz
from bertzoo.analysis.flops import PARTS, flops_per_token
from bertzoo.config import EncoderConfig
from bertzoo.families import FAMILIES

LENGTH = 8
SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
}
DEBERTA = {**SMALL, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}
# transformers' second DeBERTa projects all rows of its table: with as many buckets as tokens, these are those needed.
DEBERTA_V3 = {**DEBERTA, "position_buckets": LENGTH, "norm_rel_ebd": "layer_norm", "share_att_key": True}
DISTILBERT = {"vocab_size": 50, "dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 24}
CASES = {
    "bert": ("bert", SMALL),
    "roberta": ("roberta", {**SMALL, "pad_token_id": 1}),
    "albert": ("albert", {**SMALL, "embedding_size": 8}),
    "albert-groups": ("albert", {**SMALL, "embedding_size": 16, "num_hidden_groups": 2, "inner_group_num": 2}),
    "distilbert": ("distilbert", DISTILBERT),
    "electra": ("electra", {**SMALL, "embedding_size": 8}),
    "electra-wide": ("electra", {**SMALL, "embedding_size": 16}),
    "mpnet": ("mpnet", {**SMALL, "pad_token_id": 1}),
    "deberta": ("deberta", DEBERTA),
    "deberta-c2p": ("deberta", {**DEBERTA, "pos_att_type": ["c2p"]}),
    "deberta-without-relations": ("deberta", {**DEBERTA, "relative_attention": False, "position_biased_input": True}),
    "deberta-v2": ("deberta-v2", DEBERTA_V3),
    "deberta-v2-xl": ("deberta-v2", {**DEBERTA_V3, "conv_kernel_size": 3, "share_att_key": False}),
    "modernbert": ("modernbert", {**SMALL, "local_attention": 6, "pad_token_id": 0}),
}
HEADS = [
    ("bert", "masked_lm"),
    ("bert", "classifier"),
    ("albert", "masked_lm"),
    ("roberta", "classifier"),
    ("electra", "rtd"),
    ("electra", "masked_lm"),
    ("distilbert", "token_classifier"),
    ("deberta", "masked_lm"),
    ("deberta-v2", "classifier"),
    ("modernbert", "qa"),
    ("modernbert", "masked_lm"),
]


def counted(case: str, head: str | None = None, training: bool = False):
    """(configuration in our words, operations of a text as PyTorch counts them)."""
    model_type, arguments = CASES[case]
    family = FAMILIES[model_type]
    suffix = "Model" if head is None else family.heads[head].hf_class
    config = transformers.AutoConfig.for_model(model_type, **arguments)
    model = getattr(transformers, family.hf_name + suffix)._from_config(config, attn_implementation="eager")
    model.eval()
    with FlopCounterMode(display=False) as counter:
        out = model(torch.full((1, LENGTH), 5))[0]
        if training:
            out.sum().backward()
    # transformers computes the angles of rotary positions as a product of matrices, for each kind of layer.
    angles = 2 * 2 * LENGTH * 4 if model_type == "modernbert" else 0
    return EncoderConfig.from_hf(config.to_dict()), counter.get_total_flops() - angles


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("training", [False, True])
def test_encoders(case, training):
    config, expected = counted(case, training=training)
    # In training the loss is of the tokens' vectors, which the pooler does not touch on its way back.
    pooled = flops_per_token(config, LENGTH, pooler=True)["pooler"]
    found = sum(flops_per_token(config, LENGTH, training=training).values()) + pooled
    assert found * LENGTH == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("case", "head"), HEADS)
def test_heads(case, head):
    config, expected = counted(case, head)
    assert sum(flops_per_token(config, LENGTH, head=head).values()) * LENGTH == pytest.approx(expected, rel=1e-9)


def test_parts_of_bert_base():
    found = flops_per_token(bz.EncoderConfig(), 512, pooler=True)
    assert list(found) == list(PARTS)
    assert found["projections"] == 12 * 8 * 768**2
    assert found["feed-forward"] == 12 * 4 * 768 * 3072
    assert found["attention"] == 12 * 4 * 512 * 768
    assert found["pooler"] * 512 == 2 * 768**2
    assert found["embeddings projection"] == found["relative"] == found["head"] == 0


def test_the_decoder_applies_the_last_block_twice_more():
    config = EncoderConfig.from_hf({**DEBERTA, "model_type": "deberta", "legacy": False})
    plain = flops_per_token(config, LENGTH, head="masked_lm")
    enhanced = flops_per_token(config.with_(enhanced_mask_decoder=True), LENGTH, head="masked_lm")
    block = sum(n for part, n in plain.items() if part != "head") / 3
    assert enhanced["head"] - plain["head"] == pytest.approx(2 * block)


def test_what_cannot_be_counted():
    with pytest.raises(ValueError, match="from 1 to 512"):
        flops_per_token(bz.EncoderConfig(), 513)
    with pytest.raises(ValueError, match="no head 'rtd'"):
        flops_per_token(bz.EncoderConfig(), 8, head="rtd")
