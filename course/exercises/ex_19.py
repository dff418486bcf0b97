"""Exercises of notebook 19: the stages of bert.py, each a function of the learner's module."""

import contextlib
import functools
import io
import json
import tempfile
from pathlib import Path
from types import ModuleType

import keras
import numpy as np
from keras import ops
from safetensors.numpy import save_file

import bertzoo as bz
from bertzoo.checkpoints.files import bundled_presets_directory

PRESET = bundled_presets_directory() / "bert_mini_en"
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", "##ble", "##a", "aff", "good", "bad")
TEXTS = (
    "The keys to the cabinet are on the table.",
    "Héllo, WORLD!  Naïve café\tin São Paulo…",
    "It costs $5 + 7% [MASK] @home; 50^2 `quoted` ~ok~",
    "a\u0000b \ufffd zero\u200bwidth 中文 ok",
    "[MASK] is [UNK]",
    "q" * 101,
    "",
)


@functools.cache
def library() -> bz.MaskedLM:
    return bz.MaskedLM.from_preset(PRESET, verbose=False)


def numbers(tensor) -> np.ndarray:
    return np.asarray(ops.convert_to_numpy(tensor))


def tensor(array) -> object:
    return ops.convert_to_tensor(np.asarray(array, "float32"))


def far(answer, expected: np.ndarray, name: str) -> str | None:
    """A hint if an answer is not what is expected, to float error."""
    answer = numbers(answer)
    if answer.shape != expected.shape:
        return f"{name} has the shape {answer.shape}, expected {expected.shape}."
    gap = np.abs(answer - expected).max()
    if gap <= 1e-5 * max(1.0, np.abs(expected).max()):
        return None
    return f"{name} differs by {gap:.2g} from the reference; 1e-5 is allowed."


