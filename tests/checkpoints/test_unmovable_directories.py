"""Directories that cannot be renamed or written: mount points, mounts inside a preset, folders of the system."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bertzoo as bz
from bertzoo.checkpoints import saving
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.saving import check_writable, write_preset

pytestmark = pytest.mark.once

UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]


def can_mount() -> bool:
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, timeout=30).returncode == 0
    except OSError:
        return False


needs_mounts = pytest.mark.skipif(not can_mount(), reason="needs Linux's unshare")


def mounted(commands: str, code: str, folder: Path) -> str:
    """Runs shell commands, then Python, where mounts are seen by nobody else; -> what was printed."""
    root = str(Path(bz.__file__).resolve().parents[1])
    script = f"set -e\n{commands}\n{sys.executable} -c '{code}'"
    env = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run([*UNSHARE, "sh", "-c", script], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


WRITE = """
from pathlib import Path
from bertzoo.checkpoints.saving import write_preset, check_writable
check_writable(Path("out"))
write_preset(Path("out"), {"config.json": b"new", "1_Pooling/config.json": b"pool", "model.safetensors": b"w"})
for path in sorted(Path("out").rglob("*")):
    if path.is_file(): print(path.relative_to("out"), path.read_text())
"""
NEW = ["1_Pooling/config.json pool", "config.json new", "model.safetensors w"]


@needs_mounts
@pytest.mark.parametrize("kind", ["mount -t tmpfs none out/data", "mkdir ../other; mount --bind ../other out/data"])
def test_what_is_mounted_inside_a_preset_stays(tmp_path, kind):
    """A container's volume: a file system of its own, or a folder of the same one, which has the same device number."""
    directory = tmp_path / "here" / "out"
    (directory / "data").mkdir(parents=True)
    (directory / "config.json").write_text("old")
    (directory / "pytorch_model.bin").write_text("old")
    printed = mounted(f"{kind}\necho precious > out/data/file", WRITE, tmp_path / "here")
    assert [line for line in printed.splitlines() if line] == [*NEW[:2], "data/file precious", NEW[2]]
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["out"]


@needs_mounts
@pytest.mark.parametrize("before", ["", "echo old > out/config.json; echo old > out/model-00001-of-00002.safetensors"])
def test_a_mount_point_is_saved_into(tmp_path, before):
    (tmp_path / "out").mkdir()
    printed = mounted(f"mount -t tmpfs none out\nmkdir out/lost+found\n{before}", WRITE, tmp_path)
    assert printed.splitlines() == NEW


def test_a_full_disk_leaves_the_files_of_a_directory_that_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "_holds_mount", lambda folder: True)
    directory = tmp_path / "out"
    directory.mkdir()
    (directory / "config.json").write_bytes(b"old")

    def full(path):
        path.write_bytes(b"part")
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match=r"could not be saved: .*before is unchanged"):
        write_preset(directory, {"config.json": b"new", "model.safetensors": full})
    assert [(path.name, path.read_bytes()) for path in directory.iterdir()] == [("config.json", b"old")]


@pytest.mark.parametrize("path", ["/proc/nowhere/out", "/dev/null/out", "/dev/null"])
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="Linux's")
def test_a_directory_that_cannot_be_written_is_refused_before_the_work(path, tmp_path):
    """Of root too, to whom every folder looks writable. The table does not exist: nobody has looked at it yet."""
    from typer.testing import CliRunner

    from bertzoo.cli.main import app

    with pytest.raises(CheckpointError, match=path):
        check_writable(Path(path))
    table = str(tmp_path / "table.csv")
    (tmp_path / "empty.toml").write_text("[encoder]\n[training]\nsteps = 1\nlearning_rate = 1\n[[batches]]\n")
    commands = [
        ["fit", table, "--out", path],
        ["grid", table, "--out", path],
        ["convert", "bert_mini_en", path],
        ["pretrain", str(tmp_path / "empty.toml"), "--corpus", str(tmp_path), "--out", path],
        ["prepare", table, "--out", path],
    ]
    for command in commands:
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 1 and path in result.output, (command, result.output)


def test_files_too(tmp_path):
    from typer.testing import CliRunner

    from bertzoo.cli.main import app

    for command in (["compare", "bert_mini_en", "x"], ["embed", "a text"], ["predict", "x", "text"]):
        suffix = {"compare": "json", "embed": "npy", "predict": "csv"}[command[0]]
        result = CliRunner().invoke(app, [*command, "--out", f"/proc/out.{suffix}"])
        assert result.exit_code == 1 and f"/proc/out.{suffix} can't be written" in result.output, result.output
