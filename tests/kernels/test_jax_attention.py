"""cuDNN's fused attention under JAX is asked only for what it takes. XLA stands in for it here."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "jax":
    pytest.skip("the kernel is called by JAX", allow_module_level=True)

import jax
import jax.numpy as jnp

from bertzoo.kernels import jax_forms
from bertzoo.layers.attention import AttentionMask, attention_weights, dot_product_attention


@pytest.fixture
def asked(monkeypatch):
    """The shapes of the queries that cuDNN gets."""
    shapes = []

    def stand_in(query, key, value, bias=None, *, implementation, **lengths):
        assert implementation == "cudnn"
        shapes.append(query.shape)
        return xla(query, key, value, bias, implementation="xla", **lengths)

    xla = jax.nn.dot_product_attention
    monkeypatch.setattr(jax_forms, "has_ampere_gpu_or_later", lambda: True)
    monkeypatch.setattr(jax_forms, "_has_kernel", lambda query: True)
    monkeypatch.setattr(jax.nn, "dot_product_attention", stand_in)
    return shapes


@pytest.mark.parametrize(("length", "computed"), [(7, 8), (6, 6)])
@pytest.mark.parametrize("biased", [False, True])
def test_its_lengths_are_even(asked, length, computed, biased):
    """It has no gradient for odd ones."""
    draws = np.random.default_rng(0)
    query, key, value, weights = (jnp.asarray(draws.normal(size=(2, length, 3, 8)), "float16") for _ in range(4))
    bias = jnp.asarray(draws.normal(size=(1, 3, length, length)), "float32") if biased else None
    lengths = jnp.asarray([length, 4])
    real = (jnp.arange(length) < lengths[:, None])[:, None, None, :]

    def by_kernel(query, key, value):
        out = dot_product_attention(query, key, value, AttentionMask(real, lengths), bias)
        return jnp.where(real[:, 0, 0, :, None, None], out * weights, 0).sum(), out

    def by_formula(query, key, value):
        probabilities = attention_weights(query, key, AttentionMask(real), bias).astype("float16")
        out = jnp.einsum("bhts,bshk->bthk", probabilities, value)
        return jnp.where(real[:, 0, 0, :, None, None], out * weights, 0).sum(), out

    actual, expected = (
        jax.grad(f, argnums=(0, 1, 2), has_aux=True)(query, key, value) for f in (by_kernel, by_formula)
    )
    assert asked == [(2, computed, 3, 8)]
    for gradient, other in zip(actual[0], expected[0], strict=True):
        np.testing.assert_allclose(gradient, other, atol=0.01)
    assert actual[1].shape == query.shape
    for out, other, count in zip(actual[1], expected[1], lengths):
        np.testing.assert_allclose(out[:count], other[:count], atol=0.01)


@pytest.mark.parametrize(("count", "computed"), [(3, 4), (8, 8)])
def test_queries_of_another_stream(asked, count, computed):
    """Fewer than the keys or more; all of them count, and none sees padding."""
    draws = np.random.default_rng(0)
    query, key, value = (jnp.asarray(draws.normal(size=(2, n, 3, 8)), "float16") for n in (count, 5, 5))
    lengths = jnp.asarray([5, 2])
    attention_mask = AttentionMask((jnp.arange(5) < lengths[:, None])[:, None, None, :], lengths)
    out = dot_product_attention(query, key, value, attention_mask, cross=True)
    assert asked == [(2, computed, 3, 8)]
    expected = jnp.einsum("bhts,bshk->bthk", attention_weights(query, key, attention_mask), value)
    np.testing.assert_allclose(out, expected, atol=0.01)


@pytest.mark.parametrize("size", [12, 136, 264])
def test_it_is_not_asked_for_other_heads(asked, size):
    if size == 136 and jax.default_backend() == "gpu":
        pytest.skip("Keras asks for these itself, with a mask")
    heads = jnp.ones((1, 4, 2, size), "bfloat16")
    out = dot_product_attention(heads, heads, heads, AttentionMask(jnp.ones((1, 1, 1, 4), bool), jnp.asarray([4])))
    np.testing.assert_allclose(out.astype("float32"), 1, atol=0.01)
    assert asked == []


@pytest.mark.parametrize("masked", [False, True])
def test_float16_compiles_on_a_cpu(masked):
    """There, XLA lacks the product that JAX's attention asks for."""
    draws = np.random.default_rng(0)
    heads = [jnp.asarray(draws.normal(size=(2, 6, 3, 8)), "float16") for _ in range(3)]
    attention_mask = AttentionMask((jnp.arange(6) < jnp.array([6, 2])[:, None])[:, None, None, :]) if masked else None
    out = jax.jit(lambda *heads: dot_product_attention(*heads, attention_mask))(*heads)
    weights = attention_weights(*(x.astype("float32") for x in heads[:2]), attention_mask)
    assert out.dtype == "float16"
    np.testing.assert_allclose(out, jnp.einsum("bhts,bshk->bthk", weights, heads[2].astype("float32")), atol=0.01)
