"""How batches reach a GPU under PyTorch: from page-locked memory, so that nobody waits for the copy."""

from typing import Any

import keras
import torch
from keras import ops


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch's arrays as tensors on a device, perhaps still under way."""

    def one(part):
        if not isinstance(part, torch.Tensor):
            with keras.device("cpu"):
                part = ops.convert_to_tensor(part)
        if device.type == "cuda" and part.device.type == "cpu":
            part = part.pin_memory()
        return part.to(device, non_blocking=True)

    return keras.tree.map_structure(one, batch, none_is_leaf=False)


class OnDeviceDataset(keras.utils.PyDataset):
    """The batches of another dataset, as tensors on a device.

    Keras copies array by array, and each copy waits for all that the GPU was asked before: a tenth of a step is lost.
    """

    def __init__(self, data: keras.utils.PyDataset, device: torch.device):
        super().__init__(data.workers, data.use_multiprocessing, data.max_queue_size)
        self.data, self.device = data, device

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int):
        return to_device(self.data[index], self.device)

    def on_epoch_begin(self) -> None:
        self.data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self.data.on_epoch_end()
