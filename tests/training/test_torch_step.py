"""PyTorch's compiled step gives what the eager one gives, in few graphs."""

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.data.packing import PackedShape, packing_arrays
from bertzoo.layers import RelativeBias, RotaryAttention

pytestmark = pytest.mark.skipif(keras.backend.backend() != "torch", reason="PyTorch's own step")
LENGTHS = (8, 16, 8, 24, 24, 16, 8)


@pytest.fixture
def graphs(monkeypatch):
    """Graphs are taken as for inductor, and then run as they are: the list grows by each."""
    import torch

    from bertzoo.training import torch_step

    taken, compile = [], torch.compile

    def backend(graph, inputs):
        taken.append(graph)
        return graph

    def traced(function, fullgraph, options):
        return compile(function, fullgraph=fullgraph, backend=backend)

    monkeypatch.setattr(torch_step.torch, "compile", traced)
    return taken


def make(optimizer=None, remat=False, dtype=None, dropout=0.2, **options):
    bz.set_seed(3)
    config = bz.EncoderConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48
    )
    dtype = {"dtype": dtype} if dtype else {}
    model = bz.TextClassifier(bz.Encoder(config, dropout=dropout, remat=remat, **dtype), labels=3, **dtype)
    model.compile(optimizer or bz.AdamW(1e-2, warmup=0.0, schedule="constant"), **options)
    return model


def batches(lengths=LENGTHS):
    rng = np.random.default_rng(0)
    for length in lengths:
        ids = rng.integers(1, 50, (4, length)).astype("int32")
        mask = (np.arange(length) < rng.integers(3, length + 1, (4, 1))).astype("int32")
        yield {"token_ids": ids, "padding_mask": mask}, rng.integers(0, 3, 4), rng.random(4).astype("float32")


def packed_batches():
    for (inputs, *targets), counts in zip(batches((8, 16, 16, 8)), ((2,), (3,), (4,), (2,))):
        lengths = inputs["padding_mask"].sum(1)
        arrays = packing_arrays(lengths, inputs["token_ids"].shape[1], PackedShape(24, counts))
        yield {**inputs, "lengths": lengths, **arrays}, *targets


def run(model, given):
    logs = [model.train_on_batch(*batch, return_dict=True) for batch in given]
    return [log["loss"] for log in logs], [log["accuracy"] for log in logs]


def assert_alike(model, other, given, bound=1e-5):
    given = list(given)
    (losses, scores), (losses_2, scores_2) = run(model, given), run(other, given)
    np.testing.assert_allclose(losses, losses_2, atol=bound)
    np.testing.assert_allclose(scores, scores_2, atol=1e-6)
    for weight, weight_2 in zip(model.weights, other.weights):
        a, b = (keras.ops.convert_to_numpy(w).astype("float32") for w in (weight, weight_2))
        np.testing.assert_allclose(a, b, atol=10 * bound, err_msg=weight.path)


@pytest.mark.slow
def test_packed_rows(graphs):
    """One graph for the first shape, and one for all others."""
    assert_alike(make(jit_compile=True), make(jit_compile=False), packed_batches())
    assert len(graphs) <= 2


@pytest.mark.slow
def test_predictions(graphs):
    model, eager = make(jit_compile=True), make(jit_compile=False)
    for inputs, *_ in batches():
        np.testing.assert_allclose(model.predict_on_batch(inputs), eager.predict_on_batch(inputs), atol=1e-6)
    assert len(graphs) <= 3
    graphs.clear()
    assert model.predict({"token_ids": np.ones((9, 12), "int32")}, batch_size=4, verbose=0).shape == (9, 3)


@pytest.mark.slow
def test_many_lengths(graphs):
    """Dropout, weights of rows, accumulation, recomputed blocks, a rate set between steps: a graph for the first
    length, and one for all others."""

    def optimizer():
        return bz.AdamW(1e-2, warmup=0.0, schedule="constant", gradient_accumulation_steps=2)

    model, eager = make(optimizer(), remat=True, jit_compile=True), make(optimizer(), jit_compile=False)
    assert_alike(model, eager, batches())
    for one in (model, eager):
        one.optimizer.learning_rate = 1e-3
    assert_alike(model, eager, batches())
    assert 1 <= len(graphs) <= 2


def rotary():
    layer = RotaryAttention(16, 2, window=3)
    layer.build((None, None, 16))
    return layer, layer


