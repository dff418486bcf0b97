"""MaxSim: how well a document's token vectors match a query's (Khattab and Zaharia 2020, section 3.3)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

MEASURES = ("maxsim", "meanmaxsim")
SCORES_AT_ONCE = 2**25  # 128 MB
EMPTY_DOCUMENT = -1e9  # the score of a document without tokens, below any other


def maxsim(queries: Any, documents: Any, measure: str = "maxsim") -> np.ndarray:
    """Each query against each document: over the query's tokens, the sum of the largest dot product with a token of the
    document.

    Args:
        queries, documents: Lists of arrays (tokens, width), or single arrays.
        measure: "maxsim", or "meanmaxsim" for the mean over the query's tokens.

    Returns:
        float32 (queries, documents).

    Raises:
        ValueError: The measure is unknown.
    """
    queries, documents = _texts(queries), _texts(documents)
    counts = _counts(queries, measure)
    scores = np.full((len(queries), len(documents)), EMPTY_DOCUMENT, "float32")
    scores[:, [i for i, document in enumerate(documents) if len(document)]] = 0
    for some_queries in _groups(queries, 2048):
        vectors = np.concatenate([queries[i] for i in some_queries])
        starts = np.cumsum([0] + [len(queries[i]) for i in some_queries])[:-1]
        for some in _groups(documents, SCORES_AT_ONCE // len(vectors)):
            products = vectors @ np.concatenate([documents[i] for i in some]).T
            ends = np.cumsum([0] + [len(documents[i]) for i in some])[:-1]
            largest = np.maximum.reduceat(products, ends, axis=1)
            scores[np.ix_(some_queries, some)] = np.add.reduceat(largest, starts, axis=0)
    return scores / counts[:, None]


def pairwise_maxsim(queries: Any, documents: Any, measure: str = "maxsim") -> np.ndarray:
    """Each query against the document at the same index, as `maxsim`.

    Args:
        queries, documents: Equally many.
        measure: Same as in `maxsim`.

    Returns:
        float32 (queries,).

    Raises:
        ValueError: They are not equally many, or the measure is unknown.
    """
    queries, documents = _texts(queries), _texts(documents)
    if len(queries) != len(documents):
        raise ValueError(
            f"there must be as many documents as queries. Received: {len(queries)} queries and {len(documents)} "
            "documents."
        )
    pairs = [maxsim([query], [document], measure) for query, document in zip(queries, documents)]
    return np.array([pair[0, 0] for pair in pairs], "float32")


def _texts(vectors: Any) -> list[np.ndarray]:
    if hasattr(vectors, "ndim") and vectors.ndim == 2:
        vectors = [vectors]
    return [np.asarray(text, "float32") for text in vectors]


def _counts(queries: Sequence[np.ndarray], measure: str) -> np.ndarray:
    """What the sums over a query's tokens are divided by."""
    if measure not in MEASURES:
        raise ValueError(f"the measure must be one of {', '.join(MEASURES)}. Received: {measure!r}.")
    return np.array([max(len(query), 1) if measure == "meanmaxsim" else 1 for query in queries], "float32")


def _groups(texts: Sequence[np.ndarray], tokens: int) -> list[list[int]]:
    """The numbers of texts that have tokens, in groups of at most so many tokens, or of one text."""
    groups: list[list[int]] = []
    room = 0
    for i, text in enumerate(texts):
        if len(text) > room or not groups:
            room = tokens
            groups.append([])
        groups[-1].append(i)
        room -= len(text)
    kept = [[i for i in group if len(texts[i])] for group in groups]
    return [group for group in kept if group]
