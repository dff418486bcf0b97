import numpy as np
import pytest

from bertzoo.text.encoded import Encoded, encoded_from_arrays, lengths_to_row_splits

pytestmark = pytest.mark.once


@pytest.fixture
def rows():
    return [[5, 6, 7], [], [8], [9, 10, 11, 12]]


def flat(rows, **extra) -> Encoded:
    ids = np.array([token for row in rows for token in row], np.int32)
    starts = lengths_to_row_splits(np.array([len(row) for row in rows], dtype=np.int64))
    return Encoded(ids, (ids % 2).astype(np.int8), starts, **extra)


def test_rows_and_lengths(rows):
    encoded = flat(rows)
    assert len(encoded) == 4 and encoded.lengths.tolist() == [3, 0, 1, 4]
    assert [encoded.row(i).tolist() for i in range(4)] == rows
    assert encoded.row(-1).tolist() == rows[-1]
    with pytest.raises(IndexError, match="row 4"):
        encoded.row(4)


def test_pad_against_a_plain_loop(rows):
    picked = [3, 1, 1, 0]
    batch = flat(rows).pad(picked, 5, pad_id=99)
    expected = np.full((4, 5), 99)
    for i, row in enumerate(picked):
        expected[i, : len(rows[row])] = rows[row]
    np.testing.assert_array_equal(batch["token_ids"], expected)
    np.testing.assert_array_equal(batch["padding_mask"], expected != 99)
    np.testing.assert_array_equal(batch["segment_ids"], np.where(expected != 99, expected % 2, 0))
    assert {array.dtype for array in batch.values()} == {np.dtype("int32")}


def test_pad_cuts_nothing_and_takes_no_rows(rows):
    with pytest.raises(ValueError, match="row 3 has 4 tokens and does not fit the padded length 3"):
        flat(rows).pad([0, 3], 3)
    assert flat(rows).pad([], 3)["token_ids"].shape == (0, 3)
    assert flat([[]]).pad([0], 2, pad_id=7)["token_ids"].tolist() == [[7, 7]]


def test_offsets_are_padded_with_zeros():
    encoded = flat([[1], [2, 3]], offsets=np.array([[0, 4], [1, 2], [3, 5]], np.int32))
    assert encoded.pad_offsets([0, 1], 2).tolist() == [[[0, 4], [0, 0]], [[1, 2], [3, 5]]]
    with pytest.raises(ValueError, match="return_offsets=True"):
        flat([[1]]).pad_offsets([0], 1)


def test_concatenate(rows):
    joined = Encoded.concatenate([flat(rows), flat([]), flat([[1, 2]])])
    assert [joined.row(i).tolist() for i in range(len(joined))] == [*rows, [1, 2]]
    assert joined.offsets is None
    with pytest.raises(ValueError, match="at least one"):
        Encoded.concatenate([])


def test_padded_arrays():
    ids = np.array([[5, 6, 7], [8, 9, 0]])
    arrays = {"token_ids": ids, "padding_mask": ids > 0}
    rows = encoded_from_arrays(arrays, 10)
    np.testing.assert_array_equal(rows.pad([0, 1], 3)["token_ids"], ids)
    for wrong, message in (
        ({**arrays, "attention_mask": ids}, "Received: .*attention_mask. Use padding_mask for attention_mask"),
        ({"padding_mask": ids}, "must hold token_ids"),
        ({**arrays, "padding_mask": ids[:, :2]}, "must have one shape"),
        ({**arrays, "padding_mask": ids[:, ::-1] > 0}, "1 at the front"),
        (-ids, "from 0 to 9, .* from -9 to 0"),
        (ids + 1, "from 1 to 10"),
    ):
        with pytest.raises(ValueError, match=message):
            encoded_from_arrays(wrong, 10)
