"""Every sentence loss against sentence-transformers': value and gradient, on random vectors."""

import inspect
import re

import keras
import numpy as np
import pytest
from sentence_loss_cases import CLASSES, ROWS, SCORES, WIDTH, agree, numbers, reference, torch, value_and_gradient

import bertzoo.losses
from bertzoo.losses import (
    GIST,
    AdaptiveLayer,
    AnglE,
    BatchAllTriplet,
    BatchHardSoftMarginTriplet,
    BatchHardTriplet,
    BatchSemiHardTriplet,
    Contrastive,
    CoSENT,
    CosineRegression,
    EmbeddingDistillation,
    GlobalOrthogonalRegularization,
    KLDistillation,
    MarginMSE,
    Matryoshka,
    MegaBatchMargin,
    MultipleNegativesRanking,
    MultiVectorMultipleNegativesRanking,
    OnlineContrastive,
    SoftmaxOfPairs,
    SpladeLoss,
    Triplet,
    in_batch,
    score_order,
)
from bertzoo.losses.in_batch import DIRECTIONS, HARDNESS_MODES
from bertzoo.losses.names import get_sentence_loss

TOGETHER = np.array([1, 0, 0, 1, 1, 0, 1], "float32")


class WithRegularization(torch.nn.Module):
    """A loss of sentence-transformers plus its regularization, whose terms come as a dict."""

    def __init__(self, loss, model, **options):
        from sentence_transformers.sentence_transformer import losses

        super().__init__()
        self.loss, self.added = loss, losses.GlobalOrthogonalRegularizationLoss(model, **options)

    def forward(self, features, labels):
        return self.loss(features, labels) + sum(self.added(features, labels).values())


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
        MultipleNegativesRanking(directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"),
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
    "all directions": (
        MultipleNegativesRanking(directions=DIRECTIONS),
        lambda st, m: st.MultipleNegativesRankingLoss(m, directions=DIRECTIONS),
        4,
        None,
    ),
    **{
        f"hardness, {mode}": (
            MultipleNegativesRanking(hardness_mode=mode, hardness_strength=3.0),
            lambda st, m, mode=mode: st.MultipleNegativesRankingLoss(m, hardness_mode=mode, hardness_strength=3.0),
            4,
            None,
        )
        for mode in HARDNESS_MODES
    },
    "angle": (AnglE(), lambda st, m: st.AnglELoss(m), 2, SCORES),
    "contrastive": (Contrastive(), lambda st, m: st.ContrastiveLoss(m), 2, TOGETHER),
    "contrastive by length": (
        Contrastive(5.0, "euclidean"),
        lambda st, m: st.ContrastiveLoss(m, st.SiameseDistanceMetric.EUCLIDEAN, 5.0),
        2,
        TOGETHER,
    ),
    "contrastive, manhattan": (
        Contrastive(15.0, "manhattan"),
        lambda st, m: st.ContrastiveLoss(m, st.SiameseDistanceMetric.MANHATTAN, 15.0),
        2,
        TOGETHER,
    ),
    "online contrastive": (OnlineContrastive(), lambda st, m: st.OnlineContrastiveLoss(m), 2, TOGETHER),
    "online contrastive, one kind": (
        OnlineContrastive(1.5),
        lambda st, m: st.OnlineContrastiveLoss(m, margin=1.5),
        2,
        np.zeros_like(TOGETHER),
    ),
    "mega batch": (
        MegaBatchMargin(),
        lambda st, m: st.MegaBatchMarginLoss(m, use_mini_batched_version=False),
        2,
        None,
    ),
    "kl": (KLDistillation(), lambda st, m: st.DistillKLDivLoss(m), 4, numbers(ROWS, 3)),
    "kl at temperatures": (
        KLDistillation(2.0, 0.5),
        lambda st, m: st.DistillKLDivLoss(m, student_temperature=2.0, teacher_temperature=0.5),
        3,
        numbers(ROWS, 2),
    ),
    "2d matryoshka's widths": (
        Matryoshka(GlobalOrthogonalRegularization("cosent"), [16, 4]),
        lambda st, m: st.MatryoshkaLoss(m, WithRegularization(st.CoSENTLoss(m), m), [16, 4]),
        2,
        SCORES,
    ),
    "orthogonal": (
        GlobalOrthogonalRegularization(mean_weight=3.0, second_moment_weight=0.5, aggregation="sum"),
        lambda st, m: WithRegularization(
            st.MultipleNegativesRankingLoss(m), m, mean_weight=3.0, second_moment_weight=0.5, aggregation="sum"
        ),
        3,
        None,
    ),
    **{
        f"{name} by {distance}": (
            ours(*margin, distance=distance),
            lambda st, m, name=name, distance=distance, margin=margin: getattr(st, f"{name}Loss")(
                m, getattr(st.BatchHardTripletLossDistanceFunction, f"{distance}_distance"), *margin
            ),
            1,
            CLASSES,
        )
        for name, ours, margin in (
            ("BatchAllTriplet", BatchAllTriplet, (0.7,)),
            ("BatchHardTriplet", BatchHardTriplet, (0.7,)),
            ("BatchHardSoftMarginTriplet", BatchHardSoftMarginTriplet, ()),
            ("BatchSemiHardTriplet", BatchSemiHardTriplet, (0.7,)),
        )
        for distance in ("euclidean", "cosine")
    },
}


