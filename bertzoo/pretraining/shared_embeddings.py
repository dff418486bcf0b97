"""Embeddings that a generator and a discriminator share, as in ELECTRA and as in DeBERTa v3."""

from typing import Any

from keras import ops

from bertzoo.layers.base import build_dense
from bertzoo.layers.deberta import MaskedEmbeddings
from bertzoo.layers.embeddings import Embeddings
from bertzoo.types import Tensor


class SharedEmbeddings(Embeddings):
    """Another encoder's tables and normalisation, with a separate projection to another width (Clark et al. 2020,
    section 3.2).

    Raises:
        ValueError: The owner's normalisation is not that of the tables (DeBERTa).
    """

    def __init__(self, owner: Embeddings, hidden_size: int):
        if isinstance(owner, MaskedEmbeddings):
            raise ValueError('DeBERTa\'s embeddings need sharing = "disentangled".')
        projection = hidden_size if hidden_size != owner.width else None
        super().__init__(**{**owner.arguments(), "projection": projection, "dtype": owner.dtype_policy})
        self.token, self.position, self.segment, self.norm = owner.token, owner.position, owner.segment, owner.norm

    def build(self, input_shape: Any) -> None:
        if self.dense is not None:
            build_dense(self, self.dense, self.width, self.initializer_range)


class DisentangledEmbeddings(MaskedEmbeddings):
    """Another encoder's token and position tables without their gradient plus learnt differences, and a separate
    projection where the widths differ (gradient-disentangled embedding sharing, He et al. 2023, section 3.3).

    A table is stop_gradient(owner's) + difference; the differences are initialised with 0. The discriminator so uses
    what the generator learns, while its loss, which separates words, does not work against the generator's, which
    brings similar words together.

    Raises:
        ValueError: The owner's embeddings are not those of DeBERTa.
    """

    def __init__(self, owner: MaskedEmbeddings, hidden_size: int):
        if not isinstance(owner, MaskedEmbeddings):
            raise ValueError('sharing = "disentangled" needs DeBERTa\'s embeddings; other families use "plain".')
        projection = hidden_size if hidden_size != owner.width else None
        super().__init__(**{**owner.arguments(), "projection": projection, "dtype": owner.dtype_policy})
        # In a function, since Keras would otherwise track the owner's tables as this layer's.
        self._owner = lambda: owner

    def _make_tables(self) -> None:
        owner = self._owner()
        self.segment = self.add_table("segment", self.segments, self.width)
        self.token_difference = self._difference("token", owner.token)
        self.position_difference = None if owner.position is None else self._difference("position", owner.position)

    def _difference(self, name, table):
        return self.add_weight(name=f"{name}_difference", shape=table.shape, initializer="zeros", autocast=False)

    @property
    def token(self) -> Tensor:
        """(vocabulary, width)."""
        return ops.stop_gradient(ops.convert_to_tensor(self._owner().token)) + self.token_difference

    @property
    def position(self) -> Tensor | None:
        """(positions, width), or None where the owner has none."""
        if self.position_difference is None:
            return None
        return ops.stop_gradient(ops.convert_to_tensor(self._owner().position)) + self.position_difference
