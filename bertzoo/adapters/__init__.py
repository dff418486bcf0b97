"""LoRA, freezing and int8: what is changed in a model after its construction, and how files keep it.

Names are imported on first use, since they need Keras.
"""

from bertzoo._lazy import lazy_import_hooks

_HOMES = {
    "enable_lora": "lora",
    "load_adapter": "peft",
    "merge_lora": "lora",
    "save_adapter": "peft",
}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = lazy_import_hooks(__name__, _HOMES)
