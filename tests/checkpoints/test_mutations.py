"""Values of JSON files changed at random paths into others: an error with the file's or the directory's name, or a
model that computes as before, or one of the few changes that are legitimate."""

import json
import os
import random
import shutil

import keras
import numpy as np
import pytest
import safetensors.numpy

import bertzoo as bz
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.models.registry import FAMILIES

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore:.*the tokenizer has .* tokens and the model")]

VALUES = [None, [], {}, "x", -1, 0, 1.5, 1e9, 10**9, float("nan"), [[1]], True]
TEXTS = ["the film was bad", "never again"]
# Keys that config.json may have besides those that are there.
FURTHER = ["num_labels", "sentence_transformers", "tie_word_embeddings", "rope_parameters", "position_buckets"]
# Where another value of the right kind rightly gives other numbers.
FREE = {
    "config.json": ("layer_norm_eps", "hidden_act", "id2label", "bertzoo", "label2id"),
    "tokenizer.json": ("normalizer", "pre_tokenizer", "post_processor", "model", "added_tokens", "decoder"),
    "tokenizer_config.json": ("do_lower_case", "strip_accents", "tokenize_chinese_chars", "model_max_length"),
    "config_sentence_transformers.json": ("prompts", "default_prompt_name", ""),
    "sentence_bert_config.json": ("max_seq_length",),
    "1_Pooling/config.json": None,
    "2_Dense/config.json": ("activation_function", "bias"),
    "modules.json": None,
}


def paths_in(content, path=()):
    """Paths to all values, those of vocabularies left out."""
    if path[:2] == ("model", "vocab") or len(path) > 4:
        return
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from paths_in(value, (*path, key))


def changed(content, path, value):
    if not path:
        return value
    content = json.loads(json.dumps(content))
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return content


@pytest.fixture(scope="module")
def presets(write_checkpoint, tmp_path_factory):
    """A sentence encoder with a Dense and prompts, and a classifier: directory -> outputs."""
    folder = tmp_path_factory.mktemp("presets")
    classifier = write_checkpoint("BertForSequenceClassification", num_hidden_layers=1, num_labels=3)[0]
    dense = keras.layers.Dense(6, activation="tanh")
    options = {"after_pooling": [dense], "prompts": {"q": "the "}, "default_prompt": "q", "verbose": False}
    bz.SentenceEncoder.from_preset(write_checkpoint(num_hidden_layers=1)[0], **options).save_to_preset(folder / "st")
    bz.TextClassifier.from_preset(classifier, temperature=2.0, verbose=False).save_to_preset(folder / "classifier")
    return {
        folder / "st": lambda path: bz.SentenceEncoder.from_preset(path, verbose=False).encode(TEXTS),
        folder / "classifier": lambda path: bz.TextClassifier.from_preset(path, verbose=False).logits(TEXTS),
    }


@pytest.mark.slow
def test_errors_name_the_file_and_what_loads_computes_as_before(presets, tmp_path):
    rng = random.Random(0)
    for source, outputs in presets.items():
        directory = tmp_path / source.name
        shutil.copytree(source, directory)
        expected = outputs(directory)
        for file in sorted(directory.rglob("*.json")):
            name, original = file.relative_to(directory).as_posix(), file.read_text()
            content = json.loads(original)
            paths = [(), *paths_in(content), *((key,) for key in FURTHER if name == "config.json")]
            for path in rng.sample(paths, min(len(paths), 16)):
                value = rng.choice(VALUES)
                file.write_text(json.dumps(changed(content, path, value)))
                try:
                    actual = outputs(directory)
                except (CheckpointError, ValueError, TypeError, FileNotFoundError) as error:
                    assert str(directory) in str(error) and len(str(error)) < 1500, (name, path, value, error)
                else:
                    free = FREE.get(name, ())
                    if free is not None and not (path and path[0] in free) and not (not path and "" in free):
                        np.testing.assert_allclose(actual, expected, atol=1e-6, err_msg=f"{name} {path} {value}")
            file.write_text(original)


