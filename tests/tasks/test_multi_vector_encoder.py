"""MultiVectorEncoder against sentence-transformers: vectors, directories of all forms, MaxSim, training."""

import json
import string

import keras
import numpy as np
import pytest
import safetensors.numpy
from stream_cases import check_streams_of_texts

import bertzoo as bz
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.losses import MultiVectorMarginMSE, MultiVectorMultipleNegativesRanking
from bertzoo.metrics import maxsim as maxsim_module
from bertzoo.metrics.maxsim import maxsim, pairwise_maxsim

TEXTS = [
    "a good film .",
    "the plot was dull and bad, and the actor was not very good ! " * 4,
    "",
    "we saw it with friends, in paris",
    "never again !",
    "a great story",
]
QUERIES = ["good film", "", "paris , rome", "the plot was dull and bad, and the actor was not very good " * 2]
EXPANSIONS = {
    "none": None,
    "fixed": {"strategy": "fixed", "length": 12},
    "fixed, attended": {"strategy": "fixed", "length": 12, "attend": True},
    "at least": {"strategy": "min", "length": 8, "token": "film"},
}


@pytest.fixture(scope="module")
def make_st(st, plain, tmp_path_factory):
    """Options -> (a directory that sentence-transformers wrote, its model)."""
    import torch
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    def make(query_expansion=None, skiplist=(), prompts=None, width=9, **lengths):
        transformer = Transformer(str(plain), max_seq_length=48, query_expansion=query_expansion, **lengths)
        torch.manual_seed(0)
        options = {"bias": False, "activation_function": torch.nn.Identity(), "module_input_name": "token_embeddings"}
        modules = [transformer, Dense(32, width, **options), MultiVectorMask(list(skiplist))]
        modules.append(Normalize(module_input_name="token_embeddings"))
        model = st.MultiVectorEncoder(modules=modules, device="cpu", prompts=prompts)
        directory = tmp_path_factory.mktemp("multi_vector")
        model.save(str(directory))
        return directory, model

    return make


@pytest.fixture(scope="module")
def with_markers(plain, words, tmp_path_factory):
    """A plain encoder whose vocabulary has markers, without its configuration files of modules."""
    import shutil

    import transformers

    directory = tmp_path_factory.mktemp("markers") / "encoder"
    shutil.copytree(plain, directory)
    renamed = {"##happy": "[unused0]", "##ly": "[unused1]"}
    vocabulary = {renamed.get(word, word): i for i, word in enumerate(words)}
    transformers.BertTokenizer(vocab=vocabulary, do_lower_case=True).save_pretrained(directory)
    return directory


def all_close(close, vectors, expected):
    expected = [np.asarray(text) for text in expected]
    assert [len(text) for text in vectors] == [len(text) for text in expected]
    for ours, theirs in zip(vectors, expected):
        close(ours, theirs)


METHODS = {"encode": TEXTS, "encode_query": QUERIES, "encode_document": TEXTS}


def compare(close, reference, *models):
    for method, texts in METHODS.items():
        expected = getattr(reference, method)(texts, convert_to_numpy=True)
        for model in models:
            options = {} if isinstance(model, bz.MultiVectorEncoder) else {"convert_to_numpy": True}
            all_close(close, getattr(model, method)(texts, **options), expected)


# ---- directories


@pytest.mark.parametrize("name", EXPANSIONS)
def test_loads_and_saves_what_sentence_transformers_does(name, st, make_st, tmp_path, close):
    options = {"prompts": {"query": "good ", "document": "bad "}, "skiplist": [*string.punctuation, "no word"]}
    directory, reference = make_st(EXPANSIONS[name], **options, query_length=20, document_length=30)
    model = bz.MultiVectorEncoder.from_preset(directory, verbose=False)
    model.save_to_preset(tmp_path / "saved")
    back = st.MultiVectorEncoder(str(tmp_path / "saved"), device="cpu")
    again = bz.MultiVectorEncoder.from_preset(tmp_path / "saved", verbose=False)
    compare(close, reference, model, back, again)
    assert (back.max_seq_length, back.similarity_fn_name, back.get_embedding_dimension()) == (48, "maxsim", 9)


