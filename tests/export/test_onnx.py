"""ONNX files give the model's numbers, at batch sizes and lengths from 1 to the maximum, padded and not."""

import hashlib
import importlib.util
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.models.registry import FAMILIES

ort = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
}
# A row each: alone, of one token, of the most tokens; two; and 33 of all lengths.
SHAPES = [(1, 1), (1, 38), (2, 7), (33, 38)]
HEADS = {
    "TextClassifier": {"labels": 3},
    "CrossEncoder": {},
    "TokenClassifier": {"labels": 5},
    "QuestionAnswerer": {},
    "MultipleChoice": {},
    "MaskedLM": {},
    "ForPreTraining": {},
    "ReplacedTokenDetector": {},
    "NextSentencePredictor": {},
    "SentenceEncoder": {"pooling": "mean"},
    "SparseEncoder": {},
    "MultiVectorEncoder": {"projection": 12},
}
# Settings whose nodes differ from those of the family's defaults.
VARIANTS = [
    ("bert", {"hidden_act": "relu"}),
    ("bert", {"hidden_act": "gelu_new"}),
    ("bert", {"hidden_act": "silu"}),
    ("albert", {"num_hidden_groups": 2, "inner_group_num": 2, "embedding_size": 8}),
    ("deberta", {"pos_att_type": ("c2p",)}),
    ("deberta", {"pos_att_type": ("p2c",), "position_biased_input": True, "embedding_size": 8}),
    ("deberta", {"relative_attention": False}),
    ("deberta-v2", {"position_buckets": 16, "share_att_key": True, "norm_rel_ebd": "layer_norm"}),
    ("deberta-v2", {"conv_kernel_size": 3, "type_vocab_size": 2}),
    ("modernbert", {"local_attention": 8, "norm_bias": True, "mlp_bias": True, "attention_bias": True}),
    ("roformer", {"rotary_value": True, "embedding_size": 8}),
    ("ernie", {"use_task_id": True}),
    ("gte", {"rope_factor": 1.3, "type_vocab_size": 0}),
    ("eurobert", {"num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True}),
]


def make(model_type: str, task: str = "Encoder", options=None, **settings):
    """A model with random weights, all of them large enough to matter; None where the family lacks the head."""
    encoder = bz.Encoder(FAMILIES[model_type].config_class(**{**SIZES, **settings}))
    try:
        model = encoder if task == "Encoder" else getattr(bz, task)(encoder, **(options or HEADS[task]))
    except (ValueError, AttributeError) as error:
        if "has no head" in str(error) or "reads the pooler" in str(error) or "pooler" in str(error):
            return None
        raise
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if "step" not in weight.path:
            weight.assign(weight + 0.1 * rng.normal(size=weight.shape))
    return model


def inputs_of(model, shape, seed=1):
    """Inputs of the model, and the same for the file; in the last row of several all tokens are real."""
    config = getattr(model, "backbone", model).config
    rng, length = np.random.default_rng(seed), min(shape[-1], config.max_length)
    rows = (shape[0], 3) if "multiple_choice" in getattr(model, "heads", ()) else (shape[0],)
    lengths = rng.integers(1, length + 1, (*rows, 1))
    lengths[-1] = length
    mask = np.arange(length) < lengths
    ids = np.where(mask, rng.integers(3, 50, (*rows, length)), config.pad_token_id)
    inputs = {"token_ids": ids, "padding_mask": mask}
    if config.type_vocab_size > 1:
        inputs["segment_ids"] = rng.integers(0, 2, ids.shape)
    names = {"token_ids": "input_ids", "padding_mask": "attention_mask", "segment_ids": "token_type_ids"}
    feed = {names[name]: array.astype("int64") for name, array in inputs.items()}
    return {name: array.astype("int32") for name, array in inputs.items()}, feed, mask


def assert_equal(model, path, numpy, close, compiled, shapes=SHAPES):
    """The file, in a runtime that knows nothing of bertzoo, gives what the model gives at real tokens."""
    session, call = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]), compiled(model, model)
    for shape in shapes:
        inputs, feed, mask = inputs_of(model, shape)
        expected = numpy(call(inputs))
        order = ("sequence_output", "pooled_output", "masked_lm", "pair")
        expected = [expected[name] for name in order if name in expected] if isinstance(expected, dict) else [expected]
        for reference, output in zip(expected, session.run(None, feed)):
            keep = mask if reference.shape[: mask.ndim] == mask.shape else slice(None)
            assert output.shape == reference.shape
            close(output[keep], reference[keep], 1e-5)


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_every_family(model_type, tmp_path, numpy, close, compiled):
    model = make(model_type)
    model.export(tmp_path / "model.onnx", format="onnx")
    assert_equal(model, tmp_path / "model.onnx", numpy, close, compiled, SHAPES[-1:])


