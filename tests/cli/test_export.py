"""`bertzoo export`: each kind of checkpoint becomes the task that it was made for, and broken ones are refused."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import bertzoo as bz
from bertzoo.cli.main import app
from bertzoo.export import OnnxModel

pytestmark = pytest.mark.once


def export(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


@pytest.mark.parametrize(
    ("name", "changes", "task"),
    [
        ("BertModel", {}, "SentenceEncoder"),
        ("BertForSequenceClassification", {"num_labels": 3}, "TextClassifier"),
        ("BertForSequenceClassification", {"num_labels": 1}, "CrossEncoder"),
        ("BertForSequenceClassification", {"num_labels": 1, "problem_type": "regression"}, "TextClassifier"),
        ("BertForTokenClassification", {}, "TokenClassifier"),
        ("BertForQuestionAnswering", {}, "QuestionAnswerer"),
        ("BertForMaskedLM", {}, "MaskedLM"),
    ],
)
def test_the_task_follows_from_the_files(write_checkpoint, tmp_path, close, name, changes, task):
    directory, network = write_checkpoint(name, **changes)
    result = export(directory, tmp_path / "model")
    assert result.exit_code == 0, result.stderr
    model = OnnxModel.from_directory(tmp_path / "model")
    assert model.task == task
    if "Sequence" in name:
        import torch

        rows = [[2, 7, 8, 3], [2, 9, 3]]
        with torch.no_grad():
            expected = [network(torch.tensor([row])).logits[0].numpy() for row in rows]
        close(model.run(rows)["logits"], np.stack(expected))


def test_a_directory_of_sentence_transformers_gives_vectors(write_checkpoint, tmp_path):
    bz.SentenceEncoder.from_preset(write_checkpoint()[0], verbose=False).save_to_preset(tmp_path / "preset")
    assert export(tmp_path / "preset", tmp_path / "model").exit_code == 0
    assert OnnxModel.from_directory(tmp_path / "model").task == "SentenceEncoder"


def test_a_head_that_the_files_lack_is_refused(write_checkpoint, tmp_path):
    directory, _ = write_checkpoint(seed=1)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "architectures": ["BertForTokenClassification"]}))
    result = export(directory, tmp_path / "model")
    assert result.exit_code == 1 and "not a trained TokenClassifier" in result.stderr
    assert not (tmp_path / "model").exists()
