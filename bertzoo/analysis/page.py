"""Attention as a web page in one file, in which layers and heads can be chosen; it loads nothing from anywhere."""

import base64
import html
import json
from collections.abc import Sequence
from importlib import resources

import numpy as np

from bertzoo.analysis.attention import AttentionMap

STEPS = 2**16 - 1  # of a weight: two bytes each


def attention_page(found: AttentionMap | Sequence[AttentionMap], title: str = "Attention") -> str:
    """An HTML page that shows the attention between the words of texts, and between their pieces.

    `Path("attention.html").write_text(attention_page(attention_maps(model, texts)), encoding="utf-8")`

    Args:
        found: The attention of one or more texts.
        title: The page's heading.

    Raises:
        ValueError: There is none.
    """
    maps = [found] if isinstance(found, AttentionMap) else list(found)
    if not maps:
        raise ValueError("there is nothing to show: found is empty.")
    # Texts of users are no markup, not even where they say "</script>".
    data = json.dumps([_text(one) for one in maps]).replace("<", "\\u003c")
    page = resources.files("bertzoo.analysis").joinpath("page.html").read_text(encoding="utf-8")
    before, between, after = page.split("{{title}}", 2)
    start, end = after.split("{{data}}")
    return f"{before}{html.escape(title)}{between}{html.escape(title)}{start}{data}{end}"


def _text(found: AttentionMap) -> dict:
    levels = [_level("words", found.by_word())]
    if found.names != found.word_names:
        levels.append(_level("pieces", found))
    return {"name": " ".join(found.word_names), "levels": levels}


def _level(name: str, found: AttentionMap) -> dict:
    weights = np.rint(np.clip(found.weights, 0, 1) * STEPS).astype("<u2")
    encoded = base64.b64encode(weights.tobytes()).decode()
    return {"name": name, "names": found.names, "shape": weights.shape[:3], "weights": encoded}
