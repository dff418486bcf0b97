"""Reads SentencePiece's `.model` files: a protocol buffer (sentencepiece_model.proto), without the protobuf library."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE = 1, 2

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class SentencePieceModel:
    """What a `.model` file says. `kinds`: the types of the pieces (NORMAL, CONTROL …); `algorithm`: UNIGRAM or BPE."""

    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    kinds: tuple[int, ...]
    algorithm: int
    byte_fallback: bool
    charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool

    @property
    def unk_id(self) -> int:
        """The place of the unknown piece."""
        return self.kinds.index(UNKNOWN)


def read_sentencepiece(path: str | Path) -> SentencePieceModel:
    """Reads and checks a `.model` file.

    Raises `ValueError` for a file that is cut off or malformed, and for what the families here do not use: the word and
    character models, white space as a suffix, and unescaped white space.
    """
    try:
        model = _model(Path(path).read_bytes())
    except (ValueError, struct.error) as error:
        raise ValueError(f"{path} is no SentencePiece model that bertzoo can read: {error}.") from None
    return model


def _model(data: bytes) -> SentencePieceModel:
    pieces, parts = [], {2: b"", 3: b""}
    for field, value in _fields(data):
        if field == 1:
            pieces.append(_piece(_of(value, bytes, "a piece")))
        elif field in parts:
            parts[field] += _of(value, bytes, "a specification")  # repeated messages are merged
    if not pieces:
        raise ValueError("it holds no pieces")
    trainer, normalizer = dict(_fields(parts[2])), dict(_fields(parts[3]))
    algorithm = _of(trainer.get(3, UNIGRAM), int, "model_type")
    if algorithm not in (UNIGRAM, BPE):
        raise ValueError(f"model_type is {algorithm}; 1 (unigram) and 2 (BPE) are supported")
    if trainer.get(24, 0):
        raise ValueError("it marks words at their end (treat_whitespace_as_suffix), which is not supported")
    if not normalizer.get(5, 1):
        raise ValueError("it does not escape white space (escape_whitespaces), which is not supported")
    texts, scores, kinds = zip(*pieces)
    if kinds.count(UNKNOWN) != 1:
        raise ValueError(f"it must have one piece for what is unknown, it has {kinds.count(UNKNOWN)}")
    if len(set(texts)) < len(texts):
        raise ValueError(f"{len(texts) - len(set(texts))} of its pieces stand there twice")
    return SentencePieceModel(
        pieces=texts,
        scores=scores,
        kinds=kinds,
        algorithm=algorithm,
        byte_fallback=bool(trainer.get(35, 0)),
        charsmap=_of(normalizer.get(2, b""), bytes, "precompiled_charsmap"),
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
    )


def _piece(data: bytes) -> tuple[str, float, int]:
    fields = dict(_fields(data))
    text = _of(fields.get(1, b""), bytes, "the text of a piece").decode("utf-8")
    score = _of(fields.get(2, 0.0), float, "the score of a piece")
    kind = _of(fields.get(3, NORMAL), int, "the type of a piece")
    if not text or kind not in range(NORMAL, BYTE + 1) or score != score or abs(score) == float("inf"):
        raise ValueError(f"a piece is malformed: text {text!r}, score {score}, type {kind}")
    return text, score, kind


def _of(value, kind: type, what: str):
    if not isinstance(value, kind):
        raise ValueError(f"{what} is encoded as {type(value).__name__}, {kind.__name__} is expected")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """(field number, value) of one message: an int, a float (the 32-bit fields here are all floats) or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        field, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
            value, at = struct.unpack_from("<f" if size == 4 else "<d", data, at)[0], at + size
        elif wire == _BYTES:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
            if at > len(data):
                raise ValueError(f"it ends within a field ({size} bytes announced, {len(value)} there)")
        else:
            raise ValueError(f"wire type {wire} of field {field} is not one of protocol buffers")
        if field == 0:
            raise ValueError("it has a field of number 0")
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
