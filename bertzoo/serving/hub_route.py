"""`POST /`: the task of a model in the form of Hugging Face's pipelines, to which `huggingface_hub` posts."""

from typing import Any

from bertzoo.serving import answers
from bertzoo.serving.calls import Call, find_model
from bertzoo.serving.errors import RequestError
from bertzoo.serving.native_routes import (
    post_answer,
    post_embed,
    post_embed_sparse,
    post_fill_mask,
    post_predict,
    post_rerank,
    post_similarity,
)


async def post_root(call: Call) -> Any:
    """Answers as the task of the first model, or of the one that the body names."""
    model = find_model(call.models, call.body.typed("model", str, "a string"))
    if model.task not in _ROUTES:
        raise RequestError("Backend", f"POST / has no form for a {model.task}.", label="model_type")
    return await _ROUTES[model.task](call)


async def _vectors_or_similarities(call: Call) -> Any:
    return await (post_similarity if isinstance(call.body.get("inputs"), dict) else post_embed)(call)


async def _ranks_or_labels(call: Call) -> Any:
    return await (post_rerank if "query" in call.body else _labels)(call)


async def _labels(call: Call) -> Any:
    call.body.nested("parameters").finish()
    is_text = isinstance(call.body.get("inputs"), str)
    found = await post_predict(call)
    return [found] if is_text else found


async def _entities(call: Call) -> Any:
    model, parameters = call.model("tag"), call.body.nested("parameters")
    texts, is_single = call.body.text_or_texts("inputs")
    parameters.choice("aggregation_strategy", ("first",), "first")
    ignored = parameters.texts("ignore_labels") if "ignore_labels" in parameters else []
    parameters.finish()
    call.body.finish()
    call.counted(len(texts), not is_single)
    rows = [
        [
            {"entity_group": one["label"], "score": one["score"], "word": one["text"], "start": one["start"]}
            | {"end": one["end"]}
            for one in row
            if one["label"] not in ignored
        ]
        for row in await answers.tag(model, texts, call.tally)
    ]
    return rows[0] if is_single else rows


_ROUTES = {
    "SentenceEncoder": _vectors_or_similarities,
    "SparseEncoder": post_embed_sparse,
    "TextClassifier": _labels,
    "CrossEncoder": _ranks_or_labels,
    "TokenClassifier": _entities,
    "QuestionAnswerer": post_answer,
    "MaskedLM": post_fill_mask,
}
