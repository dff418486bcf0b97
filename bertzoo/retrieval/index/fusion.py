"""Rankings of several searches as one."""

from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np

K = 60  # of the paper
Id = TypeVar("Id", bound=Hashable)


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[Id]], top_k: int | None = None, k: int = K
) -> list[tuple[Id, float]]:
    """Documents by the sum of 1 / (k + rank) over rankings (Cormack et al. 2009), best first.

    Args:
        rankings: The ids of documents in each ranking, best first; a ranking counts the ids it holds alone.
        top_k: How many to return; all where None.
        k: The constant that weakens first ranks.

    Returns:
        (id, score) for each document; of equal scores the one that was met first.

    Example:
        >>> bz.retrieval.reciprocal_rank_fusion([["a", "b"], ["b", "c"]])[0][0]
        'b'
    """
    scores: dict[Id, float] = {}
    for ranking in rankings:
        for rank, document in enumerate(ranking, start=1):
            scores[document] = scores.get(document, 0.0) + 1 / (k + rank)
    documents = list(scores)
    order = np.argsort([-scores[document] for document in documents], kind="stable")[:top_k]
    return [(documents[i], scores[documents[i]]) for i in order]
