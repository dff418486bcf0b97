"""JSON bodies, read field by field; whatever is not as expected is a `RequestError` that says so."""

from collections.abc import Collection
from typing import Any, NamedTuple

import orjson

from bertzoo.serving.errors import RequestError, invalid, too_large


class Inputs(NamedTuple):
    """Texts, or rows of token ids, and whether a single one came."""

    texts: list[str] | None
    ids: list[list[int]] | None
    is_single: bool

    def __len__(self) -> int:
        return len(self.ids or self.texts or ())


class Body:
    """A JSON object. Fields that are null are absent; `finish` refuses those that nothing has read.

    Args:
        content: The object.
        name: What it is called in messages; "" for the whole body.
    """

    def __init__(self, content: Any, name: str = ""):
        if not isinstance(content, dict):
            where = f"`{name}`" if name else "the body"
            raise invalid(f"{where} must be a JSON object. Received: {describe(content)}.")
        self._content = {key: value for key, value in content.items() if value is not None}
        self._prefix = f"{name}." if name else ""
        self._read: set[str] = set()

    @classmethod
    def parse(cls, content: bytes) -> "Body":
        """Reads a request's body.

        Raises:
            RequestError: It is no JSON object.
        """
        try:
            return cls(orjson.loads(content))
        except orjson.JSONDecodeError as error:
            message = f"the body must be JSON. Received: {len(content)} bytes that are not: {error}."
            raise RequestError("Validation", message, status=400) from None

    def __contains__(self, field: str) -> bool:
        self._read.add(field)
        return field in self._content

    def get(self, field: str, default: Any = None) -> Any:
        """A field as it came."""
        self._read.add(field)
        return self._content.get(field, default)

    def require(self, field: str) -> Any:
        """A field that must be there."""
        if field not in self._content:
            known = ", ".join(self._content) or "none"
            raise invalid(f"the field `{self._prefix}{field}` is required. Received: the fields {known}.")
        return self.get(field)

    def typed(self, field: str, kind: type, expected: str, default: Any = None) -> Any:
        """A field of a type; `expected` names it in messages."""
        value = self.get(field, default)
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise invalid(f"`{self._prefix}{field}` must be {expected}. Received: {describe(value)}.")
        return value

    def flag(self, field: str, default: bool | None) -> Any:
        """true or false."""
        return self.typed(field, bool, "true or false", default)

    def text(self, field: str) -> str:
        """A text that is not empty."""
        self.require(field)
        return _not_empty(self.typed(field, str, "a string"), f"{self._prefix}{field}")

    def whole(self, field: str, least: int = 1, most: int | None = None, default: int | None = None) -> Any:
        """A whole number within limits."""
        value = self.typed(field, int, "a whole number", default)
        if value is not None and not least <= value <= (value if most is None else most):
            limits = f"at least {least}" if most is None else f"from {least} to {most}"
            raise invalid(f"`{self._prefix}{field}` must be {limits}. Received: {value}.")
        return value

    def fraction(self, field: str, default: float) -> float:
        """A number from 0 to 1."""
        value = self.get(field, default)
        if type(value) not in (int, float) or not 0 <= value <= 1:
            raise invalid(f"`{self._prefix}{field}` must be a number from 0 to 1. Received: {describe(value)}.")
        return value

    def choice(self, field: str, options: Collection[str], default: str | None = None) -> str:
        """One of several strings."""
        value = self.get(field, default)
        if not isinstance(value, str) or value not in options:
            raise invalid(f"`{self._prefix}{field}` must be one of {', '.join(options)}. Received: {describe(value)}.")
        return value

    def texts(self, field: str) -> list[str]:
        """A list of texts, not empty."""
        value = self.require(field)
        if not isinstance(value, list) or not all(type(text) is str for text in value):
            raise invalid(f"`{self._prefix}{field}` must be a list of strings. Received: {describe(value)}.")
        return _each_not_empty(value, f"{self._prefix}{field}")

    def text_or_texts(self, field: str) -> tuple[list[str], bool]:
        """A text or a list of texts, and whether a single one came."""
        value = self.require(field)
        return ([self.text(field)], True) if isinstance(value, str) else (self.texts(field), False)

    def inputs(self, field: str) -> Inputs:
        """A text, a list of texts, a row of token ids, or a list of rows."""
        value = self.require(field)
        if isinstance(value, str) or (isinstance(value, list) and value and all(type(item) is str for item in value)):
            texts, is_single = self.text_or_texts(field)
            return Inputs(texts, None, is_single)
        name = f"{self._prefix}{field}"
        if isinstance(value, list) and not value:
            raise RequestError("Empty", f"`{name}` must not be empty.")
        is_single = _is_row(value)
        rows = [value] if is_single else value
        if not isinstance(rows, list) or not all(map(_is_row, rows)):
            expected = "a string, a list of strings, token ids or a list of rows of token ids"
            raise invalid(f"`{name}` must be {expected}. Received: {describe(value)}.")
        return Inputs(None, _each_not_empty(rows, name), is_single)

    def nested(self, field: str) -> "Body":
        """An object in the object; empty where it is absent."""
        return Body(self.get(field, {}), f"{self._prefix}{field}")

    def finish(self) -> None:
        """Refuses fields that nothing has read."""
        unknown = [field for field in self._content if field not in self._read]
        if unknown:
            known = ", ".join(sorted(self._read))
            raise invalid(f"`{self._prefix}{unknown[0]}` is no field of this route; it has {known}.")


def check_count(count: int, most: int) -> None:
    """Refuses more texts than a request may hold."""
    if count > most:
        raise too_large(f"a request may hold {most} texts. Received: {count}. Send them in several requests.")


def describe(value: Any) -> str:
    """A JSON value in a few characters."""
    text = orjson.dumps(value).decode("utf-8", "replace")
    return text if len(text) <= 60 else text[:57] + "..."


def _is_row(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


def _not_empty(text: str, name: str) -> str:
    if not text:
        raise RequestError("Empty", f"`{name}` must not be empty.")
    return text


def _each_not_empty(values: list, name: str) -> list:
    if not values:
        raise RequestError("Empty", f"`{name}` must not be empty.")
    if not all(values):
        raise RequestError("Empty", f"`{name}[{[bool(value) for value in values].index(False)}]` must not be empty.")
    return values
