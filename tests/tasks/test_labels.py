"""What a user means by labels and targets: names decide, and what could be two things is refused."""

import datasets
import keras
import numpy as np
import pandas
import pytest
import torch

import bertzoo as bz
from bertzoo.data.labels import _class_index, encode_targets, encode_word_targets, make_label_names
from bertzoo.data.parsing import parse_inputs
from bertzoo.data.schemas import CHOICES, QUESTIONS, TEXTS, WORDS
from bertzoo.types import SINGLE_LABEL

ASKED = {"question": "a", "context": "b"}

STARS = ["1", "2", "3", "4", "5"]

FILMS = ["a good film", "a bad film", "a dull plot", "a great story"]


def read(x, y=None, schema=TEXTS):
    return parse_inputs(x, y, schema=schema)


@pytest.fixture(scope="module")
def trained(write_checkpoint, tmp_path_factory):
    """A saved classifier, (directory, its label of the first text)."""
    preset = write_checkpoint(num_hidden_layers=1)[0]
    model = bz.TextClassifier.from_preset(preset, labels=["neg", "pos"], verbose=False)
    model.save_to_preset(directory := tmp_path_factory.mktemp("labels") / "model")
    return directory, model.classify(FILMS[0])["label"]


# ---- labels


@pytest.mark.once
@pytest.mark.parametrize("y", [[5, 1, 3], np.array([5, 1, 3]), ["5", "1", "3"], [5.0, 1.0, 3.0]])
def test_numbers_are_names_where_all_labels_are_numbers(y):
    assert encode_targets(y, STARS, SINGLE_LABEL, 3).tolist() == [4, 0, 2]
    assert encode_targets([1, 0], ["1", "0"], SINGLE_LABEL, 2).tolist() == [0, 1]
    assert encode_targets([2, 1], ["1.0", "2.0"], SINGLE_LABEL, 2).tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"y\[1\] must be one of the labels .* which are numbers.* Received: 0"):
        encode_targets([1, 0], STARS, SINGLE_LABEL, 2)


@pytest.mark.once
def test_a_number_that_may_be_a_name_or_an_index_is_refused():
    with pytest.raises(ValueError, match="may be the label '1' or the index of the label '2': pass labels as strings"):
        _class_index(1, ["1", "2", "many"], "y[0]")
    assert _class_index(1, ["0", "1", "many"], "y[0]") == 1  # both are the same
    assert _class_index(True, ["False", "True"], "y[0]") == 1
    assert _class_index(True, ["True", "False"], "y[0]") == 0


@pytest.mark.once
def test_forms_of_labels():
    names = ["neg", "pos"]
    for labels in (tuple(names), np.array(names), pandas.Series(names), set(names), dict.fromkeys(names).keys()):
        assert make_label_names(labels) == names
    assert make_label_names({10, 9, 1}) == make_label_names(np.array([1, 9, 10])) == ["1", "9", "10"]
    for wrong in (0, "pos", [], ["a", "a"], [1, "1"], [None, "a"], [0.5, 1.5], {"neg": 0}):
        with pytest.raises(ValueError, match="labels must be .*Received: "):
            make_label_names(wrong)


@pytest.mark.once
def test_forms_of_targets():
    right = [1, 0, 1]
    one_hot = np.eye(2)[right]
    column = np.array(right)[:, None]
    forms = [one_hot, one_hot.astype("int64"), one_hot.tolist(), column, column.tolist(), torch.tensor(right)]
    forms += [list(one_hot), torch.tensor(one_hot), pandas.DataFrame({"y": right})]
    forms += [pandas.Series(["pos", "neg", "pos"])]
    forms += [pandas.Series(["pos", "neg", "pos"], dtype="category"), keras.ops.convert_to_tensor(right)]
    for y in forms:
        assert encode_targets(y, ["neg", "pos"], SINGLE_LABEL, 3).tolist() == right
    for row in ([0.3, 0.7], [1, 1], [0, 0], [0, 1, 0]):
        with pytest.raises(ValueError, match=r"y\[0\] must be one label, or a one-hot row of 2"):
            encode_targets([row], ["neg", "pos"], SINGLE_LABEL, 1)


def test_targets_as_tensors_of_tensorflow():
    tensorflow = pytest.importorskip("tensorflow")
    for y in (tensorflow.constant([1, 0]), tensorflow.constant([b"pos", b"neg"])):
        assert encode_targets(y, ["neg", "pos"], SINGLE_LABEL, 2).tolist() == [1, 0]


