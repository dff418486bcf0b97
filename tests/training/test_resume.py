"""A run that is killed and called again ends as one that was not."""

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.training.resume import Resume

TEXTS = ["a good film", "a bad film", "the plot was dull and bad", "never again", "great"] * 4
LABELS = [1, 0, 0, 0, 1] * 4
HELD = (TEXTS[:4], LABELS[:4])


@pytest.fixture(scope="module")
def preset(write_checkpoint):
    return write_checkpoint(num_hidden_layers=1)[0]


class Kill(BaseException):
    """Nothing may catch it."""


class KillAt(keras.callbacks.Callback):
    def __init__(self, when):
        super().__init__()
        self.when, self.seen = when, 0

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if self.seen == self.when:
            raise Kill


@pytest.fixture
def make(preset):
    def make(**optimizer):
        bz.set_seed(3)
        model = bz.TextClassifier.from_preset(preset, verbose=False, labels=2, new_head=True, dropout=0.2)
        model.compile(bz.AdamW(1e-3, **optimizer))
        return model

    return make


def run(model, directory=None, kill=None, every=1, epochs=3):
    early = keras.callbacks.EarlyStopping("val_loss", patience=9, restore_best_weights=True)
    callbacks = [early]
    resume = None
    if directory is not None:
        resume = Resume(directory, every_batches=every, callbacks=[early])
        callbacks.append(resume)
    if kill is not None:
        callbacks.append(KillAt(kill))
    history = model.fit(
        TEXTS,
        LABELS,
        batch_size=4,
        epochs=epochs,
        verbose=0,
        validation_data=(TEXTS[:4], LABELS[:4]),
        callbacks=callbacks,
    )
    return history.history, early, resume


def weights(model):
    return np.concatenate([np.ravel(keras.ops.convert_to_numpy(w)) for w in model.weights])


@pytest.fixture(scope="module")
def whole(preset):
    bz.set_seed(3)
    model = bz.TextClassifier.from_preset(preset, verbose=False, labels=2, new_head=True, dropout=0.2)
    model.compile(bz.AdamW(1e-3))
    history, early, _ = run(model)
    return weights(model), history, early.best


@pytest.mark.slow
@pytest.mark.once
def test_early_stopping_keeps_its_least_difference(make, tmp_path):
    """No loss here falls by a half, so that it stops after the third epoch, killed or not."""

    def epochs(directory=None, kill=None):
        early = keras.callbacks.EarlyStopping("val_loss", min_delta=0.5, patience=2)
        callbacks = [early] if directory is None else [early, Resume(directory, every_batches=1, callbacks=[early])]
        callbacks += [] if kill is None else [KillAt(kill)]
        data = {"validation_data": (TEXTS[:4], LABELS[:4]), "batch_size": 4, "epochs": 9, "verbose": 0}
        return len(make().fit(TEXTS, LABELS, callbacks=callbacks, **data).epoch)

    with pytest.raises(Kill):
        epochs(tmp_path / "run", kill=len(TEXTS) // 4 + 2)
    assert epochs(tmp_path / "run") == epochs() == 3


# Where the loop was stopped is no backend's matter; in mid epoch, each has its own way to pass over batches.
KILLS = [(1, 1), (5, 1), (6, 1), (8, 3), (14, 1)]


@pytest.mark.slow
@pytest.mark.parametrize(("kill", "every"), [(3, 2), *(pytest.param(*at, marks=pytest.mark.once) for at in KILLS)])
def test_killed_at_any_step_it_ends_with_the_same_weights(make, whole, tmp_path, kill, every):
    """Five batches an epoch."""
    with pytest.raises(Kill):
        run(make(), tmp_path, kill, every)
    assert (tmp_path / "training_state").is_dir()
    model = make()
    history, early, _ = run(model, tmp_path, every=every)
    expected, expected_history, best = whole
    np.testing.assert_allclose(weights(model), expected, atol=1e-6)
    assert early.best == pytest.approx(best, abs=1e-6)
    assert history.keys() == expected_history.keys()
    for name, values in expected_history.items():
        np.testing.assert_allclose(history[name], values, atol=1e-5)
    assert not (tmp_path / "training_state").exists()


@pytest.mark.once  # the same, with more variables of the optimizer
def test_killed_twice_with_accumulated_gradients_and_averaged_weights(make, tmp_path):
    options = {"gradient_accumulation_steps": 2, "use_ema": True, "ema_momentum": 0.9}
    expected = make(**options)
    run(expected, epochs=2)
    for kill in (3, 5):
        with pytest.raises(Kill):
            run(make(**options), tmp_path, kill, epochs=2)
    model = make(**options)
    run(model, tmp_path, epochs=2)
    np.testing.assert_allclose(weights(model), weights(expected), atol=1e-6)


@pytest.mark.once  # other batches would have given other weights above
def test_batches_done_are_passed_over_and_others_are_told(make, tmp_path):
    with pytest.raises(Kill):
        run(make(), tmp_path, 3)
    model, seen = make(), []
    resume = Resume(tmp_path)

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append((batch, resume.is_skipping))

    model.fit(
        TEXTS,
        LABELS,
        batch_size=4,
        epochs=1,
        verbose=0,
        callbacks=[resume, Watch()],
        validation_data=(TEXTS[:4], LABELS[:4]),
    )
    assert seen == [(0, True), (1, True), (2, True), (3, False), (4, False)]
    assert int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == 5


@pytest.mark.once
def test_another_run_is_refused(make, preset, tmp_path):
    with pytest.raises(Kill):
        run(make(), tmp_path, 3)
    with pytest.raises(ValueError, match="its steps differ"):
        make().fit(TEXTS[:8], LABELS[:8], batch_size=4, verbose=0, callbacks=[Resume(tmp_path)])
    other = bz.TextClassifier.from_preset(preset, verbose=False, labels=3, new_head=True)
    other.compile(bz.AdamW(1e-3))
    with pytest.raises(ValueError, match="its variables differ"):
        other.fit(TEXTS, LABELS, batch_size=4, verbose=0, callbacks=[Resume(tmp_path)])
    (tmp_path / "training_state" / "state.json").write_text("{")
    with pytest.raises(ValueError, match="Delete it to start again"):
        run(make(), tmp_path)
    with pytest.raises(ValueError, match="every"):
        Resume(tmp_path, every_batches=0)
