"""Right answers to exercises, written otherwise than the solutions and with what earlier cells define; and mutants."""

import json
import re
from pathlib import Path

import check
import grading
import numpy as np
import pytest

pytestmark = pytest.mark.once
COURSE = Path(__file__).resolve().parents[2] / "course"

# Name -> exercise, a right answer, what of it is replaced, and what makes it wrong.
ANSWERS = {
    "loops over a table of whole numbers": (
        "01.1",
        """
def prefix_mask(length, prefix):
    mask = np.zeros((length, length), int)
    for row in range(length):
        for column in range(length):
            mask[row, column] = column <= row or column < prefix
    return mask
""",
        ("column < prefix", "row < prefix"),
    ),
    "a list of lists": (
        "01.1",
        """
def prefix_mask(length, prefix):
    return [[j <= max(i, prefix - 1) for j in range(length)] for i in range(length)]
""",
        ("prefix - 1", "prefix"),
    ),
    "slices in place of a walk": (
        "02.1",
        """
def longest_piece(trie, word, start):
    node, ends = trie, [start]
    for place, letter in enumerate(word[start:], start + 1):
        if letter not in node:
            return ends[-1]
        node = node[letter]
        if "" in node:
            ends.append(place)
    return ends[-1]
""",
        ("ends[-1]", "ends[0]"),
    ),
    "the softmax of an earlier cell": (
        "03.1",
        """
def attention_weights(query, key, lengths):
    scores = query @ key.swapaxes(2, 3) / math.sqrt(query.shape[-1])
    real = np.arange(key.shape[2]) < np.asarray(lengths)[:, None]
    return softmax(np.where(real[:, None, None, :], scores, -1e30))
""",
        ("math.sqrt(query.shape[-1])", "query.shape[-1]"),
    ),
    "the operations of Keras, imported above": (
        "03.1",
        """
def attention_weights(query, key, lengths):
    query, key = (ops.convert_to_tensor(x, "float32") for x in (query, key))
    scores = ops.einsum("bhid,bhjd->bhij", query, key) / query.shape[-1] ** 0.5
    real = ops.arange(key.shape[2]) < ops.convert_to_tensor(lengths, "int32")[:, None]
    return ops.convert_to_numpy(ops.softmax(ops.where(real[:, None, None, :], scores, -1e30)))
""",
        ("bhid,bhjd", "bhjd,bhid"),
    ),
    "a shuffled list and a set": (
        "04.1",
        """
def choose_words(word_ids, budget, rng):
    words, taken = [int(word) for word in set(word_ids.tolist()) if word >= 0], []
    rng.shuffle(words)
    for word in words:
        pieces = [place for place, own in enumerate(word_ids) if own == word]
        if len(taken) + len(pieces) <= budget:
            taken += pieces
    return np.isin(np.arange(len(word_ids)), taken)
""",
        ("<= budget", "< budget"),
    ),
    "the statistics module, as a list": (
        "06.1",
        """
from statistics import mean, stdev

def report(scores):
    columns = np.transpose(scores).tolist()
    return [[mean(column) for column in columns], [stdev(column) for column in columns]]
""",
        ("stdev(column)", "stdev(column) / len(column) ** 0.5"),
    ),
    "all sequences, by a product that is imported above": (
        "07.1",
        """
def best_path(emissions, transitions):
    def score(path):
        ways = zip([-1, *path], [*path, -1])
        return sum(transitions[way] for way in ways) + sum(row[label] for row, label in zip(emissions, path))

    return list(max(product(range(emissions.shape[1]), repeat=len(emissions)), key=score))
""",
        ("[*path, -1]", "path"),
    ),
    "one weighted average": (
        "09.1",
        """
def accumulate(gradients, holes):
    there = holes > 0
    if not there.any():
        return np.zeros(gradients.shape[1:])
    return np.average(gradients[there], axis=0, weights=holes[there])
""",
        (", weights=holes[there]", ""),
    ),
    "a matrix in place of sums": (
        "11.1",
        """
import math

def soft_gradient(teacher, student, temperature):
    def odds(logits):
        e = [math.exp((logit - max(logits)) / temperature) for logit in logits]
        return np.array([each / math.fsum(e) for each in e])

    return temperature * (odds(student) - odds(teacher))
""",
        ("odds(student) - odds(teacher)", "odds(teacher) - odds(student)"),
    ),
    "lists and a loop over slots": (
        "12.1",
        """
def corrupt(ids, positions, used, drawn):
    read = ids.tolist()
    for row, slots in enumerate(used):
        for slot in range(len(slots)):
            if slots[slot]:
                read[row][positions[row, slot]] = int(drawn[row, slot])
    return [read, (np.array(read) != ids).tolist()]
""",
        ("if slots[slot]:", "if True:"),
    ),
    "the factor of Cholesky": (
        "15.1",
        """
def whiten(vectors):
    centred = vectors - vectors.mean(axis=0)
    factor = np.linalg.cholesky(np.cov(vectors.T, bias=True))
    return np.linalg.solve(factor, centred.T).T
""",
        (", bias=True", ""),
    ),
}


