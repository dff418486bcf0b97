"""DeBERTa's kernel, interpreted on the CPU, against its formula; that it lowers for a GPU."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "jax":
    pytest.skip("the kernel is JAX's", allow_module_level=True)

import jax
import jax.numpy as jnp

import bertzoo as bz
from bertzoo.families.deberta_v2 import DebertaV2Config
from bertzoo.layers import disentangled
from bertzoo.layers.fused_bias import fused_relative_bias


@pytest.mark.parametrize("length", [5, 64, 70])
def test_values_and_gradients(length):
    draws = np.random.default_rng(0)
    c2p, p2c = draws.normal(size=(2, 2, 3, length, 2 * length)).astype("float32")
    gradient = draws.normal(size=(2, 3, length, length)).astype("float32")
    t, s = np.arange(length)[:, None], np.arange(length)[None]
    expected = c2p[:, :, t, length - 1 - t + s] + p2c[:, :, s, length - s + t]
    d_c2p, d_p2c = np.zeros_like(c2p), np.zeros_like(p2c)
    d_c2p[:, :, t, length - 1 - t + s] = gradient
    d_p2c[:, :, s, length - s + t] = gradient
    ours, back = jax.vjp(fused_relative_bias, jnp.array(c2p), jnp.array(p2c))
    np.testing.assert_allclose(ours, expected, rtol=1e-6)
    for mine, other in zip(back(jnp.array(gradient)), (d_c2p, d_p2c), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_an_encoder_computes_the_same_with_it(monkeypatch):
    config = DebertaV2Config(
        vocab_size=50,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        position_buckets=8,
        pos_att_type="p2c|c2p",
        share_att_key=True,
    )
    ids = np.arange(24, dtype="int32").reshape(2, 12)
    usual = np.asarray(bz.Encoder(config)(ids)["sequence_output"])
    called = []
    monkeypatch.setattr(disentangled, "_one_gpu", lambda: called.append(1) or True)
    np.testing.assert_allclose(np.asarray(bz.Encoder(config)(ids)["sequence_output"]), usual, atol=1e-5)
    assert len(called) == config.num_hidden_layers


@pytest.mark.parametrize("length", [128, 512])
def test_it_lowers_for_a_gpu(monkeypatch, length):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    term = jax.ShapeDtypeStruct((2, 12, length, 2 * length), "bfloat16")
    gradient = jax.ShapeDtypeStruct((2, 12, length, length), "bfloat16")
    gradients = jax.jit(lambda c2p, p2c, gradient: jax.vjp(fused_relative_bias, c2p, p2c)[1](gradient))
    lowered = gradients.trace(term, term, gradient).lower(lowering_platforms=("cuda",))
    assert "relative_bias_gradient" in lowered.as_text()
