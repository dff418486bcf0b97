"""A light HTTP client that keeps several connections busy: the machine is the server's."""

import asyncio
import json
import time
from collections.abc import Iterator
from urllib.parse import urlsplit


def make_request(path: str, body: object) -> bytes:
    """An HTTP/1.1 request with a JSON body."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    """The body of the response, which must be 200."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    size = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
    body = await reader.readexactly(size)
    if b" 200 " not in lines[0] + b" ":
        raise RuntimeError(f"{head.decode()}{body[:300].decode()}")
    return body


async def keep_busy(url: str, requests: Iterator[bytes], seconds: list[float]) -> None:
    """Sends one request after the other on a connection of its own, and notes how long each took."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=2**26)
    for request in requests:
        begun = time.perf_counter()
        await ask(reader, writer, request)
        seconds.append(time.perf_counter() - begun)
    writer.close()


def run_clients(url: str, requests: list[bytes], clients: int) -> tuple[float, list[float]]:
    """Sends requests from several clients at once; -> the seconds of all, and of each."""
    each: list[float] = []
    shared = iter(requests)

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(keep_busy(url, shared, each))

    begun = time.perf_counter()
    asyncio.run(run())
    return time.perf_counter() - begun, each
