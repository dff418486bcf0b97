"""Exercises of notebook 02."""

from collections.abc import Callable

import numpy as np

CASES = (
    (("un", "una", "able", "b", "le"), "unable"),
    (("a", "aa", "aaaa", "ab"), "aaaaab"),
    (("unbearable", "un"), "unbeaten"),
    (("x",), "yxx"),
)


class Counted(dict):
    """A trie that counts how many letters were asked for."""

    asked = 0

    def get(self, key, default=None):
        Counted.asked += key != ""
        return super().get(key, default)

    def __getitem__(self, key):
        Counted.asked += key != ""
        return super().__getitem__(key)

    def __contains__(self, key):
        Counted.asked += key != ""
        return super().__contains__(key)


def longest_piece(answer: Callable) -> str | None:
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("ab"), 7)) for _ in range(20)]
    pieces = sorted({"".join(rng.choice(list("ab"), int(n))) for n in rng.integers(1, 6, 12)})
    for vocabulary, word in [*CASES, *((pieces, word) for word in words)]:
        for start in range(len(word)):
            hint = _hint(answer, vocabulary, word, start)
            if hint is not None:
                return f"longest_piece(trie of {', '.join(vocabulary)}; {word!r}, {start}): {hint}"
    return _effort(answer)


def _hint(answer: Callable, vocabulary, word: str, start: int) -> str | None:
    ends = [end for end in range(start + 1, len(word) + 1) if word[start:end] in vocabulary]
    right, end = max(ends, default=start), answer(_trie(vocabulary), word, start)
    if not isinstance(end, (int, np.integer)) or isinstance(end, bool):
        return f"gives {end!r}, expected a place in the word, an integer."
    if end == right:
        return None
    if not ends:
        return f"gives {end}, but no piece begins there: expected the start, {start}."
    if end in ends:
        return f"gives {end}, the end of {word[start:end]!r}; a longer piece begins there too."
    if start + end == right:
        return f"gives {end}: is that the length of the piece, or the place where it ends?"
    return f"gives {end}, but {word[start:end]!r} is no piece. Does a piece end wherever the walk does?"


def _effort(answer: Callable) -> str | None:
    trie, word = _trie(["a", "b"]), "ab" * 50
    Counted.asked = 0
    answer(trie, word, 0)
    if Counted.asked > 8:
        return f"right, but for a piece of one letter it asked the trie for {Counted.asked} letters. When can it stop?"
    return None


def _trie(pieces) -> Counted:
    root = Counted()
    for piece in pieces:
        node = root
        for letter in piece:
            node = node.setdefault(letter, Counted())
        node[""] = True
    return root


CHECKS = {"02.1": longest_piece}
