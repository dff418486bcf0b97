"""Quantized vectors and search among them, against sentence-transformers'."""

import numpy as np
import pytest

from bertzoo.retrieval import quantize_embeddings, search_quantized
from bertzoo.retrieval.quantization import PRECISIONS, calibrate_ranges, dequantize_embeddings

pytestmark = pytest.mark.once
st = pytest.importorskip("sentence_transformers.util.quantization")


def vectors(count, width=20, seed=0):
    x = np.random.default_rng(seed).normal(size=(count, width)).astype("float32")
    x[:, 3] = 0.5  # a dimension without range
    return x


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("given", ["nothing", "calibration", "ranges"])
def test_quantized_vectors_are_sentence_transformers(precision, given):
    x, others = vectors(120), vectors(150, seed=1)
    ranges = np.stack([others.min(axis=0), others.max(axis=0)])
    options = {"nothing": {}, "calibration": {"calibration_embeddings": others}, "ranges": {"ranges": ranges}}[given]
    expected = st.quantize_embeddings(x, precision, **options)
    actual = quantize_embeddings(x, precision, **options)
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("precision", ["int8", "uint8"])
def test_8_bits_are_within_a_step_and_a_single_vector_has_no_range(precision):
    x = vectors(120)
    ranges = calibrate_ranges(x)
    back = dequantize_embeddings(quantize_embeddings(x, precision, ranges), precision, ranges)
    steps = (ranges[1] - ranges[0]) / 255
    assert (np.abs(back - x) <= 1.001 * steps + 1e-6).all()
    with pytest.raises(ValueError, match="two or more vectors"):
        quantize_embeddings(x[0], precision)


@pytest.mark.parametrize("precision", ["int8", "binary", "ubinary"])
@pytest.mark.parametrize("rescore", [True, False])
def test_search_finds_what_sentence_transformers_finds(precision, rescore):
    pytest.importorskip("usearch")
    corpus, queries = vectors(500, 64), vectors(30, 64, seed=1)
    ranges = calibrate_ranges(corpus)
    codes = quantize_embeddings(corpus, precision, ranges)
    # Of codes of equal Hamming distance, usearch takes others as candidates: here all are.
    options = {"top_k": 5, "ranges": ranges, "rescore_multiplier": 4 if precision == "int8" else 100}
    asked = queries if rescore else quantize_embeddings(queries, precision, ranges)
    expected, _ = st.semantic_search_usearch(asked, codes, None, precision, rescore=rescore, **options)
    actual = search_quantized(queries, codes, precision, **options | ({} if rescore else {"rescore_multiplier": None}))
    scores = np.array([[hit["score"] for hit in row] for row in expected])
    if rescore:
        assert [[hit["corpus_id"] for hit in row] for row in actual] == [
            [hit["corpus_id"] for hit in row] for row in expected
        ]
        np.testing.assert_allclose([[hit["score"] for hit in row] for row in actual], scores, rtol=1e-5)
    else:
        found = np.array([[hit["score"] for hit in row] for row in actual])
        similarity = 1 - scores if precision == "int8" else 1 - scores / 64
        np.testing.assert_allclose(found, similarity, atol=1e-6)


def test_all_candidates_rescored_are_the_exact_ranking():
    corpus, queries = vectors(200, 64), vectors(20, 64, seed=1)
    codes = quantize_embeddings(corpus, "binary")
    hits = search_quantized(queries, codes, "binary", top_k=7, rescore_multiplier=200)
    expected = np.argsort(-(queries @ (corpus > 0).T.astype("float32")), axis=1, kind="stable")[:, :7]
    assert [[hit["corpus_id"] for hit in row] for row in hits] == expected.tolist()


def test_wrong_arguments_say_what_is_expected():
    with pytest.raises(ValueError, match=r"precision must be one of .*Received: 'int4'"):
        quantize_embeddings(vectors(3), "int4")
    with pytest.raises(ValueError, match="with ranges for 8 bits"):
        search_quantized(vectors(3), np.zeros((5, 20), "int8"), "int8")
