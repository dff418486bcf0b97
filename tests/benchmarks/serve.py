"""`bertzoo serve` under load, beside FastAPI servers of sentence-transformers and fastembed.

    python tests/benchmarks/run.py serve MODEL throughput SERVER … --data DIRECTORY [--peers-python PYTHON]
    python tests/benchmarks/run.py serve MODEL latency [bertzoo|bertzoo_int8]
    python tests/benchmarks/run.py serve MODEL memory [--requests 100000]
    python tests/benchmarks/run.py serve MODEL langchain --peers-python PYTHON

MODEL is a directory of sentence-transformers. `throughput`: 16 clients send the 872 development sentences of SST-2, a
request each, and a mix of 80 % queries of 8 tokens and 20 % passages of 256; the servers run side by side and take
turns, the best of three rounds after one. `latency`: a query of 10 tokens, again and again, alone and beside a client
that sends 10,000 passages in one request. `memory`: requests of random lengths from 1 to 512 tokens to a random model
of two layers, and the memory of the server after 1,000 and at the end. `langchain`: vectors by LangChain's classes,
from an environment that has langchain-openai, langchain-huggingface and numpy, beside `SentenceEncoder`'s. The client
runs on the same machine.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.common import add_data_argument, command_line, read_data, use_data
from benchmarks.serve_load import make_request, run_clients

CLIENTS, ROUNDS = 16, 4
OPTIONS = {"bertzoo": [], "bertzoo_int8": ["--int8"]}
PEERS = ("sentence_transformers", "fastembed")


@contextlib.contextmanager
def serving(server: str, model: str, peers_python: str = sys.executable) -> Iterator[tuple[str, int]]:
    """A server in a process of its own: -> its URL, and the id of the process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    if server in OPTIONS:
        command = [sys.executable, "-m", "bertzoo", "serve", model, "--port", str(port), *OPTIONS[server]]
    else:
        command = [peers_python, str(Path(__file__).with_name("serve_peers.py")), server, model, str(port)]
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
    environment.pop("OMP_NUM_THREADS", None)
    process = subprocess.Popen(command, env=environment)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            if process.poll() is not None:
                sys.exit(f"{server} ended with {process.returncode}")
            with contextlib.suppress(OSError):
                if urllib.request.urlopen(f"{url}/health", timeout=1).status == 200:
                    break
            time.sleep(0.5)
        yield url, process.pid
    finally:
        process.kill()
        process.wait()


def texts_of_lengths(model: str, lengths: np.ndarray, seed: int = 0) -> list[str]:
    """Texts of so many tokens, special tokens included, drawn from the words that are one token."""
    import bertzoo as bz

    tokenizer = bz.Tokenizer.from_directory(model)
    words = sorted(word for word in tokenizer.vocabulary if word.isascii() and word.isalpha() and word.islower())
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words, max(1, int(length) - 2))) for length in lengths]


def throughput(model: str, servers: list[str], peers_python: str) -> None:
    lengths = np.random.default_rng(0).choice([8, 256], 500, p=[0.8, 0.2])
    texts = {
        "SST-2": [line.split("\t")[0] for line in read_data("sst2", "dev.tsv").splitlines()[1:]],
        "80/20": texts_of_lengths(model, lengths),
    }
    requests = {name: [make_request("/embed", {"inputs": text}) for text in rows] for name, rows in texts.items()}
    rounds: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    with contextlib.ExitStack() as stack:
        processes = {name: stack.enter_context(serving(name, model, peers_python)) for name in servers}
        for _ in range(ROUNDS):
            for load, rows in requests.items():
                for name, (url, process) in processes.items():
                    begun = cpu_seconds(process)
                    seconds, each = run_clients(url, rows, CLIENTS)
                    taken = seconds, cpu_seconds(process) - begun, float(np.quantile(each, 0.99))
                    rounds.setdefault((load, name), []).append(taken)
    for (load, name), taken in rounds.items():
        seconds, cpu, tail = np.min(taken[1:], axis=0)
        count = len(requests[load])
        print(
            f"{load}, {name}: {count / seconds:.0f} requests a second, {count / cpu:.0f} a CPU-second, "
            f"p99 {1000 * tail:.0f} ms",
            flush=True,
        )


