"""Charts of the results of analyses, with matplotlib: `figure.savefig("probe.png")`, or show the figure in a notebook.

The colours are Okabe and Ito's, which are distinguishable with every kind of colour vision; lines also differ in marker
and stroke, and bars in hatching.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bertzoo.analysis.figures import DPI, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bertzoo.analysis.attribution import Attribution
    from bertzoo.analysis.comparison import Comparison
    from bertzoo.analysis.confidence import ConfidenceBins
    from bertzoo.analysis.heads import Pruning
    from bertzoo.analysis.probing import Probe
    from bertzoo.analysis.representations import LayerAnisotropy

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STROKES = ("-", "--", "-.", ":")
TEXT = 10


def attribution_figure(attribution: Attribution, title: str = "") -> Figure:
    """The contribution of each token to an output, in order. Pass `attribution.by_word()` for words."""
    names, scores = [shorten(name) for name in attribution.names], attribution.scores
    figure, axes = new_axes(6.4, 1.0 + 0.28 * len(names), "share of the output", "token")
    rows, raises = np.arange(len(names)), scores >= 0
    axes.barh(rows[raises], scores[raises], color=COLOURS[0], label="raises it")
    axes.barh(rows[~raises], scores[~raises], color=COLOURS[1], hatch="//", edgecolor="white", label="lowers it")
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(rows, names, fontsize=TEXT, parse_math=False)
    axes.invert_yaxis()
    finish(figure, axes, title, beside=True)
    return figure


def layers_figure(curves: Mapping[str, Sequence[float]], measure: str, title: str = "") -> Figure:
    """Curves over layers, where layer 0 is the embeddings' output.

    Args:
        curves: Name -> a value for each layer, or one value for all of them.
        measure: The label of the values.
        title: The title.
    """
    figure, axes = new_axes(6.4, 3.8, "layer (0: embeddings)", measure)
    length = max(np.size(values) for values in curves.values())
    for number, (name, values) in enumerate(curves.items()):
        if np.size(values) == 1:
            axes.axhline(np.ravel(values)[0], color="0.35", linestyle=":", label=name)
        else:
            axes.plot(np.arange(len(values)), values, label=name, **_line(number))
    axes.set_xticks(np.arange(0, length, -(-length // 13)))
    finish(figure, axes, title, beside=True)
    return figure


def anisotropy_figure(anisotropy: LayerAnisotropy, title: str = "") -> Figure:
    """The mean cosine of pairs of vectors by layer, before and after whitening."""
    curves = {"original": anisotropy.before, "whitened": anisotropy.after}
    return layers_figure(curves, "mean cosine of pairs", title)


def probe_figure(probe: Probe, title: str = "") -> Figure:
    """A probe's accuracy by layer, with its controls."""
    curves = {
        "model": probe.accuracy,
        "random encoder": probe.random_encoder,
        "control task": probe.control_task,
        "majority baseline": probe.majority,
    }
    return layers_figure(curves, "accuracy on held-out texts", title)


def pruning_figure(pruning: Pruning, measure: str = "score", title: str = "") -> Figure:
    """The score as heads are removed."""
    figure, axes = new_axes(6.4, 3.6, "removed heads", measure)
    axes.plot(np.arange(len(pruning.scores)), pruning.scores, **_line(0))
    axes.xaxis.get_major_locator().set_params(integer=True)
    finish(figure, axes, title)
    return figure


def calibration_figure(bins: ConfidenceBins, title: str = "") -> Figure:
    """Accuracy against confidence; a calibrated model is on the diagonal. Below, the predictions in each bin."""
    figure = new_figure(5.6, 5.2)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    filled = bins.counts > 0
    above.plot([0, 1], [0, 1], color="0.35", linestyle=":", label="calibrated")
    label = f"this model, error {bins.error:.3f}"
    above.plot(bins.confidence[filled], bins.accuracy[filled], label=label, **_line(0))
    above.set_ylabel("accuracy", fontsize=TEXT)
    above.set_xlim(0, 1)
    above.set_ylim(-0.03, 1.03)
    below.bar(bins.edges[:-1], bins.counts, np.diff(bins.edges), align="edge", color=COLOURS[0], edgecolor="white")
    below.set_ylabel("predictions", fontsize=TEXT)
    below.set_xlabel("confidence", fontsize=TEXT)
    below.tick_params(labelsize=TEXT)
    finish(figure, above, title)
    return figure


def errors_figure(bins: ConfidenceBins, title: str = "") -> Figure:
    """The number of right and wrong predictions by confidence."""
    figure, axes = new_axes(6.4, 3.6, "confidence", "predictions")
    right = np.rint(np.nan_to_num(bins.accuracy) * bins.counts)
    left, width, style = bins.edges[:-1], np.diff(bins.edges), {"align": "edge", "edgecolor": "white"}
    axes.bar(left, right, width, color=COLOURS[0], label="right", **style)
    axes.bar(left, bins.counts - right, width, right, color=COLOURS[1], hatch="//", label="wrong", **style)
    axes.set_xlim(left[np.flatnonzero(bins.counts)[0]], 1)
    finish(figure, axes, title, beside=True)
    return figure


def comparison_figure(comparison: Comparison) -> Figure:
    """Parameters by part, operations, memory, latency and throughput of several encoders."""
    costs = comparison.costs
    names = [shorten(cost.name.rstrip("/").split("/")[-1], 28) for cost in costs]
    figure = new_figure(10.5, 3.2 + 0.3 * len(costs) + 3.2)
    grid = figure.add_gridspec(3, 2, height_ratios=(0.9 + 0.3 * len(costs), 2.7, 2.7))
    _parts(figure.add_subplot(grid[0, :]), names, [cost.parameters for cost in costs])
    panels = (
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


def _line(number: int) -> dict:
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": STROKES[number % len(STROKES)],
        "markersize": 5,
    }


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, with automatic layout."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def new_axes(width: float, height: float, x_label: str, y_label: str) -> tuple[Figure, Axes]:
    """A figure with labelled axes."""
    figure = new_figure(width, height)
    axes = figure.subplots()
    axes.set_xlabel(x_label, fontsize=TEXT)
    axes.set_ylabel(y_label, fontsize=TEXT)
    return figure, axes


def finish(figure: Figure, axes: Axes, title: str, beside: bool = False) -> None:
    """Adds the grid, font size and title, and if there are labels a legend, inside the axes or `beside` them."""
    axes.tick_params(labelsize=TEXT)
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    if title:
        figure.suptitle(title, fontsize=TEXT + 1, parse_math=False)
    if axes.get_legend_handles_labels()[1]:
        where = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)} if beside else {}
        axes.legend(fontsize=TEXT, frameon=False, **where)
