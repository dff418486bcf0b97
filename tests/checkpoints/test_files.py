import fnmatch
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import errors

import bertzoo as bz
import bertzoo.backend
import bertzoo.checkpoints.files
from bertzoo.checkpoints import files
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.files import (
    bundled_preset_names,
    bundled_presets_directory,
    find_preset_directory,
    upload_preset,
)

pytestmark = pytest.mark.once


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    return folder


@pytest.fixture
def bundled(tmp_path, monkeypatch):
    root = write(tmp_path / "weights", "tiny/config.json", "small/config.json", "catalog.json", "notes/README.md")
    monkeypatch.setattr(files, "bundled_presets_directory", lambda: root)
    monkeypatch.chdir(write(tmp_path / "elsewhere", "x").absolute())
    return root


# Directories and bundled presets


def test_a_directory_as_text_or_path(tmp_path, monkeypatch):
    folder = write(tmp_path / "preset", "config.json")
    assert find_preset_directory(str(folder)) == find_preset_directory(folder) == folder
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_preset_directory("~/preset") == folder


def test_a_directory_whose_replacement_was_cut_short(tmp_path):
    write(tmp_path / ".preset.backup", "config.json")
    assert find_preset_directory(tmp_path / "preset") == tmp_path / "preset"
    assert (tmp_path / "preset" / "config.json").is_file()


def test_a_bundled_name(bundled):
    assert bundled_preset_names() == ["small", "tiny"]
    assert find_preset_directory("tiny") == bundled / "tiny"


def test_an_unknown_name_lists_the_known(bundled):
    with pytest.raises(CheckpointError, match=r'no preset \'bert\'.* small, tiny.*"hf://owner/name"'):
        find_preset_directory("bert")
    with pytest.raises(CheckpointError, match='write "hf://google-bert/bert-base-uncased"'):
        find_preset_directory("google-bert/bert-base-uncased")
    for name in ("../weights/notes", "notes"):
        with pytest.raises(CheckpointError):
            find_preset_directory(name)


def test_what_is_no_checkpoint(tmp_path):
    write(tmp_path / "other", "model.pb", "vocab.txt")
    with pytest.raises(CheckpointError, match=r"no config\.json\. It holds model\.pb, vocab\.txt"):
        find_preset_directory(tmp_path / "other")
    with pytest.raises(CheckpointError, match=r"vocab\.txt is a file"):
        find_preset_directory(tmp_path / "other" / "vocab.txt")


def test_where_the_bundled_presets_are(tmp_path, monkeypatch):
    monkeypatch.setattr(bertzoo.checkpoints.files, "__file__", str(tmp_path / "site/bertzoo/checkpoints/files.py"))
    assert bundled_presets_directory() == tmp_path / "site" / "bertzoo" / "_bundled" / "weights"
    write(tmp_path / "site", "weights/__init__.py")  # a package of that name in site-packages
    assert bundled_presets_directory() == tmp_path / "site" / "bertzoo" / "_bundled" / "weights"
    write(tmp_path / "site", "pyproject.toml")
    assert bundled_presets_directory() == tmp_path / "site" / "weights"


# The hub


class Hub:
    """Stands for `snapshot_download`: a repository of the given names, filtered as the hub filters them."""

    def __init__(self, cache, names):
        self.cache, self.names, self.revisions, self.fetched = cache, names, [], set()
        cache.mkdir(exist_ok=True)

    def __call__(self, repo_id, *, revision=None, allow_patterns):
        assert repo_id == "owner/name"
        self.revisions.append(revision)
        for name in self.names:
            if any(fnmatch.fnmatch(name, pattern) for pattern in allow_patterns):
                write(self.cache, name)
                self.fetched.add(name)
        return str(self.cache)


