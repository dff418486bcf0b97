"""The pre-training program: a TOML file in, a preset and its loss curve out."""

import json
import time
import tomllib
from pathlib import Path
from typing import Any

import keras
import numpy as np

from bertzoo.config import EncoderConfig
from bertzoo.encoder import Encoder
from bertzoo.pretraining.rows import CorpusRows, Shape
from bertzoo.pretraining.shards import Shards
from bertzoo.random import set_seed
from bertzoo.tasks.masked_lm import MaskedLM
from bertzoo.text.preprocessor import Preprocessor
from bertzoo.training.optimizer import AdamW


def pretrain(
    config_file: str | Path, shards: str | Path, out: str | Path, held_out: str | Path | None = None
) -> dict[str, Any]:
    """Pre-trains a masked language model.

    Args:
        config_file: TOML with the tables `encoder` (EncoderConfig's fields), `training` (steps, seed, dropout,
            learning_rate, weight_decay, beta_2, warmup, short, dtype) and a list `batches` of length, batch_size and
            share.
        shards: Directory that `prepare` wrote.
        out: The preset's directory. `training.json` beside the weights gets the loss curve and the times.
        held_out: Shards to evaluate on at the end.

    Returns:
        The content of training.json.
    """
    content = tomllib.loads(Path(config_file).read_text(encoding="utf-8"))
    training, shapes = content["training"], [Shape(**row) for row in content["batches"]]
    set_seed(training.get("seed", 0))
    corpus = Shards.open(shards)
    config = EncoderConfig(vocab_size=corpus.tokenizer.vocabulary_size, **content["encoder"])
    model = make_model(config, corpus, training)
    steps = training["steps"]
    model.optimizer.begin(steps)
    data = CorpusRows(
        corpus, shapes, model.masking, steps=steps, seed=training.get("seed", 0), short=training.get("short", 0.1)
    )
    curve, begun = Curve(), time.time()
    keras.Model.fit(model, data, epochs=1, shuffle=False, verbose=training.get("verbose", 2), callbacks=[curve])
    seconds = time.time() - begun
    tokens = sum(
        data.turns[i % len(data.turns)].length * data.turns[i % len(data.turns)].batch_size for i in range(steps)
    )
    result = {
        "curve": curve.points,
        "steps": steps,
        "tokens": tokens,
        "seconds": round(seconds, 1),
        "tokens_per_second": round(tokens / seconds),
    }
    if held_out is not None:
        result["held_out"] = evaluate(model, Shards.open(held_out))
    corpus.tokenizer.max_length = config.max_length
    model.save_to_preset(out)
    (Path(out) / "training.json").write_text(json.dumps(result) + "\n")
    return result


def make_model(config: EncoderConfig, corpus: Shards, training: dict[str, Any]) -> MaskedLM:
    """A compiled masked language model for a corpus."""
    dtype = {"dtype": training["dtype"]} if "dtype" in training else {}
    encoder = Encoder(config, pooler=False, dropout=training.get("dropout"), **dtype)
    model = MaskedLM(encoder, Preprocessor(corpus.tokenizer), **dtype)
    optimizer = AdamW(
        training["learning_rate"],
        training.get("weight_decay", 0.01),
        beta_2=training.get("beta_2", 0.98),
        warmup=training.get("warmup", 0.05),
    )
    model.compile(optimizer)
    return model


def evaluate(
    model: MaskedLM, shards: Shards, length: int = 128, batch_size: int = 64, seed: int = 1
) -> dict[str, float]:
    """Masked-LM loss (nats) and accuracy on held-out documents, with the entropy of their unigram distribution."""
    steps = max(1, len(shards.tokens) // (length * batch_size))
    data = CorpusRows(shards, [Shape(length, batch_size)], model.masking, steps=steps, seed=seed, short=0.0)
    scores = keras.Model.evaluate(model, data, verbose=0, return_dict=True)
    ordinary = np.asarray(shards.tokens)
    ordinary = ordinary[~np.isin(ordinary, model.masking.special_ids)]
    counts = np.bincount(ordinary)
    shares = counts[counts > 0] / counts.sum()
    return {
        **{name: float(value) for name, value in scores.items()},
        "unigram_entropy": float(-(shares * np.log(shares)).sum()),
    }


class Curve(keras.callbacks.Callback):
    """Keeps the mean loss of every `every` steps, as [step, loss]."""

    # Keras then reads the logs in another thread; else each step would wait for the device.
    async_safe = True

    def __init__(self, every: int = 100):
        super().__init__()
        self.every, self.points = every, []
        self._sum = 0.0

    def on_train_batch_end(self, batch, logs=None):
        if (batch + 1) % self.every == 0:
            # Keras logs the mean since the epoch's begin.
            total = float(logs["loss"]) * (batch + 1)
            self.points.append([batch + 1, round((total - self._sum) / self.every, 4)])
            self._sum = total
