"""Exact match and F1 of answers, by the rules of SQuAD 1.1 (Rajpurkar et al. 2016, section 6.1) and 2.0 (2018)."""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

VERSIONS = ("1.1", "2.0")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def _normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, without the words a, an and the, with single spaces."""
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_PUNCTUATION)).split())


def answer_exact_match(prediction: str, answers: Sequence[str], version: str = "1.1") -> float:
    """1.0 if the prediction equals one of the answers once both are normalized, else 0.0.

    Args:
        prediction: An answer, "" for none.
        answers: The right answers.
        version: "1.1" or "2.0", see `squad_scores`.
    """
    return max(float(_normalize_answer(prediction) == _normalize_answer(answer)) for answer in _golds(answers, version))


def answer_f1(prediction: str, answers: Sequence[str], version: str = "1.1") -> float:
    """The F1 of the words that the prediction shares with the most similar of the answers.

    Args:
        prediction, answers, version: As for `answer_exact_match`.

    Example:
        >>> round(bz.metrics.answer_f1("in the old town", ["the town"]), 3)
        0.5
    """
    return max(_f1(prediction, answer, version) for answer in _golds(answers, version))


def squad_scores(
    predictions: Sequence[str], answers: Sequence[Sequence[str]], version: str = "1.1"
) -> dict[str, float]:
    """`exact_match` and `f1` in percent; for version 2.0 also `has_answer_f1`, `has_answer_exact_match`, `no_answer_f1`
    and `no_answer_exact_match`, for the questions with and without answers where there are any.

    Args:
        predictions: An answer for each question, "" for none.
        answers: The right answers to each question; in 2.0 an empty list where there is none.
        version: "1.1" or "2.0". They also differ where normalising leaves nothing of an answer.

    Raises:
        ValueError: There are not as many predictions as questions, none at all, or no answer in version 1.1.

    Example:
        >>> bz.metrics.squad_scores(["Rome", "in Bern"], [["Rome"], ["Bern"]])["exact_match"]
        50.0
    """
    if len(predictions) != len(answers) or not len(answers):
        raise ValueError(f"there are {len(predictions)} predictions for {len(answers)} questions.")
    exact = (
        np.array([answer_exact_match(prediction, golds, version) for prediction, golds in zip(predictions, answers)])
        * 100
    )
    overlap = np.array([answer_f1(prediction, golds, version) for prediction, golds in zip(predictions, answers)]) * 100
    scores = {"exact_match": float(exact.mean()), "f1": float(overlap.mean())}
    if version == "2.0":
        has = np.array([bool(_with_words(golds)) for golds in answers])
        for name, chosen in (("has_answer", has), ("no_answer", ~has)):
            if chosen.any():
                scores[f"{name}_exact_match"] = float(exact[chosen].mean())
                scores[f"{name}_f1"] = float(overlap[chosen].mean())
    return scores


def best_no_answer_threshold(
    predictions: Sequence[str], null_scores: Sequence[float], answers: Sequence[Sequence[str]]
) -> float:
    """The threshold on `null_scores`, above which no answer is given, with the best F1 (SQuAD 2.0).

    Args:
        predictions: The best answer to each question, as if each had one.
        null_scores: By how much having no answer scores above it.
        answers: The right answers; an empty list where there is none.
    """
    # What each answer that is given changes, compared with giving none.
    gains = np.array(
        [
            answer_f1(prediction, golds, "2.0") - answer_f1("", golds, "2.0")
            for prediction, golds in zip(predictions, answers)
        ]
    )
    order = np.argsort(null_scores, kind="stable")
    sums, scores = np.cumsum(gains[order]), np.asarray(null_scores, dtype="float64")[order]
    if not len(sums) or sums.max() <= 0:
        return float(scores.min(initial=0.0) - 1.0)
    # Questions of equal score are answered together.
    ends = np.append(scores[1:] > scores[:-1], True)
    return float(scores[np.argmax(np.where(ends, sums, -np.inf))])


def _with_words(answers: Sequence[str]) -> list[str]:
    return [answer for answer in answers if _normalize_answer(answer)]


def _golds(answers: Sequence[str], version: str) -> Sequence[str]:
    if version not in VERSIONS:
        raise ValueError(f"version must be one of {', '.join(VERSIONS)}. Received: {version!r}.")
    if isinstance(answers, str):
        raise ValueError(f"answers must be a list of right answers. Received: {answers!r:.60}.")
    golds = list(answers) if version == "1.1" else _with_words(answers) or [""]
    if not golds:
        raise ValueError("a question has no answer; such questions need version='2.0'.")
    return golds


def _f1(prediction: str, answer: str, version: str) -> float:
    words, gold_words = _normalize_answer(prediction).split(), _normalize_answer(answer).split()
    if version == "2.0" and not (words and gold_words):
        return float(words == gold_words)
    common = (Counter(words) & Counter(gold_words)).total()
    return 2 * common / (len(words) + len(gold_words)) if common else 0.0
