"""Data sets for `fit`: the bundled samples, CoNLL files, SQuAD's json."""

import json
from importlib import resources
from pathlib import Path
from typing import Any

from bertzoo.data.table_files import read_text

_SPLITS = ("train", "test")


def reviews(split: str | None = None) -> tuple[list[str], list[str]]:
    """Short reviews with their labels, in a fixed mixed order.

    There are 600 in `train` and 120 in `test`; half of each are `negative`, half `positive`, and each is at most 24
    WordPiece tokens long, [CLS] and [SEP] included.

    Args:
        split: `"train"`, `"test"`, or None for both.

    Returns:
        Texts and labels, two lists of the same length.

    Raises:
        ValueError: `split` is another value.
    """
    if split is not None and split not in _SPLITS:
        raise ValueError(f"split is {split!r}, expected 'train', 'test' or None: leave it out to get all reviews.")
    rows = [row for row in _rows("reviews_en.tsv") if split in (None, row[2])]
    return [text for text, _, _ in rows], [label for _, label, _ in rows]


def cloze() -> tuple[list[str], list[str]]:
    """Fifty plain facts with one `[MASK]` each, to test a lower-cased masked language model.

    Returns:
        Texts, and the lower-case word that belongs at each `[MASK]`.
    """
    rows = _rows("cloze_en.tsv")
    return [text for text, _ in rows], [answer for _, answer in rows]


def _rows(name: str) -> list[list[str]]:
    lines = resources.files(__package__).joinpath(name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines[1:]]


def load_conll(path: str | Path, word: int | None = None, tag: int | None = None) -> dict[str, list[list[str]]]:
    """Reads tagged sentences for `TokenClassifier.fit` from a CoNLL file, plain or .gz.

    The file has a line for each word, with columns separated by tabs or spaces, and a blank line between sentences.
    Comments (#), document lines (-DOCSTART-) and, in .conllu, multiword tokens (1-2) and empty words (1.1) are skipped.

    Args:
        path: The file.
        word: Index of the column of words; by default the first, in .conllu the second.
        tag: Index of the column of tags; by default the last, in .conllu the fourth (universal parts of speech).

    Returns:
        `tokens` and `tags`, lists of sentences.

    Raises:
        ValueError: A line lacks a column, or there are no sentences.
    """
    path = Path(path)
    universal = ".conllu" in path.name
    word = (1 if universal else 0) if word is None else word
    tag = (3 if universal else -1) if tag is None else tag
    sentences: list[list[tuple[str, str]]] = [[]]
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        line = line.rstrip("\r")
        if not line.strip() or line.startswith("-DOCSTART-"):
            if sentences[-1]:
                sentences.append([])
            continue
        # A word may be "#"; a comment has no second column, or stands in a .conllu file.
        columns = line.split("\t") if "\t" in line else line.split()
        if line.startswith("#") and (universal or "\t" not in line):
            continue
        if universal and not columns[0].isdigit():
            continue
        needed = max(word + 1, 2 if tag == -1 else tag + 1)
        if len(columns) < needed:
            raise ValueError(f"{path}, line {number}: {len(columns)} columns ({line!r:.60}); {needed} are needed.")
        sentences[-1].append((columns[word], columns[tag]))
    sentences = [sentence for sentence in sentences if sentence]
    if not sentences:
        raise ValueError(f"{path} holds no sentences.")
    return {
        "tokens": [[word for word, _ in sentence] for sentence in sentences],
        "tags": [[tag for _, tag in sentence] for sentence in sentences],
    }


def load_squad(path: str | Path) -> list[dict[str, Any]]:
    """Reads the questions of a SQuAD file, 1.1 or 2.0, plain or .gz, for `QuestionAnswerer.fit`.

    Returns:
        Dicts with `id`, `title`, `question`, `context` and `answers`, a list of {"text", "answer_start"}, which is
        empty for questions without an answer.

    Raises:
        ValueError: It is not a SQuAD file.
    """
    try:
        articles = json.loads(read_text(Path(path)))["data"]
        return [
            {
                "id": question["id"],
                "title": article.get("title", ""),
                "question": question["question"],
                "context": paragraph["context"],
                "answers": [] if question.get("is_impossible") else question["answers"],
            }
            for article in articles
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a SQuAD file: {error!r}.") from error
