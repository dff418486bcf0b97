"""Evaluation of sentence vectors: agreement with human scores, retrieval, triplets, and pairs of two classes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertzoo.metrics.scores import pearson, spearman
from bertzoo.metrics.vector_similarity import pairwise_similarity
from bertzoo.retrieval.search import find_nearest, resolve_prompts
from bertzoo.tasks.answers.sparse_vectors import SparseVectors

QUERIES_AT_ONCE = 256


def evaluate_sts(
    encoder: Any,
    sentences1: Sequence[str],
    sentences2: Sequence[str],
    scores: Any,
    batch_size: int = 32,
    *,
    measure: str | None = None,
    prompt: str | None = None,
) -> dict[str, float]:
    """Correlates the similarities of pairs with human scores (Cer et al. 2017): `spearman` and `pearson`, -1 to 1,
    NaN for a single pair.

    Args:
        encoder: A `SentenceEncoder`.
        sentences1, sentences2, scores: Equally long.
        batch_size: As for `SentenceEncoder.encode`.
        measure: As for `similarity`; the encoder's own where None.
        prompt: Put before the texts; the encoder's default where None.

    Example:
        >>> encoder = bz.SentenceEncoder.from_preset("sentence_mini_en", verbose=False)
        >>> first, second = ["A cat sleeps."] * 3, ["A cat is asleep.", "A dog sleeps.", "Shares fell."]
        >>> round(bz.retrieval.evaluate_sts(encoder, first, second, [5.0, 2.0, 0.0])["spearman"], 3)
        1.0
    """
    scores = np.asarray(scores, dtype="float64")
    _check_lengths(sentences1, sentences2, scores)
    if len(scores) == 1:
        return {"spearman": float("nan"), "pearson": float("nan")}
    first, second = (encoder.encode(texts, batch_size, prompt=prompt) for texts in (sentences1, sentences2))
    similarities = pairwise_similarity(first, second, _measure_of(encoder, measure))
    return {"spearman": spearman(similarities, scores), "pearson": pearson(similarities, scores)}


def _check_lengths(*columns) -> None:
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        raise ValueError(f"columns must be equally long. Received: columns of {', '.join(map(str, lengths))}.")


def evaluate_retrieval(
    encoder: Any,
    queries: Mapping[str, str],
    corpus: Mapping[str, str],
    relevant_docs: Mapping[str, Sequence[str] | Mapping[str, float]],
    cutoffs: Sequence[int] = (1, 3, 5, 10),
    batch_size: int = 32,
    query_prompt: str | None = None,
    corpus_prompt: str | None = None,
    *,
    measure: str | None = None,
) -> dict[str, float]:
    """How well queries find their documents.

    Args:
        encoder: A `SentenceEncoder`, `SparseEncoder` or `MultiVectorEncoder`.
        queries, corpus: Name -> text.
        relevant_docs: A query's name -> the names of the documents that answer it, or name -> grade, of which 0 is not
            relevant; queries without any relevant document do not count.
        cutoffs: The cut-offs k.
        batch_size: As for `SentenceEncoder.encode`.
        query_prompt, corpus_prompt: Put before the texts; where None, the encoder's prompts called query, and document,
            passage or corpus, else its default.
        measure: As for `similarity`, of a `SentenceEncoder`; the encoder's own where None.

    Returns:
        For each k of `cutoffs`: `mrr@k`, the mean of 1 / rank of the first right document; `ndcg@k` (Järvelin and
        Kekäläinen 2002, gains are the grades, as trec_eval counts); `map@k`, the mean average precision; `recall@k`,
        the fraction of right documents found; `accuracy@k`, the fraction of queries with one.

    Raises:
        ValueError: No query has a relevant document, or one is not in the corpus.
    """
    grades = {}
    for name in queries:
        listed = relevant_docs.get(name) or ()
        listed = listed if isinstance(listed, Mapping) else dict.fromkeys(listed, 1.0)
        grades[name] = {document: float(grade) for document, grade in listed.items() if grade > 0}
    names = [name for name in queries if grades[name]]
    missing = [name for query in names for name in grades[query] if name not in corpus]
    if not names or missing:
        raise ValueError(f"not in the corpus: {missing[:3]}." if missing else "no query has a relevant document.")
    documents = list(corpus)
    query_prompt, corpus_prompt = resolve_prompts(encoder, query_prompt, corpus_prompt)
    # Other libraries' encoders are not told what the texts are.
    kinds = ({"prompt_type": kind} if hasattr(encoder, "token_vectors") else {} for kind in ("query", "document"))
    query_vectors = encoder.encode([queries[name] for name in names], batch_size, prompt=query_prompt, **next(kinds))
    corpus_vectors = encoder.encode(list(corpus.values()), batch_size, prompt=corpus_prompt, **next(kinds))
    indices: Any
    if isinstance(query_vectors, (list, SparseVectors)):
        indices = _rank_by_similarity(encoder, query_vectors, corpus_vectors, max(cutoffs))
    else:
        _, indices = find_nearest(query_vectors, corpus_vectors, max(cutoffs), _measure_of(encoder, measure))
    gains = [
        np.array([grades[name].get(documents[index], 0.0) for index in row], dtype="float64")
        for name, row in zip(names, indices)
    ]
    return _ranking_measures(gains, [sorted(grades[name].values(), reverse=True) for name in names], cutoffs)


def _rank_by_similarity(encoder: Any, queries: Any, documents: Any, count: int) -> list[np.ndarray]:
    """For each query the indices of the documents that the encoder finds most similar."""
    ranked: list[np.ndarray] = []
    for begin in range(0, len(queries), QUERIES_AT_ONCE):
        scores = encoder.similarity(queries[begin : begin + QUERIES_AT_ONCE], documents)
        ranked += list(np.argsort(-scores, axis=1, kind="stable")[:, :count])
    return ranked


def _ranking_measures(
    gains: Sequence[np.ndarray], relevant: Sequence[Sequence[float]], at: Sequence[int]
) -> dict[str, float]:
    """The measures of `evaluate_retrieval`, means over queries.

    Args:
        gains: For each query the grades of its ranked documents, the best rank first; 0 is not relevant.
        relevant: For each query the grades of all its relevant documents, the greatest first.
        at: The cut-offs k.
    """
    measures: dict[str, float] = {}
    for k in at:
        discounts = 1 / np.log2(np.arange(k) + 2)
        rows = []
        for row, best_gains in zip(gains, relevant):
            row, hits, grades = row[:k], row[:k] > 0, np.asarray(best_gains)
            precision = np.cumsum(hits) / (np.arange(len(hits)) + 1)
            best = grades[:k] @ discounts[: len(grades)]
            rows.append(
                {
                    f"mrr@{k}": 1 / (1 + int(np.argmax(hits))) if hits.any() else 0.0,
                    f"ndcg@{k}": row @ discounts[: len(row)] / best,
                    f"map@{k}": precision @ hits / min(k, len(grades)),
                    f"recall@{k}": hits.sum() / len(grades),
                    f"accuracy@{k}": hits.any(),
                }
            )
        measures |= {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    return measures


def evaluate_triplets(
    encoder: Any,
    anchors: Sequence[str],
    positives: Sequence[str],
    negatives: Sequence[str],
    batch_size: int = 32,
    *,
    measure: str | None = None,
    query_prompt: str | None = None,
    corpus_prompt: str | None = None,
) -> dict[str, float]:
    """`accuracy`: the fraction of triplets whose anchor is more similar to the positive than to the negative.

    Args:
        encoder: A `SentenceEncoder`.
        anchors, positives, negatives: Equally long.
        batch_size, measure: As for `evaluate_sts`.
        query_prompt, corpus_prompt: As for `evaluate_retrieval`, of anchors and of the others.
    """
    _check_lengths(anchors, positives, negatives)
    query_prompt, corpus_prompt = resolve_prompts(encoder, query_prompt, corpus_prompt)
    columns = ((anchors, query_prompt), (positives, corpus_prompt), (negatives, corpus_prompt))
    anchor, positive, negative = (encoder.encode(texts, batch_size, prompt=prompt) for texts, prompt in columns)
    measure = _measure_of(encoder, measure)
    nearer = pairwise_similarity(anchor, positive, measure) > pairwise_similarity(anchor, negative, measure)
    return {"accuracy": float(np.mean(nearer))}


def evaluate_pairs(
    encoder: Any,
    sentences1: Sequence[str],
    sentences2: Sequence[str],
    labels: Any,
    batch_size: int = 32,
    *,
    measure: str | None = None,
    prompt: str | None = None,
) -> dict[str, float]:
    """How well a threshold on the similarity separates pairs that belong together (label 1) from others (0).

    Args:
        encoder: A `SentenceEncoder`.
        sentences1, sentences2, labels: Equally long.
        batch_size, measure, prompt: As for `evaluate_sts`.

    Returns:
        `accuracy` with the threshold that is best for it, which is `threshold`; `f1` with the one best for that; and
        `average_precision`.
    """
    labels = np.asarray(labels)
    if not len(sentences1) == len(sentences2) == len(labels) or not np.isin(labels, (0, 1)).all() or not labels.any():
        raise ValueError("there must be a label 0 or 1 for each pair, and at least one 1.")
    first, second = (encoder.encode(texts, batch_size, prompt=prompt) for texts in (sentences1, sentences2))
    return _binary_measures(pairwise_similarity(first, second, _measure_of(encoder, measure)), labels)


def _measure_of(encoder: Any, measure: str | None) -> str:
    """The given measure, else the encoder's own, else the cosine."""
    return measure or getattr(encoder, "similarity_fn_name", None) or "cosine"


def _binary_measures(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The measures of `evaluate_pairs`, of scores (n,) and labels 0 or 1 (n,)."""
    order = np.argsort(-np.asarray(scores, "float64"), kind="stable")
    scores, labels = np.asarray(scores, "float64")[order], np.asarray(labels)[order]
    # A threshold can only fall where the score changes.
    cuts = np.append(np.flatnonzero(np.diff(scores)), len(scores) - 1)
    above, right = cuts + 1, np.cumsum(labels)[cuts]
    positives, count = labels.sum(), len(labels)
    accuracy = (right + (count - positives) - (above - right)) / count
    precision, recall = right / above, right / positives
    best = int(np.argmax(accuracy))
    following = scores[cuts[best] + 1] if cuts[best] + 1 < count else scores[cuts[best]]
    none_above = (count - positives) / count  # all pairs judged apart
    return {
        "accuracy": float(max(accuracy[best], none_above)),
        "threshold": float((scores[cuts[best]] + following) / 2) if accuracy[best] >= none_above else float("inf"),
        "f1": float((2 * right / (above + positives)).max()),
        "average_precision": float(np.sum(np.diff(recall, prepend=0) * precision)),
    }
