import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.saving import recover_interrupted_save, write_preset
from bertzoo.checkpoints.tensors import build_weight_files, open_tensors_in_directory, save_tensors

pytestmark = pytest.mark.once

needs_processes = pytest.mark.skipif(os.name == "nt", reason="kill -9 and fork")


def contents(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def left_overs(directory):
    return [path.name for path in directory.parent.iterdir() if path.name.startswith(f".{directory.name}.")]


def test_a_new_preset_replaces_the_old_and_keeps_foreign_files(tmp_path):
    directory = tmp_path / "preset"
    (directory / "training_state").mkdir(parents=True)
    kept = ["README.md", "training_state/step"]
    weights = ["model.safetensors", "model-00001-of-00002.safetensors", "model.safetensors.index.json"]
    weights += ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"]
    for name in [*kept, "config.json", *weights]:
        (directory / name).write_bytes(b"old " + name.encode())
    (directory / "link").symlink_to("README.md")
    write_preset(
        directory, {"config.json": b"new", "1_Pooling/config.json": b"pool", **build_weight_files({"a": np.ones(2)})}
    )
    actual = contents(directory)
    assert actual.pop("model.safetensors") != b"old model.safetensors"
    assert actual == {
        "README.md": b"old README.md",
        "link": b"old README.md",
        "training_state/step": b"old training_state/step",
        "config.json": b"new",
        "1_Pooling/config.json": b"pool",
    }
    assert (directory / "link").is_symlink()
    assert left_overs(directory) == []


def test_a_link_to_a_directory_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "name").symlink_to("real")
    write_preset(tmp_path / "name", {"config.json": b"1"})
    assert (tmp_path / "name").is_symlink()
    assert contents(tmp_path / "real") == {"config.json": b"1"}


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "a/../../x", "", "a\\b", "C:x"])
def test_names_stay_inside(tmp_path, name):
    with pytest.raises(CheckpointError, match="relative name"):
        write_preset(tmp_path / "preset", {name: b""})
    assert list(tmp_path.iterdir()) == []


def test_directories_that_cannot_be_replaced(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="is a file"):
        write_preset(tmp_path / "file", {"config.json": b""})
    with pytest.raises(CheckpointError, match="could not be saved"):
        write_preset(tmp_path / "file" / "preset", {"config.json": b""})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="current directory"):
        write_preset(Path("."), {"config.json": b""})
    assert contents(tmp_path) == {"file": b"x"}


def full(path):
    path.write_bytes(b"part")
    raise OSError(errno.ENOSPC, "No space left on device")


def full_tensors(path):
    save_tensors(path / "is not a folder", {"a": np.ones(3)})


@pytest.mark.parametrize("writer", [full, full_tensors])
def test_a_full_disk_leaves_the_old_preset(tmp_path, writer):
    directory = tmp_path / "preset"
    write_preset(directory, {"config.json": b"old"})
    with pytest.raises(CheckpointError, match=r"preset could not be saved: .*before is unchanged"):
        write_preset(directory, {"config.json": b"new", "model.safetensors": writer})
    assert contents(directory) == {"config.json": b"old"}
    assert left_overs(directory) == []


@pytest.mark.parametrize("failing", range(1, 4))
def test_a_rename_that_fails_leaves_the_old_preset(tmp_path, monkeypatch, failing):
    directory = tmp_path / "preset"
    write_preset(directory, {"config.json": b"old"})
    rename, calls = os.rename, []

    def fail_once(*arguments):
        calls.append(arguments)
        if len(calls) == failing:
            raise PermissionError(errno.EACCES, "Permission denied")
        return rename(*arguments)

    monkeypatch.setattr(os, "rename", fail_once)
    if failing < 3:
        with pytest.raises(CheckpointError, match="Permission denied"):
            write_preset(directory, {"config.json": b"new"})
    else:
        write_preset(directory, {"config.json": b"new"})
    monkeypatch.undo()
    assert contents(directory) == {"config.json": b"new" if failing == 3 else b"old"}


def test_ctrl_c_between_the_renames(tmp_path, monkeypatch):
    directory = tmp_path / "preset"
    write_preset(directory, {"config.json": b"old"})
    rename = os.rename

    def interrupted(source, target):
        if str(source).endswith(".saving") and target == directory:
            raise KeyboardInterrupt
        return rename(source, target)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_preset(directory, {"config.json": b"new"})
    monkeypatch.undo()
    assert contents(directory) == {"config.json": b"old"}
    assert left_overs(directory) == []


# Recovery


def sibling(directory, kind):
    return directory.with_name(f".{directory.name}.{kind}")


def test_a_backup_is_put_back(tmp_path):
    directory = tmp_path / "preset"
    sibling(directory, "backup").mkdir()
    (sibling(directory, "backup") / "config.json").write_bytes(b"old")
    recover_interrupted_save(directory)
    assert contents(directory) == {"config.json": b"old"}
    assert left_overs(directory) == []


