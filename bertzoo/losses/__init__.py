"""Losses of sentence encoders. Names are imported on first use, since they need Keras.

All take `y_pred`, float (batch, columns, width), the vectors of each example's texts, as `SentenceEncoder` returns them
in training. Numbers and defaults are those of sentence-transformers.
"""

from bertzoo._lazy import lazy_import_hooks

_HOMES = {
    "CoSENT": "pairs",
    "CosineRegression": "pairs",
    "EmbeddingDistillation": "distillation",
    "MarginMSE": "distillation",
    "Matryoshka": "matryoshka",
    "MultipleNegativesRanking": "in_batch",
    "SentenceLoss": "base",
    "SoftmaxOfPairs": "pairs",
    "Triplet": "triplets",
}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = lazy_import_hooks(__name__, _HOMES)
