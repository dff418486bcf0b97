"""BERT in one file: its tokenizer, its encoder, its masked language model, and how it learns a task.

A model is three dictionaries: `config`, sizes; `vocabulary`, token -> id; `weights`, Hugging Face's name -> tensor.
`x` is float (batch, length, hidden); `batch` is what `encode` returns.
"""

import json
import math
import re
import unicodedata
from pathlib import Path

import keras
import numpy as np
from keras import ops
from safetensors.numpy import load_file

# Stage 1: text to token ids (notebook 02)
SPECIAL = re.compile(r"(\[(?:PAD|UNK|CLS|SEP|MASK)\])")


def split_words(text, lower):
    """A text -> its words and punctuation marks; with `lower`, without accents and capitals."""
    letters = []
    for letter in unicodedata.normalize("NFD", text) if lower else text:
        kind = unicodedata.category(letter)
        if (kind in ("Cc", "Cf", "Co") and letter not in "\t\n\r") or letter == "\ufffd" or (lower and kind == "Mn"):
            continue  # control characters and, where lower, accents
        alone = kind[0] == "P" or letter in "$+<=>^`|~" or "\u4e00" <= letter <= "\u9fff"  # the last: Chinese
        letters.append(f" {letter} " if alone else letter.lower() if lower else letter)
    return "".join(letters).split()


def wordpiece(word, vocabulary):
    """A word -> its pieces, each the longest that the vocabulary has; [UNK] if a part has none."""
    pieces, start = [], 0
    while start < len(word):
        candidates = ("##" * (start > 0) + word[start:end] for end in range(len(word), start, -1))
        piece = next((piece for piece in candidates if piece in vocabulary), None)
        if piece is None or len(word) > 100:
            return ["[UNK]"]
        pieces.append(piece)
        start += len(piece) - 2 * (start > 0)
    return pieces


def tokenize(text, vocabulary, lower):
    """A text -> its tokens; special tokens such as [MASK] that stand in the text stay whole."""
    tokens = []
    for part in SPECIAL.split(text):
        words = [] if SPECIAL.match(part) else split_words(part, lower)
        tokens += [part] if SPECIAL.match(part) else [piece for word in words for piece in wordpiece(word, vocabulary)]
    return tokens


def encode(texts, vocabulary, lower=True, max_length=512):
    """n texts -> int32 (n, length) arrays `token_ids`, `segment_ids` and `padding_mask`; length is a multiple of 8."""
    rows = [["[CLS]", *tokenize(text, vocabulary, lower)[: max_length - 2], "[SEP]"] for text in texts]
    ids = np.full((len(rows), math.ceil(max(map(len, rows)) / 8) * 8), vocabulary["[PAD]"], "int32")
    for i, row in enumerate(rows):
        ids[i, : len(row)] = [vocabulary[token] for token in row]
    mask = np.arange(ids.shape[1]) < np.array([len(row) for row in rows])[:, None]
    return {"token_ids": ids, "segment_ids": np.zeros_like(ids), "padding_mask": mask.astype("int32")}


# Stage 2: a directory to weights, token ids to vectors (notebook 03)
def load(directory):
    """A Hugging Face directory of BERT -> config, vocabulary, weights in float32."""
    directory = Path(directory)
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    tokenizer = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
    config["lower"] = tokenizer["normalizer"]["lowercase"]
    weights = {}
    for name, value in load_file(directory / "model.safetensors").items():
        if value.dtype.kind == "f":  # some files keep the numbers of the positions, too
            name = name.removeprefix("bert.").replace("gamma", "weight").replace("beta", "bias")  # in files of 2018
            weights[name] = ops.convert_to_tensor(value.astype("float32"))
    return config, tokenizer["model"]["vocab"], weights


def dense(x, weights, name):
    """x (…, inputs) -> x Wᵀ + b (…, outputs). PyTorch's files have W as (outputs, inputs)."""
    return ops.matmul(x, ops.transpose(weights[f"{name}.weight"])) + weights[f"{name}.bias"]


def layer_norm(x, weights, name, epsilon):
    """Each vector to mean 0 and variance 1, then scaled and shifted."""
    x = x - ops.mean(x, axis=-1, keepdims=True)
    x = x / ops.sqrt(ops.mean(x * x, axis=-1, keepdims=True) + epsilon)
    return weights[f"{name}.weight"] * x + weights[f"{name}.bias"]


