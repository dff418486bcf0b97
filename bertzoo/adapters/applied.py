"""What was done to a model after it was made, so that Keras's files and clones keep it: LoRA's factors, quantized
layers, frozen weights."""

from typing import Any

import keras

from bertzoo._keras_hooks import sublayers

KEPT = ("int8", "int4", "float8")


def described_alterations(model: keras.Model) -> dict[str, Any]:
    """As an entry of its configuration, by the numbers of layers and weights; nothing where it is as it was made.

    Raises:
        ValueError: A layer is quantized in a way that can't be done again.
    """
    layers = enumerate(sublayers(model))
    found = {
        "lora": getattr(model, "lora", None),
        "quantized": {str(i): _quantization(layer) for i, layer in layers if getattr(layer, "quantization_mode", None)},
        "frozen": [i for i, weight in enumerate(model.weights) if _is_frozen(weight)],
    }
    return {"altered": found} if any(found.values()) else {}


def alter(model: keras.Model, altered: dict[str, Any] | None) -> None:
    """Does the same to another model of the kind."""
    if altered is None:
        return
    if altered["lora"]:
        from bertzoo.adapters.lora import enable_lora

        enable_lora(model, **altered["lora"])
    layers = sublayers(model)
    for i, how in altered["quantized"].items():
        how = {"mode": how, "config": None} if isinstance(how, str) else how  # as files before 0.2 have it
        if layers[int(i)].quantization_mode != how["mode"]:  # a task's encoder has been already
            layers[int(i)].quantize(how["mode"], config=keras.saving.deserialize_keras_object(how["config"]))
    frozen = set(altered["frozen"])
    for i, weight in enumerate(model.weights):
        if (i in frozen) != _is_frozen(weight):
            weight.trainable = i not in frozen


def _quantization(layer: keras.layers.Layer) -> dict[str, Any]:
    mode = layer.quantization_mode
    if mode not in KEPT:
        raise ValueError(
            f"Keras's files of bertzoo's models keep quantization by {', '.join(KEPT)}. Received: the layer "
            f"{layer.path}, quantized by {mode!r}, which takes calibration data to do again. Save the model before it "
            "is quantized."
        )
    return {"mode": mode, "config": keras.saving.serialize_keras_object(getattr(layer, "quantization_config", None))}


def _is_frozen(weight: keras.Variable) -> bool:
    # Counters never train.
    return "float" in weight.dtype and not weight.trainable
