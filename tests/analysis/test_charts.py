"""Charts: what is drawn, that axes are named, and that no letters overlap or leave the picture."""

from itertools import combinations

import numpy as np
import pytest

from bertzoo.analysis.attribution import Attribution
from bertzoo.analysis.charts import (
    COLOURS,
    anisotropy_figure,
    attribution_figure,
    calibration_figure,
    cost_comparison_figure,
    errors_by_confidence_figure,
    pca_figure,
    probe_figure,
    pruning_figure,
)
from bertzoo.analysis.comparison import CostComparison, EncoderCost
from bertzoo.analysis.confidence import LabeledPredictions
from bertzoo.analysis.figures import heat_map, values_by_head_figure
from bertzoo.analysis.heads import HeadPruning
from bertzoo.analysis.probing import ProbeResult
from bertzoo.analysis.representations import LayerAnisotropy, PrincipalComponents

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.once
RNG = np.random.default_rng(0)
NAMES = ("[CLS]", "The", "animal", "$x$", "unhappily", "[SEP]")


def words_in(figure):
    """All letters that are drawn."""
    from matplotlib.text import Text

    seen = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    outside = set()
    for axes in figure.axes:
        for axis, (low, high) in ((axes.xaxis, sorted(axes.get_xlim())), (axes.yaxis, sorted(axes.get_ylim()))):
            for tick in axis.get_major_ticks() + axis.get_minor_ticks():
                if not low - 1e-9 <= tick.get_loc() <= high + 1e-9:
                    outside |= {tick.label1, tick.label2}
    return [text for text in seen if text not in outside]


def assert_readable(figure):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    boxes = [(text.get_text(), Text.get_window_extent(text, renderer)) for text in words_in(figure)]
    for (first, one), (second, other) in combinations(boxes, 2):
        wide = min(one.x1, other.x1) - max(one.x0, other.x0)
        high = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert wide <= 1 or high <= 1, f"{first!r} and {second!r} overlap by {wide:.1f} × {high:.1f} dots"
    for text, box in boxes:
        assert box.x0 >= -0.5 and box.y0 >= -0.5, text
        assert box.x1 <= figure.bbox.x1 + 0.5 and box.y1 <= figure.bbox.y1 + 0.5, text
    assert min(text.get_fontsize() for text in words_in(figure)) * figure.dpi / 72 >= 12
    for axes in figure.axes:
        colour_bar = axes.yaxis.get_label_position() == "right"
        shared = axes.get_shared_x_axes().get_siblings(axes)
        assert axes.get_ylabel() and (colour_bar or any(other.get_xlabel() for other in shared))


def bins():
    right = RNG.uniform(size=200) < 0.7
    truth = tuple("a" if yes else "b" for yes in right)
    return LabeledPredictions(("",) * 200, truth, ("a",) * 200, RNG.uniform(0.5, 1, 200)).bin_by_confidence()


def test_attribution():
    scores = np.array([0, -0.2, 0.5, 0.1, -0.3, 0])
    figure = attribution_figure(Attribution(scores, NAMES, NAMES, np.arange(6), 1.0, 0.9), "why $x$")
    assert_readable(figure)
    axes = figure.axes[0]
    widths = {round(bar.get_y() + bar.get_height() / 2): bar.get_width() for bar in axes.patches}
    np.testing.assert_allclose([widths[i] for i in range(6)], scores)
    assert [label.get_text() for label in axes.get_yticklabels()] == list(NAMES)


def test_curves_over_layers():
    probe = ProbeResult(RNG.uniform(size=25), RNG.uniform(size=25), RNG.uniform(size=25), 0.4)
    figure = probe_figure(probe, "kinds of words")
    assert_readable(figure)
    lines = figure.axes[0].lines
    np.testing.assert_array_equal(lines[0].get_ydata(), probe.accuracy)
    np.testing.assert_array_equal(lines[2].get_ydata(), probe.control_task)
    assert len({(line.get_color(), line.get_marker(), line.get_linestyle()) for line in lines}) == 4
    cones = LayerAnisotropy(np.array([0.1, 0.5]), np.array([0.0, 0.01]), np.array([3, 3]))
    figure = anisotropy_figure(cones)
    assert_readable(figure)
    np.testing.assert_array_equal(figure.axes[0].lines[1].get_ydata(), cones.after)
    figure = pruning_figure(HeadPruning(((0, 1), (1, 0)), np.array([0.9, 0.8, 0.5])), "accuracy")
    assert_readable(figure)
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), [0.9, 0.8, 0.5])


