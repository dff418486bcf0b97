"""LoRA, quantization and freezing applied after construction, serialised in get_config for Keras's files and clones."""

from typing import Any

import keras

from bertzoo._keras_hooks import flatten_layers
from bertzoo.adapters.lora import enable_lora

QUANTIZATION_MODES = ("int8", "int4", "float8")


def get_adapters_config(model: keras.Model) -> dict[str, Any]:
    """An entry "adapters" of the model's configuration, by the numbers of layers and weights; empty if there is nothing
    to keep.

    Raises:
        ValueError: A layer is quantized in a way that can't be done again.
    """
    layers = enumerate(flatten_layers(model))
    changes = {
        "lora": getattr(model, "lora", None),
        "quantized": {str(i): _quantization(layer) for i, layer in layers if getattr(layer, "quantization_mode", None)},
        "frozen": [i for i, weight in enumerate(model.weights) if _is_frozen(weight)],
    }
    return {"adapters": changes} if any(changes.values()) else {}


def apply_adapters_config(model: keras.Model, adapters_config: dict[str, Any] | None) -> None:
    """Applies the entry that `get_adapters_config` made to another model of the kind."""
    if adapters_config is None:
        return
    if adapters_config["lora"]:
        enable_lora(model, **adapters_config["lora"])
    layers = flatten_layers(model)
    for i, quantization in adapters_config["quantized"].items():
        if layers[int(i)].quantization_mode != quantization["mode"]:  # a task's encoder has been already
            config = keras.saving.deserialize_keras_object(quantization["config"])
            layers[int(i)].quantize(quantization["mode"], config=config)
    frozen = set(adapters_config["frozen"])
    for i, weight in enumerate(model.weights):
        if (i in frozen) != _is_frozen(weight):
            weight.trainable = i not in frozen


def _quantization(layer: keras.layers.Layer) -> dict[str, Any]:
    mode = layer.quantization_mode
    if mode not in QUANTIZATION_MODES:
        raise ValueError(
            f"Keras files keep the quantization of bertzoo's models by {', '.join(QUANTIZATION_MODES)}. Received: the "
            f"layer {layer.path}, quantized by {mode!r}, which takes calibration data to do again. Save the model "
            "before it is quantized."
        )
    return {"mode": mode, "config": keras.saving.serialize_keras_object(getattr(layer, "quantization_config", None))}


def _is_frozen(weight: keras.Variable) -> bool:
    # Counters never train.
    return "float" in weight.dtype and not weight.trainable
