"""The explorers compute what the library computes."""

import importlib.util
import json
import re
from pathlib import Path

import keras
import numpy as np
import pytest
from browser import evaluate

import bertzoo as bz

pytestmark = [pytest.mark.once, pytest.mark.slow]
FILE = Path(bz.__file__).resolve().parents[1] / "docs" / "extensions" / "explorers.py"


@pytest.fixture(scope="module")
def explorers():
    pytest.importorskip("sphinx")
    spec = importlib.util.spec_from_file_location("explorers", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(explorers):
    return explorers.pages()


def data(page):
    return json.loads(re.search(r'<script id="data" type="application/json">(.+?)</script>', page, re.DOTALL)[1])


def test_pages_load_nothing(pages):
    assert len(pages) == 5
    for page in pages.values():
        assert "default-src 'none'" in page and "{{" not in page
        assert set(re.findall(r"https?://[^\"]*", page)) <= {"http://www.w3.org/2000/svg"}
        assert not re.search(r"\b(src|href|url)\s*[=(]", page)


def test_wordpiece_cuts_as_the_tokenizer_does(pages, tmp_path):
    tokenizer = bz.MaskedLM.from_preset("bert_mini_en", verbose=False).tokenizer
    texts = [*bz.data.load_reviews("test")[0], "Unbelievably naïve snowboarders", "\N{SNOWMAN} 1,234 qqqqzxqj don't"]
    found = evaluate(pages["wordpiece.html"], f"return {json.dumps(texts)}.map(tokenize);", tmp_path)
    rows = tokenizer.encode(texts)
    expected = [[tokenizer.id_to_token(int(i)) for i in rows.row(row)[1:-1]] for row in range(len(texts))]
    assert found == expected


def test_steps_lead_to_the_pieces(pages, tmp_path):
    script = """
    pick("text").value = "unbelievably \N{SNOWMAN}";
    pick("text").dispatchEvent(new Event("input"));
    const before = pick("said").textContent;
    for (let i = 0; i < steps.length; i++) pick("next").click();
    return [before, [...pick("pieces").children].map(piece => piece.textContent), tokenize(pick("text").value)];"""
    before, shown, expected = evaluate(pages["wordpiece.html"], script, tmp_path)
    assert re.match(r"\d+ steps", before) and shown == expected


@pytest.mark.parametrize(("bonus", "rules"), [(0.5, True), (0.5, False), (-3.0, True), (3.0, False)])
def test_the_lattice_is_that_of_the_layer(explorers, pages, tmp_path, bonus, rules):
    script = f"""
    const steps = transitions({bonus}, {json.dumps(rules)}), {{path, score}} = viterbi(emissions, steps);
    return {{path, score, normalizer: normalizer(emissions, steps), steps}};"""
    found = evaluate(pages["crf.html"], script, tmp_path)
    crf = bz.layers.CRF(3, [(0, 2), (3, 2)] if rules else [])
    crf.build(None)
    transitions = np.zeros((4, 4), "float32")
    transitions[1, 2] = bonus
    crf.transitions.assign(transitions)
    emissions = np.array([explorers.EMISSIONS], "float32")
    labels = keras.ops.convert_to_numpy(crf(emissions))[0].tolist()
    assert found["path"] == labels
    log_likelihood = found["score"] - found["normalizer"]
    expected = keras.ops.convert_to_numpy(crf.log_likelihood(emissions, np.array([labels])))[0]
    np.testing.assert_allclose(log_likelihood, expected, atol=1e-4)


def test_masking_shows_what_was_drawn(pages, tmp_path):
    script = """
    const seen = [];
    for (let i = 0; i < 30; i++) {
      if (i) pick("again").click();
      seen.push([...pick("tokens").querySelectorAll(".mask, .random, .same")].map(item => item.className));
    }
    return {seen, shares: ["mask", "random", "same"].map(name => pick(name).textContent)};"""
    found = evaluate(pages["masking.html"], script, tmp_path)
    draws = data(pages["masking.html"])["texts"][0]["draws"][0][0]
    kinds = [[("mask", "random", "same")[kind] for _, kind, _ in sorted(draw)] for draw in draws]
    assert found["seen"] == kinds
    counts = np.array([sum(draw.count(kind) for draw in kinds) for kind in ("mask", "random", "same")])
    assert found["shares"] == [f"{round(100 * count / counts.sum())} %" for count in counts]
    assert 0.7 < counts[0] / counts.sum() < 0.9


def test_packing_draws_every_text_once(pages, tmp_path):
    script = """
    return ["padded", "packed"].map(name =>
      [...pick(name).querySelectorAll(".text")].map(text => [text.textContent, +text.getAttribute("width") / CELL]));"""
    batch = data(pages["packing.html"])["batches"][-1]
    expected = sorted(map(list, zip(batch["texts"], batch["lengths"])))
    for drawn in evaluate(pages["packing.html"], script, tmp_path):
        assert sorted(drawn) == expected
