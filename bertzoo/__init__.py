"""bertzoo: every encoder of the BERT family as Keras 3 layers, the same numbers on TensorFlow, JAX and PyTorch."""

from contextlib import suppress
from importlib import import_module

from bertzoo import backend as _backend

# Before anyone imports Keras. Where no backend can be had, the first use of a name below says so.
with suppress(ImportError):
    _backend.prepare()

__version__ = "0.1.0"

# Imported on first use, so that what needs no Keras, such as `bertzoo --help`, does not wait for it.
_LATER = {
    "AdamW": "bertzoo.training.optimizer",
    "CrossEncoder": "bertzoo.tasks.cross_encoder",
    "Encoder": "bertzoo.models.encoder",
    "EncoderConfig": "bertzoo.models.config",
    "MaskedLM": "bertzoo.tasks.masked_lm",
    "ForPreTraining": "bertzoo.tasks.pretraining_heads",
    "MultipleChoice": "bertzoo.tasks.multiple_choice",
    "QuestionAnswerer": "bertzoo.tasks.question_answerer",
    "ReplacedTokenDetector": "bertzoo.tasks.pretraining_heads",
    "SentenceEncoder": "bertzoo.tasks.sentence_encoder",
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
    "layers",
    "metrics",
    "models",
    "pretraining",
    "retrieval",
    "text",
    "training",
)

__all__ = [*_MODULES, *_LATER]


def __getattr__(name: str):
    if name not in __all__:
        raise AttributeError(f"module 'bertzoo' has no attribute {name!r}")
    _backend.prepare()
    if name in _MODULES:
        return import_module(f"bertzoo.{name}")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
