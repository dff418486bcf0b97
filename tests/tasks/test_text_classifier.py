"""TextClassifier: fit, every kind of target, answers, and files."""

import json
import shutil
import warnings

import keras
import numpy as np
import pandas
import pytest
from classifier_cases import FIRSTS, GOOD, IDS, NAMES, SECONDS, TEXTS, pairs_in, rows_of

import bertzoo as bz
from bertzoo.data.task_data import split_row_indices


@pytest.fixture
def model(make_classifier):
    return make_classifier()


# ---- options of fit


def test_validation(model, seen_batches):
    history = model.fit(TEXTS, NAMES, validation_data=(TEXTS[:8], NAMES[:8]), batch_size=8, verbose=0).history
    assert {"loss", "accuracy", "val_loss", "val_accuracy"} <= set(history)
    scores = model.evaluate(TEXTS[:8], NAMES[:8], batch_size=8, verbose=0, return_dict=True)
    assert scores["loss"] == pytest.approx(history["val_loss"][0], rel=1e-4)
    del seen_batches[:]
    history = model.fit(TEXTS, NAMES, validation_split=0.5, batch_size=8, verbose=0).history
    assert "val_loss" in history
    train, _ = split_row_indices(len(TEXTS), 0.5, 0, np.array(IDS))
    assert pairs_in(seen_batches) == sorted(zip(rows_of(model, [TEXTS[i] for i in train]), [IDS[i] for i in train]))
    frame = pandas.DataFrame({"text": TEXTS, "label": NAMES})
    assert "val_loss" in model.fit(frame, validation_data=frame, batch_size=8, verbose=0).history


