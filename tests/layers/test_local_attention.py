"""Attention within a window, in blocks, against its formula in NumPy."""

import numpy as np
import pytest
from keras import ops

from bertzoo.layers import RotaryAttention
from bertzoo.layers.attention import AttentionMask, make_attention_mask
from bertzoo.layers.local_attention import local_attention

HEADS, SIZE = 2, 4


def run(compiled, heads, window, mask):
    return compiled(lambda *heads: local_attention(*heads, window, mask))(*map(ops.convert_to_tensor, heads))


def draw(length, batch=2):
    return np.random.default_rng(length).normal(size=(3, batch, length, HEADS, SIZE)).astype("float32")


def formula(query, key, value, window, text_ids):
    """Token by token, in double precision."""
    out = np.zeros(query.shape)
    for row, i in np.ndindex(query.shape[:2]):
        near = [j for j in range(query.shape[1]) if abs(i - j) <= window and text_ids[row, i] == text_ids[row, j]]
        scores = np.einsum("hk,jhk->hj", query[row, i].astype("float64"), key[row, near]) / SIZE**0.5
        weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        out[row, i] = np.einsum("hj,jhk->hk", weights, value[row, near])
    return out


def packed(length):
    """Rows of several texts, with padding at the end or none."""
    ends = np.array([[length // 3, length - 2], [length // 2, length]])
    position = np.arange(length)
    ids = (position >= ends[:, :1]).astype("int32")
    return np.where(position < ends[:, 1:], ids, -1).astype("int32")


@pytest.mark.parametrize(("length", "window"), [(1, 3), (9, 0), (23, 1), (12, 4), (13, 4), (31, 5), (7, 9)])
def test_texts_side_by_side(length, window, close, numpy, compiled):
    query, key, value = draw(length)
    ids = packed(length)
    mask = AttentionMask(ops.convert_to_tensor(ids[:, None, :, None] == ids[:, None, None]), None, ops.array(ids))
    out = run(compiled, (query, key, value), window, mask)
    close(numpy(out), formula(query, key, value, window, ids))


@pytest.mark.parametrize("kind", ["none", "end", "left", "holes", "a row of padding", "one for all rows"])
def test_padding(kind, close, numpy, compiled):
    query, key, value = draw(22)
    real = np.ones((2, 22), "int32")
    if kind == "end":
        real[0, 15:] = 0
    elif kind == "left":
        real[0, :9] = 0
    elif kind == "holes":
        real[np.random.default_rng(0).random((2, 22)) < 0.6] = 0
    elif kind == "a row of padding":
        real[1] = 0
    mask = None if kind == "none" else make_attention_mask(real[:1] if kind == "one for all rows" else real)
    out = run(compiled, (query, key, value), 3, mask)
    close(numpy(out), formula(query, key, value, 3, real))


@pytest.mark.parametrize("packs", [False, True])
def test_the_layer_with_and_without_weights(packs, close, numpy, compiled):
    x = np.random.default_rng(0).normal(size=(2, 29, 8)).astype("float32")
    layer = RotaryAttention(8, HEADS, window=3, initializer_range=0.5)
    layer.build(x.shape)
    ids = packed(29) if packs else np.repeat([[0], [-1]], [24, 5], axis=0).T.repeat(2, axis=0).astype("int32")
    text_mask = AttentionMask(ops.convert_to_tensor(ids[:, None, :, None] == ids[:, None, None]), None, ops.array(ids))
    mask = text_mask if packs else make_attention_mask((ids >= 0).astype("int32"))

    def call(mask, **options):
        return compiled(lambda x: layer(x, mask, **options), layer)(x)

    explicit, weights = call(mask, return_attention=True)
    seen = numpy(weights)[:, 0] > 0
    distance = np.abs(np.arange(29)[:, None] - np.arange(29))
    real = ids >= 0
    assert (seen == ((ids[:, :, None] == ids[:, None]) & (distance <= 3)))[real].all()
    close(numpy(call(mask))[real], numpy(explicit)[real])
    # A mask that differs from query to query, and queries of another stream, have the full matrix.
    causal = np.tri(29, dtype="bool")[None, None]
    close(numpy(call(causal)), numpy(call(causal, return_attention=True)[0]))


def test_memory_is_linear_in_the_length(backend):
    if backend != "jax":
        pytest.skip("only JAX says how much memory a program needs")
    import jax

    def needed(length):
        heads = [jax.ShapeDtypeStruct((2, length, HEADS, SIZE), "float32")] * 3
        total = jax.grad(lambda *heads: local_attention(*heads, 16).sum(), argnums=(0, 1, 2))
        analysis = jax.jit(total).lower(*heads).compile().memory_analysis()
        return analysis.temp_size_in_bytes + analysis.output_size_in_bytes

    assert needed(8192) < 4.2 * needed(2048)
