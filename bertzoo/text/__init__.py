"""From strings to token ids: the tokenizer, vocabulary training, masking and windows.

Names are imported on first use, so that the tokenizer works without Keras and `import bertzoo` stays fast.
"""

from importlib import import_module

_HOMES = {
    "Tokenizer": "tokenizer",
    "Encoded": "encoded",
    "train_byte_bpe": "vocabulary",
    "train_unigram": "vocabulary",
    "train_wordpiece": "vocabulary",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name == "in_graph":  # imports TensorFlow
        return import_module(f"{__name__}.in_graph")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
