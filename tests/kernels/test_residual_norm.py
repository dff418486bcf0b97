"""The fused kernels, interpreted on the CPU, against the layers that they stand for; that they lower for a GPU."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "jax":
    pytest.skip("the kernels are JAX's", allow_module_level=True)

import jax
import jax.numpy as jnp

import bertzoo as bz
from bertzoo.kernels import pallas as kernels
from bertzoo.kernels.residual_norm import residual_norm_kernel, supports_width
from bertzoo.layers.functional import dropout
from bertzoo.random import fold_in

BATCH, LENGTH, WIDTH, RATE, EPSILON = 3, 8, 96, 0.25, 1e-5
KEY = np.array([12345, -678], "int32")


def arrays(*shapes):
    draws = np.random.default_rng(0)
    return [jnp.array(draws.normal(size=shape), "float32") for shape in shapes]


def plain(product, bias, residual, gamma, beta, rate):
    branch = jnp.reshape(product + bias, (BATCH, LENGTH, WIDTH))
    total = residual + jnp.reshape(dropout(branch, rate, KEY), residual.shape)
    centred = total - total.mean(axis=1, keepdims=True)
    return centred / jnp.sqrt(jnp.square(centred).mean(axis=1, keepdims=True) + EPSILON) * gamma + beta


@pytest.mark.parametrize("rate", [0.0, RATE])
def test_values_and_gradients(rate):
    rows = (BATCH * LENGTH, WIDTH)
    *inputs, gradient = arrays(rows, WIDTH, rows, WIDTH, WIDTH, rows)
    dropped = (fold_in(KEY, 0), *(index.ravel() for index in jnp.indices((BATCH, LENGTH)))) if rate else ()

    def both(function):
        out, back = jax.vjp(function, *inputs)
        return out, *back(gradient)

    actual = jax.jit(lambda: both(lambda *args: residual_norm_kernel(*args, dropped, rate, EPSILON)))()
    expected = jax.jit(lambda: both(lambda *args: plain(*args, rate)))()
    for values, expected_values in zip(actual, expected, strict=True):
        np.testing.assert_allclose(values, expected_values, atol=1e-5)


def test_an_encoder_computes_the_same_with_them(monkeypatch, compiled):
    config = bz.EncoderConfig(vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=2)
    ids = np.arange(16, dtype="int32").reshape(2, 8)

    def outputs():
        encoder = bz.Encoder(config)
        steps = (compiled(lambda t=t: encoder(ids, training=t)["sequence_output"], encoder) for t in (True, False))
        return [np.asarray(step()) for step in steps]

    usual, called = outputs(), []
    monkeypatch.setattr(kernels, "has_ampere_gpu_or_later", lambda: called.append(1) or True)
    for actual, expected in zip(outputs(), usual, strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert len(called) == 2 * 2  # blocks alike are traced once


def test_what_does_not_fit():
    assert supports_width(768) and supports_width(1024) and not supports_width(312)  # 39 chunks of 8


def test_they_lower_for_a_gpu(abstract_gpu):
    rows = jax.ShapeDtypeStruct((64, 768), "bfloat16")
    vector = jax.ShapeDtypeStruct((768,), "float32")
    key, texts, positions = (jax.ShapeDtypeStruct((size,), "int32") for size in (2, 64, 64))

    def gradients(product, bias, residual, gamma, beta, dropped):
        inputs = (product, bias, residual, gamma, beta)
        return jax.vjp(lambda *args: residual_norm_kernel(*args, dropped, 0.1, 1e-12), *inputs)[1](product)

    for dropped in ((key, texts, positions), ()):
        traced = jax.jit(gradients).trace(rows, vector, rows, vector, vector, dropped)
        lowered = traced.lower(lowering_platforms=("cuda",))
        assert lowered.as_text().count("residual_norm_gradient") >= 1
