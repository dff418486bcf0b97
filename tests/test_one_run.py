"""One seed, one run: the same training in three processes, one for each backend."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import bertzoo

BACKENDS = ("jax", "tensorflow", "torch")
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="it runs all three backends itself; once is enough"
)

# DeBERTa with a convolution, and ModernBERT: blocks that draw masks where BERT's do not, and local attention.
OTHERS = """
import keras, numpy as np
import bertzoo as bz
from bertzoo.models.registry import FAMILIES

ids = np.random.default_rng(0).integers(3, 50, (4, 9)).astype("int32")
labels = np.random.default_rng(1).integers(0, 2, (4, 9)).astype("int32")
sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 24, "max_position_embeddings": 24}
v2 = {"position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True, "conv_kernel_size": 3}
others = {}
for name, changes in (("deberta-v2", v2), ("modernbert", {"local_attention": 6})):
    bz.set_seed(3)
    task = bz.TokenClassifier(bz.Encoder(FAMILIES[name].config_class(**sizes, **changes), dropout=0.2))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    task.compile(keras.optimizers.SGD(0.5), loss, run_eagerly=keras.backend.backend() != "jax")
    others[name] = [float(np.ravel(task.train_on_batch({"token_ids": ids}, labels))[0]) for _ in range(3)]

# Entities of any label, whose prompts are drawn, with an LSTM and dropout after the encoder.
bz.set_seed(3)
words = ["ada", "rome", "we", "saw", "left", "person", "place", "day"]
tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, "<<ENT>>", "<<SEP>>"]
tokenizer = bz.Tokenizer.from_vocabulary(tokens, max_length=24).with_special_tokens(tokens[-2:])
finder = bz.EntityFinder(bz.Encoder(bz.EncoderConfig(**{**sizes, "vocab_size": len(tokens)}), dropout=0.2), tokenizer,
                         hidden_size=12, max_width=3)
finder.compile(keras.optimizers.SGD(0.05), run_eagerly=keras.backend.backend() != "jax")
texts, spans = ["ada left rome", "we saw ada", "we left", "rome"], [[(0, 3, "person"), (9, 13, "place")],
                [(7, 10, "person")], [], [(0, 4, "place")]]
data = finder.batches(texts, spans, batch_size=4)
others["entities"] = []
for epoch in range(4):
    data.epoch = epoch
    others["entities"].append(float(np.ravel(finder.train_on_batch(*data[0]))[0]))
"""

WORKER = """
import re, sys
import keras, numpy as np
import bertzoo as bz
from bertzoo.data import load_reviews
from bertzoo.random import fold_in

compiled = lambda function: function
if keras.backend.backend() == "jax":  # as its operations are in a step, and sooner than one by one
    from jax import jit as compiled

def split(text):
    return re.findall(r"[a-z]+|[^a-z\\s]", text.lower())

# Of 9 tokens or more, cut after 16: batches of one shape, so that a step is compiled once.
texts, labels = zip(*[row for row in zip(*load_reviews("train")) if len(split(row[0])) > 6][:208])
texts, labels = list(texts), list(labels)
words = sorted({word for text in texts for word in split(text)})
tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
config = bz.EncoderConfig(vocab_size=len(tokens), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                          intermediate_size=64, max_position_embeddings=64)

