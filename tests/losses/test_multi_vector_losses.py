"""Losses of token vectors and of sparse vectors against sentence-transformers': value and gradient."""

import numpy as np
import pytest
from sentence_loss_cases import agree, numbers, torch, value_and_gradient

from bertzoo.losses import (
    KLDistillation,
    MarginMSE,
    MultiVectorKLDistillation,
    MultiVectorMarginMSE,
    MultiVectorMultipleNegativesRanking,
    SparseMultipleNegativesRanking,
    SpladeLoss,
    multi_vector,
)

ROWS, TOKENS, WIDTH = 5, 6, 4
LENGTHS = np.random.default_rng(0).integers(1, TOKENS + 1, (ROWS, 4))


class FakeModel(torch.nn.Module):
    """Its vectors are its inputs; those of tokens that are zeros do not count."""

    device = "cpu"

    def forward(self, features, task=None):
        vectors = features["vectors"]
        return {
            "sentence_embedding": vectors,
            "token_embeddings": vectors,
            "attention_mask": (vectors != 0).any(dim=-1).int(),
        }


def reference(loss, vectors, targets):
    columns = [torch.tensor(vectors[:, i], requires_grad=True) for i in range(vectors.shape[1])]
    features = [{"vectors": column, "attention_mask": (column != 0).any(dim=-1).int()} for column in columns]
    value = loss(features, None if targets is None else torch.tensor(targets))
    value = sum(value.values()) if isinstance(value, dict) else value
    value.backward()
    return value.item(), np.stack([column.grad.numpy() for column in columns], axis=1)


def token_vectors(columns):
    vectors = numbers(ROWS, columns, TOKENS, WIDTH)
    return vectors * (np.arange(TOKENS) < LENGTHS[:, :columns, None])[..., None]


MULTI_VECTOR = {
    "pairs": (MultiVectorMultipleNegativesRanking(), "MultiVectorMultipleNegativesRankingLoss", {}, 2, None),
    "negatives": (
        MultiVectorMultipleNegativesRanking(scale=3.0),
        "MultiVectorMultipleNegativesRankingLoss",
        {"scale": 3.0},
        4,
        None,
    ),
    "margin": (MultiVectorMarginMSE(), "MultiVectorMarginMSELoss", {}, 3, numbers(ROWS)),
    "margins of scores": (MultiVectorMarginMSE(), "MultiVectorMarginMSELoss", {}, 4, numbers(ROWS, 3)),
    "distribution": (MultiVectorKLDistillation(), "MultiVectorDistillKLDivLoss", {}, 4, numbers(ROWS, 3)),
    "distribution, temperatures": (
        MultiVectorKLDistillation(temperature=0.5, teacher_temperature=2.0),
        "MultiVectorDistillKLDivLoss",
        {"student_temperature": 0.5, "teacher_temperature": 2.0},
        3,
        numbers(ROWS, 2),
    ),
}


@pytest.mark.parametrize("at_once", [2**24, 1], ids=["at once", "in blocks"])
@pytest.mark.parametrize("name", MULTI_VECTOR)
def test_losses_of_token_vectors(name, at_once, monkeypatch):
    losses = pytest.importorskip("sentence_transformers.multi_vector_encoder.losses")
    monkeypatch.setattr(multi_vector, "PRODUCTS_AT_ONCE", at_once)
    loss, st_name, options, columns, targets = MULTI_VECTOR[name]
    vectors = token_vectors(columns)
    agree(
        value_and_gradient(loss, vectors, targets),
        reference(getattr(losses, st_name)(FakeModel(), **options), vectors, targets),
    )


def test_mean_scores_are_those_there():
    losses = pytest.importorskip("sentence_transformers.multi_vector_encoder.losses")
    from sentence_transformers.multi_vector_encoder.scoring import mean_colbert_scores

    vectors = token_vectors(3)
    vectors[1, 2] = 0  # a document without tokens
    other = losses.MultiVectorMultipleNegativesRankingLoss(FakeModel(), similarity_fct=mean_colbert_scores)
    agree(
        value_and_gradient(MultiVectorMultipleNegativesRanking(mean=True), vectors, None),
        reference(other, vectors, None),
    )


SPARSE = {
    "pairs": (SparseMultipleNegativesRanking(), "SparseMultipleNegativesRankingLoss", {}, 2, None),
    "all directions": (
        SparseMultipleNegativesRanking(directions=("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")),
        "SparseMultipleNegativesRankingLoss",
        {"directions": ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")},
        3,
        None,
    ),
    "margins": (MarginMSE(), "SparseMarginMSELoss", {}, 4, numbers(ROWS, 2)),
    "distribution": (KLDistillation(temperature=2.0), "SparseDistillKLDivLoss", {}, 3, numbers(ROWS, 2)),
}
REGULARIZERS = {
    "both": {"document_regularizer_weight": 0.3, "query_regularizer_weight": 0.5},
    "documents": {"document_regularizer_weight": 0.3, "query_regularizer_weight": None},
    "all are documents": {
        "document_regularizer_weight": 0.3,
        "query_regularizer_weight": None,
        "use_document_regularizer_only": True,
    },
    "thresholds": {
        "document_regularizer_weight": 0.3,
        "query_regularizer_weight": 0.5,
        "document_regularizer_threshold": 5,
        "query_regularizer_threshold": 5,
    },
}


@pytest.mark.parametrize(
    ("name", "regularizers"), [*((n, "both") for n in SPARSE), *(("pairs", r) for r in REGULARIZERS)]
)
def test_losses_of_sparse_vectors(name, regularizers):
    losses = pytest.importorskip("sentence_transformers.sparse_encoder.losses")
    loss, st_name, options, columns, targets = SPARSE[name]
    settings, model = REGULARIZERS[regularizers], FakeModel()
    vectors = np.maximum(np.random.default_rng(columns).normal(size=(ROWS, columns, 11)), 0).astype("float32")
    words = (vectors[:, 1:] > 0).sum(axis=2)
    assert words.min() <= 5 < words.max()
    agree(
        value_and_gradient(SpladeLoss(loss, **settings), vectors, targets),
        reference(losses.SpladeLoss(model, getattr(losses, st_name)(model, **options), **settings), vectors, targets),
    )


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="warmup must be"):
        SpladeLoss(warmup=2)
