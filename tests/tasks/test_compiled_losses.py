"""What compile takes: losses and metrics by name, schedules, several terms; and what validation_split draws."""

import keras
import numpy as np
import pytest
import sklearn.metrics
import sklearn.model_selection

import bertzoo as bz
from bertzoo.data.task_data import split_row_indices
from bertzoo.models.electra import ElectraConfig
from bertzoo.pretraining.distillation import Distillation
from bertzoo.pretraining.replaced_tokens import ReplacedTokenTraining, generator_config

WORDS = "the a film was is good bad dull bright plot actor and not very we saw it with friends in paris".split()  # noqa: SIM905

LENGTHS = [1, 13, 2, 5, 1, 3, 8, 1, 12, 2, 4]

RNG = np.random.default_rng(0)

SENTENCES = [[str(word) for word in RNG.choice(WORDS, length)] for length in LENGTHS]

TAGS = [[str(tag) for tag in RNG.choice(["x", "y", "z"], length)] for length in LENGTHS]

TEXTS = [" ".join(words) for words in SENTENCES]

CLASSES = RNG.integers(0, 3, len(TEXTS)).tolist()

SCORES = RNG.random(len(TEXTS)).tolist()

PAIRS = list(zip(TEXTS, TEXTS[1:] + TEXTS[:1]))

RECORDS = [
    {"question": text, "context": other, "answers": [other.split()[-1]] if i % 3 else []}
    for i, (text, other) in enumerate(PAIRS)
]


@pytest.fixture
def make(checkpoint, eager):
    """A task of one encoder without dropout."""

    def make(task, optimizer=None, compiled=True, **options):
        compile_options = options.pop("compile", {})
        model = task.from_preset(checkpoint[0], verbose=False, dropout=0.0, **options)
        if compiled:
            model.compile(optimizer or keras.optimizers.SGD(1.0), run_eagerly=eager, **compile_options)
        return model

    return make