SMALL = ["config.json", "tokenizer.json", "vocab.txt", "modules.json", "1_Pooling/config.json", "2_Dense/config.json"]
USELESS = [
    "README.md", "rust_model.ot", "onnx/model.onnx", "onnx/config.json",
    "checkpoint-5/model.safetensors", "checkpoint-5/trainer_state.json", "model.fp16.safetensors", "training_args.bin",
    "openvino/openvino_model.bin", "remote_code.py",
]  # fmt: skip
BOTH = ["model.safetensors", "pytorch_model.bin"]
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
TF_SHARDS = ["tf_model-00001-of-00002.h5", "tf_model-00002-of-00002.h5", "tf_model.h5.index.json"]
FLAX_SHARDS = ["flax_model-00001-of-00001.msgpack", "flax_model.msgpack.index.json"]
TORCH_SHARDS = ["pytorch_model-00001-of-00001.bin", "pytorch_model.bin.index.json"]


@pytest.mark.parametrize(
    ("weights", "fetched"),
    [
        (BOTH, ["model.safetensors"]),
        (BOTH + SHARDS, ["model.safetensors"]),
        (SHARDS + TORCH_SHARDS, SHARDS),
        (["pytorch_model.bin"], ["pytorch_model.bin"]),
        (TORCH_SHARDS, TORCH_SHARDS),
        (["tf_model.h5", "flax_model.msgpack", *BOTH], ["model.safetensors"]),
        (["tf_model.h5", "flax_model.msgpack"], ["tf_model.h5"]),
        (["flax_model.msgpack"], ["flax_model.msgpack"]),
        (TF_SHARDS, TF_SHARDS),
        (FLAX_SHARDS, FLAX_SHARDS),
    ],
)
def test_only_what_is_needed_is_fetched(tmp_path, monkeypatch, weights, fetched):
    hub = Hub(tmp_path / "cache", [*SMALL, *USELESS, *weights])
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    assert find_preset_directory("hf://owner/name@v1.0/x") == tmp_path / "cache"
    assert hub.fetched == {*SMALL, *fetched}
    assert set(hub.revisions) == {"v1.0/x"}


def test_a_repository_without_weights_or_config(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Hub(tmp_path / "a", ["config.json", "rust_model.ot"]))
    with pytest.raises(CheckpointError, match=r"has none of model\.safetensors"):
        find_preset_directory("hf://owner/name")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Hub(tmp_path / "b", ["model.safetensors"]))
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        find_preset_directory("hf://owner/name")


@pytest.mark.parametrize("name", ["hf://", "hf://name", "hf://a/b/c", "hf://a/b@", "hf:///b", "hf://a/../b"])
def test_hub_names(name):
    with pytest.raises(CheckpointError, match='"hf://owner/name"'):
        find_preset_directory(name)


@pytest.mark.slow
def test_the_cache_is_used_without_a_network(tmp_path):
    """The real `snapshot_download`, offline, on a cache that is laid out as the hub lays it out."""
    commit = "0123456789" * 4
    repository = tmp_path / "models--owner--name"
    write(repository / "snapshots" / commit, "config.json", "model.safetensors")
    write(repository, "refs/main")
    (repository / "refs" / "main").write_text(commit)
    code = (
        "from bertzoo.checkpoints.files import find_preset_directory\n"
        "print(find_preset_directory('hf://owner/name'))\n"
        "try:\n    find_preset_directory('hf://owner/absent')\nexcept ValueError as error:\n    print(error)\n"
    )
    result = run_offline(code, tmp_path)
    assert result[0] == str(repository / "snapshots" / commit)
    assert "hf://owner/absent is not in the local cache" in result[1]


def run_offline(code, cache):

    stubs = (
        "import sys, types\n"
        "for name in ('bertzoo', 'bertzoo.checkpoints'):\n"
        "    sys.modules[name] = types.ModuleType(name)\n"
        f"    sys.modules[name].__path__ = [{str(Path(__file__).parents[2])!r} + '/' + name.replace('.', '/')]\n"
    )
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(cache)}
    result = subprocess.run([sys.executable, "-c", stubs + code], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def response(status):
    # A stand-in: the HTTP library that the hub's errors come from differs between its versions.
    return SimpleNamespace(status_code=status, headers={}, request=None)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (lambda: errors.GatedRepoError("x", response=response(403)), "is gated"),
        (lambda: errors.RepositoryNotFoundError("x", response=response(404)), "no repository owner/name"),
        (lambda: errors.RevisionNotFoundError("x", response=response(404)), "no revision 'v9'"),
        (lambda: errors.LocalEntryNotFoundError("x"), "cannot be reached"),
        (lambda: errors.HFValidationError("x"), "no valid hub name"),
        (lambda: errors.HfHubHTTPError("broken", response=response(500)), "could not be downloaded: broken"),
        (lambda: OSError(28, "No space left on device"), "No space left"),
    ],
)
def test_refusals_of_the_hub_are_explained(monkeypatch, error, message):
    def refuse(*_, **__):
        raise error()

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(CheckpointError, match=message):
        find_preset_directory("hf://owner/name@v9")


