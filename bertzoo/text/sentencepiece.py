"""SentencePiece models (Kudo & Richardson 2018): reads `.model` files, makes `tokenizers` tokenizers.

The files are protocol buffers (sentencepiece_model.proto), read without the protobuf library. The character map is
applied by the `tokenizers` library, so ids are those that transformers gives for the same
directory. SentencePiece itself replaces the longest sequence that the map knows; `tokenizers` looks up whole graphemes
and takes the shortest entry that they begin with (huggingface/tokenizers#2116). Texts with combining marks, conjoining
jamo, joiners or emoji modifiers may therefore differ from SentencePiece's.
"""

import math
import struct
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:  # imported on first use, since the package is slow to load
    import tokenizers

SPACE = "\u2581"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE = 1, 2

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class _Piece(NamedTuple):
    """A piece of the vocabulary; `kind` is NORMAL, CONTROL …"""

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePieceModel:
    """What a `.model` file says: the pieces by id, `algorithm` UNIGRAM or BPE, and how texts are normalized."""

    pieces: list[_Piece]
    unk_id: int
    algorithm: int
    byte_fallback: bool
    charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool


def read_sentencepiece_model(path_or_bytes: str | Path | bytes) -> SentencePieceModel:
    """Reads and checks a `.model` file, or its content.

    Raises:
        ValueError: It is cut off or malformed, or uses what no family here does: the word and character models, white
            space as a suffix, or unescaped white space.
    """
    content, name = (
        (path_or_bytes, "the content")
        if isinstance(path_or_bytes, bytes)
        else (Path(path_or_bytes).read_bytes(), path_or_bytes)
    )
    try:
        return _model(content)
    except (ValueError, struct.error) as error:
        raise ValueError(f"{name} is no SentencePiece model that bertzoo can read: {error}.") from None


def _model(data: bytes) -> SentencePieceModel:
    pieces, specs = [], {2: b"", 3: b""}
    for field, value in _fields(data, {1: bytes, 2: bytes, 3: bytes}):
        if field == 1:
            pieces.append(_piece(value))
        else:
            specs[field] += value  # repeated messages are merged
    if not pieces:
        raise ValueError("it holds no pieces")
    trainer = dict(_fields(specs[2], {3: int, 24: int, 35: int}))
    normalizer = dict(_fields(specs[3], {2: bytes, 3: int, 4: int, 5: int}))
    algorithm = trainer.get(3, UNIGRAM)
    if algorithm not in (UNIGRAM, BPE):
        raise ValueError(f"model_type is {algorithm}; 1 (unigram) and 2 (BPE) are supported")
    if trainer.get(24, 0):
        raise ValueError("it marks words at their end (treat_whitespace_as_suffix), which is not supported")
    if not normalizer.get(5, 1):
        raise ValueError("it does not escape white space (escape_whitespaces), which is not supported")
    unknown = [i for i, piece in enumerate(pieces) if piece.kind == UNKNOWN]
    if len(unknown) != 1:
        raise ValueError(f"it must have one unknown piece; it has {len(unknown)}")
    if (double := len(pieces) - len({piece.text for piece in pieces})) > 0:
        raise ValueError(f"{double} of its pieces occur twice")
    return SentencePieceModel(
        pieces=pieces,
        unk_id=unknown[0],
        algorithm=algorithm,
        byte_fallback=bool(trainer.get(35, 0)),
        charsmap=normalizer.get(2, b""),
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
    )


def _piece(data: bytes) -> _Piece:
    fields = dict(_fields(data, {1: bytes, 2: float, 3: int}))
    text, score, kind = fields.get(1, b"").decode("utf-8"), fields.get(2, 0.0), fields.get(3, NORMAL)
    if not text or kind not in range(NORMAL, BYTE + 1) or not math.isfinite(score):
        raise ValueError(f"a piece is malformed: text {text!r}, score {score}, type {kind}")
    # The shortest decimal of this float32: the Rust library reads a longer one back from JSON with another last bit.
    return _Piece(text, float(str(np.float32(score))), kind)


