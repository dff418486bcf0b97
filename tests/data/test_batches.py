import keras
import numpy as np
import pytest
from encoded_rows import labelled, make_encoded, rows_of

from bertzoo.data.batch_shapes import choose_padded_lengths
from bertzoo.data.batches import BucketedDataset
from bertzoo.data.packed_batches import PackedDataset


def zeros(rows):
    return labelled(np.zeros((rows, 1), "float32"))


def read_epoch(data) -> list[list[int]]:
    return [rows_of(data[i]) for i in range(len(data))]


@pytest.mark.once
@pytest.mark.parametrize("rows", [1, 5, 32, 33, 100, 517])
def test_every_row_once_in_few_shapes(rows):
    encoded = make_encoded(rows, seed=rows)
    data = BucketedDataset(encoded, transform=labelled(np.arange(rows)), batch_size=16, num_buckets=5)
    batches = list(data)
    assert len(batches) == len(data) == -(-rows // 16)
    assert sorted(row for batch in batches for row in rows_of(batch)) == list(range(rows))
    assert all(rows_of(batch) == batch[1].tolist() for batch in batches)
    assert sum(len(rows_of(batch)) < 16 for batch in batches) <= 1
    for x, _ in batches:
        np.testing.assert_array_equal(x["padding_mask"].sum(1), encoded.lengths[x["token_ids"][:, 0] - 1])
    assert len({batch[0]["token_ids"].shape for batch in batches}) <= 5
    data.epoch = 1
    assert read_epoch(data) == [rows_of(batch) for batch in batches]


@pytest.mark.once
def test_rows_in_a_batch_are_of_like_length():
    data = BucketedDataset(make_encoded(5000), batch_size=32)
    for (x,) in data:
        bucket = np.searchsorted(data.lengths, x["padding_mask"].sum(1))
        assert bucket.max() - bucket.min() <= 1 or len(bucket) < 32


@pytest.mark.once
def test_left_overs_alone_reach_a_larger_length():
    data = BucketedDataset(make_encoded(5000), batch_size=32)
    mixed = [len(set(np.searchsorted(data.lengths, x["padding_mask"].sum(1)))) > 1 for (x,) in data]
    assert sum(mixed) <= len(data.lengths) - 1


@pytest.mark.once
def test_hardly_any_padding_where_any_shape_will_do():
    encoded = make_encoded(3000)
    data = BucketedDataset(encoded, batch_size=64, num_buckets=None, max_tokens=512)
    batches = [x for (x,) in data]
    assert len(batches) == len(data)
    assert sorted(row for x in batches for row in rows_of((x,))) == list(range(3000))
    for x in batches:
        rows, length = x["token_ids"].shape
        lengths = encoded.lengths[x["token_ids"][:, 0] - 1]
        assert rows <= 64 and x["token_ids"].size <= 512 and length == lengths.max()
        assert rows * length - lengths.sum() <= 64
        assert ("padding_mask" in x) == (lengths.min() < length)
    assert data.padding_efficiency > 0.98
    assert data.unsort(np.concatenate([x["token_ids"][:, 0] for x in batches])).tolist() == list(range(1, 3001))


@pytest.mark.once
def test_a_row_longer_than_the_tokens_of_a_batch_is_alone():
    data = BucketedDataset(make_encoded(40), batch_size=8, num_buckets=None, max_tokens=1)
    assert [len(x["token_ids"]) for (x,) in data] == [1] * 40


@pytest.mark.once
def test_transform_has_its_own_generator_for_each_batch():
    def transform(inputs, rows, rng):
        return inputs, rows, rng.random(4)

    data = PackedDataset(make_encoded(80), batch_size=8, transform=transform)
    draws = {epoch: [] for epoch in (0, 1)}
    for epoch, kept in draws.items():
        data.epoch = epoch
        for index in reversed(range(len(data))):
            batch = data[index]
            assert rows_of(batch) == batch[1].tolist()
            kept.append(batch[2])
    assert len(np.unique(np.concatenate([*draws[0], *draws[1]]))) == 80  # 2 epochs x 10 batches x 4
    data.epoch = 0
    np.testing.assert_array_equal(data[3][2], draws[0][len(data) - 1 - 3])


@pytest.mark.once
def test_restore_brings_outputs_back():
    data = BucketedDataset(make_encoded(75), batch_size=8)
    outputs = np.concatenate([x["token_ids"][:, :1] for (x,) in data])
    restored = data.unsort({"a": outputs, "b": outputs[:, 0]})
    assert restored["a"][:, 0].tolist() == restored["b"].tolist() == list(range(1, 76))
    with pytest.raises(ValueError, match="3 rows, the data set has 75"):
        data.unsort(outputs[:3])


@pytest.mark.once
def test_lengths_stay_within_the_model():
    encoded = make_encoded(200, longest=50)
    assert choose_padded_lengths(encoded.lengths, 50)[-1] == 50
    assert choose_padded_lengths(encoded.lengths, 512)[-1] == 56
    assert BucketedDataset(encoded).lengths[-1] == 50


@pytest.mark.once
def test_one_shape_is_too_few():
    with pytest.raises(ValueError, match="num_buckets must be at least 2"):
        BucketedDataset(make_encoded(10), num_buckets=1)


@pytest.mark.once
def test_no_rows_is_an_error():
    with pytest.raises(ValueError, match="no rows"):
        BucketedDataset(make_encoded(0))


class FirstToken(keras.Model):
    """Predicts a row's first token, so that the loss of a batch against zero tells which rows were trained on."""

    def __init__(self):
        super().__init__()
        self.scale = keras.layers.Dense(1, kernel_initializer="ones")

    def call(self, inputs):
        first = keras.ops.cast(inputs["token_ids"][:, 0], "float32")
        return self.scale(keras.ops.expand_dims(first, -1) / 100.0)


class BatchLosses(keras.callbacks.Callback):
    """The running mean of the loss after each batch, epoch by epoch."""

    def __init__(self):
        super().__init__()
        self.epochs = []

    def on_epoch_begin(self, epoch, logs=None):
        self.epochs.append([])

    def on_train_batch_end(self, batch, logs=None):
        self.epochs[-1].append(float(logs["loss"]))


def compiled() -> FirstToken:
    model = FirstToken()
    model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    return model


def fit(data, model, callbacks=(), **arguments) -> list[list[float]]:
    losses = BatchLosses()
    model.fit(data, shuffle=False, verbose=0, callbacks=[losses, *callbacks], **arguments)
    return losses.epochs


def expected_losses(data, epoch: int) -> list[float]:
    data.epoch = epoch
    batches = read_epoch(data)
    squares, counts = np.array([[sum((row / 100 + 0.01) ** 2 for row in rows), len(rows)] for rows in batches]).T
    return (np.cumsum(squares) / np.cumsum(counts)).tolist()


@pytest.mark.parametrize("rows", [pytest.param(5, marks=pytest.mark.once), 20, 150])
def test_fit_trains_on_each_row_once_an_epoch_in_the_order_of_the_epoch(rows):
    data = PackedDataset(make_encoded(rows), transform=zeros(rows), batch_size=16)
    got = fit(data, compiled(), callbacks=[data.initial_epoch_callback(2)], initial_epoch=2, epochs=5)
    for epoch, losses in zip((2, 3, 4), got, strict=True):
        np.testing.assert_allclose(losses, expected_losses(data, epoch), rtol=1e-4)


def test_a_second_fit_goes_on_where_the_first_ended():
    data = PackedDataset(make_encoded(100), transform=zeros(100), batch_size=16)
    model = compiled()
    got = fit(data, model, epochs=1) + fit(data, model, epochs=2)
    for epoch, losses in enumerate(got):
        np.testing.assert_allclose(losses, expected_losses(data, epoch), rtol=1e-4)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_steps_per_epoch_does_not_break_a_pass():
    data = PackedDataset(make_encoded(150), transform=zeros(150), batch_size=16)  # 10 batches
    got = fit(data, compiled(), callbacks=[data.initial_epoch_callback(0)], steps_per_epoch=4, epochs=6)
    assert [len(losses) for losses in got] == [4, 4, 2, 4, 4, 2]
    np.testing.assert_allclose(got[0] + got[3], expected_losses(data, 0)[:4] + expected_losses(data, 1)[:4], rtol=1e-4)


def test_validation_does_not_move_and_predictions_can_be_put_in_order():
    data = PackedDataset(make_encoded(60), transform=zeros(60), batch_size=16)
    validation = BucketedDataset(make_encoded(40), transform=zeros(40), batch_size=16)
    before = validation.row_order.tolist()
    model = compiled()
    fit(data, model, validation_data=validation, epochs=2)
    assert validation.row_order.tolist() == before and validation.epoch == 0
    outputs = validation.unsort(model.predict(validation, verbose=0))
    np.testing.assert_allclose(outputs[:, 0], np.arange(1, 41) / 100, rtol=1e-5)
