"""Losses of sentence encoders and rerankers. Names are imported on first use, since they need Keras.

Those of `SentenceEncoder` (`SentenceLoss`) take `y_pred`, float (batch, columns, width), the vectors of each example's
texts; those of `CrossEncoder` (`RankingLoss`) the scores of each query's documents, float (batch, documents). Unless a
loss says otherwise, numbers and defaults are those of sentence-transformers.
"""

from bertzoo._lazy import lazy_import_hooks

_HOMES = {
    "ADRMSE": "ranking",
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
    "EntityLoss": "entities",
    "GIST": "in_batch",
    "GlobalOrthogonalRegularization": "regularization",
    "InBatchLoss": "in_batch",
    "KLDistillation": "distillation",
    "LambdaLoss": "lambda_loss",
    "ListMLE": "listwise",
    "ListNet": "listwise",
    "ListwiseCrossentropy": "listwise",
    "MarginMSE": "distillation",
    "Matryoshka": "matryoshka",
    "MegaBatchMargin": "in_batch",
    "MultiVectorKLDistillation": "multi_vector",
    "MultiVectorMarginMSE": "multi_vector",
    "MultiVectorMultipleNegativesRanking": "multi_vector",
    "MultipleNegativesRanking": "in_batch",
    "OnlineContrastive": "pairs",
    "PListMLE": "listwise",
    "RankNet": "lambda_loss",
    "RankingLoss": "ranking",
    "ScoreMarginMSE": "ranking",
    "SentenceLoss": "base",
    "SoftmaxOfPairs": "pairs",
    "SparseMultipleNegativesRanking": "in_batch",
    "SpladeLoss": "sparse",
    "Triplet": "triplets",
    "WrappedLoss": "base",
}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = lazy_import_hooks(__name__, _HOMES)
