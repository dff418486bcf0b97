"""What can be read from each layer by a linear probe, and two controls that say how much that means."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertzoo.analysis.logistic import Logistic
from bertzoo.analysis.pieces import encoder_of, hidden_states
from bertzoo.models.encoder import Encoder
from bertzoo.random import get_seed, host_generator
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.word_alignment import split_words


@dataclass(frozen=True)
class Probe:
    """Shares of held-out labels that a probe gets right, layer by layer, first of the embeddings' output: float64
    (layers + 1,).

    accuracy: on the model. random_encoder: on an encoder of the same shape that was never trained. control_task: on the
    model, where each word (each text, with a label a text) has a random label of its own. majority: float, of always
    saying the label that is most frequent in training.
    """

    accuracy: np.ndarray
    random_encoder: np.ndarray
    control_task: np.ndarray
    majority: float

    @property
    def selectivity(self) -> np.ndarray:
        """accuracy - control_task: what the probe finds rather than memorises (Hewitt and Liang 2019, section 2.2)."""
        return self.accuracy - self.control_task

    @property
    def gain(self) -> np.ndarray:
        """accuracy - random_encoder: what comes of training rather than of words and their order."""
        return self.accuracy - self.random_encoder


def probe(
    model,
    texts: Sequence[str],
    labels: Sequence,
    *,
    held_out: float = 0.3,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
) -> Probe:
    """Trains a linear probe on each layer of a model, and on the controls.

    Which texts are held out, the control's labels and the untrained encoder depend on `bertzoo.set_seed`.

    Args:
        model: An `Encoder` or a task.
        texts: Texts.
        labels: One a text, which is read from the mean of its tokens; or for each text a sequence of labels, one a
            word as `bertzoo.text.word_alignment.split_words` finds them, read from the mean of the word's pieces.
        held_out: Share of the texts that probes are not trained on.
        tokenizer: What reads the texts, for an encoder or a task that has none.
        batch_size: Texts computed at once.

    Raises:
        ValueError: Labels do not fit the texts, are all the same, or no text is left on one side.
    """
    texts, labels = list(texts), list(labels)
    if len(texts) != len(labels):
        raise ValueError(f"there must be one label, or sequence of labels, a text; {len(labels)} for {len(texts)}.")
    by_word = bool(labels) and not isinstance(labels[0], str) and hasattr(labels[0], "__len__")
    encoder, tokenizer = encoder_of(model), tokenizer or getattr(model, "tokenizer", None)
    items = _items(encoder, texts, labels if by_word else None, tokenizer, batch_size)
    untrained = Encoder(encoder.config, pooler=False)
    others = _items(untrained, texts, labels if by_word else None, tokenizer, batch_size)
    known, truth = np.unique([*map(str, items.labels if by_word else labels)], return_inverse=True)
    if len(known) < 2:
        raise ValueError("all labels are the same; there is nothing to tell apart.")
    rng = host_generator(get_seed(), "probe")
    apart = np.zeros(len(texts), bool)
    apart[rng.permutation(len(texts))[: round(held_out * len(texts))]] = True
    test = apart[items.texts]
    if not test.any() or test.all():
        raise ValueError(f"held_out = {held_out!r} of {len(texts)} texts leaves nothing to train on, or to test.")
    # As frequent as the labels themselves, but one for good for each word.
    _, types = np.unique(items.names, return_inverse=True)
    control = truth[rng.integers(0, len(truth), types.max() + 1)][types]
    return Probe(
        _accuracies(items.vectors, truth, test, len(known)),
        _accuracies(others.vectors, truth, test, len(known)),
        _accuracies(items.vectors, control, test, len(known)),
        float((truth[test] == np.bincount(truth[~test]).argmax()).mean()),
    )


@dataclass(frozen=True)
class _Items:
    """What is labelled. vectors: (layers + 1, items, hidden). names: the words, or texts. labels: of words, none of
    texts. texts: int (items,), their numbers."""

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
        spans = split_words(texts[number])
        found = np.unique(pieces.word_of[~pieces.added])
        written = [texts[number][begin:end] for begin, end in spans]
        if len(labels[number]) != len(written) or [pieces.words[place] for place in found] != written:
            raise ValueError(
                f"text {number} has {len(labels[number])} labels; it must have one for each of {written}, and the "
                f"tokenizer must see all of them (it sees {[pieces.words[place] for place in found]})."
            )
        vectors += [states[:, pieces.word_of == place].mean(axis=1) for place in found]
        names += [name.casefold() for name in written]
        kept += list(labels[number])
        numbers += [number] * len(found)
    return _Items(np.stack(vectors, axis=1), names, kept, np.array(numbers))


def _accuracies(layers: np.ndarray, classes: np.ndarray, test: np.ndarray, number: int) -> np.ndarray:
    found = []
    for vectors in layers:
        probe = Logistic.fit(vectors[~test], classes[~test], number)
        found.append(float((probe(vectors[test]) == classes[test]).mean()))
    return np.array(found)
