import keras
import numpy as np
import pytest
from keras import ops

from bertzoo.layers.functional import apply_dense


def made(bias: bool = True):
    dense = keras.layers.Dense(6, use_bias=bias)
    dense.build((None, None, 8))
    draws = np.random.default_rng(0)
    dense.set_weights([draws.normal(size=weight.shape) for weight in dense.weights])
    return dense, draws.normal(size=(2, 3, 8)).astype("float32")


@pytest.mark.parametrize("bias", [True, False])
def test_a_product_and_a_bias(bias):
    dense, x = made(bias)
    kernel, *rest = dense.get_weights()
    expected = x.astype("float64") @ kernel + (rest[0] if bias else 0)
    np.testing.assert_allclose(ops.convert_to_numpy(apply_dense(dense, ops.convert_to_tensor(x))), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("change", [lambda dense: dense.enable_lora(2), lambda dense: dense.quantize("int8")])
def test_layers_that_keras_changes_compute_as_keras_says(change):
    dense, x = made()
    change(dense)
    if dense.lora_enabled:
        dense.lora_kernel_b.assign(np.ones((2, 6)))
    expected = ops.convert_to_numpy(dense(ops.convert_to_tensor(x)))
    np.testing.assert_allclose(ops.convert_to_numpy(apply_dense(dense, ops.convert_to_tensor(x))), expected, atol=1e-5)


@pytest.mark.parametrize("columns", [None, slice(0, 2)])
def test_a_layer_computes_in_its_own_type_whatever_it_reads(columns):
    dense, x = made()
    dense.dtype_policy = "mixed_bfloat16"
    actual, expected = apply_dense(dense, ops.convert_to_tensor(x), columns), dense(x)
    assert keras.backend.standardize_dtype(actual.dtype) == "bfloat16"
    actual, expected = (ops.convert_to_numpy(ops.cast(value, "float32")) for value in (actual, expected))
    np.testing.assert_array_equal(actual, expected if columns is None else expected[..., columns])
