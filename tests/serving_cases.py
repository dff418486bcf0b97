"""Models whose outputs are known functions of the token ids, and a client of a few lines."""

import http.client
import json
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np

WIDTH = 4


class KnownModel:
    """Stands for an exported model: its outputs are functions of the token ids, computed by `known_vector` and such.

    `delay` seconds pass in each run; a row with the id `poison` raises.
    """

    dtype = "float32"

    def __init__(self, tokenizer, task="SentenceEncoder", delay=0.0, poison=None, **settings):
        self.tokenizer, self.task, self.delay, self.poison = tokenizer, task, delay, poison
        self.settings = {"max_length": 16, "vocab_size": tokenizer.vocabulary_size, "width": WIDTH, "pooling": ["mean"]}
        self.settings["pad_token_id"] = 0
        if task in ("TextClassifier", "CrossEncoder", "TokenClassifier"):
            self.settings |= {"labels": ["a", "b", "c"], "problem_type": "single_label_classification"}
        if task == "TokenClassifier":
            self.settings |= {"label_all_tokens": False, "crf": None}
        self.settings |= settings
        tokenizer.max_length = self.settings["max_length"]
        self.batches = []  # the lengths of the rows of each run

    def is_per_token(self, output):
        return output == "token_embeddings" or self.task in ("TokenClassifier", "QuestionAnswerer", "MaskedLM")

    def run(self, encoded, outputs):
        self.batches.append(encoded.lengths.tolist())
        time.sleep(self.delay)
        rows = [encoded.row(i) for i in range(len(encoded))]
        if self.poison is not None and any(self.poison in row for row in rows):
            raise RuntimeError("secret /home/somebody/model.onnx")
        longest = max(map(len, rows))
        tokens = np.stack([np.pad(known_tokens(row), ((0, longest - len(row)), (0, 0))) for row in rows])
        vectors = np.stack([known_vector(row) for row in rows])
        (output,) = outputs
        if self.task == "SparseEncoder":
            vectors = np.maximum(vectors, 0)
        elif self.task != "SentenceEncoder":
            vectors = vectors[:, : len(self.settings.get("labels", ()))]
        return {output: tokens if self.is_per_token(output) else vectors}


def known_tokens(ids) -> np.ndarray:
    """float32 (tokens, WIDTH)."""
    return np.cos(np.outer(ids, np.arange(1, WIDTH + 1))).astype("float32")


def known_vector(ids) -> np.ndarray:
    return known_tokens(ids).mean(axis=0)


@dataclass
class Client:
    """Asks one server."""

    url: str

    def __call__(self, method, path, body=None, headers=None, raw=False):
        """-> (status, content); the content is parsed JSON unless `raw`."""
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
        try:
            content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, content, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        return response.status, data if raw else json.loads(data or b"null")

    def post(self, path, **body):
        """The content of a request that must succeed."""
        status, content = self("POST", path, body)
        assert status == 200, content
        return content

    def metric(self, name) -> float:
        """The value of a metric, whose labels stand in its name."""
        page = self("GET", "/metrics", raw=True)[1].decode()
        return next((float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(f"{name} ")), 0.0)
