"""int8 layers of a model in files."""

import keras


def quantized_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """The layers whose kernel or table is quantized."""
    return [layer for layer in model._flatten_layers() if getattr(layer, "quantization_mode", None)]


def quantization_scales(model: keras.Model) -> list[keras.Variable]:
    """What quantized kernels and tables are divided by."""
    return [weight for layer in quantized_layers(model) for weight in layer.weights if weight.name.endswith("_scale")]
