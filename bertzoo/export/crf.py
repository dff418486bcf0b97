"""The best labels of a sequence by a conditional random field, in NumPy; see `bertzoo.layers.CRF`."""

import numpy as np


def best_sequence(emissions: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The labels of the highest score, int64 (words,), and the probability of each given the emissions (words,).

    Args:
        emissions: float (words, labels), the logits of a text's words.
        table: float (labels + 1, labels + 1), the scores of going from a label (row) to the next (column), with what
            forbids some of them; the last row and column stand for the border. `settings["crf"]` of an export holds it.
    """
    values, table = np.asarray(emissions, "float64"), np.asarray(table, "float64")
    if not len(values):
        return np.zeros(0, "int64"), np.zeros(0)
    begin, inner, end = table[-1, :-1], table[:-1, :-1], table[:-1, -1]
    best, alphas, choices = [begin + values[0]], [begin + values[0]], []
    for value in values[1:]:
        ways = best[-1][:, None] + inner
        choices.append(ways.argmax(axis=0))
        best.append(ways.max(axis=0) + value)
        alphas.append(_log_sum(alphas[-1][:, None] + inner) + value)
    labels, betas = [int((best[-1] + end).argmax())], [end]
    for value, choice in zip(values[:0:-1], choices[::-1]):
        labels.append(int(choice[labels[-1]]))
        betas.append(_log_sum((inner + (value + betas[-1])[None]).T))
    path = np.array(labels[::-1])
    logs = np.array(alphas) + np.array(betas[::-1]) - _log_sum(alphas[-1] + end)
    return path, np.minimum(np.exp(logs[np.arange(len(path)), path]), 1.0)


def _log_sum(x: np.ndarray) -> np.ndarray:
    """The logarithm of the sum of exponentials over the first axis."""
    largest = x.max(axis=0)
    return largest + np.log(np.exp(x - largest).sum(axis=0))
