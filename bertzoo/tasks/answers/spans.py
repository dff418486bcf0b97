"""The spans of texts that answer questions, from the logits of their windows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertzoo.tasks.probabilities import softmax
from bertzoo.text.windows import Windows

Candidates = tuple[list[tuple[float, int, int]], float]  # (score, first character, last) each, and that of no answer


def find_candidates(
    windows: Windows, logits: Sequence[np.ndarray], contexts: Sequence[str], count: int, max_answer_length: int
) -> list[Candidates]:
    """For each question its best spans, best first, and the score of having no answer.

    Args:
        windows: The windows of the contexts.
        logits: float (tokens, 2) of each window.
        contexts: The texts.
        count: Most spans of a question.
        max_answer_length: Most tokens in a span.
    """
    tokens: list[list] = [[] for _ in range(len(contexts))]
    null = np.full(len(contexts), np.inf)
    for w, source in enumerate(windows.source):
        row, begin, column = logits[w].astype("float64"), int(windows.begin[w]), int(windows.column[w])
        null[source] = min(null[source], row[0].sum())
        inner = row[column : column + int(windows.end[w]) - begin]
        own = slice(int(windows.own_begin[w]) - begin, int(windows.own_end[w]) - begin)
        # More than asked for, since some cover no character.
        for score, first, last in best_spans(inner[:, 0], inner[:, 1], own, max_answer_length, 2 * count):
            tokens[source].append((score, begin + first, begin + last))
    candidates = []
    for i, (best, context) in enumerate(zip(tokens, contexts)):
        offsets = windows.text_offsets(i)
        spans = [(s, *_stripped(context, offsets[a, 0], offsets[b, 1])) for s, a, b in sorted(best, reverse=True)]
        candidates.append(([span for span in spans if span[1] < span[2]][:count], float(null[i])))
    return candidates


def rank_answers(candidates: Candidates, context: str, no_answer_threshold: float | None) -> list[dict[str, Any]]:
    """The answers of one question, best first, as `QuestionAnswerer.answer` gives them.

    Args:
        candidates: The spans, and the score of having no answer.
        context: The text.
        no_answer_threshold: See `QuestionAnswerer`.
    """
    spans, null = candidates
    best = spans[0][0] if spans else -np.inf
    rows = list(spans)
    if no_answer_threshold is not None or not spans:
        is_null = null - best > (no_answer_threshold or 0.0)
        rows.insert(0 if is_null else len(rows), (null, 0, 0))
    return [
        {"text": context[a:b], "score": float(p), "start": a, "end": b, "null_score": float(null - best)}
        for (_, a, b), p in zip(rows, softmax([row[0] for row in rows]))
    ]


def best_spans(
    start_logits: np.ndarray, end_logits: np.ndarray, allowed_starts: slice, max_answer_length: int, num_spans: int
) -> list[tuple[float, int, int]]:
    """The spans of highest score, (score, first token, last token), best first.

    Args:
        start_logits, end_logits: float (tokens,), the logits of a row's text.
        allowed_starts: Which tokens a span may start at.
        max_answer_length: Most tokens in a span.
        num_spans: How many to give.
    """
    first = np.arange(len(start_logits))[allowed_starts]
    if not len(first):
        return []
    padded = np.concatenate([end_logits, np.full(max_answer_length, -np.inf)])
    scores = (
        start_logits[first][:, None] + padded[first[:, None] + np.arange(max_answer_length)]
    )  # (starts, lengths - 1)
    flat = scores.ravel()
    num_spans = min(num_spans, int(np.isfinite(flat).sum()))
    top = np.argpartition(-flat, num_spans - 1)[:num_spans]
    top = top[np.argsort(-flat[top], kind="stable")]
    return [
        (float(flat[i]), int(first[i // max_answer_length]), int(first[i // max_answer_length] + i % max_answer_length))
        for i in top
    ]


def _stripped(text: str, begin: int, end: int) -> tuple[int, int]:
    """The span without spaces at its ends, which some tokenizers count to a token."""
    span = text[begin:end]
    begin = int(end) - len(span.lstrip())
    return begin, begin + len(span.strip())