class Stream(keras.utils.PyDataset):
    def __init__(self, *batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def tagger(**options):
    return bz.TokenClassifier, {"labels": ["x", "y", "z"], **options}, (SENTENCES, TAGS)


TASKS = {
    "classes": (bz.TextClassifier, {"labels": 3}, (TEXTS, CLASSES)),
    "several": (
        bz.TextClassifier,
        {"labels": 3, "problem_type": "multi_label_classification"},
        (TEXTS, (RNG.random((len(TEXTS), 3)) > 0.5).astype(int)),
    ),
    "numbers": (bz.TextClassifier, {"labels": 1}, (TEXTS, SCORES)),
    "tags": tagger(),
    "crf": tagger(crf=True),
    "pieces": tagger(label_all_tokens=True),
    "masked": (bz.MaskedLM, {}, (TEXTS, None)),
    "answers": (bz.QuestionAnswerer, {}, (RECORDS, None)),
    "choices": (bz.MultipleChoice, {}, ((TEXTS, [["good film", "bad"]] * len(TEXTS)), [c % 2 for c in CLASSES])),
    "pairs": (bz.CrossEncoder, {}, (PAIRS, SCORES)),
    "vectors": (bz.SentenceEncoder, {}, (PAIRS, SCORES)),
}


def log_softmax(x, axis=-1):
    x = np.asarray(x, "float64")
    return x - np.log(np.exp(x - x.max(axis, keepdims=True)).sum(axis, keepdims=True)) - x.max(axis, keepdims=True)


def expected(kind, model, data, numpy):
    """The loss and, for tokens, the accuracy of all rows in one batch, by the formula, from the model's outputs."""
    x, y, *weights = data
    logits = np.asarray(numpy(model(x)), "float64")
    if kind in ("tags", "pieces", "masked"):
        right = np.take_along_axis(log_softmax(logits), y[..., None], -1)[..., 0]
        hits = logits.argmax(-1) == y
        return -(right * weights[0]).sum() / weights[0].sum(), (hits * weights[0]).sum() / weights[0].sum()
    if kind in ("classes", "choices"):
        return -log_softmax(logits)[np.arange(len(y)), y].mean(), (logits.argmax(-1) == y).mean()
    if kind == "answers":
        logs = log_softmax(np.where(y < 0, -1e9, logits), axis=1)
        result, true = np.where(y < 0, -1e9, logits).argmax(1), y.argmax(1)
        return -(np.maximum(y, 0) * logs).sum((1, 2)).mean() / 2, (result == true).all(1).mean()
    if kind in ("several", "pairs"):
        losses = (np.logaddexp(0, logits) - y * logits).mean()
        return losses, ((logits > 0) == y).mean() if kind == "several" else None
    if kind == "numbers":
        return np.square(logits - y).mean(), np.abs(logits - y).mean()
    if kind == "vectors":
        u, v = (rows / np.linalg.norm(rows, axis=-1, keepdims=True) for rows in (logits[:, 0], logits[:, 1]))
        return np.square((u * v).sum(-1) - y).mean(), None
    # The likelihood of whole sentences, by enumeration for the short ones, times nothing else: transitions are 0 before
    # training, so that it is that of its words.
    right = np.take_along_axis(log_softmax(logits), y[..., None], -1)[..., 0]
    return -(right * weights[0]).sum() / weights[0].sum(), None


def once_but(kinds, everywhere):
    """Cases that run on every backend, and others, whose difference is no backend's matter."""
    return [kind if kind in everywhere else pytest.param(kind, marks=pytest.mark.once) for kind in kinds]


# ---- validation_split


@pytest.mark.once
@pytest.mark.parametrize("sizes", [(50, 50), (97, 3), (60, 30, 9, 1), (7, 5, 3, 1)])
@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
def test_classes_are_split_as_sklearn_splits_them(sizes, fraction):
    classes = np.repeat(np.arange(len(sizes)), sizes)  # sorted, as the last rows would hold one class
    train, held = split_row_indices(len(classes), fraction, seed=3, classes=classes)
    assert sorted([*train, *held]) == list(range(len(classes))) and len(held) == int(fraction * len(classes))
    counts = np.bincount(classes[held], minlength=len(sizes))
    assert np.all(np.abs(counts - np.array(sizes) * len(held) / len(classes)) <= 1)
    assert np.all(np.bincount(classes[train], minlength=len(sizes)) >= 1)
    if min(sizes) > 1 and len(held) >= len(sizes):
        _, expected = sklearn.model_selection.train_test_split(classes, test_size=len(held), stratify=classes)
        assert np.abs(counts - np.bincount(expected, minlength=len(sizes))).max() <= 1
    again, other = (split_row_indices(len(classes), fraction, seed, classes)[1].tolist() for seed in (3, 4))
    assert again == held.tolist() and (other != again or min(sizes) < 10)


@pytest.mark.once
@pytest.mark.parametrize("form", ["texts", "arrays", "tags"])
def test_the_split_is_that_of_the_data_whatever_their_form(form, make):
    """Trained at rate 0, so that what `fit` measured can be measured again."""
    y = sorted(CLASSES)
    if form == "tags":
        model, x, y = make(bz.TokenClassifier, keras.optimizers.SGD(0.0), labels=["x", "y", "z"]), SENTENCES, TAGS
    else:
        options = {"tokenizer": None} if form == "arrays" else {}
        model = make(bz.TextClassifier, keras.optimizers.SGD(0.0), labels=3, **options)
        x = make(bz.TextClassifier, labels=3).tokenizer(TEXTS) if form == "arrays" else TEXTS
    history = model.fit(x, y, validation_split=0.3, verbose=0).history
    classes = None if form == "tags" else np.array(y)
    _, held = split_row_indices(len(y), 0.3, 0, classes)
    part = {name: array[held] for name, array in x.items()} if form == "arrays" else [x[i] for i in held]
    scores = model.evaluate(part, [y[i] for i in held], verbose=0, return_dict=True)
    assert history["val_loss"][0] == pytest.approx(scores["loss"], rel=1e-6)
    assert history["val_accuracy"][0] == pytest.approx(scores["accuracy"], rel=1e-6)


# ---- losses by name, rates


@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        ("classes", "sparse_categorical_crossentropy"),
        *(
            pytest.param(*case, marks=pytest.mark.once)
            for case in [
                ("classes", "SparseCategoricalCrossentropy"),
                ("classes", keras.losses.sparse_categorical_crossentropy),
                ("classes", "crossentropy"),
                ("tags", "sparse_categorical_crossentropy"),
                ("several", "binary_crossentropy"),
                ("several", "bce"),
                ("numbers", "mse"),
                ("numbers", lambda y, x: keras.ops.mean(keras.ops.square(y - x), axis=-1)),
            ]
        ),
    ],
)
def test_a_loss_by_name_takes_logits(kind, loss, make):
    task, options, (x, y) = TASKS[kind]
    named, own = make(task, compile={"loss": loss}, **options), make(task, **options)
    named.set_weights(own.get_weights())
    result, right = (model.evaluate(x, y, batch_size=4, verbose=0)[0] for model in (named, own))
    assert result == pytest.approx(right, rel=1e-6)


@pytest.mark.once
@pytest.mark.parametrize("name", ["binary_crossentropy", "binary_focal_crossentropy", "categorical_focal_crossentropy"])
def test_every_loss_of_keras_that_has_from_logits_gets_it(name, make):
    model = make(bz.TextClassifier, compile={"loss": name}, labels=2, problem_type="multi_label_classification")
    assert model.loss.get_config()["from_logits"] is True


