"""Temperature, thresholds, smoothing and zero-shot classification, against formulas and brute force."""

import json

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.tasks.probabilities import best_temperature, best_thresholds, sigmoid, softmax
from bertzoo.training.compiled_losses import SmoothedCrossentropy

TEXTS = ["a good film", "a bad film", "the plot was dull and bad", "never again"] * 2


@pytest.fixture(scope="module")
def preset(write_checkpoint):
    return write_checkpoint(num_hidden_layers=1)[0]


@pytest.fixture
def make(preset):
    return lambda **options: bz.TextClassifier.from_preset(preset, verbose=False, new_head=True, **options)


@pytest.mark.once
def test_the_temperature_is_the_one_that_made_the_labels():
    rng = np.random.default_rng(0)
    honest = rng.normal(size=(20000, 3)) * 2
    probabilities = np.exp(honest) / np.exp(honest).sum(axis=1, keepdims=True)
    targets = (probabilities.cumsum(axis=1) > rng.random((20000, 1))).argmax(axis=1)
    assert best_temperature(honest * 2.5, targets) == pytest.approx(2.5, rel=0.05)
    several = (rng.random(honest.shape) < 1 / (1 + np.exp(-honest))).astype(int)
    assert best_temperature(honest * 0.5, several) == pytest.approx(0.5, rel=0.05)


@pytest.mark.once
def test_there_is_no_temperature_of_nothing():
    with pytest.raises(ValueError, match="needs held-out rows"):
        best_temperature(np.zeros((0, 2)), [])


def test_probabilities_are_scipys_for_logits_of_any_size(recwarn):
    special = pytest.importorskip("scipy.special")
    logits = (np.random.default_rng(0).normal(size=(20, 5)) * 10.0 ** np.arange(-2, 3)).astype("float32")
    for model, reference in ((sigmoid, special.expit), (softmax, lambda x: special.softmax(x, axis=-1))):
        np.testing.assert_allclose(model(logits), reference(logits.astype("float64")), rtol=1e-14)
        assert model([-1e4, 1e4]).tolist() == [0, 1]
    assert not recwarn


@pytest.mark.once
def test_thresholds_are_the_best_of_all():
    rng = np.random.default_rng(1)
    for _ in range(100):
        scores, targets = rng.random((9, 2)).round(1), rng.integers(0, 2, (9, 2))
        for label, threshold in enumerate(best_thresholds(scores, targets)):
            if targets[:, label].any():

                def f1(limit, label=label, scores=scores, targets=targets):
                    return bz.metrics.f1(targets[:, label], (scores[:, label] > limit).astype(int))

                assert f1(threshold) == pytest.approx(max(f1(limit) for limit in np.arange(-0.05, 1.1, 0.1)))


def test_smoothed_loss_is_the_formula():
    rng = np.random.default_rng(2)
    logits, targets = rng.normal(size=(5, 4)).astype("float32"), rng.integers(0, 4, 5)
    smooth = np.eye(4)[targets] * 0.9 + 0.1 / 4
    expected = -(smooth * (logits - np.log(np.exp(logits).sum(1, keepdims=True)))).sum(1).mean()
    assert float(SmoothedCrossentropy(0.1)(targets, logits)) == pytest.approx(expected, rel=1e-5)
    reference = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
    assert float(reference(np.eye(4)[targets], logits)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_smoothing_is_asked_for_in_compile(make, tmp_path, eager):
    model = make(labels=2)
    model.compile(bz.AdamW(1e-3), label_smoothing=0.2, run_eagerly=eager)
    assert model.loss.smoothing == 0.2
    model.fit(TEXTS, [0, 1] * 4, verbose=0)
    model.save(tmp_path / "model.keras")
    assert keras.models.load_model(tmp_path / "model.keras").loss.smoothing == 0.2
    several = make(labels=2, problem_type="multi_label_classification")
    several.compile(bz.AdamW(1e-3), label_smoothing=0.2)
    assert several.loss.label_smoothing == 0.2
    with pytest.raises(ValueError, match="label_smoothing"):
        make(labels=1).compile(bz.AdamW(1e-3), label_smoothing=0.2)
    with pytest.raises(ValueError, match="below 1"):
        model.compile(bz.AdamW(1e-3), label_smoothing=1.0)


def test_temperature_and_thresholds_are_used_and_saved(make, tmp_path):
    model = make(labels=["a", "b"], problem_type="multi_label_classification")
    logits = model.predict(TEXTS, verbose=0)
    temperature = model.fit_temperature(TEXTS, [["a"], []] * 4)
    result = model.fit_thresholds(TEXTS, [["a"], []] * 4)
    assert model.temperature == temperature and list(result.values()) == model.thresholds
    answers = model.classify(TEXTS)
    for answer, row in zip(answers, logits):
        scores = 1 / (1 + np.exp(-row / temperature))
        assert list(answer["scores"].values()) == pytest.approx(scores, abs=1e-5)
        assert answer["labels"] == [n for n, s, t in zip("ab", answer["scores"].values(), model.thresholds) if s > t]
    model.save_to_preset(tmp_path / "preset")
    own = json.loads((tmp_path / "preset" / "config.json").read_text())["bertzoo"]
    assert own == {"temperature": temperature, "thresholds": model.thresholds}
    loaded = bz.TextClassifier.from_preset(tmp_path / "preset", verbose=False)
    assert (loaded.temperature, loaded.thresholds) == (temperature, model.thresholds)
    with pytest.raises(ValueError, match="multi_label"):
        make(labels=2).fit_thresholds(TEXTS, [0, 1] * 4)
    with pytest.raises(ValueError, match="temperature must be above 0"):
        make(labels=2, temperature=0.0)


def test_zero_shot_is_the_softmax_of_entailment(make):
    model = make(labels=["contradiction", "neutral", "entailment"])
    labels = ["good", "bad", "dull"]
    result = model.zero_shot(TEXTS[:2], labels, template="the film is {} .")
    alone = model.zero_shot(TEXTS[:2], labels, template="the film is {} .", multi_label=True)
    for text, together, apart in zip(TEXTS, result, alone):
        logits = model.predict(([text] * 3, [f"the film is {label} ." for label in labels]), verbose=0)
        probabilities = np.exp(logits[:, 2]) / np.exp(logits[:, 2]).sum()
        assert [together["scores"][label] for label in labels] == pytest.approx(probabilities, abs=1e-5)
        assert together["label"] == labels[probabilities.argmax()]
        pair = np.exp(logits[:, 2]) / (np.exp(logits[:, 2]) + np.exp(logits[:, 0]))
        assert [apart["scores"][label] for label in labels] == pytest.approx(pair, abs=1e-5)
    assert model.zero_shot([], labels) == []
    one = model.zero_shot(TEXTS[0], labels, template="the film is {} .")
    assert one["scores"] == pytest.approx(result[0]["scores"], abs=1e-6)
    with pytest.raises(ValueError, match="natural-language inference"):
        make(labels=["pos", "neg"]).zero_shot("a", labels)
    with pytest.raises(ValueError, match="template"):
        model.zero_shot("a", labels, template="x")
    with pytest.raises(ValueError, match="list of candidates"):
        model.zero_shot("a", "good")
