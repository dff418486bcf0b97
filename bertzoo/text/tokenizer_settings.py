"""What tokenizer_config.json may say, and what of it changes a tokenizer.

All keys that transformers interprets are done, refused, or change no token; a test goes through them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bertzoo.checkpoints.rules import FLAG, NULL, OBJECT, TEXT, Rule, choice, list_of, number, object_of
from bertzoo.text.special_tokens import ROLES

_WRITTEN_TOKEN = Rule(
    "an object with a string as content",
    lambda value: isinstance(value, Mapping) and isinstance(value.get("content"), str),
)
_TOKEN = TEXT | _WRITTEN_TOKEN
_EXTRA = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
_FLAGS = (
    "add_prefix_space",
    "do_lower_case",
    "keep_accents",
    "split_by_punct",
    "split_special_tokens",
    "strip_accents",
    "tokenize_chinese_chars",
)
RULES = {
    **dict.fromkeys([f"{role}_token" for role in (*ROLES, "bos", "eos")], _TOKEN | NULL),
    **dict.fromkeys(_EXTRA, list_of(_TOKEN) | object_of(_TOKEN) | NULL),
    **dict.fromkeys(_FLAGS, FLAG | NULL),
    **dict.fromkeys(("model_max_length", "max_len"), number() | NULL),
    "added_tokens_decoder": object_of(_WRITTEN_TOKEN) | NULL,
    "bertzoo": OBJECT | NULL,
    "tokenizer_class": TEXT | NULL,
    "truncation_side": choice("left", "right"),
}
_OPTIONS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def content_of(token) -> str | None:
    """Special tokens stand in the files as a string or as a dict with "content"."""
    return token.get("content") if isinstance(token, dict) else token


def stored_max_length(settings: Mapping) -> int | None:
    """`model_max_length`, or None where it is missing or transformers' stand-in for "no limit", 1e30."""
    value = settings.get("model_max_length", settings.get("max_len"))
    return int(value) if value is not None and 0 < value < 1e9 else None


def add_tokens(rust, added: Mapping[int, Mapping], settings: Mapping, source: Path) -> None:
    """Tokens that are never split besides those of the five roles, in transformers' order: those listed by id, those
    named by keys that end in `_token` if the vocabulary has them, and lists of further ones.

    Raises:
        ValueError: A listed token would get another id.
    """
    for index, token in sorted(added.items()):
        if rust.token_to_id(token["content"]) is None or _differs(rust, token):
            _add(rust, token)
        found = rust.token_to_id(token["content"])
        if found != index:
            raise ValueError(
                f"{source}: the files give the added token {token['content']!r} the id {index}; after the vocabulary "
                f"it gets {found}."
            )
    known = {token.content for token in rust.get_added_tokens_decoder().values()}
    for token in _named_tokens(settings):
        if content_of(token) not in known:
            _add(rust, {**(token if isinstance(token, dict) else {"content": token}), "special": True})


def _named_tokens(settings: Mapping) -> Iterator[Any]:
    roles = [f"{role}_token" for role in ROLES]
    for key, value in settings.items():
        if key.endswith("_token") and key not in roles and _TOKEN.holds(value):
            yield value
    for key in _EXTRA:
        value = settings.get(key) or ()
        yield from value.values() if isinstance(value, Mapping) else value


def _differs(rust, token: Mapping) -> bool:
    known = {one.content: one for one in rust.get_added_tokens_decoder().values()}.get(token["content"])
    return known is None or any(getattr(known, key) != token[key] for key in _OPTIONS if key in token)


def _add(rust, token: Mapping) -> None:
    from tokenizers import AddedToken

    options = {key: token[key] for key in _OPTIONS if key in token}
    add = rust.add_special_tokens if options.get("special") else rust.add_tokens
    add([AddedToken(token["content"], **options)])


def check_frame(rust, special_tokens: Mapping[str, str], settings: Mapping, source: Path) -> None:
    """Refuses files of which one names other tokens than another uses, and ids that no model of theirs could have.

    Raises:
        ValueError: tokenizer.json frames texts with other tokens than tokenizer_config.json names, replaces unknown
            pieces by another, or gives ids beyond the vocabulary.
    """
    size = max(rust.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    rows = rust.encode("a"), rust.encode("a", "a")
    index, segment = (max(max(row, default=0) for row in kind) for kind in zip(*((r.ids, r.type_ids) for r in rows)))
    if index >= size or segment > 1:
        what = f"the id {index}" if index >= size else f"the segment {segment}"
        raise ValueError(f"{source}: the frame of a text has {what}; there are {size} tokens and segments 0 and 1.")
    if str(settings.get("tokenizer_class")).removesuffix("Fast") in ("PreTrainedTokenizer", "TokenizersBackend"):
        return  # tokenizer.json alone counts
    frame = rust.encode("").ids
    for role in ("cls", "sep"):
        named = content_of(settings.get(f"{role}_token"))
        index = None if named is None else rust.token_to_id(named)
        if named is not None and frame and index != frame[0 if role == "cls" else -1]:
            raise ValueError(
                f"{source}: tokenizer_config.json names the {role} token {named!r}, and tokenizer.json puts another, "
                f"{[rust.id_to_token(i) for i in frame]}, around a text; make them agree."
            )
    unknown, named = getattr(rust.model, "unk_token", None), content_of(settings.get("unk_token"))
    if type(rust.model).__name__ == "WordPiece" and named is not None and unknown != named:
        raise ValueError(
            f"{source}: tokenizer_config.json names the unk token {named!r}, and tokenizer.json uses {unknown!r}; make "
            "them agree."
        )
