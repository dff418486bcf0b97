"""A label for each token: names, parts of speech (Devlin et al. 2019, section 5.3)."""

from collections.abc import Sequence
from typing import Any

import keras

from bertzoo.config import EncoderConfig
from bertzoo.encoder import Encoder
from bertzoo.tasks.targets import label_names, labels_for_file, labels_in_file
from bertzoo.tasks.task import Task
from bertzoo.text.preprocessor import Preprocessor


@keras.saving.register_keras_serializable("bertzoo")
class TokenClassifier(Task):
    """Labels each token.

    Args:
        backbone: The encoder.
        preprocessor: Turns text into the encoder's inputs; None if the caller tokenizes.
        labels: The names of the labels, or their number.

    The output is float32 logits (batch, length, labels).

    Raises:
        ValueError: The labels are not different names.
    """

    heads = ("token_classifier",)

    def __init__(
        self,
        backbone: Encoder,
        preprocessor: Preprocessor | None = None,
        labels: int | Sequence[str] = 2,
        name: str = "token_classifier_task",
        **kwargs,
    ):
        super().__init__(backbone, preprocessor, name=name, **kwargs)
        self.labels = label_names(labels)
        self.token_classifier = backbone.family.token_classifier(
            backbone.run_config, len(self.labels), dtype=self.dtype_policy
        )
        self.build()

    def build(self, input_shape=None):
        self.token_classifier.build((None, None, self.backbone.config.hidden_size))

    def call(self, inputs, training: bool = False):
        outputs, key = self.encode_inputs(inputs, training)
        return self.token_classifier(outputs["sequence_output"], key=key)

    def compute_output_shape(self, input_shape):
        shape = input_shape["token_ids"] if isinstance(input_shape, dict) else input_shape
        return (*shape, len(self.labels))

    @classmethod
    def options_from_files(cls, config: EncoderConfig) -> dict[str, Any]:
        return labels_in_file(config)

    def config_changes(self) -> dict[str, Any]:
        return labels_for_file(self.labels)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "labels": self.labels}
