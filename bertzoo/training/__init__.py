"""Recipes of training. Names are imported on first use, since they need Keras."""

from bertzoo._lazy import lazy_import_hooks

_HOMES = {
    "AdamW": "optimizer",
    "AnswerF1": "callbacks",
    "EntityF1": "callbacks",
    "MacroF1": "metrics",
    "NaNGuard": "callbacks",
    "Resume": "resume",
    "SiFT": "adversarial",
    "start_processes": "processes",
}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = lazy_import_hooks(__name__, _HOMES)
