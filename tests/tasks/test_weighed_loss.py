"""The loss of an update and of `evaluate`: one mean by weights over all examples, whatever shares a batch."""

import keras
import numpy as np
import pytest
import sklearn.metrics
import sklearn.model_selection
from loss_cases import CLASSES, PAIRS, SENTENCES, TAGS, TASKS, TEXTS, WORDS, Stream, expected, log_softmax, once_but

import bertzoo as bz
from bertzoo.text.encoded import PACKING


@pytest.mark.slow
@pytest.mark.parametrize("kind", once_but(TASKS, ["tags", "masked"]))
def test_evaluation_is_one_mean_at_every_batch_size(kind, make_task, numpy, backend):
    task, options, (x, y) = TASKS[kind]
    model = make_task(task, **options)
    scores = [
        model.evaluate(x, y, batch_size=size, verbose=0, return_dict=True)
        for size in ([1, 7, 32] if backend == "torch" else [7, 32])
    ]
    for name in scores[0]:
        np.testing.assert_allclose([score[name] for score in scores], scores[0][name], rtol=2e-6, atol=1e-6)
    loss, accuracy = expected(kind, model, model.data.batches(x, y, batch_size=100, shuffle=False)[0], numpy)
    assert scores[0]["loss"] == pytest.approx(loss, rel=2e-6)
    if accuracy is not None:
        result = next(value for name, value in scores[0].items() if name not in ("loss", "perplexity"))
        assert result == pytest.approx(accuracy, rel=1e-6)
    if kind == "masked":
        assert scores[0]["perplexity"] == pytest.approx(np.exp(loss), rel=1e-5)


@pytest.mark.parametrize("kind", once_but(["tags", "masked", "classes"], ["tags"]))
def test_validation_in_fit_and_sample_weights_are_that_mean_too(kind, make_task):
    task, options, (x, y) = TASKS[kind]
    model = make_task(task, keras.optimizers.SGD(0.0), **options)
    weights = None if kind == "masked" else np.linspace(0.1, 3, len(x)).astype("float32")
    data = (x,) if y is None else (x, y) if weights is None else (x, y, weights)
    history = model.fit(*data[:2], validation_data=data if len(data) > 1 else x, batch_size=2, verbose=0).history
    scores = model.evaluate(x, y, sample_weight=weights, batch_size=5, verbose=0, return_dict=True)
    for name, value in scores.items():
        assert history[f"val_{name}"][0] == pytest.approx(value, rel=2e-6)
    if weights is not None:  # rows of weight 0 are as if they were not there
        part = model.evaluate(x[:6], y[:6], batch_size=4, verbose=0)[0]
        none = np.array([2.0] * 6 + [0.0] * (len(x) - 6))
        assert model.evaluate(x, y, sample_weight=none, batch_size=4, verbose=0)[0] == pytest.approx(part, rel=2e-6)


@pytest.mark.once
@pytest.mark.parametrize("name", ["accuracy", "sparse_categorical_accuracy"])
def test_metrics_that_a_user_passes_count_labelled_tokens_alone(name, make_task, numpy):
    task, options, (x, y) = TASKS["tags"]
    model = make_task(task, compile={"metrics": [name]}, **options)
    scores = model.evaluate(x, y, batch_size=3, verbose=0, return_dict=True)
    assert set(scores) == {"loss", name}
    assert scores[name] == pytest.approx(
        expected("tags", model, model.data.batches(x, y, shuffle=False)[0], numpy)[1], rel=1e-6
    )


# ---- training


def weights_after(model, x, y, **options):
    model.fit(x, y, shuffle=False, verbose=0, **options)
    return [keras.ops.convert_to_numpy(weight) for weight in model.trainable_weights]