@pytest.mark.parametrize("case", CASES)
def test_value_and_gradient_are_those_of_sentence_transformers(case):
    loss, make_reference, columns, targets = CASES[case]
    vectors = numbers(ROWS, columns, WIDTH)
    agree(value_and_gradient(loss, vectors, targets), reference(make_reference, vectors, targets))


@pytest.mark.parametrize("margin", [("absolute", 0.0), ("absolute", 0.3), ("relative", 0.4)], ids=str)
@pytest.mark.parametrize("columns", [2, 3])
def test_gist_leaves_out_what_its_guide_holds_nearer_as_in_sentence_transformers(columns, margin):
    vectors, guides = numbers(ROWS, columns, WIDTH), numbers(ROWS, columns, 5)
    guides[:, 1] += 1.5 * guides[:, 0]  # so that positives are near, and some negatives are nearer
    only_negatives = dict(contrast_anchors=columns == 3, contrast_positives=columns == 2)
    loss = GIST(0.1, *margin, **only_negatives)
    actual = value_and_gradient(loss, vectors, guides)
    agree(actual, gist_reference(vectors, guides, temperature=0.1, strategy=margin, options=only_negatives))
    unguided = value_and_gradient(GIST(0.1, "absolute", -3.0, **only_negatives), vectors, guides)
    assert actual[0] < unguided[0] - 1e-3


def gist_reference(vectors, guides, temperature, strategy, options):
    from sentence_transformers.sentence_transformer.losses import GISTEmbedLoss
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    class Model(torch.nn.Module):
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"[UNK]": 0}, "[UNK]")))
        max_seq_length = 8

        def __init__(self, name):
            super().__init__()
            self.name = name

        def forward(self, features):
            return {"sentence_embedding": features[self.name]}

    loss = GISTEmbedLoss(
        Model("vectors"), Model("guide"), temperature, margin_strategy=strategy[0], margin=strategy[1], **options
    )
    columns = [torch.tensor(vectors[:, i], requires_grad=True) for i in range(vectors.shape[1])]
    features = [{"vectors": x, "guide": torch.tensor(guides[:, i])} for i, x in enumerate(columns)]
    value = loss(features, None)
    value.backward()
    return value.item(), np.stack([column.grad.numpy() for column in columns], axis=1)


BLOCKWISE = ("negatives", "all directions", "hardness, all_negatives", "cosent", "angle", "mega batch")


@pytest.mark.parametrize("case", BLOCKWISE)
def test_losses_in_blocks_are_those_in_one(case, monkeypatch):
    loss, _, columns, targets = CASES[case]
    vectors = numbers(ROWS, columns, WIDTH)
    expected = value_and_gradient(loss, vectors, targets)
    for module in (in_batch, score_order):
        monkeypatch.setattr(module, "ROWS_AT_ONCE", 3)  # of seven: the last block is filled up
    agree(value_and_gradient(loss, vectors, targets), expected)


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


@pytest.mark.parametrize("wrapper", [Matryoshka, GlobalOrthogonalRegularization, SpladeLoss, AdaptiveLayer])
@pytest.mark.parametrize("inner", [AdaptiveLayer, SpladeLoss])
def test_losses_that_need_more_of_the_task_than_vectors_can_not_be_wrapped(wrapper, inner):
    options = {"dimensions": [8]} if wrapper is Matryoshka else {}
    with pytest.raises(ValueError, match=f"{wrapper.__name__} can't wrap {inner.__name__}") as error:
        wrapper(inner(), **options)
    both = wrapper in (AdaptiveLayer, SpladeLoss)
    assert ("leave one of them out" if both else f"put {inner.__name__} outside") in str(error.value)


