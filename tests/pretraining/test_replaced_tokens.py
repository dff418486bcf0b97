"""Replaced-token detection: who shares what, what is drawn, which way gradients go, and what transformers loads."""

import keras
import numpy as np
import pytest
import torch
import transformers
from sklearn.metrics import roc_auc_score

import bertzoo as bz
from bertzoo.models.electra import ElectraConfig
from bertzoo.pretraining import replaced_tokens
from bertzoo.pretraining.replaced_tokens import LogitAuc, ReplacedTokenTraining, generator_config, replace_tokens
from bertzoo.random import step_key

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
SIZE = {"hidden_size": 32, "embedding_size": 16, "num_attention_heads": 4, "intermediate_size": 48}
FIXED = [[1, 0, 0, 1], [1, 1, 0, 2], [0, 1, 0, 2]]
HF_NAMES = {"token_ids": "input_ids", "segment_ids": "token_type_ids", "padding_mask": "attention_mask"}


def make(hidden=0.5, changes=(), **options):
    config = ElectraConfig(
        vocab_size=len(WORDS), num_hidden_layers=1, max_position_embeddings=64, **{**SIZE, **dict(changes)}
    )
    tokenizer = bz.Tokenizer.from_vocabulary(WORDS)
    return ReplacedTokenTraining(config, generator_config(config, hidden), tokenizer, **options)


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(0)
    lengths = np.array([20, 12, 20, 7])
    mask = (np.arange(20) < lengths[:, None]).astype("int32")
    ids = rng.integers(5, len(WORDS), (4, 20)).astype("int32") * mask
    ids[:, 0], ids[np.arange(4), lengths - 1] = 2, 3
    segments = ((np.arange(20) > 5) * mask).astype("int32")
    return {"token_ids": ids, "segment_ids": segments, "padding_mask": mask, "lengths": lengths.astype("int32")}


