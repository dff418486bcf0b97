"""Precision, recall and F1 of entities, as the CoNLL evaluation and seqeval count them: an entity is right if its type
and both of its ends are."""

from collections import Counter
from collections.abc import Sequence

from bertzoo.text.tags import find_entities


def entity_scores(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """`precision`, `recall` and `f1` over the entities of all sentences, and `accuracy` of the tags.

    Args:
        truth, predicted: Sentences of tags in BIO, BIOES, BILOU or IO.

    Raises:
        ValueError: They don't have the same sentences and words.
    """
    right, said, there = _counts(truth, predicted)
    words = sum(len(tags) for tags in truth)
    same = sum(a == b for tags, others in zip(truth, predicted) for a, b in zip(tags, others))
    scores = _scores(right.total(), said.total(), there.total())
    return {**dict(zip(("precision", "recall", "f1"), scores)), "accuracy": same / words if words else 0.0}


def entity_report(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, dict[str, float]]:
    """The same by type of entity, with `support`, the number of true ones: type -> scores, sorted by name."""
    right, said, there = _counts(truth, predicted)
    report = {}
    for kind in sorted({*said, *there}):
        scores = _scores(right[kind], said[kind], there[kind])
        report[kind] = {**dict(zip(("precision", "recall", "f1"), scores)), "support": there[kind]}
    return report


def _counts(truth, predicted) -> tuple[Counter, Counter, Counter]:
    if len(truth) != len(predicted):
        raise ValueError(f"there are {len(truth)} sentences of tags and {len(predicted)} of predictions.")
    right, said, there = Counter[str](), Counter[str](), Counter[str]()
    for number, (tags, others) in enumerate(zip(truth, predicted)):
        if len(tags) != len(others):
            raise ValueError(f"sentence {number} has {len(tags)} tags and {len(others)} predictions.")
        gold, found = set(find_entities(tags)), set(find_entities(others))
        right.update(kind for kind, _, _ in gold & found)
        said.update(kind for kind, _, _ in found)
        there.update(kind for kind, _, _ in gold)
    return right, said, there


def _scores(right: int, said: int, there: int) -> tuple[float, float, float]:
    return right / said if said else 0.0, right / there if there else 0.0, 2 * right / (said + there) if right else 0.0
