"""`/tag` with labels: the entities of `EntityFinder.tag`, from an export that knows no Keras."""

import tarfile
from pathlib import Path

import numpy as np
import pytest

import bertzoo as bz
from bertzoo.export import OnnxModel
from bertzoo.export.agreement import random_rows
from bertzoo.text.label_prompts import LABEL, WORD

ARCHIVE = Path(__file__).parents[1] / "tasks" / "gliner" / "models.tar.xz"
LABELS = ["person", "place name", "organisation"]
TEXTS = [
    "Ada Lovelace wrote to Charles Babbage in London.",
    "Zürich’s café 🙂 sells 12 kinds of tea, and Göteborg 9 of them; no one knows why it is so. " * 6,
    " ",
    "ok",
]
FORMS = ("deberta_spans", "bert_spans", "modernbert_tokens")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The directory of gliner's models."""
    directory = tmp_path_factory.mktemp("gliner")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    return directory


@pytest.mark.parametrize("form", FORMS)
def test_entities_are_those_of_the_task(form, models, tmp_path, run_server):
    finder = bz.EntityFinder.from_preset(models / form, verbose=False, max_length=64, max_types=2)
    finder.export(tmp_path / "export", format="onnx")
    client = run_server(OnnxModel.from_directory(tmp_path / "export"))
    for options in ({}, {"threshold": 0.3, "nested": True}):
        status, answers = client("POST", "/tag", {"inputs": TEXTS, "labels": LABELS, **options})
        assert status == 200, answers
        expected = finder.tag(TEXTS, LABELS, **options)
        assert sum(map(len, expected)) > 10 and answers[2] == []
        for found, wanted in zip(answers, expected, strict=True):
            names = [[(one["start"], one["end"], one["text"], one["label"]) for one in row] for row in (found, wanted)]
            assert names[0] == names[1]
            np.testing.assert_allclose([one["score"] for one in found], [one["score"] for one in wanted], atol=1e-5)
    single = client("POST", "/tag", {"inputs": TEXTS[0], "labels": LABELS})[1]
    assert [one["text"] for one in single[0]] == [one["text"] for one in finder.tag(TEXTS[0], LABELS)]


def test_wrong_requests(models, tmp_path, run_server):
    finder = bz.EntityFinder.from_preset(models / "deberta_spans", verbose=False)
    finder.export(tmp_path / "export", format="onnx")
    client = run_server(OnnxModel.from_directory(tmp_path / "export"))
    for body, word in (
        ({"inputs": "a"}, "labels"),
        ({"inputs": "a", "labels": []}, "labels"),
        ({"inputs": "a", "labels": ["x", "x"]}, "different"),
        ({"inputs": "a", "labels": ["a <<ENT>>"]}, "<<ENT>>"),
        ({"inputs": "a", "labels": ["x"], "threshold": 2}, "threshold"),
        ({"inputs": "a", "labels": ["x"], "threshold": 0.04}, "`threshold` must be from 0.05 to 1. Received: 0.04."),
        ({"inputs": "a", "labels": ["x"], "flat": True}, "flat"),
        ({"inputs": "a", "labels": ["word " * 400]}, "label"),
        ({"inputs": "a", "labels": [f"label {i}" for i in range(101)]}, "`labels` may hold 100 names. Received: 101."),
    ):
        status, answer = client("POST", "/tag", body)
        assert 400 <= status < 500 and word in answer["error"], (status, answer)


def test_random_rows_have_a_label_and_words(models, tmp_path):
    finder = bz.EntityFinder.from_preset(models / "bert_spans", verbose=False)
    finder.export(tmp_path / "export", format="onnx")
    model = OnnxModel.from_directory(tmp_path / "export")
    assert model.reads_token_roles
    size = model.settings["vocab_size"]
    rows = random_rows(np.random.default_rng(0), np.array([2, 4]), size, model.reads_token_roles)
    assert rows.segment_ids.tolist() == [LABEL, WORD, LABEL, WORD, WORD, WORD]
    assert rows.token_ids.min() >= 0 and rows.token_ids.max() < size
    logits = model.run(rows, ["logits"])["logits"]
    assert len(logits) == 2 and np.isfinite(logits).all() and logits[0, 1].any()


def test_a_request_without_labels_goes_to_a_token_classifier(models, tmp_path, run_server):
    finder = bz.EntityFinder.from_preset(models / "deberta_spans", verbose=False)
    finder.export(tmp_path / "any", format="onnx")
    labels = ["O", "B-x", "I-x"]
    encoder = bz.Encoder.from_preset(models / "deberta_spans", verbose=False)
    bz.TokenClassifier(encoder, finder.tokenizer, labels).export(tmp_path / "own", format="onnx")
    client = run_server(*map(OnnxModel.from_directory, (tmp_path / "any", tmp_path / "own")))
    assert {one["label"] for one in client("POST", "/tag", {"inputs": TEXTS[:2]})[1][1]} <= {"x"}
    found = client("POST", "/tag", {"inputs": TEXTS[:2], "labels": LABELS})[1]
    assert {one["label"] for row in found for one in row} <= set(LABELS)
