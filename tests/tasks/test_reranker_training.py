"""Training of CrossEncoder with lists of documents: forms of input, losses, mistakes."""

import keras
import numpy as np
import pandas
import pytest

import bertzoo as bz
from bertzoo.data.parsing import parse_inputs
from bertzoo.data.ranking_data import draw_negatives
from bertzoo.data.schemas import RANKINGS
from bertzoo.losses import ADRMSE, LambdaLoss, ListMLE, ListNet, ListwiseCrossentropy, RankNet, ScoreMarginMSE

QUERIES = ["a good film", "the plot", "we saw it in paris", "never again !"]
DOCUMENTS = [
    ["a great story", "dull and bad", "rome"],
    ["the plot was dull and bad, and the actor was not very good", "with friends"],
    ["in paris with friends"],
    ["never !", "a film", "a good story", "we saw it"],
]
LABELS = [[2.0, 0.0, 1.0], [1.0, 0.0], [1.0], [3.0, 1.0, 0.0, 0.0]]


@pytest.fixture(scope="module")
def preset(write_checkpoint):
    return write_checkpoint("BertForSequenceClassification", num_labels=1, num_hidden_layers=1)[0]


@pytest.fixture
def trainable(preset, eager):
    def compiled(loss, **options):
        model = bz.CrossEncoder.from_preset(preset, verbose=False, dropout=0.0)
        model.compile(bz.AdamW(1e-3, warmup=0.0, schedule="constant"), loss, run_eagerly=eager, **options)
        return model

    return compiled


FORMS = {
    "columns": lambda: ((QUERIES, DOCUMENTS), LABELS),
    "rows": lambda: (list(zip(QUERIES, DOCUMENTS)), LABELS),
    "frame": lambda: (pandas.DataFrame({"query": QUERIES, "docs": DOCUMENTS, "labels": LABELS}), None),
    "records": lambda: (
        [{"question": q, "documents": d, "labels": y} for q, d, y in zip(QUERIES, DOCUMENTS, LABELS)],
        None,
    ),
}


@pytest.mark.parametrize("form", [pytest.param(f, marks=[pytest.mark.once] * (f != "columns")) for f in FORMS])
def test_fit_takes_lists_in_every_form(form, trainable):
    model = trainable(ListNet())
    x, y = FORMS[form]()
    before = model.evaluate(x, y, batch_size=2, verbose=0)
    cross_entropies = []
    for query, documents, labels in zip(QUERIES, DOCUMENTS, LABELS):
        scores = model.predict([(query, text) for text in documents], activation="linear").astype("float64")
        target = np.exp(labels) / np.exp(labels).sum()
        cross_entropies.append(-(target * (scores - np.log(np.exp(scores).sum()))).sum())
    assert before == pytest.approx(np.mean(cross_entropies), rel=1e-5)
    model.fit(x, y, epochs=12, batch_size=2, verbose=0)
    assert model.evaluate(x, y, verbose=0) < before - 0.1


@pytest.mark.once
@pytest.mark.parametrize(
    "loss",
    [LambdaLoss(), RankNet(), ListMLE(False), ADRMSE(), ListwiseCrossentropy(2), ListwiseCrossentropy(0)],
    ids=str,
)
def test_every_loss_trains(loss, trainable):
    model = trainable(loss)
    y = LABELS if loss.target else None
    history = model.fit((QUERIES, DOCUMENTS), y, epochs=12, batch_size=4, verbose=0).history["loss"]
    assert history[-1] < history[0]


def test_columns_of_positives_and_negatives_train_by_a_teachers_scores(trainable):
    columns = {
        "query": QUERIES,
        "positive": [texts[0] for texts in DOCUMENTS],
        "negative_1": ["rome"] * 4,
        "negative_2": ["a film"] * 4,
    }
    model, teacher = trainable(ScoreMarginMSE()), np.random.default_rng(0).normal(size=(4, 3))
    scores = np.stack(
        [model.predict((QUERIES, columns[name]), activation="linear") for name in list(columns)[1:]], axis=1
    )
    margins, expected = scores[:, :1] - scores[:, 1:], teacher[:, :1] - teacher[:, 1:]
    for y in (teacher, expected):
        assert model.evaluate(columns, y.tolist(), verbose=0) == pytest.approx(
            np.mean((margins - expected) ** 2), rel=1e-4
        )


