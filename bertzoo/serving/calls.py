"""One request: its body, its model, and what the routes share."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bertzoo.serving.body import Body, Inputs, check_count
from bertzoo.serving.errors import RequestError, invalid
from bertzoo.serving.model import ServedModel, Tally, Truncation

SIDES = {"left": "left", "Left": "left", "right": "right", "Right": "right"}

# Ability -> the tasks that have it.
TASKS = {
    "embed": ("SentenceEncoder",),
    "embed_sparse": ("SparseEncoder",),
    "predict": ("TextClassifier", "CrossEncoder"),
    "rerank": ("CrossEncoder", "TextClassifier"),
    "tag": ("TokenClassifier",),
    "tag_labels": ("EntityFinder",),
    "answer": ("QuestionAnswerer",),
    "fill_mask": ("MaskedLM",),
}


@dataclass(frozen=True)
class Limits:
    """What a server accepts.

    Attributes:
        max_concurrent_requests: Requests that are read, wait or are computed at once; more are refused.
        max_client_batch_size: Texts in a request.
        max_body_bytes: Bytes in a request's body.
        auto_truncate: Whether texts that are too long are cut where a request does not say.
    """

    max_concurrent_requests: int = 512
    max_client_batch_size: int = 16_384
    max_body_bytes: int = 32 * 2**20
    auto_truncate: bool = True


def has_ability(model: ServedModel, ability: str) -> bool:
    """Whether a model answers a kind of request."""
    is_score = ability != "rerank" or len(model.settings.get("labels") or ()) == 1
    return model.task in TASKS[ability] and is_score


def find_model(models: Sequence[ServedModel], name: str | None, ability: str | None = None) -> ServedModel:
    """The model of a name, or else the first with an ability.

    Raises:
        RequestError: No model has the name, or the model lacks the ability.
    """
    known = ", ".join(f"{model.name} ({model.task})" for model in models)
    named = [model for model in models if name in (None, model.name)]
    if not named:
        message = f"`model` must be one of the served models: {known}. Received: {name!r}."
        raise RequestError("Validation", message, status=404, label="model_not_found")
    able = [model for model in named if ability is None or has_ability(model, ability)]
    if not able:
        tasks = " or ".join(TASKS[ability or ""])
        raise RequestError("Backend", f"this route needs a {tasks}. The served models: {known}.", label="model_type")
    return able[0]


@dataclass
class Call:
    """A request as routes see it.

    Attributes:
        is_batch: Whether it holds a list of texts, for the metrics.
        used: The model that answers, once a route has asked for it.
    """

    body: Body
    models: Sequence[ServedModel]
    limits: Limits
    tally: Tally = field(default_factory=Tally)
    is_batch: bool = False
    used: ServedModel | None = None

    def model(self, ability: str | None = None) -> ServedModel:
        """The model that the body names, or else the first with the ability."""
        self.used = find_model(self.models, self.body.typed("model", str, "a string"), ability)
        return self.used

    def truncation(self, fields: Body | None = None) -> Truncation:
        """What the fields `truncate` and `truncation_direction` say."""
        fields = self.body if fields is None else fields
        is_on = fields.flag("truncate", self.limits.auto_truncate)
        if "truncation_direction" not in fields:
            return Truncation(is_on)
        return Truncation(is_on, SIDES[fields.choice("truncation_direction", SIDES)])

    def counted(self, count: int, is_batch: bool = True) -> None:
        """Notes how many texts the request holds.

        Raises:
            RequestError: They are too many.
        """
        check_count(count, self.limits.max_client_batch_size)
        self.is_batch = is_batch


def prompt_of(model: ServedModel, fields: Body) -> str:
    """The prompt that the field `prompt_name` names, or else the model's default prompt."""
    prompts = model.settings.get("prompts") or {}
    name = fields.typed("prompt_name", str, "a string", model.settings.get("default_prompt"))
    if name is None:
        return ""
    if name not in prompts:
        raise invalid(f"`prompt_name` must be one of {', '.join(prompts) or 'none'}. Received: {name!r}.")
    if prompts[name] and not model.settings.get("include_prompt", True):
        raise invalid(f"the vectors of {model.name} leave out the tokens of a prompt, for which there is no route.")
    return prompts[name]


async def embed(call: Call, inputs: Inputs, truncation: Truncation, prompt: str) -> np.ndarray:
    """The vectors of texts, float32 (n, width), as the model gives them."""
    model = call.used or call.model("embed")
    rows = await model.outputs(inputs, truncation, call.tally, "sentence_embedding", prompt)
    return np.stack(rows)


def finish_vectors(vectors: np.ndarray, dimensions: int | None, normalize: bool) -> np.ndarray:
    """The first numbers of each vector, scaled to length 1 if wanted."""
    vectors = np.ascontiguousarray(vectors[:, :dimensions])
    if normalize:
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
    return vectors


def dimensions_of(model: ServedModel, fields: Body) -> int | None:
    """The field `dimensions`, or else what the model's files say."""
    width, settings = model.settings["width"], model.settings.get("settings") or {}
    return fields.whole("dimensions", 1, width, min(settings.get("truncate_dim") or width, width))


async def logits(
    call: Call, model: ServedModel, texts: list[str], pairs: list[str] | None, truncation: Truncation
) -> np.ndarray:
    """The logits of texts or pairs, float32 (n, labels)."""
    return np.stack(await model.text_outputs(texts, pairs, truncation, call.tally, "logits"))
