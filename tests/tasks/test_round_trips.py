"""Every task comes back as it was: from Keras's files, from a preset, from inside another model, and quantized."""

import gc

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.tasks.pretraining_heads import ForPreTraining

SIZES = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
TAGS = ["O", "B-X", "I-X"]
TASKS = {
    "classes": (bz.TextClassifier, {"labels": ["a", "b", "c"]}),
    "tags": (bz.TokenClassifier, {"labels": TAGS}),
    "tags by a CRF": (bz.TokenClassifier, {"labels": TAGS, "crf": True}),
    "answers": (bz.QuestionAnswerer, {}),
    "choices": (bz.MultipleChoice, {}),
    "masked LM": (bz.MaskedLM, {}),
    "masked LM and pair": (ForPreTraining, {}),
    "scores of pairs": (bz.CrossEncoder, {}),
    "vectors": (bz.SentenceEncoder, {"pooling": ["mean", "cls"]}),
    "sparse vectors": (bz.SparseEncoder, {"max_active_dims": 9}),
    "vectors of tokens": (bz.MultiVectorEncoder, {"projection": 12, "skiplist_words": ["a"]}),
}
# What differs between tasks is the head; one goes each way on every backend.
EACH = [name if name == "classes" else pytest.param(name, marks=pytest.mark.once) for name in TASKS]


@pytest.fixture(autouse=True, scope="module")
def frozen():
    """Keras collects garbage at each layer that it quantizes, which with all that other tests have loaded takes half a
    second."""
    gc.freeze()
    yield
    gc.unfreeze()


def make(name: str):
    kind, options = TASKS[name]
    task = kind(bz.Encoder(bz.EncoderConfig(**SIZES)), **options)
    draws = np.random.default_rng(0)
    task.set_weights([weight + 0.3 * draws.normal(size=weight.shape) for weight in task.get_weights()])
    return task


@pytest.fixture
def inputs(request):
    draws, shape = np.random.default_rng(1), (2, 3, 5) if "choices" in request.node.name else (2, 5)
    mask = np.broadcast_to(np.arange(5) < np.array([5, 3]).reshape(-1, *[1] * (len(shape) - 1)), shape)
    arrays = {"token_ids": draws.integers(1, 50, shape), "segment_ids": draws.integers(0, 2, shape) * mask}
    return {name: array.astype("int32") for name, array in {**arrays, "padding_mask": mask}.items()}


@pytest.fixture
def same(inputs, numpy, compiled):
    def check(one, other):
        wanted, result = (keras.tree.flatten(numpy(compiled(model, model)(inputs))) for model in (one, other))
        assert len(wanted) == len(result)
        for expected, value in zip(wanted, result):
            np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-6)

    return check


@pytest.mark.parametrize("name", EACH)
def test_a_keras_file(name, same, tmp_path):
    task = make(name)
    task.save(tmp_path / "task.keras")
    same(task, keras.saving.load_model(tmp_path / "task.keras"))


@pytest.mark.parametrize("name", EACH)
def test_a_file_of_weights(name, same, tmp_path):
    task = make(name)
    task.save_weights(tmp_path / "task.weights.h5")
    other = type(task).from_config(task.get_config())
    other.load_weights(tmp_path / "task.weights.h5")
    same(task, other)


@pytest.mark.parametrize("name", EACH)
def test_a_preset(name, same, tmp_path):
    task = make(name)
    task.save_to_preset(tmp_path / "preset")
    same(task, type(task).from_preset(tmp_path / "preset", verbose=False, tokenizer=None))


@pytest.mark.parametrize("name", EACH)
def test_inside_a_functional_model(name, inputs, same, tmp_path):
    task = make(name)
    positions = {name: keras.Input(array.shape[1:], dtype="int32", name=name) for name, array in inputs.items()}
    outputs = task(positions)
    model = keras.Model(positions, keras.tree.map_structure(lambda output: 2.0 * output, outputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    same(model, loaded)
    same(task, loaded.get_layer(task.name))


@pytest.mark.parametrize("name", EACH)
def test_quantized(name, inputs, same, numpy, compiled, tmp_path):
    task = make(name)
    before = keras.tree.flatten(numpy(compiled(task, task)(inputs)))
    task.quantize("int8")
    after = keras.tree.flatten(numpy(compiled(task, task)(inputs)))
    assert any((old != new).any() for old, new in zip(before, after))
    task.save(tmp_path / "task.keras")
    same(task, keras.saving.load_model(tmp_path / "task.keras"))