@pytest.mark.once
@pytest.mark.parametrize("task", ["Encoder", *HEADS])
@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_every_family_and_task_at_every_shape(model_type, task, tmp_path, numpy, close, compiled):
    model = make(model_type, task)
    if model is None:
        pytest.skip(f"{model_type} has no such head")
    model.export(tmp_path / "model.onnx", format="onnx")
    assert_equal(model, tmp_path / "model.onnx", numpy, close, compiled)


@pytest.mark.once
@pytest.mark.parametrize(("model_type", "settings"), VARIANTS)
def test_settings_of_families(model_type, settings, tmp_path, numpy, close, compiled):
    model = make(model_type, **settings)
    model.export(tmp_path / "model.onnx", format="onnx")
    assert_equal(model, tmp_path / "model.onnx", numpy, close, compiled)


@pytest.mark.once
@pytest.mark.parametrize(
    ("model_type", "task", "settings"),
    [
        ("deberta-v2", "MaskedLM", {"legacy": False, "enhanced_mask_decoder": True}),
        ("modernbert", "TextClassifier", {"classifier_pooling": "mean"}),
        ("eurobert", "TextClassifier", {"classifier_pooling": "mean"}),
        ("eurobert", "TextClassifier", {"classifier_pooling": "bos"}),
        ("eurobert", "MaskedLM", {"mlp_bias": True, "extra": {"tie_word_embeddings": True}}),
        ("roformer", "MultipleChoice", {"summary_type": "mean"}),
        ("roformer", "MultipleChoice", {"summary_type": "first"}),
    ],
)
def test_heads_that_read_in_another_way(model_type, task, settings, tmp_path, numpy, close, compiled):
    model = make(model_type, task, **settings)
    model.export(tmp_path / "model.onnx", format="onnx")
    assert_equal(model, tmp_path / "model.onnx", numpy, close, compiled)


@pytest.mark.once
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_sparse_poolings(pooling, activation, tmp_path, numpy, close, compiled):
    model = make("bert", "SparseEncoder", {"pooling": bz.layers.SpladePooling(pooling, activation)})
    model.export(tmp_path / "model.onnx", format="onnx")
    assert_equal(model, tmp_path / "model.onnx", numpy, close, compiled)


@pytest.mark.once
def test_every_pooling_and_the_layers_after_it(tmp_path, numpy, close, compiled):
    modes = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", "attention"]
    after = [keras.layers.Dense(8, activation="tanh"), bz.layers.Normalize()]
    model = make("bert", "SentenceEncoder", {"pooling": modes, "after_pooling": after})
    model.export(tmp_path / "model.onnx", format="onnx")
    assert_equal(model, tmp_path / "model.onnx", numpy, close, compiled)


@pytest.mark.once
def test_a_head_of_the_users_own(tmp_path, numpy, close, compiled):
    layers = keras.layers
    inner = [layers.LayerNormalization(), layers.Dense(12, "relu"), layers.Dropout(0.5), layers.Activation("gelu")]
    model = make("bert", "TextClassifier", {"labels": 3, "head": keras.Sequential([*inner, layers.Dense(3)])})
    model.export(tmp_path / "model.onnx", format="onnx")
    assert_equal(model, tmp_path / "model.onnx", numpy, close, compiled)
    head = keras.Sequential([layers.GaussianNoise(1.0), layers.Dense(3)])
    model = make("bert", "TextClassifier", {"labels": 3, "head": head})
    with pytest.raises(ValueError, match="GaussianNoise.*has no ONNX form"):
        model.export(tmp_path / "other.onnx", format="onnx")


