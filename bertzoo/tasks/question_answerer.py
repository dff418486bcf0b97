"""The span of a text that answers a question (Devlin et al. 2019, section 4.2)."""

import keras

from bertzoo.encoder import Encoder
from bertzoo.tasks.task import Task
from bertzoo.text.preprocessor import Preprocessor


@keras.saving.register_keras_serializable("bertzoo")
class QuestionAnswerer(Task):
    """Finds where an answer starts and ends.

    Args:
        backbone: The encoder.
        preprocessor: Turns question and text into the encoder's inputs; None if the caller tokenizes.

    The output is float32 logits (batch, length, 2): at each token, for the answer's start and for its end.
    """

    heads = ("qa",)

    def __init__(
        self, backbone: Encoder, preprocessor: Preprocessor | None = None, name: str = "question_answerer", **kwargs
    ):
        super().__init__(backbone, preprocessor, name=name, **kwargs)
        self.qa = backbone.family.qa(backbone.run_config, dtype=self.dtype_policy)
        self.build()

    def build(self, input_shape=None):
        self.qa.build((None, None, self.backbone.config.hidden_size))

    def call(self, inputs, training: bool = False):
        outputs, key = self.encode_inputs(inputs, training)
        return self.qa(outputs["sequence_output"], key=key)

    def compute_output_shape(self, input_shape):
        shape = input_shape["token_ids"] if isinstance(input_shape, dict) else input_shape
        return (*shape, 2)
