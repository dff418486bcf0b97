"""An index finds what a plain computation finds, whatever was added, replaced, deleted and merged before."""

import json

import numpy as np
import pytest

from bertzoo.retrieval import Dense, Index, MultiVector, Sparse, reciprocal_rank_fusion
from bertzoo.retrieval.index import dense, multi_vector
from bertzoo.retrieval.index import index as index_module

pytestmark = pytest.mark.once

WIDTH, TERMS = 16, 40
FIELDS = {"dense": Dense(WIDTH), "sparse": Sparse(), "tokens": MultiVector(WIDTH)}


def unit(*shape, seed=0):
    x = np.random.default_rng(seed).normal(size=shape).astype("float32")
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def documents(count, seed=0):
    """Values for `FIELDS`; the terms of a document are few of `TERMS`, its tokens none to eight."""
    rng = np.random.default_rng(seed)
    sparse = []
    for _ in range(count):
        ids = rng.choice(TERMS, rng.integers(0, 6), replace=False)
        sparse.append((ids, rng.integers(1, 9, len(ids)) / 4))  # exact in float16
    tokens = [unit(rng.integers(0, 9), WIDTH, seed=seed + i) for i in range(count)]
    return {"dense": unit(count, WIDTH, seed=seed), "sparse": sparse, "tokens": tokens}


def add(index, names, seed, **options):
    index.add(names, values := documents(len(names), seed), [f"{name} {seed}" for name in names], **options)
    return {
        name: ({field: value[i] for field, value in values.items()}, f"{name} {seed}") for i, name in enumerate(names)
    }


def scores_of(known, queries):
    """Field -> query -> {name: score}, of the documents that can be found."""
    found = {field: [{} for _ in queries["dense"]] for field in FIELDS}
    for name, (values, _) in known.items():
        for i in range(len(queries["dense"])):
            found["dense"][i][name] = float(values["dense"] @ queries["dense"][i])
            weights = dict(zip(*map(np.ndarray.tolist, values["sparse"])))
            met = [(w, weights[t]) for t, w in zip(*queries["sparse"][i]) if t in weights]
            if met:
                found["sparse"][i][name] = sum(a * b for a, b in met)
            if len(values["tokens"]):
                matrix = queries["tokens"][i] @ values["tokens"].T
                found["tokens"][i][name] = float(matrix.max(axis=1).sum())
    return found


def check(index, known, seed=99, atol=0.1):
    queries = documents(4, seed)
    queries["tokens"] = [unit(3, WIDTH, seed=seed + i) for i in range(4)]
    assert len(index) == len(known)
    for field, expected in scores_of(known, queries).items():
        for hits, scores in zip(index.search({field: queries[field]}, top_k=5), expected):
            assert len(hits) == min(5, len(scores))
            best = sorted(scores.values(), reverse=True)[: len(hits)]
            np.testing.assert_allclose([hit.score for hit in hits], best, atol=atol if field == "tokens" else 2e-3)
            for hit in hits:
                assert hit.score == pytest.approx(scores[hit.id], abs=atol if field == "tokens" else 2e-3)
                assert hit.payload == known[hit.id][1]


def test_any_changes_leave_what_a_dictionary_would_hold(tmp_path):
    index, known, rng = Index(tmp_path / "i", FIELDS), {}, np.random.default_rng(0)
    check(index, known)
    for step in range(40):
        names = [f"d{i}" for i in rng.choice(60, rng.integers(1, 9), replace=False)]
        kind = rng.integers(4)
        if kind == 0:
            index.delete(names)
            known = {name: value for name, value in known.items() if name not in names}
        else:
            removed = [name for name in ("d1", "d2", "unknown") if kind == 1 and name not in names]
            known = {name: value for name, value in known.items() if name not in removed}
            known |= add(index, names, step, remove=removed)
        if step % 13 == 5:
            index.merge()
            assert len([path for path in (tmp_path / "i").glob("segment_*")]) == 1
        if step % 5 == 0:
            check(index, known)
            check(Index(tmp_path / "i"), known)
    assert len(list((tmp_path / "i").glob("segment_*"))) < index_module.MERGE_COUNT
    index.delete(list(known))
    check(index, {})
    with pytest.raises(KeyError):
        index.get("d3")


