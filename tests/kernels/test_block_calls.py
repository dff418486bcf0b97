"""Blocks that are traced once for all: which are, which must not be, and that nothing else changes."""

import re

import keras
import numpy as np
import pytest

import bertzoo as bz

if keras.backend.backend() != "jax":
    pytest.skip("other backends call each block", allow_module_level=True)

from bertzoo.kernels import jax_forms
from bertzoo.kernels import pallas as kernels
from bertzoo.layers.block import EncoderBlock
from bertzoo.layers.modernbert import PreNormBlock
from bertzoo.models.registry import FAMILIES

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "initializer_range": 0.3,
}
IDS = np.random.default_rng(0).integers(3, 50, (2, 7)).astype("int32")


def make(family: str = "bert", **changes) -> bz.Encoder:
    return bz.Encoder(FAMILIES[family].config_class(**SIZES, **changes), pooler=False)


def run(encoder, training: bool = False):
    return encoder({"token_ids": IDS}, training=training)["sequence_output"]


@pytest.fixture
def calls(monkeypatch) -> list:
    """The blocks whose `call` runs."""
    seen = []
    for block in (EncoderBlock, PreNormBlock):
        usual = block.call
        monkeypatch.setattr(
            block, "call", lambda self, *args, usual=usual, **kw: seen.append(self) or usual(self, *args, **kw)
        )
    return seen


@pytest.mark.parametrize(
    ("family", "changes", "traces"),
    [
        ("bert", {}, 1),
        ("albert", {"embedding_size": 8}, 1),
        ("modernbert", {"local_attention": 6}, 3),  # the first has no norm, two local
        ("gte", {}, 1),
        ("eurobert", {"num_key_value_heads": 1}, 2),  # the last has a norm more
    ],
)
def test_one_trace_for_blocks_alike(calls, compiled, family, changes, traces):
    encoder = make(family, **changes)
    compiled(lambda: run(encoder, training=True), encoder)()
    assert len(calls) == traces


def test_blocks_of_other_dtypes_have_traces_of_their_own(calls, compiled):
    """A map of dtype policies has one name for all layers."""
    dtype = keras.dtype_policies.DTypePolicyMap("float32", {"encoder/layer_1/.*": keras.DTypePolicy("mixed_bfloat16")})
    encoder = bz.Encoder(bz.EncoderConfig(**SIZES), pooler=False, dtype=dtype)
    compiled(lambda: run(encoder), encoder)()
    assert {block.name for block in calls} == {"layer_0", "layer_1"}


def test_the_same_numbers(calls, compiled):
    encoder = make()
    expected = run(encoder)
    assert len(calls) == 4  # not compiled, each is called
    np.testing.assert_allclose(compiled(lambda: run(encoder), encoder)(), expected, rtol=1e-5, atol=1e-5)


def test_each_block_has_its_own_gradient(monkeypatch):
    import jax

    encoder = make()
    variables = encoder.trainable_variables

    def total(values):
        with keras.StatelessScope(state_mapping=list(zip(variables, values))):
            return (run(encoder) ** 3).sum()

    values = [v.value for v in variables]
    shared = jax.jit(jax.grad(total))(values)
    monkeypatch.setattr(jax_forms, "_form", lambda block: None)  # each by itself
    for actual, expected in zip(shared, jax.jit(jax.grad(lambda values: total(values)))(values)):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5 * max(1.0, float(abs(expected).max())))


@pytest.mark.parametrize("change", ["setting", "tuple", "function", "method", "adapter", "regularizer"])
def test_a_block_that_differs_is_traced_by_itself(calls, compiled, change):
    encoder = make("deberta-v2", pos_att_type=["c2p", "p2c"]) if change == "tuple" else make()
    before, last = np.array(run(encoder)), encoder.blocks[-1]
    if change == "setting":
        last.output_norm.epsilon = 0.5
    elif change == "tuple":
        last.attention.terms = last.attention.terms[:1]
    elif change == "function":
        plain, doubled = (lambda x, factor=factor: factor * x for factor in (1.0, 2.0))  # of one name
        for block in encoder.blocks:
            block.intermediate.activation = doubled if block is last else plain
    elif change == "method":
        usual = last.call
        object.__setattr__(last, "call", lambda *args, **kw: 2.0 * usual(*args, **kw))
    elif change == "adapter":
        task = bz.TokenClassifier(encoder, labels=2)
        bz.adapters.enable_lora(task, rank=2)
        for variable in last.variables:
            if "lora_b" in variable.name:
                variable.assign(np.ones(variable.shape))
    else:
        last.intermediate.activity_regularizer = keras.regularizers.L2(1.0)
    expected = run(encoder)
    calls.clear()
    np.testing.assert_allclose(compiled(lambda: run(encoder), encoder)(), expected, rtol=1e-5, atol=1e-5)
    if change != "regularizer":
        assert np.abs(np.array(expected) - before).max() > 0.01
    assert len(calls) == (1 if change == "adapter" else 2)


def test_kernels_get_biases_as_they_are_kept(monkeypatch):
    """A cast of each would be a kernel of its own."""
    monkeypatch.setattr(kernels, "has_ampere_gpu_or_later", lambda: True)
    sizes = {**SIZES, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
    encoder = bz.Encoder(FAMILIES["bert"].config_class(**sizes), pooler=False, dtype="mixed_bfloat16")
    ids = np.ones((4, 8), "int32")
    inputs = {"token_ids": ids, "padding_mask": ids, "lengths": np.full(4, 8, "int32")}

    def step(values):
        with keras.StatelessScope(state_mapping=list(zip(encoder.variables, values))):
            return encoder(inputs, training=True)["sequence_output"]

    import jax

    traced = str(jax.make_jaxpr(step)([variable.value for variable in encoder.variables]))
    assert traced.count("pallas_call[") == 3  # attention, GELU and both sums, which are alike, of all blocks
    assert re.search(r"bf16\[64,192\] = convert_element_type", traced)
    assert not re.search(r"bf16\[\d+\] = convert_element_type", traced)
