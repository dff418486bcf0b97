"""Tokenizer files of a Hugging Face checkpoint directory: what is read from them, and what is written."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.checkpoints.json_files import FLAG, NULL, OBJECT, TEXT, Rule, choice, list_of, number, object_of, read_json
from bertzoo.text.slow_tokenizers import build_from_files, find_spec, is_byte_level, vocabulary_files
from bertzoo.text.special_tokens import (
    BERT_TOKENS,
    EXTRA_TOKENS,
    ROBERTA_TOKENS,
    ROLES,
    TOKEN,
    TOKEN_OBJECT,
    add_tokens,
    check_template,
    mark_special,
    token_string,
)
from bertzoo.text.wordpiece import build_wordpiece

if TYPE_CHECKING:  # imported on first use, since the package is slow to load
    import tokenizers

# What tokenizer_config.json may hold. All keys that transformers interprets are done, refused, or change no token.
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
    **dict.fromkeys([f"{role}_token" for role in (*ROLES, "bos", "eos")], TOKEN | NULL),
    **dict.fromkeys(EXTRA_TOKENS, list_of(TOKEN) | object_of(TOKEN) | NULL),
    **dict.fromkeys(_FLAGS, FLAG | NULL),
    **dict.fromkeys(("model_max_length", "max_len"), number() | NULL),
    "added_tokens_decoder": object_of(TOKEN_OBJECT) | NULL,
    "bertzoo": OBJECT | NULL,
    "tokenizer_class": TEXT | NULL,
    "truncation_side": choice("left", "right"),
}

# The names that published files fall back on where no config names them.
_USUAL = {role: (BERT_TOKENS[role], ROBERTA_TOKENS[role]) for role in ROLES}


def read_directory(
    directory: str | Path, lowercase: bool | None = None
) -> tuple["tokenizers.Tokenizer", dict[str, str], dict[str, Any]]:
    """Reads tokenizer.json, else the vocabulary files of the family that config.json names.

    Returns:
        The Rust tokenizer, its special tokens by role, and the settings of tokenizer_config.json.

    Raises:
        FileNotFoundError: The directory has no tokenizer.
        ValueError: A file can't be used.
    """
    directory = Path(directory)
    settings = read_settings(directory)
    with _panics_as_errors(directory):
        added = _added_tokens(directory, settings)
        if (directory / "tokenizer.json").is_file():
            rust = _from_json(directory / "tokenizer.json")
            _apply_normalizer_settings(rust, settings, lowercase)
            _apply_prefix_space(rust, settings)
        else:
            rust, settings = _from_vocabulary_files(directory, settings, lowercase)
        add_tokens(rust, added, settings, directory)
        special_tokens = find_special_tokens(rust, settings)
        mark_special(rust, special_tokens.values())
        check_template(rust, special_tokens, settings, directory)
    return rust, special_tokens, settings


@contextmanager
def _panics_as_errors(directory: Path) -> Iterator[None]:
    """Makes errors of what a damaged file does to the Rust library, whose panics are not even `Exception`s."""
    try:
        yield
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != "PanicException":  # which it raises itself
            raise
        raise ValueError(f"{directory}: its tokenizer's files break the library `tokenizers`: {error}.") from None


def read_settings(directory: Path) -> dict:
    """tokenizer_config.json, with the special tokens of special_tokens_map.json where it names none itself."""
    settings = _read_json(directory / "tokenizer_config.json", RULES)
    for key, value in _read_json(directory / "special_tokens_map.json", RULES).items():
        if settings.get(key) is None:
            settings[key] = value
    return settings


def stored_max_length(settings: Mapping) -> int | None:
    """`model_max_length`, or None where it is missing or transformers' stand-in for "no limit", 1e30."""
    value = settings.get("model_max_length", settings.get("max_len"))
    return int(value) if value is not None and 0 < value < 1e9 else None


def find_special_tokens(rust: "tokenizers.Tokenizer", settings: Mapping) -> dict[str, str]:
    """{role: token} for those of cls, sep, pad, mask, unk that the files name and the vocabulary holds."""
    found = {}
    for role in ROLES:
        named = token_string(settings.get(f"{role}_token"))
        for token in (named,) if named else _USUAL[role]:
            if rust.token_to_id(token) is not None:
                found[role] = token
                break
    return found


def written_files(
    rust: "tokenizers.Tokenizer", special_tokens: Mapping[str, str], settings: Mapping, max_length: int | None
) -> dict[str, bytes]:
    """tokenizer.json and tokenizer_config.json by name, which `transformers.AutoTokenizer` loads.

    Settings that came from a file are written again, except `auto_map`, which names code to execute.
    """
    written = {key: value for key, value in settings.items() if key != "auto_map"}
    state = normalizer_state(rust)
    if state["type"] == "BertNormalizer":
        written["do_lower_case"] = state["lowercase"]
        written["strip_accents"] = state["strip_accents"]
        written["tokenize_chinese_chars"] = state["handle_chinese_chars"]
    for role, token in special_tokens.items():
        if token_string(written.get(f"{role}_token")) != token:
            written[f"{role}_token"] = token
    written["model_max_length"] = max_length if max_length is not None else int(1e30)
    if not written.get("tokenizer_class"):
        plain = _is_plain_bert(rust, special_tokens)
        written["tokenizer_class"] = "BertTokenizer" if plain else "PreTrainedTokenizerFast"
        written.setdefault("model_input_names", ["input_ids", "token_type_ids", "attention_mask"])
    config = json.dumps(written, indent=2, ensure_ascii=False) + "\n"
    return {"tokenizer.json": rust.to_str(pretty=True).encode(), "tokenizer_config.json": config.encode()}


