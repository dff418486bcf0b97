"""SentenceEncoder against sentence-transformers, on every form of directory, input and mistake."""

import json

import keras
import numpy as np
import pandas
import pytest

import bertzoo as bz
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.data.task_data import split_rows
from bertzoo.layers import Normalize, Pooling
from bertzoo.tasks import sentence_encoder
from bertzoo.text.encoded import Encoded
from bertzoo.training.sentence_losses import LOSSES, Matryoshka, MultipleNegativesRanking, SoftmaxOfPairs

TEXTS = [
    "a good film",
    "the plot was dull and bad, and the actor was not very good",
    "",
    "we saw it with friends in paris",
    "never again !",
    "a great story",
]


@pytest.fixture(scope="module")
def st():
    library = pytest.importorskip("sentence_transformers")
    library.models = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    return library


@pytest.fixture(scope="module")
def plain(write_checkpoint):
    return write_checkpoint(num_hidden_layers=1)[0]


@pytest.fixture(scope="module")
def make_st(st, plain, tmp_path_factory):
    """Parts after the encoder, and options -> (directory that sentence-transformers wrote, its model)."""

    def make(*parts, max_length=32, **options):
        transformer = st.models.Transformer(str(plain), max_seq_length=max_length)
        model = st.SentenceTransformer(modules=[transformer, *parts], device="cpu", **options)
        directory = tmp_path_factory.mktemp("st")
        model.save(str(directory))
        return directory, model

    return make


def parts_of(st):
    import torch

    torch.manual_seed(0)
    models = st.models
    return {
        "mean, normalized": [models.Pooling(32, "mean"), models.Normalize()],
        "cls": [models.Pooling(32, "cls")],
        "joined": [models.Pooling(32, ("mean", "cls", "max"))],
        "old order": [models.Pooling(32, ("cls", "max", "lasttoken"))],
        "dense": [models.Pooling(32, "weightedmean"), models.Dense(32, 12), models.Normalize()],
        "two dense": [
            models.Pooling(32, "mean_sqrt_len_tokens"),
            models.Dense(32, 12, bias=False, activation_function=torch.nn.GELU()),
            models.Dense(12, 5, activation_function=torch.nn.Identity()),
        ],
    }


NAMES = ("mean, normalized", "cls", "joined", "old order", "dense", "two dense")


@pytest.fixture(scope="module")
def encoder(plain):
    return bz.SentenceEncoder.from_preset(plain, verbose=False)


# ---- directories


# How tokens are pooled is compared on each backend in layers/test_pooling.py.
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.once] * ("dense" not in n)) for n in NAMES])
def test_loads_and_saves_what_sentence_transformers_does(name, st, make_st, tmp_path, close):
    directory, theirs = make_st(*parts_of(st)[name])
    expected = theirs.encode(TEXTS)
    ours = bz.SentenceEncoder.from_preset(directory, verbose=False)
    close(ours.encode(TEXTS), expected)
    ours.save_to_preset(tmp_path / "saved")
    back = st.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    close(back.encode(TEXTS), expected)
    assert back.max_seq_length == 32
    close(bz.SentenceEncoder.from_preset(tmp_path / "saved", verbose=False).encode(TEXTS), expected)


@pytest.mark.once
def test_the_pooler_of_the_file_is_kept_and_not_trained(st, make_st, tmp_path):
    from safetensors.numpy import load_file

    directory, _ = make_st(*parts_of(st)["cls"])
    ours = bz.SentenceEncoder.from_preset(directory, verbose=False)
    assert not any("pooler" in weight.path for weight in ours.trainable_weights)
    ours.save_to_preset(tmp_path / "saved")
    before, after = (load_file(folder / "model.safetensors") for folder in (directory, tmp_path / "saved"))
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[key], after[key]) for key in before)


