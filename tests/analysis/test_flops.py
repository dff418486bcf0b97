"""FLOPs against the papers' formulas in NumPy, and against those that PyTorch counts in transformers' models."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

import bertzoo as bz
from bertzoo.dispatch import use_formulas_only
from bertzoo.models.config import EncoderConfig
from bertzoo.models.flops import encoder_flops, flops_by_part, masked_lm_head_flops
from bertzoo.models.registry import FAMILIES
from bertzoo.pretraining.corpus_dataset import BatchSpec
from bertzoo.pretraining.objectives import step_flops
from bertzoo.tasks.pretraining_heads import ForPreTraining
from bertzoo.text.masking import Masking

pytestmark = pytest.mark.once
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
    "roformer": ("roformer", {**SMALL, "embedding_size": 8}),
    "ernie": ("ernie", {**SMALL, "use_task_id": True}),
    "nomic_bert": ("nomic_bert", SMALL),
    "gte": ("gte", SMALL),
    "eurobert": ("eurobert", {**SMALL, "pad_token_id": 0, "num_key_value_heads": 1}),
}


def counted(case: str, head: str = "Model", training: bool = False, batch_size: int = 1):
    """(configuration in our words, operations of a batch as PyTorch counts them)."""
    model_type, arguments = CASES[case]
    config = transformers.AutoConfig.for_model(model_type, **arguments)
    made = getattr(transformers, FAMILIES[model_type].hf_name + head)
    options = {"add_pooling_layer": False} if "add_pooling_layer" in inspect.signature(made).parameters else {}
    model = made._from_config(config, attn_implementation="eager", **options).eval()
    with FlopCounterMode(display=False) as counter:
        out = model(torch.full((batch_size, LENGTH), 5))[0]
        if training:
            out.sum().backward()
    return EncoderConfig.from_hf(config.to_dict()), counter.get_total_flops()


@pytest.mark.parametrize("case", CASES)
def test_as_pytorch_counts(case):
    config, expected = counted(case)
    assert encoder_flops(config, LENGTH) == pytest.approx(expected, rel=1e-9)
    _, expected = counted(case, training=True)
    assert 3 * encoder_flops(config, LENGTH) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("case", ["bert", *(case for case in CASES if case.startswith("deberta"))])
def test_as_pytorch_counts_in_batches(case):
    """DeBERTa projects its positions once for all rows of a batch, however many there are."""
    config, expected = counted(case, batch_size=32)
    assert 32 * encoder_flops(config, LENGTH, batch_size=32) == pytest.approx(expected, rel=1e-9)
    _, expected = counted(case, training=True, batch_size=32)
    assert 3 * 32 * encoder_flops(config, LENGTH, batch_size=32) == pytest.approx(expected, rel=1e-9)


NAMES = "google-bert/bert-base-uncased", "microsoft/deberta-v3-base"


def test_deberta_base_costs_little_more_than_bert_base():
    """In rows of 128: the positions' scores are 5 % of BERT's work; their projection is a third of it for one row
    alone, and 1 % for 32."""
    bert, deberta = (bz.describe(name).config for name in NAMES)
    ratios = [encoder_flops(deberta, 128, batch_size=size) / encoder_flops(bert, 128) for size in (1, 32)]
    assert ratios == pytest.approx([1.379, 1.064], abs=0.001)
    projected = [flops_by_part(deberta, 128, batch_size=size)["relative"] for size in (1, 2)]
    rows, terms = 2 * 128, 2
    assert projected[0] - projected[1] == 12 * terms * 2 * rows * 768**2 / 2


def test_a_step_of_pretraining_counts_its_batch():
    """DeBERTa's compute at a budget: all rows of a step share one projection of the positions."""
    encoder = bz.Encoder(EncoderConfig.from_hf({**DEBERTA_V3, "model_type": "deberta-v2"}), pooler=False)
    model = SimpleNamespace(backbone=encoder, masking=Masking(50, mask_id=4))
    step = step_flops(model, BatchSpec(LENGTH, 32))
    alone = 32 * step_flops(model, BatchSpec(LENGTH, 1))
    assert alone - step == pytest.approx(3 * 31 * 3 * 2 * 2 * (2 * LENGTH) * 16**2)  # blocks, terms, rows, width


