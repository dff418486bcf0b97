"""WordPiece as TensorFlow operations against the host's tokenizer."""

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


def assert_equal(ours, theirs):
    for name in ("token_ids", "segment_ids", "padding_mask"):
        np.testing.assert_array_equal(ours[name], theirs[name])
        assert ours[name].dtype == tf.int32


def test_hard_strings_agree_with_the_host(in_graph, marked_probes):
    host, graph = in_graph
    assert_equal(graph(tf.constant(marked_probes)), host(marked_probes))


@pytest.mark.parametrize("length", [3, 4, 5, 8, 13, 40])
def test_pairs_are_cut_as_the_host_cuts_them(in_graph, length, marked_probes):
    host, graph = in_graph
    graph.max_length = length
    try:
        pairs = marked_probes[::-1]
        assert_equal(
            graph(tf.constant(marked_probes), tf.constant(pairs)), host(marked_probes, pairs, max_length=length)
        )
        assert_equal(graph(tf.constant(marked_probes)), host(marked_probes, max_length=length))
    finally:
        graph.max_length = None


def test_every_character_agrees_with_the_host(in_graph):
    host, graph = in_graph
    texts = [f"x{chr(i)}y {chr(i)}" for i in range(1, 0x30000, 7) if not 0xD800 <= i < 0xE000]
    ours = graph(tf.constant(texts))["token_ids"].numpy()
    np.testing.assert_array_equal(ours, host(texts)["token_ids"])


def test_known_difference_bytes_that_are_no_text(in_graph):
    host, graph = in_graph
    assert graph(tf.constant([b"the \xff end"]))["token_ids"].numpy().tolist() == host("the end")["token_ids"].tolist()


def test_known_difference_spacing_marks_out_of_order():
    marks = "\u302e\u1b44"  # combining classes 224 and 9, both spacing: only the host sorts them
    host = Tokenizer.from_vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "##\u302e", "##\u1b44"])
    text = f"a{marks}"
    assert host(text)["token_ids"].tolist() == [[2, 4, 6, 5, 3]]
    assert InGraphTokenizer(host)(tf.constant([text]))["token_ids"].numpy().tolist() == [[2, 4, 5, 6, 3]]


def test_in_a_dataset(in_graph, probes):
    host, graph = in_graph
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
    host = Tokenizer.from_vocabulary(["[UNK]", "[CLS]", "[SEP]", "a"], max_length=8)
    assert InGraphTokenizer(host).max_length == 8
    with pytest.raises(ValueError, match="pad_to=9 is more than max_length=8"):
        InGraphTokenizer(host, pad_to=9)


def test_a_task_without_tokenizer_is_told(checkpoint):
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
