"""Heat maps of attention, with matplotlib: `figure.savefig("heads.png")`, or show the figure in a notebook.

The colour maps are cividis, and PuOr for signed values, which are readable with and without colour blindness. Sizes are
chosen for 100 dots per inch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bertzoo.analysis.attention import AttentionMap

COLOURS, SIGNED = "cividis", "PuOr"
DPI = 100
LONGEST_NAME = 18
POINT = 1 / 72  # of an inch
MOST_INCHES = 300  # 30,000 dots; matplotlib can't draw 65,536


def heat_map(weights: np.ndarray, names: Sequence[str], title: str = "", measure: str = "weight") -> Figure:
    """Weights from each token (row) to each (column), with a colour bar.

    Args:
        weights: (tokens, tokens), such as a layer of `AttentionMap.rollout()`, or of `AttentionGradient.scores`.
        names: The tokens.
        title: The title.
        measure: The label of the values.

    Raises:
        ValueError: The shape is wrong, or the figure would be too large.
    """
    weights = _square(weights, names)
    text, cell = 10, 0.27
    label = _label_inches(names, text)
    side = cell * len(names)
    right, left = 1.05 if weights.min() >= 0 else 1.45, label + 0.35
    figure, axes = _axes_with_bar((side, side), (left, right), (0.15, label + 0.6))
    _draw(axes, weights, float(np.abs(weights).max()), title, text + 1, pad=9, bar=figure.axes[1], measure=measure)
    _name(axes, names, text, rows=True, columns=True)
    axes.set_ylabel("from", fontsize=text)
    axes.set_xlabel("to", fontsize=text)
    axes.xaxis.set_label_position("top")
    return figure


def attention_head_figure(attention: AttentionMap, layer: int, head: int) -> Figure:
    """The heat map of one head.

    Args:
        attention: The attention of a text. Pass `attention.by_word()` for words.
        layer: The layer, from 0.
        head: The head, from 0.

    Raises:
        ValueError: There is no such head.
    """
    _check(attention, [layer], [head])
    return heat_map(attention.weights[layer, head], attention.names, f"layer {layer}, head {head}")


def attention_heads_figure(
    attention: AttentionMap, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
) -> Figure:
    """A grid of heat maps with a row for each layer and a column for each head; the colour scale is 0 to 1.

    Args:
        attention: The attention of a text. Pass `attention.by_word()` for words.
        layers, heads: Those to show, from 0; all if None.

    Raises:
        ValueError: There is no such head, or the figure would be too large.
    """
    layers = list(range(attention.weights.shape[0])) if layers is None else list(layers)
    heads = list(range(attention.weights.shape[1])) if heads is None else list(heads)
    _check(attention, layers, heads)
    text, cell, gap, title = 8, 0.15, 0.15, 0.3
    label = _label_inches(attention.names, text) + 0.2  # "from" and "to"
    side = max(cell * len(attention.names), 1.2)  # the width of a title
    width = label + len(heads) * (side + gap) + 0.75
    height = label + len(layers) * (side + title) + 0.15
    figure = _figure(width, height)
    for row, layer in enumerate(layers):
        for column, head in enumerate(heads):
            left, top = label + column * (side + gap), (row + 1) * title + row * side
            axes = figure.add_axes((left / width, 1 - (top + side) / height, side / width, side / height))
            picture = _draw(axes, attention.weights[layer, head], 1.0, f"layer {layer}, head {head}", text)
            _name(axes, attention.names, text, rows=column == 0, columns=row == len(layers) - 1, below=True)
            axes.set_ylabel("from" if column == 0 else "", fontsize=text, labelpad=2)
            axes.set_xlabel("to" if row == len(layers) - 1 else "", fontsize=text, labelpad=2)
    left = label + len(heads) * (side + gap) + 0.05
    bar = figure.add_axes((left / width, 1 - (title + side) / height, 0.12 / width, side / height))
    figure.colorbar(picture, cax=bar).set_label("weight", fontsize=text)
    bar.tick_params(labelsize=text)
    return figure


def values_by_head_figure(values: np.ndarray, measure: str, title: str = "") -> Figure:
    """A heat map with a row for each layer and a column for each head.

    Args:
        values: (layers, heads), such as `AttentionMap.entropy_by_head()`, `HeadAblation.score_change` or
            `AttentionGradient.by_head()`.
        measure: The label of the values.
        title: The title.

    Raises:
        ValueError: The shape is wrong, or the figure would be too large.
    """
    values = np.asarray(values, "float64")
    if values.ndim != 2 or not values.size:
        raise ValueError(f"values must have shape (layers, heads). Received: {values.shape}.")
    text, cell = 10, 0.3
    rows, columns = values.shape
    sides = max(cell * columns, 1.5), max(cell * rows, 1.5)
    figure, axes = _axes_with_bar(sides, (0.65, 1.3), (0.55, 0.45))
    _draw(axes, values, float(np.abs(values).max()), title, text + 1, bar=figure.axes[1], measure=measure)
    axes.set_xticks(range(columns), range(columns), fontsize=text)
    axes.set_yticks(range(rows), range(rows), fontsize=text)
    axes.tick_params(length=0)
    axes.set_xlabel("head", fontsize=text)
    axes.set_ylabel("layer", fontsize=text)
    return figure


def _axes_with_bar(
    sides: tuple[float, float], margins: tuple[float, float], heights: tuple[float, float]
) -> tuple[Figure, Axes]:
    """Axes of these sides in inches and a colour bar beside them, within margins (left, right) and (bottom, top)."""
    (across, up), (left, right), (bottom, top) = sides, margins, heights
    width, height = left + across + right, bottom + up + top
    figure = _figure(width, height)
    axes = figure.add_axes((left / width, bottom / height, across / width, up / height))
    figure.add_axes(((left + across + 0.2) / width, bottom / height, 0.16 / width, up / height))
    return figure, axes


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    if max(width, height) > MOST_INCHES:
        raise ValueError(
            f"the figure would be {width:.0f} × {height:.0f} inches; show a shorter text, or fewer layers and heads."
        )
    return Figure(figsize=(width, height), dpi=DPI)


def _draw(axes, weights: np.ndarray, most: float, title: str, size: float, pad: float = 4, bar=None, measure=""):
    """Draws weights, and a colour bar into the axes `bar`."""
    colours, least = (SIGNED, -most) if weights.min() < 0 else (COLOURS, 0)
    picture = axes.imshow(weights, cmap=colours, vmin=least, vmax=most, aspect="auto", interpolation="nearest")
    axes.set_title(title, fontsize=size, pad=pad)
    if bar is not None:
        axes.figure.colorbar(picture, cax=bar).set_label(measure, fontsize=size)
    return picture


def _name(axes, names: Sequence[str], size: float, *, rows: bool, columns: bool, below: bool = False) -> None:
    positions, shown = range(len(names)), [truncate_name(name) for name in names]
    # A name such as "$x$" is not a formula.
    axes.set_yticks(positions if rows else [], shown if rows else [], fontsize=size, parse_math=False)
    labels = shown if columns else []
    axes.set_xticks(positions if columns else [], labels, fontsize=size, rotation=90, parse_math=False)
    axes.tick_params(length=0, pad=3, top=not below, labeltop=not below, bottom=below, labelbottom=below)


def truncate_name(name: str, max_characters: int = LONGEST_NAME) -> str:
    """The name, truncated to `max_characters` characters."""
    return name if len(name) <= max_characters else name[: max_characters - 1] + "…"


def _label_inches(names: Sequence[str], size: float) -> float:
    """The width of the longest name, with a margin."""
    from matplotlib.textpath import TextPath

    # "$" would begin a formula; the dot is for names of spaces, which have no outline.
    outlines = [TextPath((0, 0), truncate_name(name).replace("$", "S") + ".", size=size) for name in set(names)]
    return 0.12 + max(outline.get_extents().x1 for outline in outlines) * POINT


def _square(weights, names: Sequence[str]) -> np.ndarray:
    weights = np.asarray(weights, "float64")
    if weights.shape != (len(names), len(names)) or not len(names):
        raise ValueError(
            f"weights must have shape ({len(names)}, {len(names)}), as there are names. Received: {weights.shape}."
        )
    return weights


def _check(attention: AttentionMap, layers: Sequence[int], heads: Sequence[int]) -> None:
    most = attention.weights.shape[:2]
    if not layers or not heads or not all(0 <= i < most[0] for i in layers) or not all(0 <= i < most[1] for i in heads):
        raise ValueError(
            f"expected some of {most[0]} layers and {most[1]} heads, from 0. Received: layers {layers}, heads {heads}."
        )
