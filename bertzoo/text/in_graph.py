"""WordPiece inside a TensorFlow graph, for `tf.data` and for SavedModels that take strings. Needs tensorflow-text."""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf
from tokenizers import Tokenizer as RustTokenizer

from bertzoo.text.tokenizer import Tokenizer

try:
    import tensorflow_text as tf_text
except ImportError as error:
    raise ImportError("in-graph tokenization needs tensorflow-text: pip install tensorflow-text") from error

_SPACE, _ALONE = 1, 2
_LAST = 0x110000
# The host's normalizer drops private characters, so that ours can stand for special tokens.
_FIRST_SPECIAL = 0x100000
_LONGEST_WORD = 100


class InGraphTokenizer(tf.Module):
    """A BERT tokenizer as TensorFlow operations: strings to `token_ids`, `segment_ids` and `padding_mask`.

    The tables that it works with are asked from the host's tokenizer character by character, so ids are the same, with
    these differences: bytes that are no UTF-8 become U+FFFD, which is dropped (the host takes no such strings); and
    spacing marks of unlike combining class in other than canonical order, as in no real text, keep their order.

    Args:
        tokenizer: A WordPiece tokenizer with BERT's normalizer.
        max_length: The longest row in tokens; the tokenizer's own where None.
        pad_to: The length of all rows; that of the longest one where None.
        segments: Whether to tell the two texts of a pair apart.

    Raises:
        ValueError: The tokenizer is of another kind, or `pad_to` is more than `max_length`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: int | None = None,
        pad_to: int | None = None,
        segments: bool = True,
        name: str | None = None,
    ):
        super().__init__(name=name)
        content = json.loads(tokenizer.files()["tokenizer.json"])
        kinds = content["model"]["type"], (content["normalizer"] or {}).get("type")
        if kinds != ("WordPiece", "BertNormalizer"):
            raise ValueError(f"in-graph tokenization needs WordPiece with BERT's normalizer; this one has {kinds}.")
        if tokenizer.truncation_side == "left" or tokenizer.splits_special_tokens:
            raise ValueError(
                "in-graph tokenization cuts texts at their end and keeps special tokens whole; the tokenizer's files "
                "ask for truncation_side = left or split_special_tokens: tokenize on the host."
            )
        if tokenizer.max_length is not None:
            max_length = min(max_length or tokenizer.max_length, tokenizer.max_length)
        if pad_to is not None and max_length is not None and pad_to > max_length:
            raise ValueError(f"pad_to={pad_to} is more than max_length={max_length}.")
        self.max_length = min(filter(None, (max_length, pad_to)), default=None)
        self.pad_to, self.segments = pad_to, segments
        self._ids = {role: getattr(tokenizer, f"{role}_id") for role in ("cls", "sep", "unk")}
        self._pad_id = tokenizer.pad_id
        self._separators = 2 if _has_double_separator(tokenizer) else 1
        self._specials = sorted(map(tokenizer.id_to_token, tokenizer.special_ids), key=len, reverse=True)
        self._special_ids = tf.constant([tokenizer.token_to_id(token) for token in self._specials], tf.int32)
        self._characters = _CharacterTable(tokenizer)
        # The host drops NUL, which the operation would take for the end of a piece.
        pieces = [tokenizer.id_to_token(i) for i in range(len(content["model"]["vocab"]))]
        pieces = [chr(_LAST - 1) + str(i) if "\0" in piece else piece for i, piece in enumerate(pieces)]
        self._wordpiece = tf_text.FastWordpieceTokenizer(
            pieces,
            token_out_type=tf.int32,
            unknown_token=content["model"]["unk_token"],
            suffix_indicator=content["model"]["continuing_subword_prefix"],
            max_bytes_per_word=4 * _LONGEST_WORD,
            no_pretokenization=True,
        )

    def __call__(self, texts: tf.Tensor, pairs: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """texts, pairs: strings (n,). Each result is int32 (n, length)."""
        first = self.pieces(texts)
        if pairs is None:
            limits = None if self.max_length is None else self.max_length - 2
            rows, ones = self._framed([_cut(first, limits)]), None
        else:
            second = self.pieces(pairs)
            if self.max_length is not None:
                first, second = _cut_longest(first, second, self.max_length - 2 - self._separators)
            rows, ones = self._framed([first, second]), second.row_lengths() + 1
        ids = rows.to_tensor(self._pad_id, shape=(None, self.pad_to))
        lengths = tf.cast(rows.row_lengths(), tf.int32)[:, None]
        places = tf.range(tf.shape(ids)[1])[None]
        mask = tf.cast(places < lengths, tf.int32)
        segments = tf.zeros_like(ids)
        if ones is not None and self.segments:
            segments = mask * tf.cast(places >= lengths - tf.cast(ones, tf.int32)[:, None], tf.int32)
        return {"token_ids": ids, "segment_ids": segments, "padding_mask": mask}

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The ids of strings (n,) without frame: ragged int32 (n, length)."""
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
        texts = tf.strings.regex_replace(texts, f"[{chr(_FIRST_SPECIAL)}-{chr(_LAST - 1)}]", "")
        for index, token in enumerate(self._specials):
            texts = tf.strings.regex_replace(texts, _quoted(token), chr(_FIRST_SPECIAL + index))
        characters, rows = self._characters(tf.strings.unicode_decode(texts, "UTF-8"))
        kinds = self._characters.kinds(characters)
        alone, space = tf.equal(kinds, _ALONE), tf.equal(kinds, _SPACE)
        breaks = tf.concat([[True], (alone | space)[:-1] | (rows[1:] != rows[:-1])], 0)[: tf.size(rows)]
        begins = (alone | breaks) & ~space
        words = tf.boolean_mask(tf.cumsum(tf.cast(begins, tf.int64)) - 1, ~space)
        letters = tf.RaggedTensor.from_value_rowids(
            tf.boolean_mask(characters, ~space), words, nrows=tf.math.count_nonzero(begins)
        )
        word_rows = tf.RaggedTensor.from_value_rowids(
            self._encode_words(letters), tf.boolean_mask(rows, begins), nrows=tf.size(texts, tf.int64)
        )
        return word_rows.merge_dims(1, 2)

    def _encode_words(self, letters: tf.RaggedTensor) -> tf.RaggedTensor:
        """Words as code points, ragged (words, letters) -> their pieces' ids, ragged (words, pieces)."""
        lengths = letters.row_lengths()
        # Every word has a letter; a marker of a special token is a word of its own.
        first = tf.gather(letters.values, letters.row_starts())
        special = first - _FIRST_SPECIAL
        # Longer words are one unknown token, which the vocabulary's own unknown token spells.
        words = tf.strings.unicode_encode(letters, "UTF-8")
        ids = self._wordpiece.tokenize(words)
        whole = (special >= 0) | (lengths > _LONGEST_WORD)
        found = tf.gather(self._special_ids, tf.clip_by_value(special, 0, len(self._specials) - 1))
        single = tf.where(special >= 0, found, self._ids["unk"])
        both = tf.concat([tf.RaggedTensor.from_row_lengths(single, tf.ones_like(lengths)), ids], 0)
        count = tf.size(lengths)
        return tf.gather(both, tf.where(whole, tf.range(count), tf.range(count) + count))

    def _framed(self, parts: list[tf.RaggedTensor]) -> tf.RaggedTensor:
        def column(role: str) -> tf.Tensor:
            return tf.fill([parts[0].nrows(), 1], self._ids[role])

        pieces = [column("cls"), parts[0], column("sep")]
        if len(parts) > 1:
            pieces += [column("sep")] * (self._separators - 1) + [parts[1], column("sep")]
        return tf.concat(pieces, 1)