@pytest.mark.parametrize("attend", [False, True])
def test_reads_pylate(attend, with_markers, st, tmp_path, close):
    """Two modules, and all else among the keys of config_sentence_transformers.json."""
    bz.MultiVectorEncoder.from_preset(with_markers, verbose=False, projection=9).save_to_preset(tmp_path)
    (tmp_path / "modules.json").write_text(
        json.dumps(
            [
                {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
            ]
        )
    )
    dense = {"in_features": 32, "out_features": 9, "bias": False, "use_residual": False}
    dense["activation_function"] = "torch.nn.modules.linear.Identity"
    (tmp_path / "1_Dense/config.json").write_text(json.dumps(dense))
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 48, "do_lower_case": false}')
    settings = {
        "model_type": "ColBERT",
        "query_prefix": "[unused0] ",
        "document_prefix": "[unused1] ",
        "query_length": 14,
        "document_length": 30,
        "attend_to_expansion_tokens": attend,
        "do_query_expansion": True,
        "skiplist_words": [",", "good"],
        "prompts": {"query": "very "},
        "similarity_fn_name": "MaxSim",
    }
    if attend:  # punctuation is left out, and a query is expanded
        for key in ("skiplist_words", "do_query_expansion", "prompts"):
            del settings[key]
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(settings))
    reference = st.MultiVectorEncoder(str(tmp_path), device="cpu")
    model = bz.MultiVectorEncoder.from_preset(tmp_path, verbose=False)
    compare(close, reference, model)
    assert len(model.encode_query("good")) == 14
    model.save_to_preset(tmp_path / "new")
    compare(close, reference, st.MultiVectorEncoder(str(tmp_path / "new"), device="cpu"))


@pytest.mark.parametrize("metadata", [None, {"query_maxlen": 10, "doc_maxlen": 20, "mask_punctuation": False}])
def test_reads_colbert(metadata, with_markers, st, tmp_path, close):
    """An encoder's tensors and the projection side by side, and ColBERT's own settings."""
    tensors = safetensors.numpy.load_file(with_markers / "model.safetensors")
    tensors = {f"bert.{name}": tensor for name, tensor in tensors.items()}
    tensors["linear.weight"] = np.random.default_rng(0).normal(size=(9, 32)).astype("float32")
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    config = json.loads((with_markers / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["HF_ColBERT"]}))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((with_markers / name).read_bytes())
    if metadata is not None:
        metadata |= {"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "attend_to_mask_tokens": False}
        (tmp_path / "artifact.metadata").write_text(json.dumps(metadata))
    reference = st.MultiVectorEncoder(str(tmp_path), device="cpu")
    model = bz.MultiVectorEncoder.from_preset(tmp_path, verbose=False)
    compare(close, reference, model)
    assert len(model.encode_query("good")) == (32 if metadata is None else 10) and not model.load_report.unused
    row = model.tokenizer.encode(["[unused1] film"]).row(0)
    assert row.tolist()[1:3] == [model.tokenizer.token_to_id("[unused1]"), model.tokenizer.token_to_id("film")]


@pytest.mark.once
def test_a_plain_encoder_gets_a_new_projection(plain):
    model = bz.MultiVectorEncoder.from_preset(plain, verbose=False)
    assert model.width == 128 and model.load_report.new == ["projection"]
    np.testing.assert_allclose(np.linalg.norm(model.encode("a good film"), axis=1), 1, atol=1e-6)


@pytest.mark.once
@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("1_Dense/config.json", {"module_output_name": "sentence_embedding"}, "a Dense that bertzoo does not compute"),
        ("2_MultiVectorMask/config.json", {"keep_only_token_ids": [5]}, "keep_only_token_ids"),
        ("3_Normalize/config.json", {"module_input_name": "sentence_embedding"}, "token_embeddings is expected"),
        ("config.json", {"architectures": ["HF_ColBERT"]}, "linear.weight"),
    ],
)
def test_what_can_not_be_computed_is_refused(file, changes, message, make_st):
    directory, _ = make_st()
    path = directory / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(CheckpointError, match=message):
        bz.MultiVectorEncoder.from_preset(directory, verbose=False)


def test_keras_files_hold_all_of_it(make_st, tmp_path, close):
    directory, reference = make_st(EXPANSIONS["fixed"], skiplist=[","], query_length=20)
    bz.MultiVectorEncoder.from_preset(directory, verbose=False).save(tmp_path / "model.keras")
    compare(close, reference, keras.models.load_model(tmp_path / "model.keras"))


