"""Training of SentenceEncoder: forms of input, losses, mistakes."""

import keras
import numpy as np
import pandas
import pytest

import bertzoo as bz
from bertzoo.data.task_data import split_row_indices
from bertzoo.layers import Pooling
from bertzoo.losses import Matryoshka, SoftmaxOfPairs
from bertzoo.losses.names import LOSSES

TEXTS = [
    "a good film",
    "the plot was dull and bad, and the actor was not very good",
    "",
    "we saw it with friends in paris",
    "never again !",
    "a great story",
]


# ---- training

FIRSTS, SECONDS = TEXTS[:2] + TEXTS[3:] + ["a film"], TEXTS[3:] + TEXTS[:2] + ["a bad film"]

SCORES = [1.0, 0.2, 0.4, 0.9, 0.0, 0.3]

FORMS = {
    "columns": lambda: ((FIRSTS, SECONDS), SCORES),
    "rows": lambda: (list(zip(FIRSTS, SECONDS)), SCORES),
    "frame": lambda: (pandas.DataFrame({"sentence1": FIRSTS, "sentence2": SECONDS, "score": SCORES}), None),
    "dict": lambda: ({"anchor": FIRSTS, "positive": SECONDS, "label": np.array(SCORES)}, None),
    "arrays": lambda: ((np.array(FIRSTS), np.array(SECONDS)), np.array(SCORES)),
}


@pytest.fixture
def trainable(plain, eager):
    model = bz.SentenceEncoder.from_preset(plain, verbose=False, dropout=0.0)

    def compiled(loss="cosine", **options):
        model.compile(bz.AdamW(1e-3, warmup=0.0, schedule="constant"), loss=loss, run_eagerly=eager, **options)
        return model

    return compiled


@pytest.mark.parametrize("form", [pytest.param(f, marks=[pytest.mark.once] * (f != "columns")) for f in FORMS])
def test_fit_takes_pairs_in_every_form(form, trainable):
    model = trainable()
    x, y = FORMS[form]()
    before = model.evaluate(x, y, verbose=0)
    cosines = model.similarity_pairwise(model.encode(FIRSTS), model.encode(SECONDS))
    assert before == pytest.approx(np.mean((cosines - np.array(SCORES)) ** 2), abs=1e-5)
    model.fit(x, y, epochs=20, batch_size=6, verbose=0)
    assert model.evaluate(x, y, verbose=0) < 0.5 * before


CLASSES = {f"batch_{kind}_triplet": [0, 0, 1, 1, 0, 1] for kind in ("all", "hard", "hard_soft_margin", "semi_hard")}
TARGETS = {
    **CLASSES,
    "cosine": SCORES,
    "cosent": SCORES,
    "angle": SCORES,
    "contrastive": [1, 0, 0, 1, 1, 0],
    "online_contrastive": [1, 0, 0, 1, 1, 0],
    "softmax": [0, 1, 2, 0, 1, 2],
    "triplet": None,
    "multiple_negatives": None,
    "mega_batch_margin": None,
    "gist": np.random.default_rng(1).normal(size=(6, 2, 5)),
    "margin_mse": SCORES,
    "kl_distillation": np.random.default_rng(2).normal(size=(6, 2)),
    "distillation": np.random.default_rng(0).normal(size=(6, 32)),
}

# Values and gradients of all are compared in losses/test_sentence_losses.py, on each backend. "cosine" is fit above;
# these differ in the number of texts, in the kind of targets and their shape, and by a layer that is trained.
FIT = ("triplet", "softmax", "distillation", "margin_mse", "gist", "batch_semi_hard_triplet")


@pytest.mark.parametrize("loss", [pytest.param(name, marks=[pytest.mark.once] * (name not in FIT)) for name in LOSSES])
def test_every_loss_trains(loss, trainable):
    model = trainable(loss)
    three = loss in ("triplet", "margin_mse", "kl_distillation")
    x = FIRSTS if loss in CLASSES else (FIRSTS, SECONDS, SECONDS[1:] + SECONDS[:1]) if three else (FIRSTS, SECONDS)
    history = model.fit(x, TARGETS[loss], epochs=8, batch_size=6, verbose=0).history["loss"]
    assert history[-1] < history[0]
    assert model.evaluate(x, TARGETS[loss], verbose=0) < history[0]


TRIPLES = (FIRSTS, SECONDS, SECONDS[1:] + SECONDS[:1])