@pytest.mark.parametrize("measure", ["cosine", "dot"])
@pytest.mark.parametrize(
    ("precision", "atol"), [("float32", 1e-5), ("float16", 2e-3), ("int8", 0.06), ("binary", None)]
)
def test_dense_scores_are_the_measure(tmp_path, measure, precision, atol):
    rng = np.random.default_rng(0)
    x, queries = rng.normal(size=(50, WIDTH)).astype("float32"), rng.normal(size=(6, WIDTH)).astype("float32")
    index = Index(tmp_path / "i", {"v": Dense(WIDTH, measure, precision)})
    index.add([str(i) for i in range(30)], {"v": x[:30]})
    index.add([str(i) for i in range(30, 50)], {"v": x[30:]})
    index.merge()
    if measure == "cosine":
        x, queries = (y / np.linalg.norm(y, axis=1, keepdims=True) for y in (x, queries))
    if precision == "binary":
        x, atol = np.where(x > 0, 1, -1) / np.sqrt(np.float32(WIDTH)), 1e-5
    expected = queries @ x.T
    for hits, row in zip(index.search({"v": queries}, top_k=50), expected):
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        np.testing.assert_allclose([hit.score for hit in hits], row[[int(hit.id) for hit in hits]], atol=10 * atol)
        top = [int(hit.id) for hit in hits[:5]]
        np.testing.assert_allclose(row[top], np.sort(row)[::-1][:5], atol=20 * atol)


@pytest.fixture
def small_graphs(monkeypatch):
    """Graphs of few vectors; without usearch, the test is skipped."""
    pytest.importorskip("usearch")
    for module in (dense, multi_vector):
        monkeypatch.setattr(module, "SMALLEST", 500)


@pytest.mark.parametrize("precision", ["float32", "float16", "int8", "binary"])
@pytest.mark.parametrize("deleted", [0, 700])
def test_candidates_of_graphs_are_the_exact_ones(tmp_path, small_graphs, precision, deleted):
    x, queries = unit(2000, 64), unit(50, 64, seed=1)
    x[1000:] = x[:1000] + 0.3 * unit(1000, 64, seed=2)  # as texts, they have near ones
    queries = x[:50] + 0.3 * unit(50, 64, seed=3)
    index = Index(tmp_path / "i", {"v": Dense(64, graph_precision=precision)})
    index.add([str(i) for i in range(2000)], {"v": x})
    assert list((tmp_path / "i").glob("*/*.usearch"))
    index.delete([str(i) for i in range(1000, 1000 + deleted)])
    multiplier = 40 if precision == "binary" else 4  # 400 nearest by signs hold 93 % of the nearest
    exact = index.search({"v": queries}, exact=True)
    found = index.search({"v": queries}, rescore_multiplier=multiplier)
    recall = np.mean([len({h.id for h in a} & {h.id for h in b}) / 10 for a, b in zip(found, exact)])
    assert recall >= (0.9 if precision == "binary" else 0.98)
    assert all(len(hits) == 10 for hits in found)
    assert [hit.score for hit in found[0]][:1] == pytest.approx([exact[0][0].score], abs=1e-6)


@pytest.mark.parametrize("precision", ["float16", "int8", "residual2"])
def test_token_vectors_are_found_in_any_precision(tmp_path, small_graphs, precision):
    rng = np.random.default_rng(0)
    centers = unit(60, 32)
    tokens = [
        (c := centers[rng.integers(0, 60, rng.integers(1, 12))]) + 0.2 * unit(*c.shape, seed=i) for i in range(400)
    ]
    tokens = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in tokens]
    queries = [tokens[i][:4] + 0.1 * unit(len(tokens[i][:4]), 32, seed=i) for i in range(20)]
    index = Index(tmp_path / "i", {"t": MultiVector(32, precision)})
    index.add([str(i) for i in range(200)], {"t": tokens[:200]})
    index.add([str(i) for i in range(200, 400)], {"t": tokens[200:]})
    index.merge()
    exact = index.search({"t": queries}, exact=True)
    found = index.search({"t": queries}, top_k=10)
    truth = [[(q @ x.T).max(axis=1).sum() for x in tokens] for q in queries]
    atol = {"float16": 0.01, "int8": 0.1, "residual2": 0.6}[precision]
    for hits, row in zip(exact, truth):
        np.testing.assert_allclose([hit.score for hit in hits], [row[int(hit.id)] for hit in hits], atol=atol)
    recall = np.mean([len({h.id for h in a} & {h.id for h in b}) / 10 for a, b in zip(found, exact)])
    assert recall >= 0.98
    assert np.mean([int(hits[0].id) == i for i, hits in enumerate(found)]) >= 0.9


