"""The routes' forms and values, on models whose outputs are known functions of the token ids."""

import base64
import re

import numpy as np
import pytest
import scipy.special
import serving_cases as cases

from bertzoo.serving.body import Body
from bertzoo.serving.errors import RequestError

pytestmark = pytest.mark.once
CLS, SEP = 2, 3


@pytest.fixture
def ids(tokenizer):
    return lambda text, pair=None: tokenizer.encode(text, pair, truncate=False).row(0)


@pytest.fixture
def embedder(run_server, tokenizer):
    return run_server(cases.KnownModel(tokenizer))


def unit(vector):
    return vector / np.linalg.norm(vector)


def test_embed_gives_a_list_of_unit_vectors_even_for_one_text(embedder, ids, close):
    texts = ["the film", "a very very good film", "bad"]
    close(embedder.post("/embed", inputs=texts), [unit(cases.known_vector(ids(text))) for text in texts])
    close(embedder.post("/embed", inputs="bad"), [unit(cases.known_vector(ids("bad")))])
    close(embedder.post("/embed", inputs="bad", normalize=False), [cases.known_vector(ids("bad"))])
    close(embedder.post("/embed", inputs="bad", dimensions=2), [unit(cases.known_vector(ids("bad"))[:2])])


def test_embed_takes_token_ids_as_they_are(embedder, ids, close):
    rows = [[CLS, 9, SEP], [7, 8]]
    close(embedder.post("/embed", inputs=rows), [unit(cases.known_vector(row)) for row in rows])
    close(embedder.post("/embed", inputs=rows[0]), [unit(cases.known_vector(rows[0]))])
    status, error = embedder("POST", "/embed", {"inputs": [[CLS, 99_999]]})
    assert (status, error["error_type"]) == (422, "Tokenizer") and "99999" in error["error"]
    assert embedder("POST", "/v1/embeddings", {"input": [[-1]]})[0] == 422


def test_many_texts_come_back_in_their_order(embedder, ids, close, words):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words[5:30], rng.integers(1, 14))) for _ in range(700)]
    close(embedder.post("/embed", inputs=texts), [unit(cases.known_vector(ids(text))) for text in texts])


def test_texts_that_are_too_long_are_cut_or_refused(run_server, tokenizer, ids, close):
    text = "good " * 10 + "bad " * 10
    client = run_server(cases.KnownModel(tokenizer))
    whole = ids(text)
    close(client.post("/embed", inputs=text, normalize=False), [cases.known_vector([*whole[:15], SEP])])
    left = client.post("/embed", inputs=text, normalize=False, truncation_direction="Left")
    close(left, [cases.known_vector([CLS, *whole[-15:]])])
    status, error = client("POST", "/embed", {"inputs": text, "truncate": False})
    assert status == 422 and "at most 16 tokens" in error["error"] and "22" in error["error"]
    strict = run_server(cases.KnownModel(tokenizer), auto_truncate=False)
    assert strict("POST", "/embed", {"inputs": text})[0] == 422
    assert strict("POST", "/embed", {"inputs": text, "truncate": True})[0] == 200
    assert client("POST", "/embed", {"inputs": [[CLS] * 17]})[0] == 422


def test_prompts_go_before_texts(run_server, tokenizer, ids, close):
    model = cases.KnownModel(tokenizer, prompts={"query": "the ", "none": ""}, default_prompt="query")
    client = run_server(model)
    close(client.post("/embed", inputs="film"), [unit(cases.known_vector(ids("the film")))])
    close(client.post("/embed", inputs="film", prompt_name="none"), [unit(cases.known_vector(ids("film")))])
    status, error = client("POST", "/embed", {"inputs": "film", "prompt_name": "passage"})
    assert status == 422 and "query, none" in error["error"]
    assert client("POST", "/embed", {"inputs": [CLS, SEP]})[0] == 422  # ids can take no prompt


