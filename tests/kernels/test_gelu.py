import keras
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

if keras.backend.backend() != "jax":
    pytest.skip("the other backends' own is used", allow_module_level=True)

import jax
import jax.numpy as jnp

from bertzoo.kernels import bias_gelu as fused_gelu
from bertzoo.kernels import pallas as kernels
from bertzoo.kernels.bias_gelu import bias_gelu_kernel, supports_shape
from bertzoo.kernels.jax_forms import _gelu, gelu_derivative_half_precision, gelu_half_precision
from bertzoo.layers.functional import dense_then_activation


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("bfloat16", 0.004), ("float16", 0.0006)])
def test_values_and_gradients(dtype, tolerance):
    """bfloat16 has eight bits and float16 eleven; beyond 1, that is of the value."""
    x = jnp.linspace(-12, 12, 4001).astype(dtype)
    exact = np.asarray(x, "float64")
    values, slopes = exact * norm.cdf(exact), norm.cdf(exact) + exact * norm.pdf(exact)
    gradient = jax.vmap(jax.grad(_gelu))(x)
    for actual, expected in ((_gelu(x), values), (gradient, slopes)):
        scale = np.maximum(np.abs(expected), 1)
        np.testing.assert_allclose(np.asarray(actual, "float64") / scale, expected / scale, atol=tolerance)


def test_half_precision_is_as_exact_as_it_needs():
    """Before rounding: to a quarter of float16's, which is within 2⁻¹² of a value."""
    x = np.linspace(-4.5, 9, 4001)
    values, slopes = x * ndtr(x), ndtr(x) + x * norm.pdf(x)
    np.testing.assert_allclose(gelu_half_precision(jnp.float32(x)), values, rtol=2**-13, atol=1e-7)
    np.testing.assert_allclose(gelu_derivative_half_precision(jnp.float32(x)), slopes, atol=2**-14)
    far = np.float32([-np.inf, -1e30, -8, -5, 1e30, np.inf])
    np.testing.assert_allclose(gelu_half_precision(far), far.clip(0), atol=2e-6)
    np.testing.assert_allclose(gelu_derivative_half_precision(far), far > 0, atol=1e-5)


@pytest.mark.parametrize(("width", "programs"), [(1024, 1056), (1024, 5), (384, 15)])
def test_the_kernel(monkeypatch, width, programs):
    """Interpreted: values to bfloat16's rounding, gradients beside those of the formula in float32; also where programs
    take several turns, and not all as many."""
    monkeypatch.setattr(fused_gelu, "PROGRAMS", programs)
    jax.clear_caches()
    draws = np.random.default_rng(0)
    product, bias, gradient = (draws.normal(size=size).astype("float32") for size in ((2, 32, width), width, width))
    product, gradient = jnp.bfloat16(product), jnp.bfloat16(jnp.broadcast_to(gradient, product.shape))

    def both(function, product):
        out, back = jax.vjp(function, product, bias)
        return out, *back(gradient.astype(out.dtype))

    assert supports_shape(2 * 32, width)
    actual = jax.jit(lambda: both(bias_gelu_kernel, product))()
    expected = jax.jit(lambda: both(lambda *arrays: _gelu(sum(arrays)), jnp.float32(product)))()
    for values, expected_values in zip(actual, expected, strict=True):
        np.testing.assert_allclose(np.float32(values), expected_values, rtol=2**-8, atol=1e-4)


def test_who_takes_the_kernel(monkeypatch):
    monkeypatch.setattr(kernels, "has_ampere_gpu_or_later", lambda: True)
    x = jnp.ones((2, 16, 8))

    def taken(policy="mixed_bfloat16", units=1024, name="gelu", **options):
        dense = keras.layers.Dense(units, dtype=policy, **options)
        dense.build(x.shape)
        made = jax.make_jaxpr(lambda: dense_then_activation(dense, name, x.astype(dense.compute_dtype)))()
        return "pallas_call" in str(made)

    assert taken() and taken("mixed_float16")
    assert not any((taken("float32"), taken(units=1000), taken(name="relu"), taken(use_bias=False)))
    monkeypatch.setattr(kernels, "has_ampere_gpu_or_later", lambda: False)
    assert not taken()


def test_it_lowers_for_a_gpu(abstract_gpu):
    shapes = jax.ShapeDtypeStruct((2, 32, 3072), "bfloat16"), jax.ShapeDtypeStruct((3072,), "float32")

    def both(*arrays):
        out, back = jax.vjp(bias_gelu_kernel, *arrays)
        return out, back(out)

    lowered = jax.jit(both).trace(*shapes).lower(lowering_platforms=("cuda",)).as_text()
    assert lowered.count("xla.gpu.triton") == 2 and "gelu_gradient" in lowered
