"""Every sentence loss against sentence-transformers': value and gradient, on random vectors."""

import keras
import numpy as np
import pytest

from bertzoo.losses import (
    CoSENT,
    CosineRegression,
    EmbeddingDistillation,
    MarginMSE,
    Matryoshka,
    MultipleNegativesRanking,
    SoftmaxOfPairs,
    Triplet,
)
from bertzoo.losses.names import get_sentence_loss

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


CASES = {
    "cosine": (CosineRegression(), lambda st, m: st.CosineSimilarityLoss(m), 2, SCORES),
    "cosent": (CoSENT(), lambda st, m: st.CoSENTLoss(m), 2, SCORES),
    "triplet": (Triplet(), lambda st, m: st.TripletLoss(m), 3, None),
    "triplet cosine": (
        Triplet(0.5, "cosine"),
        lambda st, m: st.TripletLoss(m, st.TripletDistanceMetric.COSINE, 0.5),
        3,
        None,
    ),
    "negatives": (MultipleNegativesRanking(), lambda st, m: st.MultipleNegativesRankingLoss(m), 2, None),
    "hard negatives": (MultipleNegativesRanking(), lambda st, m: st.MultipleNegativesRankingLoss(m), 5, None),
    "symmetric": (
        MultipleNegativesRanking(symmetric=True),
        lambda st, m: st.MultipleNegativesRankingLoss(
            m, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"
        ),
        3,
        None,
    ),
    "margin": (MarginMSE(), lambda st, m: st.MarginMSELoss(m), 3, SCORES),
    "margins": (MarginMSE(), lambda st, m: st.MarginMSELoss(m), 5, numbers(ROWS, 3)),
    "margins of scores": (MarginMSE(), lambda st, m: st.MarginMSELoss(m), 5, numbers(ROWS, 4)),
    "distillation": (EmbeddingDistillation(), lambda st, m: st.MSELoss(m), 2, numbers(ROWS, WIDTH)),
    "distillation, one text": (EmbeddingDistillation(), lambda st, m: st.MSELoss(m), 1, numbers(ROWS, WIDTH)),
    "distillation by column": (
        EmbeddingDistillation("cosine"),
        lambda st, m: st.EmbedDistillLoss(m, "cosine"),
        2,
        numbers(ROWS, 2, WIDTH),
    ),
    "distillation by length": (
        EmbeddingDistillation("euclidean"),
        lambda st, m: st.EmbedDistillLoss(m, "l2"),
        2,
        numbers(ROWS, WIDTH),
    ),
    "matryoshka": (
        Matryoshka("multiple_negatives", [16, 8, 4], [1, 0.5, 2]),
        lambda st, m: st.MatryoshkaLoss(m, st.MultipleNegativesRankingLoss(m), [16, 8, 4], [1, 0.5, 2]),
        3,
        None,
    ),
    "matryoshka of scores": (
        Matryoshka("cosent", [16, 4]),
        lambda st, m: st.MatryoshkaLoss(m, st.CoSENTLoss(m), [16, 4]),
        2,
        SCORES,
    ),
    "matryoshka of vectors": (
        Matryoshka("distillation", [16, 4]),
        lambda st, m: st.MatryoshkaLoss(m, st.MSELoss(m), [16, 4]),
        2,
        numbers(ROWS, WIDTH),
    ),
}


def agree(actual, expected):
    assert actual[0] == pytest.approx(expected[0], abs=1e-5 * max(1, abs(expected[0])))
    assert np.abs(actual[1] - expected[1]).max() <= 1e-4


@pytest.mark.parametrize("case", CASES)
def test_value_and_gradient_are_those_of_sentence_transformers(case):
    loss, make_reference, columns, targets = CASES[case]
    vectors = numbers(ROWS, columns, WIDTH)
    agree(value_and_gradient(loss, vectors, targets), reference(make_reference, vectors, targets))


def with_kernel(loss, layer_of):
    """A reference whose dense layer has our head's weights."""

    def make(st, model):
        hf_loss = layer_of[0](st, model)
        linear = getattr(hf_loss, layer_of[1])
        with torch.no_grad():
            linear.weight.copy_(torch.tensor(keras.ops.convert_to_numpy(loss.head.kernel).T.copy()))
            linear.bias.zero_()
        return hf_loss

    return make


def test_softmax_of_pairs_and_distillation_to_another_width_train_a_dense_layer_as_theirs():
    vectors = numbers(ROWS, 2, WIDTH)
    for loss, layer, targets in (
        (SoftmaxOfPairs(3), (lambda st, m: st.SoftmaxLoss(m, WIDTH, 3), "classifier"), CLASSES),
        (
            EmbeddingDistillation("mse", teacher_width=5),
            (lambda st, m: st.MSELoss(m, projection_dim=5), "projection"),
            numbers(ROWS, 5),
        ),
    ):
        loss.build_for_width(WIDTH, 0.5)
        agree(value_and_gradient(loss, vectors, targets), reference(with_kernel(loss, layer), vectors, targets))


def test_gradients_are_finite_where_two_vectors_are_the_same():
    vectors = np.repeat(numbers(ROWS, 1, WIDTH), 3, axis=1)
    for loss in (Triplet(), Triplet(0.1, "cosine"), EmbeddingDistillation("euclidean")):
        targets = vectors[:, 0] if loss.target else None
        value, gradient = value_and_gradient(loss, vectors, targets)
        assert np.isfinite(value) and np.isfinite(gradient).all()


@pytest.mark.parametrize("case", [*CASES, "softmax"])
def test_losses_are_serialised_whole(case):
    loss = get_sentence_loss("softmax") if case == "softmax" else CASES[case][0]
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert type(again) is type(loss) and again.get_config() == loss.get_config()


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="loss must be one of cosine, cosent"):
        get_sentence_loss("cosin")
    with pytest.raises(ValueError, match="distance must be"):
        Triplet(distance="manhattan")
    with pytest.raises(ValueError, match="has a dense layer for one width"):
        Matryoshka("softmax", [8])
    with pytest.raises(ValueError, match="the vectors are 16 wide"):
        Matryoshka("cosent", [32]).build_for_width(16, 0.02)
    for dimensions in ([], [8, 0]):
        with pytest.raises(ValueError, match="positive widths, at least one"):
            Matryoshka("cosent", dimensions)
    with pytest.raises(ValueError, match="2 dimensions and 1 weights"):
        Matryoshka("cosent", [8, 4], [1.0])
    with pytest.raises(ValueError, match='distance must be "mse"'):
        EmbeddingDistillation("manhattan")
    with pytest.raises(ValueError, match="targets must be 1 margins or 2 scores"):
        MarginMSE()(numbers(ROWS, 4), numbers(ROWS, 3, WIDTH))
