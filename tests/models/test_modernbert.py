"""ModernBERT's configuration as the hub has it, with flat names, and as transformers 5 writes it."""

import json

import pytest
import transformers
from keras import ops

import bertzoo as bz
from bertzoo.models.registry import FAMILIES

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 5,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
    "pad_token_id": 0,
}
FLAT = {
    **SIZES,
    "model_type": "modernbert",
    "global_attn_every_n_layers": 2,
    "global_rope_theta": 1000.0,
    "local_rope_theta": 100.0,
    "position_embedding_type": "absolute",
}


def test_flat_names_mean_what_they_mean_to_transformers(tmp_path):
    hf_config = transformers.ModernBertConfig(**{key: FLAT[key] for key in FLAT if key != "model_type"})
    config = bz.EncoderConfig.from_hf(FLAT)
    assert list(config.layer_types) == hf_config.layer_types
    assert config.to_hf()["rope_parameters"] == hf_config.rope_parameters
    assert config.unknown_keys == []
    (tmp_path / "config.json").write_text(json.dumps(config.to_hf()))
    again = transformers.AutoConfig.from_pretrained(tmp_path)
    assert again.rope_parameters == hf_config.rope_parameters and again.layer_types == hf_config.layer_types
    assert bz.EncoderConfig.from_hf(config.to_hf()) == config


def test_initial_weights_shrink_with_depth():
    config = FAMILIES["modernbert"].config_class(**SIZES)
    weights = {weight.path: weight for weight in bz.Encoder(config).weights}
    spread = {
        name: float(ops.convert_to_numpy(weights[f"encoder/layer_1/{name}/kernel"]).std())
        for name in ("intermediate", "output")
    }
    assert 2.5 < spread["intermediate"] / spread["output"] < 4  # sqrt(2 * 5 layers) = 3.2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": ["full_attention"]}, "layer_types must be"),
        ({"classifier_pooling": "max"}, "classifier_pooling must be cls or mean"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "scales rotary positions .*yarn"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, r"scales rotary positions \({'type': 'linear'"),
    ],
)
def test_wrong_configurations_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        bz.EncoderConfig.from_hf({**FLAT, **changes})


def test_means_of_long_rows_do_not_overflow_in_float16():
    config = bz.EncoderConfig.from_hf({**FLAT, "classifier_pooling": "mean"})
    vectors = ops.full((2, 3000, 16), 40.0, dtype="float16")
    mask = ops.cast(ops.arange(3000) < ops.convert_to_tensor([[3000], [2000]]), "int32")
    for given in (None, mask):
        mean = FAMILIES["modernbert"].pool_for_head(config, vectors, given)
        assert mean.dtype == vectors.dtype and float(ops.max(ops.abs(mean - 40.0))) == 0


def test_a_decoder_without_bias_is_refused():
    config = bz.EncoderConfig.from_hf({**FLAT, "decoder_bias": False})
    with pytest.raises(ValueError, match="decoder_bias"):
        bz.MaskedLM(bz.Encoder(config))
