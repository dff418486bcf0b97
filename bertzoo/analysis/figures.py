"""Pictures of attention, with matplotlib: `figure.savefig("heads.png")`, or show the figure in a notebook.

Colours are those of cividis, and where numbers have a sign of PuOr, which read alike with and without colour blindness.
Sizes are for 100 dots an inch, at which letters are large enough to read and rows far enough apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bertzoo.analysis.attention import AttentionMap

COLOURS, SIGNED = "cividis", "PuOr"
DPI = 100
LONGEST_NAME = 18
POINT = 1 / 72  # of an inch
MOST_INCHES = 300  # 30,000 dots; matplotlib draws no picture of 65,536


def heat_map(weights, names: Sequence[str], title: str = "", measure: str = "weight") -> Figure:
    """Weights from each token (row) to each (column), with a colour bar.

    Args:
        weights: (tokens, tokens), such as a layer of `AttentionMap.rollout()`, or of `AttentionGradient.scores`.
        names: What the tokens are called.
        title: Put above.
        measure: What the numbers are.

    Raises:
        ValueError: The shape is another, or the picture would be too large.
    """
    weights = _square(weights, names)
    text, cell = 10, 0.27
    label = _label_inches(names, text)
    side = cell * len(names)
    width, height = label + side + (1.4 if weights.min() >= 0 else 1.8), label + side + 0.75
    figure = _figure(width, height)
    axes = figure.add_axes(((label + 0.35) / width, 0.15 / height, side / width, side / height))
    picture = _draw(axes, weights, float(np.abs(weights).max()), title, text + 1, pad=9)
    _name(axes, names, text, rows=True, columns=True)
    axes.set_ylabel("from", fontsize=text)
    axes.set_xlabel("to", fontsize=text)
    axes.xaxis.set_label_position("top")
    bar = figure.add_axes(((label + 0.35 + side + 0.2) / width, 0.15 / height, 0.16 / width, side / height))
    figure.colorbar(picture, cax=bar).set_label(measure, fontsize=text)
    return figure


def head_figure(found: AttentionMap, layer: int, head: int) -> Figure:
    """The heat map of one head; layers and heads count from 0. Take `found.by_word()` for words.

    Raises:
        ValueError: There is no such head.
    """
    _check(found, [layer], [head])
    return heat_map(found.weights[layer, head], found.names, f"layer {layer}, head {head}")


def heads_figure(
    found: AttentionMap, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
) -> Figure:
    """A grid of heat maps, a row a layer and a column a head, from 0; all share one scale of colours, 0 to 1.

    Args:
        found: A text's attention. Take `found.by_word()` for words.
        layers, heads: Which to show; all where None.

    Raises:
        ValueError: There is no such head, or the picture would be too large.
    """
    layers = list(range(found.weights.shape[0])) if layers is None else list(layers)
    heads = list(range(found.weights.shape[1])) if heads is None else list(heads)
    _check(found, layers, heads)
    text, cell, gap, title = 8, 0.15, 0.15, 0.3
    label = _label_inches(found.names, text) + 0.2  # "from" and "to"
    side = max(cell * len(found.names), 1.2)  # a title is as wide
    width = label + len(heads) * (side + gap) + 0.75
    height = label + len(layers) * (side + title) + 0.15
    figure = _figure(width, height)
    for row, layer in enumerate(layers):
        for column, head in enumerate(heads):
            left, top = label + column * (side + gap), (row + 1) * title + row * side
            axes = figure.add_axes((left / width, 1 - (top + side) / height, side / width, side / height))
            picture = _draw(axes, found.weights[layer, head], 1.0, f"layer {layer}, head {head}", text)
            _name(axes, found.names, text, rows=column == 0, columns=row == len(layers) - 1, below=True)
            axes.set_ylabel("from" if column == 0 else "", fontsize=text, labelpad=2)
            axes.set_xlabel("to" if row == len(layers) - 1 else "", fontsize=text, labelpad=2)
    left = label + len(heads) * (side + gap) + 0.05
    bar = figure.add_axes((left / width, 1 - (title + side) / height, 0.12 / width, side / height))
    figure.colorbar(picture, cax=bar).set_label("weight", fontsize=text)
    bar.tick_params(labelsize=text)
    return figure


def by_head_figure(values, measure: str, title: str = "") -> Figure:
    """A number for each head, a row a layer and a column a head, from 0.

    Args:
        values: (layers, heads), such as `AttentionMap.entropy()`, `Ablation.change` or `AttentionGradient.by_head()`.
        measure: What the numbers are.
        title: Put above.

    Raises:
        ValueError: The shape is another, or the picture would be too large.
    """
    values = np.asarray(values, "float64")
    if values.ndim != 2 or not values.size:
        raise ValueError(f"values must be (layers, heads); their shape is {values.shape}.")
    text, cell = 10, 0.3
    rows, columns = values.shape
    side, high = max(cell * columns, 1.5), max(cell * rows, 1.5)
    width, height = side + 1.95, high + 1.0
    figure = _figure(width, height)
    axes = figure.add_axes((0.65 / width, 0.55 / height, side / width, high / height))
    picture = _draw(axes, values, float(np.abs(values).max()), title, text + 1)
    axes.set_xticks(range(columns), range(columns), fontsize=text)
    axes.set_yticks(range(rows), range(rows), fontsize=text)
    axes.tick_params(length=0)
    axes.set_xlabel("head", fontsize=text)
    axes.set_ylabel("layer", fontsize=text)
    bar = figure.add_axes(((0.65 + side + 0.2) / width, 0.55 / height, 0.16 / width, high / height))
    figure.colorbar(picture, cax=bar).set_label(measure, fontsize=text)
    return figure


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    if max(width, height) > MOST_INCHES:
        raise ValueError(
            f"the picture would be {width:.0f} × {height:.0f} inches; show a shorter text, or fewer layers and heads."
        )
    return Figure(figsize=(width, height), dpi=DPI)


def _draw(axes, weights: np.ndarray, most: float, title: str, size: float, pad: float = 4):
    signed = weights.min() < 0
    colours, least = (SIGNED, -most) if signed else (COLOURS, 0)
    picture = axes.imshow(weights, cmap=colours, vmin=least, vmax=most, aspect="auto", interpolation="nearest")
    axes.set_title(title, fontsize=size, pad=pad)
    return picture


def _name(axes, names: Sequence[str], size: float, *, rows: bool, columns: bool, below: bool = False) -> None:
    places, shown = range(len(names)), [short(name) for name in names]
    # A name such as "$x$" is no formula.
    axes.set_yticks(places if rows else [], shown if rows else [], fontsize=size, parse_math=False)
    labels = shown if columns else []
    axes.set_xticks(places if columns else [], labels, fontsize=size, rotation=90, parse_math=False)
    axes.tick_params(length=0, pad=3, top=not below, labeltop=not below, bottom=below, labelbottom=below)


def short(name: str, most: int = LONGEST_NAME) -> str:
    """A name of at most so many characters."""
    return name if len(name) <= most else name[: most - 1] + "…"


def _label_inches(names: Sequence[str], size: float) -> float:
    """Room for the longest name and what parts it from the picture."""
    from matplotlib.textpath import TextPath

    # "$" would begin a formula; the dot stands in for names of spaces, which have no outline.
    outlines = [TextPath((0, 0), short(name).replace("$", "S") + ".", size=size) for name in set(names)]
    return 0.12 + max(outline.get_extents().x1 for outline in outlines) * POINT


def _square(weights, names: Sequence[str]) -> np.ndarray:
    weights = np.asarray(weights, "float64")
    if weights.shape != (len(names), len(names)) or not len(names):
        raise ValueError(f"weights must be ({len(names)}, {len(names)}), one a name; their shape is {weights.shape}.")
    return weights


def _check(found: AttentionMap, layers: Sequence[int], heads: Sequence[int]) -> None:
    most = found.weights.shape[:2]
    if not layers or not heads or not all(0 <= i < most[0] for i in layers) or not all(0 <= i < most[1] for i in heads):
        raise ValueError(
            f"layers {layers} and heads {heads} must each name some of {most[0]} layers and {most[1]} heads, from 0."
        )
