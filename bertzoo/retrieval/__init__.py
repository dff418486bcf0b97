"""Search over sentence vectors, mining of pairs, and the measures of both."""

from bertzoo.metrics.vector_similarity import pairwise_similarity, similarity
from bertzoo.retrieval.evaluation import evaluate_pairs, evaluate_retrieval, evaluate_sts, evaluate_triplets
from bertzoo.retrieval.hard_negatives import mine_hard_negatives
from bertzoo.retrieval.search import mine_pairs, paraphrase_mining, semantic_search

__all__ = [
    "evaluate_pairs",
    "evaluate_retrieval",
    "evaluate_sts",
    "evaluate_triplets",
    "mine_hard_negatives",
    "mine_pairs",
    "pairwise_similarity",
    "paraphrase_mining",
    "semantic_search",
    "similarity",
]