# What came through in silence, or as an internal error: the file, the path, the value.
SILENT = [
    ("classifier", "config.json", ("id2label",), {"x": "a"}),
    ("classifier", "config.json", ("id2label",), "abc"),
    ("classifier", "config.json", ("bertzoo",), "x"),
    ("classifier", "config.json", ("bertzoo", "temperature"), "x"),
    ("classifier", "config.json", ("sentence_transformers",), []),
    ("classifier", "config.json", ("type_vocab_size",), 0),
    ("classifier", "config.json", ("type_vocab_size",), 10**9),
    ("classifier", "config.json", ("num_hidden_layers",), True),
    ("classifier", "config.json", ("architectures",), "BertForSequenceClassification"),
    ("classifier", "config.json", ("problem_type",), ["regression"]),
    ("classifier", "tokenizer_config.json", ("do_lower_case",), "x"),
    ("classifier", "tokenizer.json", ("model", "vocab"), {}),
    ("classifier", "tokenizer.json", ("post_processor", "special_tokens"), {}),
    ("st", "modules.json", (0, "path"), 0),
    ("st", "modules.json", (1, "type"), "x"),
    ("st", "modules.json", (), []),
    ("st", "config_sentence_transformers.json", ("prompts",), ["x"]),
    ("st", "config_sentence_transformers.json", ("prompts", "q"), 3),
    ("st", "config_sentence_transformers.json", ("truncate_dim",), 0),
    ("st", "sentence_bert_config.json", ("max_seq_length",), "x"),
    ("st", "sentence_bert_config.json", ("max_seq_length",), 1),
    ("st", "1_Pooling/config.json", ("pooling_mode",), 7),
    ("st", "1_Pooling/config.json", ("pooling_mode_cls_token",), "yes"),
    ("st", "2_Dense/config.json", ("out_features",), 10**9),
    ("st", "2_Dense/config.json", ("bias",), "no"),
]


@pytest.mark.parametrize(("preset", "name", "path", "value"), SILENT, ids=str)
def test_values_that_came_through(presets, tmp_path, preset, name, path, value):
    source = next(directory for directory in presets if directory.name == preset)
    shutil.copytree(source, tmp_path / preset)
    file = tmp_path / preset / name
    file.write_text(json.dumps(changed(json.loads(file.read_text()), path, value)))
    with pytest.raises(ValueError, match=str(tmp_path)):
        presets[source](tmp_path / preset)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "modules.json", "2_Dense/config.json"])
def test_files_that_are_nested_too_deep(presets, tmp_path, name):
    source = next(directory for directory in presets if directory.name == "st")
    shutil.copytree(source, tmp_path / "st")
    (tmp_path / "st" / name).write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    with pytest.raises(CheckpointError, match=f"{tmp_path / 'st' / name} can't be used"):
        presets[source](tmp_path / "st")


def test_a_model_type_of_null_is_none(presets, tmp_path):
    source = next(directory for directory in presets if directory.name == "classifier")
    shutil.copytree(source, tmp_path / "classifier")
    file = tmp_path / "classifier" / "config.json"
    file.write_text(json.dumps(changed(json.loads(file.read_text()), ("model_type",), None)))
    np.testing.assert_array_equal(presets[source](tmp_path / "classifier"), presets[source](source))


@pytest.mark.parametrize(
    ("model_type", "key", "value"),
    [
        ("albert", "embedding_size", [1]),
        ("albert", "inner_group_num", 10**9),
        ("deberta-v2", "position_buckets", 1.5),
        ("deberta-v2", "position_buckets", 10**9),
        ("deberta-v2", "share_att_key", "no"),
        ("deberta-v2", "pos_att_type", 3),
        ("roberta", "pad_token_id", 600),
        ("modernbert", "rope_parameters", {"full_attention": 1}),
        ("modernbert", "rope_parameters", {"full_attention": {"rope_theta": "x"}}),
        ("modernbert", "layer_types", "full_attention"),
        ("modernbert", "global_attn_every_n_layers", 0),
    ],
)
def test_values_of_other_families(model_type, key, value, tmp_path):
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = FAMILIES[model_type].config_class(**sizes, intermediate_size=24)
    bz.Encoder(config).save_to_preset(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    if key == "global_attn_every_n_layers":
        del content["layer_types"]
    (tmp_path / "config.json").write_text(json.dumps({**content, key: value}))
    with pytest.raises(ValueError, match=str(tmp_path)):
        bz.Encoder.from_preset(tmp_path)


def test_half_a_vocabulary_warns(write_checkpoint, tmp_path):
    directory = write_checkpoint(num_hidden_layers=1)[0]
    tokens = json.loads((directory / "tokenizer.json").read_text())["model"]["vocab"]
    (directory / "tokenizer.json").unlink()
    whole = sorted(tokens, key=tokens.get)
    (directory / "vocab.txt").write_text("\n".join(whole[: len(whole) // 2]) + "\n")
    with pytest.warns(UserWarning, match=f"{directory}: the tokenizer has 2. tokens and the model embeddings for 4"):
        bz.SentenceEncoder.from_preset(directory, verbose=False)


def test_no_weights_are_taken_for_others(presets, tmp_path):
    """Files of tensors are checked as the encoder's own are."""
    source = next(directory for directory in presets if directory.name == "st")
    shutil.copytree(source, tmp_path / "st")
    path = tmp_path / "st" / "2_Dense" / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    for name, change in (("linear.weight", lambda t: t * np.inf), ("linear.bias", lambda t: t.astype("int32"))):
        safetensors.numpy.save_file({**tensors, name: change(tensors[name])}, path)
        with pytest.raises(CheckpointError, match=f"2_Dense.*{name}"):
            presets[source](tmp_path / "st")
    os.remove(path)
    with pytest.raises(CheckpointError, match="2_Dense"):
        presets[source](tmp_path / "st")
