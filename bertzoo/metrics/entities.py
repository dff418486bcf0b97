"""Precision, recall and F1 of entities, as the CoNLL evaluation and seqeval count them: an entity is correct if
its type and both of its ends are."""

from collections import Counter
from collections.abc import Sequence

from bertzoo.text.tags import find_entities


def entity_scores(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """`precision`, `recall` and `f1` over the entities of all sentences, and `accuracy` of the tags.

    Args:
        truth, predicted: Sentences of tags in BIO, BIOES, BILOU or IO.

    Raises:
        ValueError: They don't have the same sentences and words.

    Example:
        >>> scores = bz.metrics.entity_scores([["B-x", "I-x", "O", "B-y"]], [["B-x", "I-x", "O", "O"]])
        >>> scores["precision"], scores["recall"]
        (1.0, 0.5)
    """
    correct, predictions, support = _counts(truth, predicted)
    words = sum(len(tags) for tags in truth)
    same = sum(a == b for tags, others in zip(truth, predicted) for a, b in zip(tags, others))
    scores = _scores(correct.total(), predictions.total(), support.total())
    return {**scores, "accuracy": same / words if words else 0.0}


def entity_report(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, dict[str, float]]:
    """The same by type of entity, with `support`, the number of true ones.

    Args:
        truth, predicted: As for `entity_scores`.

    Returns:
        Type -> scores, sorted by name.
    """
    correct, predictions, support = _counts(truth, predicted)
    kinds = sorted({*predictions, *support})
    return {
        kind: {**_scores(correct[kind], predictions[kind], support[kind]), "support": support[kind]} for kind in kinds
    }


def _counts(truth, predicted) -> tuple[Counter, Counter, Counter]:
    """By type: the correct entities, the predicted ones, the true ones."""
    if len(truth) != len(predicted):
        raise ValueError(f"there are {len(truth)} sentences of tags and {len(predicted)} of predictions.")
    correct, predictions, support = Counter[str](), Counter[str](), Counter[str]()
    for number, (tags, others) in enumerate(zip(truth, predicted)):
        if len(tags) != len(others):
            raise ValueError(f"sentence {number} has {len(tags)} tags and {len(others)} predictions.")
        gold, entities = set(find_entities(tags)), set(find_entities(others))
        for counts, those in ((correct, gold & entities), (predictions, entities), (support, gold)):
            counts.update(kind for kind, _, _ in those)
    return correct, predictions, support


def _scores(correct: int, predicted: int, true: int) -> dict[str, float]:
    return {
        "precision": correct / predicted if predicted else 0.0,
        "recall": correct / true if true else 0.0,
        "f1": 2 * correct / (predicted + true) if correct else 0.0,
    }
