"""BERT in NumPy, from the papers' formulas: what the functions of analysis are compared with."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pytest
from scipy.special import erf

HEADS, SIZE = 4, 8


class NumpyBert:
    """A tiny transformers BertForSequenceClassification in float64; complex numbers go through it, too.

    `logits` takes the embeddings' output (rows, length, hidden), what is added to the attention weights by layer, and
    the heads (layer, head) whose part of the context is 0.
    """

    def __init__(self, reference):
        self.weights = {name: w.detach().double().numpy() for name, w in reference.state_dict().items()}

    def embed(self, ids):
        part = "bert.embeddings."
        tables = [self.weights[f"{part}{name}_embeddings.weight"] for name in ("word", "position", "token_type")]
        x = tables[0][ids] + tables[1][: len(ids)] + tables[2][0]
        return self.norm(x, f"{part}LayerNorm")

    def dense(self, x, name):
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, x, name):
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-12)
        return x * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def logits(self, x, added: Mapping = MappingProxyType({}), lost=()):
        self.attentions = []
        for layer in range(2):
            name = f"bert.encoder.layer.{layer}"
            query, key, value = (
                self.dense(x, f"{name}.attention.self.{part}").reshape(*x.shape[:-1], HEADS, SIZE).transpose(0, 2, 1, 3)
                for part in ("query", "key", "value")
            )
            scores = np.exp(query @ key.transpose(0, 1, 3, 2) / np.sqrt(SIZE))
            self.attentions.append(scores / scores.sum(axis=-1, keepdims=True))
            context = (self.attentions[-1] + added.get(layer, 0)) @ value
            for which, head in lost:
                if which == layer:
                    context[:, head] = 0
            context = context.transpose(0, 2, 1, 3).reshape(context.shape[0], *x.shape[1:])
            x = self.norm(
                x + self.dense(context, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm"
            )
            inner = self.dense(x, f"{name}.intermediate.dense")
            inner = inner * 0.5 * (1 + erf(inner / np.sqrt(2)))
            x = self.norm(x + self.dense(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        pooled = np.tanh(self.dense(x[:, 0], "bert.pooler.dense"))
        return self.dense(pooled, "classifier")


@pytest.fixture(scope="session")
def numpy_bert():
    return NumpyBert
