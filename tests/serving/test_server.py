"""`bertzoo serve` as a process: real models and real clients; signals and broken presets."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import huggingface_hub
import numpy as np
import openai
import pytest
from serving_cases import Client

import bertzoo as bz

pytestmark = pytest.mark.once
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
TEXT = "We saw the film with friends in Paris, and the plot was bad. " * 4


@pytest.fixture(scope="module")
def tasks(write_checkpoint):
    """Name -> a task with random weights."""
    plain, _ = write_checkpoint(max_position_embeddings=32)
    masked, _ = write_checkpoint("BertForMaskedLM")
    sequences = bz.TokenClassifier.from_preset(plain, labels=LABELS, crf=True, verbose=False)
    sequences.crf.transitions.assign(np.random.default_rng(0).normal(size=(6, 6)))
    return {
        "vectors": bz.SentenceEncoder.from_preset(plain, verbose=False),
        "classes": bz.TextClassifier.from_preset(plain, labels=["bad", "good", "dull"], verbose=False),
        "entities": bz.TokenClassifier.from_preset(plain, labels=LABELS, verbose=False),
        "sequences": sequences,
        "answers": bz.QuestionAnswerer.from_preset(plain, stride=4, verbose=False),
        "scores": bz.CrossEncoder.from_preset(plain, verbose=False),
        "words": bz.MaskedLM.from_preset(masked, verbose=False),
    }


@pytest.fixture(scope="module")
def exported(tasks, tmp_path_factory):
    """Name -> a directory with the exported task."""
    folder = tmp_path_factory.mktemp("exported")
    for name, task in tasks.items():
        task.export(folder / name, format="onnx")
    return {name: folder / name for name in tasks}


class Process:
    """`bertzoo serve` with arguments, on a free port."""

    def __init__(self, *arguments, **environment):
        # Without Keras: a server must not import it.
        code = "import sys; sys.modules['keras'] = None; from bertzoo.cli.main import main; main()"
        command = [sys.executable, "-c", code, "serve", "--port", "0", "--threads", "1", *map(str, arguments)]
        root = os.path.dirname(os.path.dirname(bz.__file__))
        env = {**os.environ, "PYTHONPATH": root, **environment}
        self.process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"on (http://\S+)", line):
                self.client = Client(found[1])
                break
        threading.Thread(target=self.lines.extend, args=[self.process.stderr], daemon=True).start()

    def end(self, sign=signal.SIGTERM):
        self.process.send_signal(sign)
        return self.process.wait(30)


@pytest.fixture(scope="module")
def server(exported):
    process = Process(*exported.values())
    yield process.client
    process.end()


def test_vectors_are_those_of_the_task(server, tasks, close):
    texts = [TEXT, "bad", "a very good film", "Paris!"] * 20
    close(server.post("/embed", inputs=texts), tasks["vectors"].encode(texts, normalize=True))


def test_labels_scores_entities_and_answers_are_those_of_the_tasks(server, tasks):
    expected = tasks["classes"].classify(["bad", TEXT])
    for found, one in zip(server.post("/predict", inputs=[["bad"], [TEXT]]), expected, strict=True):
        assert {row["label"]: row["score"] for row in found} == pytest.approx(one["scores"], abs=1e-5)
    ranked = tasks["scores"].rank("good film", ["bad", "the film", TEXT])
    found = server.post("/rerank", query="good film", texts=["bad", "the film", TEXT])
    assert [row["index"] for row in found] == [row["corpus_id"] for row in ranked]
    assert [row["score"] for row in found] == pytest.approx([row["score"] for row in ranked], abs=1e-5)
    texts = [TEXT, "Paris!", "é"]
    for name in ("entities", "sequences"):
        rows = server.post("/tag", inputs=texts, model=name)
        bound = 1e-5 if name == "entities" else 1e-3  # the layer sums in float32
        for text, row, expected in zip(texts, rows, tasks[name].tag(texts), strict=True):
            assert row == [{**one, "score": pytest.approx(one["score"], abs=bound)} for one in expected]
            assert all(text[one["start"] : one["end"]] == one["text"] for one in row)
        assert rows[0]
    best = tasks["answers"].answer("who saw it?", TEXT, n_best=3)
    body = {"inputs": {"question": "who saw it?", "context": TEXT}, "parameters": {"top_k": 3}}
    for one, other in zip(server.post("/answer", **body), best, strict=True):
        assert (one["answer"], one["start"], one["end"]) == (other["text"], other["start"], other["end"])
        assert one["score"] == pytest.approx(other["score"], abs=1e-5)


def test_words_for_masks_are_those_of_the_task(server, tasks):
    for text in ("the [MASK] is good", "[MASK] film was [MASK] ."):
        (expected,) = [tasks["words"].fill_mask(text)]
        found = server.post("/fill_mask", inputs=text)
        for one, other in zip(np.ravel(found), np.ravel(expected), strict=True):
            assert (one["token_str"], one["sequence"]) == (other["token"], other["text"])
            assert one["score"] == pytest.approx(other["score"], abs=1e-5)
            assert tasks["words"].tokenizer.token_to_id("##" + one["token_str"]) == one["token"] or (
                tasks["words"].tokenizer.token_to_id(one["token_str"]) == one["token"]
            )
    body = {"inputs": "a [MASK]", "parameters": {"targets": ["bad", "film"], "top_k": 1}}
    assert server.post("/fill_mask", **body)[0]["token_str"] in ("bad", "film")
    assert server("POST", "/fill_mask", {"inputs": "no mask"})[0] == 422
    assert server("POST", "/fill_mask", {"inputs": "a [MASK]", "parameters": {"targets": ["filmbad"]}})[0] == 422


@pytest.mark.parametrize("encoding", ["float", "base64", None])
def test_the_openai_client(server, tasks, close, encoding):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    options = {} if encoding is None else {"encoding_format": encoding}
    answer = client.embeddings.create(input=["bad", "the film"], model="vectors", **options)
    vectors = [row.embedding for row in answer.data]
    if encoding == "base64":  # asked for by name, it is not decoded
        import base64

        vectors = [np.frombuffer(base64.b64decode(vector), "<f4") for vector in vectors]
    close(vectors, tasks["vectors"].encode(["bad", "the film"], normalize=True))
    assert answer.usage.prompt_tokens == 7
    assert [model.id for model in client.models.list()] == list(tasks)
    with pytest.raises(openai.UnprocessableEntityError, match="100256"):  # ids of another tokenizer
        client.embeddings.create(input=[[100256, 5]], model="vectors")
    with pytest.raises(openai.NotFoundError, match="text-embedding-3-small"):
        client.embeddings.create(input="bad", model="text-embedding-3-small")


def test_the_hugging_face_client(exported, server, tasks, close):
    client = huggingface_hub.InferenceClient(server.url, token="none")
    close(client.feature_extraction("bad"), tasks["vectors"].encode(["bad"], normalize=True))
    close(client.feature_extraction("bad", normalize=False, truncate=True)[0], tasks["vectors"].encode("bad"))
    vectors = tasks["vectors"].encode(["bad", "dull", "the film"], normalize=True)
    close(client.sentence_similarity("bad", ["dull", "the film"]), vectors[1:] @ vectors[0])
    process = Process(exported["entities"])
    try:
        found = huggingface_hub.InferenceClient(process.client.url, token="none").token_classification(TEXT)
        expected = [(one["label"], one["text"], one["start"]) for one in tasks["entities"].tag(TEXT)]
        assert [(one.entity_group, one.word, one.start) for one in found] == expected
    finally:
        assert process.end() == 0
    process = Process(exported["words"])
    try:
        client = huggingface_hub.InferenceClient(process.client.url, token="none")
        found = client.fill_mask("the [MASK] is good", top_k=3)
        expected = tasks["words"].fill_mask("the [MASK] is good", top_k=3)
        assert [(one.token_str, one.sequence) for one in found] == [(one["token"], one["text"]) for one in expected]
    finally:
        assert process.end(signal.SIGINT) == 0


@pytest.mark.slow
def test_the_commands_of_the_readme():
    lines = (Path(bz.__file__).parents[1] / "README.md").read_text(encoding="utf-8").splitlines()
    assert any(line.endswith("bertzoo serve bert_mini_en") for line in lines)
    process = Process("bert_mini_en")
    try:
        (line,) = [line for line in lines if line.startswith("curl ")]
        command = shlex.split(line.replace("http://127.0.0.1:8080", process.client.url))
        found = json.loads(subprocess.run([*command, "-sS"], capture_output=True, check=True).stdout)
        task = bz.MaskedLM.from_preset("bert_mini_en", verbose=False)
        expected = task.fill_mask("She plays the [MASK] in an orchestra.")
        assert [one["token_str"] for one in found] == [one["token"] for one in expected]
        assert [one["score"] for one in found] == pytest.approx([one["score"] for one in expected], abs=1e-5)
    finally:
        assert process.end() == 0


def test_curl(server):
    command = ["curl", "-sS", "--json", json.dumps({"inputs": "bad"}), f"{server.url}/embed"]
    assert len(json.loads(subprocess.run(command, capture_output=True, check=True).stdout)[0]) == 32


def test_no_answer_names_a_path_of_the_machine(server, exported):
    pages = [server("GET", path, raw=True)[1].decode() for path in ("/info", "/v1/models", "/metrics", "/nothing")]
    pages += [json.dumps(server("POST", "/embed", body)[1]) for body in ({}, {"inputs": "a", "model": "b"})]
    folder = str(next(iter(exported.values())).parent)
    assert not any(folder in page or "/tmp" in page or "site-packages" in page for page in pages)


def test_a_socket_file_and_a_key_from_the_environment(exported, tmp_path):
    path = tmp_path / "socket"
    code = "from bertzoo.cli.main import main; main()"
    root = os.path.dirname(os.path.dirname(bz.__file__))
    env = {**os.environ, "PYTHONPATH": root, "BERTZOO_API_KEY": "s3cret"}
    command = [sys.executable, "-c", code, "serve", str(exported["vectors"]), "--unix-socket", str(path)]
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    try:
        assert next(line for line in process.stderr if "serving" in line)
        curl = ["curl", "-sS", "--unix-socket", str(path), "--json", '{"inputs": "bad"}', "http://x/embed"]
        assert b"Unauthorized" in subprocess.run(curl, capture_output=True, check=True).stdout
        curl += ["-H", "Authorization: Bearer s3cret"]
        assert len(json.loads(subprocess.run(curl, capture_output=True, check=True).stdout)[0]) == 32
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_sigterm_under_load_loses_no_accepted_request(exported):
    process = Process(exported["vectors"], "--max-batch-tokens", "32")
    client, texts = process.client, [TEXT] * 400
    with ThreadPoolExecutor(20) as pool:
        answers = [pool.submit(client, "POST", "/embed", {"inputs": texts}) for _ in range(20)]
        end = time.monotonic() + 20
        while client.metric("te_queue_size") < 15:  # their bodies are read, and their rows wait
            assert time.monotonic() < end
        process.process.send_signal(signal.SIGTERM)
        results = [answer.result() for answer in answers]
    assert [status for status, _ in results] == [200] * 20
    assert all(len(vectors) == 400 for _, vectors in results)
    assert process.process.wait(30) == 0


def test_a_broken_preset_ends_the_server_with_one_sentence(exported, write_checkpoint, tmp_path):
    (tmp_path / "model.onnx").write_bytes((exported["vectors"] / "model.onnx").read_bytes()[:5000])
    plain, _ = write_checkpoint(max_position_embeddings=32)
    bz.MultipleChoice.from_preset(plain, verbose=False).export(tmp_path / "choices", format="onnx")
    faults = {
        tmp_path: "can't be served",
        tmp_path / "nothing": "There is no preset",
        tmp_path / "choices": "a MultipleChoice",
    }
    for directory, expected in faults.items():
        process = Process(directory)
        assert process.process.wait(60) == 1
        (line,) = [line for line in process.lines if not line.startswith("loading")]
        assert line.startswith("bertzoo: ") and expected in line
