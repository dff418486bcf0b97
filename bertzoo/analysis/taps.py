"""Places inside a model where an analysis reads numbers or puts its own, and gradients in them.

A layer's method is replaced past Keras's tracking while a context lasts, so that nothing stays behind.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import keras
import numpy as np
from keras import ops

from bertzoo.layers.attention import SelfAttention, attention_weights
from bertzoo.models.encoder import Encoder


@contextmanager
def embedded(encoder: Encoder, vectors) -> Iterator[None]:
    """Within it, the embeddings give these vectors (batch, length, hidden), whatever the tokens are."""
    layer = encoder.embeddings
    with _replaced(layer, "call", lambda *args, **kwargs: ops.cast(vectors, layer.compute_dtype)):
        yield


@contextmanager
def attending(encoder: Encoder, additions: Sequence | None = None) -> Iterator[list]:
    """Within it, attention leaves its fused path, in the last block for all tokens; what it gives is a list that the
    weights (batch, heads, length, length) join, in the order in which attention is applied.

    Args:
        encoder: The encoder.
        additions: What to add to the weights, in the same order.
    """
    seen: list = []
    with ExitStack() as stack:
        for block in encoder.blocks:
            stack.enter_context(_replaced(block.attention, "supports_query_subset", False))
            stack.enter_context(_tapped(block.attention, seen, additions))
        yield seen


@contextmanager
def _tapped(attention: SelfAttention, seen: list, additions: Sequence | None) -> Iterator[None]:
    usual = attention.context

    def context(x, attention_mask, position_bias, key, return_attention, query):
        out, weights = usual(x, attention_mask, position_bias, key, True, query)
        return out, weights if return_attention else None

    def explicit(query, key_, value, attention_mask, bias, dropout_key):
        weights = attention_weights(query, key_, attention_mask, bias)
        if additions is not None:
            weights = weights + additions[len(seen)]
        seen.append(weights)
        return ops.einsum("bhts,bshk->bthk", ops.cast(weights, value.dtype), value), weights

    with _replaced(attention, "context", context), _replaced(attention, "_explicit", explicit):
        yield


@contextmanager
def _replaced(layer: keras.layers.Layer, name: str, value) -> Iterator[None]:
    object.__setattr__(layer, name, value)
    try:
        yield
    finally:
        object.__delattr__(layer, name)


def gradient_of(model: keras.Model, function: Callable) -> Callable[[list[np.ndarray]], list[np.ndarray]]:
    """What gives the gradients of the sum of `function(tensors)` in each of some float32 arrays, by the backend's own
    means. `model` is what the function calls."""
    backend = keras.backend.backend()
    return {"jax": _jax_gradient, "torch": _torch_gradient}.get(backend, _tensorflow_gradient)(model, function)


def _jax_gradient(model, function):
    import jax

    # As a whole, since JAX compiles each operation on its own otherwise; weights are arguments, not constants in it.
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