UPDATES = ["tags", "crf", "masked", "answers", "classes", "pairs", "choices"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", once_but(UPDATES, ["tags"]))
def test_accumulated_batches_are_one_batch(kind, make_task):
    task, options, (x, y) = TASKS[kind]
    x, y = (part[:8] if isinstance(part, list) else part for part in (x, y))
    x = tuple(part[:8] for part in x) if isinstance(x, tuple) else x
    optimizers = [keras.optimizers.SGD(1.0), keras.optimizers.SGD(1.0, gradient_accumulation_steps=4)]
    whole, chunks = (make_task(task, optimizer, **options) for optimizer in optimizers)
    whole.set_weights(chunks.get_weights())
    start = [keras.ops.convert_to_numpy(weight) for weight in whole.trainable_weights]
    result = [weights_after(whole, x, y, batch_size=8), weights_after(chunks, x, y, batch_size=2)]
    for a, b in zip(*result):
        np.testing.assert_allclose(a, b, atol=2e-5)
    assert max(np.abs(a - b).max() for a, b in zip(start, result[0])) > 0.01


def without_packing(batch):
    x, *targets = batch
    return {name: array for name, array in x.items() if name not in PACKING}, *targets


@pytest.mark.once
@pytest.mark.parametrize("shuffle", [True, False])
def test_accumulation_goes_on_across_epochs(shuffle, make_task):
    """Five batches an epoch, two to an update: the third takes the last of one epoch and the first of the next."""
    task, options, (x, y) = TASKS["tags"]
    x, y = x[:10], y[:10]
    model = make_task(task, keras.optimizers.SGD(0.5, gradient_accumulation_steps=2), **options)
    other = make_task(task, keras.optimizers.SGD(0.5), **options)
    other.set_weights(model.get_weights())
    data = model.batches(x, y, batch_size=2, shuffle=shuffle)
    for pair in ([(0, 0), (0, 1)], [(0, 2), (0, 3)], [(0, 4), (1, 0)], [(1, 1), (1, 2)], [(1, 3), (1, 4)]):
        rows = [without_packing(data.peek_batch(*place)) for place in pair]
        width = max(batch[1].shape[1] for batch in rows)
        grow = lambda part: np.pad(part, ((0, 0), (0, width - part.shape[1]))) if part.ndim == 2 else part  # noqa: B023,E731
        joined = keras.tree.map_structure(lambda a, b: np.concatenate([grow(a), grow(b)]), *rows)  # noqa: B023
        other.train_on_batch(*joined)
    model.fit(x, y, batch_size=2, epochs=2, shuffle=shuffle, verbose=0)
    for a, b in zip(model.get_weights(), other.get_weights()):
        np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.once
def test_too_few_batches_for_an_update_are_told(make_task):
    task, options, (x, y) = TASKS["classes"]
    model = make_task(task, bz.AdamW(1e-2, gradient_accumulation_steps=4), **options)
    with pytest.warns(UserWarning, match="2 batches and gradient_accumulation_steps is 4"):
        model.fit(x, y, batch_size=6, verbose=0)
    model.fit(x, y, batch_size=6, verbose=0)  # the third and the fourth
    assert int(model.optimizer.iterations) == 1


@pytest.mark.once
def test_a_run_of_one_update_trains(make_task):
    """As a chunk of a stream or a round of active learning is one."""
    model = make_task(bz.TextClassifier, compiled=False, labels=3)
    model.compile()
    before = model.get_weights()
    model.fit(TEXTS, CLASSES, verbose=0)
    assert max(np.abs(a - b).max() for a, b in zip(before, model.get_weights())) > 1e-5


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize("kind", ["tags", "masked", "answers", "negatives"])
def test_batches_to_train_on_are_drawn_whatever_their_lengths(kind, make_task):
    """Of 64 short and 64 long rows, a random batch of 16 has 8 of each, give or take; one by length has one kind."""
    lengths = [1, 12] * 64
    words = [WORDS[:length] for length in lengths]
    texts = [" ".join(row) for row in words]
    asked = [{"question": "it", "context": text, "answers": ["the"]} for text in texts]
    task, options, (x, y) = {
        "tags": (bz.TokenClassifier, {"labels": ["x", "y"]}, (words, [["x"] * n for n in lengths])),
        "masked": (bz.MaskedLM, {}, (texts, None)),
        "answers": (bz.QuestionAnswerer, {}, (asked, None)),
        "negatives": (bz.SentenceEncoder, {"compile": {"loss": "multiple_negatives"}}, (list(zip(texts, texts)), None)),
    }[kind]
    data = make_task(task, **options).batches(x, y, batch_size=16)
    shapes = set()
    for epoch in range(3):
        data.epoch = epoch
        for batch in data:
            real = batch[0]["padding_mask"].sum(-1)
            assert 1 <= (real > real.min()).sum() / (2 if kind == "negatives" else 1) <= 15
            shapes.add(batch[0]["token_ids"].shape)
    assert len(shapes) <= 4


@pytest.mark.once
def test_negatives_are_measured_in_the_order_of_the_rows(make_task):
    model = make_task(bz.SentenceEncoder, compile={"loss": "multiple_negatives"})
    data = model.data.batches(PAIRS, batch_size=4, shuffle=False, with_targets=True)
    assert data.row_order.tolist() == list(range(len(PAIRS)))


# ---- weights of classes, macro F1


@pytest.mark.parametrize("kind", ["tags", pytest.param("classes", marks=pytest.mark.once)])
def test_class_weights_weigh_each_example(kind, make_task, numpy):
    task, options, (x, y) = TASKS[kind]
    model = make_task(task, keras.optimizers.SGD(0.0), **options)
    names = {"LABEL_0": 3.0, "LABEL_2": 0.5} if kind == "classes" else {"x": 3.0, "z": 0.5}
    history = model.fit(x, y, class_weight=names, batch_size=4, verbose=0, sample_weight=[2.0] * len(x)).history
    inputs, targets, *counts = model.data.batches(x, y, batch_size=100, shuffle=False)[0]
    weights = np.array([3.0, 1.0, 0.5])[targets] * (counts[0] if counts else 1.0)
    logs = log_softmax(numpy(model(inputs)))
    right = np.take_along_axis(logs, targets[..., None], -1)[..., 0]
    assert history["loss"][0] == pytest.approx(-(right * weights).sum() / weights.sum(), rel=1e-5)


@pytest.mark.once
def test_class_weights_and_a_crf_do_not_go_together(make_task):
    task, options, (x, y) = TASKS["crf"]
    with pytest.raises(ValueError, match="a CRF scores whole sentences"):
        make_task(task, **options).fit(x, y, class_weight={"x": 2.0}, verbose=0)
    with pytest.raises(ValueError, match="must be one of the labels .* Received: 'w'"):
        make_task(bz.TokenClassifier, labels=["x", "y", "z"]).fit(x, y, class_weight={"w": 2.0}, verbose=0)


@pytest.mark.parametrize("kind", ["classes", pytest.param("several", marks=pytest.mark.once)])
def test_macro_f1_is_that_of_sklearn_at_every_batch_size(kind, make_task, backend):
    task, options, (x, y) = TASKS[kind]
    model = make_task(task, keras.optimizers.SGD(0.0), compile={"metrics": [bz.training.MacroF1()]}, **options)
    logits = model.predict(x, verbose=0)
    predicted = logits.argmax(1) if kind == "classes" else logits > 0
    for size in (3, 32) if backend == "torch" else (3,):
        history = model.fit(x, y, validation_data=(x, y), batch_size=size, verbose=0).history
        right = sklearn.metrics.f1_score(y, predicted, average="macro", zero_division=0)
        assert history["val_macro_f1"][0] == pytest.approx(right, rel=1e-6)


# ---- targets that no loss can see


@pytest.mark.once
def test_ready_batches_of_tags_count_neither_padding_nor_what_has_no_label(make_task):
    model = make_task(bz.TokenClassifier, labels=["x", "y", "z"])
    data = model.data.batches(SENTENCES, TAGS, batch_size=4, shuffle=False)
    ready = [(x, np.where(w > 0, y, -100)) for x, y, w in data]
    right = model.evaluate(SENTENCES, TAGS, verbose=0)
    np.testing.assert_allclose(model.evaluate(Stream(*ready), verbose=0), right, rtol=2e-6)
    x, y = ready[0]
    all_real = model.evaluate(Stream((x, np.zeros_like(y))), verbose=0)[0]
    weights = x["padding_mask"].astype("float32")
    assert all_real == pytest.approx(model.evaluate(Stream((x, np.zeros_like(y), weights)), verbose=0)[0])
    with pytest.raises(ValueError, match="y holds 3; labels are numbers from 0 to 2"):
        model.evaluate(Stream((x, np.full_like(y, 3))), verbose=0)


@pytest.mark.once
def test_targets_out_of_range_are_named(make_task):
    x = make_task(bz.TextClassifier, labels=3).tokenizer(TEXTS)
    model = make_task(bz.TokenClassifier, labels=["x", "y"], tokenizer=None)
    with pytest.raises(ValueError, match="y holds 2; labels are numbers from 0 to 1"):
        model.fit(x, np.full_like(x["token_ids"], 2), verbose=0)
    model = make_task(bz.QuestionAnswerer, tokenizer=None)
    with pytest.raises(ValueError, match=r"y\[0\] is \[0, 3\]; the row has 3 tokens"):
        model.fit(x, np.stack([np.zeros(len(TEXTS), int), x["padding_mask"].sum(1)], axis=1), verbose=0)
    model = make_task(bz.MultipleChoice, tokenizer=None)
    choices = {name: np.stack([part, part], axis=1) for name, part in x.items()}
    with pytest.raises(ValueError, match="from 0 to 1, one of the 2 choices. Received: values from 2 to 2"):
        model.fit(Stream((choices, np.full(len(TEXTS), 2))), verbose=0)
