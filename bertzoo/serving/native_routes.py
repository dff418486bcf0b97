"""The routes of text-embeddings-inference, and those of the other tasks in the same style."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bertzoo.serving import answers, entities
from bertzoo.serving.body import Body, Inputs, describe
from bertzoo.serving.calls import (
    Call,
    dimensions_of,
    embed,
    finish_vectors,
    has_ability,
    logits,
    prompt_of,
)
from bertzoo.serving.errors import RequestError, invalid, too_large
from bertzoo.serving.model import ServedModel, Truncation
from bertzoo.tasks.answers.classes import ClassReader
from bertzoo.tasks.answers.sparse_vectors import SparseVectors
from bertzoo.tasks.probabilities import sigmoid, softmax
from bertzoo.text.encoded import Encoded

ACTIVATIONS: dict[str, Callable] = {
    "sigmoid": sigmoid,
    "softmax": softmax,
    "tanh": np.tanh,
    "linear": np.asarray,
}  # of a CrossEncoder
LABELS_OF_A_REQUEST = 100  # for entities of any label: each takes memory for all words of a chunk
LEAST_THRESHOLD = 0.05  # below it most spans of a long text are candidates, which take memory


async def post_embed(call: Call) -> np.ndarray:
    """`/embed`: a vector for each text, (n, width)."""
    model, body = call.model("embed"), call.body
    inputs, truncation, prompt = body.inputs("inputs"), call.truncation(), prompt_of(model, body)
    dimensions, normalize = dimensions_of(model, body), body.flag("normalize", True)
    body.choice("encoding_format", ("float",), "float")  # sent by huggingface_hub
    body.finish()
    call.counted(len(inputs), not inputs.is_single)
    return finish_vectors(await embed(call, inputs, truncation, prompt), dimensions, normalize)


async def post_embed_all(call: Call) -> list[np.ndarray]:
    """`/embed_all`: a vector for each token of each text, special tokens included."""
    model, body = call.model("embed"), call.body
    inputs, truncation, prompt = body.inputs("inputs"), call.truncation(), prompt_of(model, body)
    body.finish()
    call.counted(len(inputs), not inputs.is_single)
    return await model.outputs(inputs, truncation, call.tally, "token_embeddings", prompt)


async def post_embed_sparse(call: Call) -> list[list[dict[str, Any]]]:
    """`/embed_sparse`: the words of each text that have a weight."""
    model, body = call.model("embed_sparse"), call.body
    inputs, truncation, prompt = body.inputs("inputs"), call.truncation(), prompt_of(model, body)
    body.finish()
    call.counted(len(inputs), not inputs.is_single)
    most = model.settings.get("max_active_dims")

    def read(ids: np.ndarray, weights: np.ndarray) -> SparseVectors:  # at once: dense vectors take 120 KB each
        vectors = SparseVectors.from_dense(weights[None])
        return vectors if most is None else vectors.keep_largest(most)

    rows = await model.outputs(inputs, truncation, call.tally, "sparse_embedding", prompt, read)
    return [[{"index": i, "value": value} for i, value in zip(row.ids.tolist(), row.weights.tolist())] for row in rows]


async def post_similarity(call: Call) -> np.ndarray:
    """`/similarity`: the cosine of a text to each of several."""
    model, nested, parameters = call.model("embed"), call.body.nested("inputs"), call.body.nested("parameters")
    texts = [nested.text("source_sentence"), *nested.texts("sentences")]
    truncation, prompt = call.truncation(parameters), prompt_of(model, parameters)
    for fields in (nested, parameters, call.body):
        fields.finish()
    call.counted(len(texts))
    vectors = finish_vectors(await embed(call, Inputs(texts, None, False), truncation, prompt), None, True)
    return vectors[1:] @ vectors[0]


async def post_rerank(call: Call) -> list[dict[str, Any]]:
    """`/rerank`: texts by how well they fit a query, best first."""
    model, body = call.model("rerank"), call.body
    query, texts, truncation = body.text("query"), body.texts("texts"), call.truncation()
    raw, return_text = body.flag("raw_scores", False), body.flag("return_text", False)
    body.finish()
    call.counted(len(texts))
    ranked = await rank(call, model, query, texts, truncation, raw)
    return [{"index": i, **({"text": texts[i]} if return_text else {}), "score": score} for i, score in ranked]


async def rank(
    call: Call, model: ServedModel, query: str, texts: list[str], truncation: Truncation, raw: bool
) -> list[tuple[int, float]]:
    """The index and score of each text, best first: probabilities, or with `raw` logits."""
    prompt = prompt_of(model, Body({}))
    scores = (await logits(call, model, [prompt + query] * len(texts), texts, truncation))[:, 0]
    values = (scores if raw else sigmoid(scores)).tolist()
    return [(int(i), values[i]) for i in np.argsort(-scores, kind="stable")]


async def post_predict(call: Call) -> list[Any]:
    """`/predict`: the labels of a text or pair with their scores, best first; a list of these for a batch."""
    model, body = call.model("predict"), call.body
    rows, is_single = _read_sequences(body.require("inputs"))
    truncation, raw = call.truncation(), body.flag("raw_scores", False)
    body.finish()
    call.counted(len(rows), not is_single)
    found = await predict(call, model, rows, truncation, raw)
    return found[0] if is_single else found


async def predict(
    call: Call, model: ServedModel, rows: list[list[str]], truncation: Truncation, raw: bool
) -> list[list[dict[str, Any]]]:
    """For each text or pair its labels with their scores, best first."""
    labels = model.settings["labels"]
    found: list[Any] = [None] * len(rows)
    for size in (1, 2):
        places = [i for i, row in enumerate(rows) if len(row) == size]
        if not places:
            continue
        texts, *pairs = ([rows[i][column] for i in places] for column in range(size))
        values = await logits(call, model, texts, pairs[0] if pairs else None, truncation)
        for i, scores in zip(places, read_scores(model, values, raw).tolist()):
            best = sorted(range(len(labels)), key=scores.__getitem__, reverse=True)
            found[i] = [{"score": scores[k], "label": labels[k]} for k in best]
    return found


def read_scores(model: ServedModel, values: np.ndarray, raw: bool = False) -> np.ndarray:
    """Probabilities of logits (n, labels) by the model's kind of problem; the logits where `raw`."""
    settings = model.settings
    if raw:
        return values
    if model.task == "CrossEncoder" and len(settings["labels"]) == 1:
        return ACTIVATIONS[settings["activation"]](values)
    reader = ClassReader(settings["labels"], settings["problem_type"], settings.get("temperature") or 1.0)
    return reader.scores(values)