def graded(folder: Path, number: str, answer: str) -> str:
    """What `bertzoo course --check` says of a notebook of the course with this answer in the exercise's cell."""
    path = next(COURSE.glob(f"{number[:2]}_*.ipynb"))
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if "".join(cell["source"]).startswith(f"# Exercise {number}"):
            cell["source"] = f"# Exercise {number}{answer}".splitlines(keepends=True)
    (folder / path.name).write_text(json.dumps(notebook), encoding="utf-8")
    return grading.verdicts(folder / path.name)[number]


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERS)
def test_right_answers_pass_however_they_are_written(name, tmp_path):
    number, answer, (old, new) = ANSWERS[name]
    assert graded(tmp_path, number, answer) == "passed"
    assert old in answer
    verdict = graded(tmp_path, number, answer.replace(old, new))
    assert verdict.startswith("not yet: ") and "raised" not in verdict


def test_what_earlier_cells_compute_is_named_with_a_way_out(tmp_path):
    answer = """
def attention_weights(query, key, lengths):
    return softmax(query @ key.swapaxes(2, 3) / np.sqrt(3)) + weights[0, 0]
"""
    said = graded(tmp_path, "03.1", answer)
    assert "NameError: name 'weights' is not defined, in line 3 of the cell: return softmax(" in said
    assert said.endswith("(--check computes nothing of the cells above: make weights in the exercise's cell)")


def test_cells_above_give_definitions_and_run_nothing():
    above = [
        "import math, os.path\nfrom time import time as now\nWIDTH, (A, B) = 4, (-2.5, [WIDTH])\nraise OSError",
        "%matplotlib inline\n!ls\nrng = print('trained')\ndef half(x):\n    return x / TWO\nTWO = 2",
        "class Unused: ...\ndef not_python(:",
    ]
    kept = grading.needed("y = half(math.pi) + now() + WIDTH + rng", above)
    assert [type(statement).__name__ for statement in kept] == [
        "Import",
        "ImportFrom",
        "Assign",
        "FunctionDef",
        "Assign",
    ]


@pytest.mark.parametrize(
    ("number", "wrong", "hint"),
    [
        ("03.1", "by_d", r"divided by √d = 1\.41, not by d"),
        ("06.1", "standard_error", "standard errors of the means"),
        ("07.1", "greedy", "can a worse one lead to a better whole"),
        ("07.1", "from_and_to_swapped", "where a step comes from, or where it goes to"),
        ("07.1", "without_borders", "Mind both borders"),
        ("07.1", "backwards", "In which direction does your list run"),
        ("15.1", "sample_covariance", r"mean squares are 0\.995, expected 1: .* n − 1"),
        ("01.1", "numbers_in_place_of_truth", "float32, expected bool, or whole numbers"),
    ],
)
def test_hints_name_the_mistake(number, wrong, hint):
    path = Path(__file__).parent / f"wrong_{number.replace('.', '_')}.py"
    namespace = {}
    exec(path.read_text(encoding="utf-8"), namespace)
    assert re.search(hint, check.verdict(number, namespace[wrong]))


def test_whole_numbers_stand_for_truth():
    assert check.verdict("01.1", lambda n, prefix: np.tril(np.ones((n, n), int)) | (np.arange(n) < prefix)) == "passed"