def biased():
    layer = RelativeBias(2, max_distance=12)
    layer.build((None, None, 16))
    return layer, lambda x: layer(x) * x[:, :2, :2, None].sum()


TRACED = {"MPNet": biased, "ModernBERT": rotary}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACED)
def test_tables_in_layers_are_traced(name, graphs):
    """Buckets, angles: a graph for the first length, one for all others."""
    import torch

    bz.set_seed(3)
    layer, function = TRACED[name]()
    compiled = torch.compile(function, fullgraph=True, options=None)
    weights = [weight.value for weight in layer.trainable_weights]
    for length in (24, 32, 40):
        x = torch.randn((3, length, 16), generator=torch.Generator().manual_seed(length), requires_grad=True)
        results = []
        for one in (compiled, function):
            out = one(x)
            results.append([out, *torch.autograd.grad((out**2).sum(), [x, *weights], allow_unused=True)])
        for a, b in zip(*results):
            if b is not None:
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    assert len(graphs) <= 2


@pytest.mark.slow
def test_fit_in_half_precision_after_freezing(graphs):
    """As users call it: callbacks, validation, a scaled loss, and what trains as it was when compile was called."""
    x, y, _ = next(batches([16]))
    histories, moved = [], []
    for jit in (True, False):
        model = make(dtype="mixed_float16", jit_compile=jit)
        model.freeze()
        model.compile(bz.AdamW(1e-2, warmup=0.0), jit_compile=jit)
        before = [keras.ops.convert_to_numpy(weight).copy() for weight in model.weights]
        histories.append(model.fit(x, y, batch_size=4, epochs=3, validation_data=(x, y), verbose=0).history)
        after = map(keras.ops.convert_to_numpy, model.weights)
        moved.append([w.path for w, old, new in zip(model.weights, before, after) if (old != new).any()])
    for key in histories[0]:
        np.testing.assert_allclose(histories[0][key], histories[1][key], atol=2e-3, err_msg=key)
    assert moved[0] == moved[1] and all("classifier" in path or "step" in path for path in moved[0])
    assert len(graphs) == 1


@pytest.mark.slow
def test_inductor_drops_the_same_elements():
    """With the options of the step, whose tests above leave inductor out: it takes a minute for the smallest model."""
    import torch

    from bertzoo.layers import dropout
    from bertzoo.random import step_key
    from bertzoo.training.torch_step import OPTIONS

    key = step_key(5, torch.tensor(7, dtype=torch.int32))
    results = []
    for function in (torch.compile(dropout, fullgraph=True, options=OPTIONS), dropout):
        x = torch.linspace(1, 2, 3 * 5 * 40).reshape(3, 5, 40).requires_grad_()
        out = function(x, 0.3, key, 2)
        (out**2).sum().backward()
        results.append((out.detach(), x.grad))
    for compiled, eager in zip(*results):
        np.testing.assert_allclose(compiled, eager, rtol=1e-6)


def test_only_jit_compile_compiles(graphs):
    for options in ({}, {"jit_compile": False}, {"run_eagerly": True}):
        model = make(**options)
        assert not model.jit_compile
        run(model, batches([8]))
    assert not graphs


@pytest.mark.slow
def test_what_cannot_be_compiled_is_an_error(graphs):
    """With a model of one layer, since the others take seconds to trace."""
    import torch

    from bertzoo.training.step import BackendModel

    class Line(BackendModel, keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            return self.dense(x)

    def breaking(y_true, y_pred):
        torch._dynamo.graph_break()
        return keras.ops.mean(keras.ops.square(y_pred), axis=-1)

    model, x = Line(), np.ones((4, 2), "float32")
    model.compile(keras.optimizers.SGD(0.1), breaking, jit_compile=True)
    with pytest.raises(torch._dynamo.exc.TorchDynamoException, match=r"graph_break\(\)"):
        model.train_on_batch(x, x[:, :1])


def test_several_processes_are_refused(monkeypatch):
    """Each would train on its own: no gradient is averaged."""
    import torch

    config = bz.EncoderConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    model = bz.TextClassifier(bz.Encoder(config))
    model.compile(bz.AdamW(1e-3))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group=None: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda group=None: 0)
    ids = np.ones((2, 4), "int32")
    with pytest.raises(NotImplementedError, match="2 processes.*DataParallel"):
        model.fit({"token_ids": ids}, np.array([0, 1]), verbose=0)
