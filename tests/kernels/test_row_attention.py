"""The attention kernel for rows of several texts, interpreted on the CPU, against the formula; that it lowers for a
GPU; who takes it."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "jax":
    pytest.skip("the kernels are JAX's", allow_module_level=True)

import jax
import jax.numpy as jnp

from bertzoo.kernels import pallas as kernels
from bertzoo.kernels import row_attention
from bertzoo.layers import RotaryAttention, SelfAttention
from bertzoo.layers.attention import make_text_mask

HEADS, SIZE = 2, 32
ROUNDING = 200 if jax.default_backend() == "gpu" else 1  # a GPU rounds the factors of float32 products to ten bits


def make_text_ids(length):
    """Short texts with padding after them; a long text and a short one."""
    columns = np.arange(length)
    short = np.where(columns < length - 9, columns // 17, -1)
    return np.stack([short, columns // (length - 5)]).astype("int32")


def formula(product, bias, text_ids, window):
    rows, length, _ = product.shape
    query, key, value = jnp.moveaxis((product + bias).reshape(rows, length, 3, HEADS, SIZE), 2, 0)
    scores = jnp.einsum("bthd,bshd->bhts", query, key) / np.sqrt(SIZE)
    visible = text_ids[:, :, None] == text_ids[:, None, :]
    if window is not None:
        visible &= np.abs(np.arange(length)[:, None] - np.arange(length)) <= window
    scores = jnp.where(visible[:, None], scores, -jnp.inf)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), value).reshape(rows, length, -1)


@pytest.mark.parametrize(("length", "window"), [(64, None), (150, None), (200, 30)])
def test_values_and_gradients(length, window):
    """Of one block, of several, of a part of one, and where blocks out of reach are left out."""
    draws, text_ids = np.random.default_rng(0), make_text_ids(length)
    width = HEADS * SIZE
    shapes = (2, length, 3 * width), 3 * width, (2, length, width)
    product, bias, gradient = (jnp.array(draws.normal(size=shape), "float32") for shape in shapes)

    def both(function):
        out, back = jax.vjp(lambda *inputs: function(*inputs), product, bias)
        return out, *back(gradient)

    actual = jax.jit(lambda: both(lambda p, b: row_attention.row_attention(p, b, text_ids, HEADS, window)))()
    expected = jax.jit(lambda: both(lambda p, b: formula(p, b, text_ids, window)))()
    for values, expected_values, error in zip(actual, expected, (3e-5, 1e-4, 1e-4), strict=True):
        np.testing.assert_allclose(values, expected_values, atol=error * ROUNDING)


@pytest.mark.parametrize("layer_class", [SelfAttention, RotaryAttention])
def test_layers_take_it_for_long_rows_of_several_texts(monkeypatch, layer_class):
    options = {"window": 20} if layer_class is RotaryAttention else {}
    layer = layer_class(HEADS * SIZE, HEADS, dtype="mixed_bfloat16", **options)
    layer.build((None, None, HEADS * SIZE))
    x = np.random.default_rng(0).normal(size=(2, 150, HEADS * SIZE)).astype("float32")
    mask = make_text_mask(jnp.array(make_text_ids(150)))
    values = [weight.value for weight in layer.weights]

    def call(values):
        with keras.StatelessScope(state_mapping=list(zip(layer.weights, values))):
            return layer(x, attention_mask=mask)

    usual, taken = jax.jit(call)(values), []
    kernel = row_attention.row_attention
    monkeypatch.setattr(kernels, "has_ampere_gpu_or_later", lambda: True)
    monkeypatch.setattr(row_attention, "row_attention", lambda *args: taken.append(1) or kernel(*args))
    actual = jax.jit(lambda values: call(values))(values)
    np.testing.assert_allclose(np.asarray(actual, "float32"), np.asarray(usual, "float32"), atol=0.03)
    assert len(taken) == 1


def test_it_lowers_for_a_gpu(abstract_gpu):
    def gradients(product, bias, text_ids):
        out, back = jax.vjp(lambda *inputs: row_attention.row_attention(*inputs, text_ids, 12, 64), product, bias)
        return back(out)

    for length in (200, 512):
        shapes = ((4, length, 3 * 768), "bfloat16"), ((3 * 768,), "float32"), ((4, length), "int32")
        traced = jax.jit(gradients).trace(*(jax.ShapeDtypeStruct(*shape) for shape in shapes))
        assert "row_attention_gradient" in traced.lower(lowering_platforms=("cuda",)).as_text()


def test_what_does_not_fit():
    assert row_attention.supports_shape(129, 64)
    assert not row_attention.supports_shape(129, 24) and not row_attention.supports_shape(32, 64)
