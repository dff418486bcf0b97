"""The losses that `SentenceEncoder.compile` takes by name."""

from bertzoo.losses.base import SentenceLoss
from bertzoo.losses.distillation import EmbeddingDistillation, KLDistillation, MarginMSE
from bertzoo.losses.in_batch import GIST, MegaBatchMargin, MultipleNegativesRanking
from bertzoo.losses.pairs import Contrastive, CosineRegression, OnlineContrastive, SoftmaxOfPairs
from bertzoo.losses.score_order import AnglE, CoSENT
from bertzoo.losses.triplets import (
    BatchAllTriplet,
    BatchHardSoftMarginTriplet,
    BatchHardTriplet,
    BatchSemiHardTriplet,
    Triplet,
)

LOSSES = {
    "cosine": CosineRegression,
    "cosent": CoSENT,
    "angle": AnglE,
    "contrastive": Contrastive,
    "online_contrastive": OnlineContrastive,
    "softmax": SoftmaxOfPairs,
    "triplet": Triplet,
    "batch_all_triplet": BatchAllTriplet,
    "batch_hard_triplet": BatchHardTriplet,
    "batch_hard_soft_margin_triplet": BatchHardSoftMarginTriplet,
    "batch_semi_hard_triplet": BatchSemiHardTriplet,
    "multiple_negatives": MultipleNegativesRanking,
    "gist": GIST,
    "mega_batch_margin": MegaBatchMargin,
    "margin_mse": MarginMSE,
    "kl_distillation": KLDistillation,
    "distillation": EmbeddingDistillation,
}


def get_sentence_loss(loss: str | SentenceLoss) -> SentenceLoss:
    """Finds a loss by name, with its defaults; returns a loss unchanged.

    Raises:
        ValueError: The name is unknown.
    """
    if isinstance(loss, SentenceLoss):
        return loss
    if loss not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, or one of `bertzoo.losses`. Received: {loss!r}.")
    return LOSSES[loss]()