def test_the_files_say_how_many_dimensions_there_are(run_server, tokenizer, ids, close):
    client = run_server(cases.KnownModel(tokenizer, settings={"truncate_dim": 2}))
    close(client.post("/embed", inputs="bad"), [unit(cases.known_vector(ids("bad"))[:2])])
    close(client.post("/embed", inputs="bad", dimensions=4), [unit(cases.known_vector(ids("bad")))])


def test_a_prompt_that_pooling_would_leave_out_is_refused(run_server, tokenizer):
    prompts = {"query": "the ", "none": ""}
    client = run_server(cases.KnownModel(tokenizer, prompts=prompts, default_prompt=None, include_prompt=False))
    assert client("POST", "/embed", {"inputs": "bad", "prompt_name": "query"})[0] == 422
    assert client("POST", "/embed", {"inputs": "bad", "prompt_name": "none"})[0] == 200


def test_embed_all_gives_a_vector_for_each_token(embedder, ids, close):
    texts = ["the film", "a very good film"]
    for rows, text in zip(embedder.post("/embed_all", inputs=texts), texts, strict=True):
        close(rows, cases.known_tokens(ids(text)))


@pytest.mark.parametrize("most", [None, 1])
def test_embed_sparse_gives_the_words_that_have_a_weight(most, run_server, tokenizer, ids):
    client = run_server(cases.KnownModel(tokenizer, "SparseEncoder", max_active_dims=most, prompts={"query": "the "}))
    texts = ["the film", "a very good film", "bad"]
    for path in ("/embed_sparse", "/"):
        for row, text in zip(client.post(path, inputs=texts), texts, strict=True):
            weights = np.maximum(cases.known_vector(ids(text)), 0)
            words = np.flatnonzero(weights)
            words = words if most is None else [weights.argmax()] * bool(len(words))
            assert row == [{"index": i, "value": pytest.approx(float(weights[i]))} for i in words]
    (row,) = client.post("/embed_sparse", inputs="film", prompt_name="query")
    assert [word["index"] for word in row] == [w["index"] for w in client.post("/embed_sparse", inputs=["the film"])[0]]
    assert client("POST", "/embed", {"inputs": "bad"})[0] == 424


def test_similarity_is_the_cosine(embedder, ids, close):
    body = {"source_sentence": "the film", "sentences": ["a good film", "bad"]}
    vectors = [unit(cases.known_vector(ids(text))) for text in ("the film", "a good film", "bad")]
    close(embedder.post("/similarity", inputs=body), [vectors[0] @ vectors[1], vectors[0] @ vectors[2]])
    close(embedder.post("/", inputs=body), [vectors[0] @ vectors[1], vectors[0] @ vectors[2]])


