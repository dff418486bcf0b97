"""LabeledPredictions and their confidence against torchmetrics and NumPy."""

import numpy as np
import pytest
import torch

import bertzoo as bz
from bertzoo.analysis import predict_with_confidence
from bertzoo.analysis.confidence import LabeledPredictions

TEXTS = ["the film was bad", "a great story", "never again", "we saw it in rome once"]


def made(confidence, right):
    truth = tuple("a" if yes else "b" for yes in right)
    return LabeledPredictions(tuple(map(str, range(len(right)))), truth, ("a",) * len(right), np.array(confidence))


def test_from_text(write_checkpoint):
    directory, reference = write_checkpoint("BertForSequenceClassification")
    task = bz.TextClassifier.from_preset(directory, labels=["no", "yes"], verbose=False)
    task.temperature = 2.0
    actual = predict_with_confidence(task, TEXTS, ["yes", "no", "yes", "no"], batch_size=3)
    for number, text in enumerate(TEXTS):
        with torch.no_grad():
            ids = torch.tensor(task.tokenizer([text])["token_ids"]).long()
            probabilities = torch.softmax(reference(ids).logits[0] / 2, dim=-1).numpy()
        assert actual.predicted[number] == ["no", "yes"][probabilities.argmax()]
        assert actual.confidence[number] == pytest.approx(probabilities.max(), abs=1e-5)
    assert actual.texts == tuple(TEXTS) and actual.truth == ("yes", "no", "yes", "no")
    assert predict_with_confidence(task, (TEXTS, TEXTS), [0, 1, 0, 1]).texts[0] == (TEXTS[0], TEXTS[0])
    with pytest.raises(ValueError, match="needs a single-label TextClassifier"):
        predict_with_confidence(bz.TextClassifier(task.backbone, task.tokenizer, labels=1), TEXTS, [1.0] * 4)


@pytest.mark.slow
def test_bins_and_error():
    metrics = pytest.importorskip("torchmetrics.functional.classification")
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, 300)
    right = rng.uniform(size=300) < confidence**2
    actual = made(confidence, right).bin_by_confidence(7)
    expected = metrics.binary_calibration_error(torch.tensor(confidence), torch.tensor(right).long(), n_bins=7)
    assert actual.expected_calibration_error == pytest.approx(float(expected), abs=1e-6)
    assert actual.counts.sum() == 300 and np.isnan(actual.accuracy[0])
    last = confidence > 6 / 7
    assert actual.accuracy[-1] == pytest.approx(right[last].mean())
    assert actual.confidence[-1] == pytest.approx(confidence[last].mean())


def test_errors_are_the_surest_first():
    actual = made([0.6, 0.9, 0.8, 1.0], [False, False, True, True])
    assert actual.error_indices_by_confidence() == [1, 0] and actual.is_correct.tolist() == [False, False, True, True]
    assert actual.bin_by_confidence(2).counts.tolist() == [0, 4]
    with pytest.raises(ValueError, match="bins must be"):
        actual.bin_by_confidence(0)
