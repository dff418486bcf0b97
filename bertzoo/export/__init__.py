"""Models as files that run without bertzoo: TensorFlow's SavedModel, and ONNX with an engine for CPUs.

Names are imported on first use: `OnnxModel` runs a file without Keras.
"""

from bertzoo._lazy import lazy_import_hooks

_HOMES = {"export_model": "exporting", "OnnxModel": "engine"}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = lazy_import_hooks(__name__, _HOMES)
