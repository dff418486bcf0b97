"""AdamW against its formula in NumPy, PyTorch's AdamW and Hugging Face's schedules."""

import contextlib
import itertools
import json

import keras
import numpy as np
import pytest
import torch
import transformers

from bertzoo.training.optimizer import AdamW

BACKEND = keras.backend.backend()
SHAPES = {"layer_0/dense/kernel": (4, 3), "layer_0/dense/bias": (3,), "layer_0/norm/gamma": (3,), "head/kernel": (3, 2)}


def make_variables(seed=0):
    rng, variables = np.random.default_rng(seed), []
    for path, shape in SHAPES.items():
        *scopes, name = path.split("/")
        with contextlib.ExitStack() as stack:
            for scope in scopes:
                stack.enter_context(keras.name_scope(scope))
            variables.append(keras.Variable(rng.normal(size=shape).astype("float32"), name=name))
    assert [v.path for v in variables] == list(SHAPES)
    return variables


def make_gradients(steps, seed=1, scale=1.0):
    rng = np.random.default_rng(seed)
    return [[scale * rng.normal(size=shape).astype("float32") for shape in SHAPES.values()] for _ in range(steps)]


def run(optimizer, variables, gradients):
    for step in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(g) for g in step], variables)
    return [keras.ops.convert_to_numpy(v.value) for v in variables]


def formula(values, gradients, rates, decays, factors, *, corrected=True, clip=None, epsilon=1e-8):
    """The update in float64, one list of values after all steps."""
    values = [np.float64(v) for v in values]
    moments = [(np.zeros(v.shape), np.zeros(v.shape)) for v in values]
    for t, (step, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        norm = np.sqrt(sum(np.sum(np.float64(g) ** 2) for g in step))
        shrink = 1.0 if clip is None else min(1.0, clip / norm)
        for i, g in enumerate(step):
            g = np.float64(g) * shrink
            m = 0.9 * moments[i][0] + 0.1 * g
            v = 0.999 * moments[i][1] + 0.001 * g**2
            moments[i] = (m, v)
            first, second = (1 - 0.9**t, 1 - 0.999**t) if corrected else (1.0, 1.0)
            lr = rate * factors[i]
            values[i] = values[i] * (1 - lr * decays[i]) - lr * m / first / (np.sqrt(v / second) + epsilon)
    return values


def assert_close(got, expected, tolerance=1e-6):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def initial_values(variables):
    return [np.array(keras.ops.convert_to_numpy(v.value)) for v in variables]


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("scale", [1e-6, 1.0])
def test_twenty_steps_follow_the_formula(corrected, scale):
    variables, gradients = make_variables(), make_gradients(20, scale=scale)
    start = initial_values(variables)
    optimizer = AdamW(
        1e-2,
        weight_decay=0.1,
        bias_correction=corrected,
        lr_multipliers={"^layer_0/dense": 0.5, "layer_0": 0.25, "head": 3.0},
    )
    got = run(optimizer, variables, gradients)
    expected = formula(
        start,
        gradients,
        [1e-2] * 20,
        decays=[0.1, 0.0, 0.0, 0.1],
        factors=[0.5, 0.5, 0.25, 3.0],
        corrected=corrected,
        clip=1.0,
    )
    assert_close(got, expected)


@pytest.mark.parametrize("scale", [1.0, 1e-7])
def test_twenty_steps_follow_torch_adamw(scale):
    """Gradients as small as those of a rare word's vector too, to which epsilon's place makes a difference."""
    variables, gradients = make_variables(), make_gradients(20, scale=scale)
    parameters = [torch.nn.Parameter(torch.tensor(v)) for v in initial_values(variables)]
    decayed = [parameters[0], parameters[3]]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": parameters[1:3], "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, lr=1e-2)
    for step in gradients:
        for parameter, gradient in zip(parameters, step):
            parameter.grad = torch.tensor(gradient)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        reference.step()
    got = run(AdamW(1e-2, weight_decay=0.1), variables, gradients)
    assert_close(got, [p.detach().numpy() for p in parameters])


def test_without_clipping_and_with_a_norm_below_the_limit():
    gradients = make_gradients(3, scale=0.01)
    assert max(np.sqrt(sum(np.sum(g**2) for g in step)) for step in gradients) < 1.0
    clipped = run(AdamW(1e-2, global_clipnorm=1.0), make_variables(), gradients)
    free = run(AdamW(1e-2, global_clipnorm=None), make_variables(), gradients)
    assert_close(clipped, free, 1e-8)


