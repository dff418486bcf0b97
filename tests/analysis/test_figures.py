"""Figures: what is drawn, and that no two names overlap or leave the picture."""

from itertools import combinations

import numpy as np
import pytest

from bertzoo.analysis.attention import AttentionMap
from bertzoo.analysis.figures import attention_head_figure, attention_heads_figure, heat_map

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.once
LONG = "[CLS] The animal did not cross the street because it was too tired $x$ WWWWWWWWWWWWWWWWWWWWWW [SEP]"
NAMES = tuple(LONG.split())
RNG = np.random.default_rng(0)


def made(names, layers=2, heads=3):
    weights = RNG.dirichlet(np.ones(len(names)), size=(layers, heads, len(names)))
    return AttentionMap(weights.astype("float32"), names, names, np.arange(len(names)))


def texts_of(figure):
    for axes in figure.axes:
        for ticks, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, sorted(axes.get_ylim()))):
            shown = [tick for tick in ticks.get_major_ticks() if low <= tick.get_loc() <= high]
            yield from (label for tick in shown for label in (tick.label1, tick.label2) if label.get_visible())
        if axes.get_title():
            yield axes.title
        yield from (label for label in (axes.xaxis.label, axes.yaxis.label) if label.get_text())


def assert_readable(figure):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure).draw()
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts_of(figure) if text.get_text()]
    for (first, one), (second, other) in combinations(boxes, 2):
        wide = min(one.x1, other.x1) - max(one.x0, other.x0)
        high = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert wide <= 0.5 or high <= 0.5, f"{first!r} and {second!r} overlap by {wide:.1f} × {high:.1f} dots"
    for text, box in boxes:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, text
    assert min(text.get_fontsize() for text in texts_of(figure)) * figure.dpi / 72 >= 11


@pytest.mark.parametrize("names", [NAMES, ("[CLS]", "yes", "[SEP]"), tuple("abcdefghij" * 6)])
def test_one_head(names):
    actual = made(names)
    figure = attention_head_figure(actual, 1, 2)
    assert_readable(figure)
    axes = figure.axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), actual.weights[1, 2])
    shown = [label.get_text() for label in axes.get_xticklabels()]
    assert shown == [label.get_text() for label in axes.get_yticklabels()]
    assert [s.rstrip("…") for s in shown] == [n if len(n) <= 18 else n[:17] for n in names]
    assert axes.get_title() == "layer 1, head 2" and axes.images[0].get_cmap().name == "cividis"


@pytest.mark.slow
@pytest.mark.parametrize("names", [NAMES, ("[CLS]", "yes", "[SEP]")])
def test_grid_of_heads(names):
    actual = made(names)
    figure = attention_heads_figure(actual)
    assert_readable(figure)
    panels = figure.axes[:-1]
    assert len(panels) == 6
    for number, axes in enumerate(panels):
        np.testing.assert_array_equal(axes.images[0].get_array(), actual.weights[divmod(number, 3)])
        assert axes.images[0].get_clim() == (0, 1)
    some = attention_heads_figure(actual, layers=[1], heads=[2, 0])
    assert [axes.get_title() for axes in some.axes[:-1]] == ["layer 1, head 2", "layer 1, head 0"]
    assert_readable(some)


def test_what_cannot_be_drawn():
    actual = made(("a", "b"))
    with pytest.raises(ValueError, match="2 layers and 3 heads"):
        attention_head_figure(actual, 2, 0)
    with pytest.raises(ValueError, match="2 layers and 3 heads"):
        attention_heads_figure(actual, heads=[])
    with pytest.raises(ValueError, match=r"must have shape \(2, 2\)"):
        heat_map(np.ones((3, 3)), ("a", "b"))
    with pytest.raises(ValueError, match="shorter text"):
        heat_map(np.ones((1200, 1200)), ["a"] * 1200)