@pytest.mark.once
def test_a_loss_of_probabilities_is_refused(make):
    model = make(bz.TextClassifier, compiled=False, labels=3)
    with pytest.raises(ValueError, match=r"pass keras\.losses\.SparseCategoricalCrossentropy\(from_logits=True\)"):
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy())


@pytest.mark.once
def test_metrics_by_name_take_logits(make):
    task, options, (x, y) = TASKS["several"]
    model = make(task, compile={"metrics": ["accuracy", "binary_accuracy", "AUC"]}, **options)
    scores = model.evaluate(x, y, batch_size=4, verbose=0, return_dict=True)
    right = ((model.predict(x, verbose=0) > 0) == y).mean()
    assert scores["accuracy"] == pytest.approx(right) and scores["binary_accuracy"] == pytest.approx(right)
    assert 0 <= scores["AUC"] <= 1


@pytest.mark.once
def test_a_scheduler_beside_the_optimizers_schedule_is_refused(make):
    model = make(bz.TextClassifier, bz.AdamW(1e-2), labels=3)
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch: 1e-3 / (epoch + 1))
    with pytest.raises(ValueError, match="compile with AdamW"):
        model.fit(TEXTS, CLASSES, callbacks=[scheduler], verbose=0)
    model.compile(bz.AdamW(1e-2, warmup=0, schedule="constant"), run_eagerly=True)
    rates = []
    read = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: rates.append(float(model.optimizer.current_learning_rate))
    )
    model.fit(TEXTS, CLASSES, callbacks=[scheduler, read], epochs=2, verbose=0)
    np.testing.assert_allclose(rates, [1e-3, 5e-4], rtol=1e-6)


@pytest.mark.once
def test_arguments_are_in_the_order_of_keras(make):
    model = make(bz.TextClassifier, compiled=False, labels=3)
    model.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy", [2.0], ["accuracy"], ["accuracy"])
    doubled = model.evaluate(TEXTS, CLASSES, verbose=0, batch_size=None)[0]
    model.compile(keras.optimizers.SGD(0.0))
    assert doubled == pytest.approx(2 * model.evaluate(TEXTS, CLASSES, verbose=0)[0], rel=1e-6)
    assert len(model.fit(TEXTS, CLASSES, batch_size=None, verbose=0).history["loss"]) == 1


@pytest.mark.parametrize("kind", once_but(["heads", "rtd", "teacher"], ["heads"]))
def test_losses_of_several_terms_are_a_sum_of_means(kind, make, numpy, eager):
    """Those of pre-training, each over its own examples, from batches that were masked before they were cut."""
    if kind == "heads":
        model = make(bz.ForPreTraining)
    else:
        student = make(bz.MaskedLM)
        if kind == "rtd":
            sizes = {"vocab_size": student.backbone.config.vocab_size, "hidden_size": 32, "embedding_size": 16}
            config = ElectraConfig(num_hidden_layers=1, num_attention_heads=4, intermediate_size=32, **sizes)
            model = ReplacedTokenTraining(config, generator_config(config, 0.5), student.tokenizer)
        else:
            model = Distillation(make(bz.MaskedLM), student)
        model.compile(keras.optimizers.SGD(0.0), run_eagerly=eager)
    inputs = (model if kind == "heads" else student).tokenizer(TEXTS)
    if kind == "heads":
        inputs["pair"] = np.array(CLASSES) % 2
    whole = model.mask_batch(inputs, np.random.default_rng(0))
    cut = [keras.tree.map_structure(lambda part, i=i: part[i : i + 3], whole) for i in range(0, len(TEXTS), 3)]
    scores = [keras.Model.evaluate(model, Stream(*data), verbose=0, return_dict=True) for data in ([whole], cut)]
    if kind != "rtd":  # whose generator draws other tokens in another batch
        for name, value in scores[0].items():
            assert scores[1][name] == pytest.approx(value, rel=2e-6, abs=1e-6)
    if kind == "heads":
        outputs, (_, y, weights) = numpy(model(whole[0])), whole
        right = np.take_along_axis(log_softmax(outputs["masked_lm"]), y["masked_lm"][..., None], -1)[..., 0]
        masked = -(right * weights["masked_lm"]).sum() / weights["masked_lm"].sum()
        pair = -log_softmax(outputs["pair"])[np.arange(len(TEXTS)), y["pair"]].mean()
        result = [scores[1][name] for name in ("loss", "masked_lm_loss", "pair_loss")]
        np.testing.assert_allclose(result, [masked + pair, masked, pair], rtol=2e-6)
    elif kind == "rtd":
        assert scores[1]["loss"] == pytest.approx(scores[1]["masked_lm_loss"] + 50 * scores[1]["rtd_loss"], rel=1e-5)
    else:
        terms = 5 * scores[1]["soft_loss"] + 2 * scores[1]["masked_lm_loss"] + scores[1]["cosine_loss"]
        assert scores[1]["loss"] == pytest.approx(terms, rel=1e-5)
