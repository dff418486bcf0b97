"""Recipes of training. Names are imported on first use, since they need Keras."""

from importlib import import_module

_HOMES = {
    "AdamW": "optimizer",
    "AnswerF1": "scores",
    "EntityF1": "scores",
    "MacroF1": "scores",
    "NaNGuard": "nan_guard",
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
