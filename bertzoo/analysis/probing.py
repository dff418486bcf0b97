"""Linear probes of each layer, with two controls."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertzoo.analysis.pieces import get_encoder, hidden_states
from bertzoo.models.encoder import Encoder
from bertzoo.random import get_seed, numpy_generator
from bertzoo.tasks.task import Task
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.word_alignment import find_word_spans


@dataclass(frozen=True)
class ProbeResult:
    """The accuracy of a linear probe on held-out texts by layer, beginning with the embeddings' output: float64
    (layers + 1,).

    Attributes:
        accuracy: On the model.
        random_encoder: On an untrained encoder of the same shape.
        control_task: On the model, with a random label for each word (or each text, for labels of texts).
        majority: The majority baseline, a float.
    """

    accuracy: np.ndarray
    random_encoder: np.ndarray
    control_task: np.ndarray
    majority: float

    @property
    def selectivity(self) -> np.ndarray:
        """accuracy - control_task (Hewitt and Liang 2019, section 2.2): low if the probe memorises words."""
        return self.accuracy - self.control_task

    @property
    def gain_over_random(self) -> np.ndarray:
        """accuracy - random_encoder: the contribution of training."""
        return self.accuracy - self.random_encoder


def probe(
    model: Encoder | Task,
    texts: Sequence[str],
    labels: Sequence,
    *,
    held_out: float = 0.3,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
) -> ProbeResult:
    """Trains a linear probe on each layer of a model and on the controls.

    The held-out texts, the control's labels and the untrained encoder depend on `bertzoo.set_seed`.

    Args:
        model: An `Encoder` or a task.
        texts: Texts.
        labels: A label for each text, predicted from the mean of its tokens; or for each text a sequence of labels, one
            for each word of `bertzoo.text.word_alignment.find_word_spans`, from the mean of its pieces.
        held_out: Share of the texts to test on.
        tokenizer: The tokenizer, for an encoder or a task without one.
        batch_size: Texts in a batch.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: The labels do not fit the texts or are all the same, or there are no texts to train or test on.
    """
    texts, labels = list(texts), list(labels)
    if len(texts) != len(labels):
        raise ValueError(
            f"expected one label, or sequence of labels, for each of {len(texts)} texts. Received: {len(labels)}."
        )
    by_word = bool(labels) and not isinstance(labels[0], str) and hasattr(labels[0], "__len__")
    encoder, tokenizer = get_encoder(model), tokenizer or getattr(model, "tokenizer", None)
    items = _items(encoder, texts, labels if by_word else None, tokenizer, batch_size)
    untrained = Encoder(encoder.config, pooler=False)
    others = _items(untrained, texts, labels if by_word else None, tokenizer, batch_size)
    known, truth = np.unique([*map(str, items.labels if by_word else labels)], return_inverse=True)
    if len(known) < 2:
        raise ValueError("expected two or more different labels. Received: all labels are the same.")
    rng = numpy_generator(get_seed(), "probe")
    is_held_out = np.zeros(len(texts), bool)
    is_held_out[rng.permutation(len(texts))[: round(held_out * len(texts))]] = True
    is_test = is_held_out[items.texts]
    if not is_test.any() or is_test.all():
        raise ValueError(f"held_out={held_out!r} of {len(texts)} texts leaves nothing to train on or to test.")
    # With the frequencies of the labels, but fixed for each word.
    _, types = np.unique(items.names, return_inverse=True)
    control = truth[rng.integers(0, len(truth), types.max() + 1)][types]
    return ProbeResult(
        _accuracies(items.vectors, truth, is_test),
        _accuracies(others.vectors, truth, is_test),
        _accuracies(items.vectors, control, is_test),
        float((truth[is_test] == np.bincount(truth[~is_test]).argmax()).mean()),
    )


@dataclass(frozen=True)
class _Items:
    """What is labelled: words or texts. vectors: (layers + 1, items, hidden); labels: of words; texts: int (items,)."""

    vectors: np.ndarray
    names: list[str]
    labels: list
    texts: np.ndarray


def _items(encoder, texts, labels, tokenizer, batch_size) -> _Items:
    vectors, names, kept, numbers = [], [], [], []
    for number, (pieces, states) in enumerate(hidden_states(encoder, texts, tokenizer, batch_size)):
        if labels is None:
            vectors.append(states.mean(axis=1))
            names.append(texts[number])
            numbers.append(number)
            continue
        spans = find_word_spans(texts[number])
        indices = np.unique(pieces.word_of[~pieces.added])
        written = [texts[number][begin:end] for begin, end in spans]
        if len(labels[number]) != len(written) or [pieces.words[place] for place in indices] != written:
            raise ValueError(
                f"text {number} must have a label for each of {written}, and the tokenizer must keep them. Received: "
                f"{len(labels[number])} labels; the tokenizer keeps {[pieces.words[i] for i in indices]}."
            )
        vectors += [states[:, pieces.word_of == place].mean(axis=1) for place in indices]
        names += [name.casefold() for name in written]
        kept += list(labels[number])
        numbers += [number] * len(indices)
    return _Items(np.stack(vectors, axis=1), names, kept, np.array(numbers))


def _accuracies(layers: np.ndarray, classes: np.ndarray, is_test: np.ndarray) -> np.ndarray:
    """Of a logistic regression on each layer, with standardized vectors and an L2 penalty of 1/2 ‖weights‖²."""
    try:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
    except ImportError:
        raise ImportError("probe needs scikit-learn: pip install scikit-learn.") from None
    accuracies = []
    for vectors in layers.astype("float64"):
        classifier = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-6, max_iter=500))
        classifier.fit(vectors[~is_test], classes[~is_test])
        accuracies.append(classifier.score(vectors[is_test], classes[is_test]))
    return np.array(accuracies)
