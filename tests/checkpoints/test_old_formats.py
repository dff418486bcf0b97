"""Files of transformers' TensorFlow and Flax classes, which version 5 no longer has, give these classes' outputs."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import bertzoo as bz
from bertzoo.checkpoints.files import _SHARDS
from bertzoo.checkpoints.tensors import WEIGHT_FILES, open_tensors_in_directory

ARCHIVE = Path(__file__).parent / "old_formats" / "old_checkpoints.tar.xz"
NAMES = sorted({name.split("/")[0] for name in tarfile.open(ARCHIVE).getnames()})
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
    directory = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    return directory


def task_of(name: str):
    head = f"For{name.partition('For')[2]}" if "For" in name.replace("RoFormer", "") else "Model"
    head = head.removeprefix("Former").removesuffix("-sharded")
    head = "For" + head.partition("For")[2] if "For" in head else "Model"
    if head == "ForPreTraining":
        return bz.ReplacedTokenDetector if "Electra" in name else bz.ForPreTraining
    return TASKS[head]


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
