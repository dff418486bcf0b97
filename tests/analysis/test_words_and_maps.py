"""Vectors of words against transformers' hidden states, and maps against singular values."""

import numpy as np
import pytest
import torch

import bertzoo as bz
from bertzoo.analysis import layer_anisotropy, layer_vectors, mean_pairwise_cosine, pca, word_vectors

TEXTS = ["unhappy, the film ends.", "The plot of THE film"]


@pytest.fixture(scope="module")
def pair(write_checkpoint):
    directory, reference = write_checkpoint("BertForSequenceClassification")
    return bz.TextClassifier.from_preset(directory, verbose=False), reference.bert


def test_word_vectors_are_means_of_transformers_states(pair, close):
    task, reference = pair
    states = []
    for text in TEXTS:
        ids = torch.tensor(task.tokenizer([text])["token_ids"]).long()
        with torch.no_grad():
            states.append(np.stack([s[0].numpy() for s in reference(ids, output_hidden_states=True).hidden_states]))
    actual = word_vectors(task, TEXTS, "the")
    assert actual.words == ("the", "The", "THE") and actual.texts.tolist() == [0, 1, 1]
    close(actual.vectors, np.stack([states[0][:, 4], states[1][:, 1], states[1][:, 4]], axis=1))
    whole = word_vectors(task, TEXTS, batch_size=1)
    assert whole.words == ("unhappy", ",", "the", "film", "ends", ".", "The", "plot", "of", "THE", "film")
    close(whole.vectors[:, 0], states[0][:, 1:3].mean(axis=1))
    close(word_vectors(task.backbone, TEXTS[0], "film", tokenizer=task.tokenizer).vectors[:, 0], states[0][:, 5])
    with pytest.raises(ValueError, match="no text has the word 'dog'"):
        word_vectors(task, TEXTS, "dog")


def test_anisotropy_of_layers(pair):
    task, _ = pair
    actual = layer_anisotropy(task, TEXTS)
    vectors = layer_vectors(task, TEXTS)
    for layer, before, after, dimensions in zip(vectors, actual.before, actual.after, actual.dimensions):
        assert before == mean_pairwise_cosine(layer) and dimensions == len(layer) // 2
        centred = layer.astype("float64") - layer.mean(axis=0, dtype="float64")
        left, _, _ = np.linalg.svd(centred, full_matrices=False)
        white = left[:, :dimensions]  # whitened up to a rotation and one scale
        white /= np.linalg.norm(white, axis=1, keepdims=True)
        cosines = (white @ white.T)[~np.eye(len(white), dtype=bool)]
        assert after == pytest.approx(cosines.mean(), abs=1e-4)
    with pytest.raises(ValueError, match="at least four vectors"):
        layer_anisotropy(task, TEXTS, per="text")


def test_map_is_the_first_two_principal_components():
    sklearn = pytest.importorskip("sklearn.decomposition")
    vectors = np.random.default_rng(0).normal(size=(20, 7)) * np.arange(1, 8)
    actual = pca(vectors)
    reference = sklearn.PCA(2).fit(vectors)
    np.testing.assert_allclose(np.abs(actual.points), np.abs(reference.transform(vectors)), atol=1e-4)
    np.testing.assert_allclose(actual.shares, reference.explained_variance_ratio_, atol=1e-5)
    for wrong in (vectors[:2], vectors[:, :1]):
        with pytest.raises(ValueError, match="at least three vectors"):
            pca(wrong)
    with pytest.raises(ValueError, match="all vectors are equal"):
        pca(np.ones((4, 3)))
