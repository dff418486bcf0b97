"""Hooks into a model: replaced embeddings, recorded attention, and gradients with respect to them.

A layer's method is replaced past Keras's tracking while a context lasts, so that nothing stays behind.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import keras
import numpy as np
from keras import ops

from bertzoo.layers.attention import SelfAttention, attention_weights
from bertzoo.models.encoder import Encoder
from bertzoo.types import Tensor


@contextmanager
def replace_embeddings(encoder: Encoder, vectors: Tensor) -> Iterator[None]:
    """Replaces the output of the embeddings by `vectors` (batch, length, hidden) while the context lasts."""
    layer = encoder.embeddings
    with _replaced(layer, "call", lambda *args, **kwargs: ops.cast(vectors, layer.compute_dtype)):
        yield


@contextmanager
def record_attention_weights(
    encoder: Encoder, weight_offsets: Sequence[Tensor] | None = None
) -> Iterator[list[Tensor]]:
    """Records the attention weights while the context lasts, computed explicitly and for all tokens.

    Args:
        encoder: The encoder.
        weight_offsets: Tensors to add to the weights, in the order in which attention is applied.

    Yields:
        A list to which each call appends its weights (batch, heads, length, length).
    """
    seen: list = []
    with ExitStack() as stack:
        for block in encoder.blocks:
            stack.enter_context(_recorded(block.attention, seen, weight_offsets))
        yield seen


@contextmanager
def _recorded(attention: SelfAttention, seen: list, weight_offsets: Sequence | None) -> Iterator[None]:
    original = attention.compute_context

    def context(x, attention_mask, position_bias, key, return_attention, query):
        out, weights = original(x, attention_mask, position_bias, key, True, query)
        return out, weights if return_attention else None

    def explicit(query, key_, value, attention_mask, bias, dropout_key):
        weights = attention_weights(query, key_, attention_mask, bias)
        if weight_offsets is not None:
            weights = weights + weight_offsets[len(seen)]
        seen.append(weights)
        return ops.einsum("bhts,bshk->bthk", ops.cast(weights, value.dtype), value), weights

    with _replaced(attention, "compute_context", context), _replaced(attention, "_explicit", explicit):
        yield


@contextmanager
def _replaced(layer: keras.layers.Layer, name: str, value) -> Iterator[None]:
    object.__setattr__(layer, name, value)
    try:
        yield
    finally:
        object.__delattr__(layer, name)


def make_gradient_function(model: keras.Model, function: Callable) -> Callable[[list[np.ndarray]], list[np.ndarray]]:
    """A function from float32 arrays to the gradients of the sum of `function(tensors)` with respect to each of them.
    `model` is the model that `function` calls."""
    backend = keras.backend.backend()
    return {"jax": _jax_gradient, "torch": _torch_gradient}.get(backend, _tensorflow_gradient)(model, function)


def _jax_gradient(model, function):
    import jax

    # Compiled as a whole, since JAX would otherwise compile each operation; weights are arguments, not constants.
    def total(tensors, values):
        with keras.StatelessScope(state_mapping=list(zip(model.variables, values))):
            return function(tensors).sum()

    compiled = jax.jit(jax.grad(total))
    return lambda arrays: [np.asarray(slope) for slope in compiled(arrays, [v.value for v in model.variables])]


def _torch_gradient(model, function):
    import torch

    def gradient(arrays):
        tensors = [ops.convert_to_tensor(array).detach().requires_grad_() for array in arrays]
        with torch.enable_grad():
            found = torch.autograd.grad(function(tensors).sum(), tensors, materialize_grads=True)
        return [ops.convert_to_numpy(slope) for slope in found]

    return gradient


def _tensorflow_gradient(model, function):
    import tensorflow as tf

    def gradient(arrays):
        tensors = [tf.convert_to_tensor(array) for array in arrays]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            total = tf.reduce_sum(function(tensors))
        return [slope.numpy() for slope in tape.gradient(total, tensors, unconnected_gradients="zero")]

    return gradient
