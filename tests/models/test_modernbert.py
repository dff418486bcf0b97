"""ModernBERT's configuration as the hub has it, with flat names, and as transformers 5 writes it."""

import json

import numpy as np
import pytest
import torch
import transformers
from keras import ops

import bertzoo as bz
from bertzoo.analysis.hooks import make_gradient_function
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
    assert transformers.ModernBertConfig(**config.to_hf()).layer_types == hf_config.layer_types
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


PADDING = {
    "none": lambda position, length: position >= 0,
    "end": lambda position, length: position < length - 9,
    "left": lambda position, length: position >= 7,
    "holes": lambda position, length: position % 11 != 3,
}


@pytest.fixture(scope="module")
def local_model(tmp_path_factory):
    """A model in which a token sees four others on each side: ours, and transformers'."""
    torch.manual_seed(0)
    sizes = {**SIZES, "max_position_embeddings": 128, "num_hidden_layers": 4}
    config = transformers.ModernBertConfig(**sizes, local_attention=8, initializer_range=0.3)
    config._attn_implementation = "eager"
    model = transformers.ModernBertModel(config).eval()
    directory = tmp_path_factory.mktemp("local")
    model.save_pretrained(directory)
    return bz.Encoder.from_preset(directory, verbose=False), model


@pytest.mark.parametrize(
    ("length", "padding"), [(61, "none"), (61, "end"), (64, "left"), (64, "none"), (65, "holes"), (65, "end")]
)
def test_local_attention_equals_transformers(length, padding, local_model, close, numpy, compiled):
    """Outputs, and gradients with respect to the embeddings' output."""
    encoder, model = local_model
    rng = np.random.default_rng(length)
    ids = rng.integers(0, 50, (2, length)).astype("int32")
    real = np.repeat(PADDING[padding](np.arange(length), length)[None], 2, axis=0)
    mask = real.astype("int32")
    shift, weights = rng.normal(size=(2, 2, length, 16)).astype("float32")
    weights = weights * real[:, :, None]

    shifted = torch.tensor(shift, requires_grad=True)
    hook = model.embeddings.register_forward_hook(lambda module, inputs, out: out + shifted)
    expected = model(input_ids=torch.tensor(ids).long(), attention_mask=torch.tensor(mask)).last_hidden_state
    hook.remove()
    (expected * torch.tensor(weights)).sum().backward()

    def output(shift):
        return encoder({"token_ids": ids, "padding_mask": mask, "perturbation": shift})["sequence_output"]

    close(numpy(compiled(output, encoder)(shift))[real], expected.detach().numpy()[real])
    gradient = make_gradient_function(encoder, lambda tensors: ops.multiply(output(tensors[0]), weights))([shift])[0]
    close(gradient, shifted.grad.numpy())
