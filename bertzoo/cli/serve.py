"""`bertzoo serve`: models behind HTTP."""

from typing import Annotated

import typer

from bertzoo.cli.app import PRESET_HELP

_LOCAL = ("127.0.0.1", "localhost", "::1")


def serve(
    presets: Annotated[list[str], typer.Argument(help=f"Models to serve. {PRESET_HELP} Or what `export` wrote.")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8080,
    unix_socket: Annotated[str | None, typer.Option(help="Path of a Unix socket, in place of host and port.")] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="BERTZOO_API_KEY", help="Key that clients send as `Authorization: Bearer KEY`.")
    ] = None,
    int8: Annotated[
        bool | None, typer.Option("--int8/--no-int8", help="Compute in 8 bits; by default what was exported.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads for each model; all cores if left out.")] = None,
    max_batch_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Most tokens in a batch; if left out, those of the fastest batch of 50 ms at most."),
    ] = None,
    max_concurrent_requests: Annotated[int, typer.Option(min=1, help="Requests at once; more get 429.")] = 512,
    max_client_batch_size: Annotated[int, typer.Option(min=1, help="Most texts in a request.")] = 16_384,
    max_body_mb: Annotated[int, typer.Option(min=1, help="Largest body of a request, in megabytes.")] = 32,
    auto_truncate: Annotated[bool, typer.Option(help="Cut texts that are too long, rather than refuse them.")] = True,
) -> None:
    """Serve models over HTTP, with the routes of text-embeddings-inference, OpenAI and Cohere: vectors, labels,
    entities, answers, words for [MASK], and scores of pairs. Open the address in a browser to try them."""
    try:
        from bertzoo.serving import server
        from bertzoo.serving.calls import Limits
    except ModuleNotFoundError as error:
        raise ImportError(
            f'{error}. The server needs the extra "serve"; in the clone of this project: pip install -e ".[serve]"'
        ) from error
    if host not in _LOCAL and unix_socket is None and not api_key:
        typer.echo(f"bertzoo: listens on {host} without an API key: set BERTZOO_API_KEY.", err=True)
    limits = Limits(max_concurrent_requests, max_client_batch_size, max_body_mb * 2**20, auto_truncate)
    options = server.ServeOptions(
        presets, host, port, unix_socket, api_key or None, int8, threads, max_batch_tokens, limits
    )
    names = ", ".join(presets)
    typer.echo(f"loading {names} …", err=True)
    server.serve(options, lambda address: typer.echo(f"serving {names} on {address} (Ctrl-C ends it)", err=True))
