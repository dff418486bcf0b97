"""Small samples that come with the package, and loaders for data."""

from bertzoo.data.datasets import cloze, load, load_conll, load_squad, reviews
from bertzoo.data.files import load_table
from bertzoo.text.tags import retag

__all__ = [
    "cloze",
    "load",
    "load_conll",
    "load_squad",
    "load_table",
    "retag",
    "reviews",
]