def test_an_infinite_gradient_is_not_hidden_by_clipping():
    gradients = make_gradients(1)
    gradients[0][0][0, 0] = np.inf
    assert all(np.isnan(value).all() for value in run(AdamW(1e-2), make_variables(), gradients))


@pytest.mark.parametrize("variable_like", ["gradient", "variable"])
@pytest.mark.skipif(BACKEND != "torch", reason="only PyTorch's tensors have strides")
def test_transposed_tensors(variable_like):
    rng = np.random.default_rng(0)
    value, gradient = rng.normal(size=(4, 3)).astype("float32"), rng.normal(size=(4, 3)).astype("float32")
    transposed = {name: torch.tensor(a.T.copy()).T for name, a in {"variable": value, "gradient": gradient}.items()}
    variable = keras.Variable(value, name="kernel")
    if variable_like == "variable":
        variable.value.data = transposed["variable"]
    AdamW(1e-2).apply([transposed["gradient"] if variable_like == "gradient" else torch.tensor(gradient)], [variable])
    assert_close([variable.value.detach().numpy()], formula([value], [[gradient]], [1e-2], [0.01], [1.0], clip=1.0))


@pytest.mark.parametrize("steps", [None, 2])
@pytest.mark.skipif(BACKEND != "torch", reason="JAX and TensorFlow compile the whole step")
def test_nothing_passes_between_host_and_device(steps):
    """Torch's "meta" device stands for a GPU: reading from it raises, and copies to it are recorded here."""
    from torch.utils._python_dispatch import TorchDispatchMode

    crossings = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            result = operation(*args, **(kwargs or {}))
            tensors = [x for x in keras.tree.flatten([args, kwargs, result]) if isinstance(x, torch.Tensor)]
            if len({tensor.device.type for tensor in tensors}) > 1:
                crossings.append(str(operation))
            return result

    optimizer = AdamW(1e-2, use_ema=True, gradient_accumulation_steps=steps)
    optimizer.set_total_steps(4)
    with keras.device("meta"):
        variables = make_variables()
        optimizer.build(variables)
    with Watch():
        for _ in range(4):
            optimizer.apply([torch.empty(v.shape, device="meta") for v in variables], variables)
    assert crossings == []
    assert rate_of(optimizer) == pytest.approx(0.0 if steps is None else 1e-2 * 2 / 3)


def test_variables_of_two_types_train_together():
    value = np.full((2, 2), 0.5, "float32")
    half, full = (keras.Variable(value, dtype=dtype, name="kernel") for dtype in ("bfloat16", "float32"))
    ones = keras.ops.ones((2, 2))
    AdamW(0.25).apply([keras.ops.cast(ones, "bfloat16"), ones], [half, full])
    assert keras.backend.standardize_dtype(half.dtype) == "bfloat16"
    # The first update of Adam is the rate × the gradient's sign; the decay takes 0.25 × 0.01 × 0.5.
    assert_close([np.array(full)], [value - 0.25125], 1e-6)
    # bfloat16 has 8 significant bits: steps of 0.002 at 0.5, and a few roundings.
    assert_close([keras.ops.convert_to_numpy(keras.ops.cast(half.value, "float32"))], [value - 0.25125], 4e-3)


