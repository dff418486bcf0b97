"""Texts of every kind, for what must hold whatever comes."""

import numpy as np
import pytest

# fmt: off
_PARTS = [
    "the", "film", "Paris", "Rome", "New-York", "U.S.A.", "don't", "naïve", "e\u0301t\u0301", "ﬁne", "İstanbul",
    "日本語", "東京都に行く", "漢字、。「」", "สวัสดีชาวโลก", "नमस्ते", "한국어", "😀", "👩\u200d👩\u200d👧", "🇩🇪", "👍🏽",
    "\u200b", "a\u200bb", "\u00ad", "soft\u00adhyphen", "\ufeff", "\x00", "\x07", "...", "?!", "(U.S.-based),",
    "“quotes”", "C++/C#", "3.14e-10", "http://x.org/?q=1", "#tag", "@you", "[MASK]", "[CLS]", "##", "##s",
    "antidisestablishmentarianism", "\u0301", "\u0301a", "Straße", "ß", "ſ", "½", "∑", "$1,234.56", "x-y_z",
    "שָׁלוֹם", "مَرْحَبًا",
]
# fmt: on
_SPACES = [" ", " ", " ", "  ", "\n", "\t", "\u00a0", "\u3000", "\u2028", ""]


@pytest.fixture(scope="session")
def random_texts() -> list[str]:
    """1,000 texts: words, scripts, emoji, control characters, in all lengths from none to several windows."""
    rng = np.random.default_rng(0)
    texts = ["", " ", "\n\n", "\u0301", "x" * 500]
    while len(texts) < 1000:
        words = int(rng.choice([1, 3, 8, 20, 60], p=[0.2, 0.3, 0.3, 0.17, 0.03]))
        text = "".join(str(rng.choice(_PARTS)) + str(rng.choice(_SPACES)) for _ in range(words))
        if rng.random() < 0.2:  # any characters at all
            text += "".join(chr(c) for c in rng.integers(1, 0x2FFFF, 6) if not 0xD800 <= c < 0xE000)
        texts.append(text)
    return texts


@pytest.fixture(scope="session")
def plain_texts() -> list[str]:
    """Texts to train tokenizers on, which thus do not know every character of the others."""
    rng = np.random.default_rng(1)
    return [" ".join(rng.choice(_PARTS, 12)) for _ in range(300)]
