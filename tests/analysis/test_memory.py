"""Activation memory against what PyTorch keeps for the backward pass of transformers' models."""

import inspect

import pytest
import torch
import transformers

from bertzoo.analysis import activation_bytes
from bertzoo.models.config import EncoderConfig
from bertzoo.models.registry import FAMILIES

pytestmark = pytest.mark.once
LENGTH = 16
SHAPE = {
    "vocab_size": 50,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 24,
}
CASES = {
    "bert": {},
    "roberta": {"pad_token_id": 1},
    "albert": {"embedding_size": 32, "hidden_act": "gelu"},
    "distilbert": {},
    "electra": {"embedding_size": 32},
    "modernbert": {"pad_token_id": 0},
    "nomic_bert": {},
    "gte": {},
}


def kept(model_type: str):
    """(configuration, bytes of the tensors of a forward pass that PyTorch keeps, weights and small ones left out)."""
    if model_type == "distilbert":
        shape = {"vocab_size": 50, "dim": 64, "n_layers": 3, "n_heads": 4, "hidden_dim": 96}
    else:
        shape = SHAPE
    config = transformers.AutoConfig.for_model(model_type, **shape, **CASES[model_type])
    made = getattr(transformers, FAMILIES[model_type].hf_name + "Model")
    options = {"add_pooling_layer": False} if "add_pooling_layer" in inspect.signature(made).parameters else {}
    model = made._from_config(config, attn_implementation="sdpa", **options).eval()
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    actual = {}

    def keep(tensor):
        own = tensor.is_floating_point() and tensor.untyped_storage().data_ptr() not in weights
        # A normalisation keeps a mean and a deviation a token besides, and fused attention a sum a head: not counted.
        if own and tensor.numel() >= LENGTH * 32:
            actual[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = model(torch.full((1, LENGTH), 5))[0]
    out.sum()
    return EncoderConfig.from_hf(config.to_dict()), sum(actual.values())


@pytest.mark.parametrize("model_type", CASES)
def test_as_pytorch_keeps(model_type):
    config, expected = kept(model_type)
    assert activation_bytes(config, LENGTH) == pytest.approx(expected, rel=0.02)


@pytest.mark.slow
def test_longer_texts_and_learnt_scores():
    bert = EncoderConfig.from_hf({**SHAPE, "model_type": "bert"})
    mpnet = EncoderConfig.from_hf({**SHAPE, "model_type": "mpnet", "pad_token_id": 1, "layer_norm_eps": 1e-5})
    assert activation_bytes(bert, 20) == 20 * activation_bytes(bert, 1) == 2 * activation_bytes(bert, 20, 2)
    # 8 hidden + 2 inner vectors a layer, and the embeddings' normalisation.
    assert activation_bytes(bert, 1) == 4 * (3 * (8 * 64 + 2 * 96) + 64)
    assert activation_bytes(mpnet, 20) - activation_bytes(bert, 20) == 4 * 3 * 4 * 20**2
