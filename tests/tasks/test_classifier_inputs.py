"""TextClassifier on every form of input, streams, and the mistakes that one can make_classifier with them."""

import keras
import numpy as np
import pandas
import pytest
from classifier_cases import BAD, FIRSTS, GOOD, IDS, NAMES, SECONDS, TEXTS, pairs_in, rows_of

import bertzoo as bz


@pytest.fixture
def model(make_classifier):
    return make_classifier()


# ---- forms of input


class Stream(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return TEXTS[index * 8 : index * 8 + 8], NAMES[index * 8 : index * 8 + 8]


def generator():
    while True:
        for index in range(2):
            yield Stream()[index]


def torch_loader():
    import torch

    return torch.utils.data.DataLoader(list(zip(TEXTS, IDS)), batch_size=8)


def hf_dataset():
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict({"sentence": TEXTS, "label": IDS})


def tf_dataset():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("tf.data is for the TensorFlow backend")
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((TEXTS, IDS)).batch(8)


SINGLES = {
    "lists, names": lambda: (TEXTS, NAMES),
    "lists, ids": lambda: (TEXTS, IDS),
    "arrays": lambda: (np.array(TEXTS), np.array(IDS)),
    "array of names": lambda: (TEXTS, np.array(NAMES)),
    "series": lambda: (pandas.Series(TEXTS), pandas.Series(NAMES)),
    "frame": lambda: (pandas.DataFrame({"text": TEXTS, "label": NAMES}), None),
    "dict": lambda: ({"sentence": TEXTS, "labels": IDS}, None),
    "dict and y": lambda: ({"sentence": TEXTS}, IDS),
    "datasets": lambda: (hf_dataset(), None),
    "PyDataset": lambda: (Stream(), None),
    "DataLoader": lambda: (torch_loader(), None),
    "generator": lambda: (generator(), None),
    "tf.data": lambda: (tf_dataset(), None),
}

STREAMS = ("PyDataset", "DataLoader", "generator", "tf.data")


def as_lists(forms):
    """What becomes of forms that are read into lists is Keras's matter for one of them."""
    first = next(iter(forms))
    return [pytest.param(form, marks=[pytest.mark.once] * (form not in (first, *STREAMS))) for form in forms]


@pytest.mark.parametrize("form", as_lists(SINGLES))
def test_forms_of_single_texts(make_classifier, seen_batches, form):
    """Fault 7: what fit refuses."""
    x, y = SINGLES[form]()
    model = make_classifier()
    steps = {"steps_per_epoch": 2} if form == "generator" else {}
    history = model.fit(x, y, batch_size=8, verbose=0, **steps)
    assert np.isfinite(history.history["loss"][0]) and "accuracy" in history.history
    assert pairs_in(seen_batches) == sorted(zip(rows_of(model, TEXTS), IDS))
    if form in STREAMS:  # their own order
        assert [row for rows, *_ in seen_batches for row in rows] == rows_of(model, TEXTS)


PAIRS = {
    "tuple of columns": lambda: ((FIRSTS, SECONDS), IDS),
    "list of tuples": lambda: (list(zip(FIRSTS, SECONDS)), NAMES),
    "frame": lambda: (pandas.DataFrame({"premise": FIRSTS, "hypothesis": SECONDS, "label": IDS}), None),
    "dict": lambda: ({"sentence1": FIRSTS, "sentence2": SECONDS, "label": NAMES}, None),
}


@pytest.mark.parametrize("form", as_lists(PAIRS))
def test_forms_of_pairs(make_classifier, seen_batches, form):
    x, y = PAIRS[form]()
    model = make_classifier()
    model.fit(x, y, batch_size=8, verbose=0)
    assert pairs_in(seen_batches) == sorted(zip(rows_of(model, FIRSTS, SECONDS), IDS))
    assert model.batches(x, shuffle=False)._encoded.token_ids.tolist() == sum(
        map(list, rows_of(model, FIRSTS, SECONDS)), []
    )


def test_without_tokenizer_the_caller_tokenizes(classifier_preset, model, seen_batches):
    bare = bz.TextClassifier.from_preset(classifier_preset, verbose=False, labels=2, tokenizer=None)
    assert bare.tokenizer is None
    bare.compile(bz.AdamW(1e-2, warmup=0.0, schedule="constant"), run_eagerly=True)
    inputs = model.tokenizer(TEXTS)
    bare.fit(inputs, np.array(IDS), batch_size=8, verbose=0)
    assert pairs_in(seen_batches) == sorted(zip(rows_of(model, TEXTS), IDS))
    assert bare.predict(inputs, batch_size=8, verbose=0).shape == (16, 2)
    with pytest.raises(ValueError, match="token_ids"):
        bare.predict(TEXTS, verbose=0)


# ---- kinds of target


def losses(model, x, y, epochs=12):
    return model.fit(x, y, batch_size=8, epochs=epochs, verbose=0).history["loss"]


# ---- mistakes


@pytest.mark.once
@pytest.mark.parametrize(
    ("x", "y", "options", "error", "message"),
    [
        ([GOOD, None], [1, 0], {}, TypeError, r"texts\[1\] must be a string. Received: NoneType"),
        ([GOOD, float("nan")], [1, 0], {}, TypeError, r"texts\[1\].*missing rows"),
        ([GOOD, 3], [1, 0], {}, TypeError, r"texts\[1\] must be a string. Received: int"),
        ([GOOD, BAD], [1], {}, ValueError, "x has 2 rows and y has 1"),
        (([GOOD, BAD], [GOOD]), [1, 0], {}, ValueError, "2 texts and 1 pairs"),
        ([GOOD, BAD], ["pos", "nice"], {}, ValueError, r"y\[1\] must be one of the labels .* Received: 'nice'"),
        ([GOOD, BAD], [1, 2], {}, ValueError, r"y\[1\] must be .* an index from 0 to 1. Received: 2"),
        ([GOOD, BAD], [1, float("nan")], {}, ValueError, r"y\[1\] must be .* Received: nan"),
        ([GOOD, BAD], [1, 0.5], {}, ValueError, r"y\[1\] must be .* Received: 0.5"),
        ([GOOD, BAD], [1, None], {}, ValueError, r"y\[1\] must be .* Received: None"),
        ([GOOD, BAD], None, {}, ValueError, "there are no targets"),
        ([GOOD, BAD], [1, 0], {"batch_size": 0}, ValueError, "must be a whole number of at least 1. Received: 0"),
        ([GOOD, BAD], [1, 0], {"batch_size": 2.0}, ValueError, "batch_size must be a whole number of at least 1"),
        ([GOOD, BAD], [1, 0], {"validation_split": 0.1}, ValueError, "leaves a part of the 2 rows empty"),
        ([], [], {}, ValueError, "x is empty"),
        ({"words": [GOOD]}, [1], {}, ValueError, r"columns \['words'\].*must be called text"),
        ([(GOOD, BAD), GOOD], [1, 0], {}, TypeError, r"x\[1\] must be a pair"),
        ([GOOD, BAD], [1, 0], {"validation_split": 1.5}, ValueError, "validation_split"),
    ],
)
def test_mistakes_are_named(model, x, y, options, error, message):
    with pytest.raises(error, match=message):
        model.fit(x, y, verbose=0, **options)


def test_more_mistakes(make_classifier):
    with pytest.raises(ValueError, match="call compile\\(\\) before fit"):
        make_classifier(compiled=False).fit(TEXTS, NAMES, verbose=0)
    number = make_classifier(labels=1)
    with pytest.raises(ValueError, match=r"y\[1\] must be a finite number for regression. Received: nan"):
        number.fit(TEXTS[:2], [1.0, float("nan")], verbose=0)
    with pytest.raises(ValueError, match="labels must be .* different names"):
        make_classifier(labels=["a", "a"])
    with pytest.raises(ValueError, match="problem_type must be one of"):
        make_classifier(problem_type="ranking")
    with pytest.raises(ValueError, match="at least two labels"):
        make_classifier(labels=1, problem_type="single_label_classification")
    with pytest.raises(ValueError, match="no targets"):
        make_classifier().evaluate(TEXTS, verbose=0)
    with pytest.raises(ValueError, match="a generator has no length"):
        make_classifier().fit(generator(), verbose=0)


def test_a_dataset_without_end_needs_steps(make_classifier):
    model, endless = make_classifier(), tf_dataset().repeat()
    with pytest.raises(ValueError, match="the data have no end: pass steps_per_epoch"):
        model.fit(endless, verbose=0)
    assert np.isfinite(model.fit(endless, steps_per_epoch=3, verbose=0).history["loss"][0])


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.once), 2, 3])
def test_a_stream_may_give_lists_of_texts_alone(make_classifier, size):
    import torch

    model = make_classifier(compiled=False)
    stream = torch.utils.data.DataLoader(TEXTS[:6], batch_size=size)
    np.testing.assert_allclose(
        model.predict(stream, verbose=0), model.predict(TEXTS[:6], batch_size=size, verbose=0), atol=1e-5
    )


