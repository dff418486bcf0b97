"""Search, mining and measures against sentence-transformers', scipy's and scikit-learn's, and by hand."""

import numpy as np
import pytest
import torch

from bertzoo import retrieval
from bertzoo.metrics import pearson, spearman
from bertzoo.retrieval.evaluation import _binary_measures
from bertzoo.retrieval.search import find_nearest

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)


def vectors(count, width=8, seed=0):
    return np.random.default_rng(seed).normal(size=(count, width)).astype("float32")


class Table:
    """An encoder that looks vectors up."""

    def __init__(self, table, measure="cosine"):
        self.table, self.measure = table, measure

    def encode(self, texts, batch_size=32, prompt=None, show_progress_bar=None):
        return np.stack([self.table[(prompt or "") + text] for text in texts])

    def similarity_pairwise(self, first, second):
        return retrieval.pairwise_similarity(first, second, self.measure)


def table(names, seed=0):
    return Table(dict(zip(names, vectors(len(names), seed=seed))))


@pytest.fixture(scope="module")
def st():
    return pytest.importorskip("sentence_transformers.util")


# ---- search


@pytest.mark.parametrize("measure", ["cosine", "dot"])
@pytest.mark.parametrize("chunks", [(512, 100_000), (3, 7)])
def test_search_equals_sentence_transformers_in_any_chunks(measure, chunks, st):
    queries, corpus = vectors(10), vectors(50, seed=1)
    score = st.cos_sim if measure == "cosine" else st.dot_score
    expected = st.semantic_search(queries, corpus, top_k=6, score_function=score)
    actual = retrieval.semantic_search(queries, corpus, 6, measure, *chunks)
    assert [[hit["corpus_id"] for hit in row] for row in actual] == [
        [hit["corpus_id"] for hit in row] for row in expected
    ]
    scores = [[[hit["score"] for hit in row] for row in result] for result in (actual, expected)]
    np.testing.assert_allclose(*scores, atol=1e-5)


def test_equal_scores_come_in_the_corpus_order_whatever_the_chunks():
    corpus = np.repeat([[1, 2], [3, 1], [0, 1], [2, 2]], 5, axis=0)  # whole numbers, whose products are exact
    for at_once in (3, 7, 100):
        _, positions = find_nearest(np.array([1, 1]), corpus, 12, "dot", corpus_chunk_size=at_once)
        np.testing.assert_array_equal(positions, [[5, 6, 7, 8, 9, 15, 16, 17, 18, 19, 0, 1]])
    np.testing.assert_array_equal(find_nearest(np.ones(2), np.ones((6, 2)), 3)[1], [[0, 1, 2]])


def test_small_sides_and_mistakes():
    assert retrieval.semantic_search(vectors(2), np.zeros((0, 8))) == [[], []]
    assert retrieval.semantic_search(np.zeros((0, 8)), vectors(2)) == []
    assert retrieval.semantic_search([], vectors(2)) == [] and retrieval.semantic_search(vectors(1), []) == [[]]
    halves = torch.tensor(vectors(3)).to(torch.bfloat16)
    expected = retrieval.similarity(halves.float(), vectors(2))
    np.testing.assert_array_equal(retrieval.similarity(halves, vectors(2)), expected)
    assert len(retrieval.semantic_search(vectors(1)[0], vectors(3))[0]) == 3
    for options, message in (
        ({"top_k": 0}, "top_k must be a whole number"),
        ({"measure": "euclid"}, "the measure must be one of cosine, dot"),
        ({"corpus_chunk_size": -1}, "corpus_chunk_size must be"),
    ):
        with pytest.raises(ValueError, match=message):
            retrieval.semantic_search(vectors(2), vectors(2), **options)
    with pytest.raises(ValueError, match="queries are 8 numbers wide and the corpus 9"):
        retrieval.semantic_search(vectors(2), vectors(2, 9))
    with pytest.raises(ValueError, match="not finite"):
        retrieval.similarity(np.array([[np.nan, 1]]), np.ones((1, 2)))


# ---- mining


@pytest.mark.parametrize("top_k", [3, 100])
def test_pairs_are_those_that_sentence_transformers_mines(top_k, st):
    import torch

    x = vectors(30)
    expected = st.paraphrase_mining_embeddings(torch.tensor(x), top_k=top_k, max_pairs=40)
    actual = retrieval.mine_pairs(x, top_k=top_k, max_pairs=40)
    assert [pair[1:] for pair in actual] == [tuple(pair[1:]) for pair in expected]
    np.testing.assert_allclose([pair[0] for pair in actual], [pair[0] for pair in expected], atol=1e-5)


def test_equal_texts_are_found_as_pairs():
    x = np.repeat(vectors(2), 3, axis=0)
    result = {pair[1:] for pair in retrieval.mine_pairs(x, top_k=2)}
    assert result == {(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)}
    encoder = table("abc")
    assert retrieval.paraphrase_mining(encoder, list("abc")) == retrieval.mine_pairs(encoder.encode("abc"))
    assert retrieval.mine_pairs(vectors(1)) == []


