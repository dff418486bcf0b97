"""A dtype policy for each layer, by `keras.dtype_policies.DTypePolicyMap`."""

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.models.registry import FAMILIES

SIZES = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
INPUTS = {
    "token_ids": np.random.default_rng(0).integers(3, 50, (2, 7)).astype("int32"),
    "padding_mask": np.array([[1] * 7, [1] * 4 + [0] * 3], "int32"),
}


def policies(default: str, **of_paths: str):
    """`layer_1="bfloat16"` is of all that is inside that block."""
    actual = keras.dtype_policies.DTypePolicyMap(default)
    for path, policy in of_paths.items():
        actual[f"encoder/{path}/.*"] = policy
    return actual


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        ("bert", policies("float32", layer_1="mixed_bfloat16")),
        ("bert", policies("mixed_bfloat16", layer_0="float32")),
        ("deberta-v2", policies("float32", layer_0="mixed_bfloat16")),
        ("modernbert", policies("float32", layer_1="mixed_bfloat16")),
        ("gte", policies("float32", layer_1="mixed_bfloat16")),
        ("eurobert", policies("float32", layer_1="mixed_bfloat16")),
    ],
)
def test_the_policy_of_each_layer_is_in_force(family, dtype, numpy, compiled):
    options = {"conv_kernel_size": 3} if family == "deberta-v2" else {}
    config = FAMILIES[family].config_class(**SIZES, initializer_range=0.3, **options)
    exact, mixed = bz.Encoder(config, pooler=False), bz.Encoder(config, pooler=False, dtype=dtype)
    expected = numpy(compiled(exact, exact)(INPUTS)["sequence_output"])
    actual = compiled(lambda inputs: keras.ops.cast(mixed(inputs)["sequence_output"], "float32"), mixed)(INPUTS)
    real = INPUTS["padding_mask"] == 1
    off = np.abs(numpy(actual) - expected)[real].max()
    assert 1e-4 < off < 0.1  # half precision is at work, and in no wrong place


def test_a_classifier_trains_and_is_saved(tmp_path, eager):
    dtype = policies("float32", layer_1="mixed_bfloat16")
    task = bz.TextClassifier(bz.Encoder(bz.EncoderConfig(**SIZES), dtype=dtype), labels=2, dtype=dtype)
    task.compile(optimizer=bz.training.AdamW(1e-2), run_eagerly=eager)
    before = [np.array(weight) for weight in task.get_weights()]
    task.fit(INPUTS, np.array([0, 1]), verbose=0)
    assert any((old != new).any() for old, new in zip(before, task.get_weights()))
    assert {str(weight.dtype) for weight in task.trainable_weights} == {"float32"}
    task.save(tmp_path / "task.keras")
    loaded = keras.saving.load_model(tmp_path / "task.keras")
    kinds = [[layer.compute_dtype for layer in model._flatten_layers()] for model in (task, loaded)]
    assert kinds[0] == kinds[1] and set(kinds[0]) == {"float32", "bfloat16"}
    np.testing.assert_array_equal(loaded.predict(INPUTS, verbose=0), task.predict(INPUTS, verbose=0))