def test_prompts_are_carried_and_used(st, make_st, tmp_path, close):
    prompts = {"query": "the story was ", "document": ""}
    directory, theirs = make_st(
        st.models.Pooling(32, ("mean", "weightedmean"), include_prompt=False),
        prompts=prompts,
        default_prompt_name="query",
    )
    bz.SentenceEncoder.from_preset(directory, verbose=False).save_to_preset(tmp_path / "saved")
    ours = bz.SentenceEncoder.from_preset(tmp_path / "saved", verbose=False)
    assert (ours.prompts, ours.default_prompt, ours.pooling.include_prompt) == (prompts, "query", False)
    close(ours.encode(TEXTS), theirs.encode(TEXTS))
    close(ours.encode(TEXTS, prompt_name="document"), theirs.encode(TEXTS, prompt_name="document"))
    close(ours.encode(TEXTS, prompt="very "), theirs.encode(TEXTS, prompt="very "))
    assert not np.allclose(ours.encode(TEXTS), ours.encode(TEXTS, prompt=""))
    with pytest.raises(ValueError, match="one of the model's prompts: .*Received: 'qurey'"):
        ours.encode(TEXTS, prompt_name="qurey")


def test_a_plain_encoder_gets_mean_pooling_as_there(plain, st, close):
    theirs = st.SentenceTransformer(str(plain), device="cpu")
    ours = bz.SentenceEncoder.from_preset(plain, verbose=False)
    close(ours.encode(TEXTS), theirs.encode(TEXTS))
    assert "mean pooling, of at most 64 tokens" in str(ours.load_report)


@pytest.mark.once
def test_an_encoder_in_a_folder_of_its_own_as_before_version_2(st, make_st, tmp_path, close):
    directory, theirs = make_st(*parts_of(st)["cls"])
    (tmp_path / "0_Transformer").mkdir()
    for path in directory.iterdir():
        if path.is_file() and path.name != "modules.json":
            path.rename(tmp_path / "0_Transformer" / path.name)
    (directory / "1_Pooling").rename(tmp_path / "1_Pooling")
    entries = json.loads((directory / "modules.json").read_text())
    entries[0]["path"] = "0_Transformer"
    (tmp_path / "modules.json").write_text(json.dumps(entries))
    close(bz.SentenceEncoder.from_preset(tmp_path, verbose=False).encode(TEXTS), theirs.encode(TEXTS))


@pytest.mark.once
def test_options_overrule_the_files(st, make_st, close):
    directory, theirs = make_st(*parts_of(st)["mean, normalized"])
    ours = bz.SentenceEncoder.from_preset(directory, verbose=False, max_length=8, pooling="cls", after_pooling=[])
    theirs.max_seq_length = 8
    tokens = theirs.encode(TEXTS, output_value="token_embeddings")
    close(ours.encode(TEXTS), np.stack([row[0].numpy() for row in tokens]))


def test_attention_pooling_is_kept_but_beyond_sentence_transformers(plain, st, tmp_path, close):
    ours = bz.SentenceEncoder.from_preset(plain, verbose=False, pooling=("cls", "attention"))
    ours.pooling.attention.assign(np.linspace(-1, 1, 32))
    ours.save_to_preset(tmp_path / "saved")
    again = bz.SentenceEncoder.from_preset(tmp_path / "saved", verbose=False)
    close(again.encode(TEXTS), ours.encode(TEXTS))
    with pytest.raises(ValueError, match="attention"):
        st.SentenceTransformer(str(tmp_path / "saved"), device="cpu")


@pytest.mark.once
def test_saving_replaces_all_or_nothing(st, make_st, encoder, monkeypatch, close):
    from bertzoo.checkpoints import saving

    directory, theirs = make_st(*parts_of(st)["dense"])
    expected = theirs.encode(TEXTS)
    monkeypatch.setattr(saving, "_rename", lambda *paths: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(CheckpointError, match="no space left"):
        encoder.save_to_preset(directory)
    monkeypatch.undo()
    close(bz.SentenceEncoder.from_preset(directory, verbose=False).encode(TEXTS), expected)
    encoder.save_to_preset(directory)
    close(bz.SentenceEncoder.from_preset(directory, verbose=False).encode(TEXTS), encoder.encode(TEXTS))


def edited(directory, name, **changes):
    path = directory / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def entry(**changes):
    return [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}] + [
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling", **changes}
    ]


