"""Every public layer in Keras's own test of a layer: construction, configuration, symbolic and real calls, training,
policies of dtype, saving."""

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
    layers.DisentangledAttention: ({**ATTENTION, "terms": ()}, X, X),
    layers.EncoderBlock: (BLOCK, X, X),
    layers.LayerNorm: ({}, X, X),
    layers.Normalize: ({}, (2, 16), (2, 16)),
    layers.Pooler: ({"hidden_size": 16}, X, (2, 16)),
    layers.Pooling: ({"modes": ["mean", "attention"]}, X, (2, 32)),
    layers.PreNormBlock: ({"hidden_size": 16, "intermediate_size": 32}, X, X),
    layers.RelativeBias: ({"num_heads": 2}, X, (1, 2, 4, 4)),
    layers.RotaryAttention: (ATTENTION, X, X),
    layers.SelfAttention: (ATTENTION, X, X),
}


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
def test_a_layer(layer):
    arguments, x, y = LAYERS[layer]
    if layer is layers.PreNormBlock:
        arguments = {**arguments, "attention": layers.SelfAttention(16, 2)}
    trains = layer not in (layers.CRF, layers.RelativeBias)
    TestCase().run_layer_test(
        layer,
        arguments,
        input_shape=x,
        expected_output_shape=y,
        run_training_check=trains,
        run_mixed_precision_check=layer is not layers.PreNormBlock,  # its attention has a policy of its own
        supports_masking=False,
        assert_built_after_instantiation=False,
    )


@pytest.mark.parametrize("layer", [layers.Embeddings, layers.MaskedEmbeddings])
def test_embeddings(layer):
    TestCase().run_layer_test(
        layer,
        {"vocab_size": 9, "width": 16, "max_positions": 8},
        input_data=np.ones((2, 4), "int32"),
        expected_output_shape=X,
        run_training_check=False,
        supports_masking=False,
    )