def tokenizer(bert: ModuleType) -> str | None:
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    for word, expected in (("unaffable", ["un", "##aff", "##able"]), ("unaffx", ["[UNK]"]), ("goodx", ["[UNK]"])):
        pieces = list(bert.wordpiece(word, vocabulary))
        if pieces != expected:
            why = (
                "One part without a piece makes the whole word unknown."
                if "[UNK]" in expected
                else "Is it the longest?"
            )
            return f"wordpiece({word!r}) gives {pieces}, expected {expected}. {why}"
    vocabulary = json.loads((PRESET / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    names, reference = {i: word for word, i in vocabulary.items()}, library().tokenizer(list(TEXTS))
    batch = bert.encode(list(TEXTS), vocabulary)
    for row, text in enumerate(TEXTS):
        said, right = (
            [names[int(i)] for i, real in zip(b["token_ids"][row], b["padding_mask"][row]) if real]
            for b in (batch, reference)
        )
        if said != right:
            return f"encode([{text!r}]) gives the tokens {said}, expected {right}. Look at split_words first."
    if batch["token_ids"].shape[1] % 8:
        return f"encode gives rows of length {batch['token_ids'].shape[1]}; a multiple of 8 was asked for."
    if (np.asarray(batch["token_ids"])[np.asarray(batch["padding_mask"]) == 0] != vocabulary["[PAD]"]).any():
        return "encode: what follows [SEP] must be [PAD]."
    long = bert.encode(["good " * 600], vocabulary)["token_ids"]
    if long.shape != (1, 512) or long[0, -1] != vocabulary["[SEP]"]:
        return "encode: a text of 600 tokens must be cut to 512, [CLS] and [SEP] included; its last is [SEP]."
    cased = bert.encode(["Éa"], {**vocabulary, "É": 7, "##a": 8}, lower=False)["token_ids"][0, 1]
    return None if cased == 7 else "encode(['Éa'], …, lower=False): without lower, capitals and accents must stay."


def embeddings(bert: ModuleType) -> str | None:
    x, matrix = np.random.default_rng(0).normal(size=(2, 3, 3))
    weights = {"a.weight": tensor(matrix), "a.bias": tensor([1.0, 2.0, 3.0])}
    hint = far(bert.dense(tensor(x), weights, "a"), x @ matrix.T + [1.0, 2.0, 3.0], "dense")
    if hint:
        return f"{hint} The matrix in the file is (outputs, inputs)."
    small = np.array([[1e-3, -1e-3, 2e-3, 0.0]])  # near the epsilon, which must stand below the root
    centred = small - small.mean(axis=-1, keepdims=True)
    expected = 2 * centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) + 0.5
    norm = {"n.weight": tensor([2.0] * 4), "n.bias": tensor([0.5] * 4)}
    hint = far(bert.layer_norm(tensor(small), norm, "n", 1e-5), expected, "layer_norm")
    if hint:
        return f"{hint} Mean, variance (divided by the width), epsilon below the root: one of the three is off."
    return _loaded(bert)


def _loaded(bert: ModuleType) -> str | None:
    """What `load` and `embed` make of a directory of 2018, and of the bundled one."""
    with tempfile.TemporaryDirectory() as directory:
        old = {"bert.embeddings.LayerNorm.gamma": np.ones(2, "float16"), "bert.embeddings.position_ids": np.arange(2)}
        save_file(old, Path(directory, "model.safetensors"))
        Path(directory, "config.json").write_text('{"hidden_size": 2}')
        content = {"normalizer": {"lowercase": False}, "model": {"vocab": {"[PAD]": 0}}}
        Path(directory, "tokenizer.json").write_text(json.dumps(content))
        config, vocabulary, weights = bert.load(directory)
    if list(weights) != ["embeddings.LayerNorm.weight"] or config.get("lower") is not False or len(vocabulary) != 1:
        return f"load: expected one weight, embeddings.LayerNorm.weight, and lower = False; it gives {list(weights)}."
    if numbers(weights["embeddings.LayerNorm.weight"]).dtype != np.float32:
        return "load: weights in 16 bits must become float32."
    config, vocabulary, weights = bert.load(PRESET)
    batch = library().tokenizer(list(TEXTS[:3]))
    batch["segment_ids"] = batch["segment_ids"] + np.arange(batch["segment_ids"].shape[1], dtype="int32") % 2
    expected = library().backbone(batch, return_all=True)["hidden_states"][0]
    real = batch["padding_mask"] > 0
    return far(numbers(bert.embed(batch, weights, config))[real], numbers(expected)[real], "embed")


def random_block(hidden: int = 8, inner: int = 16) -> dict:
    """The weights of block 0, by Hugging Face's names."""
    rng, weights = np.random.default_rng(1), {}
    shapes = {f"attention.self.{part}": (hidden, hidden) for part in ("query", "key", "value")}
    shapes |= {"attention.output.dense": (hidden, hidden), "attention.output.LayerNorm": (hidden,)}
    shapes |= {"intermediate.dense": (inner, hidden), "output.dense": (hidden, inner), "output.LayerNorm": (hidden,)}
    for name, shape in shapes.items():
        weights[f"encoder.layer.0.{name}.weight"] = tensor(rng.normal(size=shape))
        weights[f"encoder.layer.0.{name}.bias"] = tensor(rng.normal(size=shape[0]))
    return weights


def reference_attention(x: np.ndarray, mask: np.ndarray, weights: dict, root: float) -> np.ndarray:
    """By loops over texts and heads of 4, in float64."""
    w = {name.removeprefix("encoder.layer.0.attention."): numbers(value) for name, value in weights.items()}
    q, k, v = (x @ w[f"self.{part}.weight"].T + w[f"self.{part}.bias"] for part in ("query", "key", "value"))
    mixed = np.zeros_like(x)
    for text in range(len(x)):
        real = mask[text] > 0
        for head in (slice(0, 4), slice(4, 8)):
            e = np.exp(q[text][:, head] @ k[text][real][:, head].T / root)
            mixed[text][:, head] = e / e.sum(axis=1, keepdims=True) @ v[text][real][:, head]
    return mixed @ w["output.dense.weight"].T + w["output.dense.bias"]


def attends(bert: ModuleType) -> str | None:
    x, mask = np.random.default_rng(2).normal(size=(2, 5, 8)) / 2, np.array([[1, 1, 1, 0, 0], [1] * 5])
    weights = random_block()
    arguments = tensor(x), ops.convert_to_tensor(mask.astype("int32")), weights, "encoder.layer.0.attention", 2
    answer = bert.attention(*arguments)
    hint = far(answer, reference_attention(x, mask, weights, 2.0), "attention")
    if hint is None:
        return None
    guesses = {
        "The scores are not divided by the root of a head's width.": (mask, 1.0),
        "The scores are divided by the root of the whole width; a head's is meant.": (mask, np.sqrt(8)),
        "Padding is attended to.": (np.ones_like(mask), 2.0),
    }
    for why, (seen, root) in guesses.items():
        if far(answer, reference_attention(x, seen, weights, root), "attention") is None:
            return why
    return f"{hint} Cut the width into heads first, then bring the heads before the length."


def encodes(bert: ModuleType) -> str | None:
    config, vocabulary, weights = bert.load(PRESET)
    batch = bert.encode(list(TEXTS[:3]), vocabulary)
    real = np.asarray(batch["padding_mask"]) > 0
    states = library().backbone(batch, return_all=True)["hidden_states"]
    x = states[0]
    for layer, expected in enumerate(states[1:]):
        x = bert.block(x, batch["padding_mask"], weights, config, f"encoder.layer.{layer}")
        hint = far(numbers(x)[real], numbers(expected)[real], f"block {layer}")
        if hint:
            return f"{hint} Twice: add to the input, then normalise; GELU is the exact one, with erf."
    hint = far(numbers(bert.encoder(batch, weights, config))[real], numbers(states[-1])[real], "encoder")
    return hint and f"{hint} The blocks are right: are all of them there, after the embeddings?"


def fills(bert: ModuleType) -> str | None:
    config, vocabulary, weights = bert.load(PRESET)
    text = "Paris is the [MASK] of France."
    batch = bert.encode([text], vocabulary)
    place, count = int(np.argmax(batch["token_ids"][0] == vocabulary["[MASK]"])), int(batch["padding_mask"].sum())
    expected = numbers(library()(batch))[:, :count]
    logits = bert.masked_lm(bert.encoder(batch, weights, config), weights, config)
    hint = far(numbers(logits)[:, :count], expected, "masked_lm")
    if hint:
        return f"{hint} A dense layer, GELU, a normalisation, then the token table as the last matrix, and a bias."
    e = np.exp(expected[0, place] - expected[0, place].max())
    right = {token: e[i] / e.sum() for token, i in vocabulary.items()}
    best = sorted(right, key=right.get, reverse=True)[:3]
    filled = list(bert.fill_mask(text, config, vocabulary, weights, k=3))
    if [token for token, _ in filled] != best:
        return (
            f"fill_mask({text!r}, k=3) gives {[token for token, _ in filled]}, expected {best}. Whose logits are these?"
        )
    wrong = max(abs(probability - right[token]) for token, probability in filled)
    return None if wrong < 1e-4 else "fill_mask: the tokens are right; the second of each pair is not its probability."


def learns(bert: ModuleType) -> str | None:
    return _loss_and_dropout(bert) or _steps(bert) or _training(bert)


def _loss_and_dropout(bert: ModuleType) -> str | None:
    logits, labels = np.array([[2.0, 0.0, 0.0], [0.0, 1.0, -1.0]]), np.array([0, 2], "int32")
    expected = np.mean([np.log(np.exp(row).sum()) - row[label] for row, label in zip(logits, labels)])
    hint = far(bert.cross_entropy(tensor(logits), labels), np.array(expected), "cross_entropy")
    if hint:
        return f"{hint} It is the mean over the texts of -log of the label's probability."
    noise = np.random.default_rng(3).random((2, 1, 50, 40)).astype("float32")
    drop = bert.dropout(noise, 0.25)
    for use in range(2):
        once = numbers(drop(ops.ones((1, 50, 40))))
        hint = far(once, np.where(noise[use] < 0.25, 0.0, 4 / 3), "dropout")
        if hint:
            return f"{hint} This was use {use + 1}; 0 where its noise is below the rate, x / (1 - rate) elsewhere."
    return None


def _steps(bert: ModuleType) -> str | None:
    rng = np.random.default_rng(4)
    names = ("a.dense.weight", "a.dense.bias", "LayerNorm.weight")
    arrays = {name: rng.normal(size=(3, 2) if "dense.weight" in name else 3) for name in names}
    variables = [keras.Variable(value, dtype="float32", name=f"v{i}") for i, value in enumerate(arrays.values())]
    adam = keras.optimizers.AdamW(0.1, weight_decay=0.01, epsilon=1e-8)
    adam.exclude_from_weight_decay(var_list=variables[1:])
    adam.build(variables)
    weights, moments = {name: tensor(value) for name, value in arrays.items()}, {}
    for step in (1, 2, 3):
        grads = {name: tensor(rng.normal(size=value.shape)) for name, value in arrays.items()}
        adam.apply(list(grads.values()))
        weights, moments = bert.adamw(weights, grads, moments, step, 0.1)
        for name, variable in zip(names, variables):
            hint = far(weights[name], numbers(variable), f"adamw: {name}, step {step},")
            if hint:
                return f"{hint} Biases and normalisations are not decayed; both means are corrected by 1 - beta**step."
    grads = bert.clip({"a": tensor([3.0, 0.0]), "b": tensor([[4.0]])}, 1.0)
    hint = far(grads["a"], np.array([0.6, 0.0]), "clip") or far(grads["b"], np.array([[0.8]]), "clip")
    if hint or far(bert.clip({"a": tensor([0.5])}, 1.0)["a"], np.array([0.5]), "clip"):
        return "clip: one factor for all, limit / norm of all gradients together; small gradients stay as they are."
    rates = [bert.learning_rate(step, 20, 2.0) for step in (1, 2, 11, 20)]
    if not np.allclose(rates, [1.0, 2.0, 1.0, 0.0]):
        return f"learning_rate at steps 1, 2, 11, 20 of 20 with peak 2 gives {rates}, expected [1, 2, 1, 0]."
    return None


def _training(bert: ModuleType) -> str | None:
    """A tiny encoder learns to tell `good` from `bad`."""
    rng, vocabulary = np.random.default_rng(5), {word: i for i, word in enumerate(WORDS)}
    config = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "layer_norm_eps": 1e-12,
        "lower": True,
    }
    weights = random_block() | {"embeddings.LayerNorm.weight": ops.ones(8), "embeddings.LayerNorm.bias": ops.zeros(8)}
    for table, rows in (("word", len(WORDS)), ("position", 16), ("token_type", 2)):
        weights[f"embeddings.{table}_embeddings.weight"] = tensor(rng.normal(size=(rows, 8)))
    weights["cls.predictions.bias"] = ops.zeros(len(WORDS))
    labels = np.arange(60, dtype="int32") % 2
    texts = [("good" if label else "bad") + " aff" * int(rng.integers(1, 4)) for label in labels]
    data, fit = (texts, labels), functools.partial(bert.fine_tune, epochs=6, peak=3e-2)
    with contextlib.redirect_stdout(io.StringIO()):
        trained = fit(data, data, config, vocabulary, weights)
        best = fit(data, (texts, 1 - labels), config, vocabulary, weights)  # held-out labels say the contrary
    if any(name.startswith("cls.") for name in trained) or numbers(trained["classifier.weight"]).shape != (2, 8):
        return "fine_tune: the result has no masked-LM head, and a classifier of 2 classes."
    if numbers(bert.classify(bert.encode(texts, vocabulary), trained, config)).shape != (60, 2):
        return "classify: one row of logits for each text."
    right, against = (bert.predict(texts, config, vocabulary, w) == labels for w in (trained, best))
    if right.mean() < 0.95:
        return f"fine_tune: {right.mean():.0%} of 60 texts are right after six epochs; an easy task, 95 % are needed."
    if against.mean() > 0.9:
        return "fine_tune returns the weights of the last epoch; the best on the held-out texts were asked for."
    return None


CHECKS = {"19.1": tokenizer, "19.2": embeddings, "19.3": attends, "19.4": encodes, "19.5": fills, "19.6": learns}
