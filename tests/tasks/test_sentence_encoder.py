"""SentenceEncoder against sentence-transformers, on every form of directory, input and mistake."""

import keras
import numpy as np
import pandas
import pytest

import bertzoo as bz
from bertzoo.layers import Normalize, Pooling
from bertzoo.losses import MultipleNegativesRanking
from bertzoo.tasks import embedding_task, sentence_encoder
from bertzoo.text.encoded import Encoded

TEXTS = [
    "a good film",
    "the plot was dull and bad, and the actor was not very good",
    "",
    "we saw it with friends in paris",
    "never again !",
    "a great story",
]


@pytest.fixture(scope="module")
def encoder(plain):
    return bz.SentenceEncoder.from_preset(plain, verbose=False)


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
    reference = st.SentenceTransformer(str(plain), device="cpu")
    texts = ["film " * 100_000, "", " \n"]
    close(bz.SentenceEncoder.from_preset(plain, verbose=False).encode(texts), reference.encode(texts))


def test_normalize_and_truncate_as_there(encoder, plain, st, close):
    reference = st.SentenceTransformer(str(plain), device="cpu")
    for options in ({"truncate_dim": 8}, {}):
        close(
            encoder.encode(TEXTS, normalize=True, **options),
            reference.encode(TEXTS, normalize_embeddings=True, **options),
        )


def test_tensors_on_request(encoder, close):
    tensor = encoder.encode(TEXTS, output="tensor")
    assert keras.ops.is_tensor(tensor)
    close(keras.ops.convert_to_numpy(tensor), encoder.encode(TEXTS))


def test_a_generator_is_read_as_it_is_consumed(encoder, monkeypatch, close):
    monkeypatch.setattr(embedding_task, "ROWS_AT_ONCE", 4)
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
    monkeypatch.setattr(embedding_task, "ROWS_AT_ONCE", 64)
    rng = np.random.default_rng(0)
    texts = [" ".join(["film"] * n) for longest in (9, 12, 17, 23, 7) for n in rng.integers(1, longest, 64)]
    shapes, pad = [], Encoded.pad

    def note(self, rows, length, *arguments, **options):
        shapes.append((len(rows), length))
        return pad(self, rows, length, *arguments, **options)

    monkeypatch.setattr(Encoded, "pad", note)
    vectors = encoder.encode(iter(texts))
    result = [next(vectors)]
    first = set(shapes)
    result += vectors
    if backend != "torch":  # which compiles nothing
        later = set(shapes) - first
        # The longest, and on TensorFlow, which wants lengths that differ, one more.
        assert len(later) <= 2 and {length for _, length in later} <= {8, encoder.tokenizer.max_length}
    close(result, encoder.encode(texts))


def test_what_is_fetched_in_parts_is_the_same(encoder, monkeypatch):
    texts = [TEXTS[i % len(TEXTS)] for i in range(23)]
    whole, sizes, predict = encoder.encode(texts, batch_size=3), [], keras.Model.predict

    def counted(model, data, **options):
        sizes.append(len(data.row_order))
        return predict(model, data, **options)

    monkeypatch.setattr(sentence_encoder, "ROWS_KEPT", 9)
    monkeypatch.setattr(keras.Model, "predict", counted)
    np.testing.assert_allclose(encoder.encode(texts, batch_size=3), whole, atol=1e-6)
    assert sum(sizes) == 23 and max(sizes) <= 9


@pytest.mark.parametrize(
    "prompts",
    [
        {"query": "good ", "document": "bad "},
        {"query": "good ", "other": "film "},
        {"other": "film "},
    ],
    ids=["both", "query", "neither"],
)
def test_queries_and_documents_get_the_prompts_that_they_get_there(plain, st, prompts, close):
    transformer = st.models.Transformer(str(plain))
    default = "other" if "other" in prompts else None
    options = {"prompts": prompts, "default_prompt_name": default}
    reference = st.SentenceTransformer(modules=[transformer, st.models.Pooling(32)], device="cpu", **options)
    encoder = bz.SentenceEncoder.from_preset(plain, verbose=False, prompts=prompts, default_prompt=default)
    for method in ("encode_query", "encode_document", "encode"):
        close(getattr(encoder, method)(TEXTS), getattr(reference, method)(TEXTS))
        close(getattr(encoder, method)(TEXTS, prompt="rome "), getattr(reference, method)(TEXTS, prompt="rome "))
    encoder.prompts["passage"] = "dull "  # there, all models have an empty prompt "document"
    if "document" not in prompts:
        close(encoder.encode_document(TEXTS), encoder.encode(TEXTS, prompt="dull "))
    with pytest.raises(ValueError, match="prompt_type must be"):
        encoder.encode(TEXTS, prompt_type="passage")


@pytest.mark.once
def test_a_progress_bar_on_long_work_only(encoder, monkeypatch, capsys):
    encoder.encode(TEXTS)
    assert capsys.readouterr().out == ""
    encoder.encode(TEXTS, show_progress_bar=True)
    assert "1/1" in capsys.readouterr().out
    monkeypatch.setattr(embedding_task, "LONG_WORK", 3)
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
        model = bz.SentenceEncoder.from_preset(plain, verbose=False, settings={"similarity_fn_name": measure})
        reference = st.SentenceTransformer(str(plain), device="cpu", similarity_fn_name=measure)
        close(model.similarity(vectors, vectors[:3]), reference.similarity(vectors, vectors[:3]))
        close(
            model.similarity_pairwise(vectors, vectors[::-1]),
            reference.similarity_pairwise(vectors, vectors[::-1].copy()),
        )


FIRSTS, SECONDS = TEXTS[:2] + TEXTS[3:] + ["a film"], TEXTS[3:] + TEXTS[:2] + ["a bad film"]


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
    with pytest.raises(ValueError, match="must hold Dense and Normalize layers"):
        bz.SentenceEncoder(encoder, after_pooling=[Pooling()])
    with pytest.raises(ValueError, match="one of the model's prompts: none. Received: 'query'"):
        bz.SentenceEncoder(encoder, default_prompt="query")
    with pytest.raises(TypeError, match="no option poolin"):
        bz.SentenceEncoder.from_preset(plain, poolin="mean")


# ---- real weights


@pytest.mark.slow
@pytest.mark.once  # tiny models are compared above on each backend, and MiniLM's encoder in test_encoder.py
def test_minilm_equals_sentence_transformers(minilm, st, close):
    texts = [
        "A girl is styling her hair.",
        "How many people live in Berlin?",
        "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers.",
        "",
        "word " * 1000,
    ]
    model = bz.SentenceEncoder.from_preset(minilm, verbose=False)
    close(model.encode(texts), st.SentenceTransformer(str(minilm), device="cpu").encode(texts))
    assert model.tokenizer.max_length == 256
