"""Rows of a prompt of label names before a window of a text, which models for entities of any label read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bertzoo.text.encoded import Encoded, lengths_to_row_splits
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.windows import cut_words, find_template

LABEL, WORD = 1, 2  # the roles of tokens that stand for labels and words, see `encode_with_roles`
_WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")


def find_prompted_words(text: str) -> np.ndarray:
    """The words of a text as GLiNER splits it, int64 (words, 2): letters and digits, also with hyphens or underscores
    inside, and every other character that is no space."""
    return np.array([match.span() for match in _WORD.finditer(text)], dtype=np.int64).reshape(-1, 2)


class Prompt(NamedTuple):
    """Label names before a text.

    Attributes:
        labels: int (labels,), the names' numbers, in their order.
        token_ids: int32 (tokens,).
        positions: int (labels,), the token of each label.
    """

    labels: np.ndarray
    token_ids: np.ndarray
    positions: np.ndarray


class LabelPrompts:
    """Prompts of some label names: before each a token that stands for it, after the last a separator.

    Args:
        tokenizer: A tokenizer that has both tokens.
        labels: The names.
        label_token, separator: The tokens.
        reads_label_token: Whether a label's vector is that of its token, or of the first token of its name.

    Raises:
        ValueError: There are no names, a name is empty or occurs twice, or it holds one of the tokens.
        TypeError: A name is no string.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        labels: Sequence[str],
        label_token: str,
        separator: str,
        reads_label_token: bool = True,
    ):
        _check_labels(labels, (label_token, separator))
        self.labels = list(labels)
        encoded = tokenizer.encode_words([[label_token, label] for label in labels])
        self._rows = [encoded.row(i) for i in range(len(encoded))]
        self._separator = tokenizer.encode_words([[separator]]).row(0)
        self._shift = 0 if reads_label_token else 1
        self.lengths = encoded.lengths  # tokens of each label in a prompt

    def num_tokens(self, token_counts: np.ndarray) -> int:
        """The tokens of a prompt of labels of so many tokens."""
        return int(token_counts.sum()) + len(self._separator)

    def prompt(self, labels: np.ndarray) -> Prompt:
        """The prompt of some labels, by their numbers."""
        rows = [self._rows[i] for i in labels.tolist()]
        begins = np.cumsum([0, *(len(row) for row in rows)])[:-1]
        return Prompt(labels, np.concatenate([*rows, self._separator]), begins + self._shift)

    def pieces(self, max_labels: int, max_tokens: int) -> list[Prompt]:
        """All labels in as few prompts as have at most so many labels and tokens each.

        Raises:
            ValueError: A name alone has too many tokens.
        """
        longest = int(self.lengths.argmax())
        if self.num_tokens(self.lengths[longest : longest + 1]) > max_tokens:
            raise ValueError(
                f"a prompt may have {max_tokens} tokens. Received: the label {self.labels[longest]!r:.60} of "
                f"{self.lengths[longest]}; shorten it."
            )
        pieces, begin = [], 0
        for end in range(1, len(self.labels) + 1):
            is_full = end - begin == max_labels
            if end == len(self.labels) or is_full or self.num_tokens(self.lengths[begin : end + 1]) > max_tokens:
                pieces.append(self.prompt(np.arange(begin, end)))
                begin = end
        return pieces


def _check_labels(labels: Sequence[str], tokens: tuple[str, str]) -> None:
    if isinstance(labels, str) or not all(isinstance(label, str) for label in labels):
        raise TypeError(f"labels must be a list of strings. Received: {labels!r:.60}.")
    if not len(labels) or len(set(labels)) < len(labels) or not all(label.strip() for label in labels):
        raise ValueError(f"labels must be different names, one at least. Received: {labels!r:.60}.")
    wrong = next((label for label in labels for token in tokens if token in label), None)
    if wrong is not None:
        raise ValueError(f"a label must not hold {' or '.join(tokens)}. Received: {wrong!r:.60}.")


