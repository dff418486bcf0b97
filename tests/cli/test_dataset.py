"""Classes and held-out rows, by their properties."""

import pytest

from bertzoo.cli.dataset import _find_classes, _split
from bertzoo.data.parsing import Examples

pytestmark = pytest.mark.once


def test_classes_come_sorted_and_numbers_by_value():
    assert _find_classes(["10", "9", "1", "9"], "f") == ["1", "9", "10"]
    assert _find_classes(["b", "a", "10"], "f") == ["10", "a", "b"]
    assert _find_classes(["1.0", "2"], "f") == ["1.0", "2"]
    assert _find_classes(["1.5", "2"], "f") is None


def test_a_tenth_of_each_class_is_held_out():
    labels = ["a"] * 50 + ["b"] * 20 + ["c"] * 3
    examples = Examples({"text": list(range(73))}, labels)
    train, held = (part["text"] for part in _split(examples, 1, ["a", "b", "c"]))
    assert sorted(train + held) == list(range(73))
    assert [sum(labels[i] == name for i in held) for name in "abc"] == [5, 2, 0]
    again = _split(examples, 1, ["a", "b", "c"])
    assert (train, held) == (again[0]["text"], again[1]["text"]) != _split(examples, 2, ["a", "b", "c"])[0]["text"]
    assert [len(part) for part in _split(Examples({"text": ["a"] * 3}, None), 0)] == [2, 1]
