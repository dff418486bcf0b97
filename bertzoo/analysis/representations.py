"""Representations: vectors of words and layers, CKA, anisotropy and whitening, principal components."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertzoo.analysis.pieces import hidden_states
from bertzoo.metrics.vector_similarity import finite_float32_array, prepare_vectors
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.task import Task
from bertzoo.text.tokenizer import Tokenizer

PER = ("token", "text")
NOISE = 1e-12  # of the greatest variance: smaller ones are float32's rounding


def linear_cka(x: np.ndarray, y: np.ndarray) -> float:
    """Linear centred kernel alignment of two representations of the same items, from 0 (unrelated) to 1 (equal up to
    rotation and scale) (Kornblith et al. 2019, section 3).

    ‖Yᵀ X‖² / (‖Xᵀ X‖ · ‖Yᵀ Y‖), Frobenius norms, of centred columns, in float64.

    Args:
        x, y: (n, width) and (n, other width).

    Raises:
        ValueError: They differ in length, or all rows of one are equal.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(20, 3))
        >>> rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
        >>> round(float(bz.analysis.linear_cka(x, 2 * x @ rotation)), 6)
        1.0
    """
    x, y = (_centred(vectors) for vectors in (x, y))
    if len(x) != len(y):
        raise ValueError(f"x and y must have the same number of rows. Received: {len(x)} and {len(y)}.")
    return float(np.sum((y.T @ x) ** 2) / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)))


def cka_matrix(layers: Sequence, others: Sequence | None = None) -> np.ndarray:
    """Linear CKA between all pairs of layers: float64 (layers, others).

    Args:
        layers: Arrays (n, width), such as `layer_vectors(…)`.
        others: Those to compare with, such as another model's; the same layers if None.
    """
    return np.array([[linear_cka(x, y) for y in (layers if others is None else others)] for x in layers])


def layer_vectors(
    model: Encoder | Task,
    texts: str | Sequence[str],
    *,
    per: str = "token",
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
) -> list[np.ndarray]:
    """The vectors of texts in each layer: the embeddings' output, then that of each block.

    Args:
        model: An `Encoder` or a task.
        texts: A string or a sequence of strings.
        per: "token" returns a vector for each token, including special tokens, of all texts in order; "text" the mean
            of each text's tokens, for models with different tokenizers.
        tokenizer: The tokenizer, for an encoder or a task without one.
        batch_size: Texts in a batch.

    Returns:
        layers + 1 arrays, float32 (tokens or texts, hidden).

    Raises:
        ValueError: `per` is neither, there are no texts, or no tokenizer.
    """
    if per not in PER:
        raise ValueError(f"per must be one of {', '.join(PER)}. Received: {per!r}.")
    rows = [states for _, states in hidden_states(model, texts, tokenizer, batch_size)]
    if per == "text":
        rows = [states.mean(axis=1, keepdims=True) for states in rows]
    return list(np.concatenate(rows, axis=1))


def _centred(vectors) -> np.ndarray:
    vectors = np.asarray(vectors, "float64")
    if vectors.ndim != 2:
        raise ValueError(f"a representation must have shape (n, width). Received: {vectors.shape}.")
    vectors = vectors - vectors.mean(axis=0)
    if not np.any(vectors):
        raise ValueError("expected a representation with different rows. Received: all rows are equal.")
    return vectors


@dataclass(frozen=True)
class WordVectors:
    """Vectors of words in context.

    Attributes:
        vectors: float32 (layers + 1, words, hidden), means over a word's pieces, beginning with the embeddings' output.
        words: The words as written.
        texts: int (words,), the index of each word's text.
    """

    vectors: np.ndarray
    words: tuple[str, ...]
    texts: np.ndarray


def word_vectors(
    model: Encoder | Task,
    texts: str | Sequence[str],
    word: str | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
) -> WordVectors:
    """The vectors of each word of texts, or of all occurrences of one word.

    Args:
        model: An `Encoder` or a task.
        texts: A string or a sequence of strings.
        word: The word, in any case; all words if None.
        tokenizer: The tokenizer, for an encoder or a task without one.
        batch_size: Texts in a batch.

    Raises:
        ValueError: No text contains the word, there are no texts, or no tokenizer.
    """
    vectors, words, numbers = [], [], []
    for number, (pieces, states) in enumerate(hidden_states(model, texts, tokenizer, batch_size)):
        for index in np.unique(pieces.word_of[~pieces.added]):
            if word is None or pieces.words[index].casefold() == word.casefold():
                vectors.append(states[:, pieces.word_of == index].mean(axis=1))
                words.append(pieces.words[index])
                numbers.append(number)
    if not words:
        what = "any word" if word is None else f"the word {word!r}"
        raise ValueError(f"no text has {what}; words are separated by spaces, without punctuation at their ends.")
    return WordVectors(np.stack(vectors, axis=1), tuple(words), np.array(numbers))


def mean_pairwise_cosine(vectors: np.ndarray) -> float:
    """The mean cosine over all pairs of different rows: 0 for even directions, close to 1 for a narrow cone.

    The anisotropy of Ethayarajh 2019, section 3.4, over all pairs instead of random ones: for unit vectors, the sum
    over pairs is the squared norm of their sum minus the rows themselves.

    Args:
        vectors: (n, width), n ≥ 2.

    Raises:
        ValueError: There are fewer than two rows.
    """
    units = prepare_vectors(vectors, "cosine").astype("float64")
    count = len(units)
    if count < 2:
        raise ValueError(f"mean_pairwise_cosine needs at least two vectors. Received: {count}.")
    total = units.sum(axis=0)
    return float((total @ total - np.sum(units * units)) / (count * (count - 1)))


@dataclass(frozen=True)
class Whitening:
    """Whitening, (vectors - mean) · kernel: mean 0 and the same variance in all directions (Su et al. 2021, section 3,
    algorithm 1). `Whitening.fit` computes it.

    Args:
        mean: (width,).
        kernel: (width, dimensions).
    """

    mean: np.ndarray
    kernel: np.ndarray

    @classmethod
    def fit(cls, vectors: np.ndarray, dimensions: int | None = None) -> "Whitening":
        """Fits the transformation to vectors (n, width), preferably many more than `width`.

        Args:
            vectors: (n, width).
            dimensions: Number of directions to keep, those of the greatest variance; all if None.

        Raises:
            ValueError: `dimensions` is out of range, or the vectors vary in fewer directions.
        """
        array = finite_float32_array(vectors).astype("float64")
        width = array.shape[1]
        dimensions = width if dimensions is None else dimensions
        if not 1 <= dimensions <= width:
            raise ValueError(f"dimensions must be from 1 to {width}. Received: {dimensions!r}.")
        mean = array.mean(axis=0)
        spread, directions = np.linalg.eigh(np.cov(array - mean, rowvar=False, bias=True).reshape(width, width))
        spread, directions = spread[::-1], directions[:, ::-1]
        rank = int((spread > NOISE * spread[0]).sum())
        if rank < dimensions:
            raise ValueError(
                f"dimensions must not exceed {rank}, in which the {len(array)} vectors vary. Received: {dimensions}. "
                "Pass more vectors."
            )
        return cls(mean, directions[:, :dimensions] / np.sqrt(spread[:dimensions]))

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """Whitened vectors, float32 (n, dimensions)."""
        return ((finite_float32_array(vectors) - self.mean) @ self.kernel).astype("float32")


@dataclass(frozen=True)
class LayerAnisotropy:
    """The mean cosine of pairs of vectors in each layer, beginning with the embeddings' output.

    Attributes:
        before, after: float64 (layers + 1,), before and after whitening.
        dimensions: int (layers + 1,), the number of directions that whitening kept.
    """

    before: np.ndarray
    after: np.ndarray
    dimensions: np.ndarray


def layer_anisotropy(
    model: Encoder | Task,
    texts: str | Sequence[str],
    *,
    per: str = "token",
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
) -> LayerAnisotropy:
    """The anisotropy of a model's vectors by layer, before and after whitening.

    Whitening is fitted to the vectors that it is applied to, and keeps at most half as many directions as there are
    vectors: in n - 1 directions any n vectors would be equally far apart.

    Args:
        model, texts, per, tokenizer, batch_size: See `layer_vectors`.

    Raises:
        ValueError: There are fewer than four vectors, or all vectors of a layer are the same.
    """
    before, after, kept = [], [], []
    for vectors in layer_vectors(model, texts, per=per, tokenizer=tokenizer, batch_size=batch_size):
        if len(vectors) < 4:
            raise ValueError(f"whitening needs at least four vectors. Received: {len(vectors)}. Pass more texts.")
        spread = np.linalg.svd(vectors - vectors.mean(axis=0, dtype="float64"), compute_uv=False) ** 2
        dimensions = min(len(vectors) // 2, int((spread > 10 * NOISE * spread[0]).sum()))
        if dimensions == 0:
            raise ValueError("expected different vectors in each layer. Received: all vectors of a layer are equal.")
        before.append(mean_pairwise_cosine(vectors))
        after.append(mean_pairwise_cosine(Whitening.fit(vectors, dimensions)(vectors)))
        kept.append(dimensions)
    return LayerAnisotropy(np.array(before), np.array(after), np.array(kept))


@dataclass(frozen=True)
class PrincipalComponents:
    """points: float64 (n, 2). shares: float64 (2,), the explained share of the variance of each component."""

    points: np.ndarray
    shares: np.ndarray


def pca(vectors: np.ndarray) -> PrincipalComponents:
    """The first two principal components of vectors, with signs that are fixed (Pearson 1901).

    Args:
        vectors: (n, width), such as a layer of `word_vectors(…).vectors`; n ≥ 3, width ≥ 2.

    Raises:
        ValueError: There are too few, or all are equal.
    """
    array = finite_float32_array(vectors).astype("float64")
    if array.ndim != 2 or len(array) < 3 or array.shape[1] < 2:
        raise ValueError(f"pca needs at least three vectors of two or more dimensions. Received: shape {array.shape}.")
    units, spread, directions = np.linalg.svd(array - array.mean(axis=0), full_matrices=False)
    if spread[0] == 0:
        raise ValueError("expected different vectors. Received: all vectors are equal.")
    # A direction is unique up to its sign: its largest element is made positive.
    largest = np.abs(directions[:2]).argmax(axis=1)
    signs = np.sign(directions[[0, 1], largest])
    return PrincipalComponents(units[:, :2] * spread[:2] * signs, spread[:2] ** 2 / (spread**2).sum())
