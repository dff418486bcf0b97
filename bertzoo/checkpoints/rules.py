"""What a value of a JSON file must be: types and ranges, stated as data and checked wherever a file is read."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any


@dataclass(frozen=True)
class Rule:
    """What a value must be, in words and as a test. `rule | other` allows either."""

    says: str
    holds: Callable[[Any], bool]

    def __or__(self, other: "Rule") -> "Rule":
        return Rule(f"{self.says} or {other.says}", lambda value: self.holds(value) or other.holds(value))


NULL = Rule("null", lambda value: value is None)
FLAG = Rule("true or false", lambda value: isinstance(value, bool))
TEXT = Rule("a string", lambda value: isinstance(value, str))


def whole(least: int = 0, most: float = math.inf) -> Rule:
    """An integer in a range; true and false are none."""
    says = "a positive integer" if least == 1 else f"an integer of at least {least}"
    if most < math.inf:
        says += f" and at most {most}"
    return Rule(says, lambda value: type(value) is int and least <= value <= most)


def number(least: float = -math.inf, below: float = math.inf) -> Rule:
    """A finite number in a range."""
    says = "a number" + (f" of at least {least:g}" if least > -math.inf else "")
    if below < math.inf:
        says += f" and below {below:g}"

    def holds(value):
        return isinstance(value, Real) and type(value) is not bool and math.isfinite(value) and least <= value < below

    return Rule(says, holds)


def choice(*values: str) -> Rule:
    """One of some strings."""
    says = " or ".join(values) if len(values) < 3 else f"one of {', '.join(values)}"
    return Rule(says, lambda value: isinstance(value, str) and value in values)


def list_of(rule: Rule) -> Rule:
    """A list, or tuple, of values that all keep a rule."""
    return Rule(
        f"a list, each {rule.says}", lambda value: isinstance(value, (list, tuple)) and all(map(rule.holds, value))
    )


def object_of(rule: Rule) -> Rule:
    """An object whose values all keep a rule."""
    return Rule(
        f"an object, each value {rule.says}",
        lambda value: isinstance(value, Mapping) and all(map(rule.holds, value.values())),
    )


OBJECT = Rule("an object", lambda value: isinstance(value, Mapping))


def check(content: Mapping[str, Any], rules: Mapping[str, Rule], where: str = "") -> None:
    """Checks the values that are there; which keys must be is not said here.

    Args:
        content: An object of a JSON file.
        rules: What the values of keys must be.
        where: Put before the key in a message, such as "bertzoo.".

    Raises:
        ValueError: A value breaks its rule.
    """
    for key, rule in rules.items():
        if key in content and not rule.holds(content[key]):
            raise ValueError(f"{where}{key} must be {rule.says}; it is {content[key]!r:.80}.")