@pytest.mark.parametrize("wrapper", [AdaptiveLayer, GlobalOrthogonalRegularization])
def test_losses_of_token_vectors_are_refused_where_texts_have_one_vector(wrapper):
    name = wrapper.__name__
    with pytest.raises(ValueError, match=f"{name} needs a loss of one vector a text. Received: MultiVectorMultiple"):
        wrapper(MultiVectorMultipleNegativesRanking())


@pytest.mark.parametrize("texts", [2, 4])
def test_gist_refuses_vectors_of_its_guide_for_other_texts(texts):
    with pytest.raises(ValueError, match=f"targets must be the guide's vectors of 3 texts. Received: {texts}"):
        GIST()(numbers(ROWS, texts, 5), numbers(ROWS, 3, WIDTH))


@pytest.mark.parametrize("name", bertzoo.losses.__all__)
def test_documented_arguments_are_those_of_the_constructor(name):
    loss = getattr(bertzoo.losses, name)
    block = re.search(r"\n    Args:\n(.*?)(?=\n    \S|\Z)", loss.__doc__, re.DOTALL)
    documented = re.findall(r"^        (\w[\w, ]*):", block[1], re.MULTILINE) if block else []
    names = {argument for line in documented for argument in line.split(", ")}
    assert names <= set(inspect.signature(loss).parameters)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="loss must be one of cosine, cosent"):
        get_sentence_loss("cosin")
    with pytest.raises(ValueError, match="distance must be one of euclidean, manhattan, cosine. Received: 'dot'"):
        Triplet(distance="dot")
    with pytest.raises(ValueError, match="distance must be one of euclidean, cosine. Received: 'manhattan'"):
        BatchHardTriplet(distance="manhattan")
    with pytest.raises(ValueError, match="directions must be query_to_doc and any of"):
        MultipleNegativesRanking(directions=("doc_to_query",))
    with pytest.raises(ValueError, match='need partition_mode="joint"'):
        MultipleNegativesRanking(directions=DIRECTIONS, partition_mode="per_direction")
    with pytest.raises(ValueError, match="hardness_mode must be None or one of"):
        MultipleNegativesRanking(hardness_mode="all")
    with pytest.raises(ValueError, match="y must be 1 for pairs that belong together"):
        Contrastive().check_targets(SCORES, WIDTH)
    for loss in (CosineRegression(), CoSENT(), AnglE(), SoftmaxOfPairs(), Matryoshka("cosent", [8])):
        with pytest.raises(ValueError, match=rf"{type(loss).__name__} takes one target .* shape \({ROWS}, 2\)"):
            loss.check_target_shape(numbers(ROWS, 2))
        loss.check_target_shape(numbers(ROWS))
    KLDistillation().check_target_shape(numbers(ROWS, 2))
    with pytest.raises(ValueError, match="y must hold the guide's vectors"):
        GIST().check_targets(numbers(ROWS, WIDTH), WIDTH)
    with pytest.raises(ValueError, match="an even width. Received: 7"):
        AnglE().build_for_width(7, 0.02)
    with pytest.raises(ValueError, match="targets must be 2 scores"):
        KLDistillation()(numbers(ROWS, 3), numbers(ROWS, 3, WIDTH))
    with pytest.raises(ValueError, match="loss must have no dense layer of its own. Received: SoftmaxOfPairs"):
        Matryoshka("softmax", [8])
    with pytest.raises(ValueError, match=r"at most the vectors' width, 16. Received: \[32\]"):
        Matryoshka("cosent", [32]).build_for_width(16, 0.02)
    for dimensions in ([], [8, 0]):
        with pytest.raises(ValueError, match="positive widths, at least one"):
            Matryoshka("cosent", dimensions)
    with pytest.raises(ValueError, match="weights must be as many as dimensions, 2. Received: 1"):
        Matryoshka("cosent", [8, 4], [1.0])
    with pytest.raises(ValueError, match="distance must be one of mse"):
        EmbeddingDistillation("manhattan")
    with pytest.raises(ValueError, match="targets must be 1 margins or 2 scores"):
        MarginMSE()(numbers(ROWS, 4), numbers(ROWS, 3, WIDTH))
