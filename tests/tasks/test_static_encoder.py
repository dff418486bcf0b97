"""Static vectors against model2vec and sentence-transformers: how they are made, files, and vectors of texts."""

import itertools

import numpy as np
import pytest

import bertzoo as bz
from bertzoo.tasks.static_distillation import static_rows
from bertzoo.tasks.static_encoder import sum_rows

TEXTS = ["a good film", "Never again!", "the actor was not very good and xyzzy", "", "unhappily , the story ends"]


@pytest.fixture(scope="module")
def encoder(checkpoint):
    return bz.SentenceEncoder.from_preset(checkpoint[0], verbose=False)


@pytest.fixture(scope="module")
def static(encoder):
    return encoder.to_static(width=12)


@pytest.mark.filterwarnings("ignore")
def test_rows_are_those_of_model2vec(checkpoint, encoder, static, close):
    distill = pytest.importorskip("model2vec.distill")
    pytest.importorskip("skeletoken")
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint[0])
    theirs = distill.distill_from_model(checkpoint[1], tokenizer, device="cpu", pca_dims=12, quantize_to="float32")
    ids = [encoder.tokenizer.token_to_id(token) for token in theirs.tokens]
    rows = np.asarray(static.embeddings, "float32")
    known = [i for i, token in enumerate(theirs.tokens) if token != "[UNK]"]
    close(rows[np.array(ids)[known]], theirs.embedding[known], 1e-3)  # float16
    others = np.setdiff1d(np.arange(len(rows)), np.array(ids)[known])
    assert (rows[others] == 0).all()
    close(static.encode(TEXTS), theirs.encode(TEXTS), 2e-3)


@pytest.mark.once
def test_the_formula_is_model2vecs(close):
    inference = pytest.importorskip("model2vec.distill.inference")
    vectors = np.random.default_rng(0).normal(size=(90, 20)).astype("float32") * np.arange(1, 21)
    for width, coefficient in ((20, 1e-4), (7, 1e-3), (7, None)):
        weights = inference.compute_weights(len(vectors), coefficient)
        close(static_rows(vectors, width, coefficient), inference.apply_pca(vectors, width) * weights[:, None])


def test_the_directory_is_read_by_sentence_transformers_and_model2vec(static, tmp_path, close):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    static.save_to_preset(tmp_path / "static")
    ours = bz.StaticEncoder.from_preset(tmp_path / "static").encode(TEXTS)
    np.testing.assert_array_equal(ours, static.encode(TEXTS))
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "static"), device="cpu")
    some = [i for i, text in enumerate(TEXTS) if text]  # in float16 it divides by 0 where there are no tokens
    close(theirs.encode([TEXTS[i] for i in some]).astype("float32"), ours[some], 2e-3)
    model2vec = pytest.importorskip("model2vec")
    theirs = model2vec.StaticModel.from_pretrained(str(tmp_path / "static"))
    close(theirs.encode(TEXTS).astype("float32"), ours, 2e-3)  # they add up in float16


@pytest.mark.once
@pytest.mark.parametrize("normalize", [True, False])
def test_directories_of_sentence_transformers_and_model2vec_are_read(static, tmp_path, close, normalize):
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    import torch
    from sentence_transformers import SentenceTransformer

    rust = static._tokenizer
    table = np.random.default_rng(0).normal(size=(rust.get_vocab_size(), 6)).astype("float32")
    chain = [modules.StaticEmbedding(rust, embedding_weights=torch.tensor(table)), modules.Normalize()]
    theirs = SentenceTransformer(modules=chain[: 1 + normalize], device="cpu")
    theirs.save(str(tmp_path / "st"))
    close(bz.StaticEncoder.from_preset(tmp_path / "st").encode(TEXTS), theirs.encode(TEXTS))

    model2vec = pytest.importorskip("model2vec")
    mapping, weights = np.arange(len(table)) % 20, np.linspace(0.5, 2, len(table)).astype("float32")
    known = [text for text in TEXTS if "[UNK]" not in rust.encode(text).tokens]  # model2vec leaves unknown words out
    assert len(known) > 2
    for name, options in {"plain": {}, "mapped": {"token_mapping": mapping, "weights": weights}}.items():
        theirs = model2vec.StaticModel(table, rust, normalize=normalize, **options)
        theirs.save_pretrained(tmp_path / name)
        close(bz.StaticEncoder.from_preset(tmp_path / name).encode(known), theirs.encode(known))


