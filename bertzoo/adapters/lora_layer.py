"""A dense layer with LoRA's factors beside it (Hu et al. 2022, section 4.1)."""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from bertzoo.random import get_seed, host_generator


@keras.saving.register_keras_serializable("bertzoo")
class LoRADense(keras.layers.Layer):
    """A dense layer and, for each part of its output, two factors: x -> dense(x) + scale × (x A) B, side by side.

    Args:
        dense: The layer, which is built; its weights no longer train.
        parts: For each tensor of Hugging Face's that the kernel joins, the inner size of its factors and what their
            product is multiplied by; None where it gets none.
        labels: A name for each part, on which the initial A depends. B starts at 0.
    """

    def __init__(self, dense, parts: Sequence[tuple[int, float] | None], labels: Sequence[str], **kwargs):
        # A quantized layer's policy is not for the factors.
        policy = dense.dtype_policy
        if dense.quantization_mode is not None:
            policy = policy.name.rpartition("_from_")[2]
        super().__init__(name=f"{dense.name}_lora", dtype=policy, **kwargs)
        self.dense, self.scales = dense, [part and part[1] for part in parts]
        for weight in dense.weights:
            weight.trainable = False
        inner, outer = dense.kernel.shape[0], dense.kernel.shape[1] // len(parts)
        self.factors: list = []
        for i, (part, label) in enumerate(zip(parts, labels)):
            if part is None:
                self.factors.append(None)
                continue
            rank = part[0]
            # As Kaiming's uniform numbers with a = √5, which PEFT draws: ±1/√inner.
            draws = host_generator(get_seed(), "lora", label).uniform(-1, 1, (inner, rank)) / np.sqrt(inner)
            a = self.add_weight(name=f"lora_a_{i}", shape=(inner, rank), initializer="zeros")
            a.assign(draws.astype("float32"))
            self.factors.append((a, self.add_weight(name=f"lora_b_{i}", shape=(rank, outer), initializer="zeros")))
        self.outer = outer
        self.built = True

    def call(self, x):
        y, parts = self.dense(x), []
        for factors, scale in zip(self.factors, self.scales):
            if factors is None:
                parts.append(ops.zeros((*ops.shape(x)[:-1], self.outer), y.dtype))
            else:
                parts.append(ops.cast(scale, y.dtype) * ops.matmul(ops.matmul(x, factors[0]), factors[1]))
        return y + (parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1))

    def compute_output_shape(self, input_shape):
        return self.dense.compute_output_shape(input_shape)

    def merge(self) -> None:
        """Adds the product of the factors to the kernel.

        Raises:
            ValueError: The kernel is quantized.
        """
        if self.dense.quantization_mode is not None:
            raise ValueError(
                f"{self.dense.path} is quantized ({self.dense.quantization_mode}), and factors can't be added to it "
                "exactly: save the adapter with save_adapter, and merge it into the model as it was before quantize."
            )
        kernel = np.array(ops.convert_to_numpy(self.dense.kernel), dtype="float32")
        for i, factors in enumerate(self.factors):
            if factors is not None:
                a, b = (np.asarray(ops.convert_to_numpy(f), dtype="float32") for f in factors)
                kernel[:, i * self.outer : (i + 1) * self.outer] += self.scales[i] * (a @ b)
        self.dense.kernel.assign(kernel)