def embed(batch, weights, config, drop=lambda x: x):
    """A batch -> x: the sum of three rows, normalised."""
    tokens = ops.take(weights["embeddings.word_embeddings.weight"], batch["token_ids"], axis=0)
    segments = ops.take(weights["embeddings.token_type_embeddings.weight"], batch["segment_ids"], axis=0)
    positions = weights["embeddings.position_embeddings.weight"][: batch["token_ids"].shape[1]]
    return drop(layer_norm(tokens + segments + positions, weights, "embeddings.LayerNorm", config["layer_norm_eps"]))


# Stage 3: attention (notebook 03)
def attention(x, padding_mask, weights, name, heads):
    """x and int (batch, length) -> (batch, length, hidden), before the residual. `name`: encoder.layer.0.attention"""
    size = x.shape[-1] // heads
    parts = (dense(x, weights, f"{name}.self.{part}") for part in ("query", "key", "value"))
    query, key, value = (ops.swapaxes(ops.reshape(part, (*x.shape[:2], heads, size)), 1, 2) for part in parts)
    scores = ops.matmul(query, ops.swapaxes(key, 2, 3)) / math.sqrt(size)  # (batch, heads, length, length)
    scores = ops.where(ops.cast(padding_mask, "bool")[:, None, None, :], scores, -1e30)
    mixed = ops.swapaxes(ops.matmul(ops.softmax(scores, axis=-1), value), 1, 2)
    return dense(ops.reshape(mixed, x.shape), weights, f"{name}.output.dense")


# Stage 4: blocks, and the whole encoder (notebook 03)
def block(x, padding_mask, weights, config, name, drop=lambda x: x):
    """One layer: attention, then the feed-forward network, each added to its input and normalised after that."""
    epsilon, heads = config["layer_norm_eps"], config["num_attention_heads"]
    attended = attention(x, padding_mask, weights, f"{name}.attention", heads)
    x = layer_norm(x + drop(attended), weights, f"{name}.attention.output.LayerNorm", epsilon)
    inner = ops.gelu(dense(x, weights, f"{name}.intermediate.dense"), approximate=False)
    x = x + drop(dense(inner, weights, f"{name}.output.dense"))
    return layer_norm(x, weights, f"{name}.output.LayerNorm", epsilon)


def encoder(batch, weights, config, drop=lambda x: x):
    """A batch -> x after the last layer."""
    x = embed(batch, weights, config, drop)
    for number in range(config["num_hidden_layers"]):
        x = block(x, batch["padding_mask"], weights, config, f"encoder.layer.{number}", drop)
    return x


# Stage 5: the masked language model (notebook 04)
def masked_lm(x, weights, config):
    """x -> logits (batch, length, vocabulary): one more dense layer, then the product with the token table."""
    x = ops.gelu(dense(x, weights, "cls.predictions.transform.dense"), approximate=False)
    x = layer_norm(x, weights, "cls.predictions.transform.LayerNorm", config["layer_norm_eps"])
    return ops.matmul(x, ops.transpose(weights["embeddings.word_embeddings.weight"])) + weights["cls.predictions.bias"]


def fill_mask(text, config, vocabulary, weights, k=5):
    """A text with one [MASK] -> its k likeliest tokens and their probabilities, the likeliest first."""
    batch = encode([text], vocabulary, config["lower"])
    place = int(np.argmax(batch["token_ids"][0] == vocabulary["[MASK]"]))
    logits = masked_lm(encoder(batch, weights, config), weights, config)[0, place]
    probabilities, tokens = ops.convert_to_numpy(ops.softmax(logits)), sorted(vocabulary, key=vocabulary.get)
    return [(tokens[i], float(probabilities[i])) for i in np.argsort(-probabilities)[:k]]


# Stage 6: fine-tuning (notebooks 05 and 06)
def classifier(weights, hidden, classes, rng):
    """An encoder's weights -> those of a classifier: a new last layer, and a new pooler if there is none."""
    sizes = {"classifier": classes} | ({} if "pooler.dense.weight" in weights else {"pooler.dense": hidden})
    weights = {name: value for name, value in weights.items() if not name.startswith("cls.")}
    for name, outputs in sizes.items():
        weights[f"{name}.weight"] = ops.convert_to_tensor(rng.normal(0, 0.02, (outputs, hidden)).astype("float32"))
        weights[f"{name}.bias"] = ops.zeros(outputs)
    return weights


def classify(batch, weights, config, drop=lambda x: x):
    """A batch -> logits (batch, classes), from the vector of [CLS]."""
    pooled = drop(ops.tanh(dense(encoder(batch, weights, config, drop)[:, :1], weights, "pooler.dense")))
    return dense(pooled, weights, "classifier")[:, 0]


