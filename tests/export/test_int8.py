"""Models in 8 bits are like themselves in float32, no text changes another's outputs, and what spoils them is named."""

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.export import OnnxModel, engine
from bertzoo.export.agreement import LEAST, example_rows, measure_agreement
from bertzoo.models.registry import FAMILIES

pytest.importorskip("onnxruntime")
pytestmark = [pytest.mark.once, pytest.mark.slow]
SIZES = {
    "vocab_size": 200,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 80,
}


def make(model_type="bert", **settings):
    """An encoder of sentences with random weights."""
    encoder = bz.Encoder(FAMILIES[model_type].config_class(**{**SIZES, **settings}))
    rng = np.random.default_rng(0)
    for weight in encoder.weights:
        if "step" not in weight.path:
            weight.assign(weight + 0.05 * rng.normal(size=weight.shape))
    return bz.SentenceEncoder(encoder)


def put(weight, index, value):
    array = np.array(keras.ops.convert_to_numpy(weight))
    array[index] = value
    weight.assign(array)


def spoil_output(block):
    """A block whose output layer has huge weights for a channel that is 0, so that 8 bits leave the others no codes."""
    put(block.intermediate.bias, 0, -1e3)
    put(block.output_dense.kernel, slice(None), 10 * np.array(keras.ops.convert_to_numpy(block.output_dense.kernel)))
    put(block.output_dense.kernel, 0, 1e6)


def cosines(a, b):
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("int8") / "model"
    make().export(path, format="onnx", int8=True)
    return path


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_every_family(model_type, tmp_path):
    settings = {"local_attention": 8} if model_type == "modernbert" else {}
    make(model_type, **settings).export(tmp_path / "model", format="onnx", int8=True)
    exact, small = (OnnxModel.from_directory(tmp_path / "model", int8=int8) for int8 in (False, True))
    assert (exact.dtype, small.dtype) == ("float32", "int8")
    assert small.settings["float32_layers"] == []
    assert (tmp_path / "model" / "model_int8.onnx").stat().st_size < (tmp_path / "model" / "model.onnx").stat().st_size
    rows = example_rows(None, 200, 60, True)
    vectors = [model.run(rows)["sentence_embedding"] for model in (exact, small)]
    assert cosines(*vectors).min() > 0.995 and not np.array_equal(*vectors)


def test_a_text_alone_and_beside_others_has_one_vector(exported):
    """Even where the others are far from any text: their scales are their own."""
    model, rng = OnnxModel.from_directory(exported), np.random.default_rng(1)
    row = rng.integers(5, 200, 12).tolist()
    alone = model.run([row])["sentence_embedding"]
    for others in ([[0] * 12] * 5, [rng.integers(0, 200, n).tolist() for n in range(1, 30)], [[199]] * 7):
        beside = model.run([*others, row])["sentence_embedding"][-1:]
        assert cosines(alone, beside)[0] > 0.99999


def test_the_form_for_processors_that_would_overflow(exported, monkeypatch):
    rows = example_rows(None, 200, 60, True)
    fast = OnnxModel.from_directory(exported).run(rows)["sentence_embedding"]
    monkeypatch.setattr(engine, "saturates_int8", lambda: True)
    safe = OnnxModel.from_directory(exported).run(rows)["sentence_embedding"]
    assert cosines(fast, safe).min() > 0.9999


def flip(model):
    """A model whose outputs are those of other rows, as from a processor that computes noise."""
    run = model.run
    model.run = lambda *arguments: {name: array[::-1] for name, array in run(*arguments).items()}
    return model


def test_a_model_that_computes_noise_here_is_refused_when_it_is_loaded(exported, monkeypatch):
    plain = engine.measure_agreement
    monkeypatch.setattr(engine, "measure_agreement", lambda exact, other: plain(exact, flip(other)))
    with pytest.raises(ValueError, match=r"on this machine the model in 8 bits is not like.*mean cosine.*int8=False"):
        OnnxModel.from_directory(exported)
    assert OnnxModel.from_directory(exported, int8=False).dtype == "float32"


def test_layers_that_spoil_a_model_stay_float32(tmp_path):
    model = make(num_hidden_layers=4)
    spoil_output(model.backbone.blocks[1])
    model.export(tmp_path / "model", format="onnx", int8=True)
    small = OnnxModel.from_directory(tmp_path / "model", int8=True)
    assert "layer_1/output" in small.settings["float32_layers"]
    exact = OnnxModel.from_directory(tmp_path / "model", int8=False)
    assert measure_agreement(exact, small).value >= LEAST


def test_a_model_that_8_bits_spoil_is_refused_by_the_name_of_its_worst_layer(tmp_path, monkeypatch):
    from bertzoo.export import quantization

    monkeypatch.setattr(quantization, "measure_agreement", lambda *_: measure_agreement(*_)._replace(value=0.5))
    model = make()
    spoil_output(model.backbone.blocks[0])
    with pytest.raises(ValueError, match="in 8 bits: mean cosine 0.5000.*worst is layer_0/output"):
        model.export(tmp_path / "model", format="onnx", int8=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("task", "measure"),
    [
        (lambda encoder: bz.TextClassifier(encoder, labels=3), "share of equal labels"),
        (lambda encoder: bz.TextClassifier(encoder, labels=1), "correlation of scores"),
        (lambda encoder: bz.TokenClassifier(encoder, labels=3), "share of equal labels"),
        (lambda encoder: bz.QuestionAnswerer(encoder), "correlation of scores"),
        (lambda encoder: bz.MultipleChoice(encoder), "correlation of scores"),
        (lambda encoder: bz.MaskedLM(encoder), "share of equal labels"),
        (lambda encoder: encoder, "mean cosine"),
    ],
)
def test_each_task_is_compared_by_its_answers(task, measure, tmp_path):
    model = task(make().backbone)
    model.export(tmp_path / "model", format="onnx")
    one = OnnxModel.from_directory(tmp_path / "model")
    same, other = (
        measure_agreement(one, one),
        measure_agreement(one, flip(OnnxModel.from_directory(tmp_path / "model"))),
    )
    assert same == (measure, pytest.approx(1)) and same.is_enough
    assert other.value < LEAST and not other.is_enough
