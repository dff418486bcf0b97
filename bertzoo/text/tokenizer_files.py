"""Tokenizer files of a Hugging Face checkpoint directory: what is read from them, and what is written."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.checkpoints.json_files import (
    FLAG,
    NULL,
    OBJECT,
    TEXT,
    Rule,
    choice_rule,
    encode_json,
    integer_rule,
    list_rule,
    number_rule,
    object_rule,
    read_json,
)
from bertzoo.text.vocabulary_files import (
    BERT_TOKENS,
    BYTE_BPE,
    GENERIC_CLASSES,
    ROBERTA_TOKENS,
    ROLES,
    SPECS,
    build_tokenizer_from_files,
    build_wordpiece_tokenizer,
    family_from_tokenizer_class,
    find_vocabulary_family,
    register_special_tokens,
    special_token_string,
)

if TYPE_CHECKING:  # imported on first use, since the package is slow to load
    import tokenizers

# How tokenizer_config.json writes a token.
_TOKEN_OBJECT = Rule(
    "an object with a string as content",
    lambda value: isinstance(value, Mapping) and isinstance(value.get("content"), str),
)
_TOKEN = TEXT | _TOKEN_OBJECT
_TOKEN_OPTIONS = ("single_word", "lstrip", "rstrip", "normalized", "special")
# Its keys for special tokens without a role.
_EXTRA_TOKENS = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
# Its keys that overrule the options of tokenizer.json's BertNormalizer, as in transformers' BertTokenizer.
_NORMALIZER_OPTIONS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_FLAGS = (*_NORMALIZER_OPTIONS, "add_prefix_space", "keep_accents", "split_by_punct", "split_special_tokens")
# What tokenizer_config.json may hold. All keys that transformers interprets are done, refused, or change no token.
RULES = {
    **dict.fromkeys([f"{role}_token" for role in (*ROLES, "bos", "eos")], _TOKEN | NULL),
    **dict.fromkeys(_EXTRA_TOKENS, list_rule(_TOKEN) | object_rule(_TOKEN) | NULL),
    **dict.fromkeys(_FLAGS, FLAG | NULL),
    **dict.fromkeys(("model_max_length", "max_len"), number_rule() | NULL),
    "added_tokens_decoder": object_rule(_TOKEN_OBJECT) | NULL,
    "bertzoo": OBJECT | NULL,
    "tokenizer_class": TEXT | NULL,
    "truncation_side": choice_rule("left", "right"),
}

# The names that published files fall back on where no config names them.
_USUAL = {role: (BERT_TOKENS[role], ROBERTA_TOKENS[role]) for role in ROLES}


def read_tokenizer_directory(
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
    settings = read_json(directory / "tokenizer_config.json", RULES, default={})
    for key, value in read_json(directory / "special_tokens_map.json", RULES, default={}).items():
        if settings.get(key) is None:
            settings[key] = value
    _check_class(directory, settings)
    try:
        if (directory / "tokenizer.json").is_file():
            rust = _from_json(directory / "tokenizer.json", settings, lowercase)
        else:
            rust, settings = _from_vocabulary_files(directory, settings, lowercase)
        _add_tokens(rust, settings, directory)
        special_tokens = find_special_tokens(rust, settings)
        register_special_tokens(rust, special_tokens.values())
        _check_template(rust, special_tokens, settings, directory)
    except BaseException as error:
        # What a damaged file does to the Rust library, whose panics are not even `Exception`s.
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{directory}: its tokenizer's files break the library `tokenizers`: {error}.") from None
    return rust, special_tokens, settings


def _check_class(directory: Path, settings: Mapping[str, Any]) -> None:
    """Refuses RoFormer's tokenizer, which first looks Chinese words up in jieba's dictionary. Its tokenizer.json names
    BERT's rule instead, and from vocab.txt BERT's tokenizer would be made: both give other ids without a warning.

    Raises:
        ValueError: tokenizer_config.json names that class, or none where config.json names the family.
    """
    named = settings.get("tokenizer_class")
    if named is None and read_json(directory / "config.json", default={}).get("model_type") == "roformer":
        has_tokenizer = any((directory / name).is_file() for name in ("tokenizer.json", "vocab.txt"))
        named = "RoFormerTokenizer" if has_tokenizer else None
    if str(named).removesuffix("Fast") == "RoFormerTokenizer":
        raise ValueError(
            f"{directory} has RoFormerTokenizer, which finds Chinese words with jieba; bertzoo does not have it. Load "
            "the model with tokenizer=None and pass token ids. If the vocabulary has no Chinese words of several "
            'characters, set tokenizer_class in tokenizer_config.json to "BertTokenizer".'
        )


def max_length_from_settings(settings: Mapping) -> int | None:
    """`model_max_length`, or None where it is missing or transformers' stand-in for "no limit", 1e30."""
    value = settings.get("model_max_length", settings.get("max_len"))
    return int(value) if value is not None and 0 < value < 1e9 else None


