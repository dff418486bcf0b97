import keras
import numpy as np
import pytest

from bertzoo.data import batch_shapes as shapes
from bertzoo.data.batches import BucketedDataset
from bertzoo.text.encoded import Encoded, lengths_to_row_splits


@pytest.mark.once
def test_a_small_set_on_an_accelerator_is_not_all_padded_to_its_longest_row(monkeypatch):
    monkeypatch.setattr(shapes, "accelerator_name", lambda: "NVIDIA H200")
    lengths = np.minimum(np.random.default_rng(0).geometric(0.05, 3001), 128)  # a left-over batch too
    starts = lengths_to_row_splits(lengths)
    encoded = Encoded(np.ones(starts[-1], np.int32), np.zeros(starts[-1], np.int8), starts)
    allowed = shapes.choose_num_buckets(3001, 64, training=True)
    data = BucketedDataset(encoded, batch_size=64, num_buckets=allowed)
    assert len({x["token_ids"].shape for (x,) in data}) <= allowed <= 3
    assert data.padding_efficiency > 2 * lengths.mean() / lengths.max()


@pytest.mark.once
@pytest.mark.parametrize("device", [None, "NVIDIA H200"])
def test_training_has_the_same_shapes_on_every_backend_and_few(monkeypatch, device):
    monkeypatch.setattr(shapes, "accelerator_name", lambda: device)

    def counts():
        return [shapes.choose_num_buckets(rows, 32, training=True) for rows in (1, 1000, 10_000, 10**6)]

    here = counts()
    assert here == sorted(here) and here[0] <= 3 and here[-1] == 8
    for backend in ("jax", "torch", "tensorflow"):
        monkeypatch.setattr(keras.backend, "backend", lambda backend=backend: backend)
        assert counts() == here
