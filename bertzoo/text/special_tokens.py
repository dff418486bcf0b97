"""Special tokens: their roles, the templates that put them around texts, and the tokens added to a vocabulary."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.checkpoints.json_files import TEXT, Rule

if TYPE_CHECKING:  # imported on first use, since the package is slow to load
    import tokenizers

ROLES = ("cls", "sep", "pad", "mask", "unk")
BERT_TOKENS = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]", "unk": "[UNK]"}
ROBERTA_TOKENS = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>", "unk": "<unk>"}

# How tokenizer_config.json writes a token.
TOKEN_OBJECT = Rule(
    "an object with a string as content",
    lambda value: isinstance(value, Mapping) and isinstance(value.get("content"), str),
)
TOKEN = TEXT | TOKEN_OBJECT
# Its keys for special tokens without a role.
EXTRA_TOKENS = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
_OPTIONS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def token_string(token: str | Mapping | None) -> str | None:
    """The string of a special token, which the files write as a string or as an object with "content"."""
    return token.get("content") if isinstance(token, Mapping) else token


def template(
    special_tokens: Mapping[str, str],
    token_to_id: Callable[[str], int | None],
    *,
    double_separator: bool = False,
    segments: bool = True,
) -> "tokenizers.processors.TemplateProcessing":
    """The post-processor that makes `[CLS] A [SEP]` of a text and `[CLS] A [SEP] B [SEP]` of a pair.

    Args:
        special_tokens: Tokens by role.
        token_to_id: Looks an id up.
        double_separator: Write a second [SEP] before B, as RoBERTa does.
        segments: B and its [SEP] are segment 1.
    """
    from tokenizers.processors import TemplateProcessing

    cls, sep = special_tokens["cls"], special_tokens["sep"]
    between, second = f"{sep}:0 " * double_separator, int(segments)
    return TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 {between}$B:{second} {sep}:{second}",
        special_tokens=[(token, token_to_id(token)) for token in dict.fromkeys((cls, sep))],
    )


def mark_special(rust: "tokenizers.Tokenizer", tokens: Iterable[str]) -> None:
    """Makes the tokenizer recognise those of `tokens` that its vocabulary has when a text contains them.

    Tokens that are not in the vocabulary are passed over: the Rust library would append them behind the last row of
    the embedding table.
    """
    known = {token.content for token in rust.get_added_tokens_decoder().values()}
    rust.add_special_tokens([t for t in dict.fromkeys(tokens) if t not in known and rust.token_to_id(t) is not None])


def add_tokens(
    rust: "tokenizers.Tokenizer", added: Mapping[int, Mapping], settings: Mapping[str, Any], source: Path
) -> None:
    """Adds the tokens beside the five roles that are never split, in transformers' order: those listed by id, those
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
        if token_string(token) not in known:
            _add(rust, {**(token if isinstance(token, dict) else {"content": token}), "special": True})


def _named_tokens(settings: Mapping[str, Any]) -> Iterator[Any]:
    roles = [f"{role}_token" for role in ROLES]
    for key, value in settings.items():
        if key.endswith("_token") and key not in roles and TOKEN.holds(value):
            yield value
    for key in EXTRA_TOKENS:
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


def check_template(
    rust: "tokenizers.Tokenizer", special_tokens: Mapping[str, str], settings: Mapping[str, Any], source: Path
) -> None:
    """Refuses files that contradict each other about special tokens, and ids beyond the vocabulary.

    Raises:
        ValueError: tokenizer.json puts other tokens around texts than tokenizer_config.json names, replaces unknown
            pieces by another token, or gives ids or segments that no model has.
    """
    size = max(rust.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    rows = rust.encode("a"), rust.encode("a", "a")
    index, segment = (max(max(row, default=0) for row in kind) for kind in zip(*((r.ids, r.type_ids) for r in rows)))
    if index >= size or segment > 1:
        what = f"the id {index}" if index >= size else f"the segment {segment}"
        raise ValueError(f"{source}: the template for texts has {what}; there are {size} tokens and segments 0 and 1.")
    if str(settings.get("tokenizer_class")).removesuffix("Fast") in ("PreTrainedTokenizer", "TokenizersBackend"):
        return  # tokenizer.json alone counts
    around = rust.encode("").ids
    for role in ("cls", "sep"):
        named = token_string(settings.get(f"{role}_token"))
        index = None if named is None else rust.token_to_id(named)
        if named is not None and around and index != around[0 if role == "cls" else -1]:
            raise ValueError(
                f"{source}: tokenizer_config.json names the {role} token {named!r}, and tokenizer.json puts another, "
                f"{[rust.id_to_token(i) for i in around]}, around a text; make them agree."
            )
    unknown, named = getattr(rust.model, "unk_token", None), token_string(settings.get("unk_token"))
    if type(rust.model).__name__ == "WordPiece" and named is not None and unknown != named:
        raise ValueError(
            f"{source}: tokenizer_config.json names the unk token {named!r}, and tokenizer.json uses {unknown!r}; make "
            "them agree."
        )
