"""Search over vectors, indices on disk, mining of pairs, and the measures of retrieval.

Names are imported on first use: an index, quantization and search in folders work without Keras.
"""

from bertzoo._lazy import lazy_import_hooks

DEFAULT_PRESET = "sentence_mini_en"  # of search in folders

_HOMES = {
    **dict.fromkeys(("evaluate_pairs", "evaluate_retrieval", "evaluate_sts", "evaluate_triplets"), "evaluation"),
    **dict.fromkeys(("mine_pairs", "paraphrase_mining", "semantic_search"), "search"),
    **dict.fromkeys(("pairwise_similarity", "similarity"), "bertzoo.metrics.vector_similarity"),
    **dict.fromkeys(("quantize_embeddings", "search_quantized"), "quantization"),
    **dict.fromkeys(("Index", "Hit"), "bertzoo.retrieval.index.index"),
    "FolderIndex": "folder",
    "mine_hard_negatives": "hard_negatives",
    "Dense": "bertzoo.retrieval.index.dense",
    "MultiVector": "bertzoo.retrieval.index.multi_vector",
    "Sparse": "bertzoo.retrieval.index.sparse",
    "reciprocal_rank_fusion": "bertzoo.retrieval.index.fusion",
}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = lazy_import_hooks(__name__, _HOMES)
