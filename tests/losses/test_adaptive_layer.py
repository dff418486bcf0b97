"""The loss of all layers' vectors against sentence-transformers', on one encoder: value, and one update."""

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.losses import AdaptiveLayer, Matryoshka, MultipleNegativesRanking

PAIRS = [
    ("a good film", "a great story"),
    ("the plot was dull and bad", "never again !"),
    ("we saw it with friends in paris", "the actor was not very good"),
    ("good", "rome"),
]
OPTIONS = {"last_layer_weight": 0.5, "prior_layers_weight": 2.0, "kl_div_weight": 0.7, "kl_temperature": 0.4}


@pytest.fixture(scope="module")
def preset(write_checkpoint):
    return write_checkpoint(num_hidden_layers=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)[0]


def reference(preset, make_loss):
    torch = pytest.importorskip("torch")
    models = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses

    encoder = models.Transformer(str(preset))
    model = SentenceTransformer(modules=[encoder, models.Pooling(encoder.get_embedding_dimension())], device="cpu")
    features = [model.preprocess(list(column)) for column in zip(*PAIRS)]
    value = make_loss(losses, model)(features, torch.zeros(len(PAIRS)))
    value.backward()
    table = model[0].auto_model.embeddings.word_embeddings.weight
    return value.item(), table.grad.numpy()


@pytest.mark.parametrize("weighting", ["uniform", "log", "linear"])
def test_values_and_gradients_are_those_of_sentence_transformers(weighting, preset, eager):
    loss = AdaptiveLayer(MultipleNegativesRanking(), layer_weighting=weighting, **OPTIONS)
    value, gradient = update(preset, loss, eager)
    expected, expected_gradient = reference(
        preset,
        lambda st, m: st.AdaptiveLayerLoss(
            m, st.MultipleNegativesRankingLoss(m), n_layers_per_step=-1, layer_weighting=weighting, **OPTIONS
        ),
    )
    assert value == pytest.approx(expected, rel=1e-5)
    assert np.abs(gradient - expected_gradient).max() <= 1e-4


def test_of_several_widths_it_is_2d_matryoshka(preset, eager):
    value, gradient = update(preset, AdaptiveLayer(Matryoshka(dimensions=[32, 8])), eager)
    expected, expected_gradient = reference(
        preset,
        lambda st, m: st.Matryoshka2dLoss(
            m, st.MultipleNegativesRankingLoss(m), [32, 8], n_layers_per_step=-1, n_dims_per_step=-1
        ),
    )
    assert value == pytest.approx(expected, rel=1e-5)
    assert np.abs(gradient - expected_gradient).max() <= 1e-4


def update(preset, loss, eager):
    model = bz.SentenceEncoder.from_preset(preset, verbose=False, dropout=0.0)
    model.compile(keras.optimizers.SGD(1.0), loss, run_eagerly=eager)
    table = model.backbone.embeddings.token
    before = keras.ops.convert_to_numpy(table)
    value = model.fit(PAIRS, batch_size=4, verbose=0).history["loss"][0]
    return value, before - keras.ops.convert_to_numpy(table)


def test_evaluation_and_prediction_read_the_last_layer(preset, eager):
    model = bz.SentenceEncoder.from_preset(preset, verbose=False)
    model.compile("sgd", "multiple_negatives", run_eagerly=eager)
    expected, vectors = model.evaluate(PAIRS, verbose=0), model.encode(["good"])
    model.compile("sgd", AdaptiveLayer(last_layer_weight=0.5), run_eagerly=eager)
    assert model.evaluate(PAIRS, verbose=0) == pytest.approx(0.5 * expected, rel=1e-5)
    np.testing.assert_allclose(model.encode(["good"]), vectors, atol=1e-6)


@pytest.mark.once
def test_an_unknown_weighting_is_refused():
    with pytest.raises(ValueError, match="layer_weighting must be one of uniform, log, linear. Received: 'square'"):
        AdaptiveLayer(layer_weighting="square")