@pytest.mark.once
@pytest.mark.parametrize(
    ("shares", "expected"),
    [((0.25, 1.0), (64, 12, 1, 256)), ((1 / 3, 1.0), (256, 12, 4, 1024)), ((1.0, 0.5), (768, 6, 12, 3072))],
)
def test_generator_sizes(shares, expected):
    """The rules of google-research/electra's pretrain.py, for small (fraction 1/4) and base."""
    width = 256 if shares[0] == 0.25 else 768
    config = ElectraConfig(hidden_size=width, num_attention_heads=width // 64, embedding_size=128)
    made = generator_config(config, *shares)
    assert expected == (made.hidden_size, made.num_hidden_layers, made.num_attention_heads, made.intermediate_size)
    assert made.embedding_size == 128 and made.model_type == "electra"


def test_what_is_shared():
    model = make()
    assert all(layer.built for layer in model._flatten_layers())  # or each `fit` of Keras would trace it all anew
    discriminator, generator = (
        {id(w): w.path for w in network.weights} for network in (model.discriminator, model.generator)
    )
    shared = sorted(path.split("/", 1)[1] for key, path in discriminator.items() if key in generator)
    names = ("norm/beta", "norm/gamma", "position", "segment", "token")
    assert shared == [f"embeddings/{name}" for name in names]
    assert len(model.trainable_weights) == len(discriminator) + len(generator) - 5
    names = [weight.path for weight in model.weights]
    assert len(set(names)) == len(names)  # on PyTorch, weights of one name would share a gradient
    # As wide as the embeddings, a generator needs no projection.
    assert not any("generator/embeddings/projection" in name for name in names)
    assert any("generator/embeddings/projection" in weight.path for weight in make(hidden=1.0).weights)


def test_only_tokens_that_differ_are_called_replaced(batch, numpy, compiled):
    model = make()
    (inputs,) = model.mask_batch(batch, np.random.default_rng(1))
    outputs = numpy(compiled(lambda inputs: model(inputs, training=True), model)(inputs))
    read, replaced = outputs["token_ids"], outputs["replaced"]
    np.testing.assert_array_equal(replaced, (read != batch["token_ids"]).astype("int32"))
    chosen = np.zeros_like(read)
    for row, positions, counted in zip(chosen, inputs["mask_positions"], inputs["mask_weights"]):
        row[positions[counted > 0]] = 1
    assert not replaced[chosen == 0].any() and replaced.sum() > 0
    assert outputs["rtd"].shape == read.shape


def key(step):
    return step_key(0, keras.ops.convert_to_tensor(step, "int32"))


def test_draws_follow_the_distribution_and_repeat(numpy, compiled):
    sample = compiled(replaced_tokens.sample_tokens)
    logits = np.log(np.array([[0.5, 0.3, 0.15, 0.05, 1e-9]], "float32"))
    logits = np.broadcast_to(logits, (200, 200, 5)).copy()
    drawn = numpy(sample(logits, key(3)))
    counts = np.bincount(drawn.ravel(), minlength=5)
    expected = 40_000 * np.array([0.5, 0.3, 0.15, 0.05])
    assert counts[4] == 0 and (((counts[:4] - expected) ** 2) / expected).sum() < 20
    np.testing.assert_array_equal(drawn, numpy(sample(logits, key(3))))
    assert (drawn != numpy(sample(logits, key(4)))).mean() > 0.5
    assert drawn[:3, :4].tolist() == FIXED  # the same on every backend


@pytest.mark.parametrize("vocabulary", [128, 301])
def test_draws_from_several_blocks_follow_the_distribution(vocabulary, numpy, compiled):
    logits = np.random.default_rng(0).normal(size=vocabulary).astype("float32")
    drawn = numpy(
        compiled(replaced_tokens.sample_tokens)(np.broadcast_to(logits, (200, 200, vocabulary)).copy(), key(3))
    )
    counts = np.bincount(drawn.ravel(), minlength=vocabulary)
    expected = 40_000 * np.exp(logits.astype("float64")) / np.exp(logits.astype("float64")).sum()
    # chi² has as many degrees of freedom as there are tokens, less one; five standard deviations.
    assert (((counts - expected) ** 2) / expected).sum() < vocabulary + 5 * np.sqrt(2 * vocabulary)


def test_replace_tokens_by_hand(numpy):
    ids = np.array([[2, 4, 7, 3], [2, 5, 3, 0]], "int32")
    positions, counted = np.array([[1, 0], [1, 0]], "int32"), np.array([[1, 0], [1, 0]], "float32")
    labels, drawn = np.array([[6, 0], [5, 0]], "int32"), np.array([[9, 8], [5, 8]], "int32")
    tokens, differs = numpy(replace_tokens(ids, positions, labels, counted, drawn))
    assert tokens.tolist() == [[2, 9, 7, 3], [2, 5, 3, 0]] and differs.tolist() == [[0, 1, 0, 0], [0, 0, 0, 0]]


def losses(model, inputs, outputs):
    """Both losses from the logits, in NumPy."""
    logits, rtd = outputs["masked_lm"].astype("float64"), outputs["rtd"].astype("float64")
    counted, real = inputs["mask_weights"] > 0, inputs["padding_mask"] > 0
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    masked_lm = -np.take_along_axis(log_probabilities, inputs["mask_labels"][..., None], axis=-1)[..., 0][
        counted
    ].mean()
    signs = 2.0 * outputs["replaced"] - 1
    return masked_lm, np.log1p(np.exp(-signs * rtd))[real].mean()


def test_loss_and_scores_are_true_means(batch, numpy, eager, compiled):
    # Initial logits are larger than the bins in which the area is counted.
    model = make(dropout=0.0, changes={"initializer_range": 0.3})
    model.compile(run_eagerly=eager)
    (inputs,) = model.mask_batch(batch, np.random.default_rng(1))
    outputs = numpy(compiled(model, model)(inputs))
    masked_lm, rtd = losses(model, inputs, outputs)
    scores = model.evaluate(inputs, verbose=0, return_dict=True, batch_size=4)
    assert scores["loss"] == pytest.approx(masked_lm + 50 * rtd, rel=1e-5)
    assert scores["masked_lm_loss"] == pytest.approx(masked_lm, rel=1e-5)
    assert scores["rtd_loss"] == pytest.approx(rtd, rel=1e-5)
    counted, real = inputs["mask_weights"] > 0, inputs["padding_mask"] > 0
    right = (outputs["masked_lm"].argmax(-1) == inputs["mask_labels"])[counted].mean()
    assert scores["masked_accuracy"] == pytest.approx(right)
    expected = roc_auc_score(outputs["replaced"][real], outputs["rtd"][real])
    assert scores["rtd_auc"] == pytest.approx(expected, abs=0.01)


def test_auc_equals_scikit_learn(numpy):
    rng, metric = np.random.default_rng(0), LogitAuc()
    truth, logits = [], []
    for _ in range(3):
        labels = rng.integers(0, 2, (8, 50)).astype("int32")
        values = (rng.normal(size=labels.shape) * 3 + labels - 4).astype("float32")
        weight = rng.integers(0, 2, labels.shape).astype("float32")
        metric.update_state(labels, values, weight)
        truth.append(labels[weight > 0])
        logits.append(values[weight > 0])
    assert float(numpy(metric.result())) == pytest.approx(
        roc_auc_score(np.concatenate(truth), np.concatenate(logits)), abs=2e-3
    )
    metric.reset_state()
    metric.update_state(np.array([1, 0]), np.array([3.0, -3.0]))
    assert float(numpy(metric.result())) == pytest.approx(1.0)


def test_the_discriminator_moves_the_generator_through_shared_tables_only(batch, numpy, eager):
    """With the generator's own loss left out, what it does not share stays where it was."""
    model = make(dropout=0.0)

    def only_rtd(x=None, y=None, y_pred=None, sample_weight=None, training=True):
        replaced = keras.ops.cast(y_pred["replaced"], "float32")
        return keras.ops.mean(keras.ops.softplus(y_pred["rtd"]) - y_pred["rtd"] * replaced)

    model.compute_loss = only_rtd
    model.compile(bz.AdamW(0.01, 0.0, warmup=0.0), run_eagerly=eager)
    (inputs,) = model.mask_batch(batch, np.random.default_rng(1))
    before = {w.path: numpy(w).copy() for w in model.trainable_weights}
    model.fit(inputs, batch_size=4, epochs=2, shuffle=False, verbose=0)
    moved = {w.path for w in model.trainable_weights if np.abs(numpy(w) - before[w.path]).max() > 0}
    own = {w.path for w in model.generator.trainable_weights} - {w.path for w in model.discriminator.trainable_weights}
    assert not moved & own
    assert any("embeddings/token" in path for path in moved) and any("rtd/" in path for path in moved)


@pytest.mark.slow
def test_it_learns(batch, numpy):
    model = make(dropout=0.1)
    model.compile(bz.AdamW(3e-3))
    (inputs,) = model.mask_batch(batch, np.random.default_rng(1))
    first = model.fit(inputs, batch_size=4, epochs=1, shuffle=False, verbose=0).history
    last = model.fit(inputs, batch_size=4, epochs=60, shuffle=False, verbose=0).history
    assert last["masked_lm_loss"][-1] < 0.6 * first["masked_lm_loss"][0]
    assert last["rtd_auc"][-1] > 0.8


@pytest.mark.parametrize("hidden", [0.5, 1.0])
def test_saved_as_two_checkpoints_that_transformers_loads(batch, tmp_path, numpy, close, hidden):
    model = make(hidden)
    model.save_to_preset(tmp_path / "model")
    inputs = {HF_NAMES[key]: torch.tensor(value) for key, value in batch.items() if key in HF_NAMES}
    real = batch["padding_mask"] > 0
    for task, name, directory in (
        (model.discriminator, "ElectraForPreTraining", tmp_path / "model"),
        (model.generator, "ElectraForMaskedLM", tmp_path / "model" / "generator"),
    ):
        hf_model, info = getattr(transformers, name).from_pretrained(directory, output_loading_info=True)
        assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
        assert hf_model.config.architectures == [name]
        with torch.no_grad():
            expected = hf_model.eval()(**inputs).logits.numpy()
        got = numpy(task({key: batch[key] for key in HF_NAMES}))
        close(got[real], expected[real])
        again = type(task).from_preset(directory, verbose=False)
        close(numpy(again({key: batch[key] for key in HF_NAMES}))[real], got[real])


def test_mistakes_are_named():
    config = ElectraConfig(vocab_size=len(WORDS), num_hidden_layers=1, **SIZE)
    tokenizer = bz.Tokenizer.from_vocabulary(WORDS)
    with pytest.raises(ValueError, match="share their embeddings"):
        ReplacedTokenTraining(config, config.replace(embedding_size=8), tokenizer)
    with pytest.raises(ValueError, match="must be above 0"):
        generator_config(config, 0.0)
    bert = bz.EncoderConfig(vocab_size=len(WORDS), num_hidden_layers=1, hidden_size=32, num_attention_heads=4)
    with pytest.raises(ValueError, match="Bert has no head 'rtd'"):
        ReplacedTokenTraining(bert, bert, tokenizer)
