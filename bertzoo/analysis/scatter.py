"""A scatter plot of principal components whose labels do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bertzoo.analysis.charts import COLOURS, MARKERS, TEXT, finish, new_axes
from bertzoo.analysis.figures import shorten
from bertzoo.analysis.representations import PrincipalComponents

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Positions of a label, in points from its dot to the nearest corner or side; a line leads to the far ones.
NEAR = ((5, 4), (5, -4), (-5, 4), (-5, -4), (0, 7), (0, -7), (8, 0), (-8, 0))
FAR = tuple((right, up) for far in (20, 34, 48) for up in (far, -far) for right in (8, -8, 0))
LINE = {"arrowstyle": "-", "color": "0.5", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 3}


def pca_figure(
    components: PrincipalComponents,
    names: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    title: str = "",
) -> Figure:
    """A scatter plot, with groups in colour and shape, and names where there is room.

    Args:
        components: The result of `pca`.
        names: A name for each point; a name that would overlap another name or point is left out.
        groups: A group for each point, at most as many as there are colours.
        title: The title.

    Raises:
        ValueError: There are more or fewer names or groups than points, or too many groups.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    for given in (names, groups):
        if given is not None and len(given) != len(components.points):
            raise ValueError(
                f"expected a name and group for each of {len(components.points)} points. Received: {len(given)}."
            )
    kinds = list(dict.fromkeys(groups)) if groups is not None else [None]
    if len(kinds) > len(COLOURS):
        raise ValueError(f"expected at most {len(COLOURS)} groups. Received: {len(kinds)}.")
    labels = [
        f"{name} component, {share:.0%} of the variance" for name, share in zip(("first", "second"), components.shares)
    ]
    figure, axes = new_axes(7.2, 5.4, *labels)
    for number, kind in enumerate(kinds):
        own = [i for i in range(len(components.points)) if groups is None or groups[i] == kind]
        axes.scatter(*components.points[own].T, color=COLOURS[number], marker=MARKERS[number], s=30, label=kind)
    axes.margins(0.15)
    finish(figure, axes, title, beside=True)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # computes the layout, which labels then leave unchanged
    figure.set_layout_engine("none")
    if names is not None:
        _label(axes, components.points, [shorten(name, 40) for name in names], canvas.get_renderer())
    return figure


def _label(axes, points: np.ndarray, names: list[str], renderer) -> None:
    dots = axes.transData.transform(points)
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in dots]
    for number, name in enumerate(names):
        others = taken[:number] + taken[number + 1 :]
        for right, up in NEAR + FAR:
            label = _written(axes, name, points[number], right, up)
            boxes = _covered(label, dots[number], right, up, renderer)
            if _has_room(boxes, others, axes.get_window_extent(renderer)):
                taken += boxes
                break
            label.remove()


def _written(axes, name: str, point: np.ndarray, right: int, up: int):
    return axes.annotate(
        name,
        point,
        (right, up),
        textcoords="offset points",
        ha="left" if right > 0 else "right" if right < 0 else "center",
        va="bottom" if up > 0 else "top" if up < 0 else "center",
        fontsize=TEXT - 1,
        parse_math=False,
        arrowprops={**LINE, "relpos": _corner(right, up)} if (right, up) in FAR else None,
    )


def _corner(right: int, up: int) -> tuple[float, float]:
    """Where a line meets its label, in fractions of the label's width and height."""
    return (0.0 if right > 0 else 1.0 if right < 0 else 0.5, 0.0 if up > 0 else 1.0)


def _covered(label, dot: np.ndarray, right: int, up: int, renderer) -> list[tuple[float, float, float, float]]:
    """The boxes that a label covers, in dots: its text, and segments of its line."""
    from matplotlib.text import Text

    label.update_positions(renderer)
    box = Text.get_window_extent(label, renderer)  # without the line
    boxes = [(box.x0 - 2, box.y0, box.x1 + 2, box.y1)]
    if (right, up) in FAR:
        end = box.p0 + np.multiply(_corner(right, up), box.size)
        steps = [dot + (end - dot) * share for share in np.linspace(0.3, 0.9, 8)]
        boxes += [(x - 1, y - 1, x + 1, y + 1) for x, y in steps]
    return boxes


def _has_room(boxes, others, inside) -> bool:
    left, low, right, high = boxes[0]
    if left < inside.x0 or low < inside.y0 or right > inside.x1 or high > inside.y1:
        return False
    return not any(a < g and e < c and b < h and f < d for a, b, c, d in boxes for e, f, g, h in others)
