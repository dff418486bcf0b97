"""Checkpoints that are damaged, contradict themselves or are hostile: one clear error each, and nothing runs.

NaN and infinity in weights are errors too: a model that holds them gives nothing but NaN.
"""

import json
import os
import pickle
import shutil
import struct
import zipfile

import numpy as np
import pytest
import safetensors.numpy

import bertzoo as bz

pytestmark = pytest.mark.once

QUERY = "encoder.layer.1.attention.self.query.weight"


class Touch:
    """What unpickling would run."""

    def __reduce__(self):
        return os.system, ("touch executed",)


def config(**changes):
    def spoil(directory):
        path = directory / "config.json"
        content = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))

    return spoil


def text(name, content):
    return lambda directory: (directory / name).write_text(content)


def tensors(change):
    def spoil(directory):
        path = directory / "model.safetensors"
        state = safetensors.numpy.load_file(path)
        change(state)
        safetensors.numpy.save_file(state, path)

    return spoil


def tensor(change, name=QUERY):
    return tensors(lambda state: state.update({name: change(state[name])}))


def poison(value):
    def change(array):
        array = array.copy()
        array[3, 4] = value
        return array

    return change


def raw(change):
    def spoil(directory):
        path = directory / "model.safetensors"
        path.write_bytes(change(path.read_bytes()))

    return spoil


def header(change):
    """Another header over the same numbers."""

    def rewrite(data):
        (size,) = struct.unpack("<Q", data[:8])
        new = change(data[8 : 8 + size].decode()).encode()
        return struct.pack("<Q", len(new)) + new + data[8 + size :]

    return raw(rewrite)


def described(change):
    def rewrite(text):
        content = json.loads(text)
        change(content[QUERY])
        return json.dumps(content)

    return header(rewrite)


def index(shard, more=()):
    def spoil(directory):
        os.rename(directory / "model.safetensors", directory / "model-00001-of-00002.safetensors")
        names = safetensors.numpy.load_file(directory / "model-00001-of-00002.safetensors")
        weight_map = dict.fromkeys([*names, *more], "model-00001-of-00002.safetensors")
        content = {"weight_map": weight_map if shard is None else {**weight_map, QUERY: shard}}
        (directory / "model.safetensors.index.json").write_text(json.dumps(content))

    return spoil


def archive(members, compression=zipfile.ZIP_STORED):
    def spoil(directory):
        (directory / "model.safetensors").unlink()
        with zipfile.ZipFile(directory / "pytorch_model.bin", "w", compression) as file:
            for name, data in members:
                file.writestr(name, data)

    return spoil


def linked(target):
    def spoil(directory):
        (directory / "model.safetensors").unlink()
        (directory / "model.safetensors").symlink_to(target)

    return spoil


def fairseq(directory):
    for path in directory.iterdir():
        path.unlink()
    with zipfile.ZipFile(directory / "model.pt", "w") as file:
        file.writestr("model/data.pkl", pickle.dumps({"args": Touch(), "model": {}}, 2))


def double_spelling(state):
    state["bert." + QUERY] = state[QUERY].copy()


def remove(name):
    return lambda directory: (directory / name).unlink()


def larger_vocabulary(directory):
    """Vocabulary mismatch: the tokenizer gives ids for which there are no embeddings."""
    (directory / "tokenizer.json").unlink()
    (directory / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(99))])
    )


