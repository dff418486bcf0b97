"""A linear-chain conditional random field over labels (Lafferty et al. 2001; for names Lample et al. 2016, 2.2)."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.layers.base import Layer
from bertzoo.types import Tensor

FORBIDDEN = -1e4  # Added to the score of a transition: e to that power is 0 in float32, and its gradient is finite.
IMPOSSIBLE = -1e9


@keras.saving.register_keras_serializable("bertzoo")
class CRF(Layer):
    """Scores whole sequences of labels: the emissions of their labels plus the transitions between neighbours.

    One weight, `transitions` (labels + 1, labels + 1): the score of going from a label (row) to the next (column). The
    last row and column stand for the border, where a sequence begins and ends. Called with emissions and a mask it
    gives the best labels, as `viterbi`.

    Emissions are float (batch, length, labels). A mask, bool or 0/1 (batch, length), says which positions count; the
    others are skipped, so that positions before and after them are neighbours. All sums are exact, by the forward
    algorithm, in float32.

    Args:
        num_labels: Number of labels.
        forbidden_transitions: Those that never occur, pairs (from, to) of label numbers, `num_labels` being the border.
        name: The layer's name.

    Raises:
        ValueError: A pair has an unknown label.

    Example:
        >>> crf = bz.layers.CRF(3, forbidden_transitions=[(0, 2), (3, 2)])  # O, B, I: no I after O or at the beginning
        >>> np.asarray(crf(np.array([[[1.0, 0.5, 2.0], [0.0, 0.0, 1.0]]]))).tolist()
        [[1, 2]]
    """

    def __init__(
        self, num_labels: int, forbidden_transitions: Sequence[tuple[int, int]] = (), name: str = "crf", **kwargs
    ):
        super().__init__(name=name, **{**kwargs, "dtype": "float32"})
        self.num_labels, self.forbidden_transitions = num_labels, [tuple(pair) for pair in forbidden_transitions]
        for pair in self.forbidden_transitions:
            if len(pair) != 2 or not all(0 <= label <= num_labels for label in pair):
                raise ValueError(
                    f"Expected pairs of numbers from 0 to {num_labels} in forbidden_transitions. Received: {pair!r}."
                )
        penalty = np.zeros((num_labels + 1, num_labels + 1), dtype="float32")
        for pair in self.forbidden_transitions:
            penalty[pair] = FORBIDDEN
        self._penalty = penalty

    def build(self, input_shape: Any = None) -> None:
        size = self.num_labels + 1
        self.transitions = self.add_weight(name="transitions", shape=(size, size), initializer="zeros")

    def call(self, emissions: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.viterbi(emissions, mask)

    def compute_output_spec(self, emissions: Tensor, mask: Tensor | None = None) -> keras.KerasTensor:
        return keras.KerasTensor(emissions.shape[:2], "int32")

    def log_likelihood(self, emissions: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        """Log-probability of each sequence of labels, float32 (batch,); 0 for one without positions.

        Args:
            emissions: (batch, length, labels).
            labels: int (batch, length); any label where the mask is 0.
            mask: (batch, length); all positions count where None.
        """
        return self.sequence_score(emissions, labels, mask) - self.log_partition(emissions, mask)

    def sequence_score(self, emissions: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        """The score of each sequence of labels before normalisation, float32 (batch,).

        Args:
            emissions, labels, mask: As for `log_likelihood`.
        """
        table, (_, counts) = self._table(), self._steps(emissions, mask)
        flat, size = ops.reshape(table, (-1,)), self.num_labels + 1
        labels = ops.clip(ops.cast(labels, "int32"), 0, self.num_labels - 1)
        chosen = ops.take_along_axis(ops.cast(emissions, "float32"), labels[:, :, None], axis=2)[:, :, 0]

        def step(carry, now):
            previous, total = carry
            label, emission, counting = ops.cast(now[:, 0], "int32"), now[:, 1], now[:, 2] > 0
            more = ops.take(flat, previous * size + label) + emission
            carry = (ops.where(counting, label, previous), total + ops.where(counting, more, 0.0))
            return carry, carry

        border = ops.zeros_like(labels[:, 0]) + self.num_labels
        start = (border, ops.zeros_like(chosen[:, 0]))
        (last, total), _ = ops.scan(step, start, _packed(ops.transpose(labels), ops.transpose(chosen), counts))
        return total + ops.take(flat, last * size + self.num_labels)

    def log_partition(self, emissions: Tensor, mask: Tensor | None = None) -> Tensor:
        """The logarithm of the sum of e^score over all sequences of labels, float32 (batch,).

        Args:
            emissions, mask: As for `log_likelihood`.
        """
        table = self._table()
        last, _, _ = self._forward(emissions, mask, table)
        return ops.logsumexp(last + table[:, -1], axis=-1)

    def marginals(self, emissions: Tensor, mask: Tensor | None = None) -> Tensor:
        """The probability of each label at each position, given the emissions: float32 (batch, length, labels).

        Positions that the mask leaves out hold those of the position before.

        Args:
            emissions, mask: As for `log_likelihood`.
        """
        table, (values, counts) = self._table(), self._steps(emissions, mask)
        last, _, alphas = self._forward(emissions, mask, table)
        whole = ops.logsumexp(last + table[:, -1], axis=-1)

        def step(beta, now):
            value, counting = now[:, :-1], now[:, -1:] > 0
            earlier = ops.logsumexp(table[None] + (value + beta)[:, None, :], axis=-1)
            return ops.where(counting, earlier, beta), beta

        end = ops.zeros_like(last) + table[:, -1]
        _, betas = ops.scan(step, end, _packed(values, counts), reverse=True)
        logs = ops.transpose(alphas + betas, (1, 0, 2)) - whole[:, None, None]
        return ops.exp(logs[:, :, : self.num_labels])

    def viterbi(self, emissions: Tensor, mask: Tensor | None = None) -> Tensor:
        """The sequence of labels with the highest score, int32 (batch, length); -1 where the mask is 0.

        Args:
            emissions, mask: As for `log_likelihood`.
        """
        table, (_, counts) = self._table(), self._steps(emissions, mask)
        last, before, _ = self._forward(emissions, mask, table, best=True)
        to = ops.transpose(table)

        def step(label, now):
            earlier, counting = now[:, :-1], now[:, -1] > 0
            previous = ops.cast(ops.argmax(earlier + ops.take(to, label, axis=0), axis=-1), "int32")
            return ops.where(counting, previous, label), label

        final = ops.cast(ops.argmax(last + table[:, -1], axis=-1), "int32")
        _, labels = ops.scan(step, final, _packed(before, counts), reverse=True)
        return ops.transpose(ops.where(counts, labels, -1))

    def score_table(self) -> np.ndarray:
        """The scores of transitions with what forbids some of them, float32 (labels + 1, labels + 1)."""
        return ops.convert_to_numpy(self._table())

    def _forward(self, emissions, mask, table, best: bool = False):
        """Log-sums of the scores of all paths to each label: after the last position (batch, labels + 1), and before
        and after each position (length, batch, labels + 1); with `best` the scores of the best path."""
        values, counts = self._steps(emissions, mask)

        def step(alpha, now):
            value, counting = now[:, :-1], now[:, -1:] > 0
            ways = alpha[:, :, None] + table[None]
            ways = ops.amax(ways, axis=1) if best else ops.logsumexp(ways, axis=1)
            alpha = ops.where(counting, ways + value, alpha)
            return alpha, alpha

        first = np.full(self.num_labels + 1, IMPOSSIBLE, dtype="float32")
        first[-1] = 0.0  # every sequence comes from the border
        first = ops.add(ops.zeros_like(values[0]), first)
        last, alphas = ops.scan(step, first, _packed(values, counts))
        return last, ops.concatenate([first[None], alphas[:-1]], axis=0), alphas

    def _steps(self, emissions, mask):
        """Emissions with the border as one more label, (length, batch, labels + 1), and the mask (length, batch)."""
        emissions = ops.cast(emissions, "float32")
        border = ops.full_like(emissions[:, :, :1], IMPOSSIBLE)
        values = ops.transpose(ops.concatenate([emissions, border], axis=-1), (1, 0, 2))
        counts = ops.ones_like(emissions[:, :, 0]) if mask is None else mask
        return values, ops.cast(ops.transpose(counts), "bool")

    def _table(self):
        keep = np.ones_like(self._penalty)
        keep[-1, -1] = 0.0  # a sequence without positions has score 0
        return ops.multiply(ops.add(self.transitions, self._penalty), keep)


def _packed(*columns: Tensor) -> Tensor:
    """One float tensor (length, batch, …) to scan over: on TensorFlow, Keras can't scan over several of unknown
    length."""
    wide = [ops.cast(x if len(x.shape) == 3 else x[:, :, None], "float32") for x in columns]
    return ops.concatenate(wide, axis=-1)