@pytest.mark.once
@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (entry(type="custom_code.Pooling"), "runs no code that comes with a checkpoint"),
        (entry(type="sentence_transformers.models.LSTM"), "names sentence_transformers.models.LSTM"),
        (entry(path="../elsewhere"), "a name inside the directory is expected"),
        (entry(path="/etc"), "a name inside the directory is expected"),
        (entry(type="sentence_transformers.models.Normalize"), "one Pooling must come first"),
        (entry()[1:], "an encoder is expected"),
        (["x"], "each an object with a type and a path"),
    ],
)
def test_damaged_lists_of_parts_are_refused(entries, message, st, make_st):
    directory, _ = make_st(*parts_of(st)["cls"])
    (directory / "modules.json").write_text(json.dumps(entries))
    with pytest.raises(CheckpointError, match=message):
        bz.SentenceEncoder.from_preset(directory, verbose=False)


@pytest.mark.once
def test_dense_parts_that_we_do_not_compute_are_refused(st, make_st):
    for changes, message in (
        ({"activation_function": "os.system"}, r"2_Dense/config.json .*activation_function must .* 'os.system'"),
        ({"use_residual": True}, "does not compute"),
        ({"out_features": 13}, "2_Dense/config.json .*out_features must be 12. Received: 13"),
    ):
        directory, _ = make_st(*parts_of(st)["dense"])
        edited(directory / "2_Dense", "config.json", **changes)
        with pytest.raises(CheckpointError, match=message):
            bz.SentenceEncoder.from_preset(directory, verbose=False)


# ---- encode


def test_the_order_and_the_batch_size_do_not_matter(encoder, close):
    vectors = encoder.encode(TEXTS)
    for batch_size in (1, 4, 32, 100):
        close(encoder.encode(TEXTS, batch_size=batch_size), vectors)
    close(encoder.encode(TEXTS[::-1])[::-1], vectors)
    for form in (np.array(TEXTS), tuple(TEXTS), pandas.Series(TEXTS)):
        close(encoder.encode(form), vectors)
    assert vectors.dtype == np.float32


def test_one_string_gives_one_vector_and_no_texts_none(encoder, close):
    close(encoder.encode(TEXTS[0]), encoder.encode(TEXTS)[0])
    assert encoder.encode([]).shape == (0, 32)
    assert encoder.encode([], normalize=True, truncate_dim=8).shape == (0, 8)


@pytest.mark.once
def test_a_long_text_is_cut_and_an_empty_one_has_a_vector(plain, st, close):
    theirs = st.SentenceTransformer(str(plain), device="cpu")
    texts = ["film " * 100_000, "", " \n"]
    close(bz.SentenceEncoder.from_preset(plain, verbose=False).encode(texts), theirs.encode(texts))


def test_normalize_and_truncate_as_there(encoder, plain, st, close):
    theirs = st.SentenceTransformer(str(plain), device="cpu")
    for options in ({"truncate_dim": 8}, {}):
        close(
            encoder.encode(TEXTS, normalize=True, **options), theirs.encode(TEXTS, normalize_embeddings=True, **options)
        )


def test_tensors_on_request(encoder, close):
    tensor = encoder.encode(TEXTS, output="tensor")
    assert keras.ops.is_tensor(tensor)
    close(keras.ops.convert_to_numpy(tensor), encoder.encode(TEXTS))


def test_a_generator_is_read_as_it_is_consumed(encoder, monkeypatch, close):
    from bertzoo.tasks import sentence_encoder

    monkeypatch.setattr(sentence_encoder, "ROWS_AT_ONCE", 4)
    read = []

    def texts():
        for number in range(10**9):
            read.append(number)
            yield TEXTS[number % len(TEXTS)]

    vectors = encoder.encode(texts(), batch_size=2)
    first = [next(vectors) for _ in range(6)]
    assert len(read) == 8  # two chunks of four
    close(np.stack(first), encoder.encode(TEXTS))
    assert list(encoder.encode(iter([]))) == []


