"""What `fit` does before and around each step."""

import keras
import numpy as np
import pytest
from keras.src.utils.tracking import Tracker

import bertzoo as bz
from bertzoo.models.config import EncoderConfig


@pytest.fixture
def tracked(monkeypatch) -> list:
    """All that Keras looks at for something to track."""
    seen, track = [], Tracker.track
    monkeypatch.setattr(Tracker, "track", lambda self, value: seen.append(value) or track(self, value))
    return seen


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX's trainer keeps all variables in an attribute")
def test_no_step_goes_through_the_variables(tracked):
    shape = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = bz.TextClassifier(bz.Encoder(EncoderConfig(**shape, intermediate_size=8)))
    model.compile(bz.AdamW(1e-3), metrics=[])
    ids = np.random.default_rng(0).integers(5, 30, (24, 6)).astype("int32")
    counts = []
    for batches in (1, 2, 12):
        tracked.clear()
        examples = ids[: 2 * batches]
        model.fit(
            {"token_ids": examples, "padding_mask": np.ones_like(examples)}, examples[:, 0] % 2, batch_size=2, verbose=0
        )
        counts.append(len(tracked))
    assert counts[2] - counts[1] < len(model.variables), counts


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="XLA compiles what JAX makes on the device")
def test_moments_need_no_program():
    import jax

    compiled = []
    listener = lambda event, seconds, **kwargs: compiled.append(event)  # noqa: E731
    variables = [keras.Variable(np.ones((3, width), "float32")) for width in range(211, 217)]
    optimizer = bz.AdamW(1e-3)
    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        optimizer.build(variables)
        built = [event for event in compiled if "backend_compile" in event]
        jax.numpy.ones((3, 219))
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    assert not built
    assert any("backend_compile" in event for event in compiled)  # the listener hears of one
    moments = optimizer._momentums + optimizer._velocities
    assert all(not np.any(moment) for moment in map(keras.ops.convert_to_numpy, moments)) and len(moments) == 12


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="XLA compiles JAX's steps")
@pytest.mark.parametrize(
    ("jit_compile", "epochs", "quick"), [("auto", 1, True), ("auto", 4, False), (True, 1, False)]
)  # fmt: skip
def test_short_runs_are_compiled_with_fast_options(monkeypatch, jit_compile, epochs, quick):
    import jax

    from bertzoo.training import jax_step

    calls, jit = set(), jax.jit

    class Recorded:
        def __init__(self, function, **options):
            self.jitted, self.call = jit(function, **options), (function.__name__, "compiler_options" in options)
            self.lower = self.jitted.lower

        def __call__(self, *args):
            calls.add(self.call)
            return self.jitted(*args)

    monkeypatch.setattr(jax_step, "_fast_compile_options", lambda: {"xla_llvm_disable_expensive_passes": True})
    monkeypatch.setattr(jax_step.jax, "jit", Recorded)
    shape = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = bz.TextClassifier(bz.Encoder(EncoderConfig(**shape, intermediate_size=8)))
    monkeypatch.setattr(jax_step, "SHORT_RUN", 3 * 6 * model.count_params())
    model.compile(bz.AdamW(1e-3), metrics=[], jit_compile=jit_compile)
    ids = np.random.default_rng(0).integers(5, 30, (24, 6)).astype("int32")
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids)}

    def predict(logs=None):
        return model.predict({name: np.repeat(rows, 10, axis=0) for name, rows in inputs.items()}, batch_size=4)

    # A prediction within the run, and longer, does not change how the run is compiled.
    callbacks = [
        keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: predict() if batch == 2 else None)
    ]
    model.fit(inputs, ids[:, 0] % 2, batch_size=4, epochs=epochs, verbose=0, callbacks=callbacks)
    assert {fast for name, fast in calls if name == "train_step"} == {quick}
    assert {fast for name, fast in calls if name == "predict_step"} == {False}