def test_what_killed_writers_left_is_cleared(tmp_path):
    directory = tmp_path / "preset"
    directory.mkdir()
    for kind in ("saving", "backup", "discarded"):
        sibling(directory, kind).mkdir()
        (sibling(directory, kind) / "config.json").write_bytes(b"left over")
    foreign = [tmp_path / ".preset.saving-notes", tmp_path / ".other.backup"]
    for path in foreign:
        path.mkdir()
    recover_interrupted_save(directory)
    assert contents(directory) == {} and not sibling(directory, "backup").exists()
    write_preset(directory, {"config.json": b"new"})
    assert contents(directory) == {"config.json": b"new"}
    assert sorted(tmp_path.iterdir()) == sorted([directory, *foreign])


def test_a_reader_between_the_renames(tmp_path, monkeypatch):
    directory, rename, reads = tmp_path / "preset", os.rename, []
    write_preset(directory, {"config.json": b"old"})

    def read_first(source, target):
        if str(source).endswith(".saving") and target == directory and not reads:
            reads.append(source)
            recover_interrupted_save(directory)
            assert contents(directory) == {"config.json": b"old"}
        return rename(source, target)

    monkeypatch.setattr(os, "rename", read_first)
    write_preset(directory, {"config.json": b"new"})
    assert reads and contents(directory) == {"config.json": b"new"}
    assert left_overs(directory) == []


def test_nothing_to_recover(tmp_path):
    recover_interrupted_save(tmp_path / "missing" / "preset")
    recover_interrupted_save(tmp_path / "preset")
    assert list(tmp_path.iterdir()) == []


# Killed writers. One helper process has the module loaded and forks a writer for each order that it reads from stdin,
# so a writer costs a fork, not an import.

HELPER = """
import os, signal, sys, types
from pathlib import Path
for name in ("bertzoo", "bertzoo.checkpoints"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [sys.argv[1] + "/" + name.replace(".", "/")]
import numpy as np
import safetensors.numpy
from bertzoo.checkpoints import saving, tensors

def preset(version):
    weights = {f"t{i}": np.full(500, version, np.float32) for i in range(8)}
    return {"config.json": b'{"version": %d}' % version, **tensors.build_weight_files(weights, 5000)}

def die_at(step):
    count = 0
    def counted(function):
        def call(*arguments, **options):
            nonlocal count
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)
        return call
    for name in ("rename", "fsync", "mkdir", "link", "rmdir", "unlink"):
        setattr(os, name, counted(getattr(os, name)))

assert "keras" not in sys.modules
for line in sys.stdin:
    directory, first, saves, step = line.rsplit(" ", 3)
    pid = os.fork()
    if pid == 0:
        if int(step):
            die_at(int(step))
        for version in range(int(first), int(first) + int(saves)):
            saving.write_preset(Path(directory), preset(version))
        os._exit(0)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture
def helpers():
    started = []

    def start():
        arguments = [sys.executable, "-c", HELPER, Path(__file__).parents[2]]
        started.append(subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.stdin.close()
        process.wait(timeout=20)
        process.stdout.close()


def order(helper, directory, first, saves=1, step=0):
    """Starts a writer and returns its pid; its exit code is the next line that the helper prints."""
    helper.stdin.write(f"{directory} {first} {saves} {step}\n")
    helper.stdin.flush()
    return int(helper.stdout.readline())


def version_of(directory):
    """The one version that config, index and all shards agree on."""
    recover_interrupted_save(directory)
    version = json.loads((directory / "config.json").read_text())["version"]
    with open_tensors_in_directory(directory) as tensors:
        assert sorted(tensors) == [f"t{i}" for i in range(8)]
        for tensor in tensors.values():
            np.testing.assert_array_equal(tensor, np.full(500, version, np.float32))
    assert (directory / "README.md").read_text() == "mine"
    return version


def first_version(directory, helper):
    directory.mkdir()
    (directory / "README.md").write_text("mine")
    order(helper, directory, 0)
    assert helper.stdout.readline() == "0\n"
    assert version_of(directory) == 0


@pytest.mark.slow
@needs_processes
def test_killed_at_every_step(tmp_path, helpers):
    directory, helper = tmp_path / "preset", helpers()
    first_version(directory, helper)
    outcomes, old = [], 0
    for step in range(1, 200):
        new = old + 1
        order(helper, directory, new, step=step)
        code = int(helper.stdout.readline())
        version = version_of(directory)
        assert version in (old, new)
        assert not sibling(directory, "backup").exists()
        outcomes.append(version == new)
        old = version
        if code == 0:
            break
    assert code == 0 and version == new
    assert left_overs(directory) == []
    assert step > 15
    assert outcomes == sorted(outcomes)  # killed early it is the old one, killed late the new one


@pytest.mark.slow
@needs_processes
def test_killed_50_times_at_random(tmp_path, helpers):
    directory, helper = tmp_path / "preset", helpers()
    first_version(directory, helper)
    generator = random.Random(1)
    version = 0
    for _ in range(50):
        pid = order(helper, directory, version + 1, saves=1000)
        time.sleep(generator.uniform(0, 0.06))
        os.kill(pid, signal.SIGKILL)
        assert int(helper.stdout.readline()) == -signal.SIGKILL
        actual = version_of(directory)
        assert version <= actual < version + 1000
        version = actual
    order(helper, directory, version + 1)
    assert helper.stdout.readline() == "0\n"
    assert left_overs(directory) == []
    assert version > 0
