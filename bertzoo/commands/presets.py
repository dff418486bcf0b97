"""`bertzoo list`: the presets that come with the package."""

import json
import math
from pathlib import Path

from bertzoo.commands.screen import show_table


def list_presets() -> None:
    """Show the bundled presets. Their shape is layers × width."""
    from bertzoo.checkpoints.files import bundled_names, bundled_root

    names = bundled_names()
    if not names:
        raise ValueError(f"this installation has no bundled presets: {bundled_root()} holds none.")
    rows = [_describe(bundled_root() / name) for name in names]
    columns = ["name", "family", "shape", "weights", "vocabulary", "heads", "size"]
    show_table(columns, rows, numbers=["weights", "vocabulary", "size"])
    print("A checkpoint of the Hugging Face hub is named hf://owner/name, as in hf://google-bert/bert-base-uncased.")


def _describe(directory: Path) -> list[str]:
    from bertzoo.checkpoints.tensors import open_tensors

    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    with open_tensors(directory) as tensors:
        parameters = sum(math.prod(tensors.shape(name)) for name in tensors)
    size = sum(path.stat().st_size for path in directory.iterdir() if path.is_file())
    heads = [name.split("For", 1)[1] for name in config.get("architectures") or [] if "For" in name]
    shape = f"{config.get('num_hidden_layers')} × {config.get('hidden_size')}"
    return [
        directory.name,
        config.get("model_type", "bert"),
        shape,
        f"{parameters / 1e6:.1f} M",
        f"{config.get('vocab_size', 0):,}",
        ", ".join(heads) or "none",
        f"{size / 1e6:.1f} MB",
    ]