@pytest.mark.once
def test_class_weights_are_found_by_name(trained):
    model = bz.TextClassifier.from_preset(trained[0], labels=["1", "2"], verbose=False)
    assert model.data.class_weight_array({1: 0.5, 2: 3.0}).tolist() == [0.5, 3.0]
    assert model.data.class_weight_array({"1": 0.5, "2": 3.0}).tolist() == [0.5, 3.0]
    with pytest.raises(ValueError, match="a key of class_weight must be one of the labels"):
        model.data.class_weight_array({3: 1.0})
    with pytest.raises(ValueError, match="class_weight names the class '1' twice"):
        model.data.class_weight_array({"1": 1.0, 1: 2.0})
    for wrong in (float("nan"), -1, "2"):
        with pytest.raises(ValueError, match=r"class_weight\['1'\] must be a finite number of at least 0"):
            model.data.class_weight_array({"1": wrong})


@pytest.mark.once
def test_a_number_of_labels_keeps_the_names_of_the_file(trained):
    model = bz.TextClassifier.from_preset(trained[0], labels=2, verbose=False)
    assert model.labels == ["neg", "pos"]
    assert bz.TextClassifier.from_preset(trained[0], labels=2, new_head=True, verbose=False).labels[0] == "LABEL_0"


@pytest.mark.once
def test_labels_in_another_order_than_the_trained_head(trained, capsys):
    directory, label = trained
    with pytest.raises(ValueError, match="another order than those of the trained head.*new_head=True"):
        bz.TextClassifier.from_preset(directory, labels=["pos", "neg"])
    renamed = bz.TextClassifier.from_preset(directory, labels=["negative", "positive"])
    assert "labels of the file replaced: neg -> negative, pos -> positive" in capsys.readouterr().out
    assert renamed.classify(FILMS[0])["label"] == {"neg": "negative", "pos": "positive"}[label]
    fresh = bz.TextClassifier.from_preset(directory, labels=["pos", "neg"], new_head=True, verbose=False)
    assert fresh.labels == ["pos", "neg"]


@pytest.mark.once
def test_names_of_a_dataset_decide():
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["pos", "neg"])})
    table = datasets.Dataset.from_dict({"text": FILMS, "label": [0, 1, 1, 0]}, features)
    columns = read(table)
    assert encode_targets(columns.targets, ["neg", "pos"], SINGLE_LABEL, 4).tolist() == [1, 0, 0, 1]
    with pytest.raises(ValueError, match=r"y\[0\] must be one of the labels .* Received: 'pos'"):
        encode_targets(columns.targets, ["bad", "good"], SINGLE_LABEL, 4)

    names = ["B-LOC", "I-LOC", "O"]
    tags = datasets.Sequence(datasets.ClassLabel(names=names))
    features = datasets.Features({"tokens": datasets.Sequence(datasets.Value("string")), "ner_tags": tags})
    table = datasets.Dataset.from_dict({"tokens": [["in", "New", "York"]], "ner_tags": [[2, 0, 1]]}, features)
    assert encode_word_targets(read(table, schema=WORDS), ["O", "B-LOC", "I-LOC"], "BIO")[0].tolist() == [0, 1, 2]


@pytest.mark.once
def test_targets_without_order_are_refused():
    for y in ({0, 1}, {"label": [0, 1]}, "no", (i for i in [0, 1]), 1):
        with pytest.raises(TypeError, match="y must be a list, array, Series or tensor"):
            encode_targets(y, ["neg", "pos"], SINGLE_LABEL, 2)


@pytest.mark.once
@pytest.mark.parametrize(
    ("schema", "x", "y", "message"),
    [
        (WORDS, [["a", "b"]], ["OO"], r"y\[0\] must be a list: a tag for each word.*Received: 'OO'"),
        (WORDS, [["a", "b"]], [1], r"y\[0\] must be a list"),
        (QUESTIONS, [{**ASKED, "answers": 3}], None, "record 0: answers must be .* Received: 3"),
        (QUESTIONS, [{**ASKED, "answers": [{"start": 1}]}], None, "dicts with text"),
        (CHOICES, ["question"], None, r"x\[0\] must be a question with its choices"),
        (CHOICES, [1], None, r"x\[0\] must be a question with its choices"),
    ],
)
def test_rows_of_another_form_are_named(schema, x, y, message):
    with pytest.raises((TypeError, ValueError), match=message):
        read(x, y, schema)


@pytest.mark.once
def test_tags_for_a_text_are_named():
    with pytest.raises(ValueError, match=r"must hold entities .* pass x\[0\] as a list of words. Received: 'O'"):
        encode_word_targets(read(["a", "b"], [["O"], ["O"]], WORDS), ["O", "B"], "BIO")
