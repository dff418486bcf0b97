"""The CRF against sums and maxima over every sequence of labels."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from bertzoo.layers import CRF

LABELS, LENGTH, BATCH = 3, 5, 6
BORDER = LABELS
FORBIDDEN = [(0, 2), (BORDER, 2), (1, BORDER)]
# Rows that are whole, cut, holed, led by a gap, of one position, empty.
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 1, 0, 1], [0, 1, 1, 1, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]])


@pytest.fixture(scope="module", params=[(), FORBIDDEN], ids=["free", "forbidden"])
def case(request):
    rng = np.random.default_rng(0)
    layer = CRF(LABELS, request.param)
    layer.build()
    layer.transitions.assign(rng.normal(size=(LABELS + 1, LABELS + 1)))
    return layer, rng.normal(size=(BATCH, LENGTH, LABELS)).astype("float32") * 2, set(request.param)


def every_sequence(layer, emissions, mask, forbidden):
    """Allowed sequences of labels over the positions that count, with their scores."""
    table, rows = ops.convert_to_numpy(layer.transitions).astype("float64"), emissions[mask > 0].astype("float64")
    for labels in itertools.product(range(LABELS), repeat=len(rows)):
        path = [BORDER, *labels, BORDER]
        steps = list(itertools.pairwise(path)) if labels else []
        if not forbidden & set(steps):
            yield labels, sum(table[step] for step in steps) + sum(row[label] for row, label in zip(rows, labels))


def test_partition_likelihood_and_marginals_are_sums_over_all_sequences(case):
    layer, emissions, forbidden = case
    partition = ops.convert_to_numpy(layer.log_partition(emissions, MASK))
    marginals = ops.convert_to_numpy(layer.marginals(emissions, MASK))
    sampled = []
    for row in range(BATCH):
        sequences = list(every_sequence(layer, emissions[row], MASK[row], forbidden))
        scores = np.array([score for _, score in sequences])
        total = np.logaddexp.reduce(scores)
        assert partition[row] == pytest.approx(total, abs=1e-4)
        for labels, score in sequences[:: max(1, len(sequences) // 7)]:
            full = np.zeros(LENGTH, dtype="int32")
            full[MASK[row] > 0] = labels
            sampled.append((row, full, score - total))
        for index, position in enumerate(np.flatnonzero(MASK[row])):
            for label in range(LABELS):
                weight = sum(np.exp(s - total) for labels, s in sequences if labels[index] == label)
                assert marginals[row, position, label] == pytest.approx(weight, abs=1e-4)
    # All at once, since JAX compiles the loop over positions anew in each call.
    rows, labels, expected = (np.array(column) for column in zip(*sampled))
    likelihoods = ops.convert_to_numpy(layer.log_likelihood(emissions[rows], labels, MASK[rows]))
    assert likelihoods == pytest.approx(expected, abs=1e-4)


def test_viterbi_is_the_best_of_all_sequences(case):
    layer, emissions, forbidden = case
    actual = ops.convert_to_numpy(layer(emissions, MASK))
    for row in range(BATCH):
        best = max(every_sequence(layer, emissions[row], MASK[row], forbidden), key=lambda pair: pair[1])[0]
        assert tuple(actual[row][MASK[row] > 0]) == best
        assert (actual[row][MASK[row] == 0] == -1).all()


def test_forbidden_transitions_stay_forbidden_however_strong_the_emissions():
    layer = CRF(LABELS, FORBIDDEN)
    layer.build()
    emissions = np.zeros((1, 3, LABELS), dtype="float32")
    emissions[..., 2] = 50.0
    labels = ops.convert_to_numpy(layer.viterbi(emissions))[0].tolist()
    assert not set(FORBIDDEN) & set(zip([BORDER, *labels], [*labels, BORDER]))


def test_a_long_sequence_stays_exact_and_shuffling_padding_changes_nothing():
    layer = CRF(LABELS)
    layer.build()
    emissions = np.random.default_rng(1).normal(size=(1, 600, LABELS)).astype("float32") * 5
    # Without transitions positions are independent.
    expected = np.logaddexp.reduce(emissions.astype("float64"), axis=-1).sum()
    assert float(layer.log_partition(emissions)[0]) == pytest.approx(expected, rel=1e-5)


def test_it_learns_that_one_label_follows_another():
    """Emissions say nothing: only transitions can tell 0 1 0 1 from other sequences, and fit must reach them."""

    @keras.saving.register_keras_serializable("test_crf")
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.crf = CRF(2)
            self.crf.build()

        def call(self, x):
            return x

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return -ops.mean(self.crf.log_likelihood(y_pred, y))

    model = Model()
    model.compile(keras.optimizers.Adam(0.3))
    x, y = np.zeros((8, 6, 2), "float32"), np.tile([0, 1], (8, 3)).astype("int32")
    losses = model.fit(x, y, epochs=25, verbose=0).history["loss"]
    assert losses[0] == pytest.approx(6 * np.log(2), abs=1e-3) and losses[-1] < 0.5
    assert ops.convert_to_numpy(model.crf(x[:1]))[0].tolist() == [0, 1] * 3


def test_errors_and_config():
    with pytest.raises(ValueError, match="from 0 to 3"):
        CRF(3, [(0, 4)])
    layer = CRF.from_config(CRF(3, [(0, 2)]).get_config())
    assert layer.forbidden_transitions == [(0, 2)] and layer.num_labels == 3
