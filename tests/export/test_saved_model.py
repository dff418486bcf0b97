"""Exported models give the model's numbers at batch sizes and lengths that the exporter did not see."""

import warnings
from pathlib import Path

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo import export
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
FORMATS = {"tensorflow": ["tf_saved_model", "onnx"], "jax": ["tf_saved_model"], "torch": ["onnx"]}[BACKEND]


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


def runner(path, format):
    """Inputs -> outputs by name, in a runtime that knows nothing of bertzoo."""
    if format == "onnx":
        session = pytest.importorskip("onnxruntime").InferenceSession(str(path))
        names = [output.name for output in session.get_outputs()]
        return lambda inputs: dict(zip(names, session.run(None, inputs)))
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))

    def serve(inputs):
        outputs = loaded.serve(*inputs.values())
        outputs = outputs if isinstance(outputs, dict) else {"logits": outputs}
        return {name: value.numpy() for name, value in outputs.items()}

    return serve


def assert_same(model, path, format, numpy, close, compiled, shapes=SHAPES):
    run, call = runner(path, format), compiled(model, model)
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
OF_ITS_OWN = ("bert", "albert", "mpnet", "deberta", "deberta-v2", "modernbert", "roformer")
BOTH = [(name, "classifier") for name in OF_ITS_OWN] + [("bert", "encoder")]
BOTH += [pytest.param(name, "classifier", marks=pytest.mark.once) for name in ("roberta", "distilbert", "electra")]
BOTH += [pytest.param("distilbert", "encoder", marks=pytest.mark.once)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("model_type", "task"), BOTH)
def test_every_family(model_type, task, format, tmp_path, numpy, close, compiled):
    model = make(model_type, task)
    path = tmp_path / ("model.onnx" if format == "onnx" else "model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        model.export(path, format=format)
    assert_same(model, path, format, numpy, close, compiled)


def test_multiple_choice_has_an_axis_more(tmp_path, numpy, close, compiled):
    model = bz.MultipleChoice(make("bert", "encoder"))
    model.export(tmp_path / "model", format=FORMATS[0])
    shapes = [(1, 5, 1), (5, 1, 1), (1, 1, 120)]
    assert_same(model, tmp_path / "model", FORMATS[0], numpy, close, compiled, shapes)


@pytest.mark.parametrize("format", FORMATS)
def test_pooling_of_one_token(format, tmp_path, numpy, close, compiled):
    model = bz.SentenceEncoder(make("bert", "encoder"), pooling=["cls", "lasttoken"])
    model.export(tmp_path / "model", format=format, verbose=False)
    assert_same(model, tmp_path / "model", format, numpy, close, compiled)


@pytest.mark.parametrize("format", FORMATS)
def test_inputs_of_64_bits(format, tmp_path, numpy, close, compiled):
    """As Hugging Face's tokenizers make arrays."""
    model = make("bert", "classifier")
    model.export(tmp_path / "model", format=format, input_dtype="int64")
    call = compiled(model, model)
    inputs = make_inputs(model, (3, 6))
    wide = {name: array.astype("int64") for name, array in inputs.items()}
    expected = runner(tmp_path / "model", format)(wide)
    close(next(iter(expected.values())), numpy(call(inputs)), 1e-4)


@pytest.mark.parametrize("fault", ["other numbers", "no file of the format"])
def test_nothing_is_written_that_was_not_run(fault, tmp_path, monkeypatch):
    model = make("bert", "classifier")

    def wrong(*arguments):
        Path(next(part for part in arguments if isinstance(part, str))).mkdir()

    if fault == "other numbers":
        monkeypatch.setattr(export, "_run", lambda *arguments: [np.zeros((3, 3))])
    for name in ("_saved_model", "_torch_onnx"):
        monkeypatch.setattr(export, name, wrong)
    with pytest.raises(RuntimeError, match="gives other outputs" if fault == "other numbers" else "does not run"):
        model.export(tmp_path / "model", format=FORMATS[0])
    assert not list(tmp_path.iterdir())


@pytest.mark.once
def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr(export, "_MAKERS", {"onnx": (BACKEND,)})
    monkeypatch.setattr(export, "_torch_onnx", lambda *arguments: None)
    monkeypatch.setattr(export, "_register_tf2onnx_operations", lambda: None)
    monkeypatch.setattr(export._PositionalModel, "export", lambda *arguments, **options: None)
    with pytest.raises(ImportError, match=r"onnxruntime.*\.\[export\]"):
        make("bert", "classifier").export(tmp_path / "model", format="onnx")


def test_what_cannot_be_exported(tmp_path):
    model = make("bert", "encoder")
    with pytest.raises(ValueError, match="input_dtype must be one of int32, int64. Received: 'float32'"):
        model.export(tmp_path / "x", format=FORMATS[0], input_dtype="float32")
    with pytest.raises(ValueError, match="tflite"):  # Keras names those that it has
        model.export(tmp_path / "x", format="tflite")
    for format in {"tf_saved_model", "onnx"} - set(FORMATS):
        with pytest.raises(ValueError, match=rf"the {BACKEND} backend can't export {format}.*save_to_preset"):
            model.export(tmp_path / "x", format=format)
    half = bz.Encoder(model.config, dtype="mixed_bfloat16")
    with pytest.raises(ValueError, match="bfloat16" if "onnx" in FORMATS else "backend can't export onnx"):
        half.export(tmp_path / "x", format="onnx")
    assert not list(tmp_path.iterdir())