# ---- measures


def test_correlations_are_scipys():
    stats = pytest.importorskip("scipy.stats")
    x, y = RNG.integers(0, 5, 40), RNG.normal(size=40)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y)[0])
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y)[0])
    assert np.isnan(spearman(np.ones(4), y[:4]))


def test_sts_is_the_correlation_of_cosines():
    stats = pytest.importorskip("scipy.stats")
    encoder = table("abcdefgh")
    firsts, seconds, scores = "abcd", "efgh", [0, 2, 5, 3]
    cosines = np.diag(retrieval.similarity(encoder.encode(firsts), encoder.encode(seconds)))
    with pytest.raises(ValueError, match="equally long. Received: columns of 4, 4, 3"):
        retrieval.evaluate_sts(encoder, firsts, seconds, scores[:3])
    assert np.isnan(list(retrieval.evaluate_sts(encoder, "a", "b", [1]).values())).all()
    result = retrieval.evaluate_sts(encoder, firsts, seconds, scores)
    assert result["spearman"] == pytest.approx(stats.spearmanr(cosines, scores)[0])
    assert result["pearson"] == pytest.approx(stats.pearsonr(cosines, scores)[0])


def test_retrieval_measures_are_those_of_sentence_transformers():
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    queries = {f"q{i}": f"q{i}" for i in range(8)}
    corpus = {f"d{i:02}": f"d{i}" for i in range(30)}
    relevant = {name: set(RNG.choice(list(corpus), size=1 + i % 4, replace=False)) for i, name in enumerate(queries)}
    encoder = table([*queries.values(), *corpus.values()])
    evaluator = evaluation.InformationRetrievalEvaluator(
        queries, corpus, relevant, mrr_at_k=[3, 10], ndcg_at_k=[3, 10], accuracy_at_k=[3, 10],
        precision_recall_at_k=[3, 10], map_at_k=[10],
    )  # fmt: skip
    _, positions = find_nearest(encoder.encode(queries.values()), encoder.encode(corpus.values()), 10)
    results = [[{"corpus_id": list(corpus)[p], "score": -rank} for rank, p in enumerate(row)] for row in positions]
    expected = evaluator.compute_metrics(results)
    actual = retrieval.evaluate_retrieval(encoder, queries, corpus, relevant, cutoffs=(3, 10))
    for name, key in (("mrr", "mrr@k"), ("ndcg", "ndcg@k"), ("recall", "recall@k"), ("accuracy", "accuracy@k")):
        for k in (3, 10):
            assert actual[f"{name}@{k}"] == pytest.approx(expected[key][k]), (name, k)
    with pytest.raises(ValueError, match="not in the corpus"):
        retrieval.evaluate_retrieval(encoder, queries, corpus, {"q0": ["nowhere"]})
    with pytest.raises(ValueError, match="no query has a relevant document"):
        retrieval.evaluate_retrieval(encoder, queries, corpus, {})


def test_triplets_by_hand():
    encoder = Table({"a": np.array([1.0, 0]), "near": np.array([1.0, 0.1]), "far": np.array([0, 1.0])})
    result = retrieval.evaluate_triplets(encoder, ["a", "a"], ["near", "far"], ["far", "near"])
    assert result == {"accuracy": 0.5}


def test_pairs_of_two_classes_are_measured_as_there():
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    metrics = pytest.importorskip("sklearn.metrics")
    kind = evaluation.BinaryClassificationEvaluator
    for seed in range(5):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 2, 40)
        scores = rng.normal(size=40) + labels
        actual = _binary_measures(scores, labels)
        accuracy, _ = kind.find_best_acc_and_threshold(scores, labels, True)
        f1, *_ = kind.find_best_f1_and_threshold(scores, labels, True)
        assert actual["accuracy"] == pytest.approx(accuracy)
        assert np.mean((scores > actual["threshold"]) == labels) == pytest.approx(accuracy)
        assert actual["f1"] == pytest.approx(f1)
        assert actual["average_precision"] == pytest.approx(metrics.average_precision_score(labels, scores))
    with pytest.raises(ValueError, match="label 0 or 1 for each pair"):
        retrieval.evaluate_pairs(table("ab"), "a", "b", [2])


# ---- the encoder's own measure, grades, prompts


@pytest.mark.parametrize("measure", ["euclidean", "manhattan"])
def test_distances_equal_sentence_transformers(measure, st):
    first, second = vectors(7), vectors(5, seed=1)
    expected = getattr(st, f"{measure}_sim")(first, second).numpy()
    np.testing.assert_allclose(retrieval.similarity(first, second, measure), expected, atol=1e-5)
    pairs = getattr(st, f"pairwise_{measure}_sim")(first[:5], second).numpy()
    np.testing.assert_allclose(retrieval.pairwise_similarity(first[:5], second, measure), pairs, atol=1e-5)
    scores, positions = find_nearest(first, second, 3, measure, 2, 2)
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :3], atol=1e-5)
    np.testing.assert_array_equal(positions, np.argsort(-expected, axis=1, kind="stable")[:, :3])


