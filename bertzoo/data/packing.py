"""Packing: which texts of a batch share a row, and how many rows of which length are worth compiling.

A packed batch is a padded one with two arrays more, `packing` and `text_starts`: where its tokens stand in rows without
padding. See `bertzoo.layers.packed_rows.PackedRows`.
"""

from bisect import bisect_left, insort
from typing import NamedTuple

import numpy as np

from bertzoo.backend import accelerator_name
from bertzoo.data.batch_shapes import choose_padded_lengths

SHORT_ROW = 128  # up to this many tokens, attention in a row costs little beside the rest
ROW_LENGTHS = 8  # how many lengths of rows are tried
# Drawn at random to see how many rows batches need, and the batches that they make; fewer if they have many groups.
TEXTS, FEWEST, MOST, FEWEST_IN_GROUPS = 8192, 32, 128, 4
LEAST_GAIN = 0.05  # of the tokens, for which texts are packed
FEW_BATCHES = 32  # of them, to choose the length of rows
# Of the largest number of rows, one at least, for batches that need more than all that were drawn. On an accelerator,
# where a shape that comes up late holds a run up for long, more: such batches are few, and so cost little.
SPARE, SPARE_ACCELERATED = 0.03, 0.25


class PackedShape(NamedTuple):
    """The shapes of packed batches: the tokens of a row, and the numbers of rows, ascending."""

    row_length: int
    row_counts: tuple[int, ...]

    def num_rows(self, needed: int) -> int:
        """The number of rows of a batch that needs so many."""
        return next((count for count in self.row_counts if count >= needed), needed)


def assign_rows(text_lengths: np.ndarray, row_length: int) -> list[list[int]]:
    """The texts of each row, by index: the longest first, each into the fullest row that still holds it.

    Args:
        text_lengths: (texts,) tokens of each.
        row_length: Tokens of a row, no fewer than those of a text.
    """
    rows: list[list[int]] = []
    room: list[tuple[int, int]] = []  # of rows that are not full, with their indices, ascending
    for text in np.argsort(-text_lengths, kind="stable").tolist():
        length = int(text_lengths[text])
        place = bisect_left(room, (length, 0))
        if place < len(room):
            left, row = room.pop(place)
            rows[row].append(text)
        else:
            left, row = row_length, len(rows)
            rows.append([text])
        insort(room, (left - length, row))
    return rows


def rows_needed(text_lengths: np.ndarray, row_length: int, num_groups: int = 1) -> int:
    """How many rows the texts of a batch take.

    Args:
        text_lengths: int (batch,) or (batch, columns).
        row_length: As for `assign_rows`.
        num_groups: As for `packing_arrays`.
    """
    groups = _split(np.maximum(text_lengths, 1), num_groups)
    return max(len(assign_rows(lengths, row_length)) for lengths in groups) * num_groups


