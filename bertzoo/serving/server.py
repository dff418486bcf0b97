"""The process that serves: its socket, loading, signals, and the end."""

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette

from bertzoo.serving.app import LOG, Server, make_app
from bertzoo.serving.calls import Limits
from bertzoo.serving.loading import load_models

KEEP_ALIVE_SECONDS = 75  # longer than load balancers keep a connection, so that they are the ones to close it
SHUTDOWN_SECONDS = 60  # for the requests that were accepted


@dataclass(frozen=True)
class ServeOptions:
    """What `bertzoo serve` is given; see its help."""

    presets: list[str]
    host: str = "127.0.0.1"
    port: int = 8080
    unix_socket: str | None = None
    api_key: str | None = None
    int8: bool | None = None
    threads: int | None = None
    max_batch_tokens: int | None = None
    limits: Limits = field(default_factory=Limits)


def serve(options: ServeOptions, announce: Callable[[str], None]) -> None:
    """Serves until the process gets SIGTERM or SIGINT, then answers the requests that it has accepted.

    Args:
        options: What to serve, and how.
        announce: Called with the address, once the models are loaded.

    Raises:
        CheckpointError: A preset can't be used.
        OSError: The address can't be used.
    """
    server = Server(options.limits, options.api_key)
    app = make_app(server)
    failures: list[Exception] = []
    config = uvicorn.Config(
        app,
        uds=options.unix_socket,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        lifespan="on",
    )
    process = uvicorn.Server(config)
    sockets = None if options.unix_socket else [listen(options.host, options.port)]
    where = address_of(sockets[0]) if sockets else str(options.unix_socket)

    async def load() -> None:
        try:
            server.models = await load_models(
                options.presets,
                server.metrics,
                lambda error: LOG.error("a model failed on a batch", exc_info=error),
                int8=options.int8,
                threads=options.threads,
                max_batch_tokens=options.max_batch_tokens,
            )
        except Exception as error:
            failures.append(error)
            process.should_exit = True
        else:
            announce(where)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        loading = asyncio.create_task(load())
        yield
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        for model in server.models or ():
            await asyncio.to_thread(model.close)

    app.router.lifespan_context = lifespan
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # uvicorn, which has its own while it runs, raises them again at the end
    process.run(sockets)
    if failures:
        raise failures[0]


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        OSError: The address can't be used.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise OSError(f"can't listen on {host}:{port}: {error.strerror}. Pass another --port or --host.") from None


def address_of(listening: socket.socket) -> str:
    """The URL of a socket that listens."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