class StringModel(tf.Module):
    """A task that takes strings, to be saved as one SavedModel: `StringModel(classifier).save("directory")`.

    Args:
        task: A task with a WordPiece tokenizer, such as a `TextClassifier`, under the TensorFlow backend.
        pairs: Whether it takes two strings a row.

    Raises:
        ValueError: The backend is not TensorFlow, or the task has no tokenizer, or one of another kind.
    """

    def __init__(self, task, pairs: bool = False, name: str | None = None):
        super().__init__(name=name)
        if not isinstance(task.weights[0].value, tf.Variable):
            raise ValueError("a StringModel is a TensorFlow graph: set KERAS_BACKEND=tensorflow and load anew.")
        if task.tokenizer is None:
            raise ValueError(f"{task.name} has no tokenizer to put into the graph.")
        self.tokenizer = InGraphTokenizer(task.tokenizer, task.tokenizer.max_length, segments=task.tokenizer.segments)
        self.task = task
        strings = [tf.TensorSpec([None], tf.string, name) for name in ("texts", "pairs")[: 1 + pairs]]
        # Nothing here is for autograph, which takes seconds to read the task's code for statements to convert.
        self.serve = tf.function(self._serve, input_signature=strings, autograph=False)

    def __call__(self, texts, pairs=None):
        """strings (n,) -> what the task gives for them at inference, such as logits (n, labels)."""
        return self.serve(*(x for x in (texts, pairs) if x is not None))

    def save(self, directory: str | Path) -> None:
        """Writes a SavedModel with the signature `serving_default`. What loads it must import tensorflow_text first."""
        tf.saved_model.save(self, str(directory), signatures={"serving_default": self.serve})

    def _serve(self, texts, pairs=None):
        outputs = self.task(self.tokenizer(texts, pairs), training=False)
        return outputs if isinstance(outputs, dict) else {"outputs": outputs}


