"""Figures, against scikit-learn's and scipy's."""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from bertzoo.commands.scores import by_class, confusion, of_numbers


def test_figures_by_class_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    classes = ["a", "b", "c", "never said"]
    truth, said = rng.choice(classes, 60).tolist(), rng.choice(classes[:3], 60).tolist()
    counts = confusion(truth, said, classes)
    np.testing.assert_array_equal(counts, confusion_matrix(truth, said, labels=classes))
    expected = precision_recall_fscore_support(truth, said, labels=classes, zero_division=0)[:3]
    np.testing.assert_allclose(by_class(counts), np.stack(expected, axis=1))


def test_figures_of_numbers_are_those_of_scipy():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 5, 40).astype(float)
    said = truth + rng.normal(size=40)
    found = of_numbers(truth, said)
    assert found["Pearson correlation"] == pytest.approx(pearsonr(truth, said).statistic)
    assert found["Spearman correlation"] == pytest.approx(spearmanr(truth, said).statistic)
    assert found["mean absolute error"] == pytest.approx(np.mean([abs(a - b) for a, b in zip(truth, said)]))
