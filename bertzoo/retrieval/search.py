"""Exact search over vectors, in chunks, so that memory does not grow with the product of both sides; and pairs found by
it: paraphrases in a set of texts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertzoo.checkpoints.sentence_transformers import document_prompt_name
from bertzoo.metrics.vector_similarity import merge_best, prepare_vectors, prepared_similarity

QUERIES_AT_ONCE, CORPUS_AT_ONCE = 512, 100_000


def semantic_search(
    query_vectors: Any,
    corpus_vectors: Any,
    top_k: int = 10,
    measure: str = "cosine",
    query_chunk_size: int = QUERIES_AT_ONCE,
    corpus_chunk_size: int = CORPUS_AT_ONCE,
) -> list[list[dict[str, Any]]]:
    """The nearest vectors of a corpus for each query.

    Args:
        query_vectors, corpus_vectors: (n, width) and (m, width), NumPy or the tensors of a library; one query may be
            (width,).
        top_k: How many to find for each query; all where there are fewer.
        measure: "cosine", "dot", "euclidean" or "manhattan", see `similarity`.
        query_chunk_size, corpus_chunk_size: How many of each are compared at once.

    Returns:
        For each query a list, the best first, of `{"corpus_id": index in the corpus, "score": …}`.

    Raises:
        ValueError: The widths differ, or a number is not positive.

    Example:
        >>> vectors = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> hits = bz.retrieval.semantic_search(np.array([[1.0, 0.1]]), vectors, top_k=2)
        >>> [hit["corpus_id"] for hit in hits[0]]
        [0, 2]
    """
    scores, indices = find_nearest(query_vectors, corpus_vectors, top_k, measure, query_chunk_size, corpus_chunk_size)
    return [
        [{"corpus_id": int(index), "score": float(score)} for index, score in zip(*row)] for row in zip(indices, scores)
    ]


def find_nearest(
    query_vectors: Any,
    corpus_vectors: Any,
    top_k: int,
    measure: str = "cosine",
    query_chunk_size: int = QUERIES_AT_ONCE,
    corpus_chunk_size: int = CORPUS_AT_ONCE,
) -> tuple[np.ndarray, np.ndarray]:
    """As `semantic_search`, as arrays: scores float32 and indices int64, each (n, top_k), the best first.

    Of equal scores the lower index comes first.
    """
    for name, value in (
        ("top_k", top_k),
        ("query_chunk_size", query_chunk_size),
        ("corpus_chunk_size", corpus_chunk_size),
    ):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1. Received: {value!r}.")
    queries, corpus = prepare_vectors(query_vectors, measure), prepare_vectors(corpus_vectors, measure)
    if queries.size and corpus.size and queries.shape[1] != corpus.shape[1]:
        raise ValueError(f"queries are {queries.shape[1]} numbers wide and the corpus {corpus.shape[1]}.")
    top_k = min(top_k, len(corpus))
    scores, indices = np.zeros((len(queries), top_k), "float32"), np.zeros((len(queries), top_k), "int64")
    for start in range(0, len(queries), query_chunk_size):
        rows = slice(start, start + query_chunk_size)
        best, where = scores[rows, :0], indices[rows, :0]
        for begin in range(0, len(corpus), corpus_chunk_size):
            more = prepared_similarity(queries[rows], corpus[begin : begin + corpus_chunk_size], measure)
            best, where = merge_best(best, where, more, np.arange(begin, begin + more.shape[1]), top_k)
        scores[rows], indices[rows] = best, where
    return scores, indices


# ---- mining


def resolve_prompts(encoder: Any, query_prompt: str | None, corpus_prompt: str | None) -> tuple[str | None, str | None]:
    """The prompts of queries and documents: as given, else the encoder's of these names, else None, its default."""
    known = getattr(encoder, "prompts", {})
    of_documents = known.get(document_prompt_name(known))
    return known.get(
        "query"
    ) if query_prompt is None else query_prompt, of_documents if corpus_prompt is None else corpus_prompt


def paraphrase_mining(
    encoder: Any,
    texts: Sequence[str],
    top_k: int = 100,
    max_pairs: int = 500_000,
    batch_size: int = 32,
    show_progress_bar: bool | None = None,
) -> list[tuple[float, int, int]]:
    """Finds the most similar pairs in a set of texts.

    Args:
        encoder: A `SentenceEncoder`.
        texts: The texts.
        top_k: How many neighbours of each text to consider.
        max_pairs: How many pairs to give.
        batch_size, show_progress_bar: As for `SentenceEncoder.encode`.

    Returns:
        (cosine, i, j) with i < j, the most similar first.

    Example:
        >>> encoder = bz.SentenceEncoder.from_preset("sentence_mini_en", verbose=False)
        >>> texts = ["A cat sleeps.", "Shares fell.", "The cat is asleep."]
        >>> score, first, second = bz.retrieval.paraphrase_mining(encoder, texts)[0]
        >>> sorted([first, second])
        [0, 2]
    """
    return mine_pairs(encoder.encode(texts, batch_size, show_progress_bar=show_progress_bar), top_k, max_pairs)


def mine_pairs(vectors: np.ndarray, top_k: int = 100, max_pairs: int = 500_000) -> list[tuple[float, int, int]]:
    """As `paraphrase_mining`, of vectors.

    Args:
        vectors: (n, width).
        top_k, max_pairs: Same as in `paraphrase_mining`.
    """
    if len(vectors) < 2:
        return []
    scores, indices = find_nearest(vectors, vectors, top_k + 1)
    rows = np.repeat(np.arange(len(indices)), indices.shape[1]).reshape(indices.shape)
    others = indices != rows
    # A text may come out behind others that are equal to it; then the last of its row is one too many.
    others &= np.cumsum(others, axis=1) <= top_k
    pairs = np.sort(np.stack([rows[others], indices[others]], axis=1), axis=1)
    pairs, first = np.unique(pairs, axis=0, return_index=True)
    scores = scores[others][first]
    order = np.argsort(-scores, kind="stable")[:max_pairs]
    return [(float(scores[i]), int(pairs[i, 0]), int(pairs[i, 1])) for i in order]
