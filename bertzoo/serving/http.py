"""Reading requests and writing responses, within limits."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import Response

from bertzoo.serving.calls import Call
from bertzoo.serving.errors import RequestError, too_large

BODY_SECONDS = 60.0  # for each part of a body to come
ROWS_AT_ONCE = 256  # items of a list that are written at once
LONG_REQUEST = 2_000  # tokens from which on a response is written in a thread


async def read_body(request: Request, limit: int) -> bytes:
    """A request's body.

    Raises:
        RequestError: It is no JSON, is larger than the limit, or does not come.
        ClientLeft: The client left.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        message = (
            f"the body must be JSON: send the header `Content-Type: application/json`. Received: {kind or 'none'}."
        )
        raise RequestError("Validation", message, status=415)
    parts: list[bytes] = []
    size = 0
    while True:
        try:
            part = await asyncio.wait_for(request.receive(), BODY_SECONDS)
        except TimeoutError:
            raise RequestError("Validation", "the body did not come.", status=408) from None
        if part["type"] == "http.disconnect":
            raise ClientLeft
        parts.append(part.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise body_too_large(limit)
        if not part.get("more_body"):
            return b"".join(parts)


def body_too_large(limit: int) -> RequestError:
    """The error for a body above the limit."""
    return too_large(f"a body may have {limit} bytes. Send the texts in several requests.")


class ClientLeft(Exception):
    """The client closed the connection before it was answered."""


async def while_connected(request: Request, job: Awaitable[Any]) -> Any:
    """The result of a job, which is cancelled when the client leaves.

    Raises:
        ClientLeft: It did.
    """
    work = asyncio.ensure_future(job)
    watcher = asyncio.ensure_future(request.receive())  # after the body, the next message is that the client left
    try:
        await asyncio.wait({work, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientLeft
        return work.result()
    finally:
        for task in (work, watcher):
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def write_json(call: Call, result: Any) -> bytes:
    """JSON of a result, beside the event loop where it is long."""
    if call.used is None or call.tally.tokens < LONG_REQUEST:
        return to_json(result)
    return await call.used.in_pool(to_json, result)


def to_json(value: Any) -> bytes:
    """JSON of a result, in which arrays may stand for lists of numbers. Long lists are written in parts: the lock of
    Python is free between them."""
    if isinstance(value, dict) and any(isinstance(item, (list, np.ndarray)) for item in value.values()):
        return b"{" + b",".join(orjson.dumps(key) + b":" + to_json(item) for key, item in value.items()) + b"}"
    if not isinstance(value, (list, np.ndarray)) or len(value) <= ROWS_AT_ONCE:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    parts = [value[i : i + ROWS_AT_ONCE] for i in range(0, len(value), ROWS_AT_ONCE)]
    return b"[" + b",".join(orjson.dumps(part, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1] for part in parts) + b"]"


def json_response(value: Any, status: int = 200) -> Response:
    """A response of JSON."""
    return Response(to_json(value), status_code=status, media_type="application/json")


def error_response(error: RequestError, is_openai: bool) -> Response:
    """What went wrong, in the form of the route."""
    if is_openai:
        return json_response({"message": error.message, "code": error.status, "type": error.kind}, error.status)
    return json_response({"error": error.message, "error_type": error.kind}, error.status)
