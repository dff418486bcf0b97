"""BERT's tokenizer and its vocab.txt (Devlin et al. 2019, section 3; google-research/bert)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertzoo.text.special_tokens import mark_special, template

if TYPE_CHECKING:  # imported on first use, since the package is slow to load
    import tokenizers


def build_wordpiece(
    tokens: Sequence[str],
    *,
    lowercase: bool,
    strip_accents: bool | None,
    tokenize_chinese_chars: bool,
    special_tokens: Mapping[str, str],
) -> "tokenizers.Tokenizer":
    """The tokenizer that cleans and splits texts as BERT does, the longest piece first: `[CLS] A [SEP] B [SEP]`.

    Args:
        tokens: The pieces by id. Of a token that is listed twice the later id counts, as in transformers.
        lowercase, strip_accents, tokenize_chinese_chars: See `Tokenizer.from_vocabulary`.
        special_tokens: Tokens by role (cls, sep, pad, mask, unk).

    Raises:
        ValueError: The cls, sep or unk token is not in the list.
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
    rust.post_processor = template(special_tokens, vocabulary.get)
    mark_special(rust, special_tokens.values())
    return rust


def read_vocabulary(path: str | Path) -> list[str]:
    """One token a line; only the line end is taken off, since pieces may hold any other white space."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}.") from None
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def looks_uncased(tokens: Sequence[str]) -> bool:
    """Whether a vocabulary was made from lowercased texts."""
    # differs: transformers lowercases wherever no config says otherwise, which ruins cased vocabularies that come
    # alone (Google's first releases). Cased ones hold thousands of capitals, uncased ones none.
    words = [token for token in tokens if not token.startswith("[")]
    return sum(token != token.lower() for token in words) < 0.01 * len(words)