def test_a_stream_keeps_the_shapes_of_its_first_texts(encoder, monkeypatch, backend, close):
    """What is compiled for one part of it serves the next, so that neither time nor memory grows."""
    monkeypatch.setattr(sentence_encoder, "ROWS_AT_ONCE", 64)
    rng = np.random.default_rng(0)
    texts = [" ".join(["film"] * n) for longest in (9, 12, 17, 23, 7) for n in rng.integers(1, longest, 64)]
    shapes, pad = [], Encoded.pad

    def note(self, rows, length, *arguments, **options):
        shapes.append((len(rows), length))
        return pad(self, rows, length, *arguments, **options)

    monkeypatch.setattr(Encoded, "pad", note)
    vectors = encoder.encode(iter(texts))
    found = [next(vectors)]
    first = set(shapes)
    found += vectors
    if backend != "torch":  # which compiles nothing
        later = set(shapes) - first
        # The longest, and on TensorFlow, which wants lengths that differ, one more.
        assert len(later) <= 2 and {length for _, length in later} <= {8, encoder.tokenizer.max_length}
    close(found, encoder.encode(texts))


def test_what_is_fetched_in_parts_is_the_same(encoder, monkeypatch):
    texts = [TEXTS[i % len(TEXTS)] for i in range(23)]
    whole, sizes, predict = encoder.encode(texts, batch_size=3), [], keras.Model.predict

    def counted(model, data, **options):
        sizes.append(len(data.order))
        return predict(model, data, **options)

    monkeypatch.setattr(sentence_encoder, "ROWS_KEPT", 9)
    monkeypatch.setattr(keras.Model, "predict", counted)
    np.testing.assert_allclose(encoder.encode(texts, batch_size=3), whole, atol=1e-6)
    assert sum(sizes) == 23 and max(sizes) <= 9


@pytest.mark.once
def test_a_progress_bar_on_long_work_only(encoder, monkeypatch, capsys):
    encoder.encode(TEXTS)
    assert capsys.readouterr().out == ""
    encoder.encode(TEXTS, show_progress_bar=True)
    assert "1/1" in capsys.readouterr().out
    monkeypatch.setattr(sentence_encoder, "LONG_WORK", 3)
    encoder.encode(TEXTS, batch_size=2)
    assert capsys.readouterr().out == ""  # no terminal
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    encoder.encode(TEXTS, batch_size=2)
    assert "3/3" in capsys.readouterr().out
    encoder.encode(TEXTS, batch_size=2, show_progress_bar=False)
    assert capsys.readouterr().out == ""


@pytest.mark.once
@pytest.mark.parametrize(
    ("texts", "options", "error", "message"),
    [
        (None, {}, TypeError, "must be a string or a sequence of strings"),
        (["a", None], {}, TypeError, r"texts\[1\] must be a string. Received: NoneType"),
        (["a", 3], {}, TypeError, r"texts\[1\] must be a string. Received: int"),
        (["a", ["b"]], {}, TypeError, r"texts\[1\] must be a string. Received: list"),
        (5, {}, TypeError, "must be a string or a sequence of strings"),
        (["a"], {"batch_size": 0}, ValueError, "batch_size must be a whole number of at least 1. Received: 0"),
        (["a"], {"batch_size": 2.5}, ValueError, "batch_size must be a whole number"),
        (["a"], {"truncate_dim": 33}, ValueError, "truncate_dim must be from 1 to 32"),
        (["a"], {"output": "list"}, ValueError, 'output must be "numpy" or "tensor"'),
        (["a"], {"normalise": True}, TypeError, "encode has no argument normalise"),
        (iter(["a", None]), {}, TypeError, r"texts\[1\] must be a string. Received: NoneType"),
    ],
)
def test_mistakes_are_named(encoder, texts, options, error, message):
    with pytest.raises(error, match=message):
        list(encoder.encode(texts, **options))


def test_without_tokenizer_it_takes_arrays(plain, encoder, close):
    bare = bz.SentenceEncoder.from_preset(plain, verbose=False, tokenizer=None)
    inputs = encoder.tokenizer(TEXTS)
    close(bare.encode(inputs), encoder.encode(TEXTS))
    with pytest.raises(ValueError, match="the prompt 'query: ' can't be put before token_ids"):
        bare.encode(inputs, prompt="query: ")
    bare = bz.SentenceEncoder(bare.backbone, prompts={"query": "query: "}, default_prompt="query")
    with pytest.raises(ValueError, match="the prompt 'query: '"):
        bare.encode(inputs)
    close(bare.encode(inputs, prompt=""), encoder.encode(TEXTS))


