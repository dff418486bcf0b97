"""The compiled steps lower for a TPU on a machine that has none."""

import keras
import numpy as np
import pytest

import bertzoo as bz

if keras.backend.backend() != "jax":
    pytest.skip("TPUs are for JAX", allow_module_level=True)

import jax
from jax import export

CONFIG = bz.EncoderConfig(
    vocab_size=200,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=32,
)


def lower(step, state, data):
    state, data = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), (state, data))
    exported = export.export(jax.jit(step), platforms=["tpu"])(state, data)
    assert exported.platforms == ("tpu",) and exported.mlir_module_serialized
    return exported.mlir_module()


def batch(masked: bool):
    ids = np.ones((4, 16), "int32")
    inputs = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids}
    if not masked:
        return inputs, np.zeros((4,), "int32"), None
    inputs["mask_positions"] = np.ones((4, 3), "int32")
    return inputs, np.ones((4, 3), "int32"), np.ones((4, 3), "float32")


@pytest.mark.parametrize("task", ["classifier", "classifier, bfloat16, recomputed", "masked LM"])
def test_train_and_predict_steps_lower_for_tpu(task):
    dtype = "mixed_bfloat16" if "bfloat16" in task else "float32"
    encoder = bz.Encoder(CONFIG, remat="recomputed" in task, attention_dropout=0.1, dtype=dtype)
    masked = task == "masked LM"
    model = bz.MaskedLM(encoder, dtype=dtype) if masked else bz.TextClassifier(encoder, labels=2, dtype=dtype)
    model.compile(bz.AdamW(1e-3))
    model._symbolic_build(data_batch=batch(masked))
    trained = model._get_jax_state(
        trainable_variables=True, non_trainable_variables=True, optimizer_variables=True, metrics_variables=True
    )
    text = lower(model.train_step, trained, batch(masked))
    assert "dot_general" in text and ("bf16" in text) == (dtype == "mixed_bfloat16")
    used = model._get_jax_state(trainable_variables=True, non_trainable_variables=True)
    lower(model.predict_step, used, (batch(masked)[0],))
