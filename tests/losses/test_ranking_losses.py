"""Every loss of rerankers against sentence-transformers': value and gradient, of lists of unlike lengths."""

import keras
import numpy as np
import pytest
from sentence_loss_cases import agree, torch, value_and_gradient

from bertzoo.losses import (
    ADRMSE,
    LambdaLoss,
    ListMLE,
    ListNet,
    ListwiseCrossentropy,
    PListMLE,
    RankNet,
    ScoreMarginMSE,
)

st = pytest.importorskip("sentence_transformers.cross_encoder")
RNG = np.random.default_rng(0)
SIZES = [5, 2, 4, 1, 3]
SCORES = RNG.normal(size=(5, 5)).astype("float32")
GRADES = [[3.0, 0.0, 1.0, 0.0, 2.0], [1.0, 0.0], [0.0, 2.0, 2.0, 1.0], [1.0], [0.0, 0.0, 1.0]]
SORTED = [sorted(RNG.normal(size=size).tolist(), reverse=True) for size in SIZES]
SHUFFLED = [RNG.permutation(row).tolist() for row in SORTED]


class FakeReranker(st.CrossEncoder):
    """Its scores are parameters: of query "i" and document "j", scores[i, j]."""

    num_labels = 1
    device = "cpu"

    def __init__(self, scores):
        torch.nn.Module.__init__(self)
        self.scores = torch.nn.Parameter(torch.tensor(scores))

    def preprocess(self, pairs, **options):
        return {"pairs": torch.tensor([[int(query), int(document)] for query, document in pairs])}

    def forward(self, features):
        return {"scores": self.scores[tuple(features["pairs"].T)][:, None]}


def reference(make, labels):
    from sentence_transformers.cross_encoder import losses

    model = FakeReranker(SCORES)
    documents = [[str(j) for j in range(size)] for size in SIZES]
    value = make(losses, model)([list(map(str, range(len(SIZES)))), documents], list(map(torch.tensor, labels)))
    value.backward()
    return value.item(), model.scores.grad.numpy()


def padded(labels):
    targets = np.full(SCORES.shape, np.nan, "float32")
    for row, values in zip(targets, labels):
        row[: len(values)] = values
    return targets


WEIGHTINGS = {
    None: "NoWeightingScheme",
    "ndcg1": "NDCGLoss1Scheme",
    "ndcg2": "NDCGLoss2Scheme",
    "lambdarank": "LambdaRankScheme",
    "ndcg2++": "NDCGLoss2PPScheme",
}
CASES = {
    **{
        f"lambda {ours}, k={k}": (
            LambdaLoss(ours, k=k, sigma=1.5),
            lambda st, m, k=k, theirs=theirs: st.LambdaLoss(m, getattr(st, theirs)(), k=k, sigma=1.5),
            GRADES,
        )
        for ours, theirs in WEIGHTINGS.items()
        for k in (None, 2)
    },
    "ndcg2++, mu": (LambdaLoss(mu=3.0), lambda st, m: st.LambdaLoss(m, st.NDCGLoss2PPScheme(3.0)), GRADES),
    "ranknet": (RankNet(), lambda st, m: st.RankNetLoss(m), GRADES),
    "listnet": (ListNet(), lambda st, m: st.ListNetLoss(m), GRADES),
    "listmle": (ListMLE(), lambda st, m: st.ListMLELoss(m), SORTED),
    "listmle by labels": (
        ListMLE(respect_input_order=False),
        lambda st, m: st.ListMLELoss(m, respect_input_order=False),
        SHUFFLED,
    ),
    "plistmle": (PListMLE(), lambda st, m: st.PListMLELoss(m), SORTED),
    "plistmle by labels": (
        PListMLE(respect_input_order=False),
        lambda st, m: st.PListMLELoss(m, respect_input_order=False),
        SHUFFLED,
    ),
    "adr-mse": (ADRMSE(2.0), lambda st, m: st.ADRMSELoss(m, alpha=2.0), GRADES),
}


@pytest.mark.parametrize("case", CASES)
def test_value_and_gradient_are_those_of_sentence_transformers(case):
    loss, make_reference, labels = CASES[case]
    agree(value_and_gradient(loss, SCORES, padded(labels)), reference(make_reference, labels))


@pytest.mark.parametrize("labels", [4, 3], ids=["scores", "margins"])
def test_margins_are_those_of_sentence_transformers(labels):
    from sentence_transformers.cross_encoder import losses

    model, targets = FakeReranker(SCORES), RNG.normal(size=(5, labels)).astype("float32")
    queries = list(map(str, range(5)))
    columns = [[str(j)] * 5 for j in range(4)]
    value = losses.MarginMSELoss(model)([queries, *columns], torch.tensor(targets))
    value.backward()
    expected = value.item(), model.scores.grad.numpy()[:, :4]
    agree(value_and_gradient(ScoreMarginMSE(), SCORES[:, :4], targets), expected)


@pytest.mark.parametrize(("activation", "scale"), [("sigmoid", 10.0), ("linear", 2.0)])
def test_crossentropy_of_a_list_is_that_of_sentence_transformers(activation, scale):
    from sentence_transformers.cross_encoder import losses

    function = {"sigmoid": torch.nn.Sigmoid(), "linear": torch.nn.Identity()}[activation]
    scores = torch.tensor(SCORES, requires_grad=True)
    loss = losses.MultipleNegativesRankingLoss(FakeReranker(SCORES), scale=scale, activation_fn=function)
    value = loss.calculate_loss(list(scores.T), len(SCORES))  # a column for the positives, then one for each negative
    value.backward()
    ours = ListwiseCrossentropy(scale=scale, activation=activation)
    agree(value_and_gradient(ours, SCORES, np.zeros_like(SCORES)), (value.item(), scores.grad.numpy()))


def test_documents_that_are_none_have_no_part_in_it():
    for loss in (*(case[0] for case in CASES.values()), ListwiseCrossentropy()):
        labels = padded(SORTED)
        value, gradient = value_and_gradient(loss, SCORES, labels)
        changed = np.where(np.isnan(labels), 100.0, SCORES).astype("float32")
        again, _ = value_and_gradient(loss, changed, labels)
        assert again == pytest.approx(value, rel=1e-6)
        assert (gradient[np.isnan(labels)] == 0).all() and np.isfinite(gradient).all()


@pytest.mark.parametrize("case", CASES)
def test_losses_are_serialised_whole(case):
    loss = CASES[case][0]
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert type(again) is type(loss) and again.get_config() == loss.get_config()


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="weighting must be one of None, ndcg1.*Received: 'ndcg'"):
        LambdaLoss("ndcg")
    with pytest.raises(ValueError, match="activation must be one of linear, sigmoid, tanh"):
        ListwiseCrossentropy(activation="relu")
    with pytest.raises(ValueError, match="num_negatives must be 0 or more. Received: -1"):
        ListwiseCrossentropy(num_negatives=-1)
    with pytest.raises(ValueError, match="k must be at least 1, or None. Received: 0"):
        LambdaLoss(k=0)
