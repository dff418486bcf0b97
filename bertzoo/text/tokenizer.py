"""Strings to token ids: a thin layer over the Rust `tokenizers` library, the same for every family."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertzoo.checkpoints.errors import add_source_to_errors
from bertzoo.text import tokenizer_files
from bertzoo.text.encoded import Encoded, check_unicode, to_text_lists
from bertzoo.text.rust_rows import encode_rows
from bertzoo.text.vocabulary_files import build_wordpiece_tokenizer

if TYPE_CHECKING:  # imported on first use, since the package is slow to load
    import tokenizers


class Tokenizer:
    """Turns texts, or pairs of texts, into NumPy arrays of token ids, and ids back into text.

    `tokenizer(["a gripping film"])` gives `token_ids`, `segment_ids` and `padding_mask`. Special tokens in a text, such
    as `[MASK]`, are recognised. Usually made by `from_directory`, `from_vocabulary` or a trainer such as
    `bertzoo.train_wordpiece`.

    Args:
        rust: A `tokenizers.Tokenizer`.
        special_tokens: Its special tokens by role: cls, sep, pad, mask, unk.
        max_length: The longest row, in tokens, that any call returns, usually the model's number of positions; None for
            no limit.
        segments: False, for models without segment embeddings, makes all segment ids 0.
        settings: The content of a tokenizer_config.json, which `file_contents` writes again.

    Raises:
        ValueError: `max_length` can't hold the special tokens.
    """

    def __init__(
        self,
        rust: tokenizers.Tokenizer,
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
        (byte-level BPE), or a SentencePiece `.model`; config.json and tokenizer_config.json name the family.
        Truncation and padding stored in tokenizer.json are switched off.

        Args:
            directory: A checkpoint directory.
            lowercase: Overrides the files. A vocab.txt alone is taken as uncased if its pieces hold no capitals.
            max_length: Overrides the files.

        Raises:
            FileNotFoundError: The directory has no tokenizer.
            ValueError: A file can't be used.
        """
        rust, special_tokens, settings = tokenizer_files.read_tokenizer_directory(directory, lowercase)
        max_length = tokenizer_files.max_length_from_settings(settings) if max_length is None else max_length
        with add_source_to_errors(directory):
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
        """Makes BERT's WordPiece tokenizer.

        Args:
            tokens: The vocabulary by id; it needs [CLS], [SEP] and [UNK].
            lowercase: Lowercase texts.
            strip_accents: Strip accents; as `lowercase` where None.
            tokenize_chinese_chars: Put spaces around Chinese characters.
            max_length: The longest row in tokens.

        Raises:
            ValueError: One of these tokens is missing.
        """
        rust = build_wordpiece_tokenizer(
            tokens,
            lowercase=lowercase,
            strip_accents=strip_accents,
            tokenize_chinese_chars=tokenize_chinese_chars,
        )
        return cls(rust, tokenizer_files.find_special_tokens(rust, {}), max_length=max_length)

    @property
    def max_length(self) -> int | None:
        """The longest row, in tokens, special tokens included; None for no limit."""
        return self._max_length

    @max_length.setter
    def max_length(self, value: int | None) -> None:
        if value is not None:
            self._check_room(value, pairs=False)
        self._max_length = value

    @property
    def truncation_side(self) -> str:
        """Where rows that are too long are cut: "right", at their end, or "left"."""
        return self._settings.get("truncation_side") or "right"

    @property
    def splits_special_tokens(self) -> bool:
        """Whether special tokens in a text are split like other words."""
        return bool(self._settings.get("split_special_tokens"))

    def __call__(
        self,
        texts: str | Sequence[str],
        pairs: str | Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        pad_to: int | None = None,
        return_offsets: bool = False,
    ) -> dict[str, np.ndarray]:
        """A padded batch of texts.

        Args:
            texts, pairs, max_length: See `encode`.
            pad_to: The length of all rows; longer ones are truncated. The longest row's where None.
            return_offsets: Return character offsets too.

        Returns:
            `token_ids`, `segment_ids` and `padding_mask` (1 = real), each int32 (n, length); n is 1 for a string.
            With `return_offsets` also `offsets`, int32 (n, length, 2): a token covers `text[a:b]`, and (0, 0) is an
            added special token or padding. Padding has the pad token's id, or 0 where the vocabulary has none.

        Raises:
            TypeError, ValueError: As `encode`, and where `pad_to` is more than the tokenizer's `max_length`.
        """
        if pad_to is not None:
            if self.max_length is not None and pad_to > self.max_length:
                raise ValueError(
                    f"pad_to={pad_to} is longer than the model takes (max_length={self.max_length}); use at most that."
                )
            max_length = pad_to if max_length is None else min(max_length, pad_to)
        encoded = self.encode(texts, pairs, max_length=max_length, return_offsets=return_offsets)
        length = pad_to if pad_to is not None else int(encoded.lengths.max(initial=0))
        rows = np.arange(len(encoded))
        batch = encoded.pad(rows, length, self.pad_id)
        if return_offsets:
            batch["offsets"] = encoded.pad_offsets(rows, length)
        return batch

    def encode(
        self,
        texts: str | Sequence[str],
        pairs: str | Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        return_offsets: bool = False,
        truncate: bool = True,
        truncation_side: str | None = None,
    ) -> Encoded:
        """Ragged rows of token ids, as data sets keep them.

        Args:
            texts: A string or a sequence of strings: list, tuple, NumPy array, pandas Series.
            pairs: The second texts, as many.
            max_length: Longer rows are truncated, of pairs the longer text first; special tokens stay. The tokenizer's
                own `max_length` is a limit too.
            return_offsets: Add character offsets and word ids.
            truncate: False truncates nothing, for windows over long texts.
            truncation_side: "right" or "left"; the tokenizer's own where None.

        Raises:
            TypeError: A row is no string.
            ValueError: There are not as many pairs as texts, or `max_length` can't hold the special tokens.
        """
        firsts, seconds = to_text_lists(texts, pairs)
        limits = [limit for limit in (max_length, self.max_length) if limit is not None and truncate]
        if limits:
            self._check_room(min(limits), pairs=seconds is not None)
        rows = firsts if seconds is None else list(zip(firsts, seconds))
        with self._lock:
            if limits:
                side = truncation_side or self.truncation_side
                self._rust.enable_truncation(min(limits), strategy="longest_first", direction=side)
            else:
                self._rust.no_truncation()
            try:
                return encode_rows(self._rust, rows, return_offsets, self.segments)
            except TypeError:
                check_unicode(firsts, "texts")
                check_unicode(seconds or [], "pairs")
                raise
            finally:
                self._rust.no_truncation()

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> Encoded:
        """Rows of the tokens of words, each word tokenized alone, without special tokens and not truncated.

        Args:
            sentences: The words of each row.

        Returns:
            The rows, with `word_ids`, and `offsets` that count from each word's start.

        Raises:
            ValueError: A word is no valid Unicode text.
        """
        with self._lock:
            try:
                options = {"is_pretokenized": True, "add_special_tokens": False}
                rows = [list(words) for words in sentences]
                return encode_rows(self._rust, rows, True, self.segments, **options)
            except TypeError:
                check_unicode([word for words in sentences for word in words], "words")
                raise

    def decode(
        self, ids: Sequence[int] | Sequence[Sequence[int]] | np.ndarray, skip_special_tokens: bool = True
    ) -> str | list[str]:
        """Turns ids back into text.

        Args:
            ids: Token ids, (length,) or (n, length).
            skip_special_tokens: Leave special tokens out.

        Returns:
            A string for ids (length,), a list of n strings for ids (n, length).

        Raises:
            ValueError: The vocabulary has no such id.
        """

        def text_of(row: Any) -> str:
            numbers = [int(i) for i in row]
            for i in numbers:
                self.id_to_token(i)
            return self._rust.decode(numbers, skip_special_tokens=skip_special_tokens)

        return [text_of(row) for row in ids] if len(ids) and np.ndim(ids[0]) else text_of(ids)

    def token_to_id(self, token: str) -> int | None:
        """The id of a vocabulary entry, None for a string that is not in the vocabulary."""
        return self._rust.token_to_id(token)

    def id_to_token(self, index: int) -> str:
        """The vocabulary entry of an id.

        Raises:
            ValueError: The vocabulary has no such id.
        """
        token = self._rust.id_to_token(int(index)) if index >= 0 else None
        if token is None:
            raise ValueError(f"{index} is no token id: the vocabulary has ids 0 to {self.vocabulary_size - 1}.")
        return token

    def file_contents(self) -> dict[str, bytes]:
        """tokenizer.json and tokenizer_config.json by name; `transformers.AutoTokenizer` loads them with equal ids."""
        return tokenizer_files.build_tokenizer_files(self._rust, self._special_tokens, self._settings, self.max_length)

    def normalize_text(self, text: str) -> str:
        """A text as it is split into words: lowercased and cleaned, with plain spaces."""
        if self._rust.normalizer is None:
            return text
        return self._rust.normalizer.normalize_str(text).replace("▁", " ").strip()

    def with_special_tokens(self, special_tokens: Sequence[str]) -> Tokenizer:
        """A copy with further special tokens, which are never split and get the next ids."""
        rust = type(self._rust).from_str(self._rust.to_str())
        rust.add_special_tokens(list(special_tokens))
        return Tokenizer(
            rust, self._special_tokens, max_length=self.max_length, segments=self.segments, settings=self._settings
        )

    def get_config(self) -> dict:
        """The tokenizer's files and limits as text, so that a `.keras` archive of a task is complete."""
        files = {name: content.decode() for name, content in self.file_contents().items()}
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
        """The id of the mask token of masked language modelling."""
        return self._id_of("mask")

    @property
    def unk_id(self) -> int | None:
        """The id of unknown words."""
        return self._id_of("unk")

    @cached_property
    def special_ids(self) -> tuple[int, ...]:
        """All ids of special tokens, ascending, those of additional special tokens included."""
        added = self._rust.get_added_tokens_decoder()
        ids = {index for index, token in added.items() if token.special}
        return tuple(sorted(ids.union(i for i in map(self._id_of, self._special_tokens) if i is not None)))

    @cached_property
    def continuation_mask(self) -> np.ndarray:
        """bool (vocabulary_size,): whether a piece continues a word (`##ing`), for whole-word masking.

        Raises:
            ValueError: The tokenizer is not WordPiece: only its pieces say so by themselves.
        """
        prefix = getattr(self._rust.model, "continuing_subword_prefix", None)
        if type(self._rust.model).__name__ != "WordPiece" or not prefix:
            raise ValueError(
                f"continuation_mask needs a WordPiece vocabulary. Received: {type(self._rust.model).__name__}."
            )
        marks = np.zeros(self.vocabulary_size, dtype=bool)
        marks[[i for token, i in self._rust.get_vocab().items() if token.startswith(prefix) and token != prefix]] = True
        return marks

    @property
    def lowercases(self) -> bool:
        """Whether texts are lowercased before they are split."""
        return self.normalize_text("A") == "a"

    def __getstate__(self) -> dict:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return (
            f"Tokenizer({type(self._rust.model).__name__}, vocabulary_size={self.vocabulary_size}, "
            f"lowercase={self.lowercases}, max_length={self.max_length})"
        )

    def _id_of(self, role: str) -> int | None:
        token = self._special_tokens.get(role)
        return None if token is None else self._rust.token_to_id(token)

    def _check_room(self, length: int, pairs: bool) -> None:
        if isinstance(length, bool) or not isinstance(length, (int, np.integer)):
            raise TypeError(f"max_length must be a whole number of tokens or None. Received: {length!r}.")
        special = self._rust.num_special_tokens_to_add(pairs)
        if length < max(special, 1):
            raise ValueError(
                f"max_length={length} cannot hold the {special} special tokens of a {'pair' if pairs else 'row'}; "
                f"use at least {special + 1}."
            )
