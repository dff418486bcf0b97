"""Attention over long rows on JAX's CPU: values, gradients, and memory."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "jax":
    pytest.skip("the kernel is JAX's", allow_module_level=True)

import jax
import jax.numpy as jnp

from bertzoo.kernels import jax_forms
from bertzoo.kernels.blockwise_attention import SHORTEST, blockwise_attention
from bertzoo.layers.attention import AttentionMask, dot_product_attention, make_attention_mask

if jax.default_backend() != "cpu":
    pytest.skip("other devices have other kernels", allow_module_level=True)

RNG = np.random.default_rng(0)


def draw(length, batch=2, heads=2, size=8):
    return [jnp.asarray(RNG.normal(size=(batch, length, heads, size)), "float32") for _ in range(3)]


def formula(query, key, value, visible):
    """In the words of Vaswani et al. 2017, equation 1."""
    scores = jnp.einsum("bihk,bjhk->bhij", query, key) / jnp.sqrt(query.shape[-1])
    return jnp.einsum("bhij,bjhk->bihk", jax.nn.softmax(jnp.where(visible, scores, -jnp.inf)), value)


@pytest.mark.parametrize("kind", ["plain", "holes", "packed"])
@pytest.mark.parametrize("length", [SHORTEST, 1537])
def test_values_and_gradients(length, kind, close):
    heads = draw(length)
    ids = np.zeros((2, length), "int32")
    if kind == "holes":
        ids[RNG.random(ids.shape) < 0.3] = -1
    elif kind == "packed":
        ids = np.where(np.arange(length) < length - 5, np.arange(length) // 300, -1)[None].repeat(2, axis=0)
    visible = (ids[:, :, None] == ids[:, None])[:, None]
    mask = {"plain": None, "holes": make_attention_mask(ids + 1), "packed": AttentionMask(visible, None, ids)}[kind]
    weights = RNG.normal(size=heads[0].shape) * (ids >= 0)[..., None, None]  # what padding gives is not defined

    def results(attention):
        def total(*heads):
            out = attention(*heads) * weights
            return out.sum(), out

        return jax.jit(jax.grad(total, argnums=(0, 1, 2), has_aux=True))(*heads)

    (gradients, out), expected = (
        results(lambda *h: dot_product_attention(*h, mask)),
        results(lambda *h: formula(*h, visible)),
    )
    close(out, expected[1])
    for gradient, other in zip(gradients, expected[0], strict=True):
        close(gradient, other)


def test_what_is_long_is_computed_in_blocks(monkeypatch):
    lengths = []
    monkeypatch.setattr(jax_forms, "blockwise_attention", lambda q, k, v, ids: lengths.append(q.shape[1]) or q)
    for length in (SHORTEST - 1, SHORTEST):
        dot_product_attention(*draw(length, batch=1, heads=1))
    with_bias = draw(SHORTEST, batch=1, heads=1)
    dot_product_attention(*with_bias, bias=jnp.zeros((1, 1, SHORTEST, SHORTEST)))
    assert lengths == [SHORTEST]


def test_memory_is_linear_in_the_length():
    def peak(length):
        heads = [jax.ShapeDtypeStruct((1, length, 2, 16), "float32")] * 3
        ids = jax.ShapeDtypeStruct((1, length), "int32")
        total = jax.grad(lambda q, k, v, ids: blockwise_attention(q, k, v, ids).sum(), argnums=(0, 1, 2))
        analysis = jax.jit(total).lower(*heads, ids).compile().memory_analysis()
        return analysis.temp_size_in_bytes + analysis.output_size_in_bytes

    assert peak(8192) < 4.2 * peak(2048)
