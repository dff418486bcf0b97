"""SavedModels give the model's numbers at batch sizes and lengths that the exporter did not see."""

import warnings
from pathlib import Path

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.export import exporting
from bertzoo.models.registry import FAMILIES

pytestmark = pytest.mark.slow

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 140,
    "pad_token_id": 1,
}
SHAPES = [(1, 120), (5, 1)]
BACKEND = keras.backend.backend()
by_keras = pytest.mark.skipif(BACKEND == "torch", reason="PyTorch exports no SavedModel")


def make(model_type: str, task: str):
    """A model with random weights, all of them large enough to matter."""
    encoder = bz.Encoder(FAMILIES[model_type].config_class(**SIZES))
    model = bz.TextClassifier(encoder, labels=3) if task == "classifier" else encoder
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(weight + 0.1 * rng.normal(size=weight.shape))
    return model


def make_inputs(model, shape):
    config = getattr(model, "backbone", model).config
    rng = np.random.default_rng(1)
    mask = np.arange(shape[-1]) < rng.integers(1, shape[-1] + 1, (*shape[:-1], 1))
    inputs = {"token_ids": np.where(mask, rng.integers(3, 50, shape), config.pad_token_id)}
    if config.type_vocab_size > 1:
        inputs["segment_ids"] = rng.integers(0, 2, shape)
    return {name: x.astype("int32") for name, x in {**inputs, "padding_mask": mask}.items()}


def runner(path):
    """Inputs -> outputs by name, in a runtime that knows nothing of bertzoo."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))

    def serve(inputs):
        outputs = loaded.serve(*inputs.values())
        outputs = outputs if isinstance(outputs, dict) else {"logits": outputs}
        return {name: value.numpy() for name, value in outputs.items()}

    return serve


def assert_same(model, path, numpy, close, compiled, shapes=SHAPES):
    run, call = runner(path), compiled(model, model)
    for shape in shapes:
        inputs = make_inputs(model, shape)
        actual, expected = numpy(call(inputs)), run(inputs)
        if not isinstance(actual, dict):
            assert len(expected) == 1
            close(next(iter(expected.values())), actual, 1e-4)
            continue
        assert set(expected) == set(actual)
        real = inputs["padding_mask"].astype(bool)
        for name, value in actual.items():
            keep = real if name == "sequence_output" else slice(None)
            close(expected[name][keep], value[keep], 1e-4)


# Exporters take seconds, and a classifier's file holds an encoder; alone, it has two outputs or one. Of the families
# that are not named, the blocks are BERT's; two are RoBERTa under another name.
OF_ITS_OWN = ("bert", "albert", "mpnet", "deberta", "deberta-v2", "modernbert", "roformer", "gte", "eurobert")
BOTH = [(name, "classifier") for name in OF_ITS_OWN] + [("bert", "encoder")]
BOTH += [
    pytest.param(name, "classifier", marks=pytest.mark.once)
    for name in ("roberta", "distilbert", "electra", "ernie", "nomic_bert")
]
BOTH += [pytest.param("distilbert", "encoder", marks=pytest.mark.once)]


@by_keras
@pytest.mark.parametrize(("model_type", "task"), BOTH)
def test_every_family(model_type, task, tmp_path, numpy, close, compiled):
    model = make(model_type, task)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        model.export(tmp_path / "model")
    assert_same(model, tmp_path / "model", numpy, close, compiled)


@by_keras
def test_multiple_choice_has_an_axis_more(tmp_path, numpy, close, compiled):
    model = bz.MultipleChoice(make("bert", "encoder"))
    model.export(tmp_path / "model")
    assert_same(model, tmp_path / "model", numpy, close, compiled, [(1, 5, 1), (5, 1, 1), (1, 1, 120)])


@by_keras
def test_pooling_of_one_token(tmp_path, numpy, close, compiled):
    model = bz.SentenceEncoder(make("bert", "encoder"), pooling=["cls", "lasttoken"])
    model.export(tmp_path / "model", verbose=False)
    assert_same(model, tmp_path / "model", numpy, close, compiled)


@by_keras
def test_inputs_of_64_bits(tmp_path, numpy, close, compiled):
    """As Hugging Face's tokenizers make arrays."""
    model = make("bert", "classifier")
    model.export(tmp_path / "model", input_dtype="int64")
    call = compiled(model, model)
    inputs = make_inputs(model, (3, 6))
    wide = {name: array.astype("int64") for name, array in inputs.items()}
    close(next(iter(runner(tmp_path / "model")(wide).values())), numpy(call(inputs)), 1e-4)


@by_keras
@pytest.mark.parametrize("fault", ["other numbers", "no file of the format"])
def test_nothing_is_written_that_was_not_run(fault, tmp_path, monkeypatch):
    model = make("bert", "classifier")
    if fault == "other numbers":
        other = bz.TextClassifier(bz.Encoder(model.backbone.config), labels=3)
        write = exporting.write_saved_model
        changed = exporting.PositionalModel(other, "int32")
        monkeypatch.setattr(exporting, "write_saved_model", lambda wrapper, *rest: write(changed, *rest))
    else:
        monkeypatch.setattr(exporting, "write_saved_model", lambda wrapper, path, options: Path(path).mkdir())
    with pytest.raises(RuntimeError, match="gives other outputs" if fault == "other numbers" else "does not run"):
        model.export(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_exported(tmp_path):
    model = make("bert", "encoder")
    with pytest.raises(ValueError, match="input_dtype must be one of int32, int64. Received: 'float32'"):
        model.export(tmp_path / "x", input_dtype="float32")
    with pytest.raises(ValueError, match="tflite"):  # Keras names those that it has
        model.export(tmp_path / "x", format="tflite")
    with pytest.raises(ValueError, match="int8=True is for ONNX"):
        model.export(tmp_path / "x", int8=True)
    if BACKEND == "torch":
        with pytest.raises(ValueError, match="the torch backend can't export tf_saved_model.*save_to_preset"):
            model.export(tmp_path / "x")
    assert not list(tmp_path.iterdir())