def run(remat=False):
    bz.set_seed(5)
    model = bz.TextClassifier(bz.Encoder(config, remat=remat),
                              bz.Tokenizer.from_vocabulary(tokens, max_length=16), ["negative", "positive"])
    start = {weight.path: np.asarray(keras.ops.convert_to_numpy(weight)) for weight in model.weights}
    losses = []
    class Read(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.before = 0.0
        def on_train_batch_end(self, batch, logs=None):
            total = float(logs["loss"]) * (batch + 1)  # Keras logs the mean since the epoch's begin
            losses.append(total - self.before)
            self.before = total
    model.compile(bz.AdamW(5e-3))
    model.fit(texts, labels, batch_size=16, epochs=8, verbose=0, callbacks=[Read()])
    key = model.backbone.step.next_key()
    ids = model.tokenizer(texts[:8])["token_ids"]
    embedded = compiled(lambda ids, key: model.backbone.embeddings(ids, key=fold_in(key, 0)))(ids, key)
    masks = [keras.ops.convert_to_numpy(embedded) != 0]
    for layer, salt, shape in ((1, 0, (4, 4, 9, 9)), (1, 1, (8, 24, 32)), (2, 2, (8, 24, 32))):
        drop = compiled(lambda x, key: bz.layers.dropout(x, 0.1, fold_in(key, layer), salt=salt))
        masks.append(keras.ops.convert_to_numpy(drop(keras.ops.ones(shape), key)) != 0)
    return losses, masks, start

runs = {"first": run(), "recomputed": run(remat=True)}
if keras.backend.backend() == "torch":  # the quickest to start
    runs["again"] = run()
out = {"start_" + path: value for path, value in runs["first"][2].items()}
for name, (losses, masks, _) in runs.items():
    out.update({"losses_" + name: losses, **{f"mask_{name}_{i}": mask for i, mask in enumerate(masks)}})
if keras.backend.backend() != "jax":  # where the tests themselves run
    exec(sys.argv[2])
    out.update({"others_" + name: losses for name, losses in others.items()})
np.savez(sys.argv[1], **out)
"""


def test_one_seed_is_one_run(tmp_path):
    """In one test, since the runs are dear and tests of a file are shared out to several processes."""
    runs = run_on_each_backend(tmp_path)
    losses_agree_between_backends_and_with_recomputation(runs)
    masks_and_initial_weights_agree_bit_for_bit(runs)
    other_families_agree(runs)
    if "torch" in runs:
        assert off(runs["torch"]["losses_again"], runs["torch"]["losses_first"]) <= 1e-6


def run_on_each_backend(folder):
    root = str(Path(bertzoo.__file__).resolve().parents[1])
    env = {**os.environ, "PYTHONPATH": root, "TF_CPP_MIN_LOG_LEVEL": "3", "XLA_FLAGS": ""}  # compiled as for users
    results = {}
    for backend in BACKENDS:
        command = [sys.executable, "-c", WORKER, str(folder / f"{backend}.npz"), OTHERS]
        done = subprocess.run(
            command, env={**env, "KERAS_BACKEND": backend}, capture_output=True, text=True, timeout=300
        )
        if "is not installed" in done.stderr:
            continue
        assert done.returncode == 0, done.stderr[-3000:]
        results[backend] = dict(np.load(folder / f"{backend}.npz"))
    return results


def off(a, b):
    return (np.abs(a - b) / np.maximum(b, 0.1)).max()


def losses_agree_between_backends_and_with_recomputation(runs):
    reference = runs["jax"]["losses_first"]
    assert len(reference) == 104
    assert reference[-12:].mean() < 0.9 * reference[:12].mean()
    worst = {
        f"{backend} {name}": off(run[name], reference)
        for backend, run in runs.items()
        for name in ("losses_first", "losses_recomputed")
    }
    assert max(worst.values()) <= 1e-4, worst


def masks_and_initial_weights_agree_bit_for_bit(runs):
    reference = runs["jax"]
    assert len([name for name in reference if name.startswith("start_")]) == 33
    for run in runs.values():
        for name, values in run.items():
            if name.startswith("start_"):
                np.testing.assert_array_equal(values, reference[name], err_msg=name)
            elif name.startswith("mask_"):
                np.testing.assert_array_equal(values, reference["mask_first_" + name[-1]], err_msg=name)
                assert abs(values.mean() - 0.9) < 0.03


def other_families_agree(runs):
    here = {}
    exec(OTHERS, here)
    for backend in set(runs) - {"jax"}:
        for name, losses in here["others"].items():
            assert len(set(losses)) == len(losses)
            np.testing.assert_allclose(runs[backend]["others_" + name], losses, rtol=1e-5, err_msg=f"{name} {backend}")
