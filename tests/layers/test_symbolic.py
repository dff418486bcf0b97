"""Calls on Keras's symbolic tensors say what real calls give; functional models keep their layers."""

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo import layers

CONFIG = {"vocab_size": 9, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
IDS = np.arange(8, dtype="int32").reshape(2, 4)
TASKS = {
    "classifier": (bz.TextClassifier, {}),
    "tags": (bz.TokenClassifier, {"labels": ["O", "B-X"]}),
    "answers": (bz.QuestionAnswerer, {}),
    "masked LM": (bz.MaskedLM, {}),
    "vectors": (bz.SentenceEncoder, {}),
    "choices": (bz.MultipleChoice, {}),
    "pairs": (bz.CrossEncoder, {}),
}


def described(outputs, batch=None):
    def one(tensor):
        shape = (batch, *tensor.shape[1:]) if batch else tuple(tensor.shape)
        return shape, keras.backend.standardize_dtype(tensor.dtype)

    return keras.tree.map_structure(one, outputs)


@pytest.fixture(scope="module")
def encoder():
    return bz.Encoder(bz.EncoderConfig(**CONFIG), dtype="mixed_bfloat16")


@pytest.mark.parametrize(
    "options", [{}, {"return_all": True}, {"query_positions": "first"}, {"query_positions": np.ones((2, 3), "int32")}]
)
def test_an_encoder(encoder, options):
    spec = encoder(keras.Input((4,), dtype="int32"), **options)
    assert described(spec, 2) == described(encoder(IDS, **options), 2)


@pytest.mark.parametrize("kind", TASKS)
def test_a_task(kind):
    make, options = TASKS[kind]
    task = make(bz.Encoder(bz.EncoderConfig(**CONFIG), dtype="bfloat16"), dtype="bfloat16", **options)
    ids = np.tile(IDS[:, None], (1, 3, 1)) if kind == "choices" else IDS
    assert described(task(keras.Input(ids.shape[1:], dtype="int32")), 2) == described(task(ids), 2)


@pytest.mark.parametrize("mode", ["mean", "cls", "lasttoken", ["max", "attention"]])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_pooling(mode, dtype):
    layer, x, mask = layers.Pooling(mode, dtype=dtype), np.ones((2, 4, 16), "float32"), np.ones((2, 4), "int32")
    assert described(layer(keras.Input((4, 16))), 2) == described(layer(x), 2)
    assert described(layer(keras.Input((4, 16)), keras.Input((4,))), 2) == described(layer(x, mask), 2)


def test_a_crf():
    layer, x = layers.CRF(3), np.ones((2, 4, 3), "float32")
    assert described(layer(keras.Input((4, 3))), 2) == described(layer(x), 2)


def test_a_mask_between_the_layers_of_a_functional_model_is_saved(tmp_path, numpy):
    x, mask = keras.Input((4, 16)), keras.Input((4,), dtype="int32")
    attention_mask = layers.make_attention_mask(mask)
    y = layers.EncoderBlock(16, 2, 32, initializer_range=0.5)(x, attention_mask=attention_mask)
    model = keras.Model(
        [x, mask], layers.ConvolvedBlock(16, 2, 32, initializer_range=0.5)(y, attention_mask=attention_mask)
    )
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    vectors = np.random.default_rng(0).standard_normal((2, 4, 16)).astype("float32")
    inputs = [vectors, np.array([[1, 1, 0, 0], [1, 1, 1, 1]])]
    np.testing.assert_allclose(numpy(loaded(inputs)), numpy(model(inputs)), atol=1e-6)
    vectors[0, 2:] += 1
    np.testing.assert_allclose(numpy(loaded(inputs))[0, :2], numpy(model(inputs))[0, :2], atol=1e-6)


@pytest.mark.parametrize("make", [layers.EncoderBlock, layers.ConvolvedBlock, layers.PreNormBlock])
def test_blocks_take_an_attention_that_is_built_or_another_block_s(make):
    attention = layers.SelfAttention(16, 2)
    attention.build((None, None, 16))
    options = {"hidden_size": 16, "intermediate_size": 32, "attention": attention}
    if make is not layers.PreNormBlock:
        options["num_heads"] = 2
    x = np.ones((2, 4, 16), "float32")
    blocks = [make(**options), make(**options)]
    for block in blocks:
        assert block(x).shape == (2, 4, 16)
    assert blocks[0].weights[0] is attention.weights[0] and blocks[1].weights[0] is attention.weights[0]
