"""Special tokens: their roles, how texts that hold them are read, and the rows that they frame."""

from collections.abc import Iterable, Mapping

ROLES = ("cls", "sep", "pad", "mask", "unk")
BERT_TOKENS = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]", "unk": "[UNK]"}
ROBERTA_TOKENS = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>", "unk": "<unk>"}


def frame(special_tokens: Mapping[str, str], token_to_id, *, double_separator: bool = False, segments: bool = True):
    """What puts `[CLS] A [SEP]` around a text and `[CLS] A [SEP] B [SEP]` around a pair.

    `double_separator` writes a second [SEP] before B, as RoBERTa does; with `segments` B and its [SEP] are segment 1.
    """
    from tokenizers.processors import TemplateProcessing

    cls, sep = special_tokens["cls"], special_tokens["sep"]
    between, second = f"{sep}:0 " * double_separator, int(segments)
    return TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 {between}$B:{second} {sep}:{second}",
        special_tokens=[(token, token_to_id(token)) for token in dict.fromkeys((cls, sep))],
    )


def mark_special(rust, tokens: Iterable[str]) -> None:
    """Has those of `tokens` that the vocabulary knows recognised when they are written in a text.

    Tokens that are not in the vocabulary are passed over: the Rust library would append them behind the last row of
    the embedding table.
    """
    known = {token.content for token in rust.get_added_tokens_decoder().values()}
    rust.add_special_tokens([t for t in dict.fromkeys(tokens) if t not in known and rust.token_to_id(t) is not None])
