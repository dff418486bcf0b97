"""From strings to token ids: the tokenizer, vocabulary training, masking and windows.

Names are imported on first use, so that the tokenizer works without Keras and `import bertzoo` stays fast.
"""

from importlib import import_module
from typing import Any

from bertzoo._lazy import lazy_import_hooks

_HOMES = {
    "Tokenizer": "tokenizer",
    "Encoded": "encoded",
    "train_byte_bpe": "vocabulary",
    "train_unigram": "vocabulary",
    "train_wordpiece": "vocabulary",
}

__all__ = sorted(_HOMES)
_named, __dir__ = lazy_import_hooks(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    if name == "in_graph":  # imports TensorFlow
        return import_module(f"{__name__}.in_graph")
    return _named(name)
