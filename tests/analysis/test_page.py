"""The page in a real browser: what is chosen is what is drawn; nothing is loaded."""

import json
import re

import numpy as np
import pytest
from browser import evaluate

from bertzoo.analysis import attention_html
from bertzoo.analysis.attention import AttentionMap

pytestmark = pytest.mark.once
NAMES = ("[CLS]", "un", "##happy", "</script><b>", "[SEP]")
RNG = np.random.default_rng(0)


def made(names=NAMES, word_names=("[CLS]", "unhappy", "</script><b>", "[SEP]"), word_of=(0, 1, 1, 2, 3)):
    weights = RNG.dirichlet(np.ones(len(names)), size=(2, 3, len(names))).astype("float32")
    return AttentionMap(weights, names, word_names, np.array(word_of))


# Chooses in each menu what is asked for, switches on these heads alone, and gives what is drawn then.
ACT = """
for (const [name, value] of Object.entries(%s)) {
  pick(name).value = value;
  pick(name).dispatchEvent(new Event("change"));
}
const heads = %s;
if (heads !== null) switches().forEach(box => { if (box.checked !== heads.includes(+box.value)) box.click(); });
if (%d >= 0) pick("lines").querySelectorAll(".token")[%d].dispatchEvent(new MouseEvent("mouseenter"));
return {
  names: [...pick("lines").querySelectorAll(".token")].map(token => token.childNodes[0].data),
  lines: [...pick("lines").querySelectorAll("line")].map(line => +line.getAttribute("stroke-opacity")),
  cells: pick("cells").querySelectorAll("rect").length,
  said: pick("said").textContent,
  menus: [...["text", "level", "layer"].map(name => pick(name).length), switches().length],
  loaded: performance.getEntriesByType("resource").length,
};"""


def drawn(page, folder, chosen, token=-1, heads=None):
    return evaluate(page, ACT % (json.dumps(chosen), json.dumps(heads), token, token), folder)


def test_what_is_chosen_is_drawn(tmp_path):
    maps = [made(), made(("[CLS]", "a", "[SEP]"), ("[CLS]", "a", "[SEP]"), (0, 1, 2))]
    page = attention_html(maps, "<Attention>")
    seen = drawn(page, tmp_path, {"level": 1, "layer": 1}, token=2, heads=[2])
    assert seen["menus"] == [2, 2, 2, 3] and seen["loaded"] == 0
    assert seen["names"] == list(NAMES) and seen["cells"] == 25
    assert seen["said"] == "Layer 1, head 2: what “##happy” attends to"
    expected = maps[0].weights[1, 2, 2]
    np.testing.assert_allclose(seen["lines"], expected[expected > 0.005], atol=1e-3)


def test_words_and_the_mean_of_heads(tmp_path):
    maps = [made(), made(("[CLS]", "a", "[SEP]"), ("[CLS]", "a", "[SEP]"), (0, 1, 2))]
    page = attention_html(maps)
    seen = drawn(page, tmp_path, {"layer": 1})
    assert seen["names"] == ["[CLS]", "unhappy", "</script><b>", "[SEP]"]
    expected = maps[0].by_word().weights[1].mean(axis=0).ravel()
    np.testing.assert_allclose(seen["lines"], expected[expected > 0.005], atol=1e-3)
    assert seen["said"] == "Layer 1, mean of all heads"
    seen = drawn(page, tmp_path, {"layer": 1}, heads=[0, 2])
    expected = maps[0].by_word().weights[1, [0, 2]].mean(axis=0).ravel()
    np.testing.assert_allclose(seen["lines"], expected[expected > 0.005], atol=1e-3)
    assert seen["said"] == "Layer 1, mean of heads 0, 2"
    seen = drawn(page, tmp_path, {"text": 1})
    assert seen["names"] == ["[CLS]", "a", "[SEP]"] and seen["menus"][1] == 1


def test_nothing_is_loaded_and_texts_are_no_markup():
    page = attention_html(made(), "a & b")
    assert "default-src 'none'" in page and "a &amp; b" in page
    assert set(re.findall(r"https?://[^\"]*", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\b(src|href|url)\s*[=(]", page) and "</script><b>" not in page
    with pytest.raises(ValueError, match="expected one or more maps"):
        attention_html([])