def _read_sequences(value: Any) -> tuple[list[list[str]], bool]:
    """The texts and pairs of `/predict`, and whether a single one came: two strings in a flat list are one pair."""
    single = value if isinstance(value, list) and value and isinstance(value[0], str) else None
    rows = [[value]] if isinstance(value, str) else [single] if single is not None else value
    if value in ("", []):
        raise RequestError("Empty", "`inputs` must not be empty.")
    if not isinstance(rows, list) or not all(
        isinstance(row, list) and len(row) in (1, 2) and all(type(text) is str for text in row) for row in rows
    ):
        expected = "a string, a pair of strings, or a list of lists of one or two strings"
        raise invalid(f"`inputs` must be {expected}. Received: {describe(value)}.")
    return rows, isinstance(value, str) or single is not None


async def post_tag(call: Call) -> list[list[dict[str, Any]]]:
    """`/tag`: the entities of each text, of any length; for a single text too, a list of lists. With `labels`, those
    that have one of these."""
    body = call.body
    if "labels" not in body and any(has_ability(model, "tag") for model in call.models):
        model = call.model("tag")
        texts, is_single = body.text_or_texts("inputs")
        body.finish()
        call.counted(len(texts), not is_single)
        return await answers.tag(model, texts, call.tally)
    model, labels = call.model("tag_labels"), body.texts("labels")
    texts, is_single = body.text_or_texts("inputs")
    threshold, nested = body.fraction("threshold", 0.5), body.flag("nested", False)
    body.finish()
    if threshold < LEAST_THRESHOLD:
        raise invalid(f"`threshold` must be from {LEAST_THRESHOLD} to 1. Received: {threshold}.")
    if len(labels) > LABELS_OF_A_REQUEST:
        raise too_large(
            f"`labels` may hold {LABELS_OF_A_REQUEST} names. Received: {len(labels)}. Ask for the others in further "
            "requests."
        )
    call.counted(len(texts), not is_single)
    return await entities.tag(model, texts, labels, threshold, nested, call.tally)