def test_weights_of_classes_and_rows(model, seen_batches):
    model.fit(TEXTS, NAMES, class_weight={"neg": 2.0, "pos": 0.5}, batch_size=8, verbose=0)
    assert len(seen_batches) == 2
    for _, targets, weights, _ in seen_batches:
        assert weights == [0.5 if target else 2.0 for target in targets]
    del seen_batches[:]
    texts, own = TEXTS[:8], np.arange(8) / 8
    model.fit(texts, NAMES[:8], sample_weight=own, batch_size=8, verbose=0)
    ((rows, _, weights, _),) = seen_batches
    assert dict(zip(rows, weights)) == dict(zip(rows_of(model, texts), own))
    with pytest.raises(ValueError, match="key of class_weight must be one of .* Received: 'nice'"):
        model.fit(TEXTS, NAMES, class_weight={"nice": 1.0}, verbose=0)
    for options, message in (
        ({"class_weight": "balanced"}, "dict of weights by label"),
        ({"sample_weight": [1.0] * 15}, "sample_weight must have 16 entries"),
        ({"sample_weight": [1.0] * 7 + [np.nan] * 9}, "that of row 7 is nan"),
        ({"sample_weight": np.ones((16, 2))}, r"shape \(16, 2\)"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(TEXTS, NAMES, verbose=0, **options)
    several = bz.TextClassifier(
        model.backbone, model.tokenizer, labels=["a"], problem_type="multi_label_classification"
    )
    several.compile()
    with pytest.raises(ValueError, match="one label a text"):
        several.fit(TEXTS, [["a"]] * 16, class_weight={"a": 2.0}, verbose=0)
    with pytest.raises(ValueError, match="pass no y and no sample_weight"):
        model.fit(((x, y) for x, y in [(TEXTS, NAMES)]), NAMES, steps_per_epoch=1, verbose=0)
    with pytest.raises(ValueError, match="steps .2. counts the batches of a stream"):
        model.predict(TEXTS, steps=2, verbose=0)


@pytest.mark.once  # `fit` takes the order of the batches on each backend: text/test_batches.py
def test_fit_shuffles_anew_each_epoch_and_from_the_seed(make_classifier, seen_batches):
    """Fault 7: fit(x, y) never shuffles."""
    words = ("good", "bad", "great", "dull")
    distinct = [f"{words[i % 4]} and {words[i // 4]} once again." for i in range(16)]

    def orders(seed, **options):
        bz.set_seed(seed)
        del seen_batches[:]
        make_classifier().fit(distinct, IDS, batch_size=8, epochs=2, verbose=0, **options)
        order = [row for rows, *_ in seen_batches for row in rows]
        return [tuple(order[i * 16 : i * 16 + 16]) for i in range(2)]

    first, again, other = orders(0), orders(0), orders(1)
    assert first == again and len({*first, *other}) == 4
    assert all(sorted(order) == sorted(first[0]) for order in first + other)
    assert len(set(orders(0, shuffle=False))) == 1


def test_rows_are_padded_to_what_the_data_needs(model, seen_batches):
    """Fault 2: everything was padded to 512, or beyond the model's positions."""
    model.fit(TEXTS, NAMES, batch_size=8, verbose=0)
    assert {length for *_, length in seen_batches} == {8}
    long = "good film " * 300
    mixed = model.batches([long] * 40 + [GOOD] * 40, [1] * 80, batch_size=2)
    real, computed = zip(*((x["lengths"].sum(), x["packing"].size) for x, _ in mixed))
    assert sum(computed) <= 1.25 * sum(real)
    assert model.predict([long], verbose=0).shape == (1, 2)
    assert model.tokenizer(long)["token_ids"].shape == (1, 64)


def test_a_shorter_limit_and_a_longer_one(make_classifier, classifier_preset):
    assert make_classifier(max_length=8).tokenizer("good film " * 300)["token_ids"].shape == (1, 8)
    with pytest.raises(ValueError, match="max_length must be at most 64.*Received: 512"):
        make_classifier(max_length=512)


# ---- kinds of target


def losses(model, x, y, epochs=12):
    return model.fit(x, y, batch_size=8, epochs=epochs, verbose=0).history["loss"]


def test_classes_are_learnt(make_classifier):
    model = make_classifier(eager=False)
    assert losses(model, TEXTS, NAMES)[-1] < 0.3
    assert model.evaluate(TEXTS, IDS, batch_size=8, verbose=0, return_dict=True)["accuracy"] > 0.9
    answer = model.classify(GOOD)
    assert answer["label"] == "pos" and answer["score"] == pytest.approx(answer["scores"]["pos"])
    assert sum(answer["scores"].values()) == pytest.approx(1)


def test_several_labels_at_once(make_classifier):
    """Fault 9."""
    labels = ["nice", "film", "any"]
    model = make_classifier(labels=labels, problem_type="multi_label_classification", eager=False)
    named = [
        [name for name, given in zip(labels, ("good" in t or "great" in t, "film" in t, True)) if given] for t in TEXTS
    ]
    table = np.array([[float(name in row) for name in labels] for row in named])
    np.testing.assert_array_equal(model.data.encode_targets(model.data.parse(TEXTS, named)), table)
    np.testing.assert_array_equal(model.data.encode_targets(model.data.parse(TEXTS, table)), table)
    history = losses(model, TEXTS, named)
    assert history[-1] < 0.6 * history[0]
    logits = model.predict(TEXTS, batch_size=8, verbose=0)
    expected = np.mean(np.logaddexp(0, logits) - table * logits)  # binary cross-entropy of logits
    assert model.evaluate(TEXTS, named, batch_size=8, verbose=0, return_dict=True)["loss"] == pytest.approx(
        expected, rel=1e-4
    )
    answer = model.classify([GOOD])[0]
    assert set(answer["scores"]) == set(labels) and set(answer["labels"]) <= set(labels)
    with pytest.raises(ValueError, match=r"y\[1\] must list labels of .*Received: 'odd'"):
        model.fit(TEXTS[:2], [["nice"], ["odd"]], verbose=0)
    with pytest.raises(ValueError, match=r"y\[0\].*zeros and ones"):
        model.fit(TEXTS[:2], [[0.5, 0, 1], [0, 0, 1]], verbose=0)
    with pytest.raises(ValueError, match=r"y\[1\] must list label names.* Received: None"):
        model.fit(TEXTS[:2], [["nice"], None], verbose=0)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, pytest.param(2, marks=pytest.mark.once)])
