"""Pre-training: a corpus, its examples, the models of the objectives, and the program that runs them.

Names are imported on first use, since they need Keras.
"""

from bertzoo._lazy import lazy_import_hooks

_HOMES = {
    "BatchSpec": "corpus_dataset",
    "CorpusDataset": "corpus_dataset",
    "Distillation": "distillation",
    "ElectraSampler": "corpus_dataset",
    "FullSentenceSampler": "corpus_dataset",
    "LogitAuc": "replaced_tokens",
    "ReplacedTokenTraining": "replaced_tokens",
    "SentencePairSampler": "corpus_dataset",
    "CorpusSentences": "corpus",
    "TokenCorpus": "corpus",
    "extend_tokenizer": "objectives",
    "generator_config": "replaced_tokens",
    "join_parts": "corpus_parts",
    "load_task": "objectives",
    "make_student": "distillation",
    "prepare_corpus": "corpus",
    "prepare_part": "corpus_parts",
    "pretrain": "program",
    "use_devices": "devices",
}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = lazy_import_hooks(__name__, _HOMES)
