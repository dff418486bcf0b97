"""WordPiece inside a TensorFlow graph, for `tf.data` and for SavedModels that take strings. Needs tensorflow-text."""

import json
import re
from pathlib import Path
from typing import Any

import tensorflow as tf

from bertzoo.text.tokenizer import Tokenizer

try:
    import tensorflow_text as tf_text
except ImportError as error:
    raise ImportError("in-graph tokenization needs tensorflow-text: pip install tensorflow-text") from error


# What BERT's normalizer drops: control and format characters, private ones, and the replacement character.
_DROPPED = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\x{fffd}]|\p{Cf}|\p{Co}"


class InGraphTokenizer(tf.Module):
    """A BERT tokenizer as TensorFlow operations: strings to `token_ids`, `segment_ids` and `padding_mask`.

    Texts are split at special tokens; what is between them goes through tensorflow_text's FastBertTokenizer (Song et
    al. 2021). Ids are those of the tokenizer, except in this: a word is unknown from 101 bytes on, not from 101
    characters; Σ at the end of a word is lowercased to ς, not σ; characters that are newer than TensorFlow's tables are
    normalized otherwise; and bytes that are no UTF-8 are dropped.

    Args:
        tokenizer: A WordPiece tokenizer with BERT's normalizer, which lowercases and strips accents, or does neither.
        max_length: The longest row in tokens; the tokenizer's own where None.
        pad_to: The length of all rows; that of the longest one where None.
        segments: Give the second text of a pair the segment 1.

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
        content = json.loads(tokenizer.file_contents()["tokenizer.json"])
        _check_kind(tokenizer, content)
        if tokenizer.max_length is not None:
            max_length = min(max_length or tokenizer.max_length, tokenizer.max_length)
        if pad_to is not None and max_length is not None and pad_to > max_length:
            raise ValueError(f"pad_to={pad_to} is more than max_length={max_length}.")
        self.max_length = min(filter(None, (max_length, pad_to)), default=None)
        self.pad_to, self.segments = pad_to, segments
        self._cls_id, self._sep_id = (tf.constant(i, tf.int32) for i in (tokenizer.cls_id, tokenizer.sep_id))
        self._pad_id = tokenizer.pad_id
        self._separators = 2 if tokenizer("", "")["token_ids"].shape[1] == 4 else 1
        specials = sorted(map(tokenizer.id_to_token, tokenizer.special_ids), key=len, reverse=True)
        self._specials = tf.constant(specials)
        self._special_ids = tf.constant([tokenizer.token_to_id(token) for token in specials], tf.int32)
        self._pattern = "|".join(map(re.escape, specials))
        # No text has NUL once it is cleaned, and the operation takes it for the end of a piece.
        pieces = [tokenizer.id_to_token(i) for i in range(len(content["model"]["vocab"]))]
        self._words = tf_text.FastBertTokenizer(
            [f"\ufffe{i}" if "\0" in piece else piece for i, piece in enumerate(pieces)],
            suffix_indicator=content["model"]["continuing_subword_prefix"],
            unknown_token=content["model"]["unk_token"],
            token_out_type=tf.int32,
        )
        self._lowercase = content["normalizer"]["lowercase"]

    def __call__(self, texts: tf.Tensor, pairs: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """The model's inputs, each int32 (n, length), of strings (n,)."""
        tokens = [self.tokenize(texts)] if pairs is None else [self.tokenize(texts), self.tokenize(pairs)]
        if self.max_length is not None and pairs is None:
            tokens = [tokens[0][:, : self.max_length - 2]]
        elif self.max_length is not None:
            tokens = _cut_longest(tokens, self.max_length - 2 - self._separators)
        rows = self._with_special_tokens(tokens)
        ids = rows.to_tensor(self._pad_id, shape=(None, self.pad_to))
        lengths = tf.cast(rows.row_lengths(), tf.int32)[:, None]
        positions = tf.range(tf.shape(ids)[1])[None]
        mask = tf.cast(positions < lengths, tf.int32)
        segments = tf.zeros_like(ids)
        if pairs is not None and self.segments:
            second = tf.cast(tokens[1].row_lengths(), tf.int32)[:, None] + 1
            segments = mask * tf.cast(positions >= lengths - second, tf.int32)
        return {"token_ids": ids, "segment_ids": segments, "padding_mask": mask}

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The ids of strings (n,) without the tokens around them: ragged int32 (n, length)."""
        # NUL would end the text in what follows.
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
        texts = tf.strings.regex_replace(texts, r"\x00", "")
        split = tf_text.regex_split(texts, f"({self._pattern})", keep_delim_regex_pattern=self._pattern)
        spans = split.values
        equal = tf.equal(spans[:, None], self._specials[None])
        special = tf.gather(self._special_ids, tf.argmax(equal, axis=1))
        # Each span is one special token or some pieces: both are at hand, one below the other, and one is taken.
        count = tf.size(spans)
        words = self._words.tokenize(self._normalized(spans))
        both = tf.concat([tf.RaggedTensor.from_tensor(special[:, None]), words], 0)
        rows = tf.range(count) + tf.where(tf.reduce_any(equal, axis=1), 0, count)
        return split.with_values(tf.gather(both, rows)).merge_dims(1, 2)

    def _normalized(self, texts: tf.Tensor) -> tf.Tensor:
        # Not left to FastBertTokenizer, which would case-fold: ß to ss, … to three dots.
        texts = tf.strings.regex_replace(texts, _DROPPED, "")
        if self._lowercase:
            texts = tf_text.normalize_utf8(texts, "NFD")
            texts = tf.strings.lower(tf.strings.regex_replace(texts, r"\p{Mn}", ""), encoding="utf-8")
        return texts

    def _with_special_tokens(self, tokens: list[tf.RaggedTensor]) -> tf.RaggedTensor:
        def column(index: tf.Tensor) -> tf.Tensor:
            return tf.fill([tokens[0].nrows(), 1], index)

        rows = [column(self._cls_id), tokens[0], column(self._sep_id)]
        if len(tokens) > 1:
            rows += [column(self._sep_id)] * (self._separators - 1) + [tokens[1], column(self._sep_id)]
        return tf.concat(rows, 1)


def _cut_longest(tokens: list[tf.RaggedTensor], room: int) -> list[tf.RaggedTensor]:
    """Cuts pairs to `room` tokens, the longer text first, as the Rust library does."""
    a, b = (tf.cast(rows.row_lengths(), tf.int32) for rows in tokens)
    short = tf.minimum(tf.minimum(a, b), room // 2)
    long = tf.minimum(tf.maximum(a, b), room - short)
    lengths = tf.where(a <= b, short, long), tf.where(a <= b, long, short)
    return [tf.gather(rows, tf.ragged.range(kept), batch_dims=1) for rows, kept in zip(tokens, lengths)]


def _check_kind(tokenizer: Tokenizer, content: dict[str, Any]) -> None:
    normalizer = content["normalizer"] or {}
    kinds = content["model"]["type"], normalizer.get("type")
    if kinds != ("WordPiece", "BertNormalizer"):
        raise ValueError(f"in-graph tokenization needs WordPiece with BERT's normalizer. Received: {kinds}.")
    strips = normalizer["strip_accents"]
    if strips not in (None, normalizer["lowercase"]) or not normalizer["handle_chinese_chars"]:
        raise ValueError(
            "in-graph tokenization lowercases and strips accents, or does neither, and splits Chinese characters. "
            f"Received: {normalizer}. Tokenize on the host."
        )
    if tokenizer.truncation_side == "left" or tokenizer.splits_special_tokens:
        raise ValueError(
            "in-graph tokenization cuts texts at their end and keeps special tokens whole; the tokenizer's files "
            "have truncation_side = left or split_special_tokens: tokenize on the host."
        )


class StringModel(tf.Module):
    """A task that takes strings, to be saved as one SavedModel: `StringModel(classifier).save("directory")`.

    Args:
        task: A task with a WordPiece tokenizer, such as a `TextClassifier`, under the TensorFlow backend.
        pairs: Whether it takes two strings a row.

    Raises:
        ValueError: The backend is not TensorFlow, or the task has no tokenizer, or one of another kind.
    """

    def __init__(self, task: Any, pairs: bool = False, name: str | None = None):
        super().__init__(name=name)
        if not isinstance(task.weights[0].value, tf.Variable):
            raise ValueError(
                "a StringModel is a TensorFlow graph: set KERAS_BACKEND=tensorflow and load the task again."
            )
        if task.tokenizer is None:
            raise ValueError(f"{task.name} has no tokenizer to put into the graph.")
        self.tokenizer = InGraphTokenizer(task.tokenizer, task.tokenizer.max_length, segments=task.tokenizer.segments)
        self.task = task
        strings = [tf.TensorSpec([None], tf.string, name) for name in ("texts", "pairs")[: 1 + pairs]]
        # Autograph would read the task's code for seconds and find nothing to convert.
        self.serve = tf.function(self._serve, input_signature=strings, autograph=False)

    def __call__(self, texts: tf.Tensor, pairs: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """The task's outputs at inference, such as logits (n, labels), for strings (n,)."""
        return self.serve(*(x for x in (texts, pairs) if x is not None))

    def save(self, directory: str | Path) -> None:
        """Writes a SavedModel with the signature `serving_default`. What loads it must import tensorflow_text first."""
        tf.saved_model.save(self, str(directory), signatures={"serving_default": self.serve})

    def _serve(self, texts, pairs=None):
        outputs = self.task(self.tokenizer(texts, pairs), training=False)
        return outputs if isinstance(outputs, dict) else {"outputs": outputs}