def hugging_face_rates(schedule, warmup_steps, total_steps, steps):
    """Those of its schedules, but warm-up counts from 1: each of its updates has the rate of the one after it."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=3e-4)
    if schedule == "linear":
        scheduler = transformers.get_linear_schedule_with_warmup(optimizer, warmup_steps, total_steps)
    elif schedule == "cosine":
        scheduler = transformers.get_cosine_schedule_with_warmup(optimizer, warmup_steps, total_steps)
    elif schedule == "constant":
        scheduler = transformers.get_constant_schedule_with_warmup(optimizer, warmup_steps)
    else:
        scheduler = transformers.get_inverse_sqrt_schedule(optimizer, warmup_steps)
    rates = [scheduler.get_last_lr()[0]]
    for _ in range(steps - 1):
        optimizer.step()
        scheduler.step()
        rates.append(scheduler.get_last_lr()[0])
    rates[:warmup_steps] = rates[1 : warmup_steps + 1]
    return rates


def rate_of(optimizer):
    return float(keras.ops.convert_to_numpy(optimizer.current_learning_rate))


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant", "inverse_sqrt"])
@pytest.mark.parametrize(
    "warmup, warmup_steps",
    [(0.12, 3), *(pytest.param(*case, marks=pytest.mark.once) for case in [(0.1, 2), (5, 5), (0, 0)])],
)
def test_rates_are_those_of_hugging_face(schedule, warmup, warmup_steps):
    optimizer, variables, rates = AdamW(3e-4, warmup=warmup, schedule=schedule), make_variables(), []
    optimizer.set_total_steps(20)
    for gradients in make_gradients(21):
        rates.append(rate_of(optimizer))
        run(optimizer, variables, [gradients])
    np.testing.assert_allclose(rates, hugging_face_rates(schedule, warmup_steps, 20, 21), rtol=2e-6, atol=1e-10)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_the_rate_stays_zero_after_the_end(schedule):
    optimizer = AdamW(3e-4, schedule=schedule)
    optimizer.set_total_steps(2)
    run(optimizer, make_variables(), make_gradients(5))
    assert rate_of(optimizer) == 0.0


def test_a_second_begin_starts_a_schedule_and_keeps_moments_and_count():
    variables, gradients = make_variables(), make_gradients(11)
    start = initial_values(variables)
    optimizer = AdamW(1e-2, warmup=2)
    run(optimizer, variables, gradients[:1])
    optimizer.set_total_steps(6)
    run(optimizer, variables, gradients[1:5])
    optimizer.set_total_steps(6)
    got = run(optimizer, variables, gradients[5:])
    once = hugging_face_rates("linear", 2, 6, 6)
    rates = [1e-2] + [rate * 1e-2 / 3e-4 for rate in once[:4] + once]
    assert_close(got, formula(start, gradients, rates, [0.01, 0, 0, 0.01], [1.0] * 4, clip=1.0))


def make_model(optimizer, seed=0):
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(4, activation="tanh", name="first"),
            keras.layers.LayerNormalization(name="norm"),
            keras.layers.Dense(1, name="head"),
        ]
    )
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(size=w.shape).astype("float32") for w in model.weights])
    model.compile(optimizer, loss="mse")
    return model


def data(examples=16):
    rng = np.random.default_rng(5)
    return rng.normal(size=(examples, 3)).astype("float32"), rng.normal(size=(examples, 1)).astype("float32")


def fit(model, epochs=1, batch_size=4, **kwargs):
    return model.fit(*data(), epochs=epochs, batch_size=batch_size, shuffle=False, verbose=0, **kwargs)


def test_each_fit_of_a_compiled_step_sees_its_own_schedule():
    model, rates = make_model(AdamW(1e-2, warmup=0)), []
    read = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: rates.append(rate_of(model.optimizer)))
    model.optimizer.set_total_steps(4)
    fit(model, 4, batch_size=16, callbacks=[read])
    still = model.get_weights()
    fit(model, 1, batch_size=16, callbacks=[read])
    assert_close(model.get_weights(), still, 0.0)
    model.optimizer.set_total_steps(2)
    fit(model, 2, batch_size=16, callbacks=[read])
    np.testing.assert_allclose(rates, [0.0075, 0.005, 0.0025, 0, 0, 0.005, 0], rtol=1e-6)
    assert max(np.abs(a - b).max() for a, b in zip(model.get_weights(), still)) > 1e-3


def test_a_saved_model_goes_on_as_if_never_stopped(tmp_path):
    def optimizer():
        return AdamW(
            1e-2, warmup=3, schedule="cosine", no_decay=["norm", "bias"], lr_multipliers={"(^|/)head/": 5.0, "": 0.5}
        )

    whole, first = make_model(optimizer()), make_model(optimizer())
    for model in (whole, first):
        model.optimizer.set_total_steps(12)
    fit(whole, 3)
    fit(first, 1)
    first.save(tmp_path / "model.keras")
    second = keras.saving.load_model(tmp_path / "model.keras")
    assert type(second.optimizer) is AdamW
    assert second.optimizer.get_config() == first.optimizer.get_config()
    fit(second, 2)
    assert_close(second.get_weights(), whole.get_weights(), 1e-7)
    assert_close(
        [np.array(v) for v in second.optimizer.variables], [np.array(v) for v in whole.optimizer.variables], 1e-7
    )


def test_config_survives_json():
    arguments = {
        "learning_rate": 0.25,
        "weight_decay": 0.02,
        "beta_1": 0.8,
        "beta_2": 0.98,
        "epsilon": 1e-6,
        "bias_correction": False,
        "warmup": 100,
        "schedule": "cosine",
        "no_decay": ["bias$"],
        "lr_multipliers": {"z": 2.0, "a": 0.5},
        "global_clipnorm": None,
        "clipnorm": None,
        "clipvalue": None,
        "loss_scale_factor": 8.0,
        "gradient_accumulation_steps": 2,
        "use_ema": True,
        "ema_momentum": 0.9,
        "ema_overwrite_frequency": 3,
        "name": "mine",
    }
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(AdamW(**arguments))))
    assert config["registered_name"] == "bertzoo>AdamW"
    restored = keras.saving.deserialize_keras_object(config).get_config()
    assert restored == arguments
    assert list(restored["lr_multipliers"]) == ["z", "a"]


def test_a_keras_schedule_replaces_ours_and_survives():
    optimizer = AdamW(keras.optimizers.schedules.PolynomialDecay(1e-2, 10, 0.0))
    optimizer.set_total_steps(100)
    run(optimizer, make_variables(), make_gradients(4))
    assert rate_of(optimizer) == pytest.approx(6e-3)
    restored = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert rate_of(restored) == pytest.approx(1e-2)


def test_setting_the_rate_sets_the_peak():
    optimizer = AdamW(1e-2, warmup=0)
    optimizer.set_total_steps(4)
    run(optimizer, make_variables(), make_gradients(1))
    optimizer.learning_rate = 2e-2
    assert rate_of(optimizer) == pytest.approx(1.5e-2)
    assert optimizer.get_config()["learning_rate"] == pytest.approx(2e-2)


@pytest.mark.parametrize("total_steps", [1, 2, 9])
@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant", "inverse_sqrt"])
@pytest.mark.parametrize("warmup", [0.1, 0.5, 3])
@pytest.mark.once
def test_every_update_of_a_schedule_has_a_rate_and_none_is_above_the_peak(warmup, schedule, total_steps):
    optimizer, variables, rates = AdamW(1e-2, warmup=warmup, schedule=schedule), make_variables(), []
    optimizer.set_total_steps(total_steps)
    for gradients in make_gradients(total_steps):
        rates.append(rate_of(optimizer))
        run(optimizer, variables, [gradients])
    assert min(rates) > 0 and max(rates) <= 1e-2 * (1 + 1e-6)
    if warmup <= total_steps:
        assert max(rates) == pytest.approx(1e-2)


def test_reduce_on_plateau_halves_the_peak():
    """As without a schedule: what the callback reads is what it sets."""
    model, peaks = make_model(AdamW(1e-2)), []
    model.optimizer.set_total_steps(20)
    worse = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: logs.update(watched=float(epoch)))
    plateau = keras.callbacks.ReduceLROnPlateau("watched", mode="min", factor=0.5, patience=1, min_lr=1e-4)
    read = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: peaks.append((logs["learning_rate"], float(model.optimizer.learning_rate)))
    )
    fit(model, 5, batch_size=4, callbacks=[worse, plateau, read])
    expected = [0.01, 0.01, 0.005, 0.0025, 0.00125, 0.000625]
    np.testing.assert_allclose(peaks, list(itertools.pairwise(expected)), rtol=1e-6)


@pytest.mark.parametrize("clipping", [{"clipnorm": 0.3}, {"clipvalue": 0.05}, {"global_clipnorm": 0.3}])
def test_clipping_is_that_of_keras(clipping):
    """Without decay and schedule, and with an epsilon too small for its place to matter, this is Keras's Adam."""
    optimizer = AdamW(1e-2, weight_decay=0.0, epsilon=1e-12, **clipping)
    reference = keras.optimizers.Adam(1e-2, epsilon=1e-12, **clipping)
    gradients = make_gradients(4)
    got, expected = run(optimizer, make_variables(), gradients), run(reference, make_variables(), gradients)
    assert_close(got, expected, 2e-6)
    restored = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert {name: restored.get_config()[name] for name in clipping} == clipping
    assert restored.get_config()["global_clipnorm"] == clipping.get("global_clipnorm")


