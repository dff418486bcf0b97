"""The encoder, its configuration, and one file for each family.

Names are imported on first use: the families import every layer.
"""

from importlib import import_module

_HOMES = {
    "Encoder": "encoder",
    "EncoderConfig": "config",
    "FAMILIES": "registry",
    "Family": "family",
    "register": "registry",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