def find_special_tokens(rust: "tokenizers.Tokenizer", settings: Mapping) -> dict[str, str]:
    """{role: token} for those of cls, sep, pad, mask, unk that the files name and the vocabulary holds."""
    special_tokens = {}
    for role in ROLES:
        named = special_token_string(settings.get(f"{role}_token"))
        known = [t for t in ((named,) if named else _USUAL[role]) if rust.token_to_id(t) is not None]
        if known:
            special_tokens[role] = known[0]
    return special_tokens


def build_tokenizer_files(
    rust: "tokenizers.Tokenizer", special_tokens: Mapping[str, str], settings: Mapping, max_length: int | None
) -> dict[str, bytes]:
    """tokenizer.json and tokenizer_config.json by name, which `transformers.AutoTokenizer` loads.

    Settings that came from a file are written again, except `auto_map`, which names code to execute.
    """
    written = {key: value for key, value in settings.items() if key != "auto_map"}
    state = _normalizer_state(rust)
    if state["type"] == "BertNormalizer":
        written |= {key: state[option] for key, option in _NORMALIZER_OPTIONS.items()}
    for role, token in special_tokens.items():
        if special_token_string(written.get(f"{role}_token")) != token:
            written[f"{role}_token"] = token
    written["model_max_length"] = max_length if max_length is not None else int(1e30)
    if not written.get("tokenizer_class"):
        plain = _is_plain_bert(rust, special_tokens)
        written["tokenizer_class"] = "BertTokenizer" if plain else "PreTrainedTokenizerFast"
        written.setdefault("model_input_names", ["input_ids", "token_type_ids", "attention_mask"])
    return {"tokenizer.json": rust.to_str(pretty=True).encode(), "tokenizer_config.json": encode_json(written)}


def _normalizer_state(rust: "tokenizers.Tokenizer") -> dict[str, Any]:
    """The normalizer as it stands in tokenizer.json; `{"type": None}` where there is none."""
    return json.loads(rust.normalizer.__getstate__()) if rust.normalizer is not None else {"type": None}


def _from_json(path: Path, settings: Mapping, lowercase: bool | None):
    from tokenizers import Tokenizer
    from tokenizers.normalizers import BertNormalizer

    try:
        rust = Tokenizer.from_str(path.read_text("utf-8"))
    except Exception as error:  # the Rust library raises bare Exception
        raise ValueError(f"{path} is not a tokenizer that `tokenizers` can read: {error}.") from None
    # all-MiniLM's file truncates and pads to 128, which users do not expect.
    rust.no_truncation()
    rust.no_padding()
    state = _normalizer_state(rust)
    kind = state.pop("type")
    if kind == "BertNormalizer":
        for key, option in _NORMALIZER_OPTIONS.items():
            # Null has a meaning of its own for accents alone.
            if settings.get(key) is not None or (key == "strip_accents" and key in settings):
                state[option] = settings[key]
        if lowercase is not None:
            state["lowercase"] = lowercase
        rust.normalizer = BertNormalizer(**state)
    elif lowercase is not None:
        raise ValueError(
            f"lowercase={lowercase} needs a tokenizer with BERT's normalizer; this one has {kind}. Leave it out."
        )
    # transformers' RobertaTokenizer and DebertaTokenizer make this part anew.
    family, add_prefix_space = family_from_tokenizer_class(settings), settings.get("add_prefix_space")
    is_byte_level = family is not None and SPECS[family].files == BYTE_BPE
    if is_byte_level and add_prefix_space is not None and hasattr(rust.pre_tokenizer, "add_prefix_space"):
        rust.pre_tokenizer.add_prefix_space = add_prefix_space
    return rust


