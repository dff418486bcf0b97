"""A picture of vectors in a plane, whose labels do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bertzoo.analysis.charts import COLOURS, MARKERS, TEXT, finish, new_figure
from bertzoo.analysis.figures import short
from bertzoo.analysis.maps import PlaneMap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Where a label may stand, in points from its dot to the label's nearest corner or side; a line leads to those far off.
NEAR = ((5, 4), (5, -4), (-5, 4), (-5, -4), (0, 7), (0, -7), (8, 0), (-8, 0))
FAR = tuple((right, up) for far in (20, 34, 48) for up in (far, -far) for right in (8, -8, 0))
LINE = {"arrowstyle": "-", "color": "0.5", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 3}


def map_figure(
    found: PlaneMap, names: Sequence[str] | None = None, groups: Sequence[str] | None = None, title: str = ""
) -> Figure:
    """The dots of a map, by group in colour and shape, each with its name where there is room for it.

    Args:
        found: What `plane_map` gave.
        names: A name a dot, such as its text; a name that would cover another name or dot is left out.
        groups: A group a dot, at most as many as there are colours.
        title: Put above.

    Raises:
        ValueError: Names or groups are not as many as dots, or there are too many groups.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    for given in (names, groups):
        if given is not None and len(given) != len(found.points):
            raise ValueError(f"there must be one for each of {len(found.points)} dots; there are {len(given)}.")
    kinds = list(dict.fromkeys(groups)) if groups is not None else [None]
    if len(kinds) > len(COLOURS):
        raise ValueError(f"at most {len(COLOURS)} groups can be told apart; there are {len(kinds)}.")
    figure = new_figure(7.2, 5.4)
    axes = figure.subplots()
    for number, kind in enumerate(kinds):
        own = [i for i in range(len(found.points)) if groups is None or groups[i] == kind]
        axes.scatter(*found.points[own].T, color=COLOURS[number], marker=MARKERS[number], s=30, label=kind)
    axes.margins(0.15)
    axes.set_xlabel(f"first direction, {found.shares[0]:.0%} of the spread", fontsize=TEXT)
    axes.set_ylabel(f"second direction, {found.shares[1]:.0%} of the spread", fontsize=TEXT)
    finish(figure, axes, title, beside=True)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # settles the layout, which labels then leave as it is
    figure.set_layout_engine("none")
    if names is not None:
        _label(axes, found.points, [short(name, 40) for name in names], canvas.get_renderer())
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
    """Where a line meets its label, in shares of the label's width and height."""
    return (0.0 if right > 0 else 1.0 if right < 0 else 0.5, 0.0 if up > 0 else 1.0)


def _covered(label, dot: np.ndarray, right: int, up: int, renderer) -> list[tuple[float, float, float, float]]:
    """What a label takes of the picture, in dots: its letters, and its line bit by bit."""
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
