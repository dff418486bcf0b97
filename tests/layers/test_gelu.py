import keras
import numpy as np
import pytest
from scipy.stats import norm

if keras.backend.backend() != "jax":
    pytest.skip("the other backends' own is used", allow_module_level=True)

import jax

from bertzoo.layers.gelu import gelu


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("bfloat16", 0.004)])
def test_values_and_gradients(dtype, tolerance):
    """bfloat16 has eight bits; beyond 1, that is of the value."""
    x = jax.numpy.linspace(-12, 12, 4001).astype(dtype)
    exact = np.asarray(x, "float64")
    values, slopes = exact * norm.cdf(exact), norm.cdf(exact) + exact * norm.pdf(exact)
    gradient = jax.vmap(jax.grad(gelu))(x)
    for mine, expected in ((gelu(x), values), (gradient, slopes)):
        scale = np.maximum(np.abs(expected), 1)
        np.testing.assert_allclose(np.asarray(mine, "float64") / scale, expected / scale, atol=tolerance)
