"""Which rows `validation_split` keeps for validation: a seeded draw, by classes where there are some."""

import numpy as np

from bertzoo.random import host_generator


def split_rows(count: int, share: float, seed: int, classes: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The rows of both parts, ascending, int64: those to train on, and `int(share × count)` to validate with.

    Args:
        count: Number of rows.
        share: Of the second part.
        seed: Of the draw.
        classes: int (count,); each class then has its share of the second part, to within one row.

    Raises:
        ValueError: `share` leaves a part empty.
    """
    if not 0 < share < 1:
        raise ValueError(f"validation_split must lie between 0 and 1; it is {share}.")
    held = int(count * share)
    if held in (0, count):
        raise ValueError(f"validation_split={share} leaves a part of the {count} rows empty.")
    rng = host_generator(seed, "validation_split")
    order = rng.permutation(count)
    if classes is not None:
        _, number, sizes = np.unique(np.asarray(classes)[order], return_inverse=True, return_counts=True)
        exact = sizes * held / count
        quota = np.floor(exact).astype(int)
        # The rows still wanted go to the largest remainders, those alike in a drawn order; no class loses all its rows
        # to validation as long as there are others.
        order_of_classes = np.lexsort((rng.permutation(len(sizes)), quota - exact, quota + 1 >= sizes))
        quota[order_of_classes[: held - quota.sum()]] += 1
        by_class = np.argsort(number, kind="stable")
        place = np.empty(count, dtype=np.int64)  # of each row among those of its class
        place[by_class] = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        order = order[np.argsort(place >= quota[number], kind="stable")]
    return np.sort(order[held:]), np.sort(order[:held])
