"""What the contestants are given, and what is counted, against counts made another way."""

import numpy as np
import pytest
from benchmarks.case import MODERN_SIZES, SIZES, Case


def case(**changes):
    return Case(**{"contestant": "bertzoo", "backend": "jax", "mode": "infer", "size": "mini", **changes})


def test_rows_hold_the_lengths_that_are_counted():
    real = case(length=128, batch_size=64, padding="real", steps=20)
    ids, mask, labels = real.rows()
    assert ids.shape == mask.shape == (1280, 128) and labels.shape == (1280,)
    np.testing.assert_array_equal(mask.sum(axis=1), real.lengths())
    assert (ids[mask == 0] == 0).all() and (ids[mask == 1] >= 1000).all()
    assert 0.35 < mask.mean() < 0.45 and mask.sum(axis=1).min() >= 4
    assert case(length=16, batch_size=2).rows()[1].all()


@pytest.mark.parametrize(
    ("family", "sizes", "hf_name", "options"),
    [("bert", SIZES, "Bert", {"add_pooling_layer": False}), ("modernbert", MODERN_SIZES, "ModernBert", {})],
)
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_flops_are_those_that_torch_counts(mode, family, sizes, hf_name, options):
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode

    measured = case(contestant="transformers", mode=mode, family=family, length=32, batch_size=4, steps=1)
    hidden, layers, heads, inner = sizes["mini"]
    config = getattr(transformers, hf_name + "Config")(
        vocab_size=100,
        pad_token_id=0,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        attn_implementation="eager",
    )
    model = getattr(transformers, hf_name + "Model")(config, **options)
    with FlopCounterMode(display=False) as counter:
        out = model(torch.zeros((4, 32), dtype=torch.long)).last_hidden_state
        if mode == "train":
            out.sum().backward()
    assert counter.get_total_flops() == pytest.approx(measured.flops(), rel=0.01)
