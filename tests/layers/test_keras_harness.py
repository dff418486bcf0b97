"""Every public layer in Keras's own test of a layer: construction, configuration, symbolic and real calls, training,
policies of dtype, saving."""

import keras
import numpy as np
import pytest
from keras.src.testing import TestCase

from bertzoo import layers

X = (2, 4, 16)
BLOCK = {"hidden_size": 16, "num_heads": 2, "intermediate_size": 32}
ATTENTION = {"hidden_size": 16, "num_heads": 2}
# class: arguments, shape of the input, shape of the output
LAYERS = {
    layers.CRF: ({"num_labels": 3}, (2, 4, 3), (2, 4)),
    layers.ClassificationHead: ({"num_labels": 3, "dropout_rate": 0.0}, (2, 16), (2, 3)),
    layers.ContextHead: ({"num_labels": 3, "dropout_rate": 0.0}, X, (2, 4, 3)),
    layers.ConvolvedBlock: (BLOCK, X, X),
    layers.EncoderBlock: (BLOCK, X, X),
    layers.GatedBlock: (BLOCK, X, X),
    layers.LayerNorm: ({}, X, X),
    layers.Normalize: ({}, (2, 16), (2, 16)),
    layers.Pooler: ({"hidden_size": 16}, X, (2, 16)),
    layers.Pooling: ({"modes": ["mean", "attention"]}, X, (2, 32)),
    layers.PreNormBlock: ({"hidden_size": 16, "intermediate_size": 32}, X, X),
    layers.RMSNorm: ({}, X, X),
    layers.RelativeBias: ({"num_heads": 2}, X, (1, 2, 4, 4)),
    layers.RelativeEmbeddings: ({"span": 8, "hidden_size": 16, "layer_norm_eps": 1e-6}, X, (16, 16)),
    layers.RotaryAttention: (ATTENTION, X, X),
    layers.RotaryTable: ({"max_positions": 8, "head_size": 8}, X, (2, 4, 1, 4)),
    layers.SelfAttention: (ATTENTION, X, X),
}
# Those that read a table besides. Class: arguments, the table's name and shape, shape of the output.
HEAD = {"vocab_size": 9, "width": 16}
WITH_A_TABLE = {
    layers.DisentangledAttention: ({**ATTENTION, "max_distance": 8}, "position_bias", (16, 16), X),
    layers.EnhancedMaskDecoder: ({**HEAD, "max_positions": 8}, "token_embedding_table", (9, 16), (2, 4, 9)),
    layers.RoFormerAttention: (ATTENTION, "position_bias", (2, 4, 1, 4), X),
    layers.MaskedLMHead: (HEAD, "token_embedding_table", (9, 16), (2, 4, 9)),
}
EMBEDDINGS = (layers.Embeddings, layers.MaskedEmbeddings, layers.PlainEmbeddings, layers.TaskEmbeddings)


@keras.saving.register_keras_serializable("bertzoo_tests")
class WithTable(keras.layers.Layer):
    """A layer of this class, and the table that an encoder would hand in."""

    def __init__(self, layer: str, arguments: dict, table: str, shape, **kwargs):
        super().__init__(**kwargs)
        self.settings = {"layer": layer, "arguments": arguments, "table": table, "shape": tuple(shape)}
        self.layer = getattr(layers, layer)(**arguments, dtype=self.dtype_policy)

    def build(self, input_shape):
        self.table = self.add_weight(name="table", shape=self.settings["shape"], initializer="ones")
        self.layer.build(input_shape)

    def call(self, x):
        return self.layer(x, **{self.settings["table"]: keras.ops.convert_to_tensor(self.table)})

    def get_config(self):
        return {**super().get_config(), **self.settings}


def test_every_public_layer_is_here():
    public = [getattr(layers, name) for name in layers.__all__]
    public = {one for one in public if isinstance(one, type) and issubclass(one, keras.layers.Layer)}
    other_inputs = {layers.SpladePooling, layers.SparseStaticEmbedding}  # several, or ids; see test_splade.py
    assert public == {*LAYERS, *WITH_A_TABLE, *EMBEDDINGS, *other_inputs}


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
def test_a_layer(layer):
    arguments, x, y = LAYERS[layer]
    if layer is layers.PreNormBlock:
        arguments = {**arguments, "attention": layers.SelfAttention(16, 2)}
    trains = layer not in (layers.CRF, layers.RelativeBias, layers.RelativeEmbeddings, layers.RotaryTable)
    TestCase().run_layer_test(
        layer,
        arguments,
        input_shape=x,
        expected_output_shape=y,
        run_training_check=trains,
        supports_masking=False,
        assert_built_after_instantiation=False,
    )


@pytest.mark.parametrize("layer", WITH_A_TABLE, ids=lambda layer: layer.__name__)
def test_a_layer_that_reads_a_table(layer):
    arguments, name, shape, y = WITH_A_TABLE[layer]
    rng = np.random.default_rng(0)
    TestCase().run_layer_test(
        layer,
        arguments,
        input_data=rng.normal(size=X).astype("float32"),
        call_kwargs={name: rng.normal(size=shape).astype("float32")},
        expected_output_shape=y,
        # Both would call it without the table.
        run_training_check=False,
        run_mixed_precision_check=False,
        supports_masking=False,
    )


@pytest.mark.parametrize("layer", WITH_A_TABLE, ids=lambda layer: layer.__name__)
def test_a_layer_that_reads_a_table_inside_another(layer):
    arguments, name, shape, y = WITH_A_TABLE[layer]
    TestCase().run_layer_test(
        WithTable,
        {"layer": layer.__name__, "arguments": arguments, "table": name, "shape": shape},
        input_shape=X,
        expected_output_shape=y,
        supports_masking=False,
    )


@pytest.mark.parametrize("layer", WITH_A_TABLE, ids=lambda layer: layer.__name__)
def test_a_functional_model_of_a_layer_and_its_table_is_saved(layer, tmp_path, numpy):
    arguments, name, shape, y = WITH_A_TABLE[layer]
    x, table = keras.Input(X[1:]), keras.Input(batch_shape=shape)
    model = keras.Model([x, table], layer(**arguments, initializer_range=0.5)(x, **{name: table}))
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=X).astype("float32"), rng.normal(size=shape).astype("float32")]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    actual, expected = numpy(loaded(inputs)), numpy(model(inputs))
    assert actual.shape == y
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("layer", EMBEDDINGS)
def test_embeddings(layer):
    TestCase().run_layer_test(
        layer,
        {"vocab_size": 9, "width": 16, "max_positions": 8},
        input_data=np.ones((2, 4), "int32"),
        expected_output_shape=X,
        run_training_check=False,
        supports_masking=False,
    )
