"""Pairs found by their vectors: paraphrases in a set of texts, and hard negatives."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertzoo.metrics.vector_similarity import pairwise_similarity
from bertzoo.retrieval.evaluation import prompts_of
from bertzoo.retrieval.search import nearest


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
    """
    return mine_pairs(encoder.encode(texts, batch_size, show_progress_bar=show_progress_bar), top_k, max_pairs)


def mine_pairs(vectors: np.ndarray, top_k: int = 100, max_pairs: int = 500_000) -> list[tuple[float, int, int]]:
    """As `paraphrase_mining`, of vectors (n, width)."""
    if len(vectors) < 2:
        return []
    scores, indices = nearest(vectors, vectors, top_k + 1)
    rows = np.repeat(np.arange(len(indices)), indices.shape[1]).reshape(indices.shape)
    others = indices != rows
    # A text may come out behind others that are equal to it; then the last of its row is one too many.
    others &= np.cumsum(others, axis=1) <= top_k
    pairs = np.sort(np.stack([rows[others], indices[others]], axis=1), axis=1)
    pairs, first = np.unique(pairs, axis=0, return_index=True)
    scores = scores[others][first]
    order = np.argsort(-scores, kind="stable")[:max_pairs]
    return [(float(scores[i]), int(pairs[i, 0]), int(pairs[i, 1])) for i in order]


def mine_hard_negatives(
    encoder: Any,
    queries: Sequence[str],
    positives: Sequence[str],
    corpus: Sequence[str] | None = None,
    negatives: int = 1,
    skip: int = 0,
    search: int = 100,
    margin: float | None = None,
    max_score: float | None = None,
    batch_size: int = 32,
    query_prompt: str | None = None,
    corpus_prompt: str | None = None,
) -> list[tuple[str, ...]]:
    """Finds texts near a query that are not its positives, for training with `MultipleNegativesRanking` or `Triplet`.

    Args:
        encoder: A `SentenceEncoder`.
        queries, positives: Equally long; a query may occur several times with other positives, none of which becomes
            its negative.
        corpus: Where negatives are looked for; the positives of all queries where None.
        negatives: How many to find for each row.
        skip: How many of the nearest to leave out, since they may be unlabelled positives.
        search: How many of the nearest to consider.
        margin: By how much a negative's cosine must be below the positive's.
        max_score: The greatest cosine that a negative may have.
        batch_size: As for `SentenceEncoder.encode`.
        query_prompt, corpus_prompt: As for `evaluate_retrieval`.

    Returns:
        Rows (query, positive, negative, …). Rows with too few negatives are left out.

    Raises:
        ValueError: The columns differ in length, or a number is out of its range.
    """
    if len(queries) != len(positives):
        raise ValueError(f"queries and positives must be equally long. Received: {len(queries)} and {len(positives)}.")
    if negatives < 1 or skip < 0 or search < negatives + skip:
        raise ValueError(
            f"negatives must be at least 1, skip not negative, and search at least both together; they are "
            f"{negatives}, {skip} and {search}."
        )
    if not len(queries):
        return []
    texts = list(dict.fromkeys(positives if corpus is None else corpus))
    known: dict[str, set[str]] = {}
    for query, positive in zip(queries, positives):
        known.setdefault(query, set()).add(positive)
    query_prompt, corpus_prompt = prompts_of(encoder, query_prompt, corpus_prompt)
    query_vectors = encoder.encode(list(queries), batch_size, prompt=query_prompt)
    right = pairwise_similarity(query_vectors, encoder.encode(list(positives), batch_size, prompt=corpus_prompt))
    most = max(map(len, known.values()))
    scores, indices = nearest(query_vectors, encoder.encode(texts, batch_size, prompt=corpus_prompt), search + most)
    rows = []
    for i, (query, positive) in enumerate(zip(queries, positives)):
        limit = min(np.inf if max_score is None else max_score, np.inf if margin is None else right[i] - margin)
        near = [(texts[p], score) for p, score in zip(indices[i], scores[i]) if texts[p] not in known[query] | {query}]
        fit = [text for text, score in near[:search][skip:] if score <= limit][:negatives]
        if len(fit) == negatives:
            rows.append((query, positive, *fit))
    return rows
