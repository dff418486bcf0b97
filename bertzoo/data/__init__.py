"""Small samples that come with the package, and loaders for data."""

from bertzoo.data.bundled import cloze, reviews
from bertzoo.data.conll import load_conll
from bertzoo.data.public import load
from bertzoo.data.squad import load_squad
from bertzoo.data.table_files import load_table
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
