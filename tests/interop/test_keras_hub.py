"""KerasHub's models and bertzoo's compute the same, converted in both directions."""

import json
import sys

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.models.registry import FAMILIES

keras_hub = pytest.importorskip("keras_hub")

SMALL = {
    "vocabulary_size": 30,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "max_sequence_length": 12,
    "dropout": 0.0,
}
NARROW = {**SMALL, "embedding_dim": 8}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(25))]
CASES = {
    "BertBackbone": SMALL,
    "RobertaBackbone": SMALL,
    "XLMRobertaBackbone": SMALL,
    "AlbertBackbone": {**NARROW, "num_layers": 4, "num_groups": 2, "num_inner_repetitions": 2},
    "DistilBertBackbone": SMALL,
    "ElectraBackbone": {**{k: v for k, v in NARROW.items() if k != "vocabulary_size"}, "vocab_size": 30},
}
IDS = np.array([[2, 7, 9, 12, 3], [2, 8, 4, 0, 0]], "int32")
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], "int32")
REAL = MASK.astype(bool)


def inputs_for(name):
    ids = np.where(MASK, IDS, 1) if "oberta" in name else IDS
    inputs = {"token_ids": ids, "padding_mask": MASK}
    if name in ("BertBackbone", "AlbertBackbone", "ElectraBackbone"):
        inputs["segment_ids"] = np.array([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]], "int32")
    return inputs


def randomize(model):
    rng = np.random.default_rng(1)
    for weight in model.weights:
        if "seed" not in weight.path:
            weight.assign(rng.normal(scale=0.3, size=weight.shape) + 1.0 * weight.path.endswith("gamma"))
    return model


def make(name):
    return randomize(getattr(keras_hub.models, name)(**CASES[name]))


def assert_equal(close, numpy, one, other, real=REAL):
    one, other = ({"sequence_output": x} if not isinstance(x, dict) else x for x in (numpy(one), numpy(other)))
    close(one["sequence_output"][real], other["sequence_output"][real])
    if "pooled_output" in one and "pooled_output" in other:
        close(one["pooled_output"], other["pooled_output"])


def others(*names):
    """Weights are copied in NumPy, so that one case shows on JAX and TensorFlow what there is to be seen."""
    return [pytest.param(name, marks=pytest.mark.once) for name in names]


@pytest.mark.parametrize("name", ["BertBackbone", *others(*(name for name in CASES if name != "BertBackbone"))])
def test_backbones_both_ways(name, numpy, close):
    hub_model, inputs = make(name), inputs_for(name)
    model = bz.from_keras_hub(hub_model, verbose=False)
    assert_equal(close, numpy, model(inputs), hub_model(inputs))
    back = bz.to_keras_hub(model) if name != "ElectraBackbone" else with_warning(model)
    assert_equal(
        close, numpy, back(inputs)["sequence_output"] if name == "ElectraBackbone" else back(inputs), hub_model(inputs)
    )
    assert type(back) is type(hub_model)


def with_warning(encoder):
    with pytest.warns(UserWarning, match="pooled_dense of the ElectraBackbone is untrained"):
        return bz.to_keras_hub(encoder)


@pytest.mark.parametrize("model_type", ["roberta", *others("camembert", "distilbert")])
def test_encoders_become_backbones(model_type, numpy, close):
    """Segments of one row, which KerasHub's RoBERTa lacks, are in its positions."""
    sizes = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = FAMILIES[model_type].config_class(**sizes, intermediate_size=24, max_position_embeddings=14)
    model = randomize(bz.Encoder(config, pooler=False))
    inputs = inputs_for("RobertaBackbone")
    assert_equal(close, numpy, bz.to_keras_hub(model)(inputs), model(inputs))


@pytest.mark.parametrize("kind", ["Bert", *others("Roberta", "Albert", "DistilBert", "XLMRoberta")])
def test_classifiers(kind, numpy, close):
    backbone = make(f"{kind}Backbone")
    hub_model = randomize(getattr(keras_hub.models, f"{kind}TextClassifier")(backbone, num_classes=3))
    model = bz.from_keras_hub(hub_model, verbose=False)
    inputs = inputs_for(f"{kind}Backbone")
    assert isinstance(model, bz.TextClassifier) and len(model.labels) == 3 and model.load_report.notes == []
    close(numpy(model(inputs)), numpy(hub_model(inputs)))


@pytest.mark.parametrize("kind", ["Bert", *others("Roberta", "XLMRoberta", "Albert")])
def test_masked_lms(kind, numpy, close):
    """BERT's head differs there from its blocks in the GELU, and all heads in epsilon; the report says so."""
    hub_model = randomize(getattr(keras_hub.models, f"{kind}MaskedLM")(make(f"{kind}Backbone")))
    model = bz.from_keras_hub(hub_model, verbose=False)
    inputs = {**inputs_for(f"{kind}Backbone"), "mask_positions": np.array([[1, 3], [0, 2]], "int32")}
    if "oberta" not in kind:
        # What the report names, undone in KerasHub's: the rest is equal.
        hub_model.masked_lm_head._intermediate_layer_norm.epsilon = 1e-12
        hub_model.masked_lm_head._intermediate_dense.activation = lambda x: keras.activations.gelu(x, approximate=True)
    close(numpy(model(inputs)), numpy(hub_model(inputs)))
    report = str(model.load_report)
    assert ("epsilon 1e-05, bertzoo's with 1e-12" in report) == (kind in ("Bert", "Albert"))
    assert ("head computes gelu, bertzoo's gelu_new" in report) == (kind == "Bert")