def cpu_seconds(process: int) -> float:
    """The time that the cores have worked for a process: it hardly depends on what else the machine does."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def latency(model: str, server: str) -> None:
    query, passage = texts_of_lengths(model, np.array([10, 256]))
    with serving(server, model) as (url, _):
        requests = [make_request("/embed", {"inputs": query})] * 300
        run_clients(url, requests[:50], 1)
        for where in ("alone", "beside a client that sends 10,000 passages"):
            if where != "alone":
                long = make_request("/embed", {"inputs": [passage] * 10_000})
                threading.Thread(target=run_clients, args=(url, [long], 1), daemon=True).start()
                time.sleep(3)
            before = batches(url)
            seconds, each = run_clients(url, requests, 1)
            count, tokens = np.subtract(batches(url), before)
            p50, p99 = np.quantile(each, [0.5, 0.99]) * 1000
            print(
                f"{server}, a query of 10 tokens {where}: median {p50:.1f} ms, p99 {p99:.1f} ms; "
                f"{count:.0f} batches of {tokens / count:.0f} tokens, one in {1000 * seconds / count:.1f} ms",
                flush=True,
            )


def batches(url: str) -> tuple[float, float]:
    """How many batches a server has computed, and their tokens."""
    page = urllib.request.urlopen(f"{url}/metrics").read().decode()
    return _metric(page, "te_batch_next_tokens_count"), _metric(page, "te_batch_next_tokens_sum")


def _metric(page: str, name: str) -> float:
    return next(float(line.split()[1]) for line in page.splitlines() if line.startswith(f"{name} "))


def langchain(model: str, python: str) -> None:
    import bertzoo as bz

    texts = ["a gripping film", "dull and far too long", "l'été à Paris"]
    expected = bz.SentenceEncoder.from_preset(model, verbose=False).encode([texts[0], *texts], normalize=True)
    with serving("bertzoo", model) as (url, _):
        script = str(Path(__file__).with_name("serve_langchain.py"))
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        command = [python, script, url, Path(model).resolve().name, *texts]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    for name, vectors in zip(("OpenAIEmbeddings", "HuggingFaceEndpointEmbeddings"), json.loads(done.stdout)):
        print(f"{name}: largest difference from SentenceEncoder {np.abs(np.array(vectors) - expected).max():.1e}")


def memory(model: str, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = make_small_model(model, Path(folder) / "two_layers")
        texts = texts_of_lengths(model, np.random.default_rng(1).integers(1, 513, 2000))
        requests = [make_request("/embed", {"inputs": text}) for text in texts]
        with serving("bertzoo", str(directory)) as (url, process):
            done = 0
            for goal in [1000, *range(count // 10, count + 1, count // 10)]:
                seconds, _ = run_clients(url, [requests[i % 2000] for i in range(done, goal)], CLIENTS)
                done = goal
                print(f"{done} requests: {resident(process) / 2**20:.1f} MiB, {seconds:.0f} s", flush=True)


def make_small_model(model: str, directory: Path) -> Path:
    """A random BERT of two layers with a model's tokenizer."""
    import bertzoo as bz

    bz.set_seed(0)
    tokenizer = bz.Tokenizer.from_directory(model)
    config = bz.EncoderConfig(
        vocab_size=tokenizer.vocabulary_size,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=512,
        max_position_embeddings=512,
    )
    tokenizer.max_length = 512
    bz.SentenceEncoder(bz.Encoder(config), tokenizer).save_to_preset(directory)
    return directory


def resident(process: int) -> int:
    """The bytes of memory that a process holds."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(arguments: list[str]) -> None:
    parser = command_line("serve", __doc__)
    parser.add_argument("model")
    parser.add_argument("what", choices=["throughput", "latency", "memory", "langchain"])
    parser.add_argument("servers", nargs="*", help=", ".join((*OPTIONS, *PEERS)))
    parser.add_argument("--peers-python", default=sys.executable, help="Python with the peers, fastapi and uvicorn")
    parser.add_argument("--requests", type=int, default=100_000, help="of `memory`")
    add_data_argument(parser)
    options = parser.parse_args(arguments)
    if options.what == "throughput":
        use_data(options)
        throughput(options.model, options.servers or [*OPTIONS, *PEERS], options.peers_python)
    elif options.what == "langchain":
        langchain(options.model, options.peers_python)
    elif options.what == "latency":
        for server in options.servers or ["bertzoo"]:
            latency(options.model, server)
    else:
        memory(options.model, options.requests)
