"""Frozen weights, LoRA's factors and quantized layers in `.keras` files and clones."""

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.adapters import enable_lora, merge_lora

TEXTS = ["the cat sat", "a dog ran", "the small cat", "a bird"]
LABELS = [0, 1, 0, 1]


@pytest.fixture(scope="module")
def preset(write_checkpoint):
    return write_checkpoint("BertForSequenceClassification", num_hidden_layers=2)[0]


@pytest.fixture
def make(preset):
    # Without dropout: files do not hold the count of training calls that its masks are drawn by.
    return lambda: bz.TextClassifier.from_preset(preset, verbose=False, dropout=0.0)


def trained(model):
    model.compile(bz.AdamW(1e-2))
    model.fit(TEXTS, LABELS, epochs=2, verbose=0)
    return model


def saved(model, path):
    model.save(path / "model.keras")
    return keras.saving.load_model(path / "model.keras")


def trainable(model) -> list[str]:
    return [weight.path.split("/", 1)[1] for weight in model.trainable_weights]


def frozen(model):
    model.freeze(1)


def encoder_frozen(model):
    model.backbone.trainable = False


def with_lora(model):
    enable_lora(model, rank=2)


def with_lora_alone(model):
    enable_lora(model, rank=2, targets=["dense"], train_head=False)


@pytest.mark.slow
@pytest.mark.parametrize("change", [frozen, encoder_frozen, with_lora, with_lora_alone])
def test_what_trains_is_kept(make, tmp_path, change, close):
    """So is the optimizer, whose next update is the same."""
    model = make()
    change(model)
    again = saved(trained(model), tmp_path)
    assert 0 < len(trainable(again)) < len(make().trainable_weights) + 10
    assert trainable(again) == trainable(model) == trainable(keras.models.clone_model(model))
    close(again.predict(TEXTS, verbose=0), model.predict(TEXTS, verbose=0))
    for one in (model, again):
        one.fit(TEXTS, LABELS, verbose=0)
    close(again.predict(TEXTS, verbose=0), model.predict(TEXTS, verbose=0))


@pytest.mark.once
def test_factors_from_a_file_can_be_merged(make, tmp_path, close):
    model = make()
    enable_lora(model, rank=2)
    again = saved(trained(model), tmp_path)
    merge_lora(again)
    close(again.predict(TEXTS, verbose=0), model.predict(TEXTS, verbose=0))
    assert trainable(again) == trainable(make())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")
def test_quantized_layers_are_kept(make, tmp_path, close):
    model = trained(make())
    exact = model.predict(TEXTS, verbose=0)
    model.quantize("int8")
    rounded = model.predict(TEXTS, verbose=0)
    assert 0 < np.abs(rounded - exact).max() < 0.1
    again = saved(model, tmp_path)
    close(again.predict(TEXTS, verbose=0), rounded)
    assert {weight.dtype for weight in again.weights} == {weight.dtype for weight in model.weights} >= {"int8"}


@pytest.mark.once
def test_an_encoder_alone(tmp_path, make):
    encoder = make().backbone
    encoder.blocks[0].trainable = False
    ids = keras.Input((None,), dtype="int32")
    model = saved(keras.Model(ids, encoder(ids)["sequence_output"]), tmp_path)
    assert len(model.trainable_weights) == len(encoder.trainable_weights) < len(encoder.weights) - 1
    assert "adapters" not in make().get_config() and "adapters" not in make().backbone.get_config()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
@pytest.mark.parametrize(
    "settings",
    [
        keras.quantizers.Int8QuantizationConfig(activation_quantizer=None),
        keras.quantizers.Int4QuantizationConfig(block_size=8),
    ],
    ids=["weights alone", "blocks"],
)
def test_the_settings_of_a_quantization_are_kept(make, tmp_path, numpy, settings):
    model = make()
    inputs = {"token_ids": np.arange(5, 13).reshape(2, 4), "padding_mask": np.ones((2, 4), "int32")}
    plain = numpy(model(inputs))
    model.quantize(config=settings)
    quantized = numpy(model(inputs))
    assert np.abs(quantized - plain).max() > 0
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(keras.saving.load_model(tmp_path / "model.keras")(inputs)), quantized)


def test_a_quantization_that_needs_data_is_refused_where_it_would_be_saved(make, tmp_path):
    model = make()
    layer = model.backbone.blocks[0].intermediate
    layer.quantize("gptq", config=keras.quantizers.GPTQConfig(dataset=None, tokenizer=None))
    with pytest.raises(ValueError, match="int8, int4, float8.*'gptq'.*before it is quantized"):
        model.save(tmp_path / "model.keras")
