"""What sentence vectors are worth: agreement with people's scores, retrieval, triplets, pairs of two classes."""

from collections.abc import Mapping, Sequence

import numpy as np

from bertzoo.metrics.numbers import pearson, spearman
from bertzoo.retrieval.search import nearest
from bertzoo.retrieval.similarity import pairwise_similarity


def evaluate_sts(
    encoder, firsts: Sequence[str], seconds: Sequence[str], scores, batch_size: int = 32
) -> dict[str, float]:
    """How well the cosines of pairs go with people's scores (Cer et al. 2017): `spearman` and `pearson`, -1 to 1, and
    NaN for a single pair."""
    scores = np.asarray(scores, dtype="float64")
    if not len(firsts) == len(seconds) == len(scores):
        raise ValueError(f"columns must be as long: {len(firsts)}, {len(seconds)} texts and {len(scores)} scores.")
    if len(scores) == 1:
        return {"spearman": float("nan"), "pearson": float("nan")}
    cosines = pairwise_similarity(encoder.encode(firsts, batch_size), encoder.encode(seconds, batch_size))
    return {"spearman": spearman(cosines, scores), "pearson": pearson(cosines, scores)}


def evaluate_retrieval(
    encoder,
    queries: Mapping[str, str],
    corpus: Mapping[str, str],
    relevant: Mapping[str, Sequence[str]],
    at: Sequence[int] = (1, 3, 5, 10),
    batch_size: int = 32,
    query_prompt: str | None = None,
    corpus_prompt: str | None = None,
) -> dict[str, float]:
    """How well queries find their documents by cosine.

    Args:
        encoder: A `SentenceEncoder`.
        queries, corpus: Name -> text.
        relevant: A query's name -> the names of the documents that answer it; queries without any do not count.
        at: How many documents are looked at.
        batch_size: As for `SentenceEncoder.encode`.
        query_prompt, corpus_prompt: Put before the texts.

    Returns:
        For each k of `at`: `mrr@k`, the mean of 1 / rank of the first right document; `ndcg@k` (Järvelin and Kekäläinen
        2002, gains of 1); `recall@k`, the share of right documents found; `accuracy@k`, the share of queries with one.

    Raises:
        ValueError: No query has a relevant document, or one is not in the corpus.
    """
    names = [name for name in queries if relevant.get(name)]
    missing = [name for query in names for name in relevant[query] if name not in corpus]
    if not names or missing:
        raise ValueError(f"not in the corpus: {missing[:3]}." if missing else "no query has a relevant document.")
    documents = list(corpus)
    query_vectors = encoder.encode([queries[name] for name in names], batch_size, prompt=query_prompt)
    corpus_vectors = encoder.encode([corpus[name] for name in documents], batch_size, prompt=corpus_prompt)
    _, places = nearest(query_vectors, corpus_vectors, max(at))
    hits = [
        np.array([documents[place] in set(relevant[name]) for place in row], dtype="float64")
        for name, row in zip(names, places)
    ]
    return ranking_measures(hits, [len(set(relevant[name])) for name in names], at)


def ranking_measures(hits: Sequence[np.ndarray], relevant: Sequence[int], at: Sequence[int]) -> dict[str, float]:
    """The measures of `evaluate_retrieval`, means over queries.

    Args:
        hits: For each query which of its ranked documents are right, 0 or 1, the best rank first.
        relevant: How many right ones there are for each query.
        at: How many ranks are looked at.
    """
    values = {}
    for k in at:
        discounts = 1 / np.log2(np.arange(k) + 2)
        rows = [(row[:k], count) for row, count in zip(hits, relevant)]
        values[f"mrr@{k}"] = [1 / (1 + int(np.argmax(row))) if row.any() else 0.0 for row, _ in rows]
        values[f"ndcg@{k}"] = [row @ discounts[: len(row)] / discounts[:count].sum() for row, count in rows]
        values[f"recall@{k}"] = [row.sum() / count for row, count in rows]
        values[f"accuracy@{k}"] = [float(row.any()) for row, _ in rows]
    return {name: float(np.mean(parts)) for name, parts in values.items()}


def evaluate_triplets(
    encoder,
    anchors: Sequence[str],
    positives: Sequence[str],
    negatives: Sequence[str],
    batch_size: int = 32,
) -> dict[str, float]:
    """`accuracy`: the share of triplets whose anchor is more like the positive than the negative, by cosine."""
    if not len(anchors) == len(positives) == len(negatives):
        raise ValueError(f"columns must be as long: {len(anchors)}, {len(positives)} and {len(negatives)} texts.")
    anchor, positive, negative = (encoder.encode(texts, batch_size) for texts in (anchors, positives, negatives))
    return {"accuracy": float(np.mean(pairwise_similarity(anchor, positive) > pairwise_similarity(anchor, negative)))}


def evaluate_pairs(
    encoder, firsts: Sequence[str], seconds: Sequence[str], labels, batch_size: int = 32
) -> dict[str, float]:
    """How well one threshold on the cosine tells pairs that belong together (label 1) from others (0).

    Returns:
        `accuracy` with the threshold that is best for it, which is `threshold`; `f1` with the one best for that; and
        `average_precision`.
    """
    labels = np.asarray(labels)
    if not len(firsts) == len(seconds) == len(labels) or not np.isin(labels, (0, 1)).all() or not labels.any():
        raise ValueError("there must be a label 0 or 1 for each pair, and at least one 1.")
    cosines = pairwise_similarity(encoder.encode(firsts, batch_size), encoder.encode(seconds, batch_size))
    return binary_measures(cosines, labels)


def binary_measures(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
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
