"""The scores that the field reports, as the field computes them. Plain NumPy; texts and labels in, numbers out."""

from bertzoo.metrics.classes import accuracy, confusion, f1, matthews, per_class
from bertzoo.metrics.correlation import pearson, spearman
from bertzoo.metrics.entities import entity_report, entity_scores
from bertzoo.metrics.squad import answer_exact, answer_f1, best_threshold, squad_scores

__all__ = [
    "accuracy",
    "answer_exact",
    "answer_f1",
    "best_threshold",
    "confusion",
    "entity_report",
    "entity_scores",
    "f1",
    "matthews",
    "pearson",
    "per_class",
    "spearman",
    "squad_scores",
]
