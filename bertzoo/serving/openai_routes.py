"""The routes of OpenAI and of Cohere, Jina and infinity."""

import base64
from typing import Any

import numpy as np

from bertzoo.serving.calls import Call, dimensions_of, embed, finish_vectors, has_ability, prompt_of
from bertzoo.serving.model import ServedModel, Tally
from bertzoo.serving.native_routes import predict, rank


async def post_embeddings(call: Call) -> dict[str, Any]:
    """`/v1/embeddings`: a vector for each text, as numbers or as base64 of little-endian float32."""
    model, body = call.model("embed"), call.body
    inputs, truncation = body.inputs("input"), call.truncation()
    dimensions, prompt = dimensions_of(model, body), prompt_of(model, body)
    encoding = body.choice("encoding_format", ("float", "base64"), "float")
    body.typed("user", str, "a string")
    body.finish()
    call.counted(len(inputs), not inputs.is_single)
    vectors = finish_vectors(await embed(call, inputs, truncation, prompt), dimensions, True)
    rows: Any = vectors
    if encoding == "base64":
        rows = [base64.b64encode(row.tobytes()).decode() for row in np.ascontiguousarray(vectors, "<f4")]
    data = [{"object": "embedding", "embedding": row, "index": i} for i, row in enumerate(rows)]
    return {"object": "list", "data": data, "model": model.name, "usage": usage(call.tally)}


async def post_rerank(call: Call) -> dict[str, Any]:
    """`/v1/rerank`: documents by how well they fit a query, best first."""
    model, body = call.model("rerank"), call.body
    query, documents, truncation = body.text("query"), body.texts("documents"), call.truncation()
    top_n = body.whole("top_n", 1)
    with_documents, raw = body.flag("return_documents", False), body.flag("raw_scores", False)
    body.finish()
    call.counted(len(documents))
    ranked = await rank(call, model, query, documents, truncation, raw)
    results = [
        {"index": i, "relevance_score": score, **({"document": {"text": documents[i]}} if with_documents else {})}
        for i, score in ranked[:top_n]
    ]
    return {"object": "rerank", "results": results, "model": model.name, "usage": usage(call.tally)}


async def post_classify(call: Call) -> dict[str, Any]:
    """`/v1/classify`: the labels of each text with their scores, best first."""
    model, body = call.model("predict"), call.body
    texts, _ = body.text_or_texts("input")
    truncation, raw = call.truncation(), body.flag("raw_scores", False)
    body.finish()
    call.counted(len(texts))
    data = await predict(call, model, [[text] for text in texts], truncation, raw)
    return {"object": "classify", "data": data, "model": model.name, "usage": usage(call.tally)}


def list_models(models: list[ServedModel], created: int) -> dict[str, Any]:
    """`GET /v1/models`.

    Args:
        models: The served models.
        created: When the server started, in seconds since 1970.
    """
    abilities = ("embed", "rerank", "predict", "tag", "tag_labels", "answer", "fill_mask")
    data = [
        {
            "id": model.name,
            "object": "model",
            "created": created,
            "owned_by": "bertzoo",
            "abilities": [ability for ability in abilities if has_ability(model, ability)],
        }
        for model in models
    ]
    return {"object": "list", "data": data}


def usage(tally: Tally) -> dict[str, int]:
    """The tokens of a request."""
    return {"prompt_tokens": tally.tokens, "total_tokens": tally.tokens}
