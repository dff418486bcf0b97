"""The best of several endings or answers (Devlin et al. 2019, section 4.4)."""

import keras
from keras import ops

from bertzoo.config import EncoderConfig
from bertzoo.encoder import Encoder
from bertzoo.tasks.task import Task
from bertzoo.text.preprocessor import Preprocessor


@keras.saving.register_keras_serializable("bertzoo")
class MultipleChoice(Task):
    """Scores choices, each read together with the question.

    Args:
        backbone: The encoder.
        preprocessor: Turns question and choice into the encoder's inputs; None if the caller tokenizes.

    Inputs are the encoder's with one more axis, int (batch, choices, length). The output is float32 logits (batch,
    choices).

    Raises:
        ValueError: The family's head reads the pooler, and the encoder was made without one.
    """

    heads = ("multiple_choice",)

    def __init__(
        self, backbone: Encoder, preprocessor: Preprocessor | None = None, name: str = "multiple_choice_task", **kwargs
    ):
        super().__init__(backbone, preprocessor, name=name, **kwargs)
        self.pools = backbone.family.multiple_choice_pools
        if self.pools and backbone.pooler is None:
            raise ValueError(
                f"multiple choice of {backbone.family.hf_name} reads the pooler; make the encoder with pooler=True."
            )
        self.multiple_choice = backbone.family.multiple_choice(backbone.run_config, dtype=self.dtype_policy)
        self.build()

    def build(self, input_shape=None):
        self.multiple_choice.build((None, self.backbone.config.hidden_size))

    def call(self, inputs, training: bool = False):
        if not isinstance(inputs, dict):
            inputs = {"token_ids": inputs}
        _, choices, length = ops.shape(inputs["token_ids"])
        rows = {name: ops.reshape(x, (-1, length)) for name, x in inputs.items()}
        outputs, key = self.encode_inputs(rows, training)
        vectors = outputs["pooled_output"] if self.pools else outputs["sequence_output"][:, 0]
        return ops.reshape(self.multiple_choice(vectors, key=key), (-1, choices))

    def compute_output_shape(self, input_shape):
        shape = input_shape["token_ids"] if isinstance(input_shape, dict) else input_shape
        return tuple(shape[:2])

    @classmethod
    def needs_pooler(cls, config: EncoderConfig) -> bool:
        from bertzoo.families import FAMILIES

        return FAMILIES[config.model_type].multiple_choice_pools
