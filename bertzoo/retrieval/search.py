"""Exact search over vectors, in chunks, so that memory does not grow with the product of both sides."""

from typing import Any

import numpy as np

from bertzoo.metrics.vector_similarity import prepared, scores_of

QUERIES_AT_ONCE, CORPUS_AT_ONCE = 512, 100_000


def semantic_search(
    query_vectors: Any,
    corpus_vectors: Any,
    top_k: int = 10,
    measure: str = "cosine",
    queries_at_once: int = QUERIES_AT_ONCE,
    corpus_at_once: int = CORPUS_AT_ONCE,
) -> list[list[dict[str, Any]]]:
    """The nearest vectors of a corpus for each query.

    Args:
        query_vectors, corpus_vectors: (n, width) and (m, width), NumPy or the tensors of a library; one query may be
            (width,).
        top_k: How many to find for each query; all where there are fewer.
        measure: "cosine", "dot", "euclidean" or "manhattan", see `similarity`.
        queries_at_once, corpus_at_once: How many of each are compared at once.

    Returns:
        For each query a list, the best first, of `{"corpus_id": index in the corpus, "score": …}`.

    Raises:
        ValueError: The widths differ, or a number is not positive.
    """
    scores, indices = nearest(query_vectors, corpus_vectors, top_k, measure, queries_at_once, corpus_at_once)
    return [
        [{"corpus_id": int(index), "score": float(score)} for index, score in zip(*row)] for row in zip(indices, scores)
    ]


def nearest(
    query_vectors: Any,
    corpus_vectors: Any,
    top_k: int,
    measure: str = "cosine",
    queries_at_once: int = QUERIES_AT_ONCE,
    corpus_at_once: int = CORPUS_AT_ONCE,
) -> tuple[np.ndarray, np.ndarray]:
    """As `semantic_search`, as arrays: scores float32 and indices int64, each (n, top_k), the best first.

    Of equal scores the lower index comes first.
    """
    for name, value in (("top_k", top_k), ("queries_at_once", queries_at_once), ("corpus_at_once", corpus_at_once)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1. Received: {value!r}.")
    queries, corpus = prepared(query_vectors, measure), prepared(corpus_vectors, measure)
    if queries.size and corpus.size and queries.shape[1] != corpus.shape[1]:
        raise ValueError(f"queries are {queries.shape[1]} numbers wide and the corpus {corpus.shape[1]}.")
    found = min(top_k, len(corpus))
    scores = np.zeros((len(queries), found), "float32")
    indices = np.zeros((len(queries), found), "int64")
    for start in range(0, len(queries), queries_at_once):
        rows = slice(start, start + queries_at_once)
        scores[rows], indices[rows] = _best_in_chunks(queries[rows], corpus, found, corpus_at_once, measure)
    return scores, indices


def _best_in_chunks(queries: np.ndarray, corpus: np.ndarray, top_k: int, at_once: int, measure: str):
    scores, indices = np.zeros((len(queries), 0), "float32"), np.zeros((len(queries), 0), "int64")
    for start in range(0, len(corpus), at_once):
        more = scores_of(queries, corpus[start : start + at_once], measure)
        numbers = np.broadcast_to(np.arange(start, start + more.shape[1]), more.shape)
        scores, indices = _best(np.hstack([scores, more]), np.hstack([indices, numbers]), top_k)
    return scores, indices


def _best(scores: np.ndarray, indices: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """The best of each row in order; of equal scores the leftmost, which has the lowest index."""
    if scores.shape[1] > top_k:
        # What is above the last score taken is in for sure; of those equal to it, the leftmost fill up.
        last = -np.partition(-scores, top_k - 1, axis=1)[:, top_k - 1 : top_k]
        above, equal = scores > last, scores == last
        room = top_k - above.sum(axis=1, keepdims=True)
        taken = above | (equal & (np.cumsum(equal, axis=1) <= room))
        scores = scores[taken].reshape(len(scores), top_k)
        indices = indices[taken].reshape(len(indices), top_k)
    order = np.argsort(-scores, axis=1, kind="stable")
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(indices, order, axis=1)
