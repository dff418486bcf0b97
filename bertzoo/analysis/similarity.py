"""How alike the layers of one model, or of two, represent the same texts (Kornblith et al. 2019)."""

from collections.abc import Sequence

import numpy as np

from bertzoo.analysis.pieces import hidden_states
from bertzoo.text.tokenizer import Tokenizer

PER = ("token", "text")


def linear_cka(x, y) -> float:
    """Linear centred kernel alignment of two representations of the same things: 0 for unrelated ones to 1 for equal
    ones, whatever their rotation and scale (Kornblith et al. 2019, section 3).

    ‖Yᵀ X‖² / (‖Xᵀ X‖ · ‖Yᵀ Y‖), Frobenius norms, of centred columns, in float64.

    Args:
        x, y: (n, width) and (n, other width).

    Raises:
        ValueError: Their rows differ in number, or all rows of one are the same.
    """
    x, y = (_centred(vectors) for vectors in (x, y))
    if len(x) != len(y):
        raise ValueError(f"x and y must represent the same things; they have {len(x)} and {len(y)} rows.")
    return float(np.sum((y.T @ x) ** 2) / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)))


def cka_matrix(layers: Sequence, others: Sequence | None = None) -> np.ndarray:
    """Linear CKA between each of some layers and each of others (the same where None): float64 (layers, others)."""
    return np.array([[linear_cka(x, y) for y in (layers if others is None else others)] for x in layers])


def layer_vectors(
    model, texts, *, per: str = "token", tokenizer: Tokenizer | None = None, batch_size: int = 32
) -> list[np.ndarray]:
    """What each layer makes of texts: the embeddings' output, then that of each block.

    Args:
        model: An `Encoder` or a task.
        texts: A string or a sequence of strings.
        per: "token" gives a vector for each token, special tokens included, of all texts in order; "text" the mean of
            each text's tokens, for models whose tokens differ.
        tokenizer: What reads the texts, for an encoder or a task that has none.
        batch_size: Texts computed at once.

    Returns:
        layers + 1 arrays, float32 (tokens or texts, hidden).

    Raises:
        ValueError: `per` is neither, there are no texts, or no tokenizer.
    """
    if per not in PER:
        raise ValueError(f"per must be one of {', '.join(PER)}; it is {per!r}.")
    rows = [states for _, states in hidden_states(model, texts, tokenizer, batch_size)]
    if per == "text":
        rows = [states.mean(axis=1, keepdims=True) for states in rows]
    return list(np.concatenate(rows, axis=1))


def _centred(vectors) -> np.ndarray:
    vectors = np.asarray(vectors, "float64")
    if vectors.ndim != 2:
        raise ValueError(f"a representation must be (n, width); its shape is {vectors.shape}.")
    vectors = vectors - vectors.mean(axis=0)
    if not np.any(vectors):
        raise ValueError("all rows of a representation are the same; there is nothing to align.")
    return vectors
