"""Two small English samples written for this project: labelled reviews and cloze facts."""

from importlib import resources

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
    """Fifty plain facts with one `[MASK]` each, for looking into a lower-cased masked language model.

    Returns:
        Texts, and the lower-case word that belongs at each `[MASK]`.
    """
    rows = _rows("cloze_en.tsv")
    return [text for text, _ in rows], [answer for _, answer in rows]


def _rows(name: str) -> list[list[str]]:
    lines = resources.files(__package__).joinpath(name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines[1:]]
