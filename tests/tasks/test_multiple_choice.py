"""MultipleChoice on raw text."""

import numpy as np
import pandas
import pytest

import bertzoo as bz
from bertzoo.data.labels import encode_choice_targets
from bertzoo.data.parsing import parse_inputs
from bertzoo.data.schemas import CHOICES as SCHEMA

QUESTIONS = ["we saw a film", "the plot was dull", "never again", "with friends in rome"]
CHOICES = [["good", "bad"], ["bad", "good"], ["a bad story", "good"], ["good", "a very bad and slow film"]]
ANSWERS = [0, 1, 1, 0]  # the good one


@pytest.fixture(scope="module")
def preset(write_checkpoint):
    return write_checkpoint("BertForMultipleChoice", num_hidden_layers=1)


@pytest.fixture
def make(preset, eager):
    def make(eager=eager, **options):
        model = bz.MultipleChoice.from_preset(preset[0], verbose=False, dropout=0.0, **options)
        model.compile(bz.AdamW(1e-2, warmup=0.0, schedule="constant"), run_eagerly=eager)
        return model

    return make


FORMS = [
    lambda: (list(zip(QUESTIONS, CHOICES)), ["good"] * 4),
    lambda: (pandas.DataFrame({"question": QUESTIONS, "choices": CHOICES, "label": ANSWERS}), None),
    lambda: (
        {
            "sent1": QUESTIONS,
            "ending0": [c[0] for c in CHOICES],
            "ending1": [c[1] for c in CHOICES],
            "label": [str(a) for a in ANSWERS],
        },
        None,
    ),
]


@pytest.mark.parametrize(
    "form", [lambda: ((QUESTIONS, CHOICES), ANSWERS), *(pytest.param(form, marks=pytest.mark.once) for form in FORMS)]
)
def test_forms_of_input(make, form):
    x, y = form()
    history = make().fit(x, y, batch_size=4, verbose=0, validation_data=(x, y) if y is not None else x).history
    assert {"loss", "accuracy", "val_accuracy"} <= set(history) and np.isfinite(history["loss"][0])


def test_it_learns_and_chooses(make):
    model = make(eager=False)
    model.fit((QUESTIONS, CHOICES), ANSWERS, batch_size=4, epochs=30, verbose=0)
    result = model.choose((QUESTIONS, CHOICES))
    assert [answer["index"] for answer in result] == ANSWERS and {answer["choice"] for answer in result} == {"good"}
    assert all(sum(answer["scores"]) == pytest.approx(1) for answer in result)
    assert model.choose((QUESTIONS[0], CHOICES[0]))["choice"] == "good"
    assert model.evaluate((QUESTIONS, CHOICES), ANSWERS, verbose=0, return_dict=True)["accuracy"] == 1


def test_logits_are_those_of_transformers_in_the_order_of_the_rows(make, preset, close):
    import torch

    model, reference = make(), preset[1]
    logits = model.predict((QUESTIONS, CHOICES), batch_size=2, verbose=0)
    for row, question, choices in zip(logits, QUESTIONS, CHOICES):
        batch = model.tokenizer([question] * 2, choices)
        tensors = [torch.tensor(batch[k][None].astype("int64")) for k in ("token_ids", "padding_mask", "segment_ids")]
        with torch.no_grad():
            close(row, reference(*tensors).logits[0].numpy())


@pytest.mark.once
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ((QUESTIONS, CHOICES[:3]), ANSWERS, "3 rows of choices"),
        ((["a", "b"], [["c", "d"], ["e"]]), [0, 0], "question 1 must have two or more choices"),
        ((["a"], [["c", "d"]]), [2], "from 0 to 1"),
        ((["a"], [["c", "d"]]), ["e"], "'e'"),
        ((["a"], [["c", "d"]]), None, "no targets"),
        ({"question": ["a"]}, None, "must be called choices"),
        ({"other": ["a"]}, None, "must be called .*question"),
    ],
)
def test_errors(make, x, y, message):
    with pytest.raises(ValueError, match=message):
        make().fit(x, y, verbose=0)


@pytest.mark.once
def test_errors_of_type(make):
    with pytest.raises(TypeError, match="choices of question 0"):
        make().fit((["a"], ["cd"]), [0], verbose=0)
    with pytest.raises(ValueError, match="no targets"):
        make().evaluate((["a"], [["c", "d"]]), verbose=0)


TABLES = {
    "SWAG": ({"sent1": "a film", "sent2": "he", "startphrase": "x", "ending0": "slow", "ending1": "fast"}, "he fast"),
    "Cosmos QA": ({"context": "a film", "question": "why", "answer0": "slow", "answer1": "fast"}, "why fast"),
    "RACE": ({"article": "a film", "question": "why", "options": ["slow", "fast"], "answer": "B"}, "why fast"),
    "ARC": (
        {"question": "a film", "choices": {"text": ["slow", "fast"], "label": ["1", "2"]}, "answerKey": "2"},
        "fast",
    ),
    "HellaSwag": ({"ctx": "a film", "ctx_a": "a", "ctx_b": "film", "endings": ["slow", "fast"], "label": "1"}, "fast"),
    "COPA": ({"premise": "a film", "question": "cause", "choice1": "slow", "choice2": "fast"}, "cause fast"),
    "PIQA": ({"goal": "a film", "sol1": "slow", "sol2": "fast", "label": 1}, "fast"),
}


@pytest.mark.once
@pytest.mark.parametrize("name", TABLES)
def test_tables_of_published_sets(name):
    """Nothing that stands before the choices is left out (columns as on the hub)."""
    row, second = TABLES[name]
    examples = parse_inputs({"label": [1], **{key: [value] for key, value in row.items()}}, schema=SCHEMA)
    if name in ("RACE", "ARC"):
        examples = parse_inputs({key: [value] for key, value in row.items()}, schema=SCHEMA)
    assert examples["question"] == ["a film"] and examples["choices"] == [["slow", "fast"]]
    assert examples["second texts"][0][1] == second and encode_choice_targets(examples).tolist() == [1]


def test_rows_with_fewer_choices_than_others(make, eager):
    """What is none has no part in the loss: mean cross-entropy over each row's own choices."""
    choices = [["good", "bad", "slow"], ["bad", "good"], ["a bad story", "good"], ["good", "a very bad and slow film"]]
    model = make()
    logits = model.predict((QUESTIONS, choices), verbose=0).astype("float64")
    own = [row[: len(texts)] for row, texts in zip(logits, choices)]
    alone = model.predict((QUESTIONS[1:], choices[1:]), verbose=0)
    np.testing.assert_allclose(logits[1:, :2], alone, atol=1e-5)
    losses = [np.log(np.exp(row).sum()) - row[answer] for row, answer in zip(own, ANSWERS)]
    result = model.evaluate((QUESTIONS, choices), ANSWERS, batch_size=4, verbose=0, return_dict=True)
    assert result["loss"] == pytest.approx(np.mean(losses), abs=1e-5)
    assert [len(answer["scores"]) for answer in model.choose((QUESTIONS, choices))] == [3, 2, 2, 2]
    with pytest.raises(ValueError, match=r"y\[1\] is 2"):
        model.evaluate((QUESTIONS, choices), [0, 2, 1, 0], verbose=0)
