"""What tasks read: texts and pairs, tuples of texts, questions with contexts, multiple choice, and words with tags."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertzoo.data.parsing import Schema, as_list, column_names, find_column, require_column
from bertzoo.text.encoded import to_text_list, to_text_lists
from bertzoo.text.word_alignment import find_word_spans

# ---- texts and pairs of texts

# Column names of GLUE-style and common tables, in the order in which they are tried.
TEXT_COLUMNS = ("text", "sentence", "sentence1", "premise", "question1", "question", "review", "content")
# Columns that are read together, as pairs.
PAIR_COLUMNS = (
    ("text", "text_pair"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "context"),
)
TARGET_COLUMNS = Schema.targets


def find_text_columns(available_columns: Sequence) -> dict[str, Any]:
    """Finds a table's `text` and `second text`, each a column's name or None.

    A second text is read only where exactly one pair of `PAIR_COLUMNS` exists, and no column `text` besides.

    Raises:
        ValueError: No column has a known name, or more than one pair exists.
    """
    known = [str(name).lower() for name in available_columns]
    pairs = [pair for pair in PAIR_COLUMNS if set(pair) <= set(known)]
    if len(pairs) > 1 and "text" not in known:
        raise ValueError(
            f"the table has the columns {list(available_columns)}, which may be the pairs "
            f"{' or '.join(map(str, pairs))}: pass the one to use as x=(table[{pairs[0][0]!r}], "
            f"table[{pairs[0][1]!r}]), "
            "with y; on the command line, --text and --pair."
        )
    if len(pairs) == 1 and ("text" not in known or pairs[0][0] == "text"):
        return {role: find_column([name], available_columns) for role, name in zip(("text", "second text"), pairs[0])}
    return {"text": require_column(TEXT_COLUMNS, available_columns), "second text": None}


class TextSchema(Schema):
    """Texts or pairs of texts."""

    roles = ("text", "second text")
    row = "a pair of strings"
    most = 2

    def find_columns(self, table: Any) -> dict[str, Any]:
        return find_text_columns(column_names(table))

    def normalize_inputs(self, columns_by_role: dict[str, Any], y: Any) -> tuple[dict[str, Any], Any]:
        texts, pairs = to_text_lists(columns_by_role["text"], columns_by_role.get("second text"))
        return {"text": texts} if pairs is None else {"text": texts, "second text": pairs}, y

    def is_single_example(self, value: Any) -> bool:
        return _is_tuple_of_texts(value) and len(value) == 2


def _is_tuple_of_texts(row) -> bool:
    return isinstance(row, (tuple, list)) and all(isinstance(text, str) for text in row)


# ---- tuples of texts, each encoded alone

ANCHOR_COLUMNS = ("anchor", "query", "question")
IDENTIFIER_COLUMNS = ("id", "idx", "index")


class TupleSchema(Schema):
    """Tuples of as many texts."""

    roles = ("text",)
    row = "a tuple of as many texts"
    most = None
    named_classes = False

    def find_columns(self, table: Any) -> dict[str, Any]:
        """Finds a table's texts, in the order of the loss.

        With a column `positive`: the first of `ANCHOR_COLUMNS`, then positive, then those that begin with negative. Two
        columns that are one of `PAIR_COLUMNS`: in its order. Else all, in the table's order. Columns of numbers, and
        those called id, idx or index, hold no texts.
        """
        names = column_names(table)
        skipped = (*TARGET_COLUMNS, *IDENTIFIER_COLUMNS)
        texts = [
            name
            for name in names
            if str(name).lower() not in skipped
            and not isinstance(next(iter(table[name]), None), (int, float, np.number))
        ]
        if "positive" in texts:
            anchor = find_column(ANCHOR_COLUMNS, texts)
            ordered = [anchor, "positive", *(name for name in texts if str(name).startswith("negative"))]
            if anchor is None or set(texts) - set(ordered):
                raise ValueError(
                    f"beside 'positive', columns must be called {', '.join(ANCHOR_COLUMNS)} (one of them) or "
                    f"negative…. Received: {names}. Rename or drop the others."
                )
        else:
            ordered = next((list(pair) for pair in PAIR_COLUMNS if set(pair) == set(texts)), texts)
        if not ordered:
            raise ValueError(f"the table has the columns {names}; at least one must hold texts.")
        return {f"text {i + 1}": name for i, name in enumerate(ordered)}

    def normalize_inputs(self, columns_by_role: dict[str, Any], y: Any) -> tuple[dict[str, Any], Any]:
        texts = {role: to_text_list(column, role) for role, column in columns_by_role.items()}
        lengths = [len(column) for column in texts.values()]
        if len(set(lengths)) > 1:
            raise ValueError(f"columns of texts must be equally long. Received: columns of {lengths} texts.")
        return texts, y

    def is_single_example(self, value: Any) -> bool:
        return _is_tuple_of_texts(value)


# ---- queries with documents

QUERY_COLUMNS = ("query", "question", "anchor")
DOCUMENTS_COLUMNS = ("documents", "docs", "passages", "texts")


class RankingSchema(Schema):
    """Queries, each with a list of documents."""

    roles = ("query", "documents")
    row = "a query with its documents (q, [a, b])"
    least = most = 2
    targets = ("labels", "label", "scores", "score")
    target = "labels"
    named_classes = False

    def find_columns(self, table: Any) -> dict[str, Any]:
        """Finds `query`, and `documents`, lists of texts, or `document 1` …: positive, then those that begin with
        negative."""
        names = column_names(table)
        query, listed = require_column(QUERY_COLUMNS, names), find_column(DOCUMENTS_COLUMNS, names)
        if listed is not None:
            return {"query": query, "documents": listed}
        negatives = [name for name in names if str(name).lower().startswith("negative")]
        documents = [require_column([*DOCUMENTS_COLUMNS, "positive"], names), *negatives]
        return {"query": query, **{f"document {i + 1}": name for i, name in enumerate(documents)}}

    def normalize_inputs(self, columns_by_role: dict[str, Any], y: Any) -> tuple[dict[str, Any], Any]:
        queries = to_text_list(columns_by_role.pop("query"), "queries")
        listed = columns_by_role.get("documents")
        rows = zip(*columns_by_role.values()) if listed is None else as_list(listed)
        documents = [to_text_list(row, f"the documents of query {number}") for number, row in enumerate(rows)]
        if len(queries) != len(documents):
            raise ValueError(
                f"there must be a list of documents for each of {len(queries)} queries. Received: {len(documents)}."
            )
        for number, row in enumerate(documents):
            if not row:
                raise ValueError(f"query {number} must have at least one document. Received: none.")
        return {"query": queries, "documents": documents}, y

    def is_single_example(self, value: Any) -> bool:
        pair = isinstance(value, (tuple, list)) and len(value) == 2
        return pair and isinstance(value[0], str) and not isinstance(value[1], str)


# ---- questions about texts


class QuestionSchema(TextSchema):
    """Questions about texts."""

    roles = ("question", "context")
    row = "a dict with question and context, or a pair (question, context)"
    least = 2
    targets = ("answers",)
    target = "answers"

    def find_columns(self, table: Any) -> dict[str, Any]:
        return {role: require_column([role], column_names(table)) for role in self.roles}

    def normalize_inputs(self, columns_by_role: dict[str, Any], y: Any) -> tuple[dict[str, Any], Any]:
        questions, contexts = to_text_lists(columns_by_role["question"], columns_by_role["context"])
        checked: dict[str, Any] = {"question": questions, "context": contexts}
        return checked, None if y is None else [_answers(*row, i) for i, row in enumerate(zip(y, checked["context"]))]


def _answers(answers, context: str, number: int) -> list[tuple[str, int]]:
    """The answers of one record as (text, first character)."""
    if answers is None:
        return []
    if isinstance(answers, Mapping) and not isinstance(answers.get("text", ""), str):
        starts = list(answers.get("answer_start", [])) or [None] * len(answers["text"])
        answers = [{"text": text, "answer_start": start} for text, start in zip(answers["text"], starts)]
    checked = []
    for answer in [answers] if isinstance(answers, str) or not hasattr(answers, "__iter__") else answers:
        answer = {"text": answer} if isinstance(answer, str) else answer
        if not isinstance(answer, Mapping) or "text" not in answer:
            raise ValueError(
                f"record {number}: answers must be texts, or dicts with text and answer_start. "
                f"Received: {answer!r:.60}."
            )
        text, start = str(answer["text"]), answer.get("answer_start")
        start = context.find(text) if start is None else int(start)
        if not text or start < 0 or context[start : start + len(text)] != text:
            instead = context[max(start, 0) :][: len(text)]
            where = "anywhere" if start < 0 else f"at character {start}, where it has {instead!r:.60}"
            raise ValueError(f"record {number}: the context does not have the answer {text!r:.60} {where}.")
        checked.append((text, start))
    return checked


# ---- multiple choice

# What is read before the choice: a passage, situation or question; and a question or beginning that stands right before
# each choice (SWAG's sent2, the question about a passage).
PASSAGE_COLUMNS = (
    *("context", "article", "passage", "ctx", "sent1", "premise", "goal"),
    *("question", "question_stem", "prompt", "startphrase", "text"),
)
STEM_COLUMNS = ("sent2", "question")
CHOICES_COLUMNS = ("choices", "endings", "options")
NUMBERED_COLUMNS = ("choice{}", "ending{}", "answer{}", "option{}", "sol{}")


def find_numbered_choice_columns(available_columns: Sequence) -> list:
    """The columns of choices that are numbered from 0 or 1 on, such as choice0, choice1."""
    for pattern in NUMBERED_COLUMNS:
        for first in (0, 1):
            columns: list = []
            while (name := find_column([pattern.format(first + len(columns))], available_columns)) is not None:
                columns.append(name)
            if len(columns) > 1:
                return columns
    return []


class ChoiceSchema(Schema):
    """Questions, each with a list of choices."""

    roles = ("question", "choices")
    row = "a question with its choices (q, [a, b])"
    least = most = 2
    targets = ("label", "answer", "labels", "answerkey")

    def find_columns(self, table: Any) -> dict[str, Any]:
        """Finds `question`, `before each choice`, and `choices` (lists of texts, or ARC's dicts of the lists text and
        label) or `choice 1` …."""
        names = column_names(table)
        first, listed = require_column(PASSAGE_COLUMNS, names), find_column(CHOICES_COLUMNS, names)
        numbered = [] if listed is not None else find_numbered_choice_columns(names)
        if listed is None and not numbered:
            raise ValueError(f"the table has the columns {names}; choices must be called choices, or choice0 ….")
        return {
            "question": first,
            "before each choice": find_column(STEM_COLUMNS, [name for name in names if name != first]),
            "choices": listed,
            **{f"choice {i + 1}": name for i, name in enumerate(numbered)},
        }

    def normalize_inputs(self, columns_by_role: dict[str, Any], y: Any) -> tuple[dict[str, Any], Any]:
        """-> `question`, `choices`, and `second texts`: each choice with what stands before it."""
        questions, stems = (
            to_text_list(columns_by_role.pop("question"), "questions"),
            columns_by_role.pop("before each choice", None),
        )
        choices: list = (
            as_list(columns_by_role["choices"])
            if "choices" in columns_by_role
            else list(map(list, zip(*columns_by_role.values())))
        )
        if len(questions) != len(choices):
            raise ValueError(f"there are {len(questions)} questions and {len(choices)} rows of choices.")
        if choices and isinstance(choices[0], Mapping):  # ARC's
            if y is not None:
                y = [
                    row["label"].index(answer) if answer in row["label"] else answer for answer, row in zip(y, choices)
                ]
            choices = [row["text"] for row in choices]
        for number, row in enumerate(choices):
            row = choices[number] = row.tolist() if hasattr(row, "tolist") else row
            if isinstance(row, str) or not isinstance(row, Sequence) or not all(isinstance(text, str) for text in row):
                raise TypeError(f"the choices of question {number} must be a list of strings. Received: {row!r:.60}.")
            if len(row) < 2:
                raise ValueError(f"question {number} must have two or more choices. Received: {list(row)!r:.60}.")
        seconds = choices
        if stems is not None:
            seconds = [[f"{stem} {text}".strip() for text in row] for stem, row in zip(stems, choices)]
        return {"question": questions, "choices": [list(row) for row in choices], "second texts": seconds}, y

    def is_single_example(self, value: Any) -> bool:
        pair = isinstance(value, (tuple, list)) and len(value) == 2
        return pair and isinstance(value[0], str) and not isinstance(value[1], str)


# ---- words with tags, texts with entities

WORD_COLUMNS = ("tokens", "words")
TAGGED_TEXT_COLUMNS = ("text", "sentence", "content")


class EntitySpans(NamedTuple):
    """The labels of a raw text, (start, end, type) each, as distinct from tags word by word."""

    spans: list


class WordSchema(Schema):
    """Sentences of words with tags, or texts with entities."""

    roles = ("words",)
    row = "a list of words"
    targets = ("tags", "ner_tags", "labels", "upos", "entities", "spans", "pos_tags")
    target = "tags"
    find_words = staticmethod(find_word_spans)  # text -> the characters of its words, int64 (words, 2)

    def find_columns(self, table: Any) -> dict[str, Any]:
        source = require_column((*WORD_COLUMNS, *TAGGED_TEXT_COLUMNS), column_names(table))
        return {"words" if str(source).lower() in WORD_COLUMNS else "text": source}

    def normalize_inputs(self, columns_by_role: dict[str, Any], y: Any) -> tuple[dict[str, Any], Any]:
        """-> `text`, and `words`: their character spans, int64 (words, 2) each."""
        sentences = as_list(*columns_by_role.values())
        if y is not None:
            for number, row in enumerate(y):
                if isinstance(row, (str, bytes, Mapping)) or not hasattr(row, "__iter__"):
                    raise TypeError(
                        f"y[{number}] must be a list: a tag for each word, or (start, end, type) for each entity. "
                        f"Received: {row!r:.60}."
                    )
            y = [as_list(row) for row in y]
        if sentences and not isinstance(sentences[0], str):
            texts, words = zip(*(_join_words(sentence, number) for number, sentence in enumerate(sentences)))
            return {"text": list(texts), "words": list(words)}, y
        texts = to_text_list(sentences)
        return {"text": texts, "words": [self.find_words(text) for text in texts]}, y and [
            EntitySpans(row) for row in y
        ]

    def is_single_example(self, value: Any) -> bool:
        return False  # a list of words is a column of texts


def _join_words(sentence, number: int) -> tuple[str, np.ndarray]:
    """The text of a sentence's words, with spaces between them, and the words' characters."""
    sentence = sentence.tolist() if hasattr(sentence, "tolist") else sentence
    if isinstance(sentence, str) or not isinstance(sentence, Sequence):
        raise TypeError(f"x[{number}] must be a list of words like the rows before it. Received: {sentence!r:.60}.")
    wrong = next((word for word in sentence if not isinstance(word, str)), None)
    if wrong is not None:
        raise TypeError(f"x[{number}] must be a list of words. Received: {wrong!r:.60} in it.")
    lengths = np.array([len(word) for word in sentence], dtype=np.int64)
    ends = np.cumsum(lengths + 1) - 1
    return " ".join(sentence), np.stack([ends - lengths, ends], axis=1)


TEXTS: Schema = TextSchema()
TUPLES: Schema = TupleSchema()
RANKINGS: Schema = RankingSchema()
QUESTIONS: Schema = QuestionSchema()
CHOICES: Schema = ChoiceSchema()
WORDS: Schema = WordSchema()
