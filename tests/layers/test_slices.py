"""Work done slice by slice: values and gradients of the whole, and no memory but of one slice."""

import weakref

import keras
import numpy as np
import pytest
from keras import ops

from bertzoo.layers.slices import cut_into_slices, map_row_blocks, map_slices, slice_sizes

RNG = np.random.default_rng(0)
X, KERNEL = RNG.normal(size=(23, 6)).astype("float32"), RNG.normal(size=(6, 6)).astype("float32")


@pytest.mark.once
@pytest.mark.parametrize(("rows", "most"), [(7, 3), (6, 3), (1, 3), (9, 4), (5, 8)])
def test_slices_have_one_size_and_hold_every_row(rows, most):
    count, size = slice_sizes(rows, most)
    assert size <= most and count * size >= rows > (count - 1) * size
    x = np.arange(1, rows + 1, dtype="float32")[:, None]
    cut = keras.ops.convert_to_numpy(cut_into_slices(ops.convert_to_tensor(x), count, size))
    assert cut.shape == (count, size, 1)
    assert cut.ravel().tolist() == [*x[:, 0], *x[: count * size - rows, 0]]


def loss(x, kernel, most):
    def rows(indices, x, kernel):
        products = ops.matmul(ops.matmul(ops.take(x, indices, axis=0), kernel), ops.transpose(x))
        return ops.logsumexp(products, axis=1)

    return ops.mean(map_row_blocks(rows, ops.shape(x)[0], most, [x, kernel]))


def value_and_gradients(most, backend, graph=False):
    if backend == "jax":
        import jax

        return jax.jit(jax.value_and_grad(lambda x, kernel: loss(x, kernel, most), argnums=(0, 1)))(X, KERNEL)
    if backend == "torch":
        import torch

        tensors = [ops.convert_to_tensor(x).detach().requires_grad_() for x in (X, KERNEL)]
        value = loss(*tensors, most)
        return value, torch.autograd.grad(value, tensors)
    import tensorflow as tf

    def compute(x, kernel):
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            value = loss(x, kernel, most)
        return value, tape.gradient(value, [x, kernel])

    if graph:
        compute = tf.function(compute, input_signature=[tf.TensorSpec([None, 6]), tf.TensorSpec([6, 6])])
    return compute(tf.constant(X), tf.constant(KERNEL))


@pytest.mark.parametrize("graph", [False, True], ids=["", "TensorFlow's graph"])
@pytest.mark.parametrize("most", [5, 8, 12])
def test_values_and_gradients_are_those_of_the_whole(most, graph, backend):
    if graph and backend != "tensorflow":
        pytest.skip("for TensorFlow, where rows have no number in a graph")
    for actual, expected in zip(
        keras.tree.flatten(value_and_gradients(most, backend, graph)),
        keras.tree.flatten(value_and_gradients(100, backend)),
    ):
        np.testing.assert_allclose(ops.convert_to_numpy(actual), ops.convert_to_numpy(expected), atol=1e-6)


def test_pytorch_holds_what_is_computed_in_one_slice_at_a_time(backend):
    if backend != "torch":
        pytest.skip("of PyTorch")
    import torch

    layers = [torch.randn(8, 8, requires_grad=True) for _ in range(3)]
    made, held = [], []

    def function(x):
        held.append(sum(tensor() is not None for tensor in made))
        for layer in layers:
            x = torch.relu(x @ layer)
            made.append(weakref.ref(x))
        return x.sum(dim=1)

    value = torch.logsumexp(map_slices(function, [torch.randn(5, 4, 8)]).ravel(), 0)
    torch.autograd.grad(value, layers)
    assert held == [0] * 10  # five slices, forward and backward


def test_jax_keeps_nothing_for_each_slice_but_its_input(backend):
    if backend != "jax":
        pytest.skip("of JAX")
    import jax

    def function(x, kernel):
        return ops.sum(ops.tanh(ops.matmul(x, kernel)))

    def total(kernel):
        return ops.sum(map_slices(function, [X[:20].reshape(5, 4, 6)], [kernel]))

    program = jax.make_jaxpr(jax.grad(total))(RNG.normal(size=(6, 9)).astype("float32"))
    loops = [equation for equation in program.jaxpr.eqns if equation.primitive.name == "scan"]
    stacked = [variable.aval.shape for loop in loops for variable in loop.outvars[loop.params["num_carry"] :]]
    assert len(loops) == 2 and set(stacked) <= {(5,), (5, 4, 6)}  # values and inputs, no products (5, 4, 9)