def test_confidence():
    actual = bins()
    figure = calibration_figure(actual, "held out")
    assert_readable(figure)
    full = actual.counts > 0
    np.testing.assert_array_equal(
        figure.axes[0].lines[1].get_xydata().T, [actual.confidence[full], actual.accuracy[full]]
    )
    figure = errors_by_confidence_figure(actual)
    assert_readable(figure)
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    np.testing.assert_allclose(heights[:10], np.nan_to_num(actual.accuracy) * actual.counts)
    np.testing.assert_allclose(np.add(heights[:10], heights[10:]), actual.counts)


def test_numbers_by_head_and_signed_maps():
    for shape in ((1, 2), (12, 12)):
        values = RNG.normal(size=shape)
        figure = values_by_head_figure(values, "change of accuracy", "each head left out")
        assert_readable(figure)
        picture = figure.axes[0].images[0]
        np.testing.assert_array_equal(picture.get_array(), values)
        low, high = picture.get_clim()
        assert low == -high and picture.get_cmap().name == "PuOr"
    assert values_by_head_figure(np.abs(values), "entropy").axes[0].images[0].get_cmap().name == "cividis"
    assert_readable(heat_map(RNG.normal(size=(6, 6)) / 100, NAMES, "gradient × attention", "share of the output"))
    with pytest.raises(ValueError, match="values must have shape"):
        values_by_head_figure(np.ones(3), "entropy")


@pytest.mark.slow
def test_map():
    points = RNG.normal(size=(30, 2))
    names = [f"the word number {i}" for i in range(30)]
    figure = pca_figure(
        PrincipalComponents(points, np.array([0.5, 0.2])), names, ["river", "money", "$x$"] * 10, "a map"
    )
    assert_readable(figure)
    np.testing.assert_array_equal(figure.axes[0].collections[1].get_offsets(), points[1::3])
    shown = {text.get_text() for text in figure.axes[0].texts}
    assert shown <= set(names) and len(shown) > 8
    few = pca_figure(PrincipalComponents(points[:4], np.array([0.5, 0.2])), names[:4])
    assert_readable(few)
    assert {text.get_text() for text in few.axes[0].texts} == set(names[:4])
    with pytest.raises(ValueError, match="for each of 30 points"):
        pca_figure(PrincipalComponents(points, np.ones(2)), ["a"])
    with pytest.raises(ValueError, match=f"at most {len(COLOURS)} groups"):
        pca_figure(PrincipalComponents(points, np.ones(2)), None, [str(i) for i in range(30)])


@pytest.mark.parametrize("count", [2, 7])
def test_comparison(count):
    parts = {
        "embeddings": 10**7,
        "attention": 2 * 10**7,
        "feed-forward": 4 * 10**7,
        "norms": 10**5,
        "pooler": 5,
        "head": 0,
    }
    costs = [
        EncoderCost(
            f"owner/some-long-model-name-{i}-uncased", parts, [1e8, 2e8], [10**7, 10**8], [5.0, 9.0], [900.0, 800.0]
        )
        for i in range(count)
    ]
    figure = cost_comparison_figure(CostComparison([32, 512], 8, "CPU, 2 cores", "keras 3, torch 2", costs))
    assert_readable(figure)
    bars, *panels = figure.axes
    assert [round(bar.get_width(), 6) for bar in bars.patches[:count]] == [10.0] * count
    assert [axes.get_ylabel() for axes in panels] == [
        "MFLOPs a token",
        "activations of a text, MB",
        "ms, one text",
        "tokens a second, 8 texts",
    ]
    np.testing.assert_array_equal(panels[2].lines[0].get_xydata(), [[32, 5], [512, 9]])
