"""The mean cosine against all pairs one by one, and whitening by its properties."""

import numpy as np
import pytest

import bertzoo as bz
from bertzoo.analysis.representations import Whitening, layer_anisotropy, mean_pairwise_cosine

pytestmark = pytest.mark.once
RNG = np.random.default_rng(0)
CONE = (RNG.normal(size=(400, 6)) @ RNG.normal(size=(6, 6)) + 5).astype("float32")


def test_mean_cosine_is_that_of_all_pairs():
    few = CONE[:20]
    units = few / np.linalg.norm(few, axis=1, keepdims=True)
    pairs = [units[i] @ units[j] for i in range(20) for j in range(i)]
    assert mean_pairwise_cosine(few) == pytest.approx(np.mean(pairs), abs=1e-6)
    assert mean_pairwise_cosine(np.eye(3)) == pytest.approx(0)
    with pytest.raises(ValueError, match="at least two vectors"):
        mean_pairwise_cosine(CONE[:1])


def test_whitened_vectors_have_no_common_direction_and_unit_spread():
    white = Whitening.fit(CONE)(CONE)
    assert mean_pairwise_cosine(CONE) > 0.5 > 0.05 > abs(mean_pairwise_cosine(white))
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(np.cov(white, rowvar=False, bias=True), np.eye(6), atol=1e-3)


def test_fewer_dimensions_keep_those_of_the_greatest_spread():
    sklearn = pytest.importorskip("sklearn.decomposition")
    pca = sklearn.PCA(2, whiten=True).fit_transform(CONE.astype("float64"))
    white = Whitening.fit(CONE, dimensions=2)(CONE)
    # Directions are known up to their sign, and scikit-learn divides by n - 1.
    np.testing.assert_allclose(np.abs(white), np.abs(pca) * np.sqrt(400 / 399), atol=1e-3)


def test_too_few_vectors_are_refused():
    with pytest.raises(ValueError, match="dimensions must not exceed 3"):
        Whitening.fit(CONE[:4])
    with pytest.raises(ValueError, match="dimensions must be from 1 to 6"):
        Whitening.fit(CONE, dimensions=7)


def test_a_model_needs_different_texts():
    model = bz.MaskedLM.from_preset("bert_mini_en", verbose=False)
    with pytest.raises(ValueError, match="all vectors of a layer are equal"):
        layer_anisotropy(model, ["The same."] * 4, per="text")
    with pytest.raises(ValueError, match="at least four vectors"):
        layer_anisotropy(model, ["One.", "Two."], per="text")
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        layer_anisotropy(model, ["One.", "Two."], batch_size=0)
