"""Words of raw text."""

import itertools
import unicodedata

import numpy as np
import pytest

from bertzoo.text.word_alignment import find_word_spans

pytestmark = pytest.mark.once


def words(text):
    return [text[a:b] for a, b in find_word_spans(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n", []),
        ("a film", ["a", "film"]),
        ("(U.S.-based),", ["(", "U.S.-based", ")", ","]),
        ("It's fine... really?!", ["It's", "fine", "...", "really", "?", "!"]),
        ("3.5% of $1,000", ["3.5", "%", "of", "$", "1,000"]),
        ("@you #tag", ["@", "you", "#", "tag"]),
        ("cafe\u0301!", ["cafe\u0301", "!"]),
        ("東京。go", ["東", "京", "。", "go"]),
        ("กิน", ["กิ", "น"]),
        ("👩‍💻 👍🏽", ["👩‍💻", "👍🏽"]),
        ("नमस्ते", ["नमस्ते"]),
    ],
)
def test_known_texts(text, expected):
    assert words(text) == expected


def test_words_are_in_order_whole_and_cover_all_but_spaces():
    rng = np.random.default_rng(0)
    alphabet = list("ab1 .,'-_ \n\u0301\u00a0東かส\u0e31😀\u200d🏽") + ["\U00020000", "\u3000"]
    for _ in range(300):
        text = "".join(rng.choice(alphabet, rng.integers(0, 20)))
        spans = find_word_spans(text)
        covered = np.zeros(len(text), dtype=int)
        for a, b in spans:
            assert a < b
            covered[a:b] += 1
        assert (covered == [not c.isspace() for c in text]).all()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
        for a, _ in spans:  # no mark is torn from its letter
            assert not (unicodedata.category(text[a]).startswith("M") and a > 0 and text[a - 1].isalpha())
