"""Rows masked once, for evaluation: what is guessed of a row does not depend on the batch that it is in."""

import numpy as np

from bertzoo.text.encoded import Encoded, row_splits_from
from bertzoo.text.masking import Masking

AT_ONCE = 256


class MaskedRows:
    """Rows of tokens with masks that their order and the seed fix.

    `rows` are the masked ones; `batch` makes a batch of them, as `BucketedDataset` calls its `transform`.

    Args:
        masking: The rule.
        encoded: The rows.
        pad_id: What they are filled up with.
        seed: Of the draws.
    """

    def __init__(self, masking: Masking, encoded: Encoded, pad_id: int, seed: int):
        self.masking = masking
        ids, places, labels, counts = encoded.token_ids.copy(), [], [], []
        for begin in range(0, len(encoded), AT_ONCE):
            rows = np.arange(begin, min(begin + AT_ONCE, len(encoded)))
            padded = encoded.pad(rows, int(encoded.lengths[rows].max()), pad_id)
            rng = np.random.Generator(np.random.Philox(key=[seed, begin]))
            masked, guessed, weights = masking(padded, rng)
            ids[encoded.row_splits[begin] : encoded.row_splits[rows[-1] + 1]] = masked["token_ids"][
                padded["padding_mask"] > 0
            ]
            counted = weights > 0
            counts.append(counted.sum(axis=1))
            places.append(masked["mask_positions"][counted])
            labels.append(guessed[counted])
        self.rows = Encoded(ids, encoded.segment_ids, encoded.row_splits)
        self.places, self.labels = np.concatenate(places), np.concatenate(labels)
        self.row_splits = row_splits_from(np.concatenate(counts))

    def batch(self, inputs: dict[str, np.ndarray], rows: np.ndarray, rng=None) -> tuple[dict, np.ndarray, np.ndarray]:
        """Padded rows and their numbers -> inputs, labels and weights, as `Masking` gives them."""
        counts = self.row_splits[rows + 1] - self.row_splits[rows]
        slots = np.arange(self.masking.slots(inputs["token_ids"].shape[1]))
        counted = slots < counts[:, None]
        index = np.where(counted, self.row_splits[rows][:, None] + slots, 0)
        places, labels = (np.where(counted, flat[index], 0).astype("int32") for flat in (self.places, self.labels))
        return {**inputs, "mask_positions": places}, labels, counted.astype("float32")
