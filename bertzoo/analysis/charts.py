"""Charts of what an analysis found, with matplotlib: `figure.savefig("probe.png")`, or show the figure in a notebook.

Colours are Okabe and Ito's, which differ for every kind of colour vision; lines differ by marker and stroke, too, and
bars by hatching.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bertzoo.analysis.figures import DPI, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bertzoo.analysis.anisotropy import LayerAnisotropy
    from bertzoo.analysis.attribution import Attribution
    from bertzoo.analysis.comparison import Comparison
    from bertzoo.analysis.confidence import ConfidenceBins
    from bertzoo.analysis.probing import Probe
    from bertzoo.analysis.pruning import Pruning

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STROKES = ("-", "--", "-.", ":")
TEXT = 10


def attribution_figure(found: Attribution, title: str = "") -> Figure:
    """How much each token adds to an output, from first to last: bars to the right raise it. Take `found.by_word()` for
    words."""
    names = [short(name) for name in found.names]
    figure = new_figure(6.4, 1.0 + 0.28 * len(names))
    axes = figure.subplots()
    places = np.arange(len(names))
    raises = found.scores >= 0
    axes.barh(places[raises], found.scores[raises], color=COLOURS[0], label="raises it")
    axes.barh(
        places[~raises], found.scores[~raises], color=COLOURS[1], hatch="//", edgecolor="white", label="lowers it"
    )
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(places, names, fontsize=TEXT, parse_math=False)
    axes.invert_yaxis()
    axes.set_ylabel("token", fontsize=TEXT)
    axes.set_xlabel("share of the output", fontsize=TEXT)
    finish(figure, axes, title, beside=True)
    return figure


def layers_figure(curves: Mapping[str, Sequence[float]], measure: str, title: str = "") -> Figure:
    """Curves over layers, 0 being the embeddings' output.

    Args:
        curves: Name -> a number for each layer, or one number for all of them.
        measure: What the numbers are.
        title: Put above.
    """
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    length = max(np.size(values) for values in curves.values())
    for number, (name, values) in enumerate(curves.items()):
        if np.size(values) == 1:
            axes.axhline(np.ravel(values)[0], color="0.35", linestyle=":", label=name)
        else:
            axes.plot(np.arange(len(values)), values, label=name, **_line(number))
    axes.set_xticks(np.arange(0, length, -(-length // 13)))
    axes.set_xlabel("layer (0: embeddings)", fontsize=TEXT)
    axes.set_ylabel(measure, fontsize=TEXT)
    finish(figure, axes, title, beside=True)
    return figure


def anisotropy_figure(found: LayerAnisotropy, title: str = "") -> Figure:
    """The mean cosine of pairs of vectors by layer, before and after whitening."""
    return layers_figure({"as they are": found.before, "whitened": found.after}, "mean cosine of pairs", title)


def probe_figure(found: Probe, title: str = "") -> Figure:
    """A probe's accuracy by layer, with its controls."""
    curves = {
        "model": found.accuracy,
        "random encoder": found.random_encoder,
        "control task": found.control_task,
        "always the same": found.majority,
    }
    return layers_figure(curves, "accuracy on held-out texts", title)


def pruning_figure(found: Pruning, measure: str = "score", title: str = "") -> Figure:
    """The score with ever fewer heads."""
    figure = new_figure(6.4, 3.6)
    axes = figure.subplots()
    axes.plot(np.arange(len(found.scores)), found.scores, **_line(0))
    axes.set_xlabel("heads taken out", fontsize=TEXT)
    axes.set_ylabel(measure, fontsize=TEXT)
    axes.xaxis.get_major_locator().set_params(integer=True)
    finish(figure, axes, title)
    return figure


