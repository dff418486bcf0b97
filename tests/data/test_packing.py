import csv
import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
from encoded_rows import labelled, make_encoded, rows_of

from bertzoo.data.packed_batches import PackedDataset, pack_predictions
from bertzoo.data.packing import PackedShape, assign_rows, packing_arrays
from bertzoo.text.encoded import Encoded
from bertzoo.text.tokenizer import Tokenizer

pytestmark = pytest.mark.once


def unpacked(x) -> np.ndarray:
    """The token ids of the padded batch, put together again from the packed rows alone."""
    if "packing" not in x:  # a text alone
        return x["token_ids"]
    tokens = np.where(x["packing"] >= 0, x["token_ids"].ravel()[x["packing"]], -1).ravel()
    out = np.zeros_like(x["token_ids"])
    for row, (start, length) in enumerate(zip(x["text_starts"].ravel(), x["lengths"].ravel())):
        out.reshape(-1, out.shape[-1])[row, :length] = tokens[start : start + length]
    return out


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("rows", [1, 5, 32, 33, 100, 517])
def test_every_row_once_an_epoch_in_few_shapes(rows, shuffle):
    encoded = make_encoded(rows, seed=rows)
    data = PackedDataset(encoded, transform=labelled(np.arange(rows)), batch_size=16, shuffle=shuffle)
    shapes, epochs = set(), []
    for epoch in range(6):
        data.epoch = epoch
        batches = list(data)
        epochs.append([rows_of(batch) for batch in batches])
        assert sorted(row for batch in batches for row in rows_of(batch)) == list(range(rows))
        assert len(batches) == -(-rows // 16) and sum(len(rows_of(batch)) < 16 for batch in batches) <= 1
        shapes |= {x["packing"].shape for x, _ in batches if len(x["lengths"]) == 16}
        assert all(("packing" in x) == (rows > 1) for x, _ in batches)
        for x, labels in batches:
            assert rows_of((x,)) == labels.tolist()
            np.testing.assert_array_equal(x["lengths"], encoded.lengths[labels])
            np.testing.assert_array_equal(unpacked(x), x["token_ids"] * x["padding_mask"])
            assert rows == 1 or (x["packing"] >= 0).sum() == x["lengths"].sum()
        for index in range(len(data)):  # looked at from another epoch, a batch is what it is when it is served
            other = data.peek_batch((epoch + 1) % 6, index)
            assert len(epochs) <= (epoch + 1) % 6 or rows_of(other) == epochs[(epoch + 1) % 6][index]
    assert len(shapes) <= 4
    assert (epochs[0] != epochs[1]) == (shuffle and rows > 1)
    if not shuffle:
        assert [row for batch in epochs[0] for row in batch] == list(range(rows))


def test_the_order_is_that_of_a_plain_shuffle():
    data = PackedDataset(make_encoded(500), batch_size=16, seed=7)
    for epoch in range(3):
        data.epoch = epoch
        order = np.random.Generator(np.random.Philox(key=[7, epoch])).permutation(500)
        assert [row for batch in data for row in rows_of(batch)] == order.tolist()


@pytest.mark.parametrize("longest", [1, 8, 60])
def test_rows_hold_every_text_once_and_no_more_than_fits(longest):
    lengths = np.random.default_rng(longest).integers(1, longest + 1, 200)
    rows = assign_rows(lengths, 64)
    assert sorted(text for row in rows for text in row) == list(range(200))
    assert all(lengths[row].sum() <= 64 for row in rows)
    assert len(rows) <= 11 / 9 * np.ceil(lengths.sum() / 64) + 1  # Johnson 1973, for decreasing lengths


def test_devices_share_no_rows():
    lengths = np.array([[5, 2], [3, 3], [8, 1], [1, 1]])
    arrays = packing_arrays(lengths, 10, PackedShape(8, (3, 6)), num_groups=2)
    rows = arrays["packing"]
    texts = np.where(rows >= 0, rows // 10, -1)
    assert (
        rows.shape == (6, 8)
        and set(texts[:3].ravel()) <= {-1, 0, 1, 2, 3}
        and set(texts[3:].ravel()) <= {-1, 4, 5, 6, 7}
    )
    starts = arrays["text_starts"]
    assert starts.shape == lengths.shape
    np.testing.assert_array_equal(rows.ravel()[starts.ravel()], np.arange(8) * 10)


def test_masked_tokens_take_as_much_room_as_there_are():
    """All of them once, with their labels and weights, whatever text they are laid beside."""
    lengths, rng = np.array([9, 2, 5, 3]), np.random.default_rng(0)
    inputs = {"lengths": lengths, **packing_arrays(lengths, 10, PackedShape(10, (2,)))}
    inputs["mask_positions"] = np.array([[1, 4, 8], [1, 0, 0], [2, 3, 0], [0, 0, 0]])
    weights = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 0], [0, 0, 0]], "float32")
    labels = rng.integers(1, 50, weights.shape)

    def predictions(inputs, labels, weights):
        places = inputs["text_starts"][:, None] + inputs["mask_positions"]
        tokens = inputs["packing"].ravel()[places]
        return sorted(zip(tokens[weights > 0].tolist(), labels[weights > 0].tolist()))

    fewer = pack_predictions(inputs, labels, weights, 2)
    assert fewer[0]["mask_positions"].shape == fewer[1].shape == fewer[2].shape == (4, 2)
    assert predictions(*fewer) == predictions(inputs, labels, weights)
    assert fewer[2].sum() == weights.sum() == 6
    assert pack_predictions(inputs, labels, weights, 1)[1] is labels  # no room for six


