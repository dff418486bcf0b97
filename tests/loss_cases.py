"""What tests of losses share: a few texts with targets of every task, and the loss of each by its formula."""

import keras
import numpy as np
import pytest

import bertzoo as bz

WORDS = "the a film was is good bad dull bright plot actor and not very we saw it with friends in paris".split()  # noqa: SIM905

LENGTHS = [1, 13, 2, 5, 1, 3, 8, 1, 12, 2, 4]

RNG = np.random.default_rng(0)

SENTENCES = [[str(word) for word in RNG.choice(WORDS, length)] for length in LENGTHS]

TAGS = [[str(tag) for tag in RNG.choice(["x", "y", "z"], length)] for length in LENGTHS]

TEXTS = [" ".join(words) for words in SENTENCES]

CLASSES = RNG.integers(0, 3, len(TEXTS)).tolist()

SCORES = RNG.random(len(TEXTS)).tolist()

PAIRS = list(zip(TEXTS, TEXTS[1:] + TEXTS[:1]))

RECORDS = [
    {"question": text, "context": other, "answers": [other.split()[-1]] if i % 3 else []}
    for i, (text, other) in enumerate(PAIRS)
]


class Stream(keras.utils.PyDataset):
    def __init__(self, *batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def tagger(**options):
    return bz.TokenClassifier, {"labels": ["x", "y", "z"], **options}, (SENTENCES, TAGS)


TASKS = {
    "classes": (bz.TextClassifier, {"labels": 3}, (TEXTS, CLASSES)),
    "several": (
        bz.TextClassifier,
        {"labels": 3, "problem_type": "multi_label_classification"},
        (TEXTS, (RNG.random((len(TEXTS), 3)) > 0.5).astype(int)),
    ),
    "numbers": (bz.TextClassifier, {"labels": 1}, (TEXTS, SCORES)),
    "tags": tagger(),
    "crf": tagger(crf=True),
    "pieces": tagger(label_all_tokens=True),
    "masked": (bz.MaskedLM, {}, (TEXTS, None)),
    "answers": (bz.QuestionAnswerer, {}, (RECORDS, None)),
    "choices": (bz.MultipleChoice, {}, ((TEXTS, [["good film", "bad"]] * len(TEXTS)), [c % 2 for c in CLASSES])),
    "pairs": (bz.CrossEncoder, {}, (PAIRS, SCORES)),
    "vectors": (bz.SentenceEncoder, {}, (PAIRS, SCORES)),
}


def log_softmax(x, axis=-1):
    x = np.asarray(x, "float64")
    return x - np.log(np.exp(x - x.max(axis, keepdims=True)).sum(axis, keepdims=True)) - x.max(axis, keepdims=True)


def expected(kind, model, data, numpy):
    """The loss and, for tokens, the accuracy of all rows in one batch, by the formula, from the model's outputs."""
    x, y, *weights = data
    logits = np.asarray(numpy(model(x)), "float64")
    if kind in ("tags", "pieces", "masked"):
        right = np.take_along_axis(log_softmax(logits), y[..., None], -1)[..., 0]
        hits = logits.argmax(-1) == y
        return -(right * weights[0]).sum() / weights[0].sum(), (hits * weights[0]).sum() / weights[0].sum()
    if kind in ("classes", "choices"):
        return -log_softmax(logits)[np.arange(len(y)), y].mean(), (logits.argmax(-1) == y).mean()
    if kind == "answers":
        logs = log_softmax(np.where(y < 0, -1e9, logits), axis=1)
        result, true = np.where(y < 0, -1e9, logits).argmax(1), y.argmax(1)
        return -(np.maximum(y, 0) * logs).sum((1, 2)).mean() / 2, (result == true).all(1).mean()
    if kind in ("several", "pairs"):
        losses = (np.logaddexp(0, logits) - y * logits).mean()
        return losses, ((logits > 0) == y).mean() if kind == "several" else None
    if kind == "numbers":
        return np.square(logits - y).mean(), np.abs(logits - y).mean()
    if kind == "vectors":
        u, v = (rows / np.linalg.norm(rows, axis=-1, keepdims=True) for rows in (logits[:, 0], logits[:, 1]))
        return np.square((u * v).sum(-1) - y).mean(), None
    # The likelihood of whole sentences, by enumeration for the short ones, times nothing else: transitions are 0 before
    # training, so that it is that of its words.
    right = np.take_along_axis(log_softmax(logits), y[..., None], -1)[..., 0]
    return -(right * weights[0]).sum() / weights[0].sum(), None


def once_but(kinds, everywhere):
    """Cases that run on every backend, and others, whose difference is no backend's matter."""
    return [kind if kind in everywhere else pytest.param(kind, marks=pytest.mark.once) for kind in kinds]