async def post_answer(call: Call) -> Any:
    """`/answer`: the span of a context that answers a question, and where it is; a list for several questions, and
    for `top_k` above 1."""
    model, body = call.model("answer"), call.body
    value = body.require("inputs")
    records = value if isinstance(value, list) else [value]
    if not records:
        raise RequestError("Empty", "`inputs` must not be empty.")
    fields = [Body(record, "inputs") for record in records]
    questions, contexts = [[f.text(name) for f in fields] for name in ("question", "context")]
    parameters = body.nested("parameters")
    top_k = parameters.whole("top_k", 1, 1000, 1)
    max_length = parameters.whole("max_answer_len", 1, 512, answers.MAX_ANSWER_LENGTH)
    for one in (*fields, parameters, body):
        one.finish()
    call.counted(len(records), isinstance(value, list))
    found = await answers.answer(model, questions, contexts, top_k, max_length, call.tally)
    rows = [
        [{"answer": one["text"], "score": one["score"], "start": one["start"], "end": one["end"]} for one in row]
        for row in found
    ]
    results = [row[0] if top_k == 1 else row for row in rows]
    return results if isinstance(value, list) else results[0]


async def post_fill_mask(call: Call) -> list[Any]:
    """`/fill_mask`: the likeliest words for the mask, best first; for several masks, and for several texts, a list of
    such lists."""
    model, body = call.model("fill_mask"), call.body
    texts, is_single = body.text_or_texts("inputs")
    parameters = body.nested("parameters")
    top_k = parameters.whole("top_k", 1, 1000, 5)
    targets = parameters.texts("targets") if "targets" in parameters else None
    parameters.finish()
    body.finish()
    call.counted(len(texts), not is_single)
    found = []
    for masks in await answers.fill_mask(model, texts, targets, top_k, call.tally):
        rows = [
            [{"score": one.score, "token": one.token_id, "token_str": one.token, "sequence": one.text} for one in mask]
            for mask in masks
        ]
        found.append(rows[0] if len(rows) == 1 else rows)
    return found[0] if is_single else found


async def post_tokenize(call: Call) -> list[list[dict[str, Any]]]:
    """`/tokenize`: the tokens of each text, with the characters that they cover."""
    model, body = call.model(), call.body
    texts, is_single = body.text_or_texts("inputs")
    special = body.flag("add_special_tokens", True)
    prompt = prompt_of(model, body) if "prompt_name" in body else ""
    body.finish()
    call.counted(len(texts), not is_single)
    return await model.in_pool(_tokens, model, [prompt + text for text in texts], special)


def _tokens(model: ServedModel, texts: list[str], special: bool) -> list[list[dict[str, Any]]]:
    rows = []
    for text in texts:
        encoded = model.tokenizer.encode(text, return_offsets=True, truncate=False)
        rows.append(list(_tokens_of_row(model, encoded, text, special)))
    return rows


def _tokens_of_row(model: ServedModel, encoded: Encoded, text: str, special: bool) -> Any:
    assert encoded.offsets is not None and encoded.word_ids is not None  # because return_offsets=True
    for index, (start, stop), word in zip(encoded.row(0).tolist(), encoded.offsets.tolist(), encoded.word_ids.tolist()):
        added = word == -1 and start == stop
        if added and not special:
            continue
        token = model.tokenizer.id_to_token(index)
        yield {
            "id": index,
            "text": token if added else text[start:stop],
            "special": index in model.tokenizer.special_ids,
            "start": None if added else start,
            "stop": None if added else stop,
        }


async def post_decode(call: Call) -> list[str]:
    """`/decode`: the text of each row of token ids."""
    model, body = call.model(), call.body
    inputs, skip = body.inputs("ids"), body.flag("skip_special_tokens", True)
    body.finish()
    if inputs.ids is None:
        raise invalid("`ids` must be token ids or a list of rows of token ids. Received: texts.")
    call.counted(len(inputs), not inputs.is_single)
    try:
        return await model.in_pool(model.tokenizer.decode, inputs.ids, skip)
    except ValueError as error:
        raise RequestError("Tokenizer", str(error)) from None
