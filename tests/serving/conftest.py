"""A server in this process."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvicorn
from serving_cases import Client

import bertzoo as bz
from bertzoo.serving.app import Server, make_app
from bertzoo.serving.calls import Limits
from bertzoo.serving.model import ServedModel
from bertzoo.serving.server import address_of, listen


@pytest.fixture
def tokenizer(words):
    return bz.Tokenizer.from_vocabulary(words)


@pytest.fixture
def run_server():
    """(models, limits and API key) -> a client of a server with them, in a thread of this process."""
    ends = []

    def run(*models, names=None, max_batch_tokens=64, api_key=None, loaded=True, **limits):
        server = Server(Limits(**limits), api_key)
        pool = ThreadPoolExecutor(2)
        names = names or [f"model{i}" for i in range(len(models))]
        server.errors = []
        observers = server.metrics.observe_batch, server.errors.append, server.metrics.input_length.observe
        served = [ServedModel(n, m, pool, max_batch_tokens, *observers) for n, m in zip(names, models)]
        server.models = served if loaded else None
        listening = listen("127.0.0.1", 0)
        process = uvicorn.Server(uvicorn.Config(make_app(server), log_level="warning", access_log=False))
        thread = threading.Thread(target=process.run, args=([listening],))
        thread.start()

        def end():
            process.should_exit = True
            thread.join()
            for model in served:
                model.close()
            pool.shutdown()

        ends.append(end)
        client = Client(address_of(listening))
        client.server = server
        return client

    yield run
    for end in ends:
        end()
