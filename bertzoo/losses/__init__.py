"""Losses of sentence encoders. Names are imported on first use, since they need Keras.

All take `y_pred`, float (batch, columns, width), the vectors of each example's texts, as `SentenceEncoder` returns them
in training. Numbers and defaults are those of sentence-transformers.
"""

from bertzoo._lazy import lazy_import_hooks

_HOMES = {
    "AdaptiveLayer": "adaptive_layer",
    "AnglE": "score_order",
    "BatchAllTriplet": "triplets",
    "BatchHardSoftMarginTriplet": "triplets",
    "BatchHardTriplet": "triplets",
    "BatchSemiHardTriplet": "triplets",
    "ClassTriplets": "triplets",
    "CoSENT": "score_order",
    "Contrastive": "pairs",
    "CosineRegression": "pairs",
    "EmbeddingDistillation": "distillation",
    "GIST": "in_batch",
    "GlobalOrthogonalRegularization": "regularization",
    "InBatchLoss": "in_batch",
    "KLDistillation": "distillation",
    "MarginMSE": "distillation",
    "Matryoshka": "matryoshka",
    "MegaBatchMargin": "in_batch",
    "MultipleNegativesRanking": "in_batch",
    "OnlineContrastive": "pairs",
    "SentenceLoss": "base",
    "SoftmaxOfPairs": "pairs",
    "Triplet": "triplets",
    "WrappedLoss": "base",
}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = lazy_import_hooks(__name__, _HOMES)
