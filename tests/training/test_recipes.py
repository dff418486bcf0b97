"""Accumulation, scores during fit, and the guard against NaN."""

import keras
import numpy as np
import pytest

import bertzoo as bz

TEXTS = ["a good film", "a bad film", "the plot was dull and bad", "never again"] * 4
LABELS = [1, 0, 0, 0] * 4


@pytest.fixture(scope="module")
def preset(write_checkpoint):
    return write_checkpoint(num_hidden_layers=1)[0]


@pytest.fixture
def make(preset, eager):
    def make(optimizer=None, **options):
        model = bz.TextClassifier.from_preset(preset, verbose=False, labels=2, new_head=True, dropout=0.0, **options)
        model.compile(optimizer, run_eagerly=eager)
        return model

    return make


def weights(model):
    return np.concatenate([np.ravel(keras.ops.convert_to_numpy(w)) for w in model.weights])


# ---- accumulation and float16


def test_two_batches_accumulated_are_one_of_twice_the_size(make):
    """Same order of rows; SGD-like comparison through AdamW, so that any difference in the gradients shows."""
    # The gradient of keys' biases is 0 but for rounding, which a smaller epsilon would scale up to whole steps.
    options = {"learning_rate": 1e-3, "epsilon": 1e-6}
    one, two = make(bz.AdamW(**options)), make(bz.AdamW(**options, gradient_accumulation_steps=2))
    x = one.tokenizer(TEXTS)
    for model, size in ((one, 8), (two, 4)):
        model.optimizer.build(model.trainable_variables)
        model.optimizer.set_total_steps(4)
        batches = [
            ({k: v[i : i + size] for k, v in x.items()}, np.array(LABELS[i : i + size])) for i in range(0, 16, size)
        ]
        for batch in batches * 2:
            model.train_on_batch(*batch)
    np.testing.assert_allclose(weights(one), weights(two), atol=2e-5)


def test_the_schedule_of_fit_counts_updates_and_reaches_its_end(make):
    model = make(bz.AdamW(1e-3, gradient_accumulation_steps=2))
    model.fit(TEXTS, LABELS, batch_size=4, epochs=2, verbose=0)  # 8 batches, 4 updates
    assert int(keras.ops.convert_to_numpy(model.optimizer._total_steps)) == 4
    assert float(keras.ops.convert_to_numpy(model.optimizer.current_learning_rate)) == pytest.approx(0, abs=1e-9)


def test_float16_gets_its_schedule_too(make):
    model = make(dtype="mixed_float16")
    model.fit(TEXTS, LABELS, batch_size=8, verbose=0)
    inner = model.optimizer.inner_optimizer
    assert int(keras.ops.convert_to_numpy(inner._total_steps)) == 2


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_deberta_trains_in_half_precision_on_padded_rows(dtype):
    """Its scores are large here, and a third of the rows is padding, whose mask has once been a source of NaN."""
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    options = {"relative_attention": True, "pos_att_type": "p2c|c2p", "position_biased_input": False}
    more = {"intermediate_size": 24, "max_position_embeddings": 24, "initializer_range": 0.5, "position_buckets": 8}
    config = bz.EncoderConfig.from_hf({"model_type": "deberta-v2", **sizes, **options, **more})
    model = bz.TextClassifier(bz.Encoder(config, dtype=dtype), dtype=dtype)
    model.compile(bz.AdamW(1e-3))
    rng, real = np.random.default_rng(0), np.arange(9) < np.array([[9], [3]] * 4)
    x = {"token_ids": rng.integers(3, 50, (8, 9)), "padding_mask": real.astype(int)}
    losses = model.fit(x, rng.integers(0, 2, 8), batch_size=8, epochs=5, verbose=0).history["loss"]
    assert np.isfinite(losses).all() and np.isfinite(weights(model)).all()
    scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert scaled == (dtype == "mixed_float16")


# ---- scores during fit


def test_entity_f1_can_be_watched(preset):
    sentences = [["we", "saw", "paris"], ["rome", "again"]]
    tags = [["O", "O", "B-X"], ["B-X", "O"]]
    model = bz.TokenClassifier.from_preset(preset, verbose=False, labels=["O", "B-X"], dropout=0.0)
    model.compile(bz.AdamW(1e-2, warmup=0.0, schedule="constant"))
    early = keras.callbacks.EarlyStopping("val_entity_f1", mode="max", patience=50)
    watched = [bz.training.EntityF1(sentences, tags), early]
    history = model.fit(sentences, tags, epochs=12, verbose=0, callbacks=watched).history
    assert early.best == max(history["val_entity_f1"]) == 1.0
    expected = bz.metrics.entity_scores(tags, model.tag_words(sentences))["f1"]
    assert history["val_entity_f1"][-1] == expected


@pytest.mark.once  # as the one above: predictions in between epochs
def test_answer_f1_can_be_watched(preset):
    records = [{"question": "we", "context": "saw a film", "answers": ["film"]}]
    model = bz.QuestionAnswerer.from_preset(preset, verbose=False, dropout=0.0)
    model.compile(bz.AdamW(1e-2, warmup=0.0, schedule="constant"))
    early = keras.callbacks.EarlyStopping("val_answer_f1", mode="max", patience=50)
    history = model.fit(records, epochs=6, verbose=0, callbacks=[bz.training.AnswerF1(records), early]).history
    assert history["val_answer_f1"][-1] == 100 and history["val_exact_match"][-1] == 100 == early.best
    with pytest.raises(ValueError, match="no answers"):
        model.fit(records, verbose=0, callbacks=[bz.training.AnswerF1([{"question": "a", "context": "b"}])])


# ---- NaN


def test_a_loss_that_is_no_number_stops_training_and_says_why(make):
    model = make(bz.AdamW(1e-3))
    head = model.classifier.weights[0]
    head.assign(np.full(head.shape, np.nan))
    with pytest.raises(FloatingPointError, match=r"loss is nan in epoch 1.*weights are not finite.*rate") as error:
        model.fit(TEXTS, LABELS, batch_size=2, epochs=3, verbose=0)
    assert "between batch 0 and batch 1" in str(error.value)


def test_where_weights_are_finite_the_outputs_are_named(make):
    model = make()

    def loss(y_true, y_pred):
        return keras.ops.log(keras.ops.sum(y_pred * 0, axis=-1) - 1.0)

    model.compile(keras.optimizers.SGD(0.0), loss=loss, metrics=[])
    with pytest.raises(FloatingPointError, match=r"all weights are still finite|weights are not finite"):
        model.fit(TEXTS, LABELS, batch_size=8, verbose=0)


@pytest.mark.once  # one run is one run on every backend
def test_32_examples_with_the_defaults_do_not_diverge(make):
    model = make()
    losses = model.fit(TEXTS * 2, LABELS * 2, epochs=5, verbose=0).history["loss"]
    assert np.isfinite(losses).all() and losses[-1] <= losses[0] * 1.05
