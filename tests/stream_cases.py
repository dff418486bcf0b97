"""Streams of texts, whose batches must be those that `fit` makes of lists."""

import keras
import numpy as np


class Stream(keras.utils.PyDataset):
    """Batches of raw texts."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def check_streams_of_texts(model, documents, name):
    """The inputs of a compiled retrieval model are the same; `name` is one of its own besides tokens and padding."""
    queries = ["good film", "dull , plot", "never"]
    data = model.data.batches((queries, documents), batch_size=3, shuffle=False, with_targets=True)
    (expected, *_) = data[0]
    (inputs, *_) = model.data.batches(Stream([((queries, documents),)]), steps=1)[0]
    for array in ("token_ids", "padding_mask", name):
        length = min(expected[array].shape[-1], inputs[array].shape[-1])
        np.testing.assert_array_equal(inputs[array][data.row_order][..., :length], expected[array][..., :length])
