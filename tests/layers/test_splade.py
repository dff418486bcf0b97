"""SpladePooling against sentence-transformers, its gradients against PyTorch's, and how much it holds."""

import keras
import numpy as np
import pytest
from keras import ops

from bertzoo.layers import SparseStaticEmbedding, SpladePooling, splade

RNG = np.random.default_rng(0)
BATCH, LENGTH, WIDTH, WORDS = 3, 70, 6, 50
X = RNG.normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
TABLE = RNG.normal(size=(WORDS, WIDTH)).astype("float32")
BIAS = RNG.normal(size=WORDS).astype("float32")
LENGTHS = np.array([70, 33, 1])
MASK = (np.arange(LENGTH) < LENGTHS[:, None]).astype("int32")
FORMS = [("max", "relu"), ("max", "log1p_relu"), ("sum", "relu"), ("sum", "log1p_relu")]


@pytest.fixture(params=["at once", "in parts"])
def parts(request, monkeypatch):
    if request.param == "in parts":  # of 17 words, the last of 16
        monkeypatch.setattr(splade, "LOGITS_AT_ONCE", 20 * BATCH * LENGTH)
    return request.param


def value_and_gradients(backend, function, *arrays):
    """A scalar function of tensors -> its value and its gradients."""
    if backend == "jax":
        import jax

        return jax.jit(jax.value_and_grad(function, argnums=tuple(range(len(arrays)))))(*arrays)
    if backend == "torch":
        tensors = [ops.convert_to_tensor(array).requires_grad_() for array in arrays]
        value = function(*tensors)
        value.backward()
        return value.detach(), [tensor.grad for tensor in tensors]
    import tensorflow as tf

    tensors = [tf.constant(array) for array in arrays]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = tf.function(function)(*tensors)
    return value, tape.gradient(value, tensors)


@pytest.mark.parametrize(("pooling", "activation"), FORMS)
def test_values_and_gradients_are_those_of_sentence_transformers(pooling, activation, parts, backend, numpy, close):
    torch = pytest.importorskip("torch")
    modules = pytest.importorskip("sentence_transformers.sparse_encoder.modules")
    layer = SpladePooling(pooling, activation)
    weights = RNG.normal(size=(BATCH, WORDS)).astype("float32")

    def total(x, table, bias):
        return ops.sum(layer(x, table, bias, MASK) * ops.convert_to_tensor(weights))

    value, gradients = value_and_gradients(backend, total, X, TABLE, BIAS)
    x, table, bias = (torch.tensor(array, requires_grad=True) for array in (X, TABLE, BIAS))
    logits = x @ table.T + bias
    features = {"token_embeddings": logits, "attention_mask": torch.tensor(MASK)}
    expected = modules.SpladePooling(pooling, activation).train()(features)["sentence_embedding"]
    close(numpy(layer(X, TABLE, BIAS, MASK)), expected.detach().numpy())
    (expected * torch.tensor(weights)).sum().backward()
    close(numpy(value), (expected.detach().numpy() * weights).sum(), 1e-4)
    for gradient, reference in zip(gradients, (x, table, bias)):
        close(numpy(gradient), reference.grad.numpy(), 1e-4)


@pytest.mark.parametrize(("pooling", "activation"), FORMS[::3])
def test_padding_of_packed_texts_is_left_out(pooling, activation, parts, backend, numpy, close):
    layer = SpladePooling(pooling, activation)
    weights = RNG.normal(size=(BATCH, WORDS)).astype("float32")

    def total(x, table, packed):
        return ops.sum(layer(x, table, BIAS, MASK, num_packed_tokens=packed) * ops.convert_to_tensor(weights))

    plain = value_and_gradients(backend, lambda x, table: total(x, table, None), X, TABLE)
    packed = value_and_gradients(backend, lambda x, table: total(x, table, 110), X, TABLE)
    close(numpy(packed[0]), numpy(plain[0]))
    for gradient, expected in zip(packed[1], plain[1]):
        close(numpy(gradient), numpy(expected))
    blocks = splade._real_blocks(ops.convert_to_tensor(X), ops.convert_to_tensor(MASK > 0), 110)[0]
    assert blocks.shape == (6, splade.BLOCK, WIDTH)  # at most 110 // 32 + 3; padded they would be 9


def largest_intermediate(backend, function, *arrays):
    """The most elements of an array that the gradient of a scalar function computes (JAX) or stores (PyTorch)."""
    if backend == "jax":
        import jax

        def sizes(jaxpr):
            for equation in jaxpr.eqns:
                yield from (int(np.prod(out.aval.shape)) for out in equation.outvars)
                for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")):
                    if hasattr(inner, "jaxpr") or hasattr(inner, "eqns"):
                        yield from sizes(getattr(inner, "jaxpr", inner))

        return max(sizes(jax.make_jaxpr(jax.grad(function, argnums=(0, 1)))(*arrays).jaxpr))
    import torch

    stored = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: stored.append(t.numel()) or t, lambda t: t):
        function(*(ops.convert_to_tensor(array).requires_grad_() for array in arrays)).backward()
    return max(stored)


def test_the_logits_of_all_tokens_are_never_held(backend, monkeypatch):
    if backend == "tensorflow":
        pytest.skip("its recomputation is that of keras.remat; graphs do not tell what they store")
    monkeypatch.setattr(splade, "LOGITS_AT_ONCE", BATCH * LENGTH * 10)
    for form in FORMS:
        layer = SpladePooling(*form)

        def total(x, table, layer=layer):
            return ops.sum(layer(x, table, BIAS, MASK))

        assert largest_intermediate(backend, total, X, TABLE) <= BATCH * LENGTH * 10 < BATCH * LENGTH * WORDS


def test_mistakes_are_named_and_layers_are_serialised():
    for wrong in (("mean", "relu"), ("max", "gelu")):
        with pytest.raises(ValueError, match="Expected a pooling of max, sum"):
            SpladePooling(*wrong)
    layer = SpladePooling("sum", "log1p_relu")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert (again.pooling, again.activation) == ("sum", "log1p_relu")


def test_static_weights_are_those_of_the_words_that_there_are(numpy, close):
    """By the formula: present words times their weights."""
    layer, ids = SparseStaticEmbedding(WORDS), np.array([[3, 7, -1], [0, -1, -1], [-1, -1, -1]], "int32")
    layer.weight.assign(BIAS)
    present = np.zeros((3, WORDS), "float32")
    present[[0, 0, 1], [3, 7, 0]] = 1
    close(numpy(layer(ids)), present * BIAS)
    assert layer.trainable_weights and not SparseStaticEmbedding(WORDS, frozen=True).trainable_weights
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert (again.vocab_size, again.frozen) == (WORDS, False)
