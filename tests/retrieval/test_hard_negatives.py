"""Mining of hard negatives against sentence-transformers', on vectors and scores that are looked up."""

import numpy as np
import pytest

import bertzoo as bz
from bertzoo.retrieval import mine_hard_negatives

pytestmark = pytest.mark.once
torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
QUERIES = [f"q{i}" for i in (0, 0, 1, 2, 3, 4, 4)]
POSITIVES = [f"d{i}" for i in (0, 1, 2, 3, 3, 5, 6)]
CORPUS = [f"d{i}" for i in range(30)]
VECTORS = dict(zip([*dict.fromkeys(QUERIES), *CORPUS], RNG.normal(size=(35, 6)).astype("float32")))
for query, positive in zip(QUERIES, POSITIVES):  # so that positives are near, with others nearer still
    VECTORS[positive] = (VECTORS[positive] + VECTORS[query]).astype("float32")
SCORES = {(query, text): float(RNG.random()) for query in VECTORS for text in CORPUS}
for pair in zip(QUERIES, POSITIVES):
    SCORES[pair] = SCORES[pair] / 4 + 0.7


class Encoder:
    """The encoder of both: it looks vectors up."""

    device = "cpu"
    model_card_data = None

    def encode(self, texts, batch_size=32, prompt=None, **options):
        vectors = np.stack([VECTORS[text] for text in texts])
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    encode_query = encode_document = encode

    def similarity(self, u, v):
        return torch.as_tensor(u) @ torch.as_tensor(v).T

    def similarity_pairwise(self, u, v):
        return (torch.as_tensor(u) * torch.as_tensor(v)).sum(dim=1)


class Reranker:
    def predict(self, pairs, batch_size=32, convert_to_tensor=False, **options):
        scores = np.array([SCORES[pair] for pair in pairs], "float32")
        return torch.tensor(scores) if convert_to_tensor else scores


def reference(output_format, **options):
    from datasets import Dataset
    from sentence_transformers.util import mine_hard_negatives

    data = Dataset.from_dict({"query": QUERIES, "text": POSITIVES})
    mined = mine_hard_negatives(
        data, Encoder(), corpus=CORPUS, output_format=output_format, verbose=False, **options
    ).to_dict()
    return [tuple(row) for row in zip(*mined.values())]


def flat(rows):
    """Texts and labels, and scores."""
    values = [[value for part in row for value in (part if isinstance(part, list) else [part])] for row in rows]
    names = [[value for value in row if not isinstance(value, float)] for row in values]
    return names, [[value for value in row if isinstance(value, float)] for row in values]


OPTIONS = {
    "nearest": {},
    "range": {"range_min": 2, "range_max": 9},
    "scores": {"max_score": 0.4, "min_score": 0.05},
    "absolute margin": {"absolute_margin": 0.15, "range_max": 20},
    "relative margin": {"relative_margin": 0.3},
    "both": {"relative_margin": 0.1, "absolute_margin": 0.1, "range_min": 1},
    "reranker": {"cross_encoder": Reranker(), "relative_margin": 0.05, "range_max": 12},
    "reranker's scores": {"cross_encoder": Reranker(), "min_score": 0.3, "max_score": 0.9, "range_min": 1},
}


@pytest.mark.parametrize("output_scores", [False, True])
@pytest.mark.parametrize("output_format", ["triplet", "n-tuple", "labeled-pair", "labeled-list"])
@pytest.mark.parametrize("case", OPTIONS)
def test_rows_are_those_of_sentence_transformers(case, output_format, output_scores):
    options = {"num_negatives": 3, "output_scores": output_scores, **OPTIONS[case]}
    actual = mine_hard_negatives(Encoder(), QUERIES, POSITIVES, CORPUS, output_format=output_format, **options)
    expected = reference(output_format, **options)
    assert expected
    (texts, scores), (expected_texts, expected_scores) = flat(actual), flat(expected)
    assert texts == expected_texts
    assert [len(row) for row in scores] == [len(row) for row in expected_scores]
    for row, other in zip(scores, expected_scores):
        assert row == pytest.approx(other, abs=1e-6)


def test_random_negatives_are_some_of_those_considered_by_the_seed():
    options = {"num_negatives": 3, "range_min": 1, "range_max": 12}
    considered = mine_hard_negatives(Encoder(), QUERIES, POSITIVES, CORPUS, **{**options, "num_negatives": 11})
    drawn = []
    for seed in (1, 1, 2):
        bz.set_seed(seed)
        drawn.append(mine_hard_negatives(Encoder(), QUERIES, POSITIVES, CORPUS, sampling_strategy="random", **options))
    assert drawn[0] == drawn[1] != drawn[2]
    for row, whole in zip(drawn[0], considered):
        assert row[:2] == whole[:2] and len(row) == 5
        places = [whole.index(text) for text in row[2:]]
        assert places == sorted(set(places)) and places[0] >= 2  # the nearest first
    assert drawn[0] != [row[:5] for row in considered]


def test_a_query_is_not_its_own_negative_and_the_positives_are_the_corpus_by_default():
    rows = mine_hard_negatives(Encoder(), QUERIES, POSITIVES, num_negatives=3)
    assert {text for row in rows for text in row[2:]} <= set(POSITIVES)
    VECTORS["copy"] = VECTORS["q1"]
    rows = mine_hard_negatives(Encoder(), ["q1"], ["d2"], ["q1", "copy", "d9"], num_negatives=1)
    assert rows == [("q1", "d2", "copy")]


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="equally long. Received: 7 and 1"):
        mine_hard_negatives(Encoder(), QUERIES, POSITIVES[:1])
    for wrong in ({"num_negatives": 0}, {"range_min": -1}, {"num_negatives": 3, "range_max": 2}):
        with pytest.raises(ValueError, match="num_negatives must be at least 1"):
            mine_hard_negatives(Encoder(), QUERIES, POSITIVES, **wrong)
    for wrong in ({"output_format": "pairs"}, {"sampling_strategy": "last"}):
        with pytest.raises(ValueError, match="output_format must be one of triplet, .* sampling_strategy one of top"):
            mine_hard_negatives(Encoder(), QUERIES, POSITIVES, **wrong)
    assert mine_hard_negatives(Encoder(), [], []) == []
