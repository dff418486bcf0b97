"""JSON files of a checkpoint: what is wrong with one is told with its name."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.rules import Rule, check

_KINDS = {dict: "object", list: "list"}


def read_json(path: Path, rules: Mapping[str, Rule] | None = None, kind: type = dict) -> Any:
    """The object, or list, in a file.

    Args:
        path: The file.
        rules: What the values of an object must be, where their keys are there.
        kind: dict or list.

    Raises:
        CheckpointError: It can't be read, is no JSON, holds something else, or a value breaks its rule.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} can't be used: {error}") from error
    except RecursionError as error:
        raise CheckpointError(f"{path} can't be used: it is nested too deep") from error
    if not isinstance(content, kind):
        raise CheckpointError(f"{path} can't be used: it holds no JSON {_KINDS[kind]}")
    try:
        check(content, rules or {})
    except ValueError as error:
        raise CheckpointError(f"{path} can't be used: {error}") from error
    return content
