"""BERT's tokenizer from a bare list of pieces (Devlin et al. 2019, section 3; google-research/bert)."""

from collections.abc import Mapping, Sequence

ROLES = ("cls", "sep", "pad", "mask", "unk")
BERT_TOKENS = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]", "unk": "[UNK]"}


def build_wordpiece(
    tokens: Sequence[str],
    *,
    lowercase: bool,
    strip_accents: bool | None,
    tokenize_chinese_chars: bool,
    special_tokens: Mapping[str, str],
):
    """A `tokenizers.Tokenizer`: clean and split as BERT does, greedy longest piece first, `[CLS] A [SEP] B [SEP]`.

    `special_tokens` maps roles (cls, sep, pad, mask, unk) to tokens. Where a token is listed twice the later place
    counts, as in transformers. Raises `ValueError` if the cls, sep or unk token is not in the list.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    vocabulary = {token: index for index, token in enumerate(tokens)}
    for role in ("cls", "sep", "unk"):
        if special_tokens.get(role) not in vocabulary:
            raise ValueError(
                f"the vocabulary of {len(vocabulary)} tokens has no {role} token {special_tokens.get(role)!r}; add it, "
                f"or name the one that it has as `{role}_token` in tokenizer_config.json."
            )
    cls, sep, unk = (special_tokens[role] for role in ("cls", "sep", "unk"))
    rust = Tokenizer(models.WordPiece(vocabulary, unk_token=unk))
    rust.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=tokenize_chinese_chars,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rust.decoder = decoders.WordPiece(prefix="##")
    rust.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )
    mark_special(rust, special_tokens.values())
    return rust


def mark_special(rust, tokens) -> None:
    """Has those of `tokens` that the vocabulary knows recognised when they are written in a text.

    Tokens that are not in the vocabulary are passed over: the Rust library would append them behind the last row of
    the embedding table.
    """
    known = {token.content for token in rust.get_added_tokens_decoder().values()}
    rust.add_special_tokens([t for t in dict.fromkeys(tokens) if t not in known and rust.token_to_id(t) is not None])
