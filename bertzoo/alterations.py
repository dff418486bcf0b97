"""What was done to a model after it was made, so that Keras's files and clones keep it: LoRA's factors, quantized
layers, frozen weights."""

from typing import Any

import keras


def described_alterations(model: keras.Model) -> dict[str, Any]:
    """As an entry of its configuration, by the numbers of layers and weights; nothing where it is as it was made."""
    modes = {str(i): getattr(layer, "quantization_mode", None) for i, layer in enumerate(model._flatten_layers())}
    found = {
        "lora": getattr(model, "lora", None),
        "quantized": {i: mode for i, mode in modes.items() if mode},
        "frozen": [i for i, weight in enumerate(model.weights) if _is_frozen(weight)],
    }
    return {"altered": found} if any(found.values()) else {}


def alter(model: keras.Model, altered: dict[str, Any] | None) -> None:
    """Does the same to another model of the kind."""
    if altered is None:
        return
    if altered["lora"]:
        from bertzoo.training.lora import enable_lora

        enable_lora(model, **altered["lora"])
    layers = list(model._flatten_layers())
    for i, mode in altered["quantized"].items():
        if layers[int(i)].quantization_mode != mode:  # a task's encoder has been already
            layers[int(i)].quantize(mode)
    frozen = set(altered["frozen"])
    for i, weight in enumerate(model.weights):
        if (i in frozen) != _is_frozen(weight):
            weight.trainable = i not in frozen


def _is_frozen(weight: keras.Variable) -> bool:
    # Counters never train.
    return "float" in weight.dtype and not weight.trainable
