"""Checkpoints of transformers: read, written back, and refused where they can't be right."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
import transformers

import bertzoo as bz
from bertzoo.adapters.lora import enable_lora
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.saving import write_preset
from bertzoo.checkpoints.tensors import build_weight_files

TASKS = {"BertModel": bz.Encoder, "BertForMaskedLM": bz.MaskedLM, "BertForSequenceClassification": bz.TextClassifier}
IDS = np.array([[2, 7, 9, 30, 3], [2, 8, 8, 4, 3]], "int32")


@pytest.fixture(scope="module")
def classifier_checkpoint(write_checkpoint):
    return write_checkpoint("BertForSequenceClassification", seed=1)


@pytest.fixture
def copy(checkpoint, classifier_checkpoint, tmp_path):
    """Copies a checkpoint; `config` changes its config.json (None removes a key), `tensors` maps its tensors to
    others."""

    def make(head: bool = False, config: dict | None = None, tensors=None):
        directory = tmp_path / f"copy_{len(list(tmp_path.iterdir()))}"
        shutil.copytree((classifier_checkpoint if head else checkpoint)[0], directory)
        path = directory / "config.json"
        content = {**json.loads(path.read_text()), **(config or {})}
        path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
        if tensors is not None:
            weights = safetensors.torch.load_file(directory / "model.safetensors")
            safetensors.torch.save_file(tensors(weights), directory / "model.safetensors", {"format": "pt"})
        return directory

    return make


def load(directory, task=None, **options):
    return (task or bz.Encoder).from_preset(directory, verbose=False, **options)


def weights_of(model):
    return [keras.ops.convert_to_numpy(weight) for weight in model.weights]


def assert_same(one, other):
    for a, b in zip(weights_of(one), weights_of(other), strict=True):
        np.testing.assert_array_equal(a, b)


# ---- there and back


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["fp32", "fp16", "bf16"])
def test_there_and_back_bit_for_bit(write_checkpoint, tmp_path, name, dtype):
    directory, _ = write_checkpoint(name, dtype=dtype)
    load(directory, TASKS[name]).save_to_preset(tmp_path / "out")
    before = safetensors.torch.load_file(directory / "model.safetensors")
    after = safetensors.torch.load_file(tmp_path / "out" / "model.safetensors")
    assert set(after) == set(before)
    for tensor, value in before.items():
        assert after[tensor].dtype == value.dtype == dtype and after[tensor].shape == value.shape
        assert torch.equal(after[tensor], value), tensor
    old, new = (json.loads((path / "config.json").read_text()) for path in (directory, tmp_path / "out"))
    assert new["dtype"] == old["dtype"] and new["architectures"] == [name]
    assert {key: new[key] for key in old} == old


@pytest.mark.parametrize("auto", ["AutoModel", "AutoModelForSequenceClassification", "AutoModelForMaskedLM"])
def test_transformers_loads_what_is_saved(
    checkpoint, write_checkpoint, classifier_checkpoint, numpy, close, tmp_path, auto
):
    if auto == "AutoModel":
        model = load(checkpoint[0])
    elif auto == "AutoModelForSequenceClassification":
        model = load(classifier_checkpoint[0], bz.TextClassifier, labels=["no", "yes"])
    else:
        model = load(write_checkpoint("BertForMaskedLM")[0], bz.MaskedLM)
    for weight in model.trainable_variables:  # so that it is not the file as it came
        weight.assign(weight * 1.01)
    model.save_to_preset(tmp_path / "out")
    hf_model, report = getattr(transformers, auto).from_pretrained(
        tmp_path / "out", output_loading_info=True, dtype=torch.float32, attn_implementation="eager"
    )
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    with torch.no_grad():
        expected = hf_model.eval()(input_ids=torch.tensor(IDS))
    outputs = numpy(model(IDS))
    if auto == "AutoModel":
        close(outputs["sequence_output"], expected.last_hidden_state)
        close(outputs["pooled_output"], expected.pooler_output)
    else:
        close(outputs, expected.logits)
    if auto == "AutoModelForSequenceClassification":
        assert (
            hf_model.config.id2label == {0: "no", 1: "yes"}
            and hf_model.config.problem_type == "single_label_classification"
        )
    if auto != "AutoModel":
        tokens = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
        assert tokens("A good film!")["input_ids"] == model.tokenizer("A good film!")["token_ids"][0].tolist()


@pytest.mark.slow
def test_minilm_goes_through_unchanged(minilm, tmp_path):
    classifier = bz.TextClassifier.from_preset(minilm, labels=3, verbose=False)
    assert classifier.load_report.new == ["classifier"]
    classifier.save_to_preset(tmp_path / "out")
    _, report = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    load(minilm).save_to_preset(tmp_path / "bare")
    before = safetensors.numpy.load_file(minilm / "model.safetensors")
    after = safetensors.numpy.load_file(tmp_path / "bare" / "model.safetensors")
    before.pop("embeddings.position_ids", None)
    assert set(after) == set(before)
    assert all(np.array_equal(after[name], before[name]) for name in before)


def test_keys_that_change_nothing_are_carried_through(copy, tmp_path):
    """And they keep a value that transformers reads; attention dropout stays what the file says although it is off."""
    own = {"finetuning_task": "sst2", "my_note": [1, {"a": None}], "attention_probs_dropout_prob": 0.25}
    encoder = load(copy(config=own))
    encoder.save_to_preset(tmp_path / "out")
    content = json.loads((tmp_path / "out" / "config.json").read_text())
    assert {key: content[key] for key in own} == own
    notes = "\n".join(encoder.load_report.notes)
    assert "my_note" in notes and "finetuning_task" not in notes and "0.25" in notes
    assert encoder.dropout_config.attention_probs_dropout_prob == 0


# ---- spellings of the same weights


def prefixed(weights):
    return {"bert." + name: value for name, value in weights.items()}


def old_names(weights):
    return {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in weights.items()
    }


@pytest.mark.parametrize(
    "change", [prefixed, old_names, lambda w: prefixed(old_names(w))], ids=["prefix", "gamma", "both"]
)
def test_other_spellings(copy, checkpoint, change):
    """Fault 6."""
    changed = copy(tensors=change)
    assert_same(load(changed), load(checkpoint[0]))
    notes = "\n".join(load(changed).load_report.notes)
    assert ("old names" in notes) == (change is not prefixed)


def test_prefixes_and_heads_in_all_combinations(copy, checkpoint, classifier_checkpoint):
    bare = load(classifier_checkpoint[0])  # an encoder from a file with a head
    assert bare.load_report.unused == ["classifier.bias", "classifier.weight"]
    whole = load(classifier_checkpoint[0], bz.TextClassifier)
    assert_same(bare, whole.backbone)
    assert whole.load_report.new == [] and whole.load_report.unused == []
    headless = load(checkpoint[0], bz.TextClassifier, labels=2)  # a task from a file without a head
    assert headless.load_report.new == ["classifier"]
    assert np.abs(weights_of(headless.classifier)[0]).max() > 0
    without = copy(head=True, tensors=lambda w: {name.removeprefix("bert."): value for name, value in w.items()})
    assert_same(load(without, bz.TextClassifier), whole)


def test_a_file_without_pooler(write_checkpoint):
    """Fault 6."""
    directory, _ = write_checkpoint(pooler=False)
    encoder = load(directory)
    assert encoder.load_report.new == ["pooler"] and np.abs(weights_of(encoder.pooler)[0]).max() > 0
    assert load(directory, pooler=False).load_report.new == []


@pytest.mark.parametrize("form", ["zip", "stream", "shards", "pickled shards"])
def test_other_files(checkpoint, copy, form):
    """Fault 6: .bin files; without any weight being another."""
    directory = copy()
    weights = safetensors.torch.load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    if form == "shards":
        arrays = {name: value.numpy() for name, value in weights.items()}
        write_preset(directory, build_weight_files(arrays, max_shard_bytes=20_000))
        assert len(list(directory.glob("*.safetensors"))) > 2
    elif form == "pickled shards":
        names = sorted(weights)
        shard_of = {name: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, name in enumerate(names)}
        for shard in set(shard_of.values()):
            torch.save({n: weights[n] for n in names if shard_of[n] == shard}, directory / shard)
        (directory / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": shard_of}))
    else:
        torch.save(weights, directory / "pytorch_model.bin", _use_new_zipfile_serialization=form == "zip")
    assert_same(load(directory), load(checkpoint[0]))


# ---- what can't be right is one clear error, and nothing is said to be loaded


def without(name):
    return lambda weights: {key: value for key, value in weights.items() if key != name}


def with_(name, change):
    return lambda weights: {**weights, name: change(weights[name]).contiguous()}


QUERY = "encoder.layer.1.attention.self.query.weight"


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tensors": without(QUERY)}, rf"lacks \d tensors.*{QUERY}"),
        ({"tensors": without("embeddings.LayerNorm.bias")}, "embeddings.LayerNorm.bias"),
        ({"tensors": without("pooler.dense.bias")}, "pooler.dense.bias"),
        ({"tensors": with_(QUERY, lambda t: t[:, :16])}, rf"{QUERY} has shape \(32, 16\).*\(32, 32\)"),
        ({"tensors": with_(QUERY, lambda t: t * float("nan"))}, r"layer.1.attention.self.*not finite"),
        ({"tensors": with_(QUERY, lambda t: t.to(torch.int32))}, "int32, not floating-point"),
        ({"config": {"vocab_size": 99}}, r"word_embeddings.weight has shape .*\(99, 32\)"),
        ({"config": {"model_type": "gpt2"}}, "model_type 'gpt2'"),
        ({"config": {"model_type": None, "auto_map": {"AutoModel": "x.Y"}}}, "auto_map and no model_type"),
        ({"config": {"position_embedding_type": "relative_key"}}, "position_embedding_type = 'relative_key'"),
        ({"config": {"is_decoder": True}}, "is_decoder = True"),
        ({"config": {"hidden_act": "mish"}}, "hidden_act must be one of"),
        ({"config": {"num_attention_heads": 5}}, "multiple of num_attention_heads"),
        ({"config": {"vocab_size": None}}, "lacks vocab_size"),
    ],
)
def test_what_cannot_be_right_is_refused(copy, capsys, options, message):
    """Fault 5: no load that succeeds and is wrong."""
    with pytest.raises(CheckpointError, match=message):
        bz.Encoder.from_preset(copy(**options))
    assert capsys.readouterr().out == ""


@pytest.mark.once
def test_a_config_that_is_no_json(copy):
    directory = copy()
    for text in ("", "[]", '{"model_type": "bert"', "null"):
        (directory / "config.json").write_text(text)
        with pytest.raises(CheckpointError, match="config.json"):
            load(directory)


def test_early_files_without_model_type_are_berts(copy, checkpoint):
    assert_same(load(copy(config={"model_type": None, "architectures": None})), load(checkpoint[0]))


def test_another_number_of_labels_needs_a_new_head(classifier_checkpoint):
    with pytest.raises(CheckpointError, match=r"classifier.weight has shape \(2, 32\).*\(3, 32\).*new_head=True"):
        load(classifier_checkpoint[0], bz.TextClassifier, labels=3)
    fresh = load(classifier_checkpoint[0], bz.TextClassifier, labels=3, new_head=True)
    assert fresh.load_report.new == ["classifier"] and fresh.labels == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert fresh(IDS).shape == (2, 3)


def test_half_a_head_is_no_head(copy):
    with pytest.raises(CheckpointError, match="classifier.bias"):
        load(copy(head=True, tensors=without("classifier.bias")), bz.TextClassifier)


def test_unknown_options_are_errors(checkpoint):
    """Fault 7."""
    for task in (bz.Encoder, bz.TextClassifier, bz.MaskedLM):
        with pytest.raises(TypeError, match="num_classes"):
            task.from_preset(checkpoint[0], num_classes=3)


@pytest.mark.parametrize(
    ("change", "weight"),
    [(enable_lora, "lora_a_0")],
)
def test_weights_without_a_place_in_the_file_are_named(classifier_checkpoint, tmp_path, change, weight):
    model = load(classifier_checkpoint[0], bz.TextClassifier)
    change(model)
    with pytest.raises(CheckpointError, match=f"no place for .* {weight}.*merge_lora"):
        model.save_to_preset(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_load_report(copy, capsys):
    directory = copy(head=True, tensors=lambda w: {**w, "extra.weight": torch.zeros(2)})
    classifier = bz.TextClassifier.from_preset(directory)
    report = classifier.load_report
    assert report.loaded == 39 + 2 and report.new == [] and report.unused == ["extra.weight"]
    printed = capsys.readouterr().out
    assert f"{directory}: 41 tensors loaded" in printed and re.search("not used here .*: extra.weight", printed)
    assert "newly initialised" not in printed
    bz.TextClassifier.from_preset(directory, new_head=True, verbose=False)
    assert capsys.readouterr().out == ""


# ---- heads of one's own


def two_layers():
    return keras.Sequential(
        [keras.layers.Dense(8, activation="gelu"), keras.layers.Dropout(0.1), keras.layers.Dense(3)]
    )


@pytest.mark.parametrize("kind", ["keras", "bertzoo"])
def test_a_head_of_ones_own_comes_back(checkpoint, numpy, tmp_path, kind, close):
    head = two_layers() if kind == "keras" else bz.layers.ClassificationHead(3, 0.1, dense_activation="gelu")
    model = load(checkpoint[0], bz.TextClassifier, labels=["a", "b", "c"], head=head)
    assert model.load_report.new == ["custom_head"]
    model.save_to_preset(tmp_path / "out")
    stored = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    own = sorted(name for name in stored if name.startswith("bertzoo."))
    assert own == ["bertzoo.head.0.kernel", "bertzoo.head.1.bias", "bertzoo.head.2.kernel", "bertzoo.head.3.bias"]
    again = load(tmp_path / "out", bz.TextClassifier)
    assert again.labels == ["a", "b", "c"] and again.load_report.new == [] and again.load_report.unused == []
    np.testing.assert_array_equal(numpy(again(IDS)), numpy(model(IDS)))
    hf_model, report = transformers.AutoModel.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"] and set(report["unexpected_keys"]) == set(own)
    close(numpy(model.backbone(IDS))["sequence_output"], hf_model.eval()(torch.tensor(IDS)).last_hidden_state.detach())
    plain = load(tmp_path / "out", bz.TextClassifier, new_head=True)
    assert plain.custom_head is None and plain.load_report.new == ["classifier"]
    plain.save_to_preset(tmp_path / "plain")
    assert "bertzoo" not in json.loads((tmp_path / "plain" / "config.json").read_text())


class Foreign(keras.layers.Layer):
    made = 0

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        type(self).made += 1

    def build(self, shape):
        self.w = self.add_weight(name="w", shape=(shape[-1], 2))

    def call(self, x):
        return keras.ops.matmul(x, self.w)


def test_a_head_of_a_foreign_class_is_never_made_from_a_file(checkpoint, tmp_path, numpy):
    model = load(checkpoint[0], bz.TextClassifier, head=Foreign())
    model.save_to_preset(tmp_path / "out")
    made = Foreign.made
    with pytest.raises(CheckpointError, match="Foreign.*pass head="):
        load(tmp_path / "out", bz.TextClassifier)
    assert Foreign.made == made
    again = load(tmp_path / "out", bz.TextClassifier, head=Foreign())
    np.testing.assert_array_equal(numpy(again(IDS)), numpy(model(IDS)))
    assert again.load_report.new == []


@pytest.mark.once
@pytest.mark.parametrize(
    "part",
    [
        {
            "module": "keras.layers",
            "class_name": "Lambda",
            "config": {"function": {"class_name": "__lambda__", "config": {}}},
        },
        {"module": "keras.layers", "class_name": "TorchModuleWrapper", "config": {"module": "gASV"}},
        {"module": "keras.layers", "class_name": "TFSMLayer", "config": {"filepath": "/"}},
        {"module": "keras.layers", "class_name": "TextVectorization", "config": {"vocabulary": "/etc/passwd"}},
        {"module": "os", "class_name": "system", "config": {"command": "true"}},
        {"module": "builtins", "class_name": "function", "config": "eval", "registered_name": "function"},
        {"module": "keras.layers", "class_name": "Dense", "config": {"units": 2}, "registered_name": "other>Dense"},
        {"module": "bertzoo.layers", "class_name": "Nothing", "config": {}, "registered_name": "bertzoo>Nothing"},
        {"class_name": "Dense", "config": {"units": 2}},
    ],
    ids=lambda part: part["class_name"],
)
def test_hostile_heads_are_refused(copy, part):
    wrapped = {"module": "keras", "class_name": "Sequential", "config": {"name": "s", "layers": [part]}}
    for head in (part, wrapped):
        with pytest.raises(CheckpointError, match=f"{part['class_name']}.*pass head="):
            load(copy(config={"bertzoo": {"head": head}}), bz.TextClassifier)


# ---- saving is all or nothing

SAVER = """
import sys, bertzoo as bz
encoder = bz.Encoder.from_preset(sys.argv[1], verbose=False)
print("ready", flush=True)
for i in range(10**6):
    encoder.weights[0].assign(encoder.weights[0] * 0 + i)
    encoder.save_to_preset(sys.argv[1])
    print(i, flush=True)
"""


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed_while_saving(copy):
    """The writer alone is killed 50 times in test_saving.py; here whole processes are, in the midst of their saves."""
    env = {**os.environ, "PYTHONPATH": str(Path(bz.__file__).resolve().parents[1])}
    directories = [copy(), copy()]
    writers = [
        subprocess.Popen([sys.executable, "-c", SAVER, str(path)], stdout=subprocess.PIPE, text=True, env=env)
        for path in directories
    ]
    for pause, (directory, process) in enumerate(zip(directories, writers)):
        for expected in ("ready", "0", "1", "2"):
            assert process.stdout.readline() == f"{expected}\n"
        time.sleep(0.013 * pause)
        process.kill()
        process.wait()
        process.stdout.close()
        values = weights_of(load(directory))[0]
        assert (values == values.flat[0]).all() and values.flat[0] >= 2