def test_four_accumulated_batches_equal_one_of_four_times_the_size():
    whole = make_model(AdamW(1e-2, warmup=2))
    accumulated = make_model(AdamW(1e-2, warmup=2, gradient_accumulation_steps=4))
    for model in (whole, accumulated):
        model.optimizer.set_total_steps(10)
    fit(whole, 4, batch_size=8)
    fit(accumulated, 4, batch_size=2)
    assert int(keras.ops.convert_to_numpy(accumulated.optimizer.iterations)) == 8
    assert rate_of(accumulated.optimizer) == pytest.approx(rate_of(whole.optimizer))
    assert_close(accumulated.get_weights(), whole.get_weights())


def test_the_loss_scale_cancels():
    gradients = make_gradients(3, scale=0.01)
    scaled = [[8.0 * g for g in step] for step in gradients]
    plain = run(AdamW(1e-2), make_variables(), gradients)
    assert_close(run(AdamW(1e-2, loss_scale_factor=8.0), make_variables(), scaled), plain, 1e-7)


def test_moving_average_of_the_weights():
    variables, gradients = make_variables(), make_gradients(5)
    optimizer, average = AdamW(1e-2, use_ema=True, ema_momentum=0.8), None
    for step in gradients:
        values = run(optimizer, variables, [step])
        average = values if average is None else [0.8 * a + 0.2 * v for a, v in zip(average, values)]
    optimizer.finalize_variable_values(variables)
    assert_close(initial_values(variables), average)


