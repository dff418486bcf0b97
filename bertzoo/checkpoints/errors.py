"""The one error of this package: a checkpoint that cannot be found, read or written."""


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged, refused, or cannot be written; the message says which file and what to do."""