@pytest.mark.once
def test_what_mteb_passes_is_taken(plain, close):
    class Loader:
        batch_size = 4

        def __iter__(self):
            return iter([{"text": TEXTS[:4], "id": [0, 1, 2, 3]}, {"text": TEXTS[4:], "id": [4, 5]}])

    model = bz.SentenceEncoder.from_preset(plain, verbose=False, prompts={"query": "very "})
    context = {"task_metadata": object(), "hf_split": "test", "hf_subset": "default", "batch_size": 4}
    model = model.for_mteb()
    assert not hasattr(model, "predict")  # by which mteb knows cross-encoders
    close(model.encode(Loader(), prompt_type="query", **context), model.encode(TEXTS, prompt="very "))
    close(model.encode(Loader(), prompt_type="document", **context), model.encode(TEXTS))


@pytest.mark.once
def test_similarity_is_the_measure_of_the_files(plain, st, close):
    vectors = np.random.default_rng(0).normal(size=(4, 32)).astype("float32")
    for measure in ("cosine", "dot"):
        ours = bz.SentenceEncoder.from_preset(plain, verbose=False, settings={"similarity_fn_name": measure})
        theirs = st.SentenceTransformer(str(plain), device="cpu", similarity_fn_name=measure)
        close(ours.similarity(vectors, vectors[:3]), theirs.similarity(vectors, vectors[:3]))
        close(
            ours.similarity_pairwise(vectors, vectors[::-1]), theirs.similarity_pairwise(vectors, vectors[::-1].copy())
        )


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


TARGETS = {
    "cosine": SCORES,
    "cosent": SCORES,
    "softmax": [0, 1, 2, 0, 1, 2],
    "triplet": None,
    "multiple_negatives": None,
    "margin_mse": SCORES,
    "distillation": np.random.default_rng(0).normal(size=(6, 32)),
}


# Values and gradients of all are compared in training/test_sentence_losses.py, on each backend. "cosine" is fit above;
# these differ in the number of texts, in the kind of targets and their shape, and by a layer that is trained.
FIT = ("triplet", "softmax", "distillation", "margin_mse")


@pytest.mark.parametrize("loss", [pytest.param(name, marks=[pytest.mark.once] * (name not in FIT)) for name in LOSSES])
def test_every_loss_trains(loss, trainable):
    model = trainable(loss)
    three = loss in ("triplet", "margin_mse")
    x = (FIRSTS, SECONDS, SECONDS[1:] + SECONDS[:1]) if three else (FIRSTS, SECONDS)
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
    held = [list(zip(*TRIPLES))[i] for i in split_rows(6, 0.5, 0)[1]]
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
    with pytest.raises(ValueError, match="compares rows of 3 texts; these rows have 2"):
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
        ("cosine", FIRSTS, SCORES, "compares rows of 2 texts; these rows have 1"),
        ("triplet", (FIRSTS, SECONDS), None, "compares rows of 3 texts; these rows have 2"),
        ("cosine", (FIRSTS, SECONDS), SCORES[:4], "x has 6 rows and y has 4"),
        ("cosine", (FIRSTS, SECONDS), [float("nan")] * 6, r"y\[0\] is not finite"),
        ("softmax", (FIRSTS, SECONDS), SCORES, "class numbers from 0"),
        ("cosine", (FIRSTS, SECONDS[:4]), SCORES, "equally long"),
        ("cosine", (FIRSTS, SECONDS), ["a"] * 6, "y must hold numbers"),
        ("softmax", (FIRSTS, SECONDS), [1, 2, 3, 1, 2, 3], "classes from 0 to 2. Received: 1 to 3"),
        ("distillation", (FIRSTS, SECONDS), SCORES, r"\(rows, 32\).*its shape is \(6,\)"),
        ("distillation", (FIRSTS, SECONDS), np.zeros((6, 1)), r"its shape is \(6, 1\)"),
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


# ---- Keras