@pytest.mark.parametrize("form", [pytest.param("margins", marks=pytest.mark.once), "column", "scores"])
def test_margins_of_a_teacher_come_in_three_shapes(form, trainable):
    """The margins, (n,) or (n, 1), or the scores that they are between, in batches of which the last is smaller."""
    model = trainable("margin_mse")
    model.compile("sgd", "margin_mse", run_eagerly=False)  # in TensorFlow's graphs batches have no size
    margins = np.array(SCORES, "float32")
    y = {"margins": margins, "column": margins[:, None], "scores": np.stack([margins + 1, np.ones(6)], axis=1)}[form]
    vectors = np.stack([model.encode(list(column)) for column in TRIPLES], axis=1)
    fits = np.einsum("bd,bcd->bc", vectors[:, 0], vectors[:, 1:])
    loss = np.square(fits[:, 0] - fits[:, 1] - margins).mean()
    assert model.evaluate(TRIPLES, y, batch_size=4, verbose=0) == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize("form", ["columns", pytest.param("rows", marks=pytest.mark.once), "table"])
def test_validation_is_of_drawn_rows(form, trainable):
    model = trainable("triplet")
    x = {
        "columns": TRIPLES,
        "rows": list(zip(*TRIPLES)),
        "table": dict(zip(("anchor", "positive", "negative"), TRIPLES)),
    }[form]
    history = model.fit(x, validation_split=0.5, sample_weight=[1.0] * 6, verbose=0).history
    held = [list(zip(*TRIPLES))[i] for i in split_row_indices(6, 0.5, 0)[1]]
    assert history["val_loss"] == [pytest.approx(model.evaluate(held, verbose=0))]


def test_validation_and_streams(trainable):
    model = trainable()
    pairs = (FIRSTS, SECONDS)
    history = model.fit(pairs, SCORES, validation_data=(pairs, SCORES), verbose=0).history
    assert "val_loss" in history
    model.fit(Stream(pairs, SCORES), verbose=0)


class Stream(keras.utils.PyDataset):
    """Two batches of three rows; without y where there is none."""

    def __init__(self, columns, y=None):
        super().__init__()
        self.columns, self.y = columns, y

    def __len__(self):
        return 2

    def __getitem__(self, index):
        rows = slice(3 * index, 3 * index + 3)
        x = list(zip(*(column[rows] for column in self.columns)))
        return (x,) if self.y is None else (x, self.y[rows])


def test_streams_need_no_y_where_the_loss_needs_none(trainable):
    model = trainable("triplet")
    losses = [model.evaluate(list(zip(*TRIPLES))[i : i + 3], verbose=0) for i in (0, 3)]
    assert model.evaluate(Stream(TRIPLES), verbose=0) == pytest.approx(np.mean(losses), rel=1e-5)
    assert np.isfinite(model.fit(Stream(TRIPLES), verbose=0).history["loss"][0])
    assert model.predict(Stream(TRIPLES[:2]), verbose=0).shape == (6, 2, 32)
    with pytest.raises(ValueError, match="compares examples of 3 texts. Received: 2"):
        trainable("triplet").fit(Stream(TRIPLES[:2]), verbose=0)
    with pytest.raises(ValueError, match="y must hold numbers for this loss.*pass y"):
        trainable("cosine").fit(Stream(TRIPLES[:2]), verbose=0)


@pytest.mark.once
def test_compile_comes_before_what_asks_for_the_loss(plain):
    model = bz.SentenceEncoder.from_preset(plain, verbose=False)
    for use in (model.batches, model.evaluate, lambda x: model.batches(x, SCORES, shuffle=False)):
        with pytest.raises(ValueError, match=r"call compile\(\) first"):
            use((FIRSTS, SECONDS))


def test_the_dense_layer_of_the_softmax_loss_is_trained_and_left_behind(trainable, tmp_path):
    model = trainable(SoftmaxOfPairs(3))
    before = keras.ops.convert_to_numpy(model.training_head.kernel).copy()
    model.fit((FIRSTS, SECONDS), TARGETS["softmax"], verbose=0)
    assert not np.allclose(before, keras.ops.convert_to_numpy(model.training_head.kernel))
    model.save_to_preset(tmp_path / "saved")
    bz.SentenceEncoder.from_preset(tmp_path / "saved", verbose=False)


