"""LoRA, freezing and int8: what is changed in a model after its construction, and how files keep it.

Names are imported on first use, since they need Keras.
"""

from importlib import import_module

_HOMES = {
    "enable_lora": "lora",
    "load_adapter": "peft",
    "merge_lora": "lora",
    "save_adapter": "peft",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
