"""Training a SparseEncoder: the loss against sentence-transformers', its schedule, static queries, mini-batches."""

import keras
import numpy as np
import pytest
from stream_cases import check_streams_of_texts

import bertzoo as bz
from bertzoo.layers import SparseStaticEmbedding
from bertzoo.losses import AdaptiveLayer, MarginMSE, SpladeLoss

TEXTS = [
    "a good film",
    "the plot was dull and bad, and the actor was not very good " * 3,
    "",
    "we saw it with friends in paris",
    "never again !",
    "a great story",
]
QUERIES = ["good good film", "", "[SEP] paris , rome", "unhappy badly"]


@pytest.fixture(scope="module")
def encoder(masked_lm):
    return bz.SparseEncoder.from_preset(masked_lm, verbose=False)


def gradients(backend, model, x, targets):
    """The loss of a batch, and its gradients by the paths of the weights."""
    (inputs, *_) = model.data.batches(x, targets, shuffle=False, with_targets=True)[0]
    y = np.zeros(len(x[0]), "float32") if targets is None else np.asarray(targets, "float32")
    weights = model.trainable_variables

    def total(outputs):
        return model.data.loss(y, outputs)

    if backend == "jax":
        import jax

        def loss(values):
            state = [weight.value for weight in model.non_trainable_variables]
            return total(model.stateless_call(values, state, inputs)[0])

        value, grads = jax.jit(jax.value_and_grad(loss))([weight.value for weight in weights])
    elif backend == "torch":
        model.zero_grad()
        value = total(model(inputs))
        value.backward()
        value = value.detach()
        grads = [weight.value.grad for weight in weights]
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = total(model(inputs))
        grads = tape.gradient(value, [weight.value for weight in weights])
    paths = [weight.path.split("/", 1)[1] for weight in weights]
    return float(keras.ops.convert_to_numpy(value)), {
        path: keras.ops.convert_to_numpy(grad) for path, grad in zip(paths, grads) if grad is not None
    }


@pytest.mark.parametrize("form", ["max", "router"])
def test_value_and_gradients_of_the_loss_are_those_there(form, make_sparse_st, backend, close):
    from sentence_transformers.sparse_encoder import losses

    directory, reference = make_sparse_st(form)
    x = [QUERIES, TEXTS[:4], TEXTS[2:]]
    if form == "router":  # there, a query without words would be of no shape
        x = [["good good film", "bad", "paris , rome", "unhappy badly"], *x[1:]]
    model = bz.SparseEncoder.from_preset(directory, verbose=False)
    model.compile(loss=SpladeLoss(document_regularizer_weight=0.03, query_regularizer_weight=0.05))
    value, grads = gradients(backend, model, tuple(x), None)
    loss = losses.SpladeLoss(
        reference, losses.SparseMultipleNegativesRankingLoss(reference), 0.03, query_regularizer_weight=0.05
    )
    for module in reference.modules():  # outside of training it changes activations in place
        module.training = type(module).__name__ == "SpladePooling"
    kinds = ["query", "document", "document"]
    features = [reference.preprocess(column, task=kind) for column, kind in zip(x, kinds)]
    expected = sum(loss(features).values())
    expected.backward()
    close(value, expected.item())
    weights = dict(reference.named_parameters())
    start = next(name for name in weights if name.endswith("word_embeddings.weight"))
    prefix = start.removesuffix("bert.embeddings.word_embeddings.weight")
    names = {
        "embeddings/token": "bert.embeddings.word_embeddings.weight",
        "layer_0/intermediate/kernel": "bert.encoder.layer.0.intermediate.dense.weight",
        "masked_lm/dense/kernel": "cls.predictions.transform.dense.weight",
        "masked_lm/bias": "cls.predictions.bias",
    }
    compared = 0
    for path, gradient in grads.items():
        hf_name = next((name for end, name in names.items() if path.endswith(end)), None)
        if hf_name is not None:
            other = weights[prefix + hf_name].grad.numpy()
            other = other.T if path.endswith("kernel") else other
            if path.endswith("token"):  # that of [PAD] is 0: all tokens have its largest logit, of which any may count
                gradient, other = gradient[1:], other[1:]
            close(gradient, other, 1e-4)
            compared += 1
    assert compared == len(names), sorted(grads)