def normalizer_state(rust: "tokenizers.Tokenizer") -> dict[str, Any]:
    """The normalizer as it stands in tokenizer.json; `{"type": None}` where there is none."""
    return json.loads(rust.normalizer.__getstate__()) if rust.normalizer is not None else {"type": None}


def _read_json(path: Path, rules: Mapping[str, Rule] | None = None) -> dict:
    return read_json(path, rules) if path.is_file() else {}


def _from_json(path: Path):
    from tokenizers import Tokenizer

    try:
        rust = Tokenizer.from_str(path.read_text("utf-8"))
    except Exception as error:  # the Rust library raises bare Exception
        raise ValueError(f"{path} is not a tokenizer that `tokenizers` can read: {error}.") from None
    # all-MiniLM ships truncation to 128 and padding to 128, which nobody expects.
    rust.no_truncation()
    rust.no_padding()
    return rust


def _apply_normalizer_settings(rust, settings: Mapping, lowercase: bool | None) -> None:
    """tokenizer_config.json overrules tokenizer.json's BertNormalizer, as in transformers' BertTokenizer."""
    from tokenizers.normalizers import BertNormalizer

    state = normalizer_state(rust)
    kind = state.pop("type")
    if kind == "BertNormalizer":
        for key, setting in (
            ("lowercase", "do_lower_case"),
            ("strip_accents", "strip_accents"),
            ("handle_chinese_chars", "tokenize_chinese_chars"),
        ):
            # Null has a meaning of its own for accents alone.
            if settings.get(setting) is not None or (setting == "strip_accents" and setting in settings):
                state[key] = settings[setting]
        if lowercase is not None:
            state["lowercase"] = lowercase
        rust.normalizer = BertNormalizer(**state)
    elif lowercase is not None:
        raise ValueError(
            f"lowercase={lowercase} needs a tokenizer with BERT's normalizer; this one has {kind}. Leave it out."
        )


def _apply_prefix_space(rust, settings: Mapping) -> None:
    """As in transformers' RobertaTokenizer and DebertaTokenizer, which make this part anew."""
    wanted = settings.get("add_prefix_space")
    if wanted is not None and is_byte_level(settings) and hasattr(rust.pre_tokenizer, "add_prefix_space"):
        rust.pre_tokenizer.add_prefix_space = wanted


def _from_vocabulary_files(directory: Path, settings: dict, lowercase: bool | None):
    found = find_spec(directory, settings, _read_json(directory / "config.json").get("model_type"))
    if found is None:
        names = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else None
        raise FileNotFoundError(
            f"no tokenizer in {directory}: looked for tokenizer.json and {', '.join(vocabulary_files())}, "
            + ("but that is no directory." if names is None else f"found {names or 'an empty directory'}.")
        )
    family, spec = found
    rust = build_from_files(directory, family, settings, lowercase)
    if family != "bert":
        # differs: transformers 5 builds the classes that older files name anew from the vocabulary, and not as the
        # models were trained (DeBERTa's pairs, the character map); this one reads tokenizer.json unchanged.
        settings = {**settings, "tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": spec.input_names}
    return rust, settings


def _added_tokens(directory: Path, settings: Mapping) -> dict[int, dict]:
    """Tokens beside the vocabulary by id, from added_tokens.json and `added_tokens_decoder`, which knows more."""
    path, added = directory / "added_tokens.json", {}
    for token, index in _read_json(path).items():
        if type(index) is not int or index < 0:
            raise ValueError(f"{path}: the id of {token!r} must be an integer; it is {index!r:.80}.")
        added[index] = {"content": token, "special": False, "normalized": False}
    for index, token in (settings.get("added_tokens_decoder") or {}).items():
        if not index.isdecimal():
            raise ValueError(f"{directory}/tokenizer_config.json: added_tokens_decoder has {index!r}, which is no id.")
        added[int(index)] = {key: value for key, value in token.items() if key != "__type"}
    special = {token_string(settings.get(f"{role}_token")) for role in ROLES}
    for token in added.values():
        token["special"] = token.get("special", False) or token["content"] in special
    return added


def _is_plain_bert(rust, special_tokens: Mapping[str, str]) -> bool:
    """Whether transformers' BertTokenizer, which rebuilds everything but the vocabulary, gives the same tokenizer."""
    content = json.loads(rust.to_str())
    state = content["normalizer"] or {}
    kinds = (content["model"]["type"], state.get("type"))
    if kinds != ("WordPiece", "BertNormalizer") or len(special_tokens) < len(ROLES):
        return False
    vocabulary = content["model"]["vocab"]
    rebuilt = build_wordpiece(
        sorted(vocabulary, key=vocabulary.get),
        lowercase=state["lowercase"],
        strip_accents=state["strip_accents"],
        tokenize_chinese_chars=state["handle_chinese_chars"],
        special_tokens=special_tokens,
    )
    return json.loads(rebuilt.to_str()) == content


def lowercases(rust: "tokenizers.Tokenizer") -> bool:
    """Whether the tokenizer lowercases texts."""
    return _lowercases(normalizer_state(rust))


def _lowercases(state: Mapping) -> bool:
    if state["type"] == "Sequence":
        return any(_lowercases(part) for part in state["normalizers"])
    return state["type"] == "Lowercase" or bool(state.get("lowercase"))
