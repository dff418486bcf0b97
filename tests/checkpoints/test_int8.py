"""int8 layers in presets: restored exactly, refused by transformers, turned back into floats; and LoRA beside them."""

import json

import keras
import numpy as np
import pytest
import safetensors.numpy
from family_cases import ALL_CASES

import bertzoo as bz
from bertzoo.adapters import enable_lora, load_adapter, merge_lora, save_adapter
from bertzoo.checkpoints.errors import CheckpointError

pytestmark = pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")

TEXTS = ["a good film", "a bad film", "the plot was dull and bad", "never again"]


@pytest.fixture(scope="module")
def preset(write_checkpoint):
    return write_checkpoint("BertForSequenceClassification", num_hidden_layers=1)[0]


def quantized(preset):
    model = bz.TextClassifier.from_preset(preset, verbose=False, dropout=0.0)
    model.quantize("int8")
    return model


@pytest.mark.slow
def test_outputs_come_back_exactly(preset, tmp_path):
    model = quantized(preset)
    expected = model.predict(TEXTS, verbose=0)
    assert np.abs(expected - bz.TextClassifier.from_preset(preset, verbose=False).predict(TEXTS, verbose=0)).max() > 0
    model.save_to_preset(tmp_path)
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["model.int8.safetensors"]
    again = bz.TextClassifier.from_preset(tmp_path, verbose=False)
    np.testing.assert_array_equal(again.predict(TEXTS, verbose=0), expected)
    assert not again.load_report.unused and not again.load_report.new
    assert {weight.dtype for weight in again.weights} == {weight.dtype for weight in model.weights} >= {"int8"}
    again.save_to_preset(tmp_path)  # over itself
    again = bz.TextClassifier.from_preset(tmp_path, verbose=False, labels=3, new_head=True)
    assert again.classifier.logits.quantization_mode is None and again.backbone.pooler.dense.quantization_mode


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize("case", ["gte", "eurobert"])
def test_scales_of_tensors_of_other_widths_and_in_one(case, tmp_path, numpy):
    """EuroBERT's keys are narrower than its queries; GTE's are in one tensor with them."""
    model_type, settings = ALL_CASES[case]
    config = bz.EncoderConfig.from_hf({**settings, "model_type": model_type, "initializer_range": 0.3})
    model = bz.TokenClassifier(bz.Encoder(config, dropout=0.0), labels=3)
    model.quantize("int8")
    ids = np.random.default_rng(0).integers(3, 50, (2, 7)).astype("int32")
    expected = numpy(model(ids))
    model.save_to_preset(tmp_path)
    again = bz.TokenClassifier.from_preset(tmp_path, tokenizer=None, verbose=False)
    np.testing.assert_array_equal(numpy(again(ids)), expected)


@pytest.mark.slow
@pytest.mark.once
def test_the_file_has_codes_and_scales_by_the_names_of_tensors(preset, tmp_path):
    quantized(preset).save_to_preset(tmp_path)
    stored = safetensors.numpy.load_file(tmp_path / "model.int8.safetensors")
    weight = safetensors.numpy.load_file(preset / "model.safetensors")
    name = "bert.encoder.layer.0.attention.self.key.weight"
    assert stored[name].dtype == np.int8
    step = np.abs(weight[name]).max(axis=1) / 127
    assert np.all(np.abs(stored[name] / stored[name + "_scale"][:, None] - weight[name]) <= 0.51 * step[:, None])
    table = "bert.embeddings.word_embeddings.weight"
    np.testing.assert_array_equal(stored[table], weight[table])


@pytest.mark.slow
@pytest.mark.once
def test_transformers_refuses_the_directory(preset, tmp_path):
    import transformers

    quantized(preset).save_to_preset(tmp_path)
    for auto in (transformers.AutoModel, transformers.AutoModelForSequenceClassification):
        with pytest.raises(OSError, match="no file named model.safetensors"):
            auto.from_pretrained(tmp_path)


