"""Pruned heads against a BERT in NumPy without them, before and after training; and in every family."""

import keras
import numpy as np
import pytest
import transformers

import bertzoo as bz
from bertzoo.analysis import least_important_heads, prune_heads
from bertzoo.models.config import EncoderConfig

TEXTS, LOST = ["the film was bad.", "a great story", "never again", "we saw it"], [(1, 3), (0, 1)]


@pytest.fixture
def pair(write_checkpoint, numpy_bert):
    directory, reference = write_checkpoint("BertForSequenceClassification")
    return bz.TextClassifier.from_preset(directory, verbose=False), numpy_bert(reference)


def test_scores_before_and_after_each(pair, numpy, close):
    task, numpy_model = pair
    inputs = task.tokenizer(TEXTS[:1])
    actual = prune_heads(task, LOST, lambda: float(numpy(task(inputs))[0, 0]))
    x = numpy_model.embed(inputs["token_ids"][0])[None]
    expected = [numpy_model.logits(x, lost=LOST[:count])[0, 0] for count in range(3)]
    close(actual.scores, expected)
    close([actual.score_before, actual.score_after], [expected[0], expected[-1]])
    assert actual.heads == tuple(LOST)


def test_training_and_transformers_leave_them_out(pair, numpy, close, tmp_path, eager):
    task, _ = pair
    prune_heads(task, LOST, lambda: 0.0)
    task.compile(keras.optimizers.Adam(1e-2), run_eagerly=eager)
    task.fit(TEXTS, [0, 1, 0, 1], epochs=3, batch_size=4, verbose=0)
    for block, head in LOST:
        attention, own = task.backbone.blocks[block].attention, slice(head * 8, head * 8 + 8)
        assert not numpy(attention.output_dense.kernel.value)[own].any()
        assert not numpy(attention.qkv.kernel.value)[:, 64:][:, own].any()
        assert numpy(attention.output_dense.kernel.value).any(axis=1).sum() == 24
    task.save_to_preset(tmp_path / "saved")
    reference = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
    inputs = task.tokenizer(TEXTS[:1])
    import torch

    with torch.no_grad():
        close(numpy(task(inputs)), reference(torch.tensor(inputs["token_ids"]).long()).logits)


@pytest.mark.parametrize(
    "model_type", ["deberta", "deberta-v2", "modernbert", "albert", "nomic_bert", "gte", "eurobert"]
)
def test_what_a_pruned_head_carries_is_nothing(model_type, numpy):
    config = EncoderConfig.from_hf(
        {
            "model_type": model_type,
            "vocab_size": 30,
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 24,
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_biased_input": False,
            "pad_token_id": 0,
            "embedding_size": 16,
        }
    )
    encoder = bz.Encoder(config)
    attention = encoder.blocks[0].attention
    for weight in encoder.weights:
        if weight.path.endswith("bias"):
            weight.assign(np.ones(weight.shape))
    x = keras.ops.convert_to_tensor(np.random.default_rng(0).normal(size=(1, 5, 16)).astype("float32"))
    before = numpy(attention._project(x)[2])
    prune_heads(encoder, [(0, 1)], lambda: 0.0)
    value = numpy(attention._project(x)[2])
    assert not value[:, :, 1].any() and not numpy(attention.output_dense.kernel.value)[8:].any()
    np.testing.assert_allclose(value[:, :, 0], before[:, :, 0], rtol=1e-6)


def test_order_and_refusals(pair):
    assert least_important_heads(np.array([[3, 1], [0, 2]]), 3) == [(1, 0), (0, 1), (1, 1)]
    with pytest.raises(ValueError, match="2 blocks with 4 heads"):
        prune_heads(pair[0], [(0, 0), (2, 0)], lambda: 0.0)
    assert np.array(keras.ops.convert_to_numpy(pair[0].backbone.blocks[0].attention.output_dense.kernel.value))[
        :8
    ].any()
