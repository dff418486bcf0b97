"""Token rows by the Rust library, in chunks."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from bertzoo.text.encoded import Encoded, lengths_to_row_splits, no_garbage_collection

if TYPE_CHECKING:  # imported on first use, since the package is slow to load
    import tokenizers

# The library's objects take some kilobytes a row until they are flattened.
_CHUNK = 8192


def encode_rows(
    rust: tokenizers.Tokenizer, rows: list, with_offsets: bool, with_segments: bool, **options: bool
) -> Encoded:
    """Rows of tokens, truncated as `rust` is set.

    Args:
        rust: The library's tokenizer.
        rows: Texts, pairs of texts, or lists of words.
        with_offsets: Whether to add character offsets and word ids.
        with_segments: Whether a row has segments; where not, all segment ids are 0.
        options: Those of `tokenizers.Tokenizer.encode_batch`.

    Raises:
        TypeError: A row is of another type, or no valid Unicode text.
    """
    begins = range(0, len(rows) or 1, _CHUNK)
    chunks = (rows[i : i + _CHUNK] for i in begins)
    return Encoded.concatenate([_encode_chunk(rust, chunk, with_offsets, with_segments, options) for chunk in chunks])


@no_garbage_collection()
def _encode_chunk(
    rust: tokenizers.Tokenizer, rows: list, with_offsets: bool, with_segments: bool, options: dict[str, bool]
) -> Encoded:
    encode_batch = rust.encode_batch if with_offsets else rust.encode_batch_fast
    encodings = encode_batch(rows, **options)
    lengths = np.fromiter((len(e) for e in encodings), np.int64, len(encodings))
    total = int(lengths.sum())
    ids = np.fromiter(chain.from_iterable(e.ids for e in encodings), np.int32, total)
    types = np.zeros(total, np.int8)
    if with_segments:
        types = np.fromiter(chain.from_iterable(e.type_ids for e in encodings), np.int8, total)
    if not with_offsets:
        return Encoded(ids, types, lengths_to_row_splits(lengths))
    ranges = chain.from_iterable(e.offsets for e in encodings)
    spans = np.fromiter(chain.from_iterable(ranges), np.int32, 2 * total)
    words = np.fromiter((-1 if word is None else word for e in encodings for word in e.word_ids), np.int32, total)
    return Encoded(ids, types, lengths_to_row_splits(lengths), spans.reshape(total, 2), words)