def test_openai_embeddings_as_numbers_and_as_base64(embedder, ids, close):
    texts = ["the film", "bad"]
    expected = [unit(cases.known_vector(ids(text))) for text in texts]
    answer = embedder.post("/v1/embeddings", input=texts, model="model0", user="me")
    assert [row["index"] for row in answer["data"]] == [0, 1]
    assert {key: answer[key] for key in ("object", "model")} == {"object": "list", "model": "model0"}
    assert answer["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    close([row["embedding"] for row in answer["data"]], expected)
    coded = embedder.post("/embeddings", input=texts, encoding_format="base64")
    close([np.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in coded["data"]], expected)


def test_predict_sorts_labels_and_takes_two_strings_as_one_pair(run_server, tokenizer, ids, close):
    client = run_server(cases.KnownModel(tokenizer, "TextClassifier"))

    def expected(*texts):
        scores = scipy.special.softmax(cases.known_vector(ids(*texts))[:3].astype("float64"))
        return [(label, pytest.approx(score)) for score, label in sorted(zip(scores, "abc"), reverse=True)]

    def pairs(rows):
        return [(row["label"], row["score"]) for row in rows]

    assert pairs(client.post("/predict", inputs="the film")) == expected("the film")
    assert pairs(client.post("/predict", inputs=["the film", "bad"])) == expected("the film", "bad")
    mixed = client.post("/predict", inputs=[["the film", "bad"], ["bad"], ["a", "plot"]])
    assert list(map(pairs, mixed)) == [expected("the film", "bad"), expected("bad"), expected("a", "plot")]
    raw = {row["label"]: row["score"] for row in client.post("/predict", inputs="bad", raw_scores=True)}
    close([raw[label] for label in "abc"], cases.known_vector(ids("bad"))[:3])
    answer = client.post("/v1/classify", input=["bad", "the film"])
    assert list(map(pairs, answer["data"])) == [expected("bad"), expected("the film")]
    assert pairs(client.post("/", inputs="bad")[0]) == expected("bad")
    assert client("POST", "/predict", {"inputs": ["a", "b", "c"]})[0] == 422


def test_probabilities_of_several_labels_at_once_and_values_of_a_regression(run_server, tokenizer, ids):
    labels = cases.KnownModel(tokenizer, "TextClassifier", problem_type="multi_label_classification")
    value = cases.KnownModel(tokenizer, "TextClassifier", problem_type="regression", labels=["score"])
    client = run_server(labels, value, names=["labels", "value"])
    logits = cases.known_vector(ids("bad"))
    found = {row["label"]: row["score"] for row in client.post("/predict", inputs="bad", model="labels")}
    assert [found[label] for label in "abc"] == pytest.approx(scipy.special.expit(logits[:3].astype("float64")))
    assert client.post("/predict", inputs="bad", model="value") == [
        {"score": pytest.approx(float(logits[0])), "label": "score"}
    ]


def test_rerank_in_both_forms(run_server, tokenizer, ids):
    model = cases.KnownModel(tokenizer, "CrossEncoder", labels=["score"], activation="sigmoid")
    client, texts = run_server(model), ["the film", "bad", "a good plot"]
    logits = np.array([cases.known_vector(ids("good", text))[0] for text in texts], "float64")
    order = np.argsort(-logits)
    ranked = client.post("/rerank", query="good", texts=texts)
    assert [row["index"] for row in ranked] == order.tolist() and "text" not in ranked[0]
    assert [row["score"] for row in ranked] == pytest.approx(scipy.special.expit(logits[order]))
    raw = client.post("/rerank", query="good", texts=texts, raw_scores=True, return_text=True)
    assert [row["score"] for row in raw] == pytest.approx(logits[order])
    assert [row["text"] for row in raw] == [texts[i] for i in order]
    assert client.post("/", query="good", texts=texts) == ranked
    answer = client.post("/v1/rerank", query="good", documents=texts, top_n=2, return_documents=True)
    best = texts[order[0]]
    assert answer["results"][0] == {
        "index": order[0],
        "relevance_score": pytest.approx(scipy.special.expit(logits[order[0]])),
        "document": {"text": best},
    }
    assert len(answer["results"]) == 2 and answer["object"] == "rerank"


def test_tokens_have_their_characters_and_decode_gives_the_text_back(embedder, ids):
    (tokens,) = embedder.post("/tokenize", inputs="The film, unhappy")
    assert [token["id"] for token in tokens] == ids("The film, unhappy").tolist()
    assert [token["special"] for token in tokens] == [True] + [False] * (len(tokens) - 2) + [True]
    assert [tokens[0][key] for key in ("text", "start", "stop")] == ["[CLS]", None, None]
    for token in tokens[1:-1]:
        assert token["text"] == "The film, unhappy"[token["start"] : token["stop"]]
    (plain,) = embedder.post("/tokenize", inputs="The film, unhappy", add_special_tokens=False)
    assert plain == tokens[1:-1]
    rows = [[token["id"] for token in tokens]] * 2
    assert embedder.post("/decode", ids=rows) == ["the film, unhappy"] * 2
    assert embedder.post("/decode", ids=rows[0], skip_special_tokens=False)[0].startswith("[CLS] the")
    assert embedder("POST", "/decode", {"ids": [[99_999]]})[0] == 422


def test_the_model_is_the_one_named_or_the_first_that_can(run_server, tokenizer, ids):
    embedding = cases.KnownModel(tokenizer)
    classifier = cases.KnownModel(tokenizer, "TextClassifier")
    client = run_server(classifier, embedding, names=["classes", "vectors"])
    assert len(client.post("/embed", inputs="bad")[0]) == 4
    assert client("POST", "/embed", {"inputs": "bad", "model": "other"})[0] == 404
    status, error = client("POST", "/embed", {"inputs": "bad", "model": "classes"})
    assert status == 424 and "classes (TextClassifier)" in error["error"]
    assert client("POST", "/tag", {"inputs": "bad"})[0] == 424
    listed = client("GET", "/v1/models")[1]["data"]
    assert [(row["id"], row["abilities"]) for row in listed] == [("classes", ["predict"]), ("vectors", ["embed"])]
    assert client("GET", "/info?model=vectors")[1]["model_type"] == {"embedding": {"pooling": "mean"}}
    info = client("GET", "/info")[1]
    assert info["model_type"]["classifier"]["id2label"] == {"0": "a", "1": "b", "2": "c"}
    assert (info["max_input_length"], info["max_batch_tokens"], info["model_dtype"]) == (16, 64, "float32")


WRONG = {
    "no inputs": {},
    "null": {"inputs": None},
    "a number": {"inputs": 3},
    "numbers and texts": {"inputs": ["a", 3]},
    "nested too deep": {"inputs": [[["a"]]]},
    "a fraction for an id": {"inputs": [[1.5]]},
    "true for an id": {"inputs": [[True]]},
    "a huge id": {"inputs": [[2**70]]},
    "an unknown field": {"inputs": "a", "truncat": True},
    "a wrong flag": {"inputs": "a", "truncate": "yes"},
    "a wrong side": {"inputs": "a", "truncation_direction": "up"},
    "too many dimensions": {"inputs": "a", "dimensions": 5},
    "no dimension": {"inputs": "a", "dimensions": 0},
    "a wrong model": {"inputs": "a", "model": 3},
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG.keys())
def test_wrong_types_are_refused(embedder, body):
    status, error = embedder("POST", "/embed", body)
    assert status == 422 and error["error_type"] in ("Validation", "Tokenizer") and len(error["error"]) < 400


@pytest.mark.parametrize("inputs", ["", [], ["a", ""], [[]]])
def test_nothing_to_embed_is_refused(embedder, inputs):
    assert embedder("POST", "/embed", {"inputs": inputs})[0] == 400


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"inputs": "\\ud800"}', b"[1]", b"NaN", b"[" * 100_000])
def test_malformed_json_is_refused(embedder, content):
    status, error = embedder("POST", "/embed", content)
    assert status in (400, 422) and error["error_type"] == "Validation"


