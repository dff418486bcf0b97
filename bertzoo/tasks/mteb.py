"""A sentence encoder as the package `mteb` (version 2) takes models."""

from functools import cached_property


class ForMteb:
    """What `SentenceEncoder.for_mteb` gives: the encoder without its other methods.

    mteb takes whatever has a `predict`, as every Keras model does, for a cross-encoder, and would refuse the encoder
    itself.
    """

    def __init__(self, encoder):
        self.encoder = encoder
        self.encode, self.similarity = encoder.encode, encoder.similarity
        self.similarity_pairwise = encoder.similarity_pairwise

    @cached_property
    def mteb_model_meta(self):
        """What mteb wants to know of a model that it runs."""
        from mteb.models.model_meta import ModelMeta

        name = f"bertzoo/{self.encoder.name}"
        return ModelMeta.create_empty({"name": name, "revision": "none", "embed_dim": self.encoder.width})
