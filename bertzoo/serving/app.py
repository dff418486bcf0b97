"""The web application: routes, limits, the API key, errors as JSON, and metrics."""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib import resources
from time import perf_counter, time
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bertzoo import __version__
from bertzoo.serving import hub_route, native_routes, openai_routes
from bertzoo.serving.body import Body
from bertzoo.serving.calls import Call, Limits, find_model, has_ability
from bertzoo.serving.errors import RequestError
from bertzoo.serving.http import (
    ClientLeft,
    body_too_large,
    error_response,
    json_response,
    read_body,
    while_connected,
    write_json,
)
from bertzoo.serving.metrics import CONTENT_TYPE, Metrics
from bertzoo.serving.model import POOL_THREADS, ServedModel

LOG = logging.getLogger("bertzoo.serving")
BODIES_AT_ONCE = 8  # bodies of the largest size that are read and held at once


class Operation(NamedTuple):
    """A POST route.

    Attributes:
        answer: Answers a call.
        group: "embed" or "predict", whose metrics have names of their own; "" for others.
        is_openai: Errors are in OpenAI's form.
    """

    answer: Callable[[Call], Awaitable[Any]]
    group: str = ""
    is_openai: bool = False


OPERATIONS = {
    "/": Operation(hub_route.post_root),
    "/embed": Operation(native_routes.post_embed, "embed"),
    "/embed_all": Operation(native_routes.post_embed_all, "embed"),
    "/embed_sparse": Operation(native_routes.post_embed_sparse, "embed"),
    "/similarity": Operation(native_routes.post_similarity, "embed"),
    "/rerank": Operation(native_routes.post_rerank, "predict"),
    "/predict": Operation(native_routes.post_predict, "predict"),
    "/tag": Operation(native_routes.post_tag),
    "/answer": Operation(native_routes.post_answer),
    "/fill_mask": Operation(native_routes.post_fill_mask),
    "/tokenize": Operation(native_routes.post_tokenize),
    "/decode": Operation(native_routes.post_decode),
    "/v1/embeddings": Operation(openai_routes.post_embeddings, "embed", True),
    "/embeddings": Operation(openai_routes.post_embeddings, "embed", True),
    "/v1/rerank": Operation(openai_routes.post_rerank, "predict", True),
    "/v1/classify": Operation(openai_routes.post_classify, "predict", True),
}


@dataclass
class Server:
    """What one server holds.

    Attributes:
        models: The served models; None while they are loaded.
        api_key: What clients send as `Authorization: Bearer …`; None for no key.
    """

    limits: Limits
    api_key: str | None = None
    models: list[ServedModel] | None = None
    running: int = 0
    bytes_held: int = 0
    started: int = field(default_factory=lambda: int(time()))
    metrics: Metrics = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = Metrics(lambda: sum(len(model.batcher) for model in self.models or ()))

    def ready_models(self) -> list[ServedModel]:
        """The models.

        Raises:
            RequestError: They are not loaded, or one's thread has ended.
        """
        if self.models is None:
            raise RequestError("Unhealthy", "the models are still being loaded.")
        if not all(model.batcher.is_alive for model in self.models):
            raise RequestError("Unhealthy", "the server is shutting down.")
        return self.models


def make_app(server: Server) -> Starlette:
    """The application of a server."""

    def get(answer: Callable[[Request], Response], needs_key: bool = False) -> Callable:
        async def endpoint(request: Request) -> Response:
            try:
                if needs_key:
                    check_key(request, server.api_key)
                return answer(request)
            except RequestError as error:
                return error_response(error, request.url.path.startswith("/v1/"))
            except Exception:
                return error_response(fault(request), request.url.path.startswith("/v1/"))

        return endpoint

    def health(request: Request) -> Response:
        server.ready_models()
        return Response(status_code=200)

    def page_or_health(request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            headers = {"Content-Security-Policy": PAGE_POLICY, "X-Content-Type-Options": "nosniff"}
            return Response(_page(), media_type="text/html", headers=headers)
        return health(request)

    def info(request: Request) -> Response:
        return json_response(describe_server(server, request.query_params.get("model")))

    def models(request: Request) -> Response:
        return json_response(openai_routes.list_models(server.ready_models(), server.started))

    def metrics(request: Request) -> Response:
        return Response(server.metrics.text(), headers={"content-type": CONTENT_TYPE})

    routes = [Route(path, make_endpoint(server, operation), methods=["POST"]) for path, operation in OPERATIONS.items()]
    routes += [
        Route("/", get(page_or_health), methods=["GET"]),
        Route("/health", get(health), methods=["GET"]),
        Route("/ping", get(health), methods=["GET"]),
        Route("/info", get(info, needs_key=True), methods=["GET"]),
        Route("/v1/models", get(models, needs_key=True), methods=["GET"]),
        Route("/metrics", get(metrics), methods=["GET"]),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _not_found})


