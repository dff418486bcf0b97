"""BM25 (Robertson and Zaragoza 2009) as weights of terms, for a `Sparse` field.

Weights of documents are those for a fixed average length, so that they need not change when the index grows.
"""

import re
import zlib
from collections.abc import Callable

import numpy as np

from bertzoo.retrieval.index.sparse import Terms

K1, B = 1.5, 0.75
_WORD = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return _WORD.findall(text.lower())


def document_terms(text: str, average_length: float) -> Terms:
    """The weights of a document's words: frequencies that saturate, by the document's length.

    Args:
        text: The document.
        average_length: Of documents, in words.
    """
    words = words_of(text)
    ids, counts = np.unique(_ids(words), return_counts=True)
    lengths = K1 * (1 - B + B * len(words) / average_length)
    return Terms(ids, (counts * (K1 + 1) / (counts + lengths)).astype(np.float32))


def query_terms(text: str, documents: int, frequencies: Callable[[np.ndarray], np.ndarray]) -> Terms:
    """The weights of a query's words: rare ones count more.

    Args:
        text: The query.
        documents: How many documents there are.
        frequencies: Ids of terms (n,) -> how many documents have each, (n,).
    """
    ids = np.unique(_ids(words_of(text)))
    counts = np.minimum(frequencies(ids), documents)  # postings may count deleted documents too
    return Terms(ids, np.log1p((documents - counts + 0.5) / (counts + 0.5)).astype(np.float32))


def _ids(words: list[str]) -> np.ndarray:
    """int32 (words,), the same in every process. Among 100,000 words about two pairs share an id."""
    return np.array([zlib.crc32(word.encode("utf-8", "replace")) & 0x7FFFFFFF for word in words], np.int32)