@pytest.mark.slow
@pytest.mark.once
def test_floats_take_the_place_of_codes_and_codes_that_of_floats(preset, tmp_path):
    bz.TextClassifier.from_preset(preset, verbose=False).save_to_preset(tmp_path)
    quantized(preset).save_to_preset(tmp_path)
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["model.int8.safetensors"]
    bz.TextClassifier.from_preset(preset, verbose=False).save_to_preset(tmp_path)
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["model.safetensors"]


@pytest.mark.slow
@pytest.mark.once
def test_convert_writes_floats(preset, tmp_path):
    import torch
    import transformers
    from typer.testing import CliRunner

    from bertzoo.cli.main import app

    quantized(preset).save_to_preset(tmp_path / "int8")
    done = CliRunner().invoke(app, ["convert", str(tmp_path / "int8"), str(tmp_path / "floats"), "--dequantize"])
    assert done.exit_code == 0, done.output
    stored = safetensors.numpy.load_file(tmp_path / "int8" / "model.int8.safetensors")
    hf_model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "floats").eval()
    for name, weight in hf_model.named_parameters():
        codes = stored[name].astype("float32")
        expected = codes / stored[name + "_scale"][:, None] if name + "_scale" in stored else codes
        np.testing.assert_array_equal(weight.detach().numpy(), expected, err_msg=name)
    assert isinstance(hf_model.dtype, torch.dtype)
    done = CliRunner().invoke(app, ["convert", str(tmp_path / "floats"), str(tmp_path / "x"), "--dequantize"])
    assert done.exit_code == 1 and "its weights are not int8" in done.output


@pytest.mark.slow
@pytest.mark.once
def test_damaged_and_other_quantizations_are_named(preset, tmp_path):
    quantized(preset).save_to_preset(tmp_path)
    path = tmp_path / "model.int8.safetensors"
    stored, name = safetensors.numpy.load_file(path), "bert.encoder.layer.0.output.dense.weight"
    scale = name + "_scale"
    for change, message in (
        ({scale: stored[scale] * 0}, "weight_scale must hold positive scales"),
        ({scale: stored[scale] * np.nan}, "weight_scale must hold positive scales"),
        ({scale: stored[scale][1:].copy()}, "weight_scale has shape .* is expected"),
        ({name: stored[name][:, 1:].copy()}, "is expected"),
        ({scale: None}, "lacks .*output.dense.weight_scale"),
    ):
        changed = {key: value for key, value in {**stored, **change}.items() if value is not None}
        safetensors.numpy.save_file(changed, path)
        with pytest.raises(CheckpointError, match=f"{tmp_path}.*{message}"):
            bz.TextClassifier.from_preset(tmp_path, verbose=False)
    model = bz.TextClassifier.from_preset(preset, verbose=False)
    model.quantize("int4")
    with pytest.raises(CheckpointError, match=r"int8 layers only.*quantized as int4.*\.keras"):
        model.save_to_preset(tmp_path / "int4")


@pytest.mark.slow
def test_lora_trains_beside_int8(preset, tmp_path, eager):
    model = quantized(preset)
    before = model.predict(TEXTS, verbose=0)
    enable_lora(model, rank=2)
    np.testing.assert_allclose(model.predict(TEXTS, verbose=0), before, atol=1e-6)  # B starts at 0
    codes = {w.path: keras.ops.convert_to_numpy(w).copy() for w in model.weights if w.dtype == "int8"}
    model.compile(bz.AdamW(3e-2, warmup=0.0, schedule="constant"), run_eagerly=eager)
    model.fit(TEXTS, [1, 0, 0, 0], epochs=2, verbose=0)
    after = model.predict(TEXTS, verbose=0)
    assert np.abs(after - before).max() > 1e-3
    for weight in model.weights:
        if weight.dtype == "int8":
            np.testing.assert_array_equal(keras.ops.convert_to_numpy(weight), codes[weight.path])
    save_adapter(model, tmp_path / "adapter")
    again = quantized(preset)
    load_adapter(again, tmp_path / "adapter")
    np.testing.assert_allclose(again.predict(TEXTS, verbose=0), after, atol=1e-6)
    with pytest.raises(ValueError, match="is quantized .*save the adapter"):
        merge_lora(model)
    assert "lora_A" in "".join(safetensors.numpy.load_file(tmp_path / "adapter" / "adapter_model.safetensors"))
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["r"] == 2