def _fields(data: bytes, types: Mapping[int, type]) -> Iterator[tuple[int, Any]]:
    """(field number, value) of the fields of one message that `types` lists; the 32-bit fields here are floats."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        field, wire = tag >> 3, tag & 7
        value: int | float | bytes
        if wire == _VARINT:
            value, at = _varint(data, at)
        elif wire in (_FIXED32, _FIXED64):
            form = "<f" if wire == _FIXED32 else "<d"
            value, at = struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
        elif wire == _BYTES:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
            if at > len(data):
                raise ValueError(f"it ends within a field ({size} bytes announced, {len(value)} there)")
        else:
            raise ValueError(f"wire type {wire} of field {field} is not one of protocol buffers")
        if field == 0:
            raise ValueError("it has a field of number 0")
        if field in types:
            if not isinstance(value, types[field]):
                raise ValueError(
                    f"field {field} is encoded as {type(value).__name__}, {types[field].__name__} is expected"
                )
            yield field, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("it ends within a number")
        byte = data[at]
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            return value, at
    raise ValueError("a number is longer than 64 bits")


def build_sentencepiece_tokenizer(
    model: SentencePieceModel,
    *,
    leading_tokens: tuple[str, ...] = (),
    num_skipped_pieces: int = 0,
    first_normalizers: tuple["tokenizers.normalizers.Normalizer", ...] = (),
    split_punctuation: bool = False,
    split_digit_comma: bool = False,
) -> "tokenizers.Tokenizer":
    """The tokenizer without special tokens and template.

    Args:
        model: The file's content.
        leading_tokens: Tokens that stand in the vocabulary before the pieces, as fairseq's models have them.
        num_skipped_pieces: How many pieces of the file fall away at the front for that.
        first_normalizers: Normalizers that come before the character map.
        split_punctuation: Punctuation marks are words of their own, as in DeBERTa's `split_by_punct`.
        split_digit_comma: No piece ends in a digit and a comma, as ALBERT's code has it.

    Raises:
        ValueError: A piece of `leading_tokens` is in the file too, or a piece that falls away is an ordinary one.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from tokenizers.normalizers import Precompiled, Prepend, Replace

    vocabulary = _vocabulary(model, leading_tokens, num_skipped_pieces, split_digit_comma)
    ids = {piece: i for i, (piece, _) in enumerate(vocabulary)}
    unk = model.pieces[model.unk_id].text
    if model.algorithm == BPE:
        merges = _merges(model, ids)
        rust = Tokenizer(models.BPE(ids, merges, unk_token=unk, fuse_unk=True, byte_fallback=model.byte_fallback))
    else:
        rust = Tokenizer(models.Unigram(vocabulary, ids[unk], model.byte_fallback))
    steps = list(first_normalizers)
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
    words = pre_tokenizers.Metaspace(SPACE, scheme, split=not any(SPACE in p.text[1:] for p in model.pieces))
    splits = [pre_tokenizers.Punctuation("isolated")] if split_punctuation else []
    rust.pre_tokenizer = pre_tokenizers.Sequence([*splits, words]) if splits else words
    spaces = decoders.Metaspace(SPACE, "always" if model.add_dummy_prefix else "never")
    rust.decoder = decoders.Sequence([decoders.ByteFallback(), spaces]) if model.byte_fallback else spaces
    return rust


@lru_cache(maxsize=1)
def strip_accents_normalizers() -> tuple["tokenizers.normalizers.Normalizer", ...]:
    """Normalizers that take accents off as Python's `unicodedata.combining` defines them, as ALBERT's code does.

    The Rust library's `StripAccents` would take the vowel signs of Indic scripts too.
    """
    from tokenizers import Regex
    from tokenizers.normalizers import NFKD, Replace

    marks = [i for i in range(0x300, 0x1F000) if unicodedata.combining(chr(i))]
    starts = [i for i in marks if not unicodedata.combining(chr(i - 1))]
    ends = [i for i in marks if not unicodedata.combining(chr(i + 1))]
    ranges = "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(starts, ends))
    return (NFKD(), Replace(Regex(f"[{ranges}]"), ""))


def _vocabulary(
    model: SentencePieceModel, leading_tokens: tuple[str, ...], num_skipped_pieces: int, split_digit_comma: bool
) -> list[tuple[str, float]]:
    """(piece, score) by id. Scores are made such that the Rust library, which knows no types, chooses as SentencePiece
    does."""
    wrong = [piece.text for piece in model.pieces[:num_skipped_pieces] if piece.kind not in (UNKNOWN, CONTROL)]
    if wrong:
        raise ValueError(
            f"the first {num_skipped_pieces} pieces must be control pieces; {wrong[0]!r} is an ordinary one."
        )
    normal = [piece.score for piece in model.pieces if piece.kind == NORMAL] or [0.0]
    if leading_tokens and (model.unk_id or model.pieces[0].text not in leading_tokens):
        raise ValueError(f"its piece 0 must be the unknown one, of {leading_tokens}: is it another family's file?")
    lowest, highest = min(normal), max(normal)
    vocabulary = [(token, lowest) for token in leading_tokens]
    for text, score, kind in model.pieces[num_skipped_pieces:]:
        if kind == USER_DEFINED:  # always chosen: its score is the best possible for its length
            score = len(text) * highest - 0.1
        elif kind in (UNKNOWN, CONTROL, BYTE):
            score = lowest
        elif kind == UNUSED:  # the raw space is in no normalized text, so this never matches
            text, score = f"{text} ", lowest
        elif split_digit_comma and len(text) > 1 and text[-1] == "," and text[-2].isdigit():
            score -= 100.0
        vocabulary.append((text, score))
    double = sorted(set(leading_tokens).intersection(piece for piece, _ in vocabulary[len(leading_tokens) :]))
    if double:
        raise ValueError(f"the file holds {double[0]!r}, which this family adds: is it another family's file?")
    return vocabulary


def _merges(model: SentencePieceModel, ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Joins the neighbours that make the piece of the best score; the file lists the pieces in that order."""
    usable = {piece.text for piece in model.pieces if piece.kind in (NORMAL, USER_DEFINED)}
    joined = [piece for piece in model.pieces if piece.kind == NORMAL]
    return [
        (text[:i], text[i:])
        for text, _, _ in sorted(joined, key=lambda piece: (-piece.score, ids[piece.text]))
        for i in range(1, len(text))
        if text[:i] in usable and text[i:] in usable
    ]