# ---- encode


def test_one_text_gives_one_array_and_no_text_none(make_st, close):
    model = bz.MultiVectorEncoder.from_preset(make_st()[0], verbose=False)
    vectors = model.encode(TEXTS, batch_size=2)
    all_close(close, model.encode(iter(TEXTS)), vectors)
    close(model.encode(TEXTS[3]), vectors[3])
    all_close(close, model.predict(TEXTS), vectors)
    for texts, place in zip(zip(*model.predict((TEXTS, TEXTS[::-1]), batch_size=2)), (1, -1)):
        all_close(close, texts, vectors[::place])
    assert model.encode([]) == [] and vectors[0].dtype == np.float32
    for mistake in ({"length": 0}, {"strategy": "all", "length": 3}, {"length": 3, "color": 1}, {"length": 30}):
        with pytest.raises(ValueError, match="query_expansion must have"):
            bz.MultiVectorEncoder(model.backbone, query_expansion=mistake, query_length=20)
    with pytest.raises(ValueError, match="skiplist_tasks"):
        bz.MultiVectorEncoder(model.backbone, skiplist_tasks=["passage"])


@pytest.mark.once
@pytest.mark.parametrize("measure", ["maxsim", "meanmaxsim"])
def test_maxsim_is_that_there(measure, monkeypatch, close):
    import torch

    util = pytest.importorskip("sentence_transformers.util")
    monkeypatch.setattr(maxsim_module, "SCORES_AT_ONCE", 100)
    rng = np.random.default_rng(0)
    queries, documents = (
        [rng.normal(size=(n, 5)).astype("float32") for n in counts] for counts in ((3, 7, 1, 0), (4, 0, 9, 30, 0, 2))
    )
    tensors = [[torch.tensor(text) for text in texts] for texts in (queries, documents)]
    options = {"length_normalize": measure == "meanmaxsim"}
    close(maxsim(queries, documents, measure), util.similarity.maxsim(*tensors, **options).numpy())
    expected = util.similarity.maxsim_pairwise(tensors[0], tensors[1][:4], **options).numpy()
    close(pairwise_maxsim(queries, documents[:4], measure), expected)
    close(maxsim(queries[0], documents[0], measure), expected[:1, None])
    with pytest.raises(ValueError, match="the measure must be"):
        maxsim(queries, documents, "cosine")
    with pytest.raises(ValueError, match="as many documents"):
        pairwise_maxsim(queries, documents)


# ---- training


@pytest.mark.parametrize("name", EXPANSIONS)
def test_what_is_trained_is_what_encode_gives(name, make_st, numpy, close):
    """The vectors of a training batch, packed or not, in which texts of all kinds are together."""
    directory, _ = make_st(EXPANSIONS[name], skiplist=[","])
    model = bz.MultiVectorEncoder.from_preset(directory, verbose=False, dropout=0.0)
    model.compile()
    model.data.set_loss(model.data.loss, ["very ", ""])
    queries = [" ".join(["film ,"] * n) for n in (1, 2, 20, 3, 1, 4)]
    data = model.data.batches((queries, TEXTS, TEXTS[::-1]), batch_size=6, shuffle=True)
    (inputs, *_) = data[0]
    assert ("packing" in inputs) == (name in ("none", "fixed, attended"))
    outputs = numpy(model(inputs))
    expected = [
        model.encode_query(queries, prompt="very "),
        model.encode_document(TEXTS),
        model.encode_document(TEXTS[::-1]),
    ]
    for row, example in zip(data.row_order, outputs):
        for text, texts in zip(example, expected):
            close(text[text.any(axis=1)], texts[row])


@pytest.mark.parametrize("name", ["none", "fixed"])
def test_training_finds_the_positives(name, make_st, eager):
    model = bz.MultiVectorEncoder.from_preset(make_st(EXPANSIONS[name])[0], verbose=False, dropout=0.0)
    model.compile(bz.AdamW(3e-3, warmup=0.0), run_eagerly=eager)
    queries = ["good film", "dull plot", "never", "friends in paris", "again !", "story"]
    losses = model.fit((queries, TEXTS), epochs=10, batch_size=6, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]
    scores = model.similarity(model.encode_query(queries), model.encode_document(TEXTS))
    assert (scores.argmax(axis=1) == np.arange(6)).mean() > 0.8
    assert np.isfinite(model.evaluate((queries, TEXTS), verbose=0))
    teacher = np.random.default_rng(0).random((6, 2))
    model.compile(bz.AdamW(1e-3, warmup=0.0), MultiVectorMarginMSE(), run_eagerly=eager)
    assert np.isfinite(model.fit((queries, TEXTS, TEXTS[::-1]), teacher, verbose=0).history["loss"][0])