def test_maxsim_is_sentence_transformers(tmp_path):
    util = pytest.importorskip("sentence_transformers.util")
    if not hasattr(util, "maxsim"):
        pytest.skip("this sentence-transformers has no maxsim")
    tokens, queries = [unit(5, 8, seed=i) for i in range(9)], [unit(3, 8, seed=50 + i) for i in range(2)]
    index = Index(tmp_path / "i", {"t": MultiVector(8, "float16")})
    index.add([str(i) for i in range(9)], {"t": tokens})
    expected = np.asarray(util.maxsim(queries, tokens))
    for hits, row in zip(index.search({"t": queries}, top_k=9), expected):
        np.testing.assert_allclose([hit.score for hit in hits], row[[int(hit.id) for hit in hits]], atol=5e-3)


def test_rankings_are_fused_by_their_ranks(tmp_path):
    fused = reciprocal_rank_fusion([["a", "b", "c"], ["c", "a"]], top_k=2)
    assert fused == [("a", 1 / 61 + 1 / 62), ("c", 1 / 63 + 1 / 61)]
    index = Index(tmp_path / "i", FIELDS)
    add(index, [f"d{i}" for i in range(30)], 0)
    queries = {name: value for name, value in documents(3, 5).items() if name != "tokens"}
    single = [index.search({name: value}, top_k=100) for name, value in queries.items()]
    for i, hits in enumerate(index.search(queries, top_k=4)):
        expected = reciprocal_rank_fusion([[hit.id for hit in ranking[i]] for ranking in single], 4)
        assert [hit.score for hit in hits] == pytest.approx([score for _, score in expected])


def test_a_reader_keeps_the_state_that_it_opened(tmp_path):
    index = Index(tmp_path / "i", FIELDS)
    known = add(index, ["a", "b"], 0, metadata={"files": 2})
    reader = Index(tmp_path / "i")
    add(index, ["b", "c"], 1, metadata={"files": 3})
    index.merge()
    assert reader.metadata == {"files": 2} and reader.get("b") == "b 0"
    check(reader, known)
    assert Index(tmp_path / "i").get("b") == "b 1" and index.metadata == {"files": 3}


