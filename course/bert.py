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
    raise NotImplementedError


def wordpiece(word, vocabulary):
    """A word -> its pieces, each the longest that the vocabulary has; [UNK] if a part has none."""
    raise NotImplementedError


def tokenize(text, vocabulary, lower):
    """A text -> its tokens; special tokens such as [MASK] that stand in the text stay whole."""
    raise NotImplementedError


def encode(texts, vocabulary, lower=True, max_length=512):
    """n texts -> int32 (n, length) arrays `token_ids`, `segment_ids` and `padding_mask`; length is a multiple of 8."""
    raise NotImplementedError


# Stage 2: a directory to weights, token ids to vectors (notebook 03)
def load(directory):
    """A Hugging Face directory of BERT -> config, vocabulary, weights in float32."""
    raise NotImplementedError


def dense(x, weights, name):
    """x (…, inputs) -> x Wᵀ + b (…, outputs). PyTorch's files have W as (outputs, inputs)."""
    raise NotImplementedError


def layer_norm(x, weights, name, epsilon):
    """Each vector to mean 0 and variance 1, then scaled and shifted."""
    raise NotImplementedError


def embed(batch, weights, config, drop=lambda x: x):
    """A batch -> x: the sum of three rows, normalised."""
    raise NotImplementedError


# Stage 3: attention (notebook 03)
def attention(x, padding_mask, weights, name, heads):
    """x and int (batch, length) -> (batch, length, hidden), before the residual. `name`: encoder.layer.0.attention"""
    raise NotImplementedError


# Stage 4: blocks, and the whole encoder (notebook 03)
def block(x, padding_mask, weights, config, name, drop=lambda x: x):
    """One layer: attention, then the feed-forward network, each added to its input and normalised after that."""
    raise NotImplementedError


def encoder(batch, weights, config, drop=lambda x: x):
    """A batch -> x after the last layer."""
    raise NotImplementedError


# Stage 5: the masked language model (notebook 04)
def masked_lm(x, weights, config):
    """x -> logits (batch, length, vocabulary): one more dense layer, then the product with the token table."""
    raise NotImplementedError


def fill_mask(text, config, vocabulary, weights, k=5):
    """A text with one [MASK] -> its k likeliest tokens and their probabilities, the likeliest first."""
    raise NotImplementedError


# Stage 6: fine-tuning (notebooks 05 and 06)
def classifier(weights, hidden, classes, rng):
    """An encoder's weights -> those of a classifier: a new last layer, and a new pooler if there is none."""
    raise NotImplementedError


def classify(batch, weights, config, drop=lambda x: x):
    """A batch -> logits (batch, classes), from the vector of [CLS]."""
    raise NotImplementedError


def cross_entropy(logits, labels):
    """(batch, classes) and int (batch,) -> the mean of -log softmax(logits) at the labels."""
    raise NotImplementedError


def dropout(noise, rate):
    """`drop` for training. Each use takes the next of `noise`, uniform on (0, 1): (uses, batch, length, hidden)."""
    raise NotImplementedError


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
    raise NotImplementedError


def learning_rate(step, steps, peak, warm_up=0.1):
    """The rate of step 1, 2, …: up to the peak over the first tenth of the steps, then down to 0 at the last."""
    raise NotImplementedError


def adamw(weights, grads, moments, step, rate, decay=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-8):
    """New weights and moments. `moments`: name -> the running means of the gradient and of its square; {} at step 1."""
    raise NotImplementedError


def predict(texts, config, vocabulary, weights, size=20):
    """n texts -> the likeliest class of each, int (n,)."""
    raise NotImplementedError


def fine_tune(train, validation, config, vocabulary, weights, epochs=3, size=20, peak=3e-4, rate=0.1, seed=0):
    """Trains on `train`, texts and int labels; prints each epoch and returns the weights of the best one."""
    raise NotImplementedError
