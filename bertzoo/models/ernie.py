"""ERNIE (Sun et al. 2019, 2.0: 2020): BERT, to whose embeddings the later ones add one of the pre-training task."""

from dataclasses import dataclass
from typing import Any

import keras

from bertzoo.layers.ernie import TaskEmbeddings
from bertzoo.models.bert import Bert
from bertzoo.models.config import EncoderConfig, Flag, Size


@dataclass(frozen=True)
class ErnieConfig(EncoderConfig):
    """ERNIE-base. With `use_task_id` there is a table of task types, of which texts have type 0."""

    model_type: str = "ernie"
    task_type_vocab_size: Size = 3
    use_task_id: Flag = False


class Ernie(Bert):
    model_type = "ernie"
    hf_name = "Ernie"
    prefix = "ernie."
    config_class = ErnieConfig
    names = (*Bert.names, ("embeddings/task", "embeddings.task_type_embeddings.weight"))

    def build_embeddings(self, config: Any, **options: Any) -> keras.layers.Layer:
        if config.use_task_id:
            options |= {"layer_class": TaskEmbeddings, "num_tasks": config.task_type_vocab_size}
        return super().build_embeddings(config, **options)