@pytest.mark.once
def test_negatives_are_drawn_from_other_queries_by_the_seed():
    queries = [f"query {i // 2}" for i in range(40)]
    documents = [[f"right {i}", f"wrong {i}"] for i in range(40)]
    examples = parse_inputs((queries, documents), schema=RANKINGS)
    drawn = draw_negatives(examples, 5, seed=3)
    for i, texts in enumerate(drawn):
        own = {text for j in range(40) if queries[j] == queries[i] for text in documents[j]}
        assert texts[:2] == documents[i] and len(texts) == 7 and not own & set(texts[2:])
    assert drawn == draw_negatives(examples, 5, seed=3) != draw_negatives(examples, 5, seed=4)
    assert len({text for texts in drawn for text in texts[2:]}) > 60  # of 80
    few = draw_negatives(examples.select(np.arange(4)), 50, seed=0)
    assert [len(texts) for texts in few] == [2 + 4] * 4


def test_accumulated_batches_are_one_large_batch(trainable):
    """So a list-wise loss needs no vectors of mini-batches: no two queries are compared."""
    weights = []
    for batch_size, accumulated in ((4, None), (2, 2)):
        model = trainable(ListwiseCrossentropy(2))
        optimizer = keras.optimizers.SGD(1.0, gradient_accumulation_steps=accumulated)
        model.compile(optimizer, ListwiseCrossentropy(2), run_eagerly=model.run_eagerly)
        model.fit((QUERIES, DOCUMENTS), batch_size=batch_size, verbose=0)
        weights.append([keras.ops.convert_to_numpy(weight) for weight in model.trainable_weights])
    for one, other in zip(*weights):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.once
def test_mined_lists_train_a_reranker(trainable, plain):
    model, encoder = trainable(LambdaLoss()), bz.SentenceEncoder.from_preset(plain, verbose=False)
    positives = [texts[0] for texts in DOCUMENTS]
    rows = bz.retrieval.mine_hard_negatives(
        encoder, QUERIES, positives, ["a film", "rome", "dull"], num_negatives=2, cross_encoder=model,
        output_format="labeled-list",
    )  # fmt: skip
    names = ("query", "documents", "labels")
    history = model.fit([dict(zip(names, row)) for row in rows], epochs=8, verbose=0).history["loss"]
    assert len(rows) == 4 and history[-1] < history[0]


@pytest.mark.once
def test_scores_of_a_teacher_may_have_any_size_with_mse(trainable):
    pairs, scores = list(zip(QUERIES, QUERIES[::-1])), [5.0, -3.0, 7.0, 0.5]
    model = trainable("mse")
    logits = model.predict(pairs, activation="linear")
    assert model.evaluate(pairs, scores, verbose=0) == pytest.approx(np.mean((logits - scores) ** 2), rel=1e-5)
    for loss in (None, "binary_crossentropy"):
        with pytest.raises(ValueError, match="scores must lie between 0 and 1"):
            trainable(loss).fit(pairs, scores, verbose=0)


@pytest.mark.once
@pytest.mark.parametrize(
    ("loss", "x", "y", "message"),
    [
        (ListNet(), (QUERIES, DOCUMENTS), None, "there are no targets: pass y"),
        (ListNet(), (QUERIES, DOCUMENTS), LABELS[:3] + [[1.0]], r"y\[3\] must have a label for each of 4 documents"),
        (ListNet(), (QUERIES, DOCUMENTS), LABELS[:3] + [[1.0, np.nan, 0, 0]], r"y\[3\] must hold finite numbers"),
        (ListNet(), (QUERIES, DOCUMENTS[:3]), LABELS, "each of 4 queries. Received: 3"),
        (ListNet(), (QUERIES, [*DOCUMENTS[:3], []]), LABELS, "query 3 must have at least one document. Received: none"),
        (ListNet(), {"text": QUERIES, "documents": DOCUMENTS}, LABELS, "one must be called query, question, anchor"),
        (ListNet(), {"query": QUERIES, "reply": DOCUMENTS}, LABELS, "one must be called documents, .*, positive"),
        (
            ScoreMarginMSE(),
            (QUERIES, DOCUMENTS),
            LABELS,
            "equally many documents for all queries.* Received: .* 1, 2, 3, 4 documents and 1, 2, 3, 4 labels",
        ),
        (ScoreMarginMSE(), (QUERIES[:1], DOCUMENTS[:1]), [[1.0]], "3 documents, or one fewer for margins. Received: 1"),
    ],
)
def test_mistakes_are_named(loss, x, y, message, trainable):
    with pytest.raises(ValueError, match=message):
        trainable(loss).fit(x, y, verbose=0)


@pytest.mark.once
def test_a_model_of_classes_ranks_nothing(write_checkpoint):
    model = bz.CrossEncoder.from_preset(
        write_checkpoint("BertForSequenceClassification", num_labels=3, num_hidden_layers=1)[0], verbose=False
    )
    with pytest.raises(ValueError, match="ListNet compares scores. Received: a model with 3 labels"):
        model.compile(loss=ListNet())
