"""From an encoder to static vectors."""

from typing import Any

import numpy as np
import tokenizers

from bertzoo.layers.heads import Normalize
from bertzoo.tasks.static_encoder import (
    StaticEncoder,
    concatenate_frames,
    kept_tokens,
    static_rows,
    unknown_token_id,
)


class StaticDistillation:
    """Mixed into `SentenceEncoder`."""

    backbone: Any
    tokenizer: Any
    pooling: Any
    after_pooling: list

    def to_static(self, width: int = 256, sif_coefficient: float | None = 1e-4) -> StaticEncoder:
        """Static vectors of this model (model2vec, Tulkens and van Dongen 2024): each token alone through the model,
        principal components, and weights by frequency.

        Args:
            width: The width of the vectors, at most the model's.
            sif_coefficient: a of the weight a / (a + p), p the token's probability by Zipf's law, where tokens are
                ordered by frequency, as WordPiece vocabularies are; None for no weights.

        Returns:
            An encoder whose rows are float16.

        Raises:
            ValueError: The model has no tokenizer, or a number is not positive.
        """
        if self.tokenizer is None or width < 1 or (sif_coefficient is not None and sif_coefficient <= 0):
            raise ValueError(
                "Expected a model with a tokenizer, a positive width and a positive sif_coefficient or None. Received: "
                f"tokenizer={self.tokenizer!r}, width={width!r}, sif_coefficient={sif_coefficient!r}."
            )
        rust = tokenizers.Tokenizer.from_str(self.tokenizer.file_contents()["tokenizer.json"].decode())
        ids = kept_tokens(rust)
        frame = self.tokenizer.encode([""]).row(0)
        layers = [layer for layer in self.after_pooling if not isinstance(layer, Normalize)]
        model = type(self)(self.backbone, None, self.pooling, layers)  # type: ignore[call-arg]  # SentenceEncoder's
        vectors = model.encode({"token_ids": concatenate_frames(frame, ids, self.tokenizer.cls_id)})  # type: ignore[attr-defined]
        rows = static_rows(vectors, width, sif_coefficient)
        embeddings = np.zeros((self.tokenizer.vocabulary_size, rows.shape[1]), np.float16)
        embeddings[ids] = rows
        # Unknown words then change no normalized vector, in other libraries too.
        if (unknown := unknown_token_id(rust)) is not None:
            embeddings[unknown] = 0
        return StaticEncoder(embeddings, rust)
