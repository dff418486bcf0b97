"""bertzoo: every encoder of the BERT family as Keras 3 layers, the same numbers on TensorFlow, JAX and PyTorch."""

from importlib import import_module

from bertzoo import backend as _backend

_backend.prepare()

from bertzoo import layers
from bertzoo.config import EncoderConfig
from bertzoo.encoder import Encoder
from bertzoo.random import get_seed, set_seed

__version__ = "0.1.0"

# Imported on first use, so that `import bertzoo` costs little more than `import keras`.
_LATER = {
    "AdamW": "bertzoo.training.optimizer",
    "MaskedLM": "bertzoo.tasks.masked_lm",
    "Preprocessor": "bertzoo.text.preprocessor",
    "TextClassifier": "bertzoo.tasks.text_classifier",
    "Tokenizer": "bertzoo.text.tokenizer",
    "train_wordpiece": "bertzoo.text.vocabulary",
}

__all__ = ["Encoder", "EncoderConfig", "get_seed", "layers", "set_seed", *_LATER]


def __getattr__(name: str):
    if name not in _LATER:
        raise AttributeError(f"module 'bertzoo' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
