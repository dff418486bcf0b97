"""What `fit` adds to batches: class weights, and the divisor of accumulated batches."""

import warnings
from typing import Any

import keras
import numpy as np

from bertzoo._keras_hooks import num_batches_seen
from bertzoo.data.batches import SeededDataset

DIVISOR = "divisor"


class _TrainingBatches(keras.utils.PyDataset):
    """The batches of another data set with weights for training.

    With gradient accumulation the optimizer averages the gradients of several batches. For this to be the gradient of
    the mean over all their examples, the loss of each batch must be Σ weight · loss, divided by the mean of all
    batches' Σ weight; this divisor travels with the sample weights (see `split_loss_divisor`). That requires
    reading batches ahead, so the batches of a stream count equally, each as the mean over its own examples.

    Args:
        data: Batches of (inputs, targets) or (inputs, targets, sample weights).
        class_weights: float (classes,), by which the weights of examples are multiplied, or None.
        accumulated: How many batches make an update.
        begun: Batches that the optimizer has accumulated or applied before.
        epoch: The epoch of `data` with which training begins.
    """

    def __init__(self, data: Any, class_weights: np.ndarray | None, accumulated: int, begun: int, epoch: int):
        super().__init__(data.workers, data.use_multiprocessing, data.max_queue_size)
        self.data, self.class_weights = data, class_weights
        self.accumulated = accumulated if isinstance(data, SeededDataset) else 1
        self.begun, self.first = begun, epoch
        self._group: tuple[int, float, dict] = (-1, 1.0, {})

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple:
        if self.accumulated == 1:
            return self._weighted(self.data[index])
        epoch = max(self.first, self.data.passes)  # Keras looks at batches before training begins
        position = self.begun + (epoch - self.first) * len(self.data) + index
        if self._group[0] != position // self.accumulated:
            self._group = self._read(position // self.accumulated)
        _, divisor, batches = self._group
        batch = batches.pop(position, None) or self._weighted(self.data.peek_batch(epoch, index))
        self.data.mark_served(index)
        return _with_divisor(batch, divisor)

    def example_batches(self) -> list[tuple]:
        """As `SeededDataset.example_batches`; none of a stream."""
        batches: list[tuple] = getattr(self.data, "example_batches", list)()
        weighted = map(self._weighted, batches)
        return [_with_divisor(batch, 1.0) if self.accumulated > 1 else batch for batch in weighted]

    def _read(self, group: int) -> tuple[int, float, dict]:
        """A group's number, the mean of its batches' weights, and the batches by their positions."""
        batches = {}
        for position in range(group * self.accumulated, (group + 1) * self.accumulated):
            epoch, index = divmod(position - self.begun, len(self.data))
            if position >= self.begun:  # what an earlier `fit` left in the optimizer is not known here
                batches[position] = self._weighted(self.data.peek_batch(self.first + epoch, index))
        weights = [np.sum(batch[2]) if len(batch) == 3 else _rows(batch) for batch in batches.values()]
        mean = float(np.mean(weights))
        return group, mean or 1.0, batches  # nothing is learnt where all weights are 0

    def _weighted(self, batch: tuple) -> tuple:
        if self.class_weights is None:
            return batch
        x, y, *weights = batch
        by_class = self.class_weights[np.asarray(y)]
        return x, y, by_class * np.asarray(weights[0]) if weights and weights[0] is not None else by_class

    def on_epoch_begin(self) -> None:
        self.data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self.data.on_epoch_end()


def training_batches_and_num_updates(
    dataset: Any,
    optimizer: Any,
    class_weights: np.ndarray | None,
    steps_per_epoch: int,
    initial_epoch: int,
    epochs: int,
) -> tuple[keras.utils.PyDataset, int]:
    """The batches to train on, and how many updates `fit` will make of them.

    Args:
        dataset, class_weights: As for `_TrainingBatches`.
        optimizer: Tells how many batches it accumulates, and how many it has done.
        steps_per_epoch: Batches in an epoch.
        initial_epoch, epochs: As for `fit`.
    """
    accumulated = getattr(optimizer, "gradient_accumulation_steps", None) or 1
    begun = num_batches_seen(optimizer) % accumulated if accumulated > 1 else 0
    batches = steps_per_epoch * (epochs - initial_epoch)
    updates = (begun + batches) // accumulated
    if batches and not updates:
        warnings.warn(
            f"this fit has {batches} batches and gradient_accumulation_steps is {accumulated}, so that no weight "
            "changes before a later fit: use smaller batches, or accumulate fewer.",
            stacklevel=3,
        )
    if class_weights is None and accumulated == 1:
        return dataset, updates
    return _TrainingBatches(dataset, class_weights, accumulated, begun, initial_epoch), updates


def _with_divisor(batch: tuple, divisor: float) -> tuple:
    """A batch with a divisor for its loss beside its sample weights."""
    x, y, *weights = batch
    divisors = np.full(_rows(batch), divisor, "float32")
    return x, y, {**({"weights": weights[0]} if weights else {}), DIVISOR: divisors}


def _rows(batch: tuple) -> int:
    return len(keras.tree.flatten(batch[0])[0])


def split_loss_divisor(sample_weight: Any) -> tuple:
    """Sample weights, and the divisor that came with them, a scalar; None each where there is none."""
    if not isinstance(sample_weight, dict) or DIVISOR not in sample_weight:
        return sample_weight, None
    return sample_weight.get("weights"), sample_weight[DIVISOR][0]
