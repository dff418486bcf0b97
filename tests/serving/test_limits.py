"""Limits and faults: what a server refuses, and that nothing is lost, held or told."""

import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
import serving_cases as cases

pytestmark = pytest.mark.once


def wait_until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.01)


def connect(client):
    address = urlsplit(client.url)
    return socket.create_connection((address.hostname, address.port), timeout=30)


def head(path, size, extra=""):
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n{extra}\r\n"


def test_more_requests_than_allowed_get_429_and_the_others_their_answers(run_server, tokenizer):
    client = run_server(cases.KnownModel(tokenizer, delay=0.3), max_concurrent_requests=4, max_batch_tokens=4)
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda i: client("POST", "/embed", {"inputs": "bad"}), range(12)))
    codes = sorted(status for status, _ in answers)
    assert codes == [200] * 4 + [429] * 8
    assert {content["error_type"] for status, content in answers if status == 429} == {"Overloaded"}
    assert client("POST", "/embed", {"inputs": "bad"})[0] == 200
    assert client.metric('te_request_failure{err="overloaded"}') == 8


def test_bodies_held_at_once_are_bounded(run_server, tokenizer):
    client = run_server(cases.KnownModel(tokenizer), max_body_bytes=1000)
    waiting = [connect(client) for _ in range(8)]
    for connection in waiting:  # each announces the largest body, and sends none of it
        connection.sendall(head("/embed", 1000).encode())
    wait_until(lambda: client.server.running == 8)
    assert client("POST", "/embed", {"inputs": "bad"})[0] == 429
    for connection in waiting:
        connection.close()
    wait_until(lambda: client.server.running == 0)
    assert client.server.bytes_held == 0
    assert client("POST", "/embed", {"inputs": "bad"})[0] == 200


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_of_100_megabytes_is_refused_and_not_held(run_server, tokenizer, is_chunked):
    client = run_server(cases.KnownModel(tokenizer), max_body_bytes=100_000)
    part, count = b"x" * 2**20, 100
    with connect(client) as connection:
        if is_chunked:
            start = head("/embed", 0).replace("Content-Length: 0", "Transfer-Encoding: chunked")
        else:
            start = head("/embed", count * len(part))
        connection.sendall(start.encode())
        try:
            for _ in range(count):
                connection.sendall(b"%x\r\n%s\r\n" % (len(part), part) if is_chunked else part)
        except OSError:
            pass  # the server need not read on
        assert connection.recv(100).startswith(b"HTTP/1.1 413")
    wait_until(lambda: client.server.running == 0)
    assert client("POST", "/embed", {"inputs": "bad"})[0] == 200


def test_too_many_texts_and_too_long_ones_are_refused(run_server, tokenizer):
    client = run_server(
        cases.KnownModel(tokenizer), cases.KnownModel(tokenizer, "TokenClassifier"), max_client_batch_size=3
    )
    assert client("POST", "/embed", {"inputs": ["a"] * 3})[0] == 200
    status, error = client("POST", "/embed", {"inputs": ["a"] * 4})
    assert status == 413 and "3 texts. Received: 4" in error["error"]
    assert client("POST", "/tag", {"inputs": "a " * 600_000})[0] == 413


def test_the_key_is_asked_for(run_server, tokenizer):
    client = run_server(cases.KnownModel(tokenizer), api_key="s3cret")
    for key in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "s3cret"}, {"Authorization": "Bearer é"}):
        status, error = client("POST", "/embed", {"inputs": "bad"}, key)
        assert status == 401 and "s3cret" not in json.dumps(error)
        assert client("GET", "/v1/models", headers=key)[0] == 401
    right = {"Authorization": "Bearer s3cret"}
    assert client("POST", "/embed", {"inputs": "bad"}, right)[0] == client("GET", "/info", headers=right)[0] == 200
    assert client("GET", "/health")[0] == client("GET", "/metrics", raw=True)[0] == 200


def test_while_loading_the_server_is_unhealthy(run_server, tokenizer):
    client = run_server(cases.KnownModel(tokenizer), loaded=False)
    for method, path in (("GET", "/health"), ("GET", "/"), ("GET", "/info"), ("POST", "/embed")):
        status, error = client(method, path, {"inputs": "bad"} if method == "POST" else None)
        assert status == 503 and error["error_type"] == "Unhealthy"


