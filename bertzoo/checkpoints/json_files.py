"""JSON files of a checkpoint, and rules for their values: types and ranges stated as data."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from bertzoo.checkpoints.errors import CheckpointError


@dataclass(frozen=True)
class Rule:
    """What a value must be, as a description for messages and as a test. `rule | other` allows either."""

    description: str
    holds: Callable[[Any], bool]

    def __or__(self, other: "Rule") -> "Rule":
        return Rule(f"{self.description} or {other.description}", lambda value: self.holds(value) or other.holds(value))


NULL = Rule("null", lambda value: value is None)
FLAG = Rule("true or false", lambda value: isinstance(value, bool))
TEXT = Rule("a string", lambda value: isinstance(value, str))


def integer_rule(minimum: int = 0, maximum: float = math.inf) -> Rule:
    """An integer in a range; booleans are not integers."""
    description = "a positive integer" if minimum == 1 else f"an integer of at least {minimum}"
    if maximum < math.inf:
        description = str(minimum) if maximum == minimum else f"{description} and at most {maximum}"
    return Rule(description, lambda value: type(value) is int and minimum <= value <= maximum)


def number_rule(minimum: float = -math.inf, below: float = math.inf) -> Rule:
    """A finite number in a range."""
    description = "a number" + (f" of at least {minimum:g}" if minimum > -math.inf else "")
    if below < math.inf:
        description += f" and below {below:g}"

    def holds(value: Any) -> bool:
        if not isinstance(value, Real) or type(value) is bool:
            return False
        return math.isfinite(value) and minimum <= float(value) < below

    return Rule(description, holds)


def choice_rule(*values: str) -> Rule:
    """One of some strings."""
    description = " or ".join(values) if len(values) < 3 else f"one of {', '.join(values)}"
    return Rule(description, lambda value: isinstance(value, str) and value in values)


def list_rule(item_rule: Rule) -> Rule:
    """A list or tuple whose values all satisfy a rule."""
    description = f"a list, each {item_rule.description}"
    return Rule(description, lambda value: isinstance(value, (list, tuple)) and all(map(item_rule.holds, value)))


def object_rule(value_rule: Rule) -> Rule:
    """An object whose values all satisfy a rule."""
    description = f"an object, each value {value_rule.description}"
    return Rule(description, lambda value: isinstance(value, Mapping) and all(map(value_rule.holds, value.values())))


OBJECT = Rule("an object", lambda value: isinstance(value, Mapping))


def check_values(content: Mapping[str, Any], rules: Mapping[str, Rule], key_prefix: str = "") -> None:
    """Checks the values of the keys that are present.

    Args:
        content: An object of a JSON file.
        rules: What the values must be, by key.
        key_prefix: A prefix of the key in messages, such as "bertzoo.".

    Raises:
        ValueError: A value breaks its rule.
    """
    for key, rule in rules.items():
        if key in content and not rule.holds(content[key]):
            raise ValueError(f"{key_prefix}{key} must be {rule.description}. Received: {content[key]!r:.80}.")


def read_json(path: Path, rules: Mapping[str, Rule] | Rule | None = None, default: Any = None) -> Any:
    """The content of a file.

    Args:
        path: The file.
        rules: What the values of the keys that are present in an object must be, or a rule for the whole content.
        default: What to return if there is no file; None makes that an error.

    Raises:
        CheckpointError: The file can't be read, is no JSON, holds something else, or a value breaks its rule.
    """
    if default is not None and not path.is_file():
        return default
    try:
        content = json.loads(path.read_text("utf-8-sig"))
        if isinstance(rules, Rule):
            check_values({"its content": content}, {"its content": rules})
        elif not isinstance(content, dict):
            raise ValueError("it holds no JSON object")
        else:
            check_values(content, rules or {})
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} can't be used: {error}") from error
    return content


def encode_json(content: Any) -> bytes:
    """The content of a file, as Hugging Face writes it."""
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
