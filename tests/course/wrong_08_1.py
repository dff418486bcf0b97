"""Wrong answers to exercise 08.1, each of which the checker must refuse."""

import numpy as np


def pointers_apart(starts, ends):
    return int(starts.argmax()), int(ends.argmax())


def start_first(starts, ends):
    first = int(starts.argmax())
    return first, first + int(ends[first:].argmax())


def end_first(starts, ends):
    last = int(ends.argmax())
    return int(starts[: last + 1].argmax()), last


def sorted_pointers(starts, ends):
    return tuple(sorted((int(starts.argmax()), int(ends.argmax()))))


def single_tokens_only(starts, ends):
    best = int((starts + ends).argmax())
    return best, best


def nothing_below_zero(starts, ends):
    start, best, span = 0, 0.0, (0, 0)
    for last in range(len(ends)):
        if starts[last] > starts[start]:
            start = last
        if starts[start] + ends[last] > best:
            best, span = starts[start] + ends[last], (start, last)
    return span


def excludes_single_tokens(starts, ends):
    pairs = [(starts[i] + ends[j], i, j) for i in range(len(starts)) for j in range(i + 1, len(ends))]
    return max(pairs)[1:] if pairs else (0, 0)


def end_after_the_last(starts, ends):
    scores = np.triu(starts[:, None] + ends[None, :])
    scores[np.tril_indices(len(starts), -1)] = -np.inf
    first, last = np.unravel_index(scores.argmax(), scores.shape)
    return int(first), int(last) + 1
