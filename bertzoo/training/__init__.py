"""Recipes of training. Names are imported on first use, since they need Keras."""

from importlib import import_module

_HOMES = {
    "AdamW": "optimizer",
    "AnswerF1": "callbacks",
    "EntityF1": "callbacks",
    "MacroF1": "scores",
    "NaNGuard": "callbacks",
    "Resume": "resume",
    "SiFT": "adversarial",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