def _from_vocabulary_files(directory: Path, settings: dict, lowercase: bool | None):
    family = find_vocabulary_family(
        directory, settings, read_json(directory / "config.json", default={}).get("model_type")
    )
    if family is None:
        names = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else None
        known = dict.fromkeys(name for spec in SPECS.values() for name in spec.files)
        raise FileNotFoundError(
            f"no tokenizer in {directory}: looked for tokenizer.json and {', '.join(known)}, "
            + ("but that is no directory." if names is None else f"found {names or 'an empty directory'}.")
        )
    rust = build_tokenizer_from_files(directory, family, settings, lowercase)
    if family != "bert":
        # differs: transformers 5 builds the classes that older files name anew from the vocabulary, and not as the
        # models were trained (DeBERTa's pairs, the character map); this one reads tokenizer.json unchanged.
        inputs = SPECS[family].input_names
        settings = {**settings, "tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}
    return rust, settings


def _add_tokens(rust, settings: Mapping[str, Any], directory: Path) -> None:
    """Adds the tokens beside the five roles that are never split, in transformers' order: those listed by id, those
    named by keys that end in `_token`, and lists of further ones.

    Raises:
        ValueError: A listed token would get another id.
    """
    roles = [f"{role}_token" for role in ROLES]
    special = {special_token_string(settings.get(role)) for role in roles}
    for index, token in sorted(_listed_tokens(directory, settings).items()):
        content = token["content"]
        options = {key: token[key] for key in _TOKEN_OPTIONS if key in token}
        options["special"] = token.get("special", False) or content in special
        known = {added.content: added for added in rust.get_added_tokens_decoder().values()}.get(content)
        if known is None or any(getattr(known, key) != value for key, value in options.items()):
            _add(rust, content, options)
        if rust.token_to_id(content) != index:
            raise ValueError(
                f"{directory}: the files give the added token {content!r} the id {index}; after the vocabulary it gets "
                f"{rust.token_to_id(content)}."
            )
    named = [v for k, v in settings.items() if k.endswith("_token") and k not in roles and _TOKEN.holds(v)]
    for key in _EXTRA_TOKENS:
        tokens = settings.get(key) or ()
        named += tokens.values() if isinstance(tokens, Mapping) else tokens
    known_tokens = {added.content for added in rust.get_added_tokens_decoder().values()}
    for token in named:
        if special_token_string(token) not in known_tokens:
            _add(rust, special_token_string(token), {**(token if isinstance(token, Mapping) else {}), "special": True})


def _listed_tokens(directory: Path, settings: Mapping) -> dict[int, Mapping]:
    """Tokens beside the vocabulary by id, from added_tokens.json and `added_tokens_decoder`, which knows more."""
    content = read_json(directory / "added_tokens.json", object_rule(integer_rule()), default={})
    tokens: dict[int, Mapping] = {index: {"content": token, "normalized": False} for token, index in content.items()}
    for key, token in (settings.get("added_tokens_decoder") or {}).items():
        if not key.isdecimal():
            raise ValueError(f"{directory}/tokenizer_config.json: added_tokens_decoder has {key!r}, which is no id.")
        tokens[int(key)] = token
    return tokens


def _add(rust, content: str | None, options: Mapping[str, Any]) -> None:
    from tokenizers import AddedToken

    add = rust.add_special_tokens if options["special"] else rust.add_tokens
    add([AddedToken(content, **{key: options[key] for key in _TOKEN_OPTIONS if key in options})])


def _check_template(rust, special_tokens: Mapping[str, str], settings: Mapping[str, Any], directory: Path) -> None:
    """Refuses files that contradict each other about special tokens, and ids beyond the vocabulary.

    Raises:
        ValueError: tokenizer.json puts other tokens around texts than tokenizer_config.json names, replaces unknown
            pieces by another token, or gives ids or segments that no model has.
    """
    size = max(rust.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    encodings = rust.encode("a"), rust.encode("a", "a")
    index = max(max(encoding.ids, default=0) for encoding in encodings)
    segment = max(max(encoding.type_ids, default=0) for encoding in encodings)
    if index >= size or segment > 1:
        what = f"the id {index}" if index >= size else f"the segment {segment}"
        raise ValueError(
            f"{directory}: the template for texts has {what}; there are {size} tokens and segments 0 and 1."
        )
    if str(settings.get("tokenizer_class")).removesuffix("Fast") in GENERIC_CLASSES:
        return  # tokenizer.json alone counts
    around = [rust.id_to_token(i) for i in rust.encode("").ids]
    used = {"cls": around[0], "sep": around[-1]} if around else {}
    if type(rust.model).__name__ == "WordPiece":
        used["unk"] = rust.model.unk_token
    for role, token in used.items():
        named = special_token_string(settings.get(f"{role}_token"))
        if named is not None and named != token:
            raise ValueError(
                f"{directory}: tokenizer_config.json names the {role} token {named!r}, and tokenizer.json uses "
                f"{token!r}; make them agree."
            )


def _is_plain_bert(rust, special_tokens: Mapping[str, str]) -> bool:
    """Whether transformers' BertTokenizer, which rebuilds everything but the vocabulary, gives the same tokenizer."""
    content = json.loads(rust.to_str())
    state = content["normalizer"] or {}
    kinds = (content["model"]["type"], state.get("type"))
    if kinds != ("WordPiece", "BertNormalizer") or len(special_tokens) < len(ROLES):
        return False
    vocabulary = content["model"]["vocab"]
    rebuilt = build_wordpiece_tokenizer(
        sorted(vocabulary, key=vocabulary.get),
        lowercase=state["lowercase"],
        strip_accents=state["strip_accents"],
        tokenize_chinese_chars=state["handle_chinese_chars"],
        special_tokens=special_tokens,
    )
    return json.loads(rebuilt.to_str()) == content
