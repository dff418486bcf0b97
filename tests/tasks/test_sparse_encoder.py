"""SparseEncoder against sentence-transformers: vectors, directories both ways, static queries, training."""

import json

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.layers import SparseStaticEmbedding, SpladePooling
from bertzoo.tasks.answers.sparse_vectors import SparseVectors

TEXTS = [
    "a good film",
    "the plot was dull and bad, and the actor was not very good " * 3,
    "",
    "we saw it with friends in paris",
    "never again !",
    "a great story",
]
QUERIES = ["good good film", "", "[SEP] paris , rome", "unhappy badly"]


@pytest.fixture(scope="module")
def encoder(masked_lm):
    return bz.SparseEncoder.from_preset(masked_lm, verbose=False)


def dense(vectors):
    return vectors.to_dense() if isinstance(vectors, SparseVectors) else vectors.to_dense().numpy()


# ---- directories


@pytest.mark.parametrize("form", ["max", "sum", "old", "router"])
def test_loads_and_saves_what_sentence_transformers_does(form, st, make_sparse_st, tmp_path, close):
    options = {"prompts": {"query": "good ", "document": "bad "}, "max_active_dims": 20}
    directory, reference = make_sparse_st(form, **options)
    model = bz.SparseEncoder.from_preset(directory, verbose=False)
    model.save_to_preset(tmp_path / "saved")
    back = st.SparseEncoder(str(tmp_path / "saved"), device="cpu")
    again = bz.SparseEncoder.from_preset(tmp_path / "saved", verbose=False)
    for method in ("encode", "encode_query", "encode_document"):
        expected = dense(getattr(reference, method)(TEXTS))
        for one in (model, back, again):
            close(dense(getattr(one, method)(TEXTS)), expected)
    assert (back.max_seq_length, back.max_active_dims, back.similarity_fn_name) == (32, 20, "dot")
    assert type(back[0]).__name__ == ("Router" if form == "router" else "Transformer")


@pytest.mark.once
def test_transformers_reads_what_is_saved(encoder, tmp_path, close):
    import torch
    import transformers

    encoder.save_to_preset(tmp_path)
    ids = encoder.tokenizer(TEXTS[0])["token_ids"]
    model, loading = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(loading.values())
    logits = model.eval()(torch.tensor(ids)).logits.detach().numpy()
    close(encoder.predict(TEXTS[:1])[0], np.log1p(np.maximum(logits, 0)).max(axis=1)[0])


@pytest.mark.once
def test_weights_of_queries_may_be_a_table_of_words(make_sparse_st, words, close):
    directory, reference = make_sparse_st("router")
    weights = reference[0].sub_modules["query"][0].weight.numpy()
    folder = directory / "query_0_SparseStaticEmbedding"
    (folder / "config.json").write_text('{"frozen": true, "path": "idf.json"}')
    (folder / "idf.json").write_text(json.dumps({word: float(weights[i]) for i, word in enumerate(words)}))
    model = bz.SparseEncoder.from_preset(directory, verbose=False)
    close(dense(model.encode_query(QUERIES)), dense(reference.encode_query(QUERIES)))


def edited(directory, file, **changes):
    path = directory / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.once
@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("router_config.json", {"structure": {"query": []}}, "modules for queries and for documents"),
        ("router_config.json", {"structure": {"query": [], "document": []}}, "a SparseStaticEmbedding for queries"),
        ("document_1_SpladePooling/config.json", {"pooling_strategy": "mean"}, "pooling_strategy"),
        ("document_0_Transformer/sentence_bert_config.json", {"transformer_task": "text-generation"}, "for fill-mask"),
    ],
)
def test_what_can_not_be_computed_is_refused(file, changes, message, make_sparse_st):
    directory, _ = make_sparse_st("router")
    edited(directory, file, **changes)
    with pytest.raises(CheckpointError, match=message):
        bz.SparseEncoder.from_preset(directory, verbose=False)


@pytest.mark.once
def test_another_vocabulary_of_queries_is_refused(make_sparse_st, words):
    directory, _ = make_sparse_st("router")
    import transformers

    vocabulary = {word: i for i, word in enumerate([*words[:-2], words[-1], words[-2]])}
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(directory / "query_0_SparseStaticEmbedding")
    with pytest.raises(CheckpointError, match="another vocabulary"):
        bz.SparseEncoder.from_preset(directory, verbose=False)


def test_dense_encoders_are_no_sparse_ones_and_the_other_way(plain, make_sparse_st):
    directory, _ = make_sparse_st("max")
    with pytest.raises(CheckpointError, match="a Transformer for feature-extraction"):
        bz.SentenceEncoder.from_preset(directory, verbose=False)


def test_keras_files_hold_all_of_it(encoder, tmp_path, close):
    embedding = SparseStaticEmbedding(encoder.width)
    embedding.weight.assign(np.arange(encoder.width) / 7)
    model = bz.SparseEncoder(
        encoder.backbone, encoder.tokenizer, SpladePooling("sum"), embedding, max_active_dims=9, prompts={"query": "a "}
    )
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for method in ("encode_query", "encode_document"):
        close(dense(getattr(again, method)(TEXTS)), dense(getattr(model, method)(TEXTS)))


# ---- encode


