"""What each head attends to: weights by word piece or word, measures of heads, and rollout."""

from dataclasses import dataclass

import keras
import numpy as np

from bertzoo.analysis.pieces import Pieces, encode_pieces, encoder_of, rows_of
from bertzoo.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class AttentionMap:
    """The attention weights of one text, without padding, which gets none.

    weights: (layers, heads, tokens, tokens), from the token of a row to that of a column; rows sum to 1. names: what
    the tokens are called. word_names, word_of: the words, and the number of each token's (tokens,).
    """

    weights: np.ndarray
    names: tuple[str, ...]
    word_names: tuple[str, ...]
    word_of: np.ndarray

    def by_word(self) -> "AttentionMap":
        """The same between words: to a word, the sum over its pieces; from it, their mean (Clark et al. 2019, 4.1)."""
        member = (self.word_of[:, None] == np.arange(len(self.word_names))).astype(self.weights.dtype)
        weights = (member / member.sum(axis=0)).T @ (self.weights @ member)
        return AttentionMap(weights, self.word_names, self.word_names, np.arange(len(self.word_names)))

    def entropy(self) -> np.ndarray:
        """How evenly heads spread their weight, in nats, mean over the text's tokens: (layers, heads)."""
        weights = self.weights.astype("float64")
        logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
        return -(weights * logs).sum(axis=-1).mean(axis=-1)

    def distance(self) -> np.ndarray:
        """How many places heads look away, mean by weight (Vig and Belinkov 2019, section 5): (layers, heads)."""
        place = np.arange(self.weights.shape[-1])
        far = np.abs(place[:, None] - place[None, :])
        return (self.weights.astype("float64") * far).sum(axis=-1).mean(axis=-1)

    def rollout(self) -> np.ndarray:
        """How much of each input token is in each token after each layer, if attention were all that mixes them:
        (layers, tokens, tokens), rows sum to 1 (Abnar and Zuidema 2020, section 3.1).

        The product over layers of half the mean of the heads and half the residual connection.
        """
        flow = np.eye(self.weights.shape[-1])
        flows = []
        for mixed in self.weights.astype("float64").mean(axis=1):
            flow = (0.5 * mixed + 0.5 * np.eye(len(mixed))) @ flow
            flows.append(flow)
        return np.stack(flows)


def attention_maps(
    model, texts, pairs=None, *, tokenizer: Tokenizer | None = None, batch_size: int = 32
) -> list[AttentionMap]:
    """The attention weights of each text.

    Args:
        model: An `Encoder` or a task.
        texts: A string or a sequence of strings.
        pairs: The second text of each, where the model reads pairs.
        tokenizer: What reads the texts, for an encoder or a task that has none.
        batch_size: Texts computed at once.

    Raises:
        TypeError: A text is no string.
        ValueError: There is no tokenizer.
    """
    encoder = encoder_of(model)
    encoded, pieces = encode_pieces(model, texts, pairs, tokenizer)
    maps = []
    for rows, inputs in rows_of(encoded, encoder.config.pad_token_id, batch_size):
        attentions = encoder(inputs, return_all=True)["attentions"]
        weights = np.stack([keras.ops.convert_to_numpy(layer) for layer in attentions], axis=1)
        maps += [_of_row(row, pieces[number]) for row, number in zip(weights, rows)]
    return maps


def _of_row(weights: np.ndarray, pieces: Pieces) -> AttentionMap:
    real = len(pieces.strings)
    return AttentionMap(weights[:, :, :real, :real].astype("float32"), *pieces[:3])
