"""Charts of the results of analyses, with matplotlib: `figure.savefig("probe.png")`, or show the figure in a notebook.

The colours are Okabe and Ito's, which are distinguishable with every kind of colour vision; lines also differ in marker
and stroke, and bars in hatching.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bertzoo.analysis.figures import DPI, truncate_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bertzoo.analysis.attribution import Attribution
    from bertzoo.analysis.comparison import CostComparison
    from bertzoo.analysis.confidence import ConfidenceBins
    from bertzoo.analysis.heads import HeadPruning
    from bertzoo.analysis.probing import ProbeResult
    from bertzoo.analysis.representations import LayerAnisotropy, PrincipalComponents

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STROKES = ("-", "--", "-.", ":")
TEXT = 10
# Positions of a label, in points from its dot to the nearest corner or side; a line leads to the far ones.
NEAR = ((5, 4), (5, -4), (-5, 4), (-5, -4), (0, 7), (0, -7), (8, 0), (-8, 0))
FAR = tuple((right, up) for far in (20, 34, 48) for up in (far, -far) for right in (8, -8, 0))
LINE = {"arrowstyle": "-", "color": "0.5", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 3}


def attribution_figure(attribution: Attribution, title: str = "") -> Figure:
    """The contribution of each token to an output, in order.

    Args:
        attribution: The result of `integrated_gradients` or `occlusion`; its `by_word()` shows words.
        title: The title.
    """
    names, scores = [truncate_name(name) for name in attribution.names], attribution.scores
    figure, axes = _new_axes(6.4, 1.0 + 0.28 * len(names), "share of the output", "token")
    rows, raises = np.arange(len(names)), scores >= 0
    axes.barh(rows[raises], scores[raises], color=COLOURS[0], label="raises it")
    axes.barh(rows[~raises], scores[~raises], color=COLOURS[1], hatch="//", edgecolor="white", label="lowers it")
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(rows, names, fontsize=TEXT, parse_math=False)
    axes.invert_yaxis()
    _finish(figure, axes, title, beside=True)
    return figure


def layer_curves_figure(
    curves: Mapping[str, np.ndarray | Sequence[float] | float], measure: str, title: str = ""
) -> Figure:
    """Curves over layers, where layer 0 is the embeddings' output.

    Args:
        curves: Name -> (layers + 1,) values, or one value for all layers.
        measure: The label of the values.
        title: The title.
    """
    figure, axes = _new_axes(6.4, 3.8, "layer (0: embeddings)", measure)
    length = max(np.size(values) for values in curves.values())
    for number, (name, values) in enumerate(curves.items()):
        if np.size(values) == 1:
            axes.axhline(np.ravel(values)[0], color="0.35", linestyle=":", label=name)
        else:
            axes.plot(np.arange(np.size(values)), values, label=name, **_line(number))
    axes.set_xticks(np.arange(0, length, -(-length // 13)))
    _finish(figure, axes, title, beside=True)
    return figure


def anisotropy_figure(anisotropy: LayerAnisotropy, title: str = "") -> Figure:
    """The mean cosine of pairs of vectors by layer, before and after whitening.

    Args:
        anisotropy: The result of `layer_anisotropy`.
        title: The title.
    """
    curves = {"original": anisotropy.before, "whitened": anisotropy.after}
    return layer_curves_figure(curves, "mean cosine of pairs", title)


def probe_figure(probe: ProbeResult, title: str = "") -> Figure:
    """A probe's accuracy by layer, with its controls.

    Args:
        probe: The result of `probe`.
        title: The title.
    """
    curves: dict[str, np.ndarray | float] = {
        "model": probe.accuracy,
        "random encoder": probe.random_encoder,
        "control task": probe.control_task,
        "majority baseline": probe.majority,
    }
    return layer_curves_figure(curves, "accuracy on held-out texts", title)


def pruning_figure(pruning: HeadPruning, measure: str = "score", title: str = "") -> Figure:
    """The score as heads are removed.

    Args:
        pruning: The result of `prune_heads`.
        measure: The label of the score.
        title: The title.
    """
    figure, axes = _new_axes(6.4, 3.6, "removed heads", measure)
    axes.plot(np.arange(len(pruning.scores)), pruning.scores, **_line(0))
    axes.xaxis.get_major_locator().set_params(integer=True)
    _finish(figure, axes, title)
    return figure


def calibration_figure(bins: ConfidenceBins, title: str = "") -> Figure:
    """Accuracy against confidence; a calibrated model is on the diagonal. Below, the predictions in each bin.

    Args:
        bins: The result of `LabeledPredictions.bin_by_confidence`.
        title: The title.
    """
    figure = _new_figure(5.6, 5.2)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    filled = bins.counts > 0
    above.plot([0, 1], [0, 1], color="0.35", linestyle=":", label="calibrated")
    label = f"this model, error {bins.expected_calibration_error:.3f}"
    above.plot(bins.confidence[filled], bins.accuracy[filled], label=label, **_line(0))
    above.set_ylabel("accuracy", fontsize=TEXT)
    above.set_xlim(0, 1)
    above.set_ylim(-0.03, 1.03)
    below.bar(bins.edges[:-1], bins.counts, np.diff(bins.edges), align="edge", color=COLOURS[0], edgecolor="white")
    below.set_ylabel("predictions", fontsize=TEXT)
    below.set_xlabel("confidence", fontsize=TEXT)
    below.tick_params(labelsize=TEXT)
    _finish(figure, above, title)
    return figure


def errors_by_confidence_figure(bins: ConfidenceBins, title: str = "") -> Figure:
    """The number of right and wrong predictions by confidence.

    Args:
        bins: The result of `LabeledPredictions.bin_by_confidence`.
        title: The title.
    """
    figure, axes = _new_axes(6.4, 3.6, "confidence", "predictions")
    right = np.rint(np.nan_to_num(bins.accuracy) * bins.counts)
    left, width, style = bins.edges[:-1], np.diff(bins.edges), {"align": "edge", "edgecolor": "white"}
    axes.bar(left, right, width, color=COLOURS[0], label="right", **style)
    axes.bar(left, bins.counts - right, width, right, color=COLOURS[1], hatch="//", label="wrong", **style)
    axes.set_xlim(left[np.flatnonzero(bins.counts)[0]], 1)
    _finish(figure, axes, title, beside=True)
    return figure


def cost_comparison_figure(comparison: CostComparison) -> Figure:
    """Parameters by part, operations, memory, latency and throughput of several encoders."""
    costs = comparison.costs
    names = [truncate_name(cost.name.rstrip("/").split("/")[-1], 28) for cost in costs]
    figure = _new_figure(10.5, 3.2 + 0.3 * len(costs) + 3.2)
    grid = figure.add_gridspec(3, 2, height_ratios=(0.9 + 0.3 * len(costs), 2.7, 2.7))
    _parts(figure.add_subplot(grid[0, :]), names, [cost.parameters for cost in costs])
    panels: tuple[tuple[str, list[Any]], ...] = (
        ("MFLOPs a token", [np.divide(cost.flops_per_token, 1e6) for cost in costs]),
        ("activations of a text, MB", [np.divide(cost.activation_bytes, 1e6) for cost in costs]),
        ("ms, one text", [cost.milliseconds for cost in costs]),
        (f"tokens a second, {comparison.batch_size} texts", [cost.tokens_per_second for cost in costs]),
    )
    for panel, (measure, curves) in enumerate(panels):
        axes = figure.add_subplot(grid[1 + panel // 2, panel % 2])
        for number, (name, values) in enumerate(zip(names, curves)):
            axes.plot(comparison.lengths, values, label=name, **_line(number))
        axes.set_xticks(comparison.lengths)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("tokens in a text", fontsize=TEXT)
        axes.set_ylabel(measure, fontsize=TEXT)
        axes.tick_params(labelsize=TEXT)
        axes.grid(color="0.9")
    handles, labels = axes.get_legend_handles_labels()
    where = {"loc": "outside lower center", "ncols": min(3, len(names))}
    figure.legend(handles, labels, fontsize=TEXT, frameon=False, **where)
    figure.suptitle(f"{comparison.device}: {comparison.versions}, float32", fontsize=TEXT)
    return figure


def _parts(axes, names: list[str], counts: list[dict[str, int]]) -> None:
    left = np.zeros(len(names))
    used = [part for part in counts[0] if any(count[part] for count in counts)]
    for number, part in enumerate(used):
        values = np.array([count[part] for count in counts]) / 1e6
        hatch = ("", "//", "..", "xx", "\\\\", "++")[number]
        axes.barh(names, values, left=left, label=part, color=COLOURS[number], hatch=hatch, edgecolor="white")
        left += values
    axes.invert_yaxis()
    axes.tick_params(labelsize=TEXT)
    axes.set_xlabel("million parameters", fontsize=TEXT)
    axes.set_ylabel("model", fontsize=TEXT)
    axes.legend(fontsize=TEXT, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))


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
    figure, axes = _new_axes(7.2, 5.4, *labels)
    for number, kind in enumerate(kinds):
        own = [i for i in range(len(components.points)) if groups is None or groups[i] == kind]
        axes.scatter(*components.points[own].T, color=COLOURS[number], marker=MARKERS[number], s=30, label=kind)
    axes.margins(0.15)
    _finish(figure, axes, title, beside=True)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # computes the layout, which labels then leave unchanged
    figure.set_layout_engine("none")
    if names is not None:
        _label(axes, components.points, [truncate_name(name, 40) for name in names], canvas.get_renderer())
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


def _line(number: int) -> dict:
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": STROKES[number % len(STROKES)],
        "markersize": 5,
    }


def _new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, with automatic layout."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def _new_axes(width: float, height: float, x_label: str, y_label: str) -> tuple[Figure, Axes]:
    """A figure with labelled axes."""
    figure = _new_figure(width, height)
    axes = figure.subplots()
    axes.set_xlabel(x_label, fontsize=TEXT)
    axes.set_ylabel(y_label, fontsize=TEXT)
    return figure, axes


def _finish(figure: Figure, axes: Axes, title: str, beside: bool = False) -> None:
    """Adds the grid, font size and title, and if there are labels a legend, inside the axes or `beside` them."""
    axes.tick_params(labelsize=TEXT)
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    if title:
        figure.suptitle(title, fontsize=TEXT + 1, parse_math=False)
    if axes.get_legend_handles_labels()[1]:
        where = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)} if beside else {}
        axes.legend(fontsize=TEXT, frameon=False, **where)
