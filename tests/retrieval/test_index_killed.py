"""An index whose writer is killed at any moment holds the state before or after a change, never a mixture."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bertzoo.retrieval import Dense, Index, MultiVector, Sparse

pytestmark = [pytest.mark.once, pytest.mark.slow]

KILLS = int(os.environ.get("BERTZOO_KILLS", "4"))  # 30 before a release
WIDTH, DOCUMENTS = 32, 120
FIELDS = {"dense": Dense(WIDTH), "sparse": Sparse(), "tokens": MultiVector(WIDTH)}
# Grows an index until it is killed, from the change that the index is at; says when each change is done.
WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from bertzoo.retrieval import Index
from bertzoo.retrieval.index import dense, multi_vector
dense.SMALLEST = multi_vector.SMALLEST = 500  # graphs and merges are killed too
from test_index_killed import FIELDS, change
index = Index(sys.argv[1], FIELDS)
number = index.metadata.get("change", 0)
while True:
    number += 1
    ids, removed, values = change(number)
    index.add(ids, values, [f"{name} {number}" for name in ids], remove=removed, metadata={"change": number})
    print(number, flush=True)
    if number % 5 == 0:
        index.merge()
"""


def change(number):
    """The documents that a change adds, those that it removes, and the values: each change has terms of its own, and
    the only token of a document its dense vector."""
    rng = np.random.default_rng(number)
    chosen = rng.choice(20 * DOCUMENTS, DOCUMENTS, replace=False)
    ids, removed = [f"d{i}" for i in chosen], [f"d{i}" for i in rng.choice(20 * DOCUMENTS, 40)]
    dense = rng.normal(size=(DOCUMENTS, WIDTH)).astype("float32")
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    sparse = [([number, 10_000 + number], [1.0, 2.0])] * DOCUMENTS
    return (
        ids,
        [i for i in removed if i not in set(ids)],
        {"dense": dense, "sparse": sparse, "tokens": list(dense[:, None])},
    )


def state(number):
    """Name -> (payload, vector) after a change."""
    known = {}
    for n in range(1, number + 1):
        ids, removed, values = change(n)
        known = {i: value for i, value in known.items() if i not in set(removed)}
        known |= {i: (f"{i} {n}", vector) for i, vector in zip(ids, values["dense"])}
    return known


def check(index, number):
    known = state(number)
    assert len(index) == len(known)
    hits = index.search({"dense": np.ones(WIDTH, "float32")}, top_k=10 * DOCUMENTS * 20, exact=True)[0]
    assert {hit.id: hit.payload for hit in hits} == {i: payload for i, (payload, _) in known.items()}
    for hit in hits:
        assert hit.score == pytest.approx(known[hit.id][1].sum() / np.sqrt(WIDTH), abs=2e-3)
    names = list(known)[:: max(1, len(known) // 20)]
    vectors = [known[name][1] for name in names]
    for field, queries in {"dense": np.stack(vectors), "tokens": [vector[None] for vector in vectors]}.items():
        for name, found in zip(names, index.search({field: queries}, top_k=1)):
            assert found[0].id == name
    of_last = [hit.id for hit in index.search({"sparse": [([number], [1.0])]}, top_k=DOCUMENTS)[0]]
    assert set(of_last) == {i for i, (payload, _) in known.items() if payload.endswith(f" {number}")}


def test_a_killed_writer_leaves_a_whole_state(tmp_path):
    pytest.importorskip("usearch")
    rng, directory = random.Random(0), tmp_path / "index"
    command = [sys.executable, "-c", WRITER, str(directory), os.path.dirname(__file__)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    reached = 0
    for _ in range(KILLS):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        first = child.stdout.readline()
        assert first, "the writer failed"
        time.sleep(rng.random() * 0.5)
        child.send_signal(signal.SIGKILL)
        done = max(map(int, [first, *child.stdout.read().split()]))
        child.wait()
        index = Index(directory)
        # The change may have been published that was not reported any more.
        assert index.metadata["change"] in (done, done + 1) and done > reached
        reached = index.metadata["change"]
        check(index, reached)
    index.merge()
    check(index, reached)
    assert len(list(directory.glob("segment_*"))) == 1