@pytest.mark.parametrize("rows", [["a"] * 2 + ["a b c"] + ["a"], ["a " * 99] * 2 + ["a b"]])
def test_a_stream_whose_first_batches_are_alike(make_classifier, rows):
    """On TensorFlow Keras takes the lengths of the first two for those of all, unless they differ."""
    model = make_classifier()
    stream = tf_dataset().from_tensor_slices(rows).batch(1)
    np.testing.assert_allclose(model.predict(stream, verbose=0), model.predict(rows, verbose=0), atol=1e-5)
    labelled = tf_dataset().from_tensor_slices((rows, [0, 1, 0, 1][: len(rows)])).batch(1)
    assert np.isfinite(model.fit(labelled, verbose=0).history["loss"][0])


def test_batches_of_a_stream_are_trained_on_once_and_in_order(make_classifier, eager):
    """A generator with no batch to spare; a PyDataset of three batches in epochs of two."""

    class Seen(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            losses.append(logs["loss"])

    def losses_of(x, **options):
        losses.clear()
        model = make_classifier(compiled=False)
        model.compile(keras.optimizers.SGD(0.0), run_eagerly=eager)
        model.fit(x, epochs=3, verbose=0, callbacks=[Seen()], **options)
        return list(losses)

    losses: list[float] = []
    rows = [(TEXTS[i : i + 4], IDS[i : i + 4]) for i in (0, 4, 2, 0, 4, 2)]
    singles = losses_of(iter(rows[:3]), steps_per_epoch=1)
    assert len(set(singles)) == 3

    class Three(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return rows[index]

    pairs = [(singles[a] + singles[b]) / 2 for a, b in ((0, 1), (2, 0), (1, 2))]
    np.testing.assert_allclose(losses_of(iter(rows), steps_per_epoch=2), pairs, rtol=1e-5)
    np.testing.assert_allclose(losses_of(Three(), steps_per_epoch=2), pairs, rtol=1e-5)
    with pytest.raises(Exception, match="the data ended at batch 2 of epoch 3"):
        losses_of(iter(rows[:5]), steps_per_epoch=2)