def test_wrong_values_change_nothing(tmp_path):
    index = Index(tmp_path / "i", FIELDS)
    known = add(index, ["a", "b"], 0)
    values = documents(2, 1)
    for changed, message in [
        ({"dense": np.zeros((2, 3), "float32")}, "values must be float vectors"),
        ({"dense": np.full((2, WIDTH), np.nan, "float32")}, "not finite"),
        ({"sparse": [([1, 1], [1.0, 2.0])] * 2}, "more than once"),
        ({"sparse": [([1], [np.inf])] * 2}, "weights must be finite. Received: inf."),
        ({"sparse": values["sparse"][:1]}, "of 2 documents"),
        ({"tokens": [unit(2, 3)] * 2}, "vectors of a text must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            index.add(["c", "d"], values | changed)
    with pytest.raises(TypeError):
        index.add(["c", "d"], values, [object(), 1])
    with pytest.raises(TypeError, match="ids must be strings. Received: 3"):
        index.add(["c", 3], values)
    with pytest.raises(ValueError, match="ids must be different"):
        index.add(["c", "c"], values)
    with pytest.raises(ValueError, match="values for dense, sparse, tokens"):
        index.add(["c", "d"], {"dense": values["dense"]})
    with pytest.raises(ValueError, match="queries must be equally many"):
        index.search({"other": values["dense"]})
    with pytest.raises(ValueError, match="fields must be"):
        Index(tmp_path / "i", {"dense": Dense(3)})
    with pytest.raises(FileNotFoundError, match="must be an index"):
        Index(tmp_path / "other")
    check(Index(tmp_path / "i"), known)
    assert len(list((tmp_path / "i").glob("segment_*"))) == 1  # nothing half written is left
    (tmp_path / "i" / "manifest.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match="Make the index again"):
        Index(tmp_path / "i")


@pytest.mark.parametrize(
    "manifest",
    [
        {"format": 1},
        {"format": 2, "fields": {}, "segments": []},
        {"format": 1, "fields": {}, "segments": [{"documents": 3}]},
        {"format": 1, "fields": {}, "segments": [], "more": 1},
        {"format": 1, "fields": {}, "segments": 3},
        {"format": 1, "fields": {}, "segments": [{"name": "../segment_000001", "documents": 3}]},
        {"format": 1, "fields": {}, "segments": [{"name": "segment_000001", "documents": 3, "deletions": "../x.npy"}]},
        {"format": 1, "fields": {"../x": {"kind": "sparse"}}, "segments": []},
        {"format": 1, "fields": [], "segments": []},
        {"format": 1, "fields": {"dense": {}}, "segments": []},
        {"format": 1, "fields": {"dense": {"kind": "another", "width": 3}}, "segments": []},
        {"format": 1, "fields": {"dense": {"kind": "dense", "depth": 3}}, "segments": []},
        [],
    ],
)
def test_a_damaged_manifest_is_a_value_error(tmp_path, manifest):
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=r"must be .+ Received: "):
        Index(tmp_path)


def test_the_index_needs_no_keras(python):
    names = "Index, Dense, Sparse, MultiVector, quantize_embeddings, reciprocal_rank_fusion"
    code = f"import sys; from bertzoo.retrieval import {names}; print([m for m in sys.modules if m == 'keras'])"
    assert python(code).strip() == "[]"


def test_files_that_are_not_of_the_index_stay(tmp_path):
    (tmp_path / "full" / "segment_photos").mkdir(parents=True)
    (tmp_path / "full" / "segment_photos" / "mine.txt").write_text("precious")
    with pytest.raises(ValueError, match="must be empty or hold an index. Received: a directory with segment_photos"):
        Index(tmp_path / "full", FIELDS)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["segment_photos"]
    index = Index(tmp_path / "i", FIELDS)
    foreign = [tmp_path / "i" / name for name in ("segment_photos", "segment_000001_copy", "segment_1")]
    for folder in foreign:
        folder.mkdir()
    add(index, ["a", "b"], 0)
    (segment,) = (tmp_path / "i").glob("segment_00000?")
    (segment / "deleted_by_me.txt").write_text("mine")
    index.delete(["a"])
    index.delete(["unknown"])
    assert all(folder.is_dir() for folder in foreign) and (segment / "deleted_by_me.txt").read_text() == "mine"


def test_documents_are_found_beside_deleted_and_long_ones(tmp_path, small_graphs):
    query = unit(1, WIDTH)
    near = [x / np.linalg.norm(x) for x in query + 0.01 * unit(200, 1, WIDTH, seed=1)]
    far = [unit(1, WIDTH, seed=10 + i) for i in range(600)]
    index = Index(tmp_path / "i", {"tokens": MultiVector(WIDTH)})
    names = [f"near{i}" for i in range(200)]
    index.add([*names, *(f"far{i}" for i in range(600)), "long"], {"tokens": [*near, *far, np.concatenate(near)]})
    index.delete(names)
    for top_k in (3, 20):
        (found,), (exact,) = (index.search({"tokens": [query]}, top_k, exact=way) for way in (False, True))
        assert exact[0].id == "long" and [hit.id for hit in found] == [hit.id for hit in exact]


@pytest.mark.parametrize(
    ("field", "values", "message"),
    [
        (Sparse(), [([2**32 + 5], [1.0])], "ids of terms must be integers from 0 to .* Received: 4294967301"),
        (Sparse(), [([1.9], [1.0])], "ids of terms must be integers from 0 to .* Received: 1.9"),
        (Sparse(), [([-1], [1.0])], "ids of terms must be integers from 0 to .* Received: -1"),
        (Sparse(), [([1], [1e5])], 'does not fit float16: use precision="float32". Received: 100000'),
        (Dense(1, "dot"), [[-1e5]], 'does not fit float16: use precision="float32". Received: -100000'),
        (Dense(1, "dot", "float32", "float16"), [[1e5]], 'use graph_precision="float32"'),
        (MultiVector(1, "float16"), [[[1e5]]], "does not fit float16: scale the vectors"),
    ],
)
def test_values_that_would_be_stored_as_others_are_refused(tmp_path, field, values, message):
    index = Index(tmp_path / "i", {"f": field})
    with pytest.raises(ValueError, match=message):
        index.add(["a"], {"f": values})
    assert len(Index(tmp_path / "i")) == 0


@pytest.mark.parametrize("name", ["a/b", "../x", "documents", "document_hashes", "deleted_000001", "", "a.b"])
def test_names_of_fields_are_no_paths_and_not_those_of_files(tmp_path, name):
    with pytest.raises(ValueError, match="names of fields must be"):
        Index(tmp_path / "i", {name: Dense(2)})
    assert not (tmp_path / "i").exists()


@pytest.mark.parametrize("field", [Dense(32, precision="int8"), MultiVector(32, "int8"), Dense(32)])
def test_vectors_stay_after_many_merges(tmp_path, field):
    x = unit(100, 32)
    values = [[row] for row in x] if isinstance(field, MultiVector) else x
    index = Index(tmp_path / "i", {"v": field})
    index.add([str(i) for i in range(100)], {"v": values})
    for i in range(30):
        new = unit(1, 32, seed=i + 1)
        index.add([f"new{i}"], {"v": [new] if isinstance(field, MultiVector) else new})
        index.merge()
    (part,) = index.parts("v")
    left = part.read(np.arange(100))
    cosines = (left * x).sum(axis=1) / np.linalg.norm(left, axis=1)
    assert cosines.min() > 0.99 and np.abs(np.linalg.norm(left, axis=1) - 1).max() < 0.02


@pytest.mark.parametrize("keep", [0, 100, -100])
def test_a_damaged_graph_is_refused(tmp_path, small_graphs, keep):
    index = Index(tmp_path / "i", {"v": Dense(WIDTH)})
    index.add([str(i) for i in range(600)], {"v": unit(600, WIDTH)})
    (path,) = (tmp_path / "i").glob("*/*.usearch")
    content = path.read_bytes()
    path.unlink()  # the open index has it mapped
    path.write_bytes(content[:keep])
    with pytest.raises(ValueError, match="a damaged file of .* Make the index again"):
        Index(tmp_path / "i")


@pytest.mark.parametrize("keep", [0, 60, -30])
def test_damaged_arrays_are_refused(tmp_path, keep):
    Index(tmp_path / "i", FIELDS).add(["a", "b"], documents(2))
    for path in (tmp_path / "i").glob("*/*.npy"):
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content[:keep])
        with pytest.raises(
            ValueError, match="must be a segment of an index. Received: damaged files .* Make the index"
        ):
            Index(tmp_path / "i")
        path.write_bytes(content)
    assert len(Index(tmp_path / "i")) == 2


def test_a_damaged_document_is_told(tmp_path):
    Index(tmp_path / "i", {"v": Dense(WIDTH)}).add(["a", "b"], {"v": unit(2, WIDTH)})
    (path,) = (tmp_path / "i").glob("*/documents.jsonl")
    path.write_bytes(path.read_bytes().replace(b'["b"', b'["b '))
    with pytest.raises(ValueError, match="must hold documents as JSON. Received: a damaged line 2"):
        Index(tmp_path / "i").search({"v": unit(1, WIDTH)[0]}, 2)
