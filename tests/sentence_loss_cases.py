"""Values and gradients of losses of vectors: sentence-transformers', and ours on the backend in use."""

import keras
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

ROWS, WIDTH = 7, 16
RNG = np.random.default_rng(0)
SCORES = RNG.random(ROWS).astype("float32")
SCORES[3] = SCORES[4]
CLASSES = np.array([0, 1, 2, 0, 1, 2, 2], "int32")


class FakeModel(torch.nn.Module):
    """Its vectors are its inputs."""

    device = "cpu"

    def get_embedding_dimension(self):
        return WIDTH

    def forward(self, features):
        return {"sentence_embedding": features["vectors"]}


def numbers(*shape):
    return RNG.normal(size=shape).astype("float32")


def reference(make, vectors, targets):
    """Value and gradient of one of sentence-transformers' losses."""
    from sentence_transformers.sentence_transformer import losses

    loss = make(losses, FakeModel())
    columns = [torch.tensor(vectors[:, i], requires_grad=True) for i in range(vectors.shape[1])]
    targets = None if targets is None else torch.tensor(targets)
    value = loss([{"vectors": column} for column in columns], targets.long() if _whole(targets) else targets)
    value.backward()
    return value.item(), np.stack([column.grad.numpy() for column in columns], axis=1)


def _whole(targets):
    return targets is not None and targets.dtype == torch.int32


def value_and_gradient(loss, vectors, targets):
    """The same of ours, on this backend."""
    targets = np.zeros(len(vectors), "float32") if targets is None else targets
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        value, gradient = jax.value_and_grad(lambda x: loss(targets, x))(vectors)
    elif backend == "torch":
        x = keras.ops.convert_to_tensor(vectors).detach().requires_grad_()
        value = loss(targets, x)
        value.backward()
        gradient = x.grad
    else:
        import tensorflow as tf

        x = tf.constant(vectors)
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = loss(targets, x)
        gradient = tape.gradient(value, x)
    return float(keras.ops.convert_to_numpy(value)), keras.ops.convert_to_numpy(gradient)


def agree(actual, expected):
    assert actual[0] == pytest.approx(expected[0], abs=1e-5 * max(1, abs(expected[0])))
    assert np.abs(actual[1] - expected[1]).max() <= 1e-4
