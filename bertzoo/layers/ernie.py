"""ERNIE's embeddings (Sun et al. 2020, ERNIE 2.0)."""

import keras
from keras import ops

from bertzoo.layers.embeddings import Embeddings
from bertzoo.types import Tensor


@keras.saving.register_keras_serializable("bertzoo")
class TaskEmbeddings(Embeddings):
    """Embeddings with the first row of a table of pre-training tasks added (section 4.2).

    Args:
        args, kwargs: Embeddings'.
        num_tasks: Rows of the table of tasks.
    """

    def __init__(self, *args, num_tasks: int = 3, **kwargs):
        super().__init__(*args, **kwargs)
        self.num_tasks = num_tasks

    def _make_tables(self) -> None:
        super()._make_tables()
        self.task = self.add_embedding_table("task", self.num_tasks, self.width)

    def _sum_tables(self, token_ids: Tensor, segment_ids: Tensor | None, position_ids: Tensor | None) -> Tensor:
        x = super()._sum_tables(token_ids, segment_ids, position_ids)
        return x + ops.cast(self.task[0], self.compute_dtype)
