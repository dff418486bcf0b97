"""The attention kernels, interpreted on the CPU, against the formula; that they lower for a GPU; who takes them."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "jax":
    pytest.skip("the kernels are JAX's", allow_module_level=True)

import jax
import jax.numpy as jnp

import bertzoo as bz
from bertzoo.data.packing import PackedShape, packing_arrays
from bertzoo.kernels import pallas as kernels
from bertzoo.kernels import short_attention
from bertzoo.layers import SelfAttention, make_attention_mask

HEADS = 3
ROUNDING = 200 if jax.default_backend() == "gpu" else 1  # a GPU rounds the factors of float32 products to ten bits


def formula(product, bias, text_ids):
    batch, length, width = product.shape
    query, key, value = jnp.moveaxis((product + bias).reshape(batch, length, 3, HEADS, width // (3 * HEADS)), 2, 0)
    scores = jnp.einsum("bthd,bshd->bhts", query, key) / np.sqrt(query.shape[-1])
    scores = jnp.where((text_ids[:, :, None] == text_ids[:, None, :])[:, None], scores, -jnp.inf)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), value).reshape(batch, length, -1)


@pytest.mark.parametrize(("length", "size"), [(5, 16), (16, 32), (69, 16), (128, 64)])
def test_values_and_gradients(length, size):
    """Of lengths that fill a program's rows and of others, in one block of queries and in several."""
    draws = np.random.default_rng(0)
    width = 3 * HEADS * size
    shapes = (3, length, width), width, (3, length, width // 3)
    product, bias, gradient = (jnp.array(draws.normal(size=shape), "float32") for shape in shapes)
    columns = jnp.arange(length)
    ids = [columns < length, columns < 1, columns // 3 * (columns < length - 2) - 1 * (columns >= length - 2)]
    text_ids = jnp.stack(ids).astype("int32")

    def both(function):
        out, back = jax.vjp(function, product, bias)
        return out, *back(gradient)

    actual = jax.jit(lambda: both(lambda *inputs: short_attention.short_attention(*inputs, text_ids, HEADS)))()
    expected = jax.jit(lambda: both(lambda *inputs: formula(*inputs, text_ids)))()
    for values, expected_values, error in zip(actual, expected, (3e-5, 1e-4, 1e-4), strict=True):
        np.testing.assert_allclose(values, expected_values, atol=error * ROUNDING)


def test_a_row_without_tokens_has_no_nan():
    product, bias = jnp.ones((2, 8, 3 * HEADS * 16)), jnp.ones(3 * HEADS * 16)

    def total(product):
        text_ids = jnp.array([[-1] * 8, [0] * 8], "int32")
        return short_attention.short_attention(product, bias, text_ids, HEADS).sum()

    value, slope = jax.value_and_grad(total)(product)
    assert np.isfinite(value) and np.isfinite(slope).all()


@pytest.mark.parametrize("packed", [False, True])
def test_an_encoder_computes_the_same_with_it(monkeypatch, compiled, packed):
    shape = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 64}
    config = bz.EncoderConfig(vocab_size=50, **shape)
    ids = np.arange(1, 17, dtype="int32").reshape(2, 8)
    inputs = {"token_ids": ids, "lengths": np.array([8, 5], "int32")}
    inputs["padding_mask"] = (np.arange(8) < inputs["lengths"][:, None]).astype("int32")
    inputs |= packing_arrays(inputs["lengths"], 8, PackedShape(16, (1,))) if packed else {}

    def outputs():
        encoder = bz.Encoder(config, dtype="mixed_bfloat16")
        steps = (compiled(lambda t=t: encoder(inputs, training=t)["sequence_output"], encoder) for t in (True, False))
        return [np.asarray(step(), "float32") * inputs["padding_mask"][..., None] for step in steps]

    usual, taken = outputs(), []
    kernel = short_attention.short_attention
    monkeypatch.setattr(kernels, "has_ampere_gpu_or_later", lambda: True)
    monkeypatch.setattr(short_attention, "short_attention", lambda *args: taken.append(1) or kernel(*args))
    for actual, expected in zip(outputs(), usual, strict=True):
        np.testing.assert_allclose(actual, expected, atol=0.05)
    assert len(taken) == 2  # blocks alike are traced once


def test_who_does_not_take_it(monkeypatch):
    """Float32, masks that are more than lengths, asked-for or dropped weights, biases of scores, long rows."""
    monkeypatch.setattr(kernels, "has_ampere_gpu_or_later", lambda: True)
    monkeypatch.setattr(short_attention, "short_attention", lambda *args: pytest.fail("it was taken"))
    layer, exact = (SelfAttention(32, 2, dtype=dtype) for dtype in ("mixed_bfloat16", "float32"))
    dropping = SelfAttention(32, 2, attention_dropout=0.5, dtype="mixed_bfloat16")
    x, mask = np.ones((2, 8, 32), "float32"), np.ones((2, 8), "int32")

    def call(layer, x=x, **arguments):
        if not layer.built:
            layer.build(x.shape)
        jax.eval_shape(lambda: layer(x, **arguments))  # which kernel is asked for, without its numbers

    with pytest.raises(pytest.fail.Exception):
        call(layer)
    call(exact)
    call(layer, attention_mask=make_attention_mask(mask))
    call(layer, return_attention=True)
    call(layer, position_bias=np.zeros((1, 2, 8, 8), "float32"))
    call(layer, query=x)
    call(dropping, key=np.array([1, 2], "int32"))
    call(layer, np.ones((2, 129, 32), "float32"))


def test_it_lowers_for_a_gpu(abstract_gpu):

    def gradients(product, bias, text_ids):
        out, back = jax.vjp(lambda *inputs: short_attention.short_attention(*inputs, text_ids, 12), product, bias)
        return back(out)

    for length in (16, 100, 128):
        shapes = ((4, length, 3 * 768), "bfloat16"), ((3 * 768,), "float32"), ((4, length), "int32")
        traced = jax.jit(gradients).trace(*(jax.ShapeDtypeStruct(*shape) for shape in shapes))
        assert "short_attention_gradient" in traced.lower(lowering_platforms=("cuda",)).as_text()