class _CharacterTable:
    """What the host makes of each character: a few others, and whether they are space, stand alone, or neither."""

    def __init__(self, tokenizer: Tokenizer):
        rust = RustTokenizer.from_str(tokenizer.files()["tokenizer.json"].decode())
        codes = [code for code in range(_FIRST_SPECIAL) if not 0xD800 <= code < 0xE000]
        outputs = _normalized(rust.normalizer, codes)
        self._texts = _Blocks({code: index for index, code in enumerate(outputs, start=1)})
        flat = ["", *outputs.values()]
        self._outputs = tf.RaggedTensor.from_row_lengths(
            tf.constant([ord(c) for c in "".join(flat)], tf.int32), np.array([len(text) for text in flat])
        )
        kept = sorted({ord(c) for c in "".join(flat)}.union(code for code in codes if code not in outputs))
        kinds = _kinds(rust.pre_tokenizer, kept)
        self._kinds = _Blocks(kinds | {code: _ALONE for code in range(_FIRST_SPECIAL, _LAST)})

    def __call__(self, texts: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Code points, ragged (n, length) -> normalized ones, flat, and the row of each."""
        codes, rows = texts.values, texts.value_rowids()
        entries = self._texts(codes)
        changed = entries > 0
        same = tf.RaggedTensor.from_row_lengths(codes, tf.ones_like(codes, tf.int64))
        both = tf.concat([same, self._outputs], 0)
        count = tf.size(codes)
        out = tf.gather(both, tf.where(changed, entries + count, tf.range(count)))
        return out.values, tf.repeat(rows, out.row_lengths())

    def kinds(self, codes: tf.Tensor) -> tf.Tensor:
        """Whether code points are space, stand alone, or neither."""
        return self._kinds(codes)


class _Blocks:
    """A map of code points to small numbers, 0 where none is given, in blocks of 256 of which equal ones are shared."""

    def __init__(self, numbers: dict[int, int]):
        table = np.zeros(_LAST, np.int32)
        table[list(numbers)] = list(numbers.values())
        blocks, places = np.unique(table.reshape(-1, 256), axis=0, return_inverse=True)
        self._blocks, self._places = tf.constant(blocks.ravel()), tf.constant(places.ravel().astype(np.int32))

    def __call__(self, codes: tf.Tensor) -> tf.Tensor:
        return tf.gather(self._blocks, tf.gather(self._places, codes // 256) * 256 + codes % 256)


def _normalized(normalizer, codes: list[int]) -> dict[int, str]:
    """What becomes of the code points that do not stay as they are."""
    outputs = {}
    # Many at once, with a digit between them that only comes from itself.
    codes = [code for code in codes if code != ord("0")]
    for start in range(0, len(codes), 1024):
        some = codes[start : start + 1024]
        texts = normalizer.normalize_str("0".join(map(chr, some))).split("0")
        outputs.update((code, text) for code, text in zip(some, texts, strict=True) if text != chr(code))
    return outputs


def _kinds(pre_tokenizer, codes: list[int]) -> dict[int, int]:
    """The code points that are space or stand alone: those that are cut out from between two letters."""
    kinds = {}
    for start in range(0, len(codes), 1024):
        some = codes[start : start + 1024]
        pieces = pre_tokenizer.pre_tokenize_str("a" + "".join(chr(code) + "a" for code in some))
        covered = {place: end - begin for _, (begin, end) in pieces for place in range(begin, end)}
        for index, code in enumerate(some):
            size = covered.get(2 * index + 1, 0)
            if size < 2:
                kinds[code] = _ALONE if size else _SPACE
    return kinds


def _quoted(token: str) -> str:
    return "".join(c if c.isalnum() else f"\\{c}" if c.isascii() else c for c in token)


def _has_double_separator(tokenizer: Tokenizer) -> bool:
    return tokenizer("", "")["token_ids"].shape[1] == 4


def _cut(rows: tf.RaggedTensor, limit) -> tf.RaggedTensor:
    return rows if limit is None else rows[:, :limit]


def _cut_longest(first: tf.RaggedTensor, second: tf.RaggedTensor, room: int):
    """Both cut to `room` tokens together, the longer one first, as the Rust library does it."""
    a, b = tf.cast(first.row_lengths(), tf.int32), tf.cast(second.row_lengths(), tf.int32)
    short, long = tf.minimum(a, b), tf.maximum(a, b)
    cut_long = tf.maximum(short, room - short)
    half = room // 2
    fits, alone = a + b <= room, short + cut_long <= room
    new_short = tf.where(fits | alone, short, half)
    new_long = tf.where(fits, long, tf.where(alone, cut_long, room - half))
    lengths = (tf.where(a <= b, new_short, new_long), tf.where(a <= b, new_long, new_short))
    return tuple(_take(rows, length) for rows, length in zip((first, second), lengths))


def _take(rows: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    kept = tf.ragged.range(tf.zeros_like(lengths), lengths)
    starts = tf.cast(rows.row_starts(), tf.int32)
    return kept.with_values(tf.gather(rows.values, kept.values + tf.repeat(starts, lengths)))
