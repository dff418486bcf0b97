"""RoFormer's table of positions, and settings that its configuration may have."""

import json

import keras
import numpy as np
import pytest
import transformers

import bertzoo as bz
from bertzoo.models.registry import FAMILIES

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
}


def config(**changes):
    return FAMILIES["roformer"].config_class(**{**SIZES, **changes})


def test_the_first_table_equals_transformers(close, numpy):
    encoder = bz.Encoder(config())
    expected = transformers.RoFormerModel(transformers.RoFormerConfig(**SIZES)).encoder.embed_positions.weight
    close(numpy(encoder.position_bias.table), expected.detach().numpy())
    assert not any(weight.path.endswith("relative/table") for weight in encoder.trainable_weights)


def test_scores_depend_on_distance_alone(close, numpy):
    """Section 3.2.2: the product of a query and a key is the same wherever both move."""
    table = bz.layers.RotaryTable(24, 8)
    x = np.random.default_rng(0).normal(size=(1, 1, 16)).astype("float32")
    attention = bz.layers.RoFormerAttention(16, 2)
    same = np.repeat(x, 12, axis=1)  # one token everywhere
    attention.build(same.shape)
    queries, keys, values = attention._project(keras.ops.convert_to_tensor(same), None, table(same))
    scores = np.einsum("thk,shk->hts", numpy(queries)[0], numpy(keys)[0])
    for offset in range(-11, 12):
        diagonal = np.diagonal(scores, offset, axis1=1, axis2=2)
        close(diagonal, np.repeat(diagonal[:, :1], diagonal.shape[1], axis=1))
    assert np.ptp(scores[0, 0]) > 1e-3
    assert np.ptp(numpy(values), axis=1).max() == 0


def test_inputs_longer_than_the_table():
    encoder = bz.Encoder(config())
    assert encoder.config.max_length == 24
    with pytest.raises(ValueError, match="at most 24 tokens"):
        encoder(np.ones((1, 25), "int32"))


@pytest.mark.once
def test_what_multiple_choice_reads(close, numpy):
    vectors = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    mask = np.array([[1, 1, 0], [1, 1, 1]])
    for kind, expected in {"first": vectors[:, 0], "last": vectors[:, -1], "mean": vectors.mean(1)}.items():
        settings = config(summary_type=kind)
        close(numpy(FAMILIES["roformer"].pool_for_head(settings, vectors, mask, "multiple_choice")), expected)
        close(numpy(FAMILIES["roformer"].pool_for_head(settings, vectors, mask)), vectors[:, 0])


@pytest.mark.once
@pytest.mark.parametrize(
    ("key", "value"), [("summary_type", "cls_index"), ("summary_use_proj", True), ("summary_activation", "tanh")]
)
def test_other_summaries_are_refused(key, value, tmp_path):
    transformers.RoFormerForMultipleChoice(transformers.RoFormerConfig(**SIZES)).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(ValueError, match=key):
        bz.MultipleChoice.from_preset(tmp_path, tokenizer=None, verbose=False)


@pytest.mark.once
def test_a_heads_width_is_even():
    with pytest.raises(ValueError, match="must be even"):
        config(hidden_size=6)


def test_mixed_precision_comes_near(numpy):
    """Within what bfloat16's eight bits leave of normalised vectors."""
    inputs = {"token_ids": np.arange(20, dtype="int32")[None] + 3}
    exact = numpy(bz.Encoder(config(), name="same")(inputs)["sequence_output"])
    half = bz.Encoder(config(), name="same", dtype="mixed_bfloat16")(inputs)["sequence_output"]
    assert np.abs(numpy(keras.ops.cast(half, "float32")) - exact).max() < 0.1


def test_keras_file_comes_back(tmp_path, numpy):
    encoder = bz.Encoder(config(embedding_size=8, rotary_value=True))
    ids = np.arange(12, dtype="int32").reshape(2, 6)
    expected = numpy(encoder(ids)["sequence_output"])
    encoder.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(again(ids)["sequence_output"]), expected)