@pytest.mark.once
def test_lora_is_merged(tmp_path, numpy, close, compiled):
    model = make("bert", "TextClassifier")
    bz.adapters.enable_lora(model, rank=2, targets=["query", "value", "dense"])
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if "lora" in weight.path:
            weight.assign(rng.normal(size=weight.shape))
    model.export(tmp_path / "model.onnx", format="onnx")
    assert_equal(model, tmp_path / "model.onnx", numpy, close, compiled)


@pytest.mark.once
def test_padding_before_and_between_tokens(tmp_path, numpy, close, compiled):
    """Sequence outputs are equal wherever the mask is 1, as other libraries' tokenizers may pad."""
    model = make("mpnet")
    model.export(tmp_path / "model.onnx", format="onnx")
    inputs, feed, mask = inputs_of(model, (4, 9))
    mask[:] = np.random.default_rng(0).integers(0, 2, mask.shape).astype(bool)
    mask[:, 4] = True
    inputs["padding_mask"], feed["attention_mask"] = mask.astype("int32"), mask.astype("int64")
    expected = numpy(compiled(model, model)(inputs))["sequence_output"]
    output = ort.InferenceSession(str(tmp_path / "model.onnx")).run(None, feed)[0]
    close(output[mask], expected[mask], 1e-5)


SAME_FILE = """
import sys
import bertzoo as bz
config = bz.models.FAMILIES["bert"].config_class(vocab_size=50, hidden_size=16, num_hidden_layers=2,
    num_attention_heads=2, intermediate_size=24, max_position_embeddings=40)
bz.TextClassifier(bz.Encoder(config), labels=3).export(sys.argv[1], format="onnx")
"""


@pytest.mark.once
def test_one_file_from_all_backends(tmp_path):
    digests = {}
    for backend, module in {"jax": "jax", "tensorflow": "tensorflow", "torch": "torch"}.items():
        if importlib.util.find_spec(module) is None:
            continue
        path = tmp_path / f"{backend}.onnx"
        code = SAME_FILE.replace('bz.models.FAMILIES["bert"].config_class', "bz.EncoderConfig")
        environment = {**os.environ, "KERAS_BACKEND": backend}
        subprocess.run([sys.executable, "-c", code, str(path)], env=environment, check=True, capture_output=True)
        digests[backend] = hashlib.sha256(path.read_bytes()).hexdigest()
    assert len(set(digests.values())) == 1, digests


@pytest.mark.once
def test_weights_beyond_one_file(tmp_path, monkeypatch, numpy, close, compiled):
    from bertzoo.export import onnx_files

    monkeypatch.setattr(onnx_files, "LARGEST_FILE", 10_000)
    model = make("bert")
    model.export(tmp_path / "model.onnx", format="onnx")
    assert (tmp_path / "model.onnx.data").stat().st_size > 5_000
    assert_equal(model, tmp_path / "model.onnx", numpy, close, compiled)


def test_what_cannot_be_exported(tmp_path):
    model = make("bert")
    with pytest.raises(ValueError, match="input_dtype must be left out for ONNX"):
        model.export(tmp_path / "x", format="onnx", input_dtype="int32")
    with pytest.raises(TypeError, match="opset_version"):
        model.export(tmp_path / "x", format="onnx", opset_version=18)
    with pytest.raises(ValueError, match="float32. Received: bfloat16"):
        bz.Encoder(model.config, dtype="mixed_bfloat16").export(tmp_path / "x", format="onnx")
    (tmp_path / "preset").mkdir()
    (tmp_path / "preset" / "model.safetensors").touch()
    with pytest.raises(ValueError, match="which holds a preset"):
        model.export(tmp_path / "preset", format="onnx")
    model.quantize("int8")
    with pytest.raises(ValueError, match="quantized by Keras to int8"):
        model.export(tmp_path / "x", format="onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["preset"]


@pytest.mark.once
def test_nothing_is_written_that_gives_other_numbers(tmp_path, monkeypatch):
    from bertzoo.export import OnnxModel

    def run(self, inputs):
        return {"last_hidden_state": np.zeros((*inputs["token_ids"].shape, 16), "float32")}

    monkeypatch.setattr(OnnxModel, "run", run)
    with pytest.raises(RuntimeError, match="gives other outputs"):
        make("bert").export(tmp_path / "model", format="onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.once
def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "bertzoo.export.onnx_graph.model", None)
    with pytest.raises(ImportError, match=r"\.\[export\]"):
        make("bert").export(tmp_path / "model", format="onnx")
