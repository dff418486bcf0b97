"""An update of a large batch that is computed in mini-batches is the plain one, with dropout."""

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.losses import AdaptiveLayer, Matryoshka

WORDS = "the film was good bad dull a story plot we saw it with friends in paris rome never again actor great"
WORDS = np.array(WORDS.split())


def texts(count, longest, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, longest + 1))) for _ in range(count)]


def weights_after_an_update(
    preset, eager, x, y, loss, mini_batch_size, batch_size, compiling=None, **options
):  # not eager: a compiled graph, in TensorFlow too
    compiling = {"jit_compile": False if eager else "auto"} if compiling is None else compiling
    model = bz.SentenceEncoder.from_preset(preset, verbose=False, dropout=0.1, **options)
    before = [keras.ops.convert_to_numpy(weight) for weight in model.trainable_weights]
    model.compile(keras.optimizers.SGD(1.0), loss=loss, mini_batch_size=mini_batch_size, run_eagerly=eager, **compiling)
    logged = model.fit(x, y, batch_size=batch_size, verbose=0).history["loss"][0]
    after = [keras.ops.convert_to_numpy(weight) for weight in model.trainable_weights]
    assert any(np.abs(one - other).max() > 1e-3 for one, other in zip(before, after))
    return logged, after, model


def assert_same_update(preset, eager, x, y, loss, mini_batch_size, batch_size, **options):
    plain, expected, _ = weights_after_an_update(preset, eager, x, y, loss, None, batch_size, **options)
    logged, actual, model = weights_after_an_update(preset, eager, x, y, loss, mini_batch_size, batch_size, **options)
    assert logged == pytest.approx(plain, rel=1e-5)
    for one, other in zip(actual, expected):
        assert np.abs(one - other).max() <= 1e-5 * max(1, np.abs(other).max())
    return model


def test_an_update_of_512_examples_in_mini_batches_of_32_is_the_plain_one(plain, backend):
    x = (texts(512, 14, 0), texts(512, 14, 1))
    model = assert_same_update(plain, backend == "torch", x, None, "multiple_negatives", 32, 512)
    inputs = model.batches(x, batch_size=512)[0][0]
    assert inputs["first_texts"].tolist() == list(range(0, 1024, 64))
    assert inputs["packing"].size < 0.8 * inputs["token_ids"].size


@pytest.mark.parametrize(
    ("loss", "columns", "y", "options"),
    [
        pytest.param("multiple_negatives", 2, None, {"pooling": "cls"}, id="cls, last mini-batch smaller"),
        pytest.param(AdaptiveLayer(Matryoshka("multiple_negatives", [32, 8])), 2, None, {}, id="all layers"),
        pytest.param("batch_hard_triplet", 1, [0, 1, 2, 0, 1] * 11, {}, id="single texts"),
    ],
)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
def test_other_batches(loss, columns, y, options, packed, plain, eager):
    same_length = [f"{word} film was {word}" for word in np.tile(WORDS, 3)][:55]
    x = tuple(texts(55, 14, i) if packed else same_length for i in (0, 1))
    model = assert_same_update(plain, eager, x if columns > 1 else x[0], y, loss, 8, 40, **options)
    data = model.batches(x if columns > 1 else x[0], y, batch_size=40)
    assert [("packing" in data[i][0]) for i in range(2)] == [packed, packed]  # 40 and 15 examples


@pytest.mark.slow
def test_pytorch_compiles_the_graph_of_a_mini_batch(plain, backend):
    if backend != "torch":
        pytest.skip("the other backends compile the whole step")
    x = (texts(48, 14, 0), texts(48, 14, 1))
    assert_same_update(plain, False, x, None, "multiple_negatives", 12, 48, compiling={"jit_compile": True})


def test_evaluation_in_mini_batches_is_the_plain_one(plain, eager):
    x, values = (texts(50, 14, 0), texts(50, 14, 1)), []
    for size in (None, 8):
        model = bz.SentenceEncoder.from_preset(plain, verbose=False)
        model.compile("sgd", "multiple_negatives", mini_batch_size=size, run_eagerly=eager)
        values.append(model.evaluate(x, batch_size=30, verbose=0))
    assert values[1] == pytest.approx(values[0], rel=1e-5)


@pytest.mark.once
def test_batches_that_were_packed_for_others_are_refused(plain):
    model = bz.SentenceEncoder.from_preset(plain, verbose=False)
    model.compile("sgd", "multiple_negatives", run_eagerly=True)
    data = model.batches((texts(50, 14, 0), texts(50, 14, 1)), batch_size=30)
    model.compile("sgd", "multiple_negatives", mini_batch_size=8, run_eagerly=True)
    assert model.get_compile_config()["mini_batch_size"] == 8
    with pytest.raises(ValueError, match=r"Make the data set after\s+compile\(mini_batch_size=8\)"):
        model.fit(data, verbose=0)
    for size in (0, 2.5, True):
        with pytest.raises(ValueError, match="mini_batch_size must be a whole number of at least 1"):
            model.compile("sgd", "multiple_negatives", mini_batch_size=size)