def test_a_preset_and_its_tokenizer(tmp_path, numpy, close):
    backbone = make("BertBackbone")
    backbone.save_to_preset(str(tmp_path / "preset"))
    assert_equal(close, numpy, bz.from_keras_hub(tmp_path / "preset", verbose=False)(inputs_for("BertBackbone")),
                 backbone(inputs_for("BertBackbone")))  # fmt: skip
    with pytest.raises(CheckpointError, match=r"preset of KerasHub.*bertzoo\.from_keras_hub"):
        bz.Encoder.from_preset(tmp_path / "preset")
    tokenizer = keras_hub.models.BertTokenizer(vocabulary=WORDS, lowercase=True)
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=8)
    model = bz.from_keras_hub(
        keras_hub.models.BertTextClassifier(backbone, num_classes=2, preprocessor=preprocessor), verbose=False
    )
    assert model.tokenizer(["w1 w2 zebra"])["token_ids"].tolist() == [[2, 6, 7, 1, 3]]
    assert model.predict(["w1 w2", "w3"], verbose=0).shape == (2, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"class_name": "GemmaBackbone", "config": {}}, "class_name is 'GemmaBackbone'"),
        ({"module": "os", "class_name": "system", "config": {"command": "touch executed"}}, "class_name is 'system'"),
        ({"class_name": "BertBackbone", "config": {"num_layers": 2}}, "can't be read as a BertBackbone"),
        ({"class_name": "BertBackbone", "config": SMALL}, "can't be read as a BertBackbone"),
    ],
)
def test_presets_that_are_refused(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "preset").mkdir()
    (tmp_path / "preset" / "config.json").write_text(json.dumps(content))
    (tmp_path / "preset" / "model.weights.h5").write_bytes(b"no hdf5")
    with pytest.raises(CheckpointError, match=message):
        bz.from_keras_hub(tmp_path / "preset")
    assert [entry.name for entry in tmp_path.iterdir()] == ["preset"]


@pytest.mark.parametrize(
    ("model_type", "changes", "message"),
    [
        ("mpnet", {}, "KerasHub has no mpnet"),
        ("bert", {"hidden_act": "gelu"}, "hidden_act is 'gelu'.*any_activation=True"),
        ("bert", {"layer_norm_eps": 1e-5, "hidden_act": "gelu_new"}, "1e-12 built in"),
        ("roberta", {"type_vocab_size": 2}, "type_vocab_size is 2; .* 1 built in"),
    ],
)
def test_what_their_classes_cannot_compute(model_type, changes, message):
    sizes = {"vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1}
    encoder = bz.Encoder(FAMILIES[model_type].config_class(**sizes, intermediate_size=4, **changes))
    with pytest.raises(ValueError, match=message):
        bz.to_keras_hub(encoder)
    if "hidden_act" in message:
        assert type(bz.to_keras_hub(encoder, any_activation=True)).__name__ == "BertBackbone"


def test_without_keras_hub_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(CheckpointError, match="pip install keras-hub"):
        bz.from_keras_hub("bert_tiny_en_uncased")


def test_models_of_other_kinds_are_refused():
    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=9, num_layers=1, num_heads=1, hidden_dim=4, intermediate_dim=4, max_sequence_length=4
    )
    with pytest.raises(CheckpointError, match="no family for a GPT2Backbone"):
        bz.from_keras_hub(backbone)


def test_quantized_models_are_refused():
    hub_model = make("BertBackbone")
    hub_model.quantize("int8")
    with pytest.raises(CheckpointError, match="is quantized .int8.. Convert the model before"):
        bz.from_keras_hub(hub_model, verbose=False)


@pytest.mark.once
def test_texts_are_split_as_in_keras_hub():
    """Accents stay unless KerasHub's tokenizer strips them, and rows are cut at the same length."""
    words = [*WORDS[:5], "café", "cafe", "w1"]
    for strip in (False, True):
        tokenizer = keras_hub.models.BertTokenizer(vocabulary=words, lowercase=True, strip_accents=strip)
        preprocessor = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=6)
        backbone = keras_hub.models.BertBackbone(**{**SMALL, "vocabulary_size": len(words)})
        hub_model = keras_hub.models.BertTextClassifier(backbone, num_classes=2, preprocessor=preprocessor)
        model = bz.from_keras_hub(hub_model, verbose=False).tokenizer
        assert model.max_length == 6
        for text in ("Café w1", "w1 w1 w1 w1 w1 cafe"):
            expected = keras.ops.convert_to_numpy(preprocessor([text])["token_ids"])[0]
            row = model.encode([text]).row(0)
            np.testing.assert_array_equal(row, expected[: len(row)])


@pytest.mark.once
def test_the_head_of_a_task_s_preset_is_reported(tmp_path):
    hub_model = keras_hub.models.BertTextClassifier(make("BertBackbone"), num_classes=2, preprocessor=None)
    hub_model.save_to_preset(str(tmp_path / "preset"))
    assert "head was not read" in str(bz.from_keras_hub(tmp_path / "preset", verbose=False).load_report)
