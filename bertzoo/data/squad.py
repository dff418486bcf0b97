"""Questions with answers from SQuAD's json."""

import json
from pathlib import Path
from typing import Any

from bertzoo.data.table_files import read_text


def load_squad(path: str | Path) -> list[dict[str, Any]]:
    """The questions of a SQuAD file, 1.1 or 2.0, plain or .gz, as records that `QuestionAnswerer.fit` takes.

    Returns:
        Dicts with `id`, `title`, `question`, `context` and `answers`, a list of {"text", "answer_start"}, which is
        empty where the text holds no answer.

    Raises:
        ValueError: The file is no SQuAD json.
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
        raise ValueError(f"{path} is no SQuAD file: {error!r}.") from error