@pytest.mark.once
def test_the_loss_must_be_of_such_vectors(make_st):
    model = bz.MultiVectorEncoder.from_preset(make_st()[0], verbose=False)
    with pytest.raises(ValueError, match="a vector for each token"):
        model.compile(loss="multiple_negatives")
    sentences = bz.SentenceEncoder(model.backbone, model.tokenizer)
    with pytest.raises(ValueError, match="one vector a text"):
        sentences.compile(loss=MultiVectorMultipleNegativesRanking())


@pytest.mark.parametrize("name", ["none", "fixed"])
def test_an_update_in_mini_batches_is_the_plain_one(name, make_st, close, eager):
    queries = [" ".join(["film"] * n) for n in (1, 2, 5, 3, 1, 4, 2)]
    documents = [" ".join(["good plot"] * n) for n in (9, 2, 14, 1, 3, 20, 4)]
    states = []
    for size in (None, 3):
        model = bz.MultiVectorEncoder.from_preset(make_st(EXPANSIONS[name])[0], verbose=False, dropout=0.1)
        model.compile(keras.optimizers.SGD(0.1), mini_batch_size=size, run_eagerly=eager)
        losses = model.fit((queries, documents), batch_size=7, verbose=0).history["loss"]
        states.append([*losses, *map(keras.ops.convert_to_numpy, model.trainable_weights)])
    for plain, in_parts in zip(*states):
        close(in_parts, plain)


@pytest.mark.once
def test_onnx_runtime_gives_the_same(make_st, close):
    pytest.importorskip("onnxruntime")
    directory, _ = make_st(EXPANSIONS["fixed, attended"], skiplist=[",", "!"])
    model = bz.MultiVectorEncoder.from_preset(directory, verbose=False)
    queries, documents = model.encode_query(QUERIES), model.encode_document(TEXTS)
    with model.onnx_inference():
        all_close(close, model.encode_query(QUERIES), queries)
        all_close(close, model.encode_document(TEXTS), documents)
    model = bz.MultiVectorEncoder.from_preset(make_st(EXPANSIONS["fixed"])[0], verbose=False)
    with model.onnx_inference(), pytest.raises(ValueError, match="whose query_expansion"):
        model.encode_query(QUERIES)


@pytest.mark.once
def test_retrieval_is_evaluated_as_there(make_st):
    from sentence_transformers.multi_vector_encoder.evaluation import MultiVectorInformationRetrievalEvaluator

    directory, reference = make_st(EXPANSIONS["fixed"], prompts={"query": "good ", "document": "bad "})
    model = bz.MultiVectorEncoder.from_preset(directory, verbose=False)
    queries = {f"q{i}": text for i, text in enumerate(["good film", "dull plot", "never again", "a story"])}
    corpus = {f"d{i}": text for i, text in enumerate(TEXTS) if text}
    relevant = {"q0": {"d0"}, "q1": {"d1", "d5"}, "q2": {"d4"}, "q3": {"d3"}}
    actual = bz.retrieval.evaluate_retrieval(model, queries, corpus, relevant, cutoffs=(2, 3))
    cutoffs = dict.fromkeys(("mrr_at_k", "ndcg_at_k", "accuracy_at_k", "precision_recall_at_k", "map_at_k"), (2, 3))
    options = {"write_csv": False, **cutoffs}
    expected = MultiVectorInformationRetrievalEvaluator(queries, corpus, relevant, **options)(reference)
    for name, value in actual.items():
        assert value == pytest.approx(next(other for key, other in expected.items() if key.endswith(f"_{name}"))), name


@pytest.mark.once
def test_streams_of_texts_give_the_same_batches(make_st):
    model = bz.MultiVectorEncoder.from_preset(make_st(EXPANSIONS["fixed"], skiplist=[","])[0], verbose=False)
    model.compile()
    check_streams_of_texts(model, TEXTS[:3], "scoring_mask")
