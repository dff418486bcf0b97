"""bertzoo: every encoder of the BERT family as Keras 3 layers, the same numbers on TensorFlow, JAX and PyTorch."""

from contextlib import suppress
from importlib import import_module

from bertzoo import backend as _backend
from bertzoo._lazy import lazy_import_hooks

# Before Keras is imported. Without any backend, the first use of a name below raises the error.
with suppress(ImportError):
    _backend.prepare_backend()

__version__ = "0.1.0"

# Imported on first use, so that `bertzoo --help` and others that need no Keras start fast.
_LATER = {
    "AdamW": "bertzoo.training.optimizer",
    "CrossEncoder": "bertzoo.tasks.cross_encoder",
    "Encoder": "bertzoo.models.encoder",
    "EncoderConfig": "bertzoo.models.config",
    "EntityFinder": "bertzoo.tasks.entity_finder",
    "MaskedLM": "bertzoo.tasks.masked_lm",
    "ForPreTraining": "bertzoo.tasks.pretraining_heads",
    "MultiVectorEncoder": "bertzoo.tasks.multi_vector_encoder",
    "MultipleChoice": "bertzoo.tasks.multiple_choice",
    "QuestionAnswerer": "bertzoo.tasks.question_answerer",
    "ReplacedTokenDetector": "bertzoo.tasks.pretraining_heads",
    "StaticEncoder": "bertzoo.tasks.static_encoder",
    "SentenceEncoder": "bertzoo.tasks.sentence_encoder",
    "SparseEncoder": "bertzoo.tasks.sparse_encoder",
    "NextSentencePredictor": "bertzoo.tasks.pretraining_heads",
    "TextClassifier": "bertzoo.tasks.text_classifier",
    "TokenClassifier": "bertzoo.tasks.token_classifier",
    "Tokenizer": "bertzoo.text.tokenizer",
    "describe": "bertzoo.analysis.parameters",
    "from_keras_hub": "bertzoo.interop.keras_hub",
    "get_seed": "bertzoo.random",
    "set_seed": "bertzoo.random",
    "to_keras_hub": "bertzoo.interop.keras_hub",
    "train_byte_bpe": "bertzoo.text.vocabulary",
    "train_unigram": "bertzoo.text.vocabulary",
    "train_wordpiece": "bertzoo.text.vocabulary",
}

_MODULES = (
    "adapters",
    "analysis",
    "checkpoints",
    "data",
    "export",
    "layers",
    "losses",
    "metrics",
    "models",
    "pretraining",
    "retrieval",
    "text",
    "training",
)

__all__ = [*_MODULES, *_LATER]
_named, _ = lazy_import_hooks(__name__, _LATER)


def __getattr__(name: str):
    if name in __all__:
        _backend.prepare_backend()
    return import_module(f"bertzoo.{name}") if name in _MODULES else _named(name)


def __dir__() -> list[str]:
    return sorted(__all__)
