"""Strings to token ids: a thin layer over the Rust `tokenizers` library, the same for every family."""

from __future__ import annotations

import gc
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from bertzoo.checkpoints.errors import error_source
from bertzoo.text import tokenizer_files
from bertzoo.text.encoded import Encoded, row_splits_from
from bertzoo.text.inputs import as_pairs, explain_unencodable
from bertzoo.text.special_tokens import BERT_TOKENS
from bertzoo.text.wordpiece import build_wordpiece

# The Rust library's objects take some kilobytes a row until they are flattened.
_CHUNK = 8192


@contextmanager
def _no_collection() -> Iterator[None]:
    """A block in which no garbage is collected.

    Rust makes a hundred thousand objects without a step of Python between them, except for what JAX does whenever
    Python collects. Python then hands Ctrl-C to that, which loses it.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Tokenizer:
    """Turns texts, or pairs of texts, into NumPy arrays of token ids, and ids back into text.

    `tokenizer(["a gripping film"])` gives `token_ids`, `segment_ids` and `padding_mask`. Special tokens written in a
    text, such as `[MASK]`, are recognised as such. `max_length` (None = no limit) is the longest row in tokens that
    any call gives; a model's number of positions belongs there. With `segments=False`, for models without segment
    embeddings, all segment ids are 0.

    Made by `from_directory`, `from_vocabulary` or `bertzoo.text.train_wordpiece`; the constructor takes a
    `tokenizers.Tokenizer`, its special tokens by role (cls, sep, pad, mask, unk) and the content of a
    tokenizer_config.json, which `files` carries through.
    """

    def __init__(
        self,
        rust,
        special_tokens: Mapping[str, str],
        *,
        max_length: int | None = None,
        segments: bool = True,
        settings: Mapping | None = None,
    ):
        self._rust = rust
        self._special_tokens = dict(special_tokens)
        self._settings = dict(settings or {})
        rust.encode_special_tokens = self.splits_special_tokens
        # Truncation is state of the Rust object, so that two calls at once would cut each other's rows.
        self._lock = threading.Lock()
        self.max_length, self.segments = max_length, segments

    @classmethod
    def from_directory(
        cls, directory: str | Path, *, lowercase: bool | None = None, max_length: int | None = None
    ) -> Tokenizer:
        """Reads tokenizer.json, else the family's own files, with tokenizer_config.json and special_tokens_map.json.

        These are vocab.txt (WordPiece), vocab.json and merges.txt or fairseq's dict.txt, encoder.json and vocab.bpe
        (byte-level BPE), or a SentencePiece `.model`; config.json and tokenizer_config.json say whose they are.
        Truncation and padding stored in tokenizer.json are switched off. `lowercase` overrides what the files say; a
        lone vocab.txt is taken as uncased if its pieces hold no capitals. Raises `FileNotFoundError` where there are
        no such files and `ValueError` for files that cannot be read.
        """
        rust, special_tokens, settings = tokenizer_files.read_directory(directory, lowercase)
        if max_length is None:
            max_length = tokenizer_files.stored_max_length(settings)
        with error_source(directory):
            return cls(rust, special_tokens, max_length=max_length, settings=settings)

    @classmethod
    def from_vocabulary(
        cls,
        tokens: Sequence[str],
        lowercase: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        max_length: int | None = None,
    ) -> Tokenizer:
        """BERT's WordPiece tokenizer; a token's id is its place in `tokens`, which holds [CLS], [SEP] and [UNK].

        `strip_accents=None` strips them if `lowercase`, as BERT does. Raises `ValueError` if a needed token is missing.
        """
        rust = build_wordpiece(
            tokens,
            lowercase=lowercase,
            strip_accents=strip_accents,
            tokenize_chinese_chars=tokenize_chinese_chars,
            special_tokens=BERT_TOKENS,
        )
        return cls(rust, tokenizer_files.find_special_tokens(rust, {}), max_length=max_length)

    @property
    def max_length(self) -> int | None:
        """The longest row, in tokens, special tokens included; None = no limit."""
        return self._max_length

    @max_length.setter
    def max_length(self, value: int | None) -> None:
        if value is not None:
            self._check_room("max_length", value, pairs=False)
        self._max_length = value

    @property
    def truncation_side(self) -> str:
        """Where rows that are too long are cut: "right", at their end, or "left"."""
        return self._settings.get("truncation_side") or "right"

    @property
    def splits_special_tokens(self) -> bool:
        """Whether special tokens that are written in a text are split as other words are."""
        return bool(self._settings.get("split_special_tokens"))

    def __call__(
        self,
        texts,
        pairs=None,
        *,
        max_length: int | None = None,
        pad_to: int | None = None,
        offsets: bool = False,
    ) -> dict[str, np.ndarray]:
        """`token_ids`, `segment_ids`, `padding_mask` (1 = real), each (n, length) int32; see `encode` for the inputs.

        `length` is `pad_to`, to which longer rows are cut, or that of the longest row; a single string gives n = 1, an
        empty list (0, 0). With `offsets` also `offsets` (n, length, 2) int32: a token covers `text[a:b]`, and (0, 0) is
        an added special token or padding. Padding takes the pad token's id, or 0 where the vocabulary has none.
        """
        if pad_to is not None:
            if self.max_length is not None and pad_to > self.max_length:
                raise ValueError(
                    f"pad_to={pad_to} is longer than the model takes (max_length={self.max_length}); use at most that."
                )
            max_length = pad_to if max_length is None else min(max_length, pad_to)
        encoded = self.encode(texts, pairs, max_length=max_length, offsets=offsets)
        length = pad_to if pad_to is not None else int(encoded.lengths.max(initial=0))
        rows = np.arange(len(encoded))
        batch = encoded.pad(rows, length, self.pad_id)
        if offsets:
            batch["offsets"] = encoded.pad_offsets(rows, length)
        return batch

    def encode(
        self, texts, pairs=None, *, max_length: int | None = None, offsets: bool = False, truncate: bool = True
    ) -> Encoded:
        """Ragged rows of token ids, the form that data sets use; with `offsets` also character offsets and word ids.

        texts: a string or a sequence of strings (list, tuple, NumPy array, pandas Series); pairs: the second sentences,
        as many. Rows longer than `max_length` (at most the tokenizer's own) are cut at their end, or at their beginning
        where tokenizer_config.json says truncation_side = left, pairs at the longer sentence first; special tokens
        always stay. `truncate=False` cuts nothing, for windows over long texts. Raises
        `TypeError` for a row that is no string and `ValueError` for columns of different lengths or a `max_length` that
        cannot hold the special tokens.
        """
        firsts, seconds = as_pairs(texts, pairs)
        limits = [limit for limit in (max_length, self.max_length) if limit is not None and truncate]
        if limits:
            self._check_room("max_length", min(limits), pairs=seconds is not None)
        rows = firsts if seconds is None else list(zip(firsts, seconds))
        with self._lock:
            if limits:
                self._rust.enable_truncation(min(limits), strategy="longest_first", direction=self.truncation_side)
            else:
                self._rust.no_truncation()
            try:
                parts = [self._encode_chunk(rows[i : i + _CHUNK], offsets) for i in range(0, len(rows) or 1, _CHUNK)]
            except TypeError:
                message = explain_unencodable({"texts": firsts, "pairs": seconds})
                if message is None:
                    raise
                raise ValueError(message) from None
            finally:
                self._rust.no_truncation()
        return Encoded.concatenate(parts)

    def decode(self, ids, skip_special_tokens: bool = True) -> str | list[str]:
        """Text of ids: (length,) gives a string, (n, length) a list of n strings. `ValueError` for a wrong id."""
        if len(ids) and np.ndim(ids[0]):
            return [self.decode(row, skip_special_tokens) for row in ids]
        ids = [int(i) for i in ids]
        for i in ids:
            self.id_to_token(i)
        return self._rust.decode(ids, skip_special_tokens=skip_special_tokens)

    def text_with(self, left: str, index: int, right: str) -> tuple[str, str]:
        """A token's text, and the text in which it stands between `left` and `right` with the blanks that it implies.

        A token that goes on with a word (`##ing`; one without `Ġ` or `▁`) joins what is before it; one that begins a
        word is set apart from a word before it. All other blanks are those of `left` and `right`.

        Raises:
            ValueError: The vocabulary has no such id.
        """
        once, twice = self.decode([index], False), self.decode([index, index], False)
        piece = twice[len(once) :] if twice.startswith(once) else once
        token = piece.strip() or piece
        if not piece[:1].isspace():
            return token, left.rstrip(" ") + token + right
        if self.id_to_token(index)[0] in "Ġ▁":  # the blank is in the token
            return token, f"{left}{'' if not left or left[-1].isspace() else ' '}{token}{right}"
        return token, self._set_apart(self._set_apart(left, token), right)

    def _set_apart(self, left: str, right: str) -> str:
        """Two texts side by side, with a blank where they would be one word without it."""
        if not (left[-1:].isalnum() and right[:1].isalnum()):
            return left + right
        words = self.encode(left[-1] + right[0], offsets=True).word_ids
        return left + right if len(set(words[words >= 0])) > 1 else f"{left} {right}"

    def token_to_id(self, token: str) -> int | None:
        """The id of a vocabulary entry, None for a string that is not in the vocabulary."""
        return self._rust.token_to_id(token)

    def id_to_token(self, index: int) -> str:
        """The vocabulary entry of an id. Raises `ValueError` for an id that the vocabulary does not have."""
        token = self._rust.id_to_token(int(index)) if index >= 0 else None
        if token is None:
            raise ValueError(f"{index} is no token id: the vocabulary has ids 0 to {self.vocabulary_size - 1}.")
        return token

    def files(self) -> dict[str, bytes]:
        """tokenizer.json and tokenizer_config.json by name; `transformers.AutoTokenizer` loads them with equal ids."""
        return tokenizer_files.written_files(self._rust, self._special_tokens, self._settings, self.max_length)

    def normalized(self, text: str) -> str:
        """The normalized text, without the space markers that some normalizers add."""
        if self._rust.normalizer is None:
            return text
        return self._rust.normalizer.normalize_str(text).replace("▁", " ").strip()

    def with_tokens(self, tokens: Sequence[str]) -> Tokenizer:
        """A tokenizer with further special tokens, which are never split and get the next ids; this one stays as it
        is."""
        rust = type(self._rust).from_str(self._rust.to_str())
        rust.add_special_tokens(list(tokens))
        return Tokenizer(
            rust, self._special_tokens, max_length=self.max_length, segments=self.segments, settings=self._settings
        )

    def get_config(self) -> dict:
        """The tokenizer's files and limits as text, so that a `.keras` archive of a task is complete."""
        files = {name: content.decode() for name, content in self.files().items()}
        return {"files": files, "max_length": self.max_length, "segments": self.segments}

    @classmethod
    def from_config(cls, config: Mapping) -> Tokenizer:
        """Makes the tokenizer that `get_config` described."""
        with tempfile.TemporaryDirectory() as folder:
            for name in ("tokenizer.json", "tokenizer_config.json"):
                if name in config["files"]:
                    Path(folder, name).write_text(config["files"][name], encoding="utf-8")
            tokenizer = cls.from_directory(folder)
        tokenizer.max_length, tokenizer.segments = config["max_length"], config["segments"]
        return tokenizer

    @property
    def vocabulary(self) -> dict[str, int]:
        """Token -> id, added tokens included."""
        return self._rust.get_vocab(with_added_tokens=True)

    @cached_property
    def vocabulary_size(self) -> int:
        """The largest id + 1, added tokens included: the rows that an embedding table needs."""
        return max(self.vocabulary.values()) + 1

    @property
    def cls_id(self) -> int | None:
        """The id of the token at the start of a row; None where the vocabulary has none."""
        return self._id_of("cls")

    @property
    def sep_id(self) -> int | None:
        """The id of the token that ends a sentence."""
        return self._id_of("sep")

    @property
    def pad_id(self) -> int:
        """The id of the padding token; 0 where the vocabulary has none."""
        return self._id_of("pad") or 0

    @property
    def mask_id(self) -> int | None:
        """The id of the token that hides another in masked-language modelling."""
        return self._id_of("mask")

    @property
    def unk_id(self) -> int | None:
        """The id that stands for what the vocabulary cannot spell."""
        return self._id_of("unk")

    @cached_property
    def special_ids(self) -> tuple[int, ...]:
        """All ids of special tokens, ascending, those of additional special tokens included."""
        added = self._rust.get_added_tokens_decoder()
        ids = {index for index, token in added.items() if token.special}
        return tuple(sorted(ids | {self._rust.token_to_id(token) for token in self._special_tokens.values()}))

    @cached_property
    def is_continuation(self) -> np.ndarray:
        """(vocabulary_size,) bool: whether a piece goes on with a word (`##ing`), for whole-word masking.

        Raises `ValueError` for a tokenizer that is not WordPiece: other pieces are not marked as continuations.
        """
        prefix = getattr(self._rust.model, "continuing_subword_prefix", None)
        if type(self._rust.model).__name__ != "WordPiece" or not prefix:
            raise ValueError(
                f"is_continuation needs a WordPiece vocabulary. Received: {type(self._rust.model).__name__}."
            )
        marks = np.zeros(self.vocabulary_size, dtype=bool)
        marks[[i for token, i in self._rust.get_vocab().items() if token.startswith(prefix) and token != prefix]] = True
        return marks

    @property
    def lowercase(self) -> bool:
        """Whether texts are lowercased before they are split."""
        return _lowercases(tokenizer_files.normalizer_state(self._rust))

    def __getstate__(self) -> dict:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return (
            f"Tokenizer({type(self._rust.model).__name__}, vocabulary_size={self.vocabulary_size}, "
            f"lowercase={self.lowercase}, max_length={self.max_length})"
        )

    def _id_of(self, role: str) -> int | None:
        token = self._special_tokens.get(role)
        return None if token is None else self._rust.token_to_id(token)

    def _check_room(self, name: str, length: int, pairs: bool) -> None:
        if isinstance(length, bool) or not isinstance(length, (int, np.integer)):
            raise TypeError(f"{name} must be a whole number of tokens or None. Received: {length!r}.")
        needed = self._rust.num_special_tokens_to_add(pairs)
        if length < max(needed, 1):
            raise ValueError(
                f"{name}={length} cannot hold the {needed} special tokens of a {'pair' if pairs else 'row'}; "
                f"use at least {needed + 1}."
            )

    @_no_collection()
    def _encode_chunk(self, rows: list, offsets: bool) -> Encoded:
        encode_batch = self._rust.encode_batch if offsets else self._rust.encode_batch_fast
        encodings = encode_batch(rows)
        lengths = np.fromiter((len(e) for e in encodings), np.int64, len(encodings))
        total = int(lengths.sum())
        ids = np.fromiter(chain.from_iterable(e.ids for e in encodings), np.int32, total)
        types = np.zeros(total, np.int8)
        if self.segments:
            types = np.fromiter(chain.from_iterable(e.type_ids for e in encodings), np.int8, total)
        if not offsets:
            return Encoded(ids, types, row_splits_from(lengths))
        offsets = chain.from_iterable(e.offsets for e in encodings)
        spans = np.fromiter(chain.from_iterable(offsets), np.int32, 2 * total)
        words = (-1 if word is None else word for e in encodings for word in e.word_ids)
        return Encoded(
            ids, types, row_splits_from(lengths), spans.reshape(total, 2), np.fromiter(words, np.int32, total)
        )


def _lowercases(state: Mapping) -> bool:
    if state["type"] == "Sequence":
        return any(_lowercases(part) for part in state["normalizers"])
    return state["type"] == "Lowercase" or bool(state.get("lowercase"))
