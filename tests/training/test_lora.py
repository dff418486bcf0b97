"""LoRA: what trains, what merging keeps, and files against PEFT."""

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.training.lora import enable_lora, load_adapter, lora_layers, merge_lora, save_adapter

TEXTS = ["a good film", "a bad film", "the plot was dull and bad", "never again"]
LABELS = [1, 0, 0, 0]


@pytest.fixture(scope="module")
def preset(write_checkpoint):
    return write_checkpoint("BertForSequenceClassification", num_hidden_layers=1)


@pytest.fixture
def make(preset):
    return lambda: bz.TextClassifier.from_preset(preset[0], verbose=False, dropout=0.0)


def torch_inputs(model):
    import torch

    names = {"token_ids": "input_ids", "padding_mask": "attention_mask", "segment_ids": "token_type_ids"}
    return {names[name]: torch.tensor(x.astype("int64")) for name, x in model.preprocessor(TEXTS).items()}


def values(weights):
    return {w.path: np.array(keras.ops.convert_to_numpy(w)) for w in weights}


def test_factors_and_head_train_and_merging_changes_nothing(make, tmp_path, eager):
    model = make()
    before = model.predict(TEXTS, verbose=0)
    enable_lora(model, rank=2)
    np.testing.assert_allclose(model.predict(TEXTS, verbose=0), before, atol=1e-5)  # B starts at 0
    assert len(lora_layers(model)) == 1 and len(model.trainable_weights) == 4 + 2
    old = values(model.weights)
    model.compile(bz.AdamW(3e-2, warmup=0.0, schedule="constant"), run_eagerly=eager)
    model.fit(TEXTS, LABELS, epochs=3, verbose=0)
    trainable = {w.path for w in model.trainable_weights}
    for path, value in values(model.weights).items():
        assert (path in trainable) == (not np.array_equal(value, old[path])), path
    after = model.predict(TEXTS, verbose=0)
    assert np.abs(after - before).max() > 1e-3
    merge_lora(model)
    assert not lora_layers(model) and len(model.trainable_weights) == len(model.weights)
    np.testing.assert_allclose(model.predict(TEXTS, verbose=0), after, atol=1e-4)
    model.save_to_preset(tmp_path / "merged")
    loaded = bz.TextClassifier.from_preset(tmp_path / "merged", verbose=False)
    np.testing.assert_allclose(loaded.predict(TEXTS, verbose=0), after, atol=1e-4)


def test_adapters_go_to_peft_and_come_back(make, preset, tmp_path, close):
    peft, torch = pytest.importorskip("peft"), pytest.importorskip("torch")
    import transformers

    model = make()
    enable_lora(model, rank=3, alpha=5, targets=("query", "value", "dense"))
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(rng.normal(size=weight.shape) * 0.2)
    save_adapter(model, tmp_path / "adapter", base_model=str(preset[0]))
    expected = model.predict(TEXTS, batch_size=4, verbose=0)
    again = make()
    load_adapter(again, tmp_path / "adapter")
    np.testing.assert_allclose(again.predict(TEXTS, verbose=0), expected, atol=1e-5)

    base = transformers.AutoModelForSequenceClassification.from_pretrained(preset[0])
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    with torch.no_grad():
        close(expected, theirs(**torch_inputs(model)).logits.numpy())


def test_an_adapter_of_peft_is_read(make, preset, tmp_path, close):
    peft, torch = pytest.importorskip("peft"), pytest.importorskip("torch")
    import transformers

    torch.manual_seed(0)
    base = transformers.AutoModelForSequenceClassification.from_pretrained(preset[0])
    theirs = peft.get_peft_model(base, peft.LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=8)).eval()
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            if "lora_B" in name or "modules_to_save" in name:
                weight.normal_(0, 0.3)
    theirs.save_pretrained(tmp_path / "theirs")
    model = make()
    load_adapter(model, tmp_path / "theirs")
    with torch.no_grad():
        logits = theirs(**torch_inputs(model)).logits.numpy()
    close(model.predict(TEXTS, verbose=0), logits)


def test_errors(make, tmp_path):
    model = make()
    with pytest.raises(ValueError, match="called nothing"):
        enable_lora(model, targets=("nothing",))
    with pytest.raises(ValueError, match="rank"):
        enable_lora(model, rank=0)
    with pytest.raises(ValueError, match="no LoRA factors"):
        merge_lora(model)
    enable_lora(model)
    with pytest.raises(ValueError, match="already"):
        enable_lora(model)
    save_adapter(model, tmp_path / "adapter")
    config = tmp_path / "adapter" / "adapter_config.json"
    config.write_text(config.read_text().replace('"LORA"', '"IA3"'))
    with pytest.raises(ValueError, match="IA3"):
        load_adapter(make(), tmp_path / "adapter")
    with pytest.raises(ValueError, match="no adapter"):
        load_adapter(make(), tmp_path / "none")