def test_errors_of_openai_routes_have_their_form(embedder):
    status, error = embedder("POST", "/v1/embeddings", {"input": []})
    assert status == error["code"] == 400 and error["type"] == "Empty" and "input" in error["message"]


def test_other_paths_methods_and_content_types(embedder):
    assert embedder("POST", "/nothing", {})[0] == 404
    assert embedder("GET", "/embed")[0] == 405
    assert embedder("POST", "/embed", {"inputs": "a"}, {"Content-Type": "text/plain"})[0] == 415  # a form of a web page
    for path in ("/health", "/ping", "/"):
        assert embedder("GET", path)[0] == 200


def test_browsers_get_a_page_that_loads_nothing_from_elsewhere(embedder):
    status, page = embedder("GET", "/", headers={"Accept": "text/html,*/*"}, raw=True)
    assert status == 200 and page.startswith(b"<!doctype html>")
    assert not re.findall(rb"(?:src|href)\s*=\s*\"(?!data:)|https?://|url\(", page)


def test_fields_that_no_one_reads_are_refused():
    body = Body.parse(b'{"a": 1, "b": null, "c": {"d": 2}}')
    body.whole("a")
    nested = body.nested("c")
    body.finish()
    with pytest.raises(RequestError, match=r"`c\.d` is no field"):
        nested.finish()
