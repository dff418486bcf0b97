"""The enhanced mask decoder: places are told to the masked-LM head only (He et al. 2021, section 3.2)."""

import keras
from keras import ops

from bertzoo.layers.heads import MaskedLMHead
from bertzoo.layers.initialization import HostTruncatedNormal
from bertzoo.random import fold_in

STEPS = 2


@keras.saving.register_keras_serializable("bertzoo")
class EnhancedMaskDecoder(MaskedLMHead):
    """As MaskedLMHead, before which the encoder's last block is applied twice more.

    What it attends to is its usual input; what asks is that input plus absolute positions, then its own output.

    Args:
        max_positions: Rows of the position table, which is as wide as the encoder.
        args, kwargs: MaskedLMHead's.
    """

    def __init__(self, *args, max_positions: int = 512, **kwargs):
        super().__init__(*args, **kwargs)
        self.max_positions = max_positions

    def build(self, input_shape):
        super().build(input_shape)
        initializer = HostTruncatedNormal(self.initializer_range, f"{self.path}/position")
        shape = (self.max_positions, input_shape[-1])
        self.position = self.add_weight(name="position", shape=shape, initializer=initializer, autocast=False)

    def prepare_hidden(self, x, before, last_block, key):
        length = before.shape[1]
        if length is not None and length > self.max_positions:
            raise ValueError(
                f"the rows have {length} tokens; this masked-LM head has a table of {self.max_positions} positions. "
                "Truncate the texts (max_length), or take a model with more."
            )
        query = before + ops.cast(self.position[: ops.shape(before)[1]], before.dtype)
        for step in range(STEPS):
            query = last_block(query, None if key is None else fold_in(key, step))
        return query

    def get_config(self):
        return {**super().get_config(), "max_positions": self.max_positions}
