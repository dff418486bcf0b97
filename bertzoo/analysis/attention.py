"""Attention weights by token or word, measures of heads, rollout, and an HTML page of them."""

import base64
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import keras
import numpy as np

from bertzoo.analysis.pieces import TextTokens, encode_with_words, get_encoder, iterate_padded_batches
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.task import Task
from bertzoo.text.tokenizer import Tokenizer

HTML_STEPS = 2**16 - 1  # the page stores weights as two bytes


@dataclass(frozen=True)
class AttentionMap:
    """The attention weights of one text, without padding.

    Attributes:
        weights: (layers, heads, tokens, tokens), from the token of a row to the token of a column; rows sum to 1.
        names: The tokens.
        word_names: The words.
        word_of: (tokens,), the index of each token's word.
    """

    weights: np.ndarray
    names: tuple[str, ...]
    word_names: tuple[str, ...]
    word_of: np.ndarray

    def by_word(self) -> "AttentionMap":
        """The attention between words: to a word the sum over pieces, from it their mean (Clark et al. 2019, 4.1)."""
        member = (self.word_of[:, None] == np.arange(len(self.word_names))).astype(self.weights.dtype)
        weights = (member / member.sum(axis=0)).T @ (self.weights @ member)
        return AttentionMap(weights, self.word_names, self.word_names, np.arange(len(self.word_names)))

    def entropy_by_head(self) -> np.ndarray:
        """The entropy of each head's weights in nats, averaged over the tokens: (layers, heads)."""
        weights = self.weights.astype("float64")
        logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
        return -(weights * logs).sum(axis=-1).mean(axis=-1)

    def mean_distance_by_head(self) -> np.ndarray:
        """The mean distance in tokens, weighted by attention (Vig and Belinkov 2019, section 5): (layers, heads)."""
        place = np.arange(self.weights.shape[-1])
        far = np.abs(place[:, None] - place[None, :])
        return (self.weights.astype("float64") * far).sum(axis=-1).mean(axis=-1)

    def rollout(self) -> np.ndarray:
        """Attention rollout: the share of each input token in each token after each layer, (layers, tokens, tokens);
        rows sum to 1 (Abnar and Zuidema 2020, section 3.1).

        The product over layers of half the mean of the heads and half the residual connection.
        """
        flow = np.eye(self.weights.shape[-1])
        flows = []
        for mixed in self.weights.astype("float64").mean(axis=1):
            flow = (0.5 * mixed + 0.5 * np.eye(len(mixed))) @ flow
            flows.append(flow)
        return np.stack(flows)


def attention_maps(
    model: Encoder | Task,
    texts: str | Sequence[str],
    pairs: str | Sequence[str] | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
) -> list[AttentionMap]:
    """The attention weights of each text.

    Args:
        model: An `Encoder` or a task.
        texts: A string or a sequence of strings.
        pairs: The second texts, for a model that reads pairs.
        tokenizer: The tokenizer, for an encoder or a task without one.
        batch_size: Texts in a batch.

    Raises:
        TypeError: A text is not a string.
        ValueError: There is no tokenizer.

    Example:
        >>> model = bz.MaskedLM.from_preset("bert_mini_en", verbose=False)
        >>> [attention] = bz.analysis.attention_maps(model, ["A cat sleeps."])
        >>> tokens = len(attention.names)
        >>> attention.weights.shape == (6, 4, tokens, tokens)
        True
    """
    encoder = get_encoder(model)
    encoded, pieces = encode_with_words(model, texts, pairs, tokenizer)
    maps = []
    for rows, inputs in iterate_padded_batches(encoded, encoder.config.pad_token_id, batch_size):
        attentions = encoder(inputs, return_all=True)["attentions"]
        weights = np.stack([keras.ops.convert_to_numpy(layer) for layer in attentions], axis=1)
        maps += [_of_row(row, pieces[number]) for row, number in zip(weights, rows)]
    return maps


def _of_row(weights: np.ndarray, pieces: TextTokens) -> AttentionMap:
    real = len(pieces.strings)
    return AttentionMap(weights[:, :, :real, :real].astype("float32"), *pieces[:3])


def attention_html(maps: AttentionMap | Sequence[AttentionMap], title: str = "Attention") -> str:
    """An HTML page that shows the attention between the words and the tokens of texts.

    `Path("attention.html").write_text(attention_html(attention_maps(model, texts)), encoding="utf-8")`

    Args:
        maps: The attention of one or more texts.
        title: The page's heading.

    Raises:
        ValueError: There are no maps.
    """
    maps = [maps] if isinstance(maps, AttentionMap) else list(maps)
    if not maps:
        raise ValueError("expected one or more maps. Received: none.")
    # Texts are not markup, even if they contain "</script>".
    data = json.dumps([_text(attention) for attention in maps]).replace("<", "\\u003c")
    page = resources.files("bertzoo.analysis").joinpath("attention.html").read_text(encoding="utf-8")
    before, between, after = page.split("{{title}}", 2)
    start, end = after.split("{{data}}")
    return f"{before}{html.escape(title)}{between}{html.escape(title)}{start}{data}{end}"


def _text(attention: AttentionMap) -> dict:
    levels = [_level("words", attention.by_word())]
    if attention.names != attention.word_names:
        levels.append(_level("pieces", attention))
    return {"name": " ".join(attention.word_names), "levels": levels}


def _level(name: str, attention: AttentionMap) -> dict:
    weights = np.rint(np.clip(attention.weights, 0, 1) * HTML_STEPS).astype("<u2")
    encoded = base64.b64encode(weights.tobytes()).decode()
    return {"name": name, "names": attention.names, "shape": weights.shape[:3], "weights": encoded}
