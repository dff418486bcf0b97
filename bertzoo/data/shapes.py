"""What shapes of batch are good for a backend."""

import keras
import numpy as np

from bertzoo.accelerator import accelerator

UNCOMPILED_TOKENS = 2048  # in a batch on a CPU: more no longer fit its caches, fewer no longer hide the calls' own time
# Tokens and texts, enough to keep a processor or an accelerator busy between the calls of one batch and the next.
AT_ONCE, AT_ONCE_ACCELERATED = (4096, 256), (2**17, 4096)


def rows_at_once(lengths: np.ndarray) -> int:
    """How many texts make a good batch to predict from; lengths: (n,) their tokens."""
    tokens, most = AT_ONCE if accelerator() is None else AT_ONCE_ACCELERATED
    return int(np.clip(tokens / lengths.mean(), 8, most)) // 8 * 8


def shapes_of_texts(rows: int, batch_size: int) -> int | None:
    """As `shapes_for`, to predict vectors; None where nothing is compiled, so that any shape will do.

    One more for about every 500 texts, however batched; an accelerator computes a little padding faster than another
    shape is compiled.
    """
    if keras.backend.backend() == "torch":
        return None
    return shapes_for(rows, batch_size if accelerator() is not None else min(batch_size, 32), training=False)


def shapes_for(rows: int, batch_size: int, training: bool) -> int:
    """How many shapes of batch are worth compiling: on JAX, one costs as much as 20 steps on a CPU, hundreds on a GPU.

    Training takes the same batches on every backend, so that runs agree. Predictions need not, and JAX alone compiles.
    """
    if not training and keras.backend.backend() != "jax":
        return 8
    if accelerator() is None:
        return min(8, 2 + rows // (16 * batch_size))
    # One shape is the left-over batch's: of two, all rows would be padded to the longest. What is compiled is kept for
    # later runs, so that a third pays off where an epoch is short.
    return min(8, (3 if training else 2) + rows // (100 * batch_size))


def takes_any_shape() -> bool:
    """Whether a shape of batch is as good as another, so that predictions can do with next to no padding."""
    return keras.backend.backend() == "torch" and accelerator() is None
