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
from bertzoo.pretraining.rows import PackedRows
from bertzoo.pretraining.shards import Shards
from bertzoo.random import set_seed
from bertzoo.tasks.masked_lm import MaskedLM
from bertzoo.text.preprocessor import Preprocessor
from bertzoo.training.optimizer import AdamW


def pretrain(config_file: str | Path, shards: str | Path, out: str | Path, held_out: str | Path | None = None) -> dict[str, Any]:
    """Pre-trains a masked language model.

    Args:
        config_file: TOML with the tables `encoder` (EncoderConfig's fields), `training` (seed, dropout, learning_rate,
            weight_decay, beta_2, warmup, dtype) and a list `phases` of length, batch_size and steps.
        shards: Directory that `prepare` wrote.
        out: The preset's directory. `training.json` beside the weights gets the loss curve and the times.
        held_out: Shards to evaluate on at the end.

    Returns:
        The content of training.json.
    """
    content = tomllib.loads(Path(config_file).read_text(encoding="utf-8"))
    training, phases = content["training"], content["phases"]
    set_seed(training.get("seed", 0))
    corpus = Shards.open(shards)
    config = EncoderConfig(vocab_size=corpus.tokenizer.vocabulary_size, **content["encoder"])
    model = _make(config, corpus, training)
    total = sum(phase["steps"] for phase in phases)
    model.optimizer.begin(total)
    curve, begun, first = Curve(), time.time(), 0
    for phase in phases:
        data = PackedRows(
            corpus, phase["length"], phase["batch_size"], model.masking, seed=training.get("seed", 0),
            steps=phase["steps"], first_step=first,
        )
        keras.Model.fit(model, data, epochs=1, shuffle=False, verbose=training.get("verbose", 2), callbacks=[curve])
        first += phase["steps"]
    tokens = sum(phase["steps"] * phase["length"] * phase["batch_size"] for phase in phases)
    seconds = time.time() - begun
    result = {
        "curve": curve.points, "steps": total, "tokens": tokens, "seconds": round(seconds, 1),
        "tokens_per_second": round(tokens / seconds),
    }
    if held_out is not None:
        result["held_out"] = evaluate(model, Shards.open(held_out))
    corpus.tokenizer.max_length = config.max_length
    model.save_to_preset(out)
    (Path(out) / "training.json").write_text(json.dumps(result) + "\n")
    return result


def _make(config: EncoderConfig, corpus: Shards, training: dict[str, Any]) -> MaskedLM:
    dtype = {"dtype": training["dtype"]} if "dtype" in training else {}
    encoder = Encoder(config, pooler=False, dropout=training.get("dropout"), **dtype)
    model = MaskedLM(encoder, Preprocessor(corpus.tokenizer), **dtype)
    optimizer = AdamW(
        training["learning_rate"], training.get("weight_decay", 0.01), beta_2=training.get("beta_2", 0.98),
        warmup=training.get("warmup", 0.05),
    )
    model.compile(optimizer)
    return model


def evaluate(model: MaskedLM, shards: Shards, length: int = 128, batch_size: int = 64, seed: int = 1) -> dict[str, float]:
    """Masked-LM loss (nats) and accuracy on held-out documents, with the entropy of their unigram distribution."""
    rows = len(shards.tokens) // (length - 2) - 1
    steps = max(1, rows // batch_size)
    data = PackedRows(shards, length, min(batch_size, rows), model.masking, seed=seed, steps=steps)
    scores = keras.Model.evaluate(model, data, verbose=0, return_dict=True)
    ordinary = np.asarray(shards.tokens)
    ordinary = ordinary[~np.isin(ordinary, model.masking.special_ids)]
    counts = np.bincount(ordinary)
    shares = counts[counts > 0] / counts.sum()
    return {**{name: float(value) for name, value in scores.items()}, "unigram_entropy": float(-(shares * np.log(shares)).sum())}


class Curve(keras.callbacks.Callback):
    """Keeps the running mean of the loss every `every` steps, as [step, loss]."""

    def __init__(self, every: int = 100):
        super().__init__()
        self.every, self.points, self.step = every, [], 0

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        if self.step % self.every == 0:
            self.points.append([self.step, round(float(logs["loss"]), 4)])
