"""BERT's tokenizer from a bare list of pieces (Devlin et al. 2019, section 3; google-research/bert)."""

from collections.abc import Mapping, Sequence

from bertzoo.text.special_tokens import frame, mark_special


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
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    vocabulary = {token: index for index, token in enumerate(tokens)}
    for role in ("cls", "sep", "unk"):
        if special_tokens.get(role) not in vocabulary:
            raise ValueError(
                f"the vocabulary of {len(vocabulary)} tokens has no {role} token {special_tokens.get(role)!r}; add it, "
                f"or name the one that it has as `{role}_token` in tokenizer_config.json."
            )
    rust = Tokenizer(models.WordPiece(vocabulary, unk_token=special_tokens["unk"]))
    rust.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=tokenize_chinese_chars,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rust.decoder = decoders.WordPiece(prefix="##")
    rust.post_processor = frame(special_tokens, vocabulary.get)
    mark_special(rust, special_tokens.values())
    return rust
