"""Heads of files as they are published: without names of labels, with odd ones, and with names of a wrapper before all
tensors. What is expected is what transformers makes of the same directory."""

import json

import numpy as np
import pytest
import safetensors.numpy
import transformers

import bertzoo as bz
from bertzoo.models.registry import FAMILIES

pytestmark = pytest.mark.once

TEXTS = ["a good film", "never again"]


@pytest.fixture
def three(write_checkpoint):
    return write_checkpoint("BertForSequenceClassification", num_hidden_layers=1, num_labels=3)[0]


def change(directory, **changes):
    path = directory / "config.json"
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def logits_of_transformers(directory):
    import torch

    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(directory).eval()
    with torch.no_grad():
        return model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits.numpy()


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        ({"id2label": None, "label2id": None, "num_labels": 3}, ["LABEL_0", "LABEL_1", "LABEL_2"]),
        ({"id2label": {"0": 0, "1": 1, "2": 2}}, ["0", "1", "2"]),
        ({"id2label": {"0": "x", "1": "x", "2": "y"}}, ["LABEL_0", "LABEL_1", "y"]),
        ({"id2label": {"0": None, "1": "", "2": 1.5}}, ["LABEL_0", "LABEL_1", "1.5"]),
        ({"id2label": {"2": "c", "0": "a", "1": "b"}}, ["a", "b", "c"]),
    ],
)
def test_labels_of_a_trained_head(three, changes, labels, close):
    change(three, **changes)
    model = bz.TextClassifier.from_preset(three, verbose=False)
    assert model.labels == labels and not model.load_report.new
    close(model.predict(TEXTS, verbose=0), logits_of_transformers(three))
    assert bz.TextClassifier.from_preset(three, verbose=False, labels=["u", "v", "w"]).labels == ["u", "v", "w"]


def test_labels_of_words(write_checkpoint):
    directory = write_checkpoint("BertForTokenClassification", num_hidden_layers=1, num_labels=3)[0]
    change(directory, id2label=None, label2id=None, num_labels=3)
    assert bz.TokenClassifier.from_preset(directory, verbose=False).labels == ["LABEL_0", "LABEL_1", "LABEL_2"]


@pytest.mark.parametrize("wrapper", ["module.", "model.", "_orig_mod.", "module._orig_mod."])
def test_names_of_a_wrapper(three, wrapper, close):
    expected = logits_of_transformers(three)
    path = three / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    safetensors.numpy.save_file({wrapper + name: value for name, value in tensors.items()}, path)
    model = bz.TextClassifier.from_preset(three, verbose=False)
    close(model.predict(TEXTS, verbose=0), expected)
    assert f"begin with {wrapper!r}" in str(model.load_report)


def test_a_prefix_of_the_family_is_none_of_a_wrapper(tmp_path, numpy, close):
    """ModernBERT's is the same word."""
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = FAMILIES["modernbert"].config_class(**sizes, intermediate_size=24, pad_token_id=0)
    model = bz.TextClassifier(bz.Encoder(config), labels=3)
    model.save_to_preset(tmp_path)
    path, ids = tmp_path / "model.safetensors", np.arange(3, 9, dtype="int32")[None]
    tensors = safetensors.numpy.load_file(path)
    for wrapper in ("", "model."):
        safetensors.numpy.save_file({wrapper + name: value for name, value in tensors.items()}, path)
        again = bz.TextClassifier.from_preset(tmp_path, verbose=False, tokenizer=None)
        close(numpy(again(ids)), numpy(model(ids)))
        assert ("begin with" in str(again.load_report)) == bool(wrapper)
