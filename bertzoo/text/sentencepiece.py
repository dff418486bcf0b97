"""A `tokenizers` tokenizer that gives the pieces of a SentencePiece model (Kudo & Richardson 2018)."""

import unicodedata
from functools import lru_cache

import numpy as np

from bertzoo.text.sentencepiece_file import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    SentencePieceModel,
)

SPACE = "\u2581"


def build_sentencepiece(
    model: SentencePieceModel,
    *,
    front: tuple[str, ...] = (),
    skipped: int = 0,
    unk_token: str | None = None,
    preparation: tuple = (),
    split_punctuation: bool = False,
    split_digit_comma: bool = False,
):
    """The tokenizer without special tokens and frame.

    Args:
        model: The file's content.
        front: Tokens that stand in the vocabulary before the pieces, as fairseq's models have them.
        skipped: How many pieces of the file fall away at the front for that.
        unk_token: The one of `front` that stands for what is unknown; the file's own piece where None.
        preparation: Normalizers that come before the character map.
        split_punctuation: Punctuation marks are words of their own, as in DeBERTa's `split_by_punct`.
        split_digit_comma: No piece ends in a digit and a comma, as ALBERT's code has it.

    Raises:
        ValueError: A piece of `front` is in the file too, or a piece that falls away is an ordinary one.
    """
    from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.normalizers import Precompiled, Prepend, Replace

    vocabulary = _vocabulary(model, front, skipped, split_digit_comma)
    unk = unk_token or model.pieces[model.unk_id]
    rust = Tokenizer((_bpe if model.algorithm == BPE else _unigram)(model, vocabulary, unk))
    steps = list(preparation)
    if model.charsmap:
        try:
            steps.append(Precompiled(model.charsmap))
        except Exception as error:  # the Rust library raises bare Exception
            raise ValueError(f"its character map is malformed: {error}.") from None
    if model.remove_extra_whitespaces:
        steps += [Replace(Regex(" {2,}"), " "), Replace(Regex(r"\A | \z"), "")]
    if model.add_dummy_prefix and not split_punctuation:
        # Not left to Metaspace, which adds none to a text that begins with one.
        steps.append(Prepend(SPACE))
    rust.normalizer = normalizers.Sequence(steps)
    scheme = "always" if model.add_dummy_prefix and split_punctuation else "never"
    words = pre_tokenizers.Metaspace(SPACE, scheme, split=not any(SPACE in piece[1:] for piece in model.pieces))
    splits = [pre_tokenizers.Punctuation("isolated")] if split_punctuation else []
    rust.pre_tokenizer = pre_tokenizers.Sequence([*splits, words]) if splits else words
    spaces = decoders.Metaspace(SPACE, "always" if model.add_dummy_prefix else "never")
    rust.decoder = decoders.Sequence([decoders.ByteFallback(), spaces]) if model.byte_fallback else spaces
    return rust


def without_accents():
    """Normalizers that take accents off as Python's `unicodedata.combining` defines them, as ALBERT's code does.

    The Rust library's `StripAccents` would take the vowel signs of Indic scripts too.
    """
    from tokenizers import Regex
    from tokenizers.normalizers import NFKD, Replace

    return (NFKD(), Replace(Regex(_combining()), ""))


@lru_cache(maxsize=1)
def _combining() -> str:
    marks = [i for i in range(0x300, 0x1F000) if unicodedata.combining(chr(i))]
    starts = [i for i in marks if not unicodedata.combining(chr(i - 1))]
    ends = [i for i in marks if not unicodedata.combining(chr(i + 1))]
    return "[" + "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(starts, ends)) + "]"


def _vocabulary(model, front, skipped, split_digit_comma) -> list[tuple[str, float]]:
    """(piece, score) by id. Scores are made such that the Rust library, which knows no types, chooses as SentencePiece
    does."""
    wrong = [p for p, kind in zip(model.pieces[:skipped], model.kinds) if kind not in (UNKNOWN, CONTROL)]
    if wrong:
        raise ValueError(f"the first {skipped} pieces must be control pieces; {wrong[0]!r} is an ordinary one.")
    # The shortest decimals of these float32: the Rust library reads longer ones back from JSON with another last bit.
    scores = [float(str(np.float32(score))) for score in model.scores]
    normal = [score for score, kind in zip(scores, model.kinds) if kind == NORMAL] or [0.0]
    if front and model.unk_id:
        raise ValueError(f"its piece 0 must be the unknown one, which is {model.unk_id}: is it another family's file?")
    lowest, highest = min(normal), max(normal)
    vocabulary = [(token, lowest) for token in front]
    for piece, score, kind in list(zip(model.pieces, scores, model.kinds))[skipped:]:
        if kind == USER_DEFINED:  # always chosen: its score is the best possible for its length
            score = len(piece) * highest - 0.1
        elif kind in (UNKNOWN, CONTROL, BYTE):
            score = lowest
        elif kind == UNUSED:  # the raw space is in no normalized text, so this never matches
            piece, score = f"{piece} ", lowest
        elif split_digit_comma and len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            score -= 100.0
        vocabulary.append((piece, score))
    double = set(front).intersection(piece for piece, _ in vocabulary[len(front) :])
    if double:
        raise ValueError(f"the file holds {sorted(double)[0]!r}, which this family adds: is it another family's file?")
    return vocabulary


def _unigram(model, vocabulary, unk):
    from tokenizers.models import Unigram

    unk_id = next(i for i, (piece, _) in enumerate(vocabulary) if piece == unk)
    return Unigram(vocabulary, unk_id, model.byte_fallback)


def _bpe(model, vocabulary, unk):
    """Joins the neighbours that make the piece of the best score; the file lists the pieces in that order."""
    from tokenizers.models import BPE as RustBPE

    ids = {piece: i for i, (piece, _) in enumerate(vocabulary)}
    joined = {p: score for p, score, kind in zip(model.pieces, model.scores, model.kinds) if kind == NORMAL}
    usable = {*joined, *(p for p, kind in zip(model.pieces, model.kinds) if kind == USER_DEFINED)}
    merges = [
        (piece[:i], piece[i:])
        for piece in sorted(joined, key=lambda p: (-joined[p], ids[p]))
        for i in range(1, len(piece))
        if piece[:i] in usable and piece[i:] in usable
    ]
    return RustBPE(ids, merges, unk_token=unk, fuse_unk=True, byte_fallback=model.byte_fallback)
