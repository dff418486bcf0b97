"""WordPiece as TensorFlow operations against the host's tokenizer."""

import unicodedata

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.text.tokenizer import Tokenizer

if keras.backend.backend() != "tensorflow":
    pytest.skip("in-graph tokenization is TensorFlow's", allow_module_level=True)
tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from bertzoo.text.in_graph import InGraphTokenizer, StringModel  # noqa: E402


@pytest.fixture(scope="session")
def in_graph(both):
    host, _, _ = both
    return host, InGraphTokenizer(host)


def assert_equal(actual, expected):
    for name in ("token_ids", "segment_ids", "padding_mask"):
        np.testing.assert_array_equal(actual[name], expected[name])
        assert actual[name].dtype == tf.int32


@pytest.fixture(scope="session")
def agreeing_probes(marked_probes):
    """All but those with a known difference: words of more than 100 bytes, and Σ at the end of a word."""
    return [p for p in marked_probes if "Σ" not in p and max(len(word.encode()) for word in [*p.split(), ""]) <= 100]


def test_hard_strings_agree_with_the_host(in_graph, agreeing_probes, marked_probes):
    host, graph = in_graph
    assert len(agreeing_probes) >= 0.9 * len(marked_probes)
    assert_equal(graph(tf.constant(agreeing_probes)), host(agreeing_probes))


@pytest.mark.parametrize("length", [3, 4, 5, 8, 13, 40])
def test_pairs_are_cut_as_the_host_cuts_them(in_graph, length, agreeing_probes):
    host, graph = in_graph
    graph.max_length = length
    try:
        pairs = agreeing_probes[::-1]
        assert_equal(
            graph(tf.constant(agreeing_probes), tf.constant(pairs)), host(agreeing_probes, pairs, max_length=length)
        )
        assert_equal(graph(tf.constant(agreeing_probes)), host(agreeing_probes, max_length=length))
    finally:
        graph.max_length = None


def test_characters_agree_with_the_host(in_graph):
    """Known differences: characters that Unicode has added, or classed anew, since TensorFlow's tables were made."""
    host, graph = in_graph
    characters = [chr(i) for i in range(1, 0x30000) if not 0xD800 <= i < 0xE000]
    texts = [f"x{c}y {c}" for c in characters]
    actual, expected = graph.tokenize(tf.constant(texts)).to_list(), host.encode(texts)
    differing = {c for i, c in enumerate(characters) if actual[i] != expected.row(i)[1:-1].tolist()}
    assert len(differing) <= 0.005 * len(characters)
    old = {c for c in differing if unicodedata.ucd_3_2_0.category(c) != "Cn" and c < "\u2e00"}
    assert old <= set("\u166d\u1734\u1885\u1886")
    assert min(differing) > "\u0600"


def test_known_difference_the_final_sigma():
    host = Tokenizer.from_vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "α", "##σ", "##ς"])
    assert host("ΑΣ")["token_ids"].tolist() == [[2, 4, 5, 3]]
    assert InGraphTokenizer(host)(tf.constant(["ΑΣ"]))["token_ids"].numpy().tolist() == [[2, 4, 6, 3]]


def test_known_difference_long_words():
    host = Tokenizer.from_vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "я", "##я"])
    assert host("я" * 51)["token_ids"].tolist() == [[2, 4, *[5] * 50, 3]]
    assert InGraphTokenizer(host)(tf.constant(["я" * 51]))["token_ids"].numpy().tolist() == [[2, 1, 3]]


def test_known_difference_bytes_that_are_no_text(in_graph):
    host, graph = in_graph
    assert graph(tf.constant([b"the \xff end"]))["token_ids"].numpy().tolist() == host("the end")["token_ids"].tolist()


def test_in_a_dataset(in_graph, agreeing_probes):
    host, graph = in_graph
    probes = agreeing_probes[:500]
    data = tf.data.Dataset.from_tensor_slices(probes).batch(50, drop_remainder=True).map(graph)
    for start, batch in zip(range(0, len(probes), 50), data):
        assert_equal(batch, host(probes[start : start + 50]))


def test_no_texts(in_graph):
    graph = in_graph[1]
    assert graph(tf.constant([], tf.string))["token_ids"].shape == (0, 0)
    assert graph(tf.constant([""]))["token_ids"].numpy().tolist() == [[2, 3]]


def test_wrong_tokenizers_are_named():
    with pytest.raises(ValueError, match=r"needs WordPiece.*BPE"):
        InGraphTokenizer(bz.train_byte_bpe(["the film"], 300, progress=False))
    with pytest.raises(ValueError, match="does neither"):
        InGraphTokenizer(Tokenizer.from_vocabulary(["[UNK]", "[CLS]", "[SEP]", "a"], strip_accents=False))
    host = Tokenizer.from_vocabulary(["[UNK]", "[CLS]", "[SEP]", "a"], max_length=8)
    assert InGraphTokenizer(host).max_length == 8
    with pytest.raises(ValueError, match="pad_to=9 is more than max_length=8"):
        InGraphTokenizer(host, pad_to=9)


def test_a_task_without_tokenizer_is_refused(checkpoint):
    task = bz.TextClassifier.from_preset(checkpoint[0], labels=["a", "b"], tokenizer=None, verbose=False)
    with pytest.raises(ValueError, match="no tokenizer"):
        bz.text.in_graph.StringModel(task)


@pytest.mark.parametrize("pairs", [False, True])
def test_a_saved_model_takes_strings(checkpoint, tmp_path, pairs):
    task = bz.TextClassifier.from_preset(checkpoint[0], labels=["bad", "good"], verbose=False)
    model = StringModel(task, pairs=pairs)
    model.save(tmp_path / "model")
    texts = ["The film was good!", "", "unhappy badly [MASK] " * 40]
    columns = [texts, texts[::-1]][: 1 + pairs]
    loaded = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    named = dict(zip(("texts", "pairs"), (tf.constant(column) for column in columns)))
    logits = loaded(**named)["outputs"].numpy()
    rows = texts if not pairs else list(zip(*columns))
    np.testing.assert_allclose(logits, task.predict(rows, verbose=0), atol=1e-5)
    np.testing.assert_allclose(model(*named.values())["outputs"], logits, atol=1e-6)
