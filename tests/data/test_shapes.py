import keras
import numpy as np
import pytest

from bertzoo.data import batch_shapes as shapes
from bertzoo.data import packing
from bertzoo.data.packed_batches import PackedDataset
from bertzoo.text.encoded import Encoded, lengths_to_row_splits
from bertzoo.text.masking import Masking


@pytest.mark.once
def test_a_small_set_on_an_accelerator_is_not_all_padded_to_its_longest_row(monkeypatch):
    monkeypatch.setattr(shapes, "accelerator_name", lambda: "NVIDIA H200")
    lengths = np.minimum(np.random.default_rng(0).geometric(0.05, 3001), 128)  # a left-over batch too
    starts = lengths_to_row_splits(lengths)
    encoded = Encoded(np.ones(starts[-1], np.int32), np.zeros(starts[-1], np.int8), starts)
    allowed = shapes.choose_max_shapes(3001, 64)
    data = PackedDataset(encoded, batch_size=64, max_shapes=allowed)
    shapes_of_epochs = {data.peek_batch(epoch, i)[0]["packing"].shape for epoch in range(3) for i in range(len(data))}
    assert len(shapes_of_epochs) <= allowed + 1 == 3
    assert data.padding_efficiency > 0.8


@pytest.mark.once
@pytest.mark.parametrize("device", [None, "NVIDIA H200"])
def test_training_has_the_same_shapes_on_every_backend_and_few(monkeypatch, device):
    monkeypatch.setattr(shapes, "accelerator_name", lambda: device)

    def counts():
        return [shapes.choose_max_shapes(rows, 32) for rows in (1, 1000, 10_000, 10**6)]

    here = counts()
    assert here == sorted(here) and here[0] == 2 and here[-1] == 4
    for backend in ("jax", "torch", "tensorflow"):
        monkeypatch.setattr(keras.backend, "backend", lambda backend=backend: backend)
        assert counts() == here


@pytest.mark.once
@pytest.mark.parametrize("predictions_per_token", [None, 0.15])
def test_example_batches_have_every_shape_that_an_epoch_may_have(monkeypatch, predictions_per_token):
    monkeypatch.setattr(packing, "accelerator_name", lambda: "NVIDIA H200")
    lengths = np.minimum(np.random.default_rng(0).geometric(0.03, 1010), 128)
    starts = lengths_to_row_splits(lengths)
    encoded = Encoded(np.ones(starts[-1], np.int32), np.zeros(starts[-1], np.int8), starts)
    options = {}
    if predictions_per_token is not None:
        masking = Masking(vocab_size=300, mask_id=4, special_ids=(0,))
        options = {"transform": lambda inputs, rows, rng: masking(inputs, rng), "predictions_per_token": 0.15}
    data = PackedDataset(encoded, batch_size=16, max_shapes=2, **options)

    def shapes_of(batch):
        return tuple(array.shape for array in keras.tree.flatten(batch))

    examples = set(map(shapes_of, data.example_batches()))
    assert len(examples) == len(data.shape.row_counts) + 1 == 3  # the last batch is smaller
    assert {shapes_of(data.peek_batch(epoch, i)) for epoch in range(4) for i in range(len(data))} <= examples
