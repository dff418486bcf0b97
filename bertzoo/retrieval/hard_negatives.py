"""Hard negatives: texts near a query that are not its positives."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bertzoo.metrics.vector_similarity import similarity
from bertzoo.random import get_seed, numpy_generator
from bertzoo.retrieval.search import find_nearest, resolve_prompts

FORMATS = ("triplet", "n-tuple", "labeled-pair", "labeled-list")
STRATEGIES = ("top", "random")


class _Mined(NamedTuple):
    """What was found for one query: the positives and the negatives, each with its score."""

    query: str
    positives: list[tuple[str, float]]
    negatives: list[tuple[str, float]]


def mine_hard_negatives(
    encoder: Any,
    queries: Sequence[str],
    positives: Sequence[str],
    corpus: Sequence[str] | None = None,
    *,
    cross_encoder: Any = None,
    num_negatives: int = 1,
    range_min: int = 0,
    range_max: int | None = None,
    max_score: float | None = None,
    min_score: float | None = None,
    absolute_margin: float | None = None,
    relative_margin: float | None = None,
    sampling_strategy: str = "top",
    output_format: str = "n-tuple",
    output_scores: bool = False,
    batch_size: int = 32,
    query_prompt: str | None = None,
    corpus_prompt: str | None = None,
) -> list[tuple]:
    """Finds texts near a query that are not its positives, for training sentence encoders and rerankers.

    Args:
        encoder: A `SentenceEncoder`.
        queries, positives: Equally long; a query may occur several times with other positives, none of which becomes
            its negative.
        corpus: Where negatives are looked for, besides the positives of all queries.
        cross_encoder: A `CrossEncoder`, whose scores replace the cosines of the nearest texts and of the positives.
        num_negatives: How many to find for each query.
        range_min: How many of the nearest to leave out, since they may be unlabelled positives.
        range_max: How many of the nearest to consider, the query itself included where it is in the corpus. Where None,
            as many as are needed; with limits on scores, ten times `num_negatives` more than `range_min`.
        max_score, min_score: The greatest and the least score that a negative may have.
        absolute_margin: By how much a negative's score must be below that of the query's least similar positive.
        relative_margin: The same, as a fraction of the size of that positive's score.
        sampling_strategy: Which of the considered negatives to take: "top", the nearest, or "random", by the seed.
        output_format: "n-tuple": rows (query, positive, negative, …), without those that have too few negatives;
            "triplet": a row (query, positive, negative) for each negative; "labeled-pair": rows (query, text, 1 or 0);
            "labeled-list": rows (query, [positive, negative, …], [1, 0, …]), for a `bertzoo.losses.RankingLoss`.
        output_scores: Whether rows have the scores: in place of labels, or as a list behind the texts.
        batch_size: As for `SentenceEncoder.encode`.
        query_prompt, corpus_prompt: As for `evaluate_retrieval`.

    Returns:
        Rows in `output_format`, in the order of the queries.

    Raises:
        ValueError: The columns differ in length, or an argument is out of its range.
    """
    _check_columns_and_choices(queries, positives, output_format, sampling_strategy)
    known: dict[str, list[str]] = {}
    for query, positive in dict.fromkeys(zip(queries, positives)):
        known.setdefault(query, []).append(positive)
    limits = (max_score, min_score, absolute_margin, relative_margin)
    most = max(map(len, known.values()), default=0)
    if range_max is None:
        limited = any(limit is not None for limit in limits)
        range_max = range_min + num_negatives * (10 if limited else 1) + most
    if num_negatives < 1 or range_min < 0 or range_max < num_negatives + range_min:
        raise ValueError(
            "num_negatives must be at least 1, range_min not negative, and range_max at least both together. Received: "
            f"{num_negatives}, {range_min} and {range_max}."
        )
    if not known:
        return []
    prompts = resolve_prompts(encoder, query_prompt, corpus_prompt)
    texts = list(dict.fromkeys([*([] if corpus is None else corpus), *positives]))
    found = _find_candidates(encoder, known, texts, range_max + most, batch_size, prompts)
    if cross_encoder is not None:
        found = [_rescore(mined, cross_encoder, batch_size) for mined in found]
    rng = numpy_generator(get_seed(), "hard negatives") if sampling_strategy == "random" else None
    rows: list[tuple] = []
    for mined in found:
        near = sorted(_within_limits(mined, *limits), key=lambda item: -item[1])[range_min:range_max]
        if rng is not None and len(near) > num_negatives:
            near = [near[i] for i in np.sort(rng.choice(len(near), num_negatives, replace=False))]
        rows += _rows(mined._replace(negatives=near[:num_negatives]), num_negatives, output_format, output_scores)
    return rows


def _check_columns_and_choices(queries, positives, output_format: str, sampling_strategy: str) -> None:
    if len(queries) != len(positives):
        raise ValueError(f"queries and positives must be equally long. Received: {len(queries)} and {len(positives)}.")
    if output_format not in FORMATS or sampling_strategy not in STRATEGIES:
        raise ValueError(
            f"output_format must be one of {', '.join(FORMATS)}, and sampling_strategy one of {', '.join(STRATEGIES)}. "
            f"Received: {output_format!r} and {sampling_strategy!r}."
        )


def _find_candidates(
    encoder: Any,
    known: dict[str, list[str]],
    texts: list[str],
    count: int,
    batch_size: int,
    prompts: tuple[str | None, str | None],
) -> list[_Mined]:
    """The positives of each query, and the nearest other texts, with their cosines."""
    vectors = encoder.encode(list(known), batch_size, prompt=prompts[0])
    corpus = encoder.encode(texts, batch_size, prompt=prompts[1])
    scores, indices = find_nearest(vectors, corpus, count)
    index_of = {text: index for index, text in enumerate(texts)}
    found = []
    for row, (query, positives) in enumerate(known.items()):
        right = similarity(vectors[row], corpus[[index_of[text] for text in positives]])[0].tolist()
        near = [(texts[i], float(score)) for i, score in zip(indices[row], scores[row])]
        left_out = {query, *positives}
        found.append(_Mined(query, list(zip(positives, right)), [item for item in near if item[0] not in left_out]))
    return found


def _rescore(mined: _Mined, cross_encoder: Any, batch_size: int) -> _Mined:
    """The same texts with a cross-encoder's scores."""
    texts = [text for text, _ in mined.positives + mined.negatives]
    scores = cross_encoder.predict([(mined.query, text) for text in texts], batch_size).tolist()
    scored, count = list(zip(texts, scores)), len(mined.positives)
    return mined._replace(positives=scored[:count], negatives=scored[count:])


