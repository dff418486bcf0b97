"""Texts behind prompts of label names: rows for finding entities of any label, and for learning to."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertzoo.data.batches import SeededDataset
from bertzoo.data.entity_spans import find_entity_words, wrong_tag_count
from bertzoo.data.labels import target_rows
from bertzoo.data.parsing import Examples, take_rows
from bertzoo.data.schemas import EntitySpans, WordSchema
from bertzoo.data.task_data import TaskData
from bertzoo.models.config import EncoderConfig
from bertzoo.text import tags as bio
from bertzoo.text.encoded import Encoded, lengths_to_row_splits
from bertzoo.text.label_prompts import (
    LabelPrompts,
    Prompt,
    WordWindow,
    cut_word_windows,
    find_prompted_words,
    num_special_tokens,
)
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.windows import find_template

Entity = tuple[int, int, int]  # the first and the last word, and the label's number
UNCOUNTED = -1
NO_LABELS = "EntityFinder needs label names. Received: texts alone. Call tag(texts, labels)."


@dataclass(frozen=True)
class PromptSettings:
    """How rows are made, in the words of gliner_config.json.

    Attributes:
        ent_token, sep_token: The token before each label, and that after the last.
        embed_ent_token: Whether a label's vector is that of its `ent_token`, else of the token after it.
        reads_last_token: Whether a word's last token stands for it, else its first.
        max_types, max_len: The most labels of a prompt, and words of a window.
        max_neg_type_ratio: In training, the most labels in a prompt that a text does not have, for each that it has.
        max_width: Words of the longest span, for logits of spans; None for logits of tokens.
    """

    ent_token: str
    sep_token: str
    embed_ent_token: bool
    reads_last_token: bool
    max_types: int
    max_len: int
    max_neg_type_ratio: int
    max_width: int | None


class EntityData(TaskData):
    """Texts, or sentences of words, with entities of any label names.

    Args:
        tokenizer, config: As for `TaskData`.
        settings: How rows are made.
    """

    transforms_any_shape = True

    def __init__(self, tokenizer: Tokenizer | None, config: EncoderConfig, settings: PromptSettings):
        super().__init__(tokenizer, config, WordSchema(find_words=find_prompted_words))
        self.settings = settings

    def encode(self, examples: Examples) -> Any:
        raise ValueError(NO_LABELS)

    def make_prompts(self, labels: Sequence[str]) -> LabelPrompts:
        """The prompts of label names."""
        settings = self.settings
        return LabelPrompts(
            self.require_tokenizer(), labels, settings.ent_token, settings.sep_token, settings.embed_ent_token
        )

    def cut(self, examples: Examples, prompt_tokens: np.ndarray) -> list[WordWindow]:
        """The windows of texts; `prompt_tokens` int (texts,) are those of each one's longest prompt."""
        sentences = [[text[a:b] for a, b in words] for text, words in zip(examples["text"], examples["words"])]
        options = self.settings.max_len, self.settings.reads_last_token
        return cut_word_windows(self.require_tokenizer(), sentences, prompt_tokens, *options)

    def rows_to_answer(self, examples: Examples, labels: Sequence[str]) -> "EntityRows":
        """Rows of all windows with all labels, as many labels at a time as a prompt holds."""
        tokenizer = self.require_tokenizer()
        prompts = self.make_prompts(labels)
        limit = tokenizer.max_length or self.config.max_length
        pieces = prompts.pieces(self.settings.max_types, (limit - num_special_tokens(tokenizer)) // 2)
        longest = max(len(piece.token_ids) for piece in pieces)
        windows = self.cut(examples, np.full(len(examples), longest))
        rows = [(window, piece) for window in windows for piece in pieces]
        return EntityRows(self, [row[0] for row in rows], [row[1] for row in rows])

    def make_dataset_of_examples(
        self, examples: Examples, sample_weights: np.ndarray | None, with_targets: bool, **options: Any
    ) -> SeededDataset:
        """Rows to learn from. In training the labels of a text are drawn anew for each epoch: those that it has, and
        some of the others, in any order. Otherwise a prompt has the text's own labels, then others, `max_types` at
        most; with more labels than that, the loss leaves some out."""
        entities, labels = entities_of_examples(examples)
        prompts, settings = self.make_prompts(labels), self.settings
        self._warn_of_wide(entities)
        kinds = [np.unique([label for _, _, label in row]).astype(int) for row in entities]
        if options.get("shuffle"):
            draws: list[Any] = [LabelDraw(prompts, own, settings) for own in kinds]
        else:
            others = np.arange(len(labels))
            own_first = [np.concatenate([own, np.setdiff1d(others, own)])[: settings.max_types] for own in kinds]
            draws = [prompts.prompt(np.sort(row)) for row in own_first]
        windows = self.cut(examples, np.array([len(draw.token_ids) for draw in draws]))
        sources = np.array([window.text for window in windows], dtype=int)
        rows = EntityRows(self, windows, [draws[i] for i in sources], [entities[i] for i in sources])
        return rows.dataset(sample_weights=take_rows(sample_weights, sources), **options)

    def _warn_of_wide(self, entities: list[list[Entity]]) -> None:
        most = self.settings.max_width
        wide = sum(last - first >= most for row in entities for first, last, _ in row) if most else 0
        if wide:
            warnings.warn(
                f"{wide} entities have more than max_width = {most} words and are not learnt: raise it, or use "
                'span_mode="token_level".',
                stacklevel=4,
            )

    def convert_batch(self, batch: tuple, choose_length: Callable) -> tuple:
        raise ValueError(
            "fit expects lists or a table, because prompts are drawn from all label names. Received: a stream."
        )


class LabelDraw:
    """Draws the prompts of a text that has some labels.

    Args:
        prompts: The prompts of all labels.
        own: int (labels,), the numbers of the text's own.
        settings: How many others there may be.

    Attributes:
        token_ids: (tokens,), as many as the longest prompt has.
        most_labels: The labels of a prompt that has the most.
    """

    def __init__(self, prompts: LabelPrompts, own: np.ndarray, settings: PromptSettings):
        self._prompts, self._own, self._max_types = prompts, own, settings.max_types
        self._others = np.setdiff1d(np.arange(len(prompts.labels)), own)
        self._least = 0 if len(own) else 1
        room = max(0, settings.max_types - len(own))
        most = min(settings.max_neg_type_ratio * max(1, len(own)), room, len(self._others))
        self._most = max(most, self._least)
        self.most_labels = min(len(own) + self._most, settings.max_types)
        longest = [np.sort(prompts.lengths[labels])[::-1] for labels in (own, self._others)]
        counts = np.concatenate([longest[0][: settings.max_types], longest[1][: self._most]])
        self.token_ids = np.zeros(prompts.num_tokens(counts), np.int32)

    def draw(self, rng: np.random.Generator) -> Prompt:
        """A prompt with one label at least."""
        count = int(rng.integers(self._least, self._most + 1))
        others = rng.choice(self._others, count, replace=False)
        return self._prompts.prompt(rng.permutation(np.concatenate([self._own, others]))[: self._max_types])


class EntityRows:
    """Rows, each a prompt before a window.

    Args:
        data: What made them.
        windows: The window of each row.
        prompts: The prompt of each row, or what draws it.
        entities: The entities of each row's text, for targets.
    """

    def __init__(
        self,
        data: EntityData,
        windows: list[WordWindow],
        prompts: list,
        entities: list[list[Entity]] | None = None,
    ):
        self.windows, self.prompts, self._entities, self._data = windows, prompts, entities, data
        self._before, _, self._after = find_template(data.require_tokenizer(), pairs=False)[0]
        taken = len(self._before) + len(self._after)
        self.lengths = np.array([taken + len(p.token_ids) + len(w.token_ids) for p, w in zip(prompts, windows)], int)
        order = np.argsort(self.lengths, kind="stable")
        counts = np.array([window.end - window.begin for window in windows], int)
        self._sorted_lengths = self.lengths[order]
        # The most words of a row up to each of these lengths.
        self._most_words = np.maximum.accumulate(counts[order]) if len(counts) else counts
        self._most_labels = max((self._count_labels(prompt) for prompt in prompts), default=0)

    def _count_labels(self, prompt: Any) -> int:
        return len(prompt.labels) if isinstance(prompt, Prompt) else prompt.most_labels

    def dataset(self, sample_weights: np.ndarray | None = None, **options: Any) -> SeededDataset:
        """Batches of the rows; `options` are those of `TaskData.make_dataset`."""
        total = int(self.lengths.sum())
        # Of the longest form of each row; a batch gets its tokens when it is made.
        encoded = Encoded(np.zeros(total, np.int32), np.zeros(total, np.int8), lengths_to_row_splits(self.lengths))

        def make_batch(inputs: dict[str, np.ndarray], rows: np.ndarray, rng: np.random.Generator) -> tuple:
            prompts = [self.prompts[i] for i in rows]
            prompts = [prompt if isinstance(prompt, Prompt) else prompt.draw(rng) for prompt in prompts]
            inputs = self._inputs(rows, prompts, inputs["token_ids"].shape[1])
            if self._entities is None:
                return (inputs,)
            targets = (inputs, self._targets(rows, prompts, inputs))
            return targets if sample_weights is None else (*targets, sample_weights[rows])

        return self._data.make_dataset(encoded, transform=make_batch, **options)

    def _inputs(self, rows: np.ndarray, prompts: list[Prompt], length: int) -> dict[str, np.ndarray]:
        # The number of words depends on the length alone, so that there are no more shapes than lengths.
        fits = int(np.searchsorted(self._sorted_lengths, length, side="right"))
        shape, words = (len(rows), length), int(self._most_words[fits - 1])
        ids, lengths = np.full(shape, self._data.pad_id, np.int32), np.zeros(len(rows), np.int32)
        word_positions = np.full((len(rows), words), -1, np.int32)
        label_positions = np.full((len(rows), self._most_labels), -1, np.int32)
        counts = np.zeros(len(rows), np.int32)
        for i, (row, prompt) in enumerate(zip(rows.tolist(), prompts)):
            window = self.windows[row]
            parts = [self._before, prompt.token_ids, window.token_ids, self._after]
            tokens = np.concatenate(parts)
            lengths[i], counts[i] = len(tokens), len(window.word_tokens)
            ids[i, : lengths[i]] = tokens
            label_positions[i, : len(prompt.labels)] = len(self._before) + prompt.positions
            start = len(self._before) + len(prompt.token_ids)
            word_positions[i, : counts[i]] = np.where(window.word_tokens < 0, -1, window.word_tokens + start)
        return {
            "token_ids": ids,
            "segment_ids": np.zeros(shape, np.int32),
            "padding_mask": (np.arange(length) < lengths[:, None]).astype(np.int32),
            "lengths": lengths,
            "word_positions": word_positions,
            "word_counts": counts,
            "label_positions": label_positions,
        }

    def _targets(self, rows: np.ndarray, prompts: list[Prompt], inputs: dict[str, np.ndarray]) -> np.ndarray:
        """int8 (batch, words, max_width, labels) or (batch, words, labels, 3): 1 and 0, and `UNCOUNTED` for what is
        learnt in another row or is padding."""
        words, width = inputs["word_positions"].shape[1], self._data.settings.max_width
        entities = self._entities or []
        shape = (len(rows), words, width or self._most_labels, self._most_labels if width else 3)
        targets = np.full(shape, UNCOUNTED, np.int8)
        for i, (row, prompt) in enumerate(zip(rows.tolist(), prompts)):
            window = self.windows[row]
            columns = {int(label): column for column, label in enumerate(prompt.labels)}
            inside = [
                (first - window.begin, last - window.begin, columns[label])
                for first, last, label in entities[row]
                if label in columns and first < window.end and last >= window.begin
            ]
            fill = _fill_tokens if width is None else _fill_spans
            fill(targets[i], window, inside, len(prompt.labels))
        return targets


def _fill_spans(targets: np.ndarray, window: WordWindow, entities: list[Entity], num_labels: int) -> None:
    """Sets targets (words, max_width, labels)."""
    count, width = window.end - window.begin, targets.shape[1]
    first = np.arange(count)[:, None]
    last = first + np.arange(width)
    counted = (last < count) & window.reads(first + window.begin, last + window.begin)
    targets[:count, :, :num_labels] = np.where(counted, 0, UNCOUNTED)[:, :, None]
    for begin, end, column in entities:
        if begin >= 0 and end - begin < width and end < count and counted[begin, end - begin]:
            targets[begin, end - begin, column] = 1


def _fill_tokens(targets: np.ndarray, window: WordWindow, entities: list[Entity], num_labels: int) -> None:
    """Sets targets (words, labels, 3)."""
    own = slice(window.own_begin - window.begin, window.own_end - window.begin)
    marks = np.zeros((window.end - window.begin, num_labels, 3), np.int8)
    for begin, end, column in entities:
        marks[max(begin, 0) : end + 1, column, 2] = 1
        if begin >= 0:
            marks[begin, column, 0] = 1
        if end < len(marks):
            marks[end, column, 1] = 1
    targets[own, :num_labels] = marks[own]


def entities_of_examples(examples: Examples) -> tuple[list[list[Entity]], list[str]]:
    """The entities of each text in words, and the label names, sorted.

    Raises:
        ValueError: There are no targets, or they are neither spans nor tags.
    """
    found: list[list[tuple[int, int, str]]] = []
    targets = target_rows(examples.targets, len(examples))
    tags = {tag for row in targets if not isinstance(row, EntitySpans) for tag in row}
    if not all(isinstance(tag, str) for tag in tags):
        wrong = next(tag for tag in tags if not isinstance(tag, str))
        raise ValueError(f"y must hold tags for sentences of words, such as B-person. Received: {wrong!r:.60}.")
    scheme = bio.detect_tag_scheme(tags)
    if scheme is not None:
        bio.check_tag_order((row for row in targets if not isinstance(row, EntitySpans)), scheme)
    for number, (text, words, row) in enumerate(zip(examples["text"], examples["words"], targets)):
        if isinstance(row, EntitySpans):
            spans = [find_entity_words(span, number, text, words) for span in row.spans]
            found.append([(int(inside[0]), int(inside[-1]), kind) for _, _, kind, inside in spans])
        elif len(row) != len(words):
            raise wrong_tag_count(number, len(row), len(words))
        else:
            found.append([(first, after - 1, kind) for kind, first, after in bio.find_entities(row)])
    labels = sorted({kind for row in found for _, _, kind in row})
    if not labels:
        raise ValueError("y holds no entities: there are no label names to learn.")
    numbers = {label: i for i, label in enumerate(labels)}
    return [[(first, last, numbers[kind]) for first, last, kind in row] for row in found], labels
