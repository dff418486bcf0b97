"""Private attributes of Keras, JAX and PyTorch: that they are what they were, and that none is used elsewhere."""

import ast
import inspect
from importlib.util import find_spec
from pathlib import Path

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo import _keras_hooks as hooks

PACKAGE = Path(bz.__file__).parent
BACKEND = keras.backend.backend()
# Of other libraries, and of Python.
OTHERS = {"_replace", "_fields", "_asdict", "_exit"}


@pytest.fixture
def model():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="one"), keras.layers.Dense(1, name="two")])
    model.compile(keras.optimizers.SGD(0.5), "mse")
    return model


def test_sublayers(model):
    assert [layer.name for layer in hooks.flatten_layers(model)][-2:] == ["one", "two"]
    assert hooks.flatten_layers(model)[0] is model


def test_own_trainable_weights(model):
    layer = model.layers[0]
    layer.trainable = False
    assert hooks.own_trainable_weights(layer) == [layer.kernel, layer.bias]


def test_unlocked_and_replaced(numpy):
    block = bz.layers.EncoderBlock(8, 2, 16)
    block.build((None, None, 8))
    before = [weight.path for weight in block.weights]
    new = keras.layers.Dense(16, name="intermediate")
    with pytest.raises(ValueError, match="cannot add new elements|locked|built"):
        block.more = keras.layers.Dense(1)
    with hooks.unlocked_layer(block):
        new.build((None, None, 8))
    hooks.replace_sublayer(block, "intermediate", new)
    assert block.intermediate is new and len(block.weights) == len(before)
    assert [weight.shape for weight in block.weights] == [
        weight.shape for weight in bz.layers.EncoderBlock(8, 2, 16).weights or block.weights
    ]
    with pytest.raises(ValueError, match="cannot add new elements|locked|built"):
        block.more = keras.layers.Dense(1)


def test_scopes():
    assert not hooks.in_stateless_scope()
    with keras.StatelessScope():
        assert hooks.in_stateless_scope()
    variable = keras.Variable(np.ones(2, "float32"))
    with keras.src.backend.common.AutocastScope("float16"):
        assert keras.backend.standardize_dtype(keras.ops.convert_to_tensor(variable).dtype) == "float16"
        with hooks.without_autocast():
            assert keras.backend.standardize_dtype(keras.ops.convert_to_tensor(variable).dtype) == "float32"


def test_without_values():
    layer = keras.layers.Dense(2)

    def make():
        layer.build((None, 3))
        return layer

    assert hooks.build_without_values(make).kernel.shape == (3, 2)
    keras.Variable(np.ones(1))  # would give the waiting variables their values too
    assert layer.kernel._value is None


def test_the_seed_of_keras():
    before = hooks.keras_seed()
    keras.src.utils.rng_utils.global_state.set_global_attribute(keras.src.utils.rng_utils.GLOBAL_RANDOM_SEED, 17)
    assert hooks.keras_seed() == 17
    keras.src.utils.rng_utils.global_state.set_global_attribute(keras.src.utils.rng_utils.GLOBAL_RANDOM_SEED, before)


def test_the_loss_and_its_mean(model, numpy):
    tracker = keras.metrics.Mean(name="loss")
    hooks.set_loss_tracker(model, tracker)
    assert hooks.loss_tracker(model) is tracker and model.metrics.count(tracker) == 1
    x, y = np.ones((4, 3), "float32"), np.ones((4, 1), "float32")
    loss = hooks.batch_loss(model, x, y, model(x), None)
    assert float(numpy(loss)) == pytest.approx(float(np.mean((numpy(model(x)) - 1) ** 2)), rel=1e-5)
    model.fit(x, y, verbose=0)
    assert float(numpy(tracker.result())) == pytest.approx(float(numpy(loss)), rel=1e-5)