def test_a_batch_has_rows():
    with pytest.raises(ValueError, match="must be 1 or more. Received: 0"):
        encoder_flops(EncoderConfig.from_hf({**SMALL, "model_type": "bert"}), LENGTH, batch_size=0)


@pytest.mark.parametrize("case", ["bert", "albert"])
def test_of_a_classifier(case):
    """Of this library: its last block computes what the head reads, and no more."""
    config, _ = counted(case)
    model = bz.TextClassifier(bz.Encoder(config, attention_dropout=0.1))  # PyTorch does not count its fused attention
    with FlopCounterMode(display=False) as counter:
        out = model(torch.full((1, LENGTH), 5), training=True)
        out.sum().backward()
    head = 2 * config.hidden_size**2 + 2 * config.hidden_size * 2  # pooler, logits
    expected = encoder_flops(config, LENGTH, num_queries=1)
    assert 3 * (expected + head) == pytest.approx(counter.get_total_flops(), rel=1e-9)


@pytest.mark.parametrize("pooler", [False, True])
@pytest.mark.parametrize("case", ["bert", "albert"])
def test_of_pretraining(case, pooler):
    """Its last block computes the masked tokens alone, and the first where a pooler reads it."""
    config, _ = counted(case)
    task = (ForPreTraining if pooler else bz.MaskedLM)(bz.Encoder(config, pooler=pooler, attention_dropout=0.1))
    inputs = {"token_ids": torch.full((1, LENGTH), 5), "mask_positions": torch.tensor([[2, 4, 7]])}
    with FlopCounterMode(display=False) as counter:
        out = task(inputs, training=True)
        (out["masked_lm"].sum() + out["pair"].sum() if pooler else out.sum()).backward()
    pair = (2 * config.hidden_size**2 + 2 * config.hidden_size * 2) * pooler
    expected = encoder_flops(config, LENGTH, num_queries=3 + pooler) + masked_lm_head_flops(config, 3) + pair
    assert 3 * expected == pytest.approx(counter.get_total_flops(), rel=1e-9)


@pytest.mark.parametrize("case", ["modernbert", "roformer", "mpnet", "gte", "eurobert"])
def test_of_one_token(case):
    """The last block computes attention of all, and what follows of the token that is read."""
    config, _ = counted(case)
    encoder = bz.Encoder(config, pooler=False, attention_dropout=0.1)
    with FlopCounterMode(display=False) as counter:
        encoder(torch.full((1, LENGTH), 5), training=True, query_positions=torch.tensor([[1]]))
    assert encoder_flops(config, LENGTH, num_queries=1) == pytest.approx(counter.get_total_flops(), rel=1e-9)


@pytest.mark.parametrize("case", ["bert", "albert", "modernbert", "nomic_bert", "gte", "eurobert"])
def test_masked_lm_head(case):
    config, expected = counted(case, "ForMaskedLM")
    assert encoder_flops(config, LENGTH) + masked_lm_head_flops(config, LENGTH) == pytest.approx(expected, rel=1e-9)


def test_local_attention_counts_its_blocks():
    config, _ = counted("modernbert")
    encoder, length = bz.Encoder(config), 21  # whole blocks, of three tokens
    with use_formulas_only(), FlopCounterMode(display=False) as counter:
        encoder(torch.full((1, length), 5))
    assert encoder_flops(config, length) == pytest.approx(counter.get_total_flops(), rel=1e-9)
    assert counter.get_total_flops() < encoder_flops(config.replace(layer_types=["full_attention"] * 3), length)


def test_the_formula_of_bert():
    config = EncoderConfig.from_hf({**SMALL, "model_type": "bert"})
    lengths = np.array([5.0, 24.0])
    hidden, inner, layers = 16, 24, 3
    parts = flops_by_part(config, lengths)
    np.testing.assert_allclose(parts["projections"], layers * lengths * 2 * 4 * hidden**2, rtol=1e-5)
    np.testing.assert_allclose(parts["attention"], layers * 2 * 2 * lengths**2 * hidden, rtol=1e-5)
    np.testing.assert_allclose(parts["feed-forward"], layers * lengths * 2 * 2 * hidden * inner, rtol=1e-5)
    np.testing.assert_array_equal(parts["embeddings"] + parts["relative"], 0)
    np.testing.assert_array_equal(encoder_flops(config, lengths), [encoder_flops(config, n) for n in lengths])
    assert isinstance(encoder_flops(config, 5), float)