def test_a_keras_archive_holds_everything(plain, tmp_path, close):
    dense = keras.layers.Dense(8, activation="tanh", name="dense_after")
    model = bz.SentenceEncoder.from_preset(
        plain, verbose=False, pooling=("mean", "max"), after_pooling=[dense, Normalize()], prompts={"query": "very "}
    )
    model.compile(loss=MultipleNegativesRanking(scale=10))
    model.fit((FIRSTS, SECONDS), verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    close(again.encode(TEXTS, prompt_name="query"), model.encode(TEXTS, prompt_name="query"))
    assert again.data.loss.scale == 10


@pytest.mark.once
def test_other_layers_and_prompts_are_refused(plain):
    encoder = bz.Encoder.from_preset(plain, verbose=False)
    with pytest.raises(ValueError, match="come Dense and Normalize layers"):
        bz.SentenceEncoder(encoder, after_pooling=[Pooling()])
    with pytest.raises(ValueError, match="one of the model's prompts: none. Received: 'query'"):
        bz.SentenceEncoder(encoder, default_prompt="query")
    with pytest.raises(TypeError, match="no option poolin"):
        bz.SentenceEncoder.from_preset(plain, poolin="mean")


# ---- real weights


@pytest.mark.once  # tiny models are compared above on each backend, and MiniLM's encoder in test_encoder.py
def test_minilm_equals_sentence_transformers(minilm, st, close):
    texts = [
        "A girl is styling her hair.",
        "How many people live in Berlin?",
        "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers.",
        "",
        "word " * 1000,
    ]
    ours = bz.SentenceEncoder.from_preset(minilm, verbose=False)
    close(ours.encode(texts), st.SentenceTransformer(str(minilm), device="cpu").encode(texts))
    assert ours.tokenizer.max_length == 256


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
    model.compile(bz.AdamW(1e-3), loss=Matryoshka("multiple_negatives", [32, 8]), run_eagerly=True)
    assert model.data.compiled_loss().in_batch_negatives


def load(directory, **options):
    return bz.SentenceEncoder.from_preset(directory, verbose=False, **options)


def test_a_number_of_dimensions_in_the_files(make_st, st, tmp_path, close):
    directory, model = make_st(st.models.Pooling(32, "mean"), truncate_dim=8)
    ours = load(directory)
    assert ours.encode(TEXTS).shape == (len(TEXTS), 8)
    close(ours.encode(TEXTS), model.encode(TEXTS))
    close(ours.encode(TEXTS, normalize=True), model.encode(TEXTS, normalize_embeddings=True))
    close(ours.encode(TEXTS, truncate_dim=20), model.encode(TEXTS, truncate_dim=20))
    ours.save_to_preset(tmp_path)
    close(st.SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS), model.encode(TEXTS))


def test_an_option_replaces_its_own_layers_alone(make_st, st, plain, tmp_path, close):
    """The Dense of the files keeps its weights beside another pooling, and learnt pooling its own before others."""
    directory, _ = make_st(st.models.Pooling(32, "cls"), st.models.Dense(32, 6))
    _, expected = make_st(st.models.Pooling(32, "mean"), st.SentenceTransformer(str(directory), device="cpu")[2])
    close(load(directory, pooling="mean").encode(TEXTS), expected.encode(TEXTS))

    model = load(plain, pooling="attention")
    for weight in model.pooling.weights:
        weight.assign(np.random.default_rng(0).normal(size=weight.shape))
    model.save_to_preset(tmp_path)
    vectors = load(tmp_path, after_pooling=[Normalize()]).encode(TEXTS)
    close(vectors, model.encode(TEXTS, normalize=True))


@pytest.mark.parametrize(("value", "message"), [(np.nan, "not finite"), (1, "holds int64, not floating-point")])
def test_wrong_numbers_of_a_dense_are_named(make_st, st, value, message):
    from safetensors.numpy import load_file, save_file

    directory, _ = make_st(st.models.Pooling(32, "cls"), st.models.Dense(32, 6))
    path = directory / "2_Dense" / "model.safetensors"
    tensors = load_file(path)
    tensors["linear.weight"] = np.full((6, 32), value)
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=f"{directory}.*2_Dense.*linear.weight.*{message}"):
        load(directory)