def test_regression(make_classifier, width):
    """Fault 9: num_classes=1 with float targets trained at loss 0."""
    model = make_classifier(labels=width, problem_type="regression", eager=False)
    numbers = np.array([len(text) / 10 for text in TEXTS])
    targets = numbers if width == 1 else np.stack([numbers, -numbers], axis=1)
    first = model.evaluate(TEXTS, targets, batch_size=8, verbose=0, return_dict=True)
    predicted = model.predict(TEXTS, batch_size=8, verbose=0).reshape(targets.shape)
    assert first["loss"] == pytest.approx(np.mean((predicted - targets) ** 2), rel=1e-4)
    assert first["mae"] == pytest.approx(np.mean(np.abs(predicted - targets)), rel=1e-4)
    history = losses(model, TEXTS, targets, epochs=15)
    assert history[0] > 0.5 and history[-1] < 0.5 * history[0]
    answer = model.classify([GOOD])[0]
    assert isinstance(answer["value"], float) if width == 1 else set(answer["values"]) == {"LABEL_0", "LABEL_1"}


def test_one_label_means_regression(make_classifier):
    assert make_classifier(labels=1).problem_type == "regression"


@pytest.mark.parametrize("activation", [pytest.param("gelu", marks=pytest.mark.once), None])
def test_a_head_of_ones_own_is_trained(make_classifier, activation):
    if activation:
        head = bz.layers.ClassificationHead(2, 0.0, dense_activation="gelu")
    else:
        first, second = (keras.initializers.GlorotUniform(seed=seed) for seed in (1, 2))
        head = keras.Sequential(
            [
                keras.layers.Dense(8, activation="gelu", kernel_initializer=first),
                keras.layers.Dense(2, kernel_initializer=second),
            ]
        )
    model = make_classifier(head=head, eager=False)
    before = [keras.ops.convert_to_numpy(w) for w in head.weights]
    assert len(before) == 4
    history = losses(model, TEXTS, NAMES)
    assert history[-1] < 0.5 * history[0]
    assert all(np.abs(keras.ops.convert_to_numpy(w) - old).max() > 0 for w, old in zip(head.weights, before))


@pytest.mark.parametrize("layers", [None, 0, 1])
def test_freezing(make_classifier, layers, eager):
    model = make_classifier(compiled=False)
    model.freeze(layers)
    model.compile(bz.AdamW(1e-2, warmup=0.0, schedule="constant"), run_eagerly=eager)
    before = {w.path: keras.ops.convert_to_numpy(w) for w in model.weights}
    model.fit(TEXTS, NAMES, batch_size=8, verbose=0)
    moved = {path for w in model.weights if np.abs(keras.ops.convert_to_numpy(w) - before[path := w.path]).max() > 0}
    frozen = (
        ("encoder/",) if layers is None else ("encoder/embeddings", *[f"encoder/layer_{i}/" for i in range(layers)])
    )
    still = {path for path in before if path.startswith(frozen)}
    assert moved == set(before) - still and still
    with pytest.raises(ValueError, match="layers must be from 0 to 1. Received: 3"):
        model.freeze(3)


# ---- answers


def test_answers_come_in_the_order_of_the_question(make_classifier):
    model = make_classifier(compiled=False)
    long = "good film " * 9
    whole = model.predict([TEXTS[0], long, *TEXTS[1:8]], batch_size=8, verbose=0)
    alone = np.concatenate([model.predict(texts, batch_size=8, verbose=0) for texts in ([long], TEXTS[:8])])
    np.testing.assert_allclose(whole[[1, 0, *range(2, 9)]], alone, atol=1e-5)
    assert np.ptp(alone[:, 0]) > 1e-3


def test_classify_on_all_it_is_given(make_classifier):
    model = make_classifier(compiled=False)
    assert model.classify(GOOD) == model.classify([GOOD])[0]
    assert model.classify([]) == []
    assert len(model.classify([GOOD, ""])) == 2  # an empty text is [CLS] [SEP]
    stream = model.classify((text for text in TEXTS), batch_size=8)
    assert next(stream)["label"] in ("neg", "pos") and len(list(stream)) == 15
    in_turn = [answer["score"] for answer in model.classify(iter(TEXTS), batch_size=8)]
    np.testing.assert_allclose(in_turn, [answer["score"] for answer in model.classify(TEXTS, batch_size=8)], rtol=1e-5)
    assert len(list(model.classify(zip(FIRSTS, SECONDS), batch_size=8))) == 16


