"""A sentence encoder as the package `mteb` takes it."""

from functools import cached_property
from typing import Any

# What mteb passes to `encode`; of these only the last chooses a prompt.
ARGUMENTS = {"task_metadata", "task_name", "hf_split", "hf_subset", "prompt_type"}


class MtebEncoder:
    """What `SentenceEncoder.for_mteb` gives: the encoder without its other methods.

    mteb takes whatever has a `predict`, as every Keras model does, for a cross-encoder, and would refuse the encoder
    itself.
    """

    def __init__(self, encoder: Any):
        self.encoder = encoder
        self.encode, self.similarity = encoder.encode, encoder.similarity
        self.similarity_pairwise = encoder.similarity_pairwise

    @cached_property
    def mteb_model_meta(self) -> Any:
        """The metadata that mteb needs of a model."""
        from mteb.models.model_meta import ModelMeta

        name = f"bertzoo/{self.encoder.name}"
        return ModelMeta.create_empty({"name": name, "revision": "none", "embed_dim": self.encoder.width})