# Uploading


class Api:
    calls: list

    def __init__(self, token=None):
        Api.calls = [("token", token)]

    def create_repo(self, repo_id, *, private=None, exist_ok=False):
        Api.calls.append(("create", repo_id, private, exist_ok))
        return f"https://hub.test/{repo_id}"

    def upload_folder(self, *, repo_id, folder_path, commit_message, ignore_patterns, delete_patterns):
        old = [
            "model-00001-of-00002.safetensors",
            "model.safetensors",
            "pytorch_model.bin",
            "README.md",
            "a/adapter.safetensors",
        ]
        matches = [name for name in old if any(fnmatch.fnmatch(name, pattern) for pattern in delete_patterns)]
        Api.calls.append(("upload", repo_id, Path(folder_path), commit_message, ignore_patterns, matches))


def test_push_makes_the_repository_and_uploads(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    folder = write(tmp_path / "preset", "config.json", "model.safetensors")
    address = upload_preset(folder, "owner/name", private=True, token="secret", commit_message="first")
    assert address == "https://hub.test/owner/name"
    assert Api.calls == [
        ("token", "secret"),
        ("create", "owner/name", True, True),
        (
            "upload", "owner/name", folder, "first", ["training_state/*"],
            ["model-00001-of-00002.safetensors", "model.safetensors", "pytorch_model.bin"],
        ),
    ]  # fmt: skip


def test_push_refuses_what_is_no_checkpoint_and_explains_refusals(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise errors.HfHubHTTPError("403 Forbidden", response=response(403))

    monkeypatch.setattr(Api, "create_repo", refuse)
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    with pytest.raises(CheckpointError, match="403 Forbidden"):
        upload_preset(write(tmp_path / "preset", "config.json"), "owner/name")
    shutil.rmtree(tmp_path / "preset")
    with pytest.raises(CheckpointError, match="no checkpoint"):
        upload_preset(tmp_path / "preset", "owner/name")


def test_home_directories_that_nobody_knows(monkeypatch):
    with pytest.raises(CheckpointError, match="~nobody-of-this-name/x: there is no such home directory"):
        find_preset_directory("~nobody-of-this-name/x")
    with pytest.raises(CheckpointError, match="no such home directory"):
        bz.SentenceEncoder.from_preset("~nobody-of-this-name/x")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda number: (_ for _ in ()).throw(KeyError(number)))
    with pytest.raises(CheckpointError, match="HOME is not set"):
        find_preset_directory("~/x")
    with pytest.raises(CheckpointError, match="no preset"):
        find_preset_directory("x/y")
    monkeypatch.delenv("KERAS_HOME", raising=False)
    assert bertzoo.backend._from_keras_json() is None


def test_a_pushed_task_has_a_card_unless_the_repository_has_one(checkpoint, monkeypatch):
    cards = {}
    known = {"owner/old"}

    def upload(self, *, repo_id, folder_path, **options):
        path = Path(folder_path) / "README.md"
        cards[repo_id] = path.read_text() if path.exists() else None

    monkeypatch.setattr(Api, "upload_folder", upload)
    monkeypatch.setattr(Api, "file_exists", lambda self, repo, name: repo in known, raising=False)
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    model = bz.TextClassifier.from_preset(checkpoint[0], labels=["u", "v"], verbose=False)
    for name in ("owner/new", "owner/old"):
        model.push_to_hub(name)
    assert cards["owner/old"] is None
    card = huggingface_hub.ModelCard(cards["owner/new"])
    assert card.data.pipeline_tag == "text-classification" and card.data.library_name == "bertzoo"
    assert 'bz.TextClassifier.from_preset("hf://owner/new")' in card.text and "u, v" in card.text
