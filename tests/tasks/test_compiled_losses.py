"""What compile takes: losses and metrics by name, schedules, several terms; and what validation_split draws."""

import keras
import numpy as np
import pytest
import sklearn.metrics
import sklearn.model_selection
from loss_cases import CLASSES, SENTENCES, TAGS, TASKS, TEXTS, Stream, log_softmax, once_but

import bertzoo as bz
from bertzoo.data.task_data import split_row_indices
from bertzoo.models.electra import ElectraConfig
from bertzoo.pretraining.distillation import Distillation
from bertzoo.pretraining.replaced_tokens import ReplacedTokenTraining, generator_config

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
def test_the_split_is_that_of_the_data_whatever_their_form(form, make_task):
    """Trained at rate 0, so that what `fit` measured can be measured again."""
    y = sorted(CLASSES)
    if form == "tags":
        model, x, y = make_task(bz.TokenClassifier, keras.optimizers.SGD(0.0), labels=["x", "y", "z"]), SENTENCES, TAGS
    else:
        options = {"tokenizer": None} if form == "arrays" else {}
        model = make_task(bz.TextClassifier, keras.optimizers.SGD(0.0), labels=3, **options)
        x = make_task(bz.TextClassifier, labels=3).tokenizer(TEXTS) if form == "arrays" else TEXTS
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
def test_a_loss_by_name_takes_logits(kind, loss, make_task):
    task, options, (x, y) = TASKS[kind]
    named, own = make_task(task, compile={"loss": loss}, **options), make_task(task, **options)
    named.set_weights(own.get_weights())
    result, right = (model.evaluate(x, y, batch_size=4, verbose=0)[0] for model in (named, own))
    assert result == pytest.approx(right, rel=1e-6)


@pytest.mark.once
@pytest.mark.parametrize("name", ["binary_crossentropy", "binary_focal_crossentropy", "categorical_focal_crossentropy"])
def test_every_loss_of_keras_that_has_from_logits_gets_it(name, make_task):
    model = make_task(bz.TextClassifier, compile={"loss": name}, labels=2, problem_type="multi_label_classification")
    assert model.loss.get_config()["from_logits"] is True


@pytest.mark.once
def test_a_loss_of_probabilities_is_refused(make_task):
    model = make_task(bz.TextClassifier, compiled=False, labels=3)
    with pytest.raises(ValueError, match=r"pass keras\.losses\.SparseCategoricalCrossentropy\(from_logits=True\)"):
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy())


@pytest.mark.once
def test_metrics_by_name_take_logits(make_task):
    task, options, (x, y) = TASKS["several"]
    model = make_task(task, compile={"metrics": ["accuracy", "binary_accuracy", "AUC"]}, **options)
    scores = model.evaluate(x, y, batch_size=4, verbose=0, return_dict=True)
    right = ((model.predict(x, verbose=0) > 0) == y).mean()
    assert scores["accuracy"] == pytest.approx(right) and scores["binary_accuracy"] == pytest.approx(right)
    assert 0 <= scores["AUC"] <= 1


@pytest.mark.once
def test_a_scheduler_beside_the_optimizers_schedule_is_refused(make_task):
    model = make_task(bz.TextClassifier, bz.AdamW(1e-2), labels=3)
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
def test_arguments_are_in_the_order_of_keras(make_task):
    model = make_task(bz.TextClassifier, compiled=False, labels=3)
    model.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy", [2.0], ["accuracy"], ["accuracy"])
    doubled = model.evaluate(TEXTS, CLASSES, verbose=0, batch_size=None)[0]
    model.compile(keras.optimizers.SGD(0.0))
    assert doubled == pytest.approx(2 * model.evaluate(TEXTS, CLASSES, verbose=0)[0], rel=1e-6)
    assert len(model.fit(TEXTS, CLASSES, batch_size=None, verbose=0).history["loss"]) == 1


@pytest.mark.parametrize("kind", once_but(["heads", "rtd", "teacher"], ["heads"]))
def test_losses_of_several_terms_are_a_sum_of_means(kind, make_task, numpy, eager):
    """Those of pre-training, each over its own examples, from batches that were masked before they were cut."""
    if kind == "heads":
        model = make_task(bz.ForPreTraining)
    else:
        student = make_task(bz.MaskedLM)
        if kind == "rtd":
            sizes = {"vocab_size": student.backbone.config.vocab_size, "hidden_size": 32, "embedding_size": 16}
            config = ElectraConfig(num_hidden_layers=1, num_attention_heads=4, intermediate_size=32, **sizes)
            model = ReplacedTokenTraining(config, generator_config(config, 0.5), student.tokenizer)
        else:
            model = Distillation(make_task(bz.MaskedLM), student)
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