def test_one_text_gives_one_vector_and_no_text_none(encoder, close):
    vectors = encoder.encode(TEXTS, batch_size=2)
    for i, vector in enumerate(encoder.encode(iter(TEXTS))):
        np.testing.assert_array_equal(vector.ids, vectors[i].ids)
        close(vector.weights, vectors[i].weights)
    np.testing.assert_array_equal(encoder.encode(TEXTS[3]).ids, vectors[3].ids)
    assert encoder.encode([]).shape == (0, encoder.width)
    assert (vectors.ids.dtype, vectors.weights.dtype) == (np.int32, np.float32)
    for rows in (slice(1, 4), np.array([4, 0, 0]), [True, False, True, False, False, True]):
        close(dense(vectors[rows]), dense(vectors)[rows])
    assert vectors[:0].shape == (0, encoder.width) and vectors[-1].ids.tolist() == vectors[5].ids.tolist()


def test_words_similarity_and_sparsity_are_those_there(encoder, masked_lm, st, close):
    reference = st.SparseEncoder(str(masked_lm), device="cpu")
    vectors, expected = encoder.encode(TEXTS), reference.encode(TEXTS)
    close(encoder.similarity(vectors, vectors[:4]), reference.similarity(expected, reference.encode(TEXTS[:4])).numpy())
    pairs = reference.similarity_pairwise(
        *(reference.encode(some, convert_to_sparse_tensor=False) for some in (TEXTS, TEXTS[::-1]))
    )
    close(encoder.similarity_pairwise(vectors, vectors[::-1]), pairs.numpy())
    limited = encoder.encode(TEXTS, max_active_dims=5)
    close(dense(limited), dense(reference.encode(TEXTS, max_active_dims=5)))
    assert limited.sparsity() == pytest.approx(reference.sparsity(reference.encode(TEXTS, max_active_dims=5)))
    for ours, theirs in zip(encoder.decode(vectors, top_k=4), reference.decode(expected, top_k=4)):
        assert [word for word, _ in ours] == [word for word, _ in theirs]
        close([weight for _, weight in ours], [weight for _, weight in theirs])
    assert encoder.decode(vectors[0]) == encoder.decode(vectors)[0]


@pytest.mark.once
def test_similarity_is_computed_in_parts(monkeypatch, close):
    from bertzoo.tasks.answers import sparse_vectors

    monkeypatch.setattr(sparse_vectors, "ROWS_AT_ONCE", 3)
    rng = np.random.default_rng(0)
    x, y = (rng.random((n, 11)).astype("float32") * (rng.random((n, 11)) > 0.6) for n in (7, 4))
    close(SparseVectors.from_dense(x).similarity(SparseVectors.from_dense(y)), x @ y.T)
    close(SparseVectors.from_dense(x[:4]).pairwise_similarity(SparseVectors.from_dense(y)), (x[:4] * y).sum(axis=1))
    with pytest.raises(ValueError, match="equally wide"):
        SparseVectors.from_dense(x).similarity(SparseVectors.from_dense(y[:, :5]))


def test_static_queries_are_sets_of_words(make_sparse_st, close):
    directory, reference = make_sparse_st("router")
    model = bz.SparseEncoder.from_preset(directory, verbose=False)
    for options in ({}, {"prompt": "great , "}):
        close(dense(model.encode_query(QUERIES, **options)), dense(reference.encode_query(QUERIES, **options)))
    long = "film rome " + "good " * 100 + "paris"  # cut at 32 tokens, among which there are no special ones
    close(dense(model.encode_query([long])), dense(reference.encode_query([long])))
    assert model.encode_query("rome rome").ids.tolist() == [model.tokenizer.token_to_id("rome")]
    assert model.encode_query("film").ids.tolist() == []  # its weight is 0


# ---- exports and evaluation


@pytest.mark.once
def test_onnx_runtime_gives_the_same(encoder, close):
    pytest.importorskip("onnxruntime")
    expected = dense(encoder.encode(TEXTS))
    with encoder.onnx_inference():
        close(dense(encoder.encode(TEXTS)), expected)


@pytest.mark.once
def test_directories_are_exported_and_served_as_what_they_are(make_sparse_st, plain, tmp_path):
    from bertzoo.cli.task_choice import task_for_inference

    assert task_for_inference(bz, make_sparse_st("router")[0]) is bz.SparseEncoder
    for task in (bz.MultiVectorEncoder, bz.SentenceEncoder):
        task.from_preset(plain, verbose=False).save_to_preset(tmp_path)
        assert task_for_inference(bz, tmp_path) is task


@pytest.mark.once
def test_retrieval_is_evaluated_as_there(make_sparse_st):
    from sentence_transformers.sparse_encoder.evaluation import SparseInformationRetrievalEvaluator

    directory, reference = make_sparse_st("max", prompts={"query": "good ", "document": "bad "})
    model = bz.SparseEncoder.from_preset(directory, verbose=False)
    queries = {f"q{i}": text for i, text in enumerate(["good film", "dull plot", "never again", "a story"])}
    corpus = {f"d{i}": text for i, text in enumerate(TEXTS) if text}
    relevant = {"q0": {"d0"}, "q1": {"d1", "d5"}, "q2": {"d4"}, "q3": {"d3"}}
    actual = bz.retrieval.evaluate_retrieval(model, queries, corpus, relevant, cutoffs=(2, 3))
    cutoffs = dict.fromkeys(("mrr_at_k", "ndcg_at_k", "accuracy_at_k", "precision_recall_at_k", "map_at_k"), (2, 3))
    options = {"write_csv": False, **cutoffs}
    expected = SparseInformationRetrievalEvaluator(queries, corpus, relevant, **options)(reference)
    for name, value in actual.items():
        assert value == pytest.approx(next(other for key, other in expected.items() if key.endswith(f"_{name}"))), name