def _split(text_lengths: np.ndarray, num_groups: int) -> list[np.ndarray]:
    """The lengths of each group's texts, (texts,): of consecutive examples, equally many but for the last group."""
    size = -(-len(text_lengths) // num_groups)
    return [text_lengths[i * size : (i + 1) * size].ravel() for i in range(num_groups)]


def packing_arrays(
    text_lengths: np.ndarray, length: int, shape: PackedShape, num_groups: int = 1
) -> dict[str, np.ndarray]:
    """What makes a padded batch a packed one.

    Args:
        text_lengths: int (batch,) or (batch, columns): tokens of each text.
        length: Tokens of a padded text.
        shape: The shapes to choose from.
        num_groups: Examples are divided into so many consecutive groups of one size, which share no rows and have
            equally many: one group for each device, or mini-batch. The last group may be smaller.

    Returns:
        `packing`, int32 (rows, row length): the index of each token in the padded batch, flattened, and -1 at padding;
        and `text_starts`, int32 and shaped as `text_lengths`: the index of each first token in the rows, flattened.
    """
    lengths = _split(np.maximum(text_lengths, 1), num_groups)
    flat, size = np.concatenate(lengths), len(lengths[0])
    groups = [assign_rows(of_group, shape.row_length) for of_group in lengths]
    count = shape.num_rows(max(map(len, groups)) * num_groups)
    packing = np.full((count, shape.row_length), -1, dtype=np.int32)
    starts = np.zeros(len(flat), dtype=np.int32)
    for group, rows in enumerate(groups):
        first_row = group * (count // num_groups)
        for row, texts in enumerate(rows, start=first_row):
            column = 0
            for text in texts:
                text, tokens = text + group * size, flat[text + group * size]
                packing[row, column : column + tokens] = np.arange(text * length, text * length + tokens)
                starts[text] = row * shape.row_length + column
                column += tokens
    return {"packing": packing, "text_starts": starts.reshape(np.shape(text_lengths))}


def choose_packed_shape(
    text_lengths: np.ndarray,
    batch_size: int,
    rng: np.random.Generator,
    max_count: int = 4,
    num_groups: int = 1,
    row_length: int | None = None,
) -> PackedShape | None:
    """The shapes that make the least padding of batches drawn at random; None where padding all texts to the longest
    makes hardly more.

    Args:
        text_lengths: int (n,) or (n, columns): tokens of the texts of each example.
        batch_size: Examples in a batch.
        rng: Draws the batches.
        max_count: The largest number of shapes.
        num_groups: As for `packing_arrays`.
        row_length: Tokens of a row, in place of a choice whether to pack.
    """
    text_lengths = np.maximum(text_lengths, 1)
    size = min(batch_size, len(text_lengths))
    number = max(int(np.clip(TEXTS // size, FEWEST, MOST)) // num_groups, FEWEST_IN_GROUPS)
    draws = [text_lengths[rng.choice(len(text_lengths), size, replace=False)] for _ in range(number)]
    longest = int(text_lengths.max())
    computed, shape = fit_packed_shape(draws, longest, max_count, num_groups, row_length)
    padded = longest * sum(lengths.size for lengths in draws)
    return shape if row_length is not None or computed <= (1 - LEAST_GAIN) * padded else None


def fit_packed_shape(
    draws: list[np.ndarray], longest: int, max_count: int = 4, num_groups: int = 1, row_length: int | None = None
) -> tuple[int, PackedShape]:
    """The shapes that make the least padding of some batches, and how many tokens are computed for these.

    Args:
        draws: The tokens of each batch's texts.
        longest: Tokens of the longest text of all.
        max_count, num_groups, row_length: As for `choose_packed_shape`.
    """

    spare = SPARE if accelerator_name() is None else SPARE_ACCELERATED

    def choose(tokens: int, draws: list[np.ndarray]) -> tuple[int, PackedShape]:
        """The tokens that are computed for the draws in rows of so many tokens, and the shape."""
        needed = np.array([rows_needed(lengths, tokens, num_groups) for lengths in draws])
        most = int(needed.max()) + -(-max(1, int(needed.max() * spare)) // num_groups) * num_groups
        counts = choose_padded_lengths(np.append(needed, most), most, max_count, num_groups, tolerance=0.0)
        return counts[np.searchsorted(counts, needed)].sum() * tokens, PackedShape(tokens, tuple(counts.tolist()))

    if row_length is None:
        row_length = min(_row_lengths(longest), key=lambda tokens: choose(tokens, draws[:FEW_BATCHES])[0])
    return choose(row_length, draws)


def _row_lengths(longest: int) -> list[int]:
    """Candidates: multiples of eight, from the longest text on."""
    shortest = -(-longest // 8) * 8
    longest_row = SHORT_ROW if shortest <= SHORT_ROW else shortest + SHORT_ROW
    candidates = np.linspace(shortest, longest_row, ROW_LENGTHS) // 8 * 8
    return sorted({int(length) for length in candidates})