def test_a_model_is_evaluated_by_its_own_measure():
    encoder = Table({"q": np.array([1.0, 0]), "near": np.array([0.9, 0]), "far": np.array([5.0, 5.0])})
    corpus, right = {"a": "near", "b": "far"}, {"q": ["b"]}
    assert retrieval.evaluate_retrieval(encoder, {"q": "q"}, corpus, right, cutoffs=(1,))["accuracy@1"] == 0.0
    encoder.similarity_fn_name = "dot"
    assert retrieval.evaluate_retrieval(encoder, {"q": "q"}, corpus, right, cutoffs=(1,))["accuracy@1"] == 1.0
    assert retrieval.evaluate_triplets(encoder, ["q"], ["far"], ["near"])["accuracy"] == 1.0
    assert retrieval.evaluate_triplets(encoder, ["q"], ["far"], ["near"], measure="cosine")["accuracy"] == 0.0
    scores = retrieval.evaluate_sts(encoder, ["q", "q"], ["near", "far"], [0, 1])
    assert scores["spearman"] == pytest.approx(1.0)
    assert retrieval.evaluate_pairs(encoder, ["q", "q"], ["near", "far"], [0, 1])["accuracy"] == 1.0


def test_graded_relevance():
    """Grade 0 is not relevant; gains are the grades (scikit-learn's ndcg_score)."""
    from sklearn.metrics import ndcg_score

    names = [f"d{i}" for i in range(12)]
    encoder = table(["q", *names])
    grades = dict(zip(names, [0, 3, 0, 1, 0, 0, 2, 0, 0, 0, 1, 0]))
    result = retrieval.evaluate_retrieval(encoder, {"q": "q"}, {n: n for n in names}, {"q": grades}, cutoffs=(3, 12))
    scores = retrieval.similarity(encoder.encode(["q"]), encoder.encode(names))
    for k in (3, 12):
        assert result[f"ndcg@{k}"] == pytest.approx(ndcg_score([list(grades.values())], scores, k=k))
    ranked = np.array(list(grades.values()))[np.argsort(-scores[0])] > 0
    assert result["recall@3"] == pytest.approx(ranked[:3].sum() / 4)
    with pytest.raises(ValueError, match="no query has a relevant document"):
        retrieval.evaluate_retrieval(encoder, {"q": "q"}, {"d1": "d1"}, {"q": {"d1": 0}})


def test_mean_average_precision_equals_sentence_transformers():
    ir = pytest.importorskip("sentence_transformers.evaluation")
    names, queries = [f"d{i}" for i in range(30)], [f"q{i}" for i in range(6)]
    encoder, rng = table([*names, *queries]), np.random.default_rng(0)
    relevant = {query: set(rng.choice(names, 4, replace=False).tolist()) for query in queries}
    sides = {query: query for query in queries}, {name: name for name in names}
    result = retrieval.evaluate_retrieval(encoder, *sides, {q: list(r) for q, r in relevant.items()}, cutoffs=(5, 20))
    evaluator = ir.InformationRetrievalEvaluator(*sides, relevant, map_at_k=[5, 20], ndcg_at_k=[5, 20])
    hits = [
        [{"corpus_id": names[hit["corpus_id"]], "score": hit["score"]} for hit in row]
        for row in retrieval.semantic_search(encoder.encode(queries), encoder.encode(names), 30)
    ]
    expected = evaluator.compute_metrics(hits)
    for k in (5, 20):
        assert result[f"map@{k}"] == pytest.approx(expected["map@k"][k])
        assert result[f"ndcg@{k}"] == pytest.approx(expected["ndcg@k"][k])


def test_prompts_of_queries_and_documents():
    texts = ["q", "a", "b"]
    encoder = table([prefix + text for prefix in ("", "query: ", "passage: ") for text in texts])
    encoder.prompts = {"query": "query: ", "passage": "passage: "}
    asked, encode = [], encoder.encode
    encoder.encode = lambda texts, *args, prompt=None, **options: asked.append(prompt) or encode(texts, prompt=prompt)
    retrieval.evaluate_retrieval(encoder, {"q": "q"}, {"a": "a", "b": "b"}, {"q": ["a"]}, cutoffs=(1,))
    assert asked == ["query: ", "passage: "]
    del asked[:]
    retrieval.mine_hard_negatives(encoder, ["q"], ["a"], ["a", "b"])
    assert asked == ["query: ", "passage: "]
    del asked[:]
    retrieval.evaluate_triplets(encoder, ["q"], ["a"], ["b"], query_prompt="")
    assert asked == ["", "passage: ", "passage: "]
