"""From an encoder to static vectors (model2vec, Tulkens and van Dongen 2024)."""

import json
import re
from typing import TYPE_CHECKING

import numpy as np
import tokenizers

from bertzoo.layers.heads import Normalize
from bertzoo.tasks.static_encoder import StaticEncoder

if TYPE_CHECKING:  # which imports this module
    from bertzoo.tasks.sentence_encoder import SentenceEncoder

UNUSED = re.compile(r"\[unused\d+\]")


def distil_static(encoder: "SentenceEncoder", width: int, sif_coefficient: float | None) -> StaticEncoder:
    """Static vectors of a model.

    Args:
        encoder: The model.
        width, sif_coefficient: As for `SentenceEncoder.to_static`.

    Raises:
        ValueError: The model has no tokenizer, or a number is not positive.
    """
    tokenizer = encoder.tokenizer
    if tokenizer is None:
        raise ValueError("the model must have a tokenizer. Received: none. Load one from a preset.")
    if width < 1:
        raise ValueError(f"width must be positive. Received: {width!r}.")
    if sif_coefficient is not None and sif_coefficient <= 0:
        raise ValueError(f"sif_coefficient must be positive or None. Received: {sif_coefficient!r}.")
    rust = tokenizers.Tokenizer.from_str(tokenizer.file_contents()["tokenizer.json"].decode())
    ids = kept_tokens(rust)
    template = tokenizer.encode([""]).row(0)
    layers = [layer for layer in encoder.after_pooling if not isinstance(layer, Normalize)]
    model = type(encoder)(encoder.backbone, None, encoder.pooling, layers)
    vectors = model.encode({"token_ids": fill_template(template, ids, tokenizer.cls_id)})
    rows = static_rows(vectors, width, sif_coefficient)
    embeddings = np.zeros((tokenizer.vocabulary_size, rows.shape[1]), np.float16)
    embeddings[ids] = rows
    # Unknown words then change no normalized vector, in other libraries too.
    if (unknown := unknown_token_id(rust)) is not None:
        embeddings[unknown] = 0
    return StaticEncoder(embeddings, rust)


def kept_tokens(tokenizer: tokenizers.Tokenizer) -> np.ndarray:
    """The ids of the tokens that get a row: all but special and unused ones; padding and the unknown token count as
    tokens, as in model2vec."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    kept = {"[PAD]", "[UNK]", "<pad>", "<unk>"}
    return np.array(
        sorted(i for token, i in vocabulary.items() if token in kept or not (i in special or UNUSED.match(token))),
        np.int64,
    )


def fill_template(template: np.ndarray, ids: np.ndarray, cls_id: int | None) -> np.ndarray:
    """Each token alone within the special tokens of an empty text.

    Args:
        template: The ids of an empty text, (length,).
        ids: Tokens, (n,).
        cls_id: The id with which texts begin, if any.

    Returns:
        int64 (n, length + 1).
    """
    position = 1 if len(template) and template[0] == cls_id else 0
    repeated = np.broadcast_to(np.asarray(template, np.int64), (len(ids), len(template)))
    return np.insert(repeated, position, ids, axis=1)


def static_rows(vectors: np.ndarray, width: int, sif_coefficient: float | None) -> np.ndarray:
    """The rows of tokens from a model's vectors for them: principal components, weighted so that frequent tokens count
    less (SIF, Arora et al. 2017), with frequencies by Zipf's law from the order of the vocabulary, as model2vec.

    Args:
        vectors: float (tokens, hidden), frequent tokens first.
        width: Components to keep.
        sif_coefficient: a of a / (a + p), p the probability of the token; None for no weights.

    Returns:
        float32 (tokens, min(width, hidden)).
    """
    centered = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, components = np.linalg.eigh(centered.T @ centered)
    rows = centered @ components[:, ::-1][:, :width]
    # The sign of a component is arbitrary: its greatest coefficient is positive.
    rows *= np.sign(rows[np.argmax(np.abs(rows), axis=0), np.arange(rows.shape[1])])
    if sif_coefficient is not None:
        inverse_ranks = 1 / np.arange(2, len(rows) + 2)
        rows *= (sif_coefficient / (sif_coefficient + inverse_ranks / inverse_ranks.sum()))[:, None]
    return rows.astype(np.float32)


def unknown_token_id(tokenizer: tokenizers.Tokenizer) -> int | None:
    """The id of the token for unknown words; None where the model has none."""
    model = json.loads(tokenizer.to_str())["model"]
    if model.get("unk_token") is not None:
        return tokenizer.token_to_id(model["unk_token"])
    return model.get("unk_id")