def test_an_error_in_the_model_is_424_and_tells_nothing(run_server, tokenizer):
    model = cases.KnownModel(tokenizer, delay=0.05, poison=tokenizer.token_to_id("bad"))
    client = run_server(model)
    texts = ["bad", "good", "the film", "bad plot", "rome"] * 4
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda text: client("POST", "/embed", {"inputs": text}), texts))
    assert [status for status, _ in answers] == [424 if "bad" in text else 200 for text in texts]
    for status, content in answers:
        if status == 424:
            assert content["error_type"] == "Backend" and "secret" not in json.dumps(content)
    assert len(client.server.errors) == 8 and isinstance(client.server.errors[0], RuntimeError)


def test_requests_of_clients_that_leave_are_dropped(run_server, tokenizer):
    model = cases.KnownModel(tokenizer, delay=0.1)
    client = run_server(model, max_batch_tokens=8)
    body = json.dumps({"inputs": ["a good film"] * 1000}).encode()
    gone = [connect(client) for _ in range(5)]
    for connection in gone:
        connection.sendall(head("/embed", len(body)).encode() + body)
    wait_until(lambda: client.server.running == 5)
    for connection in gone:
        connection.close()
    wait_until(lambda: client.server.running == 0, seconds=5)
    before = len(model.batches)
    assert client.post("/embed", inputs="bad")
    assert len(model.batches) - before <= 3  # not the thousands of rows of the others
    assert client.metric('te_request_failure{err="dropped"}') == 5


def test_half_a_request_holds_nothing_when_its_client_leaves(run_server, tokenizer):
    client = run_server(cases.KnownModel(tokenizer))
    with connect(client) as connection:
        connection.sendall(head("/embed", 100).encode() + b'{"inputs"')
        wait_until(lambda: client.server.running == 1)
    wait_until(lambda: client.server.running == 0)


def test_thousands_of_connections_leave_no_trace(run_server, tokenizer):
    client = run_server(cases.KnownModel(tokenizer))
    for kind in range(3000):
        with connect(client) as connection:
            if kind % 3 == 1:
                connection.sendall(b"GET /health HT")
            elif kind % 3 == 2:
                connection.sendall(b"\x16\x03\x01nonsense\r\n\r\n")
    assert client.post("/embed", inputs="bad")
    assert client.server.running == 0


def test_a_short_request_passes_a_long_one(run_server, tokenizer):
    model = cases.KnownModel(tokenizer, delay=0.02)
    client = run_server(model, max_batch_tokens=50)
    long = threading.Thread(target=client.post, args=["/embed"], kwargs={"inputs": ["a good film"] * 600})
    long.start()
    wait_until(lambda: len(model.batches) > 2)
    begun, batches = time.monotonic(), len(model.batches)
    client.post("/embed", inputs="bad")
    assert len(model.batches) - batches <= 3 and long.is_alive(), time.monotonic() - begun
    long.join()


def test_metrics_have_the_names_of_text_embeddings_inference(run_server, tokenizer):
    client = run_server(cases.KnownModel(tokenizer))
    client.post("/embed", inputs="bad")
    client.post("/embed", inputs=["a good film", "bad"])
    client("POST", "/embed", {})
    assert client.metric('te_request_count{method="single"}') == 1
    assert client.metric('te_request_success{method="batch"}') == 1
    assert client.metric('te_request_failure{err="validation"}') == 1
    assert client.metric("te_embed_count") == client.metric("te_request_duration_count") == 2
    assert client.metric("te_request_input_length_sum") == 3 + 5 + 3
    assert client.metric("te_batch_next_tokens_sum") == 11 and client.metric("te_batch_next_size_count") == 2
    assert client.metric("te_queue_size") == 0
    for phase in ("tokenization", "queue", "inference"):
        assert client.metric(f"te_embed_{phase}_duration_count") == 2


def test_keep_alive_connections_serve_many_requests(run_server, tokenizer):
    client = run_server(cases.KnownModel(tokenizer))
    address = urlsplit(client.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    body = json.dumps({"inputs": "bad"})
    for _ in range(50):
        connection.request("POST", "/embed", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200 and json.loads(response.read())
    connection.close()