@pytest.mark.parametrize("static", [False, True], ids=["encoded queries", "static queries"])
def test_training_makes_pairs_alike_and_vectors_sparse(static, masked_lm, eager):
    model = bz.SparseEncoder.from_preset(masked_lm, verbose=False, dropout=0.0)
    if static:
        embedding = SparseStaticEmbedding(model.width)
        model = bz.SparseEncoder(model.backbone, model.tokenizer, query_embedding=embedding)
    before = model.encode_document(TEXTS).sparsity()
    model.compile(
        bz.AdamW(3e-3, warmup=0.0),
        SpladeLoss(None, 1.0, None if static else 1.0, warmup=0.0),
        run_eagerly=eager,
    )
    queries = ["good film", "dull plot", "never", "friends in paris", "again !", "story"]
    log = model.fit((queries, TEXTS), epochs=12, batch_size=3, verbose=0).history["loss"]
    after = model.encode_document(TEXTS).sparsity()
    assert log[-1] < log[0] and after["active_dims"] < before["active_dims"]
    assert np.isfinite(model.evaluate((queries, TEXTS), verbose=0))
    teacher = np.random.default_rng(0).random((6, 2))
    model.compile(bz.AdamW(1e-3, warmup=0.0), SpladeLoss(MarginMSE()), run_eagerly=eager)
    assert np.isfinite(model.fit((queries, TEXTS, TEXTS[::-1]), teacher, verbose=0).history["loss"][0])


def test_regularizers_rise_over_the_first_third_of_the_steps(masked_lm, eager):
    """The callback of sentence-transformers: weight × (step / steps of warm-up)², from step 0 on."""
    model = bz.SparseEncoder.from_preset(masked_lm, verbose=False, dropout=0.0)
    for _ in range(2):  # the second counts from its own first step
        model.compile(keras.optimizers.SGD(0.0), SpladeLoss(document_regularizer_weight=1e6), run_eagerly=eager)
        pairs = (TEXTS[:1] * 4, TEXTS[1:2] * 4)
        log = model.fit(pairs, batch_size=1, epochs=3, verbose=0, callbacks=[steps := Steps()]).history["loss"]
        factors = np.array(steps.losses) / steps.losses[-1]
        np.testing.assert_allclose(factors, [0, 1 / 16, 1 / 4, 9 / 16, *[1] * 8], atol=1e-3)
        assert len(log) == 3
    assert len({weight.path for weight in model.weights} & {"step", "regularizer_schedule"}) == 0


def test_a_loss_of_all_layers_is_refused(encoder):
    with pytest.raises(ValueError, match="needs a loss of the last layer's vectors. Received: AdaptiveLayer"):
        encoder.compile("sgd", AdaptiveLayer())


class Steps(keras.callbacks.Callback):
    """The loss of each step, of the logs' running mean."""

    def on_train_begin(self, logs=None):
        self.losses = []

    def on_epoch_begin(self, epoch, logs=None):
        self.total = 0.0

    def on_train_batch_end(self, batch, logs=None):
        total = float(logs["loss"]) * (batch + 1)
        self.losses.append(total - self.total)
        self.total = total


def test_a_packed_batch_gives_what_a_padded_one_does(encoder, backend, numpy, close):
    encoder.compile()
    texts = [" ".join(["film"] * n) for n in (1, 2, 40, 3, 1, 50, 2, 2)]
    (inputs, *_) = encoder.data.batches((texts, texts[::-1]), batch_size=8, shuffle=True)[0]
    assert "packing" in inputs
    plain = {name: x for name, x in inputs.items() if name not in ("packing", "text_starts")}
    close(numpy(encoder(inputs)), numpy(encoder(plain)))
    with pytest.raises(ValueError, match="max_active_dims must be"):
        bz.SparseEncoder(encoder.backbone, max_active_dims=0)
    for count in (0, -1):
        with pytest.raises(ValueError, match=f"max_active_dims must be at least 1, or None. Received: {count}"):
            encoder.encode(["a text"], max_active_dims=count)
    with pytest.raises(ValueError, match="a weight for each"):
        bz.SparseEncoder(encoder.backbone, query_embedding=SparseStaticEmbedding(3))


@pytest.mark.parametrize("static", [False, True], ids=["encoded queries", "static queries"])
def test_an_update_in_mini_batches_is_the_plain_one(static, masked_lm, close, eager):
    queries = [" ".join(["film"] * n) for n in (1, 2, 5, 3, 1, 4, 2)]
    documents = [" ".join(["good plot"] * n) for n in (9, 2, 14, 1, 3, 20, 4)]
    states = []
    for size in (None, 3):
        model = bz.SparseEncoder.from_preset(masked_lm, verbose=False, dropout=0.1)
        if static:
            embedding = SparseStaticEmbedding(model.width)
            model = bz.SparseEncoder(model.backbone, model.tokenizer, query_embedding=embedding)
        model.compile(keras.optimizers.SGD(0.1), mini_batch_size=size, run_eagerly=eager)
        losses = model.fit((queries, documents), batch_size=7, verbose=0).history["loss"]
        states.append([*losses, *map(keras.ops.convert_to_numpy, model.trainable_weights)])
    for plain, in_parts in zip(*states):
        close(in_parts, plain)


@pytest.mark.once
def test_streams_of_texts_give_the_same_batches(make_sparse_st):
    model = bz.SparseEncoder.from_preset(make_sparse_st("router")[0], verbose=False)
    model.compile()
    check_streams_of_texts(model, TEXTS[:3], "query_ids")
