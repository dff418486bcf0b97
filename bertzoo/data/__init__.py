"""Small samples that come with the package, and loaders for data."""

from bertzoo.data.datasets import load, load_cloze, load_conll, load_reviews, load_squad
from bertzoo.data.files import load_table
from bertzoo.text.tags import retag

__all__ = [
    "load",
    "load_cloze",
    "load_conll",
    "load_reviews",
    "load_squad",
    "load_table",
    "retag",
]
