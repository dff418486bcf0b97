"""The shapes of batches: which padded lengths waste little, how many are worth compiling, what fits a device."""

import keras
import numpy as np

from bertzoo.backend import accelerator_name

FREE_PADDING = 64  # tokens: about what one more batch costs beside its tokens, on a CPU


def choose_padded_lengths(
    row_lengths: np.ndarray,
    max_length: int,
    max_count: int = 7,
    pad_to_multiple_of: int = 8,
    tolerance: float = 0.01,
) -> np.ndarray:
    """The padded lengths, ascending, that make the fewest tokens of padding when every row takes the next one up.

    row_lengths: (n,) tokens of each row. Candidates are the multiples of `pad_to_multiple_of` (matrix units work on
    tiles of eight), except that none is over `max_length`. Exact, by dynamic programming over the histogram of lengths,
    O(max_count * L^2) for L candidates. Of at most `max_count` lengths, as few are taken as come within `tolerance` of
    the best token count, because each is compiled once. Raises `ValueError` for no rows.
    """
    row_lengths = np.asarray(row_lengths)
    if len(row_lengths) == 0:
        raise ValueError("there are no rows to choose padded lengths for.")
    rounded = np.minimum(-(-np.maximum(row_lengths, 1) // pad_to_multiple_of) * pad_to_multiple_of, max_length)
    candidates, rows = np.unique(rounded, return_counts=True)
    tokens, previous = _fewest_tokens(candidates, np.concatenate([[0], np.cumsum(rows)]), max_count)
    enough = int(np.argmax(tokens <= tokens[-1] * (1 + tolerance)))  # an index: this many lengths less one
    chosen, end = [], len(candidates)
    for number in range(enough, -1, -1):
        chosen.append(candidates[end - 1])
        end = previous[number][end]
    return np.array(chosen[::-1], dtype=np.int64)


def _fewest_tokens(candidates: np.ndarray, rows_up_to: np.ndarray, count: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Tokens computed with exactly 1, 2, … lengths, and for each number where the last length's span begins."""
    size = len(candidates)
    cost = np.full((size + 1, size + 1), np.inf)  # [i, j]: candidates i..j-1 all padded to candidate j-1
    for j in range(1, size + 1):
        cost[:j, j] = (rows_up_to[j] - rows_up_to[:j]) * candidates[j - 1]
    best = np.full(size + 1, np.inf)
    best[0] = 0.0
    tokens, previous = [], []
    for _ in range(min(count, size)):
        through = best[:, None] + cost
        previous.append(through.argmin(axis=0))
        best = through.min(axis=0)
        tokens.append(best[size])
    return np.array(tokens), previous


def batch_starts(sorted_lengths: np.ndarray, max_rows: int, max_tokens: int) -> np.ndarray:
    """Where the batches start that cut rows of ascending `sorted_lengths` so that those of a batch are of almost one
    length: int64 (batches,).

    A batch ends before it would hold more than `max_rows` rows, more than `max_tokens` tokens with padding, or more
    than `FREE_PADDING` tokens of padding; each holds one row at least.
    """
    starts, start = [], 0
    count = np.arange(1, max_rows + 1)
    while start < len(sorted_lengths):
        starts.append(start)
        longest = sorted_lengths[start : start + max_rows]
        computed = count[: len(longest)] * longest
        fits = (computed <= max_tokens) & (computed - np.cumsum(longest) <= FREE_PADDING)
        start += max(1, int(fits.sum()))
    return np.array(starts, dtype=np.int64)


UNCOMPILED_TOKENS = 2048  # in a batch on a CPU: more no longer fit its caches, fewer no longer hide the calls' own time
# Tokens and texts, enough to keep a processor or an accelerator busy between the calls of one batch and the next.
AT_ONCE, AT_ONCE_ACCELERATED = (4096, 256), (2**17, 4096)


def check_batch_size(batch_size: int) -> None:
    """Raises ValueError where it is no whole number of at least 1."""
    if not isinstance(batch_size, (int, np.integer)) or isinstance(batch_size, bool) or batch_size < 1:
        raise ValueError(f"batch_size must be a whole number of at least 1. Received: {batch_size!r}.")


def choose_batch_size(row_lengths: np.ndarray) -> int:
    """How many texts make a good batch to predict from; lengths: (n,) their tokens."""
    tokens, most = AT_ONCE if accelerator_name() is None else AT_ONCE_ACCELERATED
    return int(np.clip(tokens / row_lengths.mean(), 8, most)) // 8 * 8


def choose_num_buckets_for_embedding(num_texts: int, batch_size: int) -> int | None:
    """As `choose_num_buckets`, to predict vectors; None where nothing is compiled, so that any shape will do.

    One more for about every 500 texts, however batched; an accelerator computes a little padding faster than another
    shape is compiled.
    """
    if keras.backend.backend() == "torch":
        return None
    return choose_num_buckets(num_texts, batch_size if accelerator_name() is not None else min(batch_size, 32))


def choose_num_buckets(num_rows: int, batch_size: int) -> int:
    """How many shapes of batch are worth compiling to predict, which JAX alone does."""
    return 8 if keras.backend.backend() != "jax" else min(8, 2 + _num_shapes_that_pay(num_rows, batch_size))


def choose_max_shapes(num_rows: int, batch_size: int) -> int:
    """How many shapes of packed batch are worth compiling to train, besides that of an epoch's smaller batch."""
    return min(4, 2 + _num_shapes_that_pay(num_rows, batch_size))


def _num_shapes_that_pay(num_rows: int, batch_size: int) -> int:
    # On JAX, compiling one costs as much as 20 steps on a CPU, a thousand of a small model on a GPU.
    return num_rows // ((16 if accelerator_name() is None else 1000) * batch_size)


def is_any_batch_shape_fast() -> bool:
    """Whether a shape of batch is as good as another, so that predictions can do with next to no padding."""
    return keras.backend.backend() == "torch" and accelerator_name() is None