def calibration_figure(found: ConfidenceBins, title: str = "") -> Figure:
    """Accuracy against confidence: on the diagonal, a model is as often right as it says. A point a bin, with how many
    predictions are in it below."""
    figure = new_figure(5.6, 5.2)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    full = found.counts > 0
    above.plot([0, 1], [0, 1], color="0.35", linestyle=":", label="as sure as right")
    name = f"this model, error {found.error:.3f}"
    above.plot(found.confidence[full], found.accuracy[full], label=name, **_line(0))
    above.set_ylabel("accuracy", fontsize=TEXT)
    above.set_xlim(0, 1)
    above.set_ylim(-0.03, 1.03)
    below.bar(found.edges[:-1], found.counts, np.diff(found.edges), align="edge", color=COLOURS[0], edgecolor="white")
    below.set_ylabel("predictions", fontsize=TEXT)
    below.set_xlabel("confidence", fontsize=TEXT)
    below.tick_params(labelsize=TEXT)
    finish(figure, above, title)
    return figure


def errors_figure(found: ConfidenceBins, title: str = "") -> Figure:
    """How many predictions are right and wrong, by confidence."""
    figure = new_figure(6.4, 3.6)
    axes = figure.subplots()
    right = np.rint(np.nan_to_num(found.accuracy) * found.counts)
    wide = np.diff(found.edges)
    bars = {"align": "edge", "edgecolor": "white"}
    axes.bar(found.edges[:-1], right, wide, color=COLOURS[0], label="right", **bars)
    axes.bar(found.edges[:-1], found.counts - right, wide, right, color=COLOURS[1], hatch="//", label="wrong", **bars)
    filled = np.flatnonzero(found.counts)
    axes.set_xlim(found.edges[filled[0]], 1)
    axes.set_xlabel("confidence", fontsize=TEXT)
    axes.set_ylabel("predictions", fontsize=TEXT)
    finish(figure, axes, title, beside=True)
    return figure


def comparison_figure(found: Comparison) -> Figure:
    """Parameters by part, operations, memory, latency and throughput of several encoders."""
    costs = found.costs
    names = [short(cost.name.rstrip("/").split("/")[-1], 28) for cost in costs]
    figure = new_figure(10.5, 3.2 + 0.3 * len(costs) + 3.2)
    grid = figure.add_gridspec(3, 2, height_ratios=(0.9 + 0.3 * len(costs), 2.7, 2.7))
    _parts(figure.add_subplot(grid[0, :]), names, [cost.parameters for cost in costs])
    panels = (
        ("MFLOPs a token", [np.divide(cost.flops_per_token, 1e6) for cost in costs]),
        ("activations of a text, MB", [np.divide(cost.activation_bytes, 1e6) for cost in costs]),
        ("ms, one text", [cost.milliseconds for cost in costs]),
        (f"tokens a second, {found.batch_size} texts", [cost.tokens_per_second for cost in costs]),
    )
    for place, (measure, curves) in enumerate(panels):
        axes = figure.add_subplot(grid[1 + place // 2, place % 2])
        for number, (name, values) in enumerate(zip(names, curves)):
            axes.plot(found.lengths, values, label=name, **_line(number))
        axes.set_xticks(found.lengths)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("tokens in a text", fontsize=TEXT)
        axes.set_ylabel(measure, fontsize=TEXT)
        axes.tick_params(labelsize=TEXT)
        axes.grid(color="0.9")
    handles, labels = axes.get_legend_handles_labels()
    where = {"loc": "outside lower center", "ncols": min(3, len(names))}
    figure.legend(handles, labels, fontsize=TEXT, frameon=False, **where)
    figure.suptitle(f"{found.device}: {found.versions}, float32", fontsize=TEXT)
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
    """An empty figure of so many inches that arranges itself."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def finish(figure: Figure, axes, title: str, beside: bool = False) -> None:
    """Grid, size of letters, title, and where there is something to tell apart a legend, in the picture or `beside`."""
    axes.tick_params(labelsize=TEXT)
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    if title:
        figure.suptitle(title, fontsize=TEXT + 1, parse_math=False)
    if axes.get_legend_handles_labels()[1]:
        where = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)} if beside else {}
        axes.legend(fontsize=TEXT, frameon=False, **where)
