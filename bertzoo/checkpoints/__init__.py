"""Hugging Face checkpoint directories: names of tensors, loading, saving, and the formats of files."""

from bertzoo.checkpoints.errors import CheckpointError

__all__ = ["CheckpointError"]
