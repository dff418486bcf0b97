"""Every analysis from text, on a random encoder of every family."""

import numpy as np
import pytest

import bertzoo as bz
from bertzoo.analysis import (
    ablate_each_head,
    ablate_heads,
    attention_maps,
    gradient_times_attention,
    integrated_gradients,
    layer_anisotropy,
    occlusion,
    prune_heads,
    word_vectors,
)
from bertzoo.models.config import EncoderConfig
from bertzoo.text.tokenizer import Tokenizer

TEXTS = ["unhappy the film was bad, and dull.", "a great film"]  # the same shapes everywhere, to spare compilations
SHAPE = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "initializer_range": 0.3,
    "layer_norm_eps": 1e-5,
}
RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}
OTHER_NAMES = {
    "dim": 16,
    "n_layers": 2,
    "n_heads": 2,
    "hidden_dim": 24,
}
FAMILIES = {
    "bert": {},
    "roberta": {"pad_token_id": 1},
    "albert": {"embedding_size": 8},
    "distilbert": OTHER_NAMES,
    "electra": {"embedding_size": 8},
    "mpnet": {"pad_token_id": 1},
    "deberta": RELATIVE,
    "deberta-v2": {**RELATIVE, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True},
    "modernbert": {"local_attention": 6, "pad_token_id": 0},
    "roformer": {"embedding_size": 8},
    "ernie": {"use_task_id": True},
    "nomic_bert": {},
    "gte": {"pad_token_id": 1},
    "eurobert": {"pad_token_id": 0},
}


# Of the others, the attention is that of "bert".
OF_ITS_OWN = ("bert", "albert", "mpnet", "deberta", "deberta-v2", "modernbert", "roformer", "gte", "eurobert")
PARAMS = [name if name in OF_ITS_OWN else pytest.param(name, marks=pytest.mark.once) for name in FAMILIES]


@pytest.fixture(scope="module", params=PARAMS)
def task(request, words):
    config = EncoderConfig.from_hf({**SHAPE, **FAMILIES[request.param], "model_type": request.param})
    bz.set_seed(1)
    tokenizer = Tokenizer.from_vocabulary(words, max_length=38)
    tokenizer.segments = config.type_vocab_size > 1
    return bz.TextClassifier(bz.Encoder(config), tokenizer)


def test_rows_sum_to_1_and_padding_gets_0(task, numpy, close):
    (actual, _) = attention_maps(task, TEXTS)
    assert actual.weights.shape == (2, 2, 12, 12)
    ones = np.ones((2, 2, 12))
    close(actual.weights.sum(axis=-1), ones)
    close(actual.by_word().weights.sum(axis=-1), np.ones((2, 2, 11)))
    close(actual.rollout().sum(axis=-1), ones[0])
    inputs = task.tokenizer(TEXTS)
    real = int(inputs["padding_mask"][1].sum())
    assert real < 12
    for weights in numpy(task.backbone(inputs, return_all=True)["attentions"]):
        assert np.all(weights[1, :, :real, real:] == 0)


def test_an_ablated_head_adds_nothing(task, numpy):
    inputs, encoder = task.tokenizer(TEXTS), task.backbone
    kernel = encoder.blocks[0].attention.qkv.kernel
    whole = numpy(encoder(inputs)["sequence_output"])
    trained = numpy(kernel.value).copy()
    changed = trained.copy()
    # The columns of head 1: DeBERTa's first version has a head's query, key and value side by side.
    apart = [*range(8, 16), *range(24, 32), *range(40, 48)]
    changed[:, slice(24, 48) if encoder.config.model_type == "deberta" else apart] *= 3
    with ablate_heads(encoder, [(0, 1)]):
        without = numpy(encoder(inputs)["sequence_output"])
        kernel.assign(changed)
        np.testing.assert_array_equal(numpy(encoder(inputs)["sequence_output"]), without)
        kernel.assign(trained)
    assert np.abs(whole - without).max() > 1e-3
    np.testing.assert_array_equal(numpy(encoder(inputs)["sequence_output"]), whole)
    actual = ablate_each_head(task, lambda: float(numpy(task(inputs))[0, 0]))
    assert actual.after.shape == (len(encoder.blocks), 2) and np.abs(actual.score_change).max() > 1e-4


def test_attributions_sum_to_the_difference(task, numpy):
    actual = integrated_gradients(task, TEXTS[0], 0, steps=32, batch_size=32)
    assert actual.scores.sum() == pytest.approx(actual.value - actual.base, rel=0.01)
    value = numpy(task(task.tokenizer(TEXTS[:1])))[0, 0]
    assert actual.value == pytest.approx(value, abs=1e-5)
    hidden = occlusion(task, TEXTS[0], 0, batch_size=2)
    assert hidden.value == pytest.approx(actual.value, abs=1e-5) and hidden.base == pytest.approx(actual.base, abs=1e-5)


def test_gradient_times_attention_is_the_derivative_of_a_heads_factor(task, numpy, close):
    actual = gradient_times_attention(task, TEXTS[0], 0)
    inputs, encoder = task.tokenizer(TEXTS[:1]), task.backbone
    kernel = encoder.blocks[-1].attention.output_dense.kernel
    trained, ends = numpy(kernel.value).copy(), []
    for factor in (1.01, 0.99):
        changed = trained.copy()
        changed[:8] *= factor
        kernel.assign(changed)
        ends.append(float(numpy(task(inputs))[0, 0]))
    kernel.assign(trained)
    layers = [i for i, block in enumerate(encoder.block_order) if block == encoder.block_order[-1]]
    assert actual.by_head()[layers, 0].sum() == pytest.approx((ends[0] - ends[1]) / 0.02, abs=2e-3)


def test_words_anisotropy_and_pruning(task, numpy):
    actual = word_vectors(task, TEXTS, "Film")
    assert actual.vectors.shape == (3, 2, 16) and actual.words == ("film", "film") and actual.texts.tolist() == [0, 1]
    assert np.abs(actual.vectors[-1, 0] - actual.vectors[-1, 1]).max() > 1e-3
    cones = layer_anisotropy(task, TEXTS)
    assert cones.before.shape == cones.after.shape == (3,) and cones.dimensions.max() <= 8
    inputs = task.tokenizer(TEXTS)
    weights = numpy(task.backbone.get_weights())
    with ablate_heads(task, [(0, 0)]):
        expected = numpy(task(inputs))
    prune_heads(task, [(0, 0)], lambda: 0.0)
    np.testing.assert_allclose(numpy(task(inputs)), expected, atol=1e-6)
    task.backbone.set_weights(weights)