# ---- a request


def make_endpoint(server: Server, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of an operation: its answer, or what went wrong, as JSON."""

    async def endpoint(request: Request) -> Response:
        begun = perf_counter()
        call = None
        try:
            check_key(request, server.api_key)
            with admitted(server, request):
                body = Body.parse(await read_body(request, server.limits.max_body_bytes))
                call = Call(body, server.ready_models(), server.limits)
                result = await while_connected(request, operation.answer(call))
                content = await write_json(call, result)
        except RequestError as error:
            server.metrics.count("request_failure", err=error.label)
            return error_response(error, operation.is_openai)
        except ClientLeft:
            server.metrics.count("request_failure", err="dropped")
            return Response(status_code=499)
        except asyncio.CancelledError:  # the time for the end of the server is over
            return error_response(RequestError("Unhealthy", "the server is shutting down."), operation.is_openai)
        except Exception:
            server.metrics.count("request_failure", err="inference")
            return error_response(fault(request), operation.is_openai)
        record(server.metrics, operation.group, perf_counter() - begun, call)
        return Response(content, media_type="application/json", headers={"x-compute-tokens": str(call.tally.tokens)})

    return endpoint


def fault(request: Request) -> RequestError:
    """Logs the error that is being handled; the client learns no more than that there was one."""
    LOG.exception("%s failed", request.url.path)
    return RequestError("Backend", "the server failed on this request.")


def record(metrics: Metrics, group: str, seconds: float, call: Call) -> None:
    """Counts an answered request."""
    method = "batch" if call.is_batch else "single"
    for name in ("request_count", "request_success"):
        metrics.count(name, method=method)
    if group:
        metrics.count(f"{group}_count")
        metrics.count(f"{group}_success")
    metrics.observe_request(group, seconds, call.tally.phases)


def check_key(request: Request, api_key: str | None) -> None:
    """Refuses a request without the API key."""
    if api_key is None:
        return
    given = request.headers.get("authorization", "")
    if not hmac.compare_digest(given.encode("utf-8", "replace"), f"Bearer {api_key}".encode()):
        raise RequestError("Unauthorized", "the API key is missing or wrong: send `Authorization: Bearer KEY`.")


class admitted:
    """Counts a request among those that run.

    Raises:
        RequestError: There are as many as the server takes, or they hold too much memory.
    """

    def __init__(self, server: Server, request: Request):
        self.server, limits = server, server.limits
        declared = request.headers.get("content-length", "")
        self.size = int(declared) if declared.isdigit() else limits.max_body_bytes
        if self.size > limits.max_body_bytes:
            raise body_too_large(limits.max_body_bytes)
        server.ready_models()
        is_full = server.bytes_held + self.size > BODIES_AT_ONCE * limits.max_body_bytes
        if server.running >= limits.max_concurrent_requests or is_full:
            raise RequestError("Overloaded", "the server has as many requests as it takes. Try again later.")

    def __enter__(self) -> None:
        self.server.running += 1
        self.server.bytes_held += self.size

    def __exit__(self, *error: object) -> None:
        self.server.running -= 1
        self.server.bytes_held -= self.size


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}. The routes: {', '.join(OPERATIONS)}."
    return error_response(RequestError("Validation", message, status=error.status_code), False)


def describe_server(server: Server, name: str | None) -> dict[str, Any]:
    """`GET /info`: the first model, or the one of the name, and the limits."""
    models = server.ready_models()
    model, limits = find_model(models, name), server.limits
    labels = {str(i): label for i, label in enumerate(model.settings.get("labels") or ())}
    named = {"id2label": labels, "label2id": {label: int(i) for i, label in labels.items()}} if labels else {}
    if has_ability(model, "embed"):
        kind: dict[str, Any] = {"embedding": {"pooling": "+".join(model.settings["pooling"])}}
    elif has_ability(model, "rerank"):
        kind = {"reranker": named}
    else:
        kind = {"classifier" if has_ability(model, "predict") else model.task: named}
    return {
        "model_id": model.name,
        "model_sha": None,
        "model_dtype": model.dtype,
        "served_model_name": model.name,
        "model_type": kind,
        "max_concurrent_requests": limits.max_concurrent_requests,
        "max_input_length": model.max_length,
        "max_batch_tokens": model.batcher.max_tokens,
        "max_batch_requests": None,
        "max_client_batch_size": limits.max_client_batch_size,
        "auto_truncate": limits.auto_truncate,
        "tokenization_workers": POOL_THREADS,
        "version": __version__,
        "task": model.task,
        "prompts": sorted(model.settings.get("prompts") or {}),
        "mask_token": model.mask_token,
        "models": [other.name for other in models],
    }


PAGE_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def _page() -> bytes:
    return resources.files("bertzoo.serving").joinpath("page.html").read_bytes()
