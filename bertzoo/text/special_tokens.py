"""Special tokens: their roles, and the templates that put them around texts."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported on first use, since the package is slow to load
    import tokenizers

ROLES = ("cls", "sep", "pad", "mask", "unk")
BERT_TOKENS = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]", "unk": "[UNK]"}
ROBERTA_TOKENS = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>", "unk": "<unk>"}


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
