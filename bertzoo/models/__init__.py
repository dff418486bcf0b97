"""The encoder, its configuration, and one file for each family.

Names are imported on first use: the families import every layer.
"""

from bertzoo._lazy import lazy_import_hooks

_HOMES = {
    "Encoder": "encoder",
    "EncoderConfig": "config",
    "FAMILIES": "registry",
    "Family": "family",
    "register": "registry",
}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = lazy_import_hooks(__name__, _HOMES)
