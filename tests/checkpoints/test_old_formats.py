"""Files of transformers' TensorFlow and Flax classes, which version 5 no longer has, give these classes' outputs."""

import shutil
import tarfile

import h5py
import ml_dtypes
import msgpack
import numpy as np
import pytest
import safetensors.numpy
from old_checkpoints import ARCHIVE, unpack

import bertzoo as bz
from bertzoo.checkpoints.tensors import open_tensors_in_directory

with tarfile.open(ARCHIVE) as archive:
    NAMES = sorted({name.split("/")[0] for name in archive.getnames()})
TASKS = {
    "Model": bz.Encoder,
    "ForMaskedLM": bz.MaskedLM,
    "ForSequenceClassification": bz.TextClassifier,
    "ForTokenClassification": bz.TokenClassifier,
    "ForQuestionAnswering": bz.QuestionAnswerer,
    "ForMultipleChoice": bz.MultipleChoice,
    "ForNextSentencePrediction": bz.NextSentencePredictor,
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    return unpack(tmp_path_factory.mktemp("old"))


def task_of(name: str):
    suffix = name.removesuffix("-sharded").replace("RoFormer", "")
    if suffix.endswith("ForPreTraining"):
        return bz.ReplacedTokenDetector if "Electra" in name else bz.ForPreTraining
    return TASKS[suffix[suffix.index("For" if "For" in suffix else "Model") :]]


def outputs_of(stored) -> dict[str, np.ndarray]:
    """The outputs of transformers' class, in our words."""
    out = {key.removeprefix("out_"): stored[key] for key in stored.files if key.startswith("out_")}
    if "start_logits" in out:
        return {"": np.stack([out["start_logits"], out["end_logits"]], axis=-1)}
    if "prediction_logits" in out:
        pair = out["sop_logits" if "sop_logits" in out else "seq_relationship_logits"]
        return {"masked_lm": out["prediction_logits"], "pair": pair}
    if "last_hidden_state" in out:
        names = {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"}
        return {names[key]: value for key, value in out.items()}
    return {"": out["logits"]}


# What differs between backends is tested by other files.
ONE_EACH = ("TFBertForPreTraining", "FlaxAlbertForMaskedLM")
PARAMS = [name if name in ONE_EACH else pytest.param(name, marks=pytest.mark.once) for name in NAMES]


@pytest.mark.parametrize("name", PARAMS)
def test_the_outputs_of_the_class_that_wrote_it(name, checkpoints, numpy):
    task = task_of(name)
    options = {} if task is bz.Encoder else {"tokenizer": None}
    model = task.from_preset(checkpoints / name, verbose=False, **options)
    unused = [name for name in model.load_report.unused if not name.startswith("mpnet.pooler.")]  # heads do not read it
    assert not model.load_report.new and not unused
    stored = np.load(checkpoints / name / "outputs.npz")
    inputs = {"token_ids": stored["input_ids"], "padding_mask": stored["attention_mask"]}
    if "token_type_ids" in stored.files:
        inputs["segment_ids"] = stored["token_type_ids"]
    actual = numpy(model(inputs))
    for key, expected in outputs_of(stored).items():
        own = actual[key] if key else actual
        assert own.shape == expected.shape
        if expected.shape[:2] == inputs["token_ids"].shape:
            real = inputs["padding_mask"] == 1
            own, expected = own[real], expected[real]
        assert np.abs(own - expected).max() <= 1e-5 * max(1.0, np.abs(expected).max())


@pytest.mark.once
def test_saving_leaves_no_file_of_an_old_format(checkpoints, tmp_path):
    """They would be another model's weights."""
    for name in ("TFBertForMaskedLM-sharded", "FlaxBertForMaskedLM-sharded", "TFBertModel"):
        directory = tmp_path / name
        shutil.copytree(checkpoints / name, directory)
        encoder = bz.Encoder.from_preset(directory, pooler=False, verbose=False)
        encoder.save_to_preset(directory)
        assert sorted(path.name for path in directory.iterdir()) == ["config.json", "model.safetensors", "outputs.npz"]


@pytest.mark.once
def test_newer_formats_come_first(checkpoints, tmp_path):
    for name in ("FlaxBertModel", "TFBertModel"):
        shutil.copytree(checkpoints / name, tmp_path, dirs_exist_ok=True)
    (tmp_path / "flax_model.msgpack").write_bytes(b"never read")
    assert len(open_tensors_in_directory(tmp_path)) == 23
    safetensors.numpy.save_file({"one": np.zeros(1)}, tmp_path / "model.safetensors")
    assert set(open_tensors_in_directory(tmp_path)) == {"one"}


@pytest.mark.once
def test_tensors_of_tensorflow_are_read_one_by_one(checkpoints):
    with open_tensors_in_directory(checkpoints / "TFBertModel") as tensors:
        name = "bert.encoder.layer.0.intermediate.dense.weight"
        with h5py.File(checkpoints / "TFBertModel" / "tf_model.h5") as file:
            kernel = file["bert/tf_bert_model/bert/encoder/layer_._0/intermediate/dense/kernel:0"][()]
        np.testing.assert_array_equal(tensors[name], kernel.T)
        assert tensors.shape(name) == kernel.T.shape and tensors.safetensors_dtype(name) == "F32"


@pytest.mark.once
@pytest.mark.parametrize(("dtype", "name"), [("float16", "F16"), (ml_dtypes.bfloat16, "BF16"), ("float64", "F64")])
def test_arrays_of_flax_in_parts_and_of_other_types(dtype, name, tmp_path):
    """As Flax writes arrays of more than a gigabyte, and `to_bf16` makes them."""
    values = np.arange(12).reshape(3, 4).astype(dtype)

    def array(part):
        return msgpack.ExtType(1, msgpack.packb((list(part.shape), part.dtype.name, part.tobytes())))

    chunks = {str(i): array(part) for i, part in enumerate(np.split(values.ravel(), [5]))}
    parts = {"__msgpack_chunked_array__": True, "shape": {"0": 3, "1": 4}, "chunks": chunks}
    (tmp_path / "flax_model.msgpack").write_bytes(msgpack.packb({"a": {"kernel": parts, "bias": array(values[0])}}))
    tensors = open_tensors_in_directory(tmp_path)
    np.testing.assert_array_equal(tensors["a.weight"], values.T)
    np.testing.assert_array_equal(tensors["a.bias"], values[0])
    assert tensors.safetensors_dtype("a.weight") == tensors.safetensors_dtype("a.bias") == name