def test_fit_begins_at_another_epoch(model):
    epochs = []

    class Later(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            assert hooks.model_of_callback(self) is model
            hooks.set_initial_epoch(model, 2)

        def on_epoch_begin(self, epoch, logs=None):
            epochs.append(epoch)

        def on_train_end(self, logs=None):
            hooks.set_initial_epoch(model, None)

    model.fit(np.ones((4, 3)), np.ones((4, 1)), epochs=4, verbose=0, callbacks=[Later()])
    assert epochs == [2, 3]


def test_metrics_without_a_step(model):
    model.compile("sgd", "mse", metrics=["mae"])
    hooks.build_metrics(model, (np.ones((4, 3)), np.ones((4, 1))))
    assert len(model.metrics_variables) >= 4


def test_the_optimizer(numpy):
    variable = keras.Variable(np.ones(2, "float32"))
    optimizer = keras.optimizers.SGD(0.5, gradient_accumulation_steps=2, use_ema=True)
    optimizer.build([variable])
    gradient = keras.ops.convert_to_tensor(np.ones(2, "float32"))
    optimizer.apply([gradient], [variable])
    assert hooks.num_batches_seen(optimizer) == 1 and int(optimizer.iterations) == 0
    assert hooks.variable_index(optimizer, variable) == 0
    np.testing.assert_array_equal(numpy(hooks.accumulated_gradients(optimizer)[0]), 1)
    assert hooks.weight_moving_averages(optimizer)[0].shape == (2,)
    assert float(numpy(hooks.learning_rate_or_schedule(optimizer))) == 0.5
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
    assert hooks.learning_rate_or_schedule(keras.optimizers.SGD(schedule)) is schedule


def test_what_is_overridden_is_called_so():
    """By Keras's own code: an override of a name that nothing calls would do nothing."""
    for method in hooks.OVERRIDDEN["Optimizer"]:
        assert callable(getattr(keras.optimizers.Optimizer, method)), method
    source = inspect.getsource(keras.src.optimizers.base_optimizer)
    own = {"_backend_update_step", "_clip_gradients", "_get_current_learning_rate", "_apply_weight_decay"}
    assert all(f"self.{method}(" in source for method in own)
    trainers = {"jax": ("JAX trainer",), "torch": ("PyTorch trainer",)}.get(BACKEND, ())
    for trainer in trainers:
        # One method each, by its name in some version of Keras.
        assert sum(hasattr(keras.Model, name) for name in hooks.OVERRIDDEN[trainer]) == 1


@pytest.mark.skipif(BACKEND != "jax", reason="of JAX")
def test_jax(model):
    import jax

    seen = []
    jax.jit(lambda x: seen.append(hooks.is_jax_tracer(x)) or x)(1.0)
    assert seen == [True] and not hooks.is_jax_tracer(jax.numpy.zeros(()))
    values = [variable.value for variable in model.trainable_variables]
    hooks.donate_variables_to_jax(
        model, {"trainable_variables": [2.0 * value for value in values]}, trainable_variables=True
    )
    assert hooks.JAX_STATE in vars(model)
    model.jax_state_sync()
    np.testing.assert_allclose(model.trainable_variables[0].value, 2.0 * values[0])
    hooks.set_jax_state(model, None)
    assert getattr(model, hooks.JAX_STATE) is None
    assert callable(model._get_state_sharding_spec)


@pytest.mark.skipif(BACKEND != "torch", reason="of PyTorch")
def test_torch():
    import torch

    ones, twos = [torch.ones(2)], [torch.full((2,), 2.0)]
    hooks.torch_foreach("add_")(ones, twos)
    assert hooks.torch_foreach("mul")(ones, [2.0])[0].tolist() == [6, 6]
    assert hooks.torch_foreach("norm")(twos)[0].item() == pytest.approx(8**0.5)
    hooks.torch_foreach("lerp_")(ones, twos, 1.0)
    assert ones[0].tolist() == [2, 2]
    hooks.torch_foreach("zero_")(ones)
    assert ones[0].tolist() == [0, 0]
    lists = [[torch.zeros(1)] for _ in range(2)]
    step = [torch.tensor(1.0)]
    options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "eps": 0.0}
    parameters = [torch.ones(1)]
    hooks.torch_fused_adamw(parameters, [torch.ones(1)], *lists, [], step, **options, amsgrad=False, maximize=False)
    assert parameters[0].item() == pytest.approx(0.9)
    assert hooks.without_repeated_side_effects(lambda x: x + 1)(1) == 2


# ---- none elsewhere


@pytest.mark.once
def test_distribution_is_where_the_other_backends_have_it():
    assert find_spec("keras.src.backend.jax.distribution_lib") is not None
    assert (
        hooks.has_torch_distribution()
        == (Path(keras.__file__).parent / "src/backend/torch/distribution_lib.py").exists()
    )


def trees():
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name != "_keras_hooks.py" and path.parent.name != "interop":  # KerasHub's are another matter
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.once
def test_no_module_of_keras_src_is_imported_elsewhere():
    for path, tree in trees():
        for node in ast.walk(tree):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [n for n in names if n.startswith(("keras.src", "jax._src", "torch._"))], (path, node.lineno)


@pytest.mark.once
def test_no_private_attribute_is_used_elsewhere():
    """One that nothing in the package defines is another library's; one that a class of Keras has too is an override,
    which stands in the table."""
    defined, used, methods = set(), [], set()
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                defined.add(node.name)
                methods |= {node.name} if private(node.name) else set()
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                defined.add(node.id)
            elif isinstance(node, ast.Attribute) and private(node.attr):
                if isinstance(node.ctx, ast.Store):
                    defined.add(node.attr)
                else:
                    used.append((node.attr, f"{path}:{node.lineno}"))
    assert [use for use in used if use[0] not in defined | OTHERS | set().union(*hooks.OVERRIDDEN.values())] == []
    of_keras = {name for kind in (keras.Model, keras.optimizers.Optimizer) for name in dir(kind) if private(name)}
    overridden = {name for table in hooks.OVERRIDDEN.values() for name in table}
    assert methods & of_keras - overridden == set()
