"""A head of the caller's own in config.json: described on saving, and made again without running foreign code."""

from typing import Any

import keras

from bertzoo.checkpoints.errors import CheckpointError

_CLASSES = "keras.src.layers."
# Layers that compute from their settings and weights alone. Lambda, those that wrap other libraries' modules, and those
# that read files are not among them.
_LAYERS = (
    "activations",
    "attention",
    "convolutional",
    "core.dense",
    "core.einsum_dense",
    "core.identity",
    "core.input_layer",
    "core.masking",
    "core.wrapper",
    "merging",
    "normalization",
    "pooling",
    "regularization",
    "reshaping",
    "rnn",
)
_PARTS = ("keras.initializers", "keras.regularizers", "keras.constraints")
_MODELS = {
    ("keras", "Sequential"),
    ("keras.src.models.functional", "Functional"),
    ("keras", "DTypePolicy"),
    ("keras.dtype_policies", "DTypePolicy"),
}


def describe(head: keras.layers.Layer) -> dict[str, Any]:
    """What config.json keeps of a head, besides its weights."""
    return keras.saving.serialize_keras_object(head)


def restore(content: dict[str, Any]) -> keras.layers.Layer:
    """The head that `describe` described, with new weights.

    Raises:
        CheckpointError: It is made of anything but Keras's own computing layers and bertzoo's, or can't be made.
    """
    _check(content)
    try:
        head = keras.saving.deserialize_keras_object(content, safe_mode=True)
    except (TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"the head that config.json describes can't be made: {error}") from error
    if not isinstance(head, keras.layers.Layer):
        raise CheckpointError(f"config.json describes a {type(head).__name__} as head; a layer is expected.")
    return head


def _check(part) -> None:
    if isinstance(part, dict):
        if "class_name" in part and not _is_allowed(part):
            raise CheckpointError(
                f"config.json describes a head with {part.get('module')}.{part['class_name']}, which is "
                f"not made from a file "
                "because it could run code of its own: pass head=, a layer that you made yourself, and "
                "it gets the weights."
            )
        for value in part.values():
            _check(value)
    elif isinstance(part, (list, tuple)):
        for value in part:
            _check(value)


def _is_allowed(part: dict[str, Any]) -> bool:
    module, name, registered = part.get("module"), part["class_name"], part.get("registered_name")
    if name == "__keras_tensor__":
        return True
    if not isinstance(module, str) or not isinstance(name, str):
        return False
    if registered is not None and registered not in (name, f"bertzoo>{name}"):
        return False
    if registered == f"bertzoo>{name}":
        return module.startswith("bertzoo.") and keras.saving.get_registered_object(registered) is not None
    if (module, name) in _MODELS or module in _PARTS:
        return True
    layer = getattr(keras.layers, name, None) if module == "keras.layers" else None
    return isinstance(layer, type) and layer.__module__.startswith(tuple(_CLASSES + home for home in _LAYERS))
