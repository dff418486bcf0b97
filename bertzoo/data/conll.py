"""Sentences with a tag a word, from CoNLL files."""

from pathlib import Path

from bertzoo.data.table_files import read_text


def load_conll(path: str | Path, word: int | None = None, tag: int | None = None) -> dict[str, list[list[str]]]:
    """Sentences of a file with a word a line, its columns separated by tabs or spaces, and a blank line between
    sentences; plain or .gz. `TokenClassifier.fit` takes what it returns.

    Lines of comments (#), documents (-DOCSTART-), and, in .conllu, of words in several tokens (1-2) and empty words
    (1.1) are left out.

    Args:
        path: The file.
        word: Number of the words' column; the first, and in .conllu the second, where None.
        tag: Number of the tags' column; the last, and in .conllu the fourth (universal parts of speech), where None.

    Returns:
        `tokens` and `tags`, lists of as many sentences.

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