def cross_entropy(logits, labels):
    """(batch, classes) and int (batch,) -> the mean of -log softmax(logits) at the labels."""
    return -ops.mean(ops.take_along_axis(ops.log_softmax(logits, axis=-1), labels[:, None], axis=-1))


def dropout(noise, rate):
    """`drop` for training. Each use takes the next of `noise`, uniform on (0, 1): (uses, batch, length, hidden)."""
    uses = iter(range(noise.shape[0]))
    return lambda x: ops.where(noise[next(uses)][:, : x.shape[1]] < rate, 0.0, x / (1 - rate))


def gradient_of(loss):
    """`loss(weights, *inputs)` -> a function of the same that returns the loss and its gradients, by name."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(jax.value_and_grad(loss))  # compiled, once for each shape of the inputs
    if keras.backend.backend() == "torch":
        import torch

        return lambda *inputs: torch.func.grad_and_value(loss)(*inputs)[::-1]
    import tensorflow as tf

    def taped(weights, *inputs):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            value = loss(weights, *inputs)
        return value, {name: tf.convert_to_tensor(grad) for name, grad in tape.gradient(value, weights).items()}

    return tf.function(taped)  # compiled, too


def clip(grads, limit):
    """Scales all gradients by one factor, so that their common norm is at most `limit`."""
    norm = float(ops.sqrt(sum(ops.sum(g * g) for g in grads.values())))
    return {name: g * min(1.0, limit / norm) for name, g in grads.items()}


def learning_rate(step, steps, peak, warm_up=0.1):
    """The rate of step 1, 2, …: up to the peak over the first tenth of the steps, then down to 0 at the last."""
    warm = max(1, round(warm_up * steps))
    return peak * (step / warm if step <= warm else (steps - step) / (steps - warm))


def adamw(weights, grads, moments, step, rate, decay=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-8):
    """New weights and moments. `moments`: name -> the running means of the gradient and of its square; {} at step 1."""
    new, kept = {}, {}
    for name, w in weights.items():
        g, (m, v) = grads[name], moments.get(name, (0.0, 0.0))
        kept[name] = m, v = beta_1 * m + (1 - beta_1) * g, beta_2 * v + (1 - beta_2) * g * g
        update = m / (1 - beta_1**step) / (ops.sqrt(v / (1 - beta_2**step)) + epsilon)
        no_decay = name.endswith("bias") or "LayerNorm" in name
        new[name] = w - rate * (update if no_decay else update + decay * w)
    return new, kept


def predict(texts, config, vocabulary, weights, size=20):
    """n texts -> the likeliest class of each, int (n,)."""
    batches = (encode(texts[i : i + size], vocabulary, config["lower"]) for i in range(0, len(texts), size))
    return np.concatenate([ops.convert_to_numpy(classify(batch, weights, config)).argmax(axis=-1) for batch in batches])


def fine_tune(train, validation, config, vocabulary, weights, epochs=3, size=20, peak=3e-4, rate=0.1, seed=0):
    """Trains on `train`, texts and int labels; prints each epoch and returns the weights of the best one."""
    (texts, labels), rng = train, np.random.default_rng(seed)
    weights = classifier(weights, config["hidden_size"], int(labels.max()) + 1, rng)
    uses = 2 * config["num_hidden_layers"] + 2  # of dropout: after the embeddings, twice in a block, after the pooler

    def loss(weights, batch, labels, noise):
        return cross_entropy(classify(batch, weights, config, dropout(noise, rate)), labels)

    gradients, moments, best = gradient_of(loss), {}, (-1.0, weights)
    step, steps = 0, epochs * math.ceil(len(texts) / size)
    for epoch in range(epochs):
        order, losses = rng.permutation(len(texts)), []
        for rows in (order[i : i + size] for i in range(0, len(texts), size)):
            batch = encode([texts[i] for i in rows], vocabulary, config["lower"])
            noise = rng.random((uses, *batch["token_ids"].shape, config["hidden_size"]), "float32")
            value, grads = gradients(weights, batch, labels[rows], noise)
            step, losses = step + 1, [*losses, float(value)]
            weights, moments = adamw(weights, clip(grads, 1), moments, step, learning_rate(step, steps, peak))
        right = float((predict(validation[0], config, vocabulary, weights) == validation[1]).mean())
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.2f}, accuracy on held-out texts {right:.1%}")
        best = max(best, (right, weights), key=lambda pair: pair[0])
    return best[1]