PICKLE = pickle.dumps({QUERY: Touch()}, 2)
MALFORMED = {
    # the configuration
    "no config": (remove("config.json"), "has no config.json"),
    "config is no JSON": (text("config.json", '{"model_type": '), "config.json can't be used"),
    "config is a list": (text("config.json", "[]"), "config.json can't be used: it holds no JSON object"),
    "config nested beyond measure": (text("config.json", "[" * 100_000), "config.json can't be used"),
    "another model": (config(model_type="gpt2"), "model_type 'gpt2'"),
    "a model type that is no name": (config(model_type=["bert"]), "model_type"),
    "code of its own": (config(model_type=None, auto_map={"AutoModel": "os.system"}), "auto_map and no model_type"),
    "unknown activation": (config(hidden_act="__import__('os').system('touch executed')"), "hidden_act must be one of"),
    "heads do not divide": (config(num_attention_heads=5), "multiple of num_attention_heads"),
    "negative layers": (config(num_hidden_layers=-1), "num_hidden_layers must be a positive integer. Received: -1"),
    "layers beyond memory": (config(num_hidden_layers=10**9), "num_hidden_layers = 1000000000, which takes more"),
    "vocabulary beyond memory": (config(vocab_size=10**12), "vocab_size = 1000000000000, which takes more"),
    "size is text": (config(hidden_size="32"), "hidden_size must be a positive integer. Received: '32'"),
    "size is missing": (config(hidden_size=None), "lacks hidden_size"),
    "decoder": (config(is_decoder=True), "is_decoder = True"),
    "more layers than tensors": (config(num_hidden_layers=3), r"lacks 16 tensors.*encoder\.layer\.2\."),
    # the tensors
    "wrong shape": (tensor(lambda t: t[:, :16]), rf"{QUERY} has shape \(32, 16\).*\(32, 32\)"),
    "vocabulary of another size": (config(vocab_size=60), r"word_embeddings\.weight has shape .*\(60, 32\)"),
    "NaN": (tensor(poison(np.nan)), r"layer\.1\.attention\.self\..*not finite \(NaN or infinity\)"),
    "infinity": (tensor(poison(-np.inf)), r"layer\.1\.attention\.self\..*not finite \(NaN or infinity\)"),
    "integers": (tensor(lambda t: t.astype("int32")), rf"{QUERY} holds int32, not floating-point"),
    "missing tensor": (tensors(lambda state: state.pop(QUERY)), rf"lacks 3 tensors.*{QUERY}"),
    "a tensor twice": (tensors(double_spelling), rf"one tensor twice, as .*{QUERY} and as .*{QUERY}"),
    # safetensors
    "empty file": (raw(lambda data: b""), r"model\.safetensors is empty"),
    "truncated": (raw(lambda data: data[: len(data) // 2]), r"model\.safetensors .*truncated, damaged"),
    "huge header": (raw(lambda data: struct.pack("<Q", 1 << 62) + data[8:]), r"model\.safetensors .*damaged"),
    "header is no JSON": (header(lambda text: text[:-10]), r"model\.safetensors .*damaged"),
    "negative size": (described(lambda row: row.update(shape=[-32, -32])), r"model\.safetensors .*damaged"),
    "overlapping tensors": (described(lambda row: row.update(data_offsets=[0, 4096])), "damaged"),
    "beyond the end": (described(lambda row: row.update(data_offsets=[1 << 40, (1 << 40) + 4096])), "damaged"),
    "a web page": (raw(lambda data: b"<!DOCTYPE html><html>"), "web page"),
    "a pointer of Git LFS": (raw(lambda data: b"version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"),
    # several files, links
    "no weights": (remove("model.safetensors"), "No weights in"),
    "index leads out": (index("../outside.safetensors"), "a plain file name is expected"),
    "index to the root": (index("/etc/passwd"), "a plain file name is expected"),
    "absent shard": (index("model-00002-of-00002.safetensors"), r"missing: model-00002-of-00002\.safetensors"),
    "a tensor that its shard lacks": (index(None, ["encoder.x"]), "holds encoder.x, but it does not"),
    "link out": (linked("../outside.txt"), r"model\.safetensors .*no safetensors file"),
    "link to nothing": (linked("../absent"), "No weights in"),
    # pickles
    "hostile pickle": (archive([("archive/data.pkl", PICKLE)]), r"names '(posix|nt)\.system'.*nothing of it was run"),
    "hostile fairseq": (fairseq, r"model\.pt.*names '(posix|nt)\.system'.*nothing of it was run"),
    "zip bomb": (
        archive([("archive/data.pkl", b"\0" * (1 << 24))], zipfile.ZIP_DEFLATED),
        "compressed or encrypted; torch.save never does so",
    ),
    "no pickle in the archive": (archive([("../../x", b"1")]), "0 data.pkl where one is expected"),
    # the tokenizer
    "vocabularies that do not match": (larger_vocabulary, "104 tokens and the model embeddings for"),
    "no tokenizer": (text("tokenizer.json", "{"), r"tokenizer\.json is not a tokenizer"),
}


def files(folder):
    return {path.relative_to(folder): path.lstat().st_size for path in folder.rglob("*")}


@pytest.mark.parametrize("kind", MALFORMED)
def test_one_clear_error_and_nothing_runs(kind, checkpoint, tmp_path, monkeypatch, capsys):
    spoil, message = MALFORMED[kind]
    directory = tmp_path / "preset"
    shutil.copytree(checkpoint[0], directory)
    (tmp_path / "outside.txt").write_text("secret and more than eight bytes long")
    monkeypatch.chdir(tmp_path)
    spoil(directory)
    before = files(tmp_path)
    with pytest.raises(ValueError, match=message) as error:
        bz.TextClassifier.from_preset(directory)
    assert files(tmp_path) == before
    assert capsys.readouterr().out == ""
    assert "secret" not in str(error.value) and len(str(error.value)) < 1000
