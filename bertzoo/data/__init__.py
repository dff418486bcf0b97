"""Small samples that come with the package, and loaders for data."""

from bertzoo.data.bundled import cloze, reviews

__all__ = ["cloze", "reviews"]
