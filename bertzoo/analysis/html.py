"""Attention as a self-contained HTML page in which layers and heads can be selected."""

import base64
import html
import json
from collections.abc import Sequence
from importlib import resources

import numpy as np

from bertzoo.analysis.attention import AttentionMap

STEPS = 2**16 - 1  # weights are stored as two bytes


def attention_html(maps: AttentionMap | Sequence[AttentionMap], title: str = "Attention") -> str:
    """An HTML page that shows the attention between the words and the tokens of texts.

    `Path("attention.html").write_text(attention_html(attention_maps(model, texts)), encoding="utf-8")`

    Args:
        maps: The attention of one or more texts.
        title: The page's heading.

    Raises:
        ValueError: There are no maps.
    """
    maps = [maps] if isinstance(maps, AttentionMap) else list(maps)
    if not maps:
        raise ValueError("expected one or more maps. Received: none.")
    # Texts are not markup, even if they contain "</script>".
    data = json.dumps([_text(attention) for attention in maps]).replace("<", "\\u003c")
    page = resources.files("bertzoo.analysis").joinpath("attention.html").read_text(encoding="utf-8")
    before, between, after = page.split("{{title}}", 2)
    start, end = after.split("{{data}}")
    return f"{before}{html.escape(title)}{between}{html.escape(title)}{start}{data}{end}"


def _text(attention: AttentionMap) -> dict:
    levels = [_level("words", attention.by_word())]
    if attention.names != attention.word_names:
        levels.append(_level("pieces", attention))
    return {"name": " ".join(attention.word_names), "levels": levels}


def _level(name: str, attention: AttentionMap) -> dict:
    weights = np.rint(np.clip(attention.weights, 0, 1) * STEPS).astype("<u2")
    encoded = base64.b64encode(weights.tobytes()).decode()
    return {"name": name, "names": attention.names, "shape": weights.shape[:3], "weights": encoded}