@pytest.mark.once
def test_sums_are_those_of_a_loop(close):
    rng = np.random.default_rng(0)
    table, lengths = rng.normal(size=(50, 8)).astype("float32"), rng.integers(0, 30, 700)
    splits = np.append(0, np.cumsum(lengths))
    ids = rng.integers(0, 50, splits[-1])
    expected = [table[ids[a:b]].sum(axis=0) for a, b in itertools.pairwise(splits)]
    close(sum_rows(table, ids, splits), np.stack(expected))


@pytest.mark.once
def test_texts_and_arguments_are_checked(static, encoder):
    assert static.encode([]).shape == (0, 12) and static.encode("a film").shape == (12,)
    np.testing.assert_array_equal(static.encode("a film"), static.encode(["film"], prompt="a ")[0])
    with pytest.raises(TypeError, match="None"):
        static.encode(["a", None])
    with pytest.raises(ValueError, match="width must be positive. Received: 0"):
        encoder.to_static(width=0)
    with pytest.raises(bz.checkpoints.CheckpointError, match="must be a directory of static vectors"):
        bz.StaticEncoder.from_preset("nowhere")


@pytest.mark.once
def test_static_vectors_need_no_keras(static, tmp_path, python):
    static.save_to_preset(tmp_path / "static")
    load = "import sys, bertzoo as bz; bz.StaticEncoder.from_preset(sys.argv[1]).encode(['a'])"
    code = f"{load}; print('keras' in sys.modules)"
    assert python(code, str(tmp_path / "static")).strip() == "False"


@pytest.mark.once
@pytest.mark.parametrize("size", [0, -1])
def test_batch_sizes_are_positive(static, size):
    with pytest.raises(ValueError, match=f"batch_size must be positive. Received: {size}"):
        static.encode(["a"], batch_size=size)


@pytest.mark.once
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: {"embedding.weight": np.full_like(x, np.nan)}, "embeddings must be finite"),
        (lambda x: {"embeddings": x[:10], "mapping": np.full(len(x), 10)}, "mapping must hold numbers of the 10 rows"),
        (lambda x: {"embeddings": x[:10], "mapping": np.full(len(x), -1)}, "mapping must hold numbers of the 10 rows"),
        (lambda x: {"embeddings": x, "weights": np.ones(3, "float32")}, "weights must be one for each"),
        (lambda x: {"embeddings": x, "weights": np.full(len(x), np.nan, "float32")}, "embeddings must be finite"),
    ],
)
def test_damaged_tensors_are_refused(static, tmp_path, change, message):
    from safetensors.numpy import load_file, save_file

    static.save_to_preset(tmp_path / "static")
    (path,) = (tmp_path / "static").rglob("*.safetensors")
    changed = change(load_file(path)["embedding.weight"])
    save_file({name: np.ascontiguousarray(value) for name, value in changed.items()}, path)
    with pytest.raises(bz.checkpoints.CheckpointError, match=message):
        bz.StaticEncoder.from_preset(tmp_path / "static")


@pytest.mark.once
@pytest.mark.parametrize("content", ["{", "5", "[1]", '{"a": 1}', "null", "[]"])
def test_malformed_modules_are_refused(static, tmp_path, content):
    static.save_to_preset(tmp_path / "static")
    (tmp_path / "static" / "modules.json").write_text(content)
    with pytest.raises(bz.checkpoints.CheckpointError, match="modules"):
        bz.StaticEncoder.from_preset(tmp_path / "static")