@dataclass(frozen=True)
class WordWindow:
    """A part of a text, in words.

    Attributes:
        text: The text's number.
        begin, end: The words of the window.
        own_begin, own_end: The words that have the most context in this window.
        previous_end: Where the window before it ends; 0 where there is none.
        token_ids: int32 (tokens,), without special tokens.
        word_tokens: int (words,), the token that stands for each word; -1 where the tokenizer makes nothing of it.
    """

    text: int
    begin: int
    end: int
    own_begin: int
    own_end: int
    previous_end: int
    token_ids: np.ndarray
    word_tokens: np.ndarray

    def reads(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Whether spans of words, which this window holds, are read here, and not in another window.

        Args:
            first, last: Their words in the text, int.
        """
        # A span that reaches beyond the window before this one can't be read there.
        return (first < self.own_end) & ((first >= self.own_begin) | (last >= self.previous_end))


def cut_word_windows(
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[str]],
    prompt_tokens: np.ndarray,
    max_words: int,
    reads_last_token: bool = False,
) -> list[WordWindow]:
    """The windows of texts that have room beside their prompts; none of texts without words.

    Args:
        tokenizer: Its `max_length` limits the rows.
        sentences: The words of each text.
        prompt_tokens: int (texts,), the tokens of each text's longest prompt.
        max_words: The most words of a window.
        reads_last_token: Whether a word's last token stands for it, else its first.

    Raises:
        ValueError: A prompt leaves no room for text.
    """
    encoded, taken = tokenizer.encode_words(sentences), num_special_tokens(tokenizer)
    windows = []
    for text, words in enumerate(sentences):
        room = len(encoded.row(text)) or 1
        if tokenizer.max_length is not None:
            room = tokenizer.max_length - taken - int(prompt_tokens[text])
        if room < 1:
            raise ValueError(
                f"the longest row is {tokenizer.max_length} tokens, and the labels with the special tokens take "
                f"{taken + prompt_tokens[text]}: raise max_length, or pass fewer or shorter labels."
            )
        windows += _windows_of_text(encoded, text, len(words), room, max_words, reads_last_token)
    return windows


def _windows_of_text(
    encoded: Encoded, text: int, num_words: int, room: int, max_words: int, reads_last_token: bool
) -> list[WordWindow]:
    assert encoded.word_ids is not None  # as `encode_words` says
    tokens = encoded.row(text)
    word_ids = encoded.word_ids[encoded.row_splits[text] : encoded.row_splits[text + 1]]
    starts = np.searchsorted(word_ids, np.arange(num_words + 1))
    windows: list[WordWindow] = []
    previous_end = 0
    for begin, end, own_begin, own_end in cut_words(np.diff(starts), room, max_words) if num_words else ():
        ids = tokens[starts[begin] : starts[end]][:room]  # a word longer than the room is cut
        first, after = starts[begin:end] - starts[begin], starts[begin + 1 : end + 1] - starts[begin]
        places = np.where(after > first, after - 1 if reads_last_token else first, -1)
        places = np.minimum(places, len(ids) - 1)
        windows.append(WordWindow(text, begin, end, own_begin, own_end, previous_end, ids, places))
        previous_end = end
    return windows


def num_special_tokens(tokenizer: Tokenizer) -> int:
    """The special tokens around a row of one text."""
    return sum(map(len, find_template(tokenizer, pairs=False)[0]))


def encode_with_roles(tokenizer: Tokenizer, rows: Sequence[tuple[WordWindow, Prompt]]) -> Encoded:
    """Rows of tokens whose `segment_ids` are the tokens' roles: `LABEL`, `WORD`, or 0.

    Args:
        tokenizer: The tokenizer that made them.
        rows: The window and the prompt of each row.
    """
    before, _, after = find_template(tokenizer, pairs=False)[0]
    ids, roles = [], []
    for window, prompt in rows:
        tokens = np.concatenate([before, prompt.token_ids, window.token_ids, after])
        row_roles = np.zeros(len(tokens), np.int8)
        row_roles[len(before) + prompt.positions] = LABEL
        columns = len(before) + len(prompt.token_ids) + window.word_tokens
        row_roles[columns[window.word_tokens >= 0]] = WORD
        ids.append(tokens)
        roles.append(row_roles)
    splits = lengths_to_row_splits(np.array([len(row) for row in ids], np.int64))
    return Encoded(np.concatenate(ids).astype(np.int32), np.concatenate(roles), splits)


def rows_of_prompts(
    tokenizer: Tokenizer,
    settings: Mapping[str, Any],
    texts: Sequence[str],
    max_words: int,
    labels: Sequence[str] = ("person", "place", "organization"),
) -> Encoded:
    """Rows of texts behind a prompt, as `encode_with_roles` gives them, at most `max_words` words long.

    Args:
        tokenizer: The tokenizer.
        settings: Those of a model, in the words of gliner_config.json.
        texts: The texts; of those without words there are no rows.
        max_words: The most words of a row.
        labels: The label names, of which as many are used as fit.
    """
    prompts = LabelPrompts(tokenizer, labels, settings["ent_token"], settings["sep_token"], settings["embed_ent_token"])
    limit = (tokenizer.max_length or settings["max_length"]) - num_special_tokens(tokenizer)
    prompt = prompts.pieces(settings["max_types"], limit // 2)[0]
    sentences = [[text[a:b] for a, b in find_prompted_words(text)] for text in texts]
    lengths = np.full(len(texts), len(prompt.token_ids))
    reads_last = settings["subtoken_pooling"] == "last"
    windows = cut_word_windows(tokenizer, sentences, lengths, max_words, reads_last)
    return encode_with_roles(tokenizer, [(window, prompt) for window in windows if (window.word_tokens >= 0).any()])


def row_places(tokenizer: Tokenizer, window: WordWindow, prompt: Prompt) -> np.ndarray:
    """int (words,): the column of each word's token in the row of a window and a prompt; all words have one."""
    return len(find_template(tokenizer, pairs=False)[0][0]) + len(prompt.token_ids) + window.word_tokens
