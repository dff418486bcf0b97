"""CKA against the definition by kernel matrices and HSIC, and layers against transformers' hidden states."""

import numpy as np
import pytest
import torch

import bertzoo as bz
from bertzoo.analysis.pieces import encode_with_words
from bertzoo.analysis.representations import cka_matrix, layer_vectors, linear_cka

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(9, 5)) + 3, RNG.normal(size=(9, 4))
TEXTS = ["unhappily, the film was bad.", "paris in rome"]


def hsic(k, l):
    """Tr(K H L H) / (n - 1)², equation 3 of the paper."""
    n = len(k)
    centring = np.eye(n) - np.ones((n, n)) / n
    return np.trace(k @ centring @ l @ centring) / (n - 1) ** 2


def by_kernels(x, y):
    k, l = x @ x.T, y @ y.T
    return hsic(k, l) / np.sqrt(hsic(k, k) * hsic(l, l))


def test_linear_cka_is_the_normalised_hsic_of_linear_kernels():
    assert linear_cka(X, Y) == pytest.approx(by_kernels(X, Y), abs=1e-12)
    assert linear_cka(X, X) == pytest.approx(1)
    turn = np.linalg.qr(RNG.normal(size=(5, 5)))[0]
    assert linear_cka(X, 7 * X @ turn + 2) == pytest.approx(1)
    with pytest.raises(ValueError, match="Received: 9 and 8"):
        linear_cka(X, Y[:8])
    with pytest.raises(ValueError, match="all rows"):
        linear_cka(X, np.ones((9, 3)))
    with pytest.raises(ValueError, match="must have shape"):
        linear_cka(X[0], Y[0])


def test_layers_are_transformers_without_padding(write_checkpoint, close):
    directory, reference = write_checkpoint("BertForSequenceClassification")
    task = bz.TextClassifier.from_preset(directory, verbose=False)
    encoded, _ = encode_with_words(task, TEXTS)
    with torch.no_grad():
        rows = [torch.tensor(encoded.row(row))[None].long() for row in range(2)]
        states = [[x[0].numpy() for x in reference(ids, output_hidden_states=True).hidden_states] for ids in rows]
    tokens, means = (
        layer_vectors(task, TEXTS),
        layer_vectors(task.backbone, TEXTS, per="text", tokenizer=task.tokenizer),
    )
    for layer in range(3):
        close(tokens[layer], np.concatenate([states[0][layer], states[1][layer]]))
        close(means[layer], np.stack([states[row][layer].mean(axis=0) for row in range(2)]))
    actual = cka_matrix(tokens)
    close(actual, [[by_kernels(x.astype("float64"), y.astype("float64")) for y in tokens] for x in tokens])
    close(np.diag(actual), np.ones(3))
    assert cka_matrix(tokens, tokens[:1]).shape == (3, 1)
    with pytest.raises(ValueError, match="per must be"):
        layer_vectors(task, TEXTS, per="word")
    with pytest.raises(ValueError, match="texts is empty"):
        layer_vectors(task, [])