# ---- compile and Keras's files


def test_compile_without_arguments_is_the_recipe(make_classifier, capsys):
    model = make_classifier(compiled=False)
    model.compile()
    printed = capsys.readouterr().out
    assert "AdamW" in printed and "0.0003" in printed and "10 %" in printed and printed.count("\n") == 1
    optimizer = model.optimizer
    assert isinstance(optimizer, bz.AdamW) and float(optimizer.learning_rate) == pytest.approx(3e-4)
    assert (optimizer.weight_decay, optimizer.warmup, optimizer.global_clipnorm, optimizer.epsilon) == (
        0.01,
        0.1,
        1.0,
        1e-8,
    )
    optimizer.build(model.trainable_variables)
    decayed = {w.path.split("/")[-1] for w, d in zip(model.trainable_variables, optimizer._decays) if d}
    assert decayed == {"kernel", "token", "position", "segment"}
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True), ["accuracy"])
    assert capsys.readouterr().out == "" and isinstance(model.optimizer, keras.optimizers.SGD)


@pytest.mark.parametrize("width", [768, 384, 256])
def test_the_default_rate_follows_the_width(width):
    config = bz.EncoderConfig(hidden_size=width, num_attention_heads=4)
    assert config.default_learning_rate == {768: 2e-5, 384: 5e-5, 256: 3e-4}[width]
    assert config.replace(extra={"bertzoo": {"learning_rate": 1e-3}}).default_learning_rate == 1e-3


@pytest.mark.parametrize("custom", [pytest.param(False, marks=pytest.mark.once), True])
def test_keras_files_bring_it_back_as_it_was(make_classifier, tmp_path, capsys, custom):
    head = bz.layers.ClassificationHead(2, 0.0, dense_activation="gelu") if custom else None
    model = make_classifier(head=head)
    model.fit(TEXTS, NAMES, batch_size=8, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="__array__ implementation")  # Keras and NumPy 2
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.labels == model.labels and again.problem_type == model.problem_type
    np.testing.assert_array_equal(
        again.predict(TEXTS, batch_size=8, verbose=0), model.predict(TEXTS, batch_size=8, verbose=0)
    )
    assert isinstance(again.optimizer, bz.AdamW)
    assert int(keras.ops.convert_to_numpy(again.optimizer.iterations)) == 2
    again.fit(TEXTS, NAMES, batch_size=8, verbose=0)
    model.fit(TEXTS, NAMES, batch_size=8, verbose=0)
    assert again.evaluate(TEXTS, IDS, batch_size=8, verbose=0) == pytest.approx(
        model.evaluate(TEXTS, IDS, batch_size=8, verbose=0), rel=1e-5
    )


def test_a_preset_whose_own_block_is_null_is_saved(classifier_preset, tmp_path):
    directory = shutil.copytree(classifier_preset, tmp_path / "null")
    content = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**content, "bertzoo": None}))
    bz.TextClassifier.from_preset(directory, verbose=False).save_to_preset(tmp_path / "out")
    saved = json.loads((tmp_path / "out" / "config.json").read_text())
    assert "bertzoo" not in saved and saved["problem_type"] == "single_label_classification"


def test_a_trained_preset_comes_back_with_its_labels(make_classifier, tmp_path):
    model = make_classifier(labels=["x", "y", "z"], problem_type="multi_label_classification")
    model.save_to_preset(tmp_path / "out")
    again = bz.TextClassifier.from_preset(tmp_path / "out", verbose=False)
    assert again.labels == ["x", "y", "z"] and again.problem_type == "multi_label_classification"
    content = json.loads((tmp_path / "out" / "config.json").read_text())
    assert content["id2label"] == {"0": "x", "1": "y", "2": "z"} and content["label2id"] == {"x": 0, "y": 1, "z": 2}
    np.testing.assert_allclose(
        again.predict(TEXTS, batch_size=8, verbose=0), model.predict(TEXTS, batch_size=8, verbose=0), atol=1e-6
    )
