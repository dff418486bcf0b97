"""Finds presets: directories, bundled presets and repositories of the Hugging Face hub; uploads presets."""

import os
import re
from pathlib import Path

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.formats import is_checkpoint
from bertzoo.checkpoints.hub import ROUTER_FILE, SMALL_FILES, download
from bertzoo.checkpoints.json_files import read_json
from bertzoo.checkpoints.saving import recover_interrupted_save
from bertzoo.checkpoints.tensors import FLAX_FILE, SINGLE_FILE, TF_FILE, TORCH_FILE, WEIGHT_FILES

_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
_SHARDS = {
    f"{SINGLE_FILE}.index.json": "model-?????-of-?????.safetensors",
    f"{TORCH_FILE}.index.json": "pytorch_model-?????-of-?????.bin",
    f"{TF_FILE}.index.json": "tf_model-?????-of-?????.h5",
    f"{FLAX_FILE}.index.json": "flax_model-?????-of-?????.msgpack",
}


def find_preset_directory(preset: str | os.PathLike) -> Path:
    """The directory of a preset.

    Args:
        preset: A directory, the name of a bundled preset, or `hf://owner/name[@revision]`, which is downloaded unless
            the cache has it.

    Raises:
        CheckpointError: There is none, or the directory holds no checkpoint of a known format.
    """
    name = os.fspath(preset)
    if name.startswith("hf://"):
        return _checkpoint(_from_hub(name))
    path = expand_user(name)
    recover_interrupted_save(path)
    if path.is_dir():
        return _checkpoint(path)
    if path.exists():
        raise CheckpointError(f"{path} is a file; a directory with config.json and weights is expected.")
    if name in bundled_preset_names():
        return bundled_presets_directory() / name
    hint = f' For the hub write "hf://{name}".' if re.fullmatch(r"[\w.-]+/[\w.-]+", name) else ""
    raise CheckpointError(
        f"There is no preset {name!r}: no such directory, and the bundled ones are "
        f"{', '.join(bundled_preset_names()) or 'none'}. "
        f'Presets of the Hugging Face hub are written "hf://owner/name" or "hf://owner/name@revision".{hint}'
    )


def expand_user(path: str | os.PathLike) -> Path:
    """A path with `~` replaced by the home directory.

    Raises:
        CheckpointError: There is no such home directory.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise CheckpointError(
            f"{os.fspath(path)}: there is no such home directory (no user of that name, or HOME is not set); write the "
            "path in full."
        ) from error


def find_adapter_directory(adapter: str | os.PathLike) -> Path:
    """The directory of a PEFT adapter, `hf://owner/name[@revision]` or a directory.

    Raises:
        CheckpointError: The name is malformed, or the download fails.
    """
    name = os.fspath(adapter)
    return download(name, _ADAPTER_FILES) if name.startswith("hf://") else expand_user(name)


def find_static_directory(preset: str | os.PathLike) -> Path:
    """The directory of static vectors, `hf://owner/name[@revision]` or a directory.

    Raises:
        CheckpointError: There is none, the name is malformed, or the download fails.
    """
    name = os.fspath(preset)
    if name.startswith("hf://"):
        return download(name, [*SMALL_FILES, SINGLE_FILE, "[0-9]_*/tokenizer.json"])
    path = expand_user(name)
    recover_interrupted_save(path)
    if not path.is_dir():
        raise CheckpointError(f"preset must be a directory of static vectors or hf://owner/name. Received: {name!r}.")
    return path


def bundled_presets_directory() -> Path:
    """The folder of the bundled presets."""
    return bundled_directory("weights")


def bundled_directory(name: str) -> Path:
    """The folder "weights" or "course": the checkout's, otherwise the copy in the wheel."""
    package = Path(__file__).resolve().parents[1]
    checkout = package.parent
    # pyproject.toml distinguishes a checkout from a site-packages folder that happens to hold a package of that name.
    if (checkout / name).is_dir() and (checkout / "pyproject.toml").is_file():
        return checkout / name
    return package / "_bundled" / name


def bundled_preset_names() -> list[str]:
    """The names of the bundled presets, sorted."""
    return sorted(path.parent.name for path in bundled_presets_directory().glob("*/config.json"))


def upload_preset(
    directory: Path,
    repo_id: str,
    private: bool | None = None,
    token: str | None = None,
    commit_message: str = "Upload a bertzoo preset",
    model_card: str | None = None,
) -> str:
    """Uploads a preset to the Hugging Face hub, without its `training_state/`.

    Weights of another form in the repository are deleted: a loader would prefer an old model.safetensors to new shards.

    Args:
        directory: The preset.
        repo_id: "owner/name"; the repository is created if need be.
        private: Create the repository private; the owner's default where None.
        token: A token with the right to write; the stored login where None.
        commit_message: The message of the commit.
        model_card: The text of README.md, where the repository has none.

    Returns:
        The repository's address.

    Raises:
        CheckpointError: The hub refuses the upload.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    directory = _checkpoint(directory)
    api = HfApi(token=token)
    try:
        address = api.create_repo(repo_id, private=private, exist_ok=True)
        if (
            model_card is not None
            and not (directory / "README.md").exists()
            and not api.file_exists(repo_id, "README.md")
        ):
            (directory / "README.md").write_text(model_card, encoding="utf-8")
        api.upload_folder(
            repo_id=repo_id,
            folder_path=directory,
            commit_message=commit_message,
            ignore_patterns=["training_state/*"],
            delete_patterns=[*WEIGHT_FILES, *_SHARDS.values()],
        )
    except (HfHubHTTPError.__bases__[0], OSError) as error:  # type: ignore[misc]  # see _download
        raise CheckpointError(
            f"{directory} could not be uploaded to {repo_id}: {error}. May the token write?"
        ) from error
    return str(address)


def _checkpoint(directory: Path) -> Path:
    if is_checkpoint(directory) or (directory / ROUTER_FILE).is_file():
        return directory
    _refuse_adapter(directory, directory)
    held = sorted(entry.name for entry in directory.iterdir()) if directory.is_dir() else []
    raise CheckpointError(
        f"{directory} is no checkpoint: it has no config.json. It holds {', '.join(held[:20]) or 'nothing'}."
    )


def _refuse_adapter(directory: Path, name: object) -> None:
    """Refuses a directory that holds an adapter and no model, with the way to load it."""
    path = directory / _ADAPTER_FILES[0]
    if path.is_file():
        base = read_json(path).get("base_model_name_or_path") or "its base model"
        raise CheckpointError(
            f"{name} holds a PEFT adapter, not a model: load the model that it was trained on, {base!s:.200}, with "
            f'from_preset, then call bertzoo.adapters.load_adapter(model, "{name}").'
        )


def _from_hub(name: str) -> Path:
    # One form of the weights is fetched: the first that the repository has, in the order in which they would be read.
    for weights in WEIGHT_FILES:
        shards = [_SHARDS[weights]] if weights in _SHARDS else []
        folder = download(name, [*SMALL_FILES, _ADAPTER_FILES[0], weights, *shards])
        if (folder / weights).is_file() or any(folder.glob(f"*_[0-9]_*/{weights}")):
            return folder
    _refuse_adapter(folder, name)
    raise CheckpointError(
        f"{name} has none of {', '.join(WEIGHT_FILES)}, or the cache {folder} holds only a part of it; "
        "if this machine is offline, download it once while connected."
    )