def _within_limits(
    mined: _Mined,
    max_score: float | None,
    min_score: float | None,
    absolute_margin: float | None,
    relative_margin: float | None,
) -> list[tuple[str, float]]:
    least_positive = min(score for _, score in mined.positives)
    highest = [np.inf if max_score is None else max_score]
    if absolute_margin is not None:
        highest.append(least_positive - absolute_margin)
    if relative_margin is not None:
        highest.append(least_positive - abs(least_positive) * relative_margin)
    lowest = -np.inf if min_score is None else min_score
    return [item for item in mined.negatives if lowest <= item[1] <= min(highest)]


def _rows(mined: _Mined, num_negatives: int, output_format: str, output_scores: bool) -> list[tuple]:
    """The rows of one query."""
    query, positives, negatives = mined
    if output_format == "labeled-pair":
        pairs = [(text, score, 1) for text, score in positives] + [(text, score, 0) for text, score in negatives]
        return [(query, text, score if output_scores else label) for text, score, label in pairs]
    rows: list[tuple] = []
    for positive in positives:
        texts, scores = zip(positive, *negatives)
        if output_format == "labeled-list" and negatives:
            rows.append((query, list(texts), list(scores) if output_scores else [1, *[0] * len(negatives)]))
        elif output_format == "n-tuple" and len(negatives) == num_negatives:
            rows.append((query, *texts, *([list(scores)] if output_scores else [])))
        elif output_format == "triplet":
            own = positive[0]
            for text, score in negatives:
                rows.append((query, own, text, *([[positive[1], score]] if output_scores else [])))
    return rows
