"""Virtual adversarial training on normalised embeddings: SiFT, scale-invariant fine-tuning."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.random import Salt, fold_in, random_bits
from bertzoo.types import MULTI_LABEL, REGRESSION, Tensor


@keras.saving.register_keras_serializable("bertzoo")
class SiFT:
    """Adds to the loss how far a model's predictions move when its embeddings are pushed in the worst direction:
    `classifier.compile(adversarial=SiFT())`.

    With f(δ) the predictions for a batch whose embeddings, normalised to mean 0 and variance 1, are moved by δ before
    they are scaled and shifted, and D a divergence of predictions:

        g = ∇ D(f(0), f(δ)) at δ = noise
        r = radius · √(tokens · width) · g / ‖g‖, for each example
        loss + weight · D(f(0), f(r))

    D is the symmetric Kullback-Leibler divergence, Σ (p − q)(log p − log q), and for regression the squared difference.
    No labels enter (virtual adversarial training: Miyato et al. 2019, section 3). The perturbation is of normalised
    embeddings, so that it does not depend on their scale, which varies between words and models (He et al. 2021,
    section 4); that D counts both ways is as there and in SMART (Jiang et al. 2020, section 3.1). The dropout is the
    same in all three passes, so that D sees the perturbation alone; the noise comes from bertzoo's seed and is the same
    on every backend.

    differs: Microsoft's code adds a step of 1e-4 to a noise of 1e-2; here the noise finds the direction only, as in
    virtual adversarial training, and a length is what `radius` says. It also normalises a second time, which changes
    nothing to first order.

    Args:
        radius: Length of the perturbation as a fraction of that of an example's normalised embeddings, which is
            √(tokens · width).
        weight: What the divergence is multiplied by.
        noise: Standard deviation of the noise at which the gradient is taken. At 0 the divergence has no gradient.

    Raises:
        ValueError: `radius` or `weight` is below 0, or `noise` is not above 0.
    """

    def __init__(self, radius: float = 0.05, weight: float = 1.0, noise: float = 0.01):
        if not (radius >= 0 and weight >= 0 and noise > 0):
            raise ValueError(
                f"radius and weight must be at least 0 and noise above 0. Received: {radius!r}, {weight!r}, {noise!r}."
            )
        self.radius, self.weight, self.noise = radius, weight, noise

    def loss(self, model: Any, inputs: Any, logits: Tensor) -> Tensor:
        """The addition to the loss, a scalar: `weight` times the mean divergence over the batch.

        Args:
            model: A `TextClassifier`, in a training call of which `logits` (batch, labels) came from `inputs`.
            inputs: What the model was called with.
            logits: Its output.
        """
        batch = dict(inputs) if isinstance(inputs, dict) else {"token_ids": inputs}
        before = ops.stop_gradient(logits)

        def moved(perturbation):
            return model({**batch, "perturbation": perturbation}, training=True)

        slope = gradient_at(
            lambda noise: ops.sum(divergence(before, moved(noise), model.problem_type)), self._noise(model, batch)
        )
        worst = ops.stop_gradient(self.radius * self._scaled(slope, batch.get("padding_mask")))
        return self.weight * ops.mean(divergence(logits, moved(worst), model.problem_type))

    def _noise(self, model, batch):
        width = model.backbone.embeddings.norm_width
        key = fold_in(model.backbone.step.current_key(), Salt.ADVERSARIAL_NOISE)
        bits = random_bits(key, (*ops.shape(batch["token_ids"]), width))
        # Uniform numbers from -1 to 1 have a standard deviation of 1 / √3.
        return ops.cast(bits, "float32") * (self.noise * np.sqrt(3.0) / 2**31)

    def _scaled(self, slope, padding_mask):
        """Each example's (tokens, width) at the length of its normalised embeddings; 0 where there is no slope."""
        shape = ops.shape(slope)
        mask = ops.ones(shape[:2]) if padding_mask is None else ops.cast(padding_mask, "float32")
        slope = ops.cast(slope, "float32") * mask[:, :, None]
        # By its largest element first: the squares of small slopes would vanish.
        slope = slope / ops.maximum(ops.amax(ops.abs(slope), axis=(1, 2), keepdims=True), 1e-30)
        norm = ops.sqrt(ops.sum(ops.square(slope), axis=(1, 2), keepdims=True))
        length = ops.sqrt(ops.sum(mask, axis=1) * slope.shape[2])
        return slope / ops.maximum(norm, 1e-6) * length[:, None, None]

    def get_config(self) -> dict[str, float]:
        return {"radius": self.radius, "weight": self.weight, "noise": self.noise}

    @classmethod
    def from_config(cls, config: dict[str, float]) -> "SiFT":
        return cls(**config)


def divergence(logits: Tensor, perturbed: Any, problem_type: str) -> Tensor:
    """How far two predictions are apart: (batch, labels) twice -> (batch,), in float32.

    Symmetric Kullback-Leibler divergences, of one distribution or of one for each of several labels; for regression the
    squared difference, summed over the columns.
    """
    a, b = ops.cast(logits, "float32"), ops.cast(perturbed, "float32")
    if problem_type == REGRESSION:
        return ops.sum(ops.square(a - b), axis=-1)
    if problem_type == MULTI_LABEL:
        return ops.sum((ops.sigmoid(a) - ops.sigmoid(b)) * (a - b), axis=-1)
    a, b = ops.log_softmax(a, axis=-1), ops.log_softmax(b, axis=-1)
    return ops.sum((ops.exp(a) - ops.exp(b)) * (a - b), axis=-1)


def gradient_at(function: Callable, point: Tensor) -> Tensor:
    """The gradient of a scalar function of one tensor; there is no such function in Keras."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.grad(function)(point)
    if backend == "torch":
        import torch

        point = point.detach().requires_grad_()
        return torch.autograd.grad(function(point), point)[0]
    import tensorflow as tf

    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(point)
        value = function(point)
    return tape.gradient(value, point)