def test_a_batch_that_needs_more_rows_than_any_that_was_drawn():
    shape = PackedShape(8, (2, 3))
    assert [shape.num_rows(needed) for needed in (1, 2, 3, 5)] == [2, 2, 3, 5]
    assert packing_arrays(np.full(5, 8), 8, shape)["packing"].shape == (5, 8)


def test_texts_of_one_length_are_not_packed():
    ids = np.full(100 * 8, 5, np.int32)
    encoded = Encoded(ids, np.zeros(800, np.int8), np.arange(101) * 8)
    data = PackedDataset(encoded, batch_size=16)
    assert all(x.keys() == {"token_ids", "segment_ids", "padding_mask", "lengths"} for (x,) in data)
    assert data.padding_efficiency == 1.0


def test_no_rows():
    with pytest.raises(ValueError, match="no rows"):
        PackedDataset(make_encoded(0))


def data_folder() -> Path:
    folder = Path(os.environ.get("BERTZOO_DATA", Path(__file__).parents[3] / "shared" / "data"))
    if not (folder / "stsb" / "train.tsv").is_file():
        pytest.skip("the data sets are not here: set BERTZOO_DATA")
    return folder


def read_columns(path: Path, *names: str) -> list[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [[row[name] for row in rows] for name in names]


def squad_pairs(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    pairs = [(qa["question"], paragraph["context"]) for paragraph in paragraphs for qa in paragraph["qas"]]
    return [list(column) for column in zip(*pairs)]


@pytest.mark.slow
@pytest.mark.parametrize(("batch_size", "at_least"), [(32, 0.90), (128, 0.95)])
@pytest.mark.parametrize("name", ["sst2", "stsb", "squad"])
def test_share_of_real_tokens(minilm, name, batch_size, at_least):
    folder, tokenizer = data_folder(), Tokenizer.from_directory(minilm)
    if name == "sst2":  # every fourth row keeps the distribution and the test short
        encoded = tokenizer.encode(read_columns(folder / "sst2" / "train.tsv.gz", "sentence")[0][::4])
    elif name == "stsb":
        encoded = tokenizer.encode(*read_columns(folder / "stsb" / "train.tsv", "sentence1", "sentence2"))
    else:
        encoded = tokenizer.encode(*squad_pairs(folder / "squad" / "train.json.gz"), max_length=384)
    data = PackedDataset(encoded, batch_size=batch_size)
    batches = [x["packing"] for (x,) in data if len(x["lengths"]) == batch_size]
    fraction = sum(int((rows >= 0).sum()) for rows in batches) / sum(rows.size for rows in batches)
    assert fraction >= at_least
    assert fraction == pytest.approx(data.padding_efficiency, abs=0.003)  # which counts the smaller batch too
    assert len({rows.shape for rows in batches}) <= 4


def test_rows_that_share_a_text_do_not_meet():
    """All rows once, batches as large as ever, none with a number twice while another batch has room."""
    rng = np.random.default_rng(0)
    numbers = np.stack([rng.integers(0, 40, 200), 40 + rng.integers(0, 150, 200)], axis=1)
    data = PackedDataset(make_encoded(200), batch_size=16, keep_apart_ids=numbers, seed=1)
    orders = []
    for _ in range(3):
        plan = data._plan
        assert sorted(np.concatenate(plan)) == list(range(200))
        assert sorted(map(len, plan)) == [8, *[16] * 12]
        for rows in plan:
            assert all(len(set(column)) == len(column) for column in numbers[rows].T)
        orders.append(data.row_order.tolist())
        data.epoch += 1
    assert len({str(order) for order in orders}) == 3
    same = PackedDataset(make_encoded(6), batch_size=3, keep_apart_ids=np.zeros((6, 1), int))
    assert sorted(same.row_order) == list(range(6))  # where all are alike, they meet