def test_a_repeated_token_has_one_gradient():
    """Mean squared error to 0 gives token i, seen n times, the gradient 2 n E[i] / (all numbers in the output)."""
    ids = np.array([[0, 1, 1, 1], [1, 2, 0, 1]], "int32")
    table = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    model = keras.Sequential([keras.Input((4,), dtype="int32"), keras.layers.Embedding(4, 3)])
    model.set_weights([table])
    model.compile(AdamW(1e-2, weight_decay=0.1, global_clipnorm=0.5), loss="mse")
    model.fit(ids, np.zeros((2, 4, 3), "float32"), batch_size=2, epochs=5, verbose=0)
    expected, counts = [table], np.array([[2], [5], [1], [0]])
    gradients = []
    for _ in range(5):
        gradients.append([2 * counts * expected[0] / 24])
        expected = formula([table], gradients, [1e-2] * len(gradients), [0.1], [1.0], clip=0.5)
    assert_close(model.get_weights(), expected)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only TensorFlow has IndexedSlices")
def test_indexed_slices_equal_their_dense_sum():
    import tensorflow as tf

    sparse = tf.IndexedSlices(tf.constant([[3.0, 1.0], [-1.0, 2.0], [0.5, 0.5]]), tf.constant([2, 2, 0]), (4, 2))
    dense = np.array([[0.5, 0.5], [0, 0], [2.0, 3.0], [0, 0]], "float32")
    start = np.ones((4, 2), "float32")
    variable = keras.Variable(start, name="embeddings")
    optimizer = AdamW(1e-2)
    for _ in range(3):
        optimizer.apply([sparse], [variable])
    assert_close([variable.numpy()], formula([start], [[dense]] * 3, [1e-2] * 3, [0.01], [1.0], clip=1.0))


def test_a_pattern_that_meets_no_variable_is_reported():
    with pytest.warns(UserWarning, match=r"no trainable variable has \['lyaer_0'\]"):
        AdamW(lr_multipliers={"lyaer_0": 0.5, "head": 2.0}).build(make_variables())


@pytest.mark.once
@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"schedule": "step"}, "schedule must be one of linear"),
        ({"warmup": -1}, "warmup must be 0 or more"),
        ({"warmup": 1.5}, "a fraction below 1, or a whole number"),
        ({"beta_2": 1.0}, "beta_2 must be"),
        ({"weight_decay": -0.1}, "weight_decay must be"),
        ({"no_decay": "bias"}, "no_decay must be a sequence"),
        ({"lr_multipliers": {"(": 1.0}}, "not a regular expression"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        AdamW(**arguments)


@pytest.mark.once
@pytest.mark.parametrize("total_steps", [0, -1, 2.5, True])
def test_wrong_number_of_steps(total_steps):
    with pytest.raises(ValueError, match="total_steps must be"):
        AdamW().set_total_steps(total_steps)


@pytest.mark.once
def test_keras_exclusion_is_refused():
    with pytest.raises(ValueError, match="no_decay"):
        AdamW().exclude_from_weight_decay(var_names=["bias"])
