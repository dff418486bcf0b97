"""The losses that `SentenceEncoder.compile` takes by name."""

from bertzoo.losses.base import SentenceLoss
from bertzoo.losses.distillation import EmbeddingDistillation, MarginMSE
from bertzoo.losses.in_batch import MultipleNegativesRanking
from bertzoo.losses.pairs import CoSENT, CosineRegression, SoftmaxOfPairs
from bertzoo.losses.triplets import Triplet

LOSSES = {
    "cosine": CosineRegression,
    "cosent": CoSENT,
    "softmax": SoftmaxOfPairs,
    "triplet": Triplet,
    "multiple_negatives": MultipleNegativesRanking,
    "margin_mse": MarginMSE,
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
        raise ValueError(
            f"loss must be one of {', '.join(LOSSES)}, or one of bertzoo's sentence losses. Received: {loss!r}."
        )
    return LOSSES[loss]()