@pytest.mark.once
@pytest.mark.parametrize(
    ("loss", "x", "y", "message"),
    [
        ("cosine", (FIRSTS, SECONDS), None, "y must hold numbers for this loss.*pass y"),
        ("cosine", FIRSTS, SCORES, "compares examples of 2 texts. Received: 1"),
        ("triplet", (FIRSTS, SECONDS), None, "compares examples of 3 texts. Received: 2"),
        ("cosine", (FIRSTS, SECONDS), SCORES[:4], "x has 6 rows and y has 4"),
        ("cosine", (FIRSTS, SECONDS), [float("nan")] * 6, r"y\[0\] is not finite"),
        ("softmax", (FIRSTS, SECONDS), SCORES, "class numbers from 0"),
        ("cosine", (FIRSTS, SECONDS[:4]), SCORES, "equally long"),
        ("cosine", (FIRSTS, SECONDS), ["a"] * 6, "y must hold numbers"),
        ("softmax", (FIRSTS, SECONDS), [1, 2, 3, 1, 2, 3], "classes from 0 to 2. Received: 1 to 3"),
        ("distillation", (FIRSTS, SECONDS), SCORES, r"\(examples, 32\).*Received: shape \(6,\)"),
        ("distillation", (FIRSTS, SECONDS), np.zeros((6, 1)), r"Received: shape \(6, 1\)"),
    ],
)
def test_mistakes_in_training_are_named(loss, x, y, message, trainable):
    with pytest.raises(ValueError, match=message):
        trainable(loss).fit(x, y, verbose=0)


def test_dropout_differs_between_the_texts_of_a_row(plain):
    model = bz.SentenceEncoder.from_preset(plain, verbose=False, dropout=0.2)
    inputs = model.tokenizer(["a good film"])
    inputs = {name: np.stack([x, x], axis=1) for name, x in inputs.items()}
    same, other = keras.ops.convert_to_numpy(model(inputs, training=True))[0]
    assert not np.allclose(same, other)


def test_scores_that_a_cosine_cannot_reach_are_refused(plain):
    model = bz.SentenceEncoder.from_preset(plain, verbose=False)
    model.compile(bz.AdamW(1e-3), loss="cosine", run_eagerly=True)
    pairs = list(zip(TEXTS, TEXTS[::-1]))
    with pytest.raises(ValueError, match=r"scores must lie between -1 and 1. Received scores from 0 to 5: scale them"):
        model.fit(pairs, [0, 1, 2, 3, 4, 5], verbose=0)
    with pytest.raises(ValueError, match="scores must lie between -1 and 1"):
        model.evaluate(pairs, [0, 1, 2, 3, 4, 5], verbose=0)
    model.compile(bz.AdamW(1e-3), loss="cosent", run_eagerly=True)  # which compares their order alone
    assert np.isfinite(model.evaluate(pairs, [0, 1, 2, 3, 4, 5], verbose=0))


def test_prompts_in_training_are_those_put_there_by_hand(plain):
    model = bz.SentenceEncoder.from_preset(plain, verbose=False, dropout=0.0)
    triplets = [("a film", "good", "bad"), ("the plot", "dull", "fast")]
    by_hand = [("rome " + a, "paris " + p, "paris " + n) for a, p, n in triplets]
    model.compile(bz.AdamW(1e-3), loss="triplet", run_eagerly=True)
    expected = model.evaluate(by_hand, verbose=0)
    assert model.evaluate(triplets, verbose=0) != expected
    model.compile(bz.AdamW(1e-3), loss="triplet", column_prompts=("rome ", "paris "), run_eagerly=True)
    assert model.evaluate(triplets, verbose=0) == pytest.approx(expected, rel=1e-6)
    assert model.get_compile_config()["column_prompts"] == ("rome ", "paris ")
    without = bz.SentenceEncoder.from_preset(plain, verbose=False, pooling=Pooling(include_prompt=False))
    with pytest.raises(ValueError, match="column_prompts needs a Pooling"):
        without.compile(column_prompts="rome ")


def test_equal_texts_are_no_negatives_of_each_other(plain):
    model = bz.SentenceEncoder.from_preset(plain, verbose=False)
    model.compile(bz.AdamW(1e-3), loss="multiple_negatives", run_eagerly=True)
    answers = ("very", "once", "never")
    rows = [(f"{word} film", answer) for word in ("good", "bad", "dull", "slow") for answer in answers]
    data = model.batches(rows, batch_size=3)
    for i in range(len(data)):
        ids = data[i][0]["token_ids"]
        for column in range(2):
            assert len({tuple(row) for row in ids[:, column]}) == 3
    orders = {}
    for loss, choice in (
        ("cosent", True),
        ("cosent", None),
        ("multiple_negatives", False),
        ("multiple_negatives", None),
    ):
        model.compile(bz.AdamW(1e-3), loss, no_duplicates=choice, run_eagerly=True)
        data = model.batches(rows, [0.5] * 12 if loss == "cosent" else None, batch_size=3)
        orders[loss, choice] = data.row_order.tolist()
    assert orders["cosent", True] == orders["multiple_negatives", None]
    assert orders["cosent", None] == orders["multiple_negatives", False] != orders["cosent", True]
    assert model.get_compile_config()["no_duplicates"] is None
    model.compile(bz.AdamW(1e-3), loss=Matryoshka("multiple_negatives", [32, 8]), run_eagerly=True)
    assert model.data.require_loss().in_batch_negatives
