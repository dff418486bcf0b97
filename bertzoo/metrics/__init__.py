"""The scores that the field reports, as the field computes them. Plain NumPy; texts and labels in, numbers out."""

from bertzoo.metrics.entities import entity_report, entity_scores
from bertzoo.metrics.scores import (
    accuracy,
    confusion_matrix,
    f1,
    matthews_corrcoef,
    pearson,
    precision_recall_f1,
    spearman,
)
from bertzoo.metrics.squad import answer_exact_match, answer_f1, best_no_answer_threshold, squad_scores

__all__ = [
    "accuracy",
    "answer_exact_match",
    "answer_f1",
    "best_no_answer_threshold",
    "confusion_matrix",
    "entity_report",
    "entity_scores",
    "f1",
    "matthews_corrcoef",
    "pearson",
    "precision_recall_f1",
    "spearman",
    "squad_scores",
]
