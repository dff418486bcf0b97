"""The catalog of published checkpoints, weights/catalog.toml, which describes them without access to the hub."""

import difflib
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from bertzoo.checkpoints.files import bundled_directory


@dataclass(frozen=True)
class CatalogEntry:
    """One checkpoint of the hub. `parameters` counts the encoder's; `cased` and `licence` are None where unknown."""

    name: str
    config: dict[str, Any]
    parameters: int
    max_length: int
    tasks: tuple[str, ...]
    use: str
    cased: bool | None = None
    licence: str | None = None
    tokenizer_config: bool = True

    @property
    def model_type(self) -> str:
        """The `model_type` of its config.json."""
        return self.config["model_type"]


@lru_cache(maxsize=1)
def load_catalog() -> dict[str, CatalogEntry]:
    """The checkpoints by name, such as "google-bert/bert-base-uncased", in the file's order."""
    content = tomllib.loads((bundled_directory("weights") / "catalog.toml").read_text("utf-8"))
    entries = {}
    for row in content["checkpoints"]:
        config = {**content["shapes"][row.pop("shape")], "vocab_size": row.pop("vocab_size")}
        entries[row["name"]] = CatalogEntry(**{**row, "tasks": tuple(row["tasks"])}, config=config)
    return entries


def find_catalog_entry(name: str) -> CatalogEntry:
    """The entry of a name, with or without "hf://".

    Raises:
        ValueError: The catalog has no such checkpoint.
    """
    catalog = load_catalog()
    name = name.removeprefix("hf://").split("@")[0]
    if name not in catalog:
        short = {full.split("/")[1].lower(): full for full in catalog}
        near = difflib.get_close_matches(name.split("/")[-1].lower(), short, n=3)
        hint = f"; similar names: {', '.join(short[n] for n in near)}" if near else ""
        raise ValueError(f"the catalog has no {name!r}{hint}. `bertzoo list` shows it.")
    return catalog[name]


def is_lowercase_in_catalog(directory: Path) -> bool | None:
    """Whether a downloaded checkpoint whose files do not say so expects lowercased texts; None if unknown.

    The hub's cache names the folders of repositories `models--owner--name`.
    """
    for folder in directory.absolute().parts:
        if folder.startswith("models--"):
            entry = load_catalog().get(folder.removeprefix("models--").replace("--", "/"))
            if entry is not None and not entry.tokenizer_config and entry.cased is not None:
                return not entry.cased
    return None
