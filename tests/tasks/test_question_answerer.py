"""QuestionAnswerer: targets, windows, the best spans, no answer, files, and every mistake."""

import itertools
import json

import keras
import numpy as np
import pandas
import pytest

import bertzoo as bz
from bertzoo.tasks.answers.spans import best_spans
from bertzoo.tasks.question_answerer import SpanLoss, span_accuracy

CONTEXT = "we saw a film in rome with friends"
RECORDS = [
    {"question": "in rome we saw", "context": CONTEXT, "answers": [{"text": "a film", "answer_start": 7}]},
    {"question": "we saw it in", "context": CONTEXT, "answers": {"text": ["rome"], "answer_start": [17]}},
    {"question": "with", "context": CONTEXT, "answers": ["friends"]},
    {"question": "the actor", "context": CONTEXT, "answers": []},
] * 2


@pytest.fixture(scope="module")
def preset(write_checkpoint):
    return write_checkpoint("BertForQuestionAnswering", num_hidden_layers=1)


@pytest.fixture
def make(preset, eager):
    def make(new=False, eager=eager, **options):
        options = {"new_head": True, "dropout": 0.0, **options} if new else options
        model = bz.QuestionAnswerer.from_preset(preset[0], verbose=False, **options)
        model.compile(bz.AdamW(3e-3, warmup=0.0, schedule="constant"), run_eagerly=eager)
        return model

    return make


# ---- learning


def targets_of(model, records):
    """The text between the columns that are taught, of each window in order; None for the first token."""
    data = model.batches(records, shuffle=False, batch_size=100)
    inputs, targets = data[0][:2]
    result = [None] * len(targets)
    for row, number in enumerate(data.row_order):
        first, last = targets[row].argmax(axis=0)
        assert (targets[row] == 1).sum() == 2 and (
            (targets[row] == -1) == (inputs["padding_mask"][row] == 0)[:, None]
        ).all()
        if last:
            result[number] = model.tokenizer.decode(inputs["token_ids"][row][first : last + 1].tolist())
    return result


def test_streams_of_records(make):
    """The first two batches have as many tokens each, which Keras takes on TensorFlow for the length of all."""

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return len(order)

        def __getitem__(self, index):
            return ([RECORDS[order[index]]],)

    order, model = (0, 0, 2, 3), make(eager=False)
    lengths = [model.batches([RECORDS[i]], batch_size=1)[0][0]["token_ids"].shape[1] for i in order]
    assert lengths[0] == lengths[1] != lengths[2]
    loss = model.evaluate([RECORDS[i] for i in order], verbose=0)[0]
    assert model.evaluate(Batches(), verbose=0)[0] == pytest.approx(loss, rel=1e-4)
    with pytest.raises(ValueError, match="the stream gives texts, which are cut into windows"):
        model.predict(Batches(), verbose=0)


def test_targets_are_the_tokens_of_the_answer(make):
    assert targets_of(make(), RECORDS[:4]) == ["a film", "rome", "friends", None]


def test_a_window_without_the_whole_answer_points_to_its_first_token(make):
    context = "film " * 60 + "rome plot " + "film " * 60
    record = {"question": "rome", "context": context, "answers": ["rome plot"]}
    model = make(max_length=32, stride=20)
    result = targets_of(model, [record])
    assert len(result) > 10 and set(result) == {None, "rome plot"}
    windows = model.data.make_windows(model.data.parse([record]))
    whole = [bool(a <= 60 and b >= 62) for a, b in zip(windows.begin, windows.end)]
    assert [text is not None for text in result] == whole


FORMS = [
    lambda: pandas.DataFrame(RECORDS),
    lambda: {name: [record[name] for record in RECORDS] for name in ("question", "context", "answers")},
    lambda: pytest.importorskip("datasets").Dataset.from_list(
        [{**r, "answers": {"text": ["rome"], "answer_start": [17]}} for r in RECORDS]
    ),
]


@pytest.mark.parametrize("form", [lambda: RECORDS, *(pytest.param(form, marks=pytest.mark.once) for form in FORMS)])
def test_forms_of_input(make, form):
    history = make(new=True).fit(form(), batch_size=4, verbose=0, validation_data=form()).history
    assert {"loss", "span_accuracy", "val_loss", "val_span_accuracy"} <= set(history)
    assert np.isfinite(history["loss"][0])


def test_a_list_of_two_records_is_validated_on(make):
    model = make()
    history = model.fit(RECORDS, validation_data=RECORDS[:2], verbose=0).history
    assert history["val_loss"] == [pytest.approx(model.evaluate(RECORDS[:2], verbose=0)[0])]


@pytest.mark.slow
def test_it_learns(make):
    model = make(new=True, eager=False, no_answer_threshold=0.0)
    losses = model.fit(RECORDS, batch_size=4, epochs=60, verbose=0).history["loss"]
    assert losses[-1] < 0.1 * losses[0]
    result = model.answer(RECORDS[:4])
    assert [answer["text"] for answer in result] == ["a film", "rome", "friends", ""]
    assert result[1]["start"] == 17 and result[1]["score"] > 0.5 and result[3]["null_score"] > 0
    one = model.answer("we saw it in", CONTEXT)
    assert one["text"] == "rome" and CONTEXT[one["start"] : one["end"]] == "rome"


def test_loss_is_the_mean_of_two_cross_entropies_and_padding_does_not_matter(make):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 7, 2)).astype("float32")
    targets = np.zeros((3, 7, 2), "float32")
    lengths, positions = [7, 5, 4], [(1, 2), (4, 4), (0, 0)]
    expected, right = [], []
    for row, (length, place) in enumerate(zip(lengths, positions)):
        targets[row, length:] = -1
        for end in (0, 1):
            targets[row, place[end], end] = 1
        real = logits[row, :length].astype("float64")
        losses = [np.log(np.exp(real[:, end]).sum()) - real[place[end], end] for end in (0, 1)]
        expected.append(np.mean(losses))
        right.append(tuple(real.argmax(axis=0)) == place)
    assert float(SpanLoss()(targets, logits)) == pytest.approx(np.mean(expected), rel=1e-5)
    assert keras.ops.convert_to_numpy(span_accuracy(targets, logits)).tolist() == right
    model = make()
    alone = [model.evaluate([r], verbose=0, return_dict=True)["loss"] for r in RECORDS[:4]]
    together = model.evaluate(RECORDS[:4], verbose=0, return_dict=True)["loss"]
    assert together == pytest.approx(np.mean(alone), rel=1e-4)
    weighted = model.evaluate(RECORDS[:2], sample_weight=[2.0, 0.0], verbose=0, return_dict=True)["loss"]
    assert weighted == pytest.approx(alone[0], rel=1e-4)


# ---- answering


@pytest.mark.once
def test_best_spans_are_the_best_of_all():
    rng = np.random.default_rng(0)
    for _ in range(200):
        length, limit = int(rng.integers(1, 12)), int(rng.integers(1, 6))
        starts, ends = rng.normal(size=(2, length))
        own = slice(*sorted(rng.integers(0, length + 1, 2).tolist()))
        every = [(starts[a] + ends[b], a, b) for a in range(length)[own] for b in range(a, min(a + limit, length))]
        expected = sorted(every, reverse=True)[:5]
        result = best_spans(starts, ends, own, limit, 5)
        assert [span[1:] for span in result] == [span[1:] for span in expected]
        assert [span[0] for span in result] == pytest.approx([span[0] for span in expected])


def test_answers_are_the_best_spans_of_transformers_logits(make, preset):
    """Brute force over the logits of the torch model, for a context of one window."""
    import torch

    model, reference = make(), preset[1]
    result = model.answer("the actor", CONTEXT, n_best=5)
    encoded = model.tokenizer.encode(["the actor"], [CONTEXT], return_offsets=True)
    with torch.no_grad():
        out = reference(
            torch.tensor(encoded.token_ids[None].astype("int64")),
            token_type_ids=torch.tensor(encoded.segment_ids[None].astype("int64")),
        )
    starts, ends = out.start_logits[0].numpy(), out.end_logits[0].numpy()
    inside = np.flatnonzero((encoded.segment_ids == 1) & (encoded.word_ids >= 0))
    spans = [(starts[a] + ends[b], a, b) for a, b in itertools.combinations_with_replacement(inside, 2)]
    for answer, (_, a, b) in zip(result, sorted(spans, reverse=True)):
        assert (answer["start"], answer["end"]) == (encoded.offsets[a, 0], encoded.offsets[b, 1])
    assert result[0]["null_score"] == pytest.approx(starts[0] + ends[0] - max(spans)[0], abs=1e-3)
    assert sum(answer["score"] for answer in result) <= 1 + 1e-6
    short = model.answer("the actor", CONTEXT, max_answer_length=1)
    assert " " not in short["text"]


def test_no_answer(make):
    model = make(no_answer_threshold=-1e6)
    none = model.answer("the actor", CONTEXT)
    assert (none["text"], none["start"], none["end"]) == ("", 0, 0)
    model.no_answer_threshold = 1e6
    assert model.answer("the actor", CONTEXT)["text"]
    model.no_answer_threshold = None
    for empty in ("", "  \n"):
        assert model.answer("the actor", empty)["text"] == ""


def test_fit_threshold_is_no_worse_than_always_or_never_answering(make):
    model = make()
    threshold = model.fit_threshold(RECORDS)
    answers = [["a film"], ["rome"], ["friends"], []] * 2

    def score(threshold):
        model.no_answer_threshold = threshold
        return bz.metrics.squad_scores([a["text"] for a in model.answer(RECORDS)], answers, "2.0")["f1"]

    assert score(threshold) >= max(score(1e6), score(-1e6))
    with pytest.raises(ValueError, match="no answers to compare with"):
        model.fit_threshold([{key: value for key, value in row.items() if key != "answers"} for row in RECORDS])


@pytest.mark.once
def test_spans_are_true_for_1000_random_texts(random_texts, plain_texts):
    tokenizer = bz.train_wordpiece(plain_texts, vocabulary_size=600, progress=False)
    tokenizer.max_length = 48
    config = bz.EncoderConfig(
        vocab_size=tokenizer.vocabulary_size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=48,
        initializer_range=0.5,
    )
    model = bz.QuestionAnswerer(
        bz.Encoder(config, pooler=False),
        tokenizer,
        max_query_length=20,
        no_answer_threshold=0.0,
        stride=8,
    )
    result = model.answer(random_texts[::-1], random_texts, n_best=3, batch_size=64)
    count = 0
    for context, answers in zip(random_texts, result, strict=True):
        assert 1 <= len(answers) <= 3
        for answer in answers:
            assert context[answer["start"] : answer["end"]] == answer["text"]
            assert answer["text"] == answer["text"].strip() and 0 <= answer["score"] <= 1
            count += bool(answer["text"])
    assert count > 1500


# ---- files


def test_files(make, tmp_path, close):
    model = make(no_answer_threshold=1.5, stride=64)
    model.save_to_preset(tmp_path / "preset")
    config = json.loads((tmp_path / "preset" / "config.json").read_text())
    assert config["bertzoo"] == {"no_answer_threshold": 1.5, "stride": 64}
    loaded = bz.QuestionAnswerer.from_preset(tmp_path / "preset", verbose=False)
    assert (loaded.no_answer_threshold, loaded.stride, loaded.max_query_length) == (1.5, 64, 64)
    model.save(tmp_path / "model.keras")
    for other in (loaded, keras.models.load_model(tmp_path / "model.keras")):
        actual, expected = model.answer("the actor", CONTEXT), other.answer("the actor", CONTEXT)
        assert actual["text"] == expected["text"] and actual["score"] == pytest.approx(expected["score"], abs=1e-5)

    import transformers

    _, report = transformers.AutoModelForQuestionAnswering.from_pretrained(
        tmp_path / "preset", output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    make().save_to_preset(tmp_path / "plain")
    assert "bertzoo" not in json.loads((tmp_path / "plain" / "config.json").read_text())


def test_without_tokenizer(make, preset, eager):
    bare = bz.QuestionAnswerer.from_preset(preset[0], verbose=False, tokenizer=None)
    inputs = make().tokenizer(["we saw", "a"], ["a film", "rome"])
    assert bare.predict(inputs, verbose=0).shape == (2, 7, 2)
    bare.compile(run_eagerly=eager)
    bare.fit(inputs, np.array([[4, 5], [0, 0]]), verbose=0)
    with pytest.raises(ValueError, match="first and last token"):
        bare.fit(inputs, np.zeros(2), verbose=0)
    with pytest.raises(ValueError, match="no tokenizer"):
        bare.answer("we", "saw")


# ---- mistakes, which are told before Keras has anything to do


@pytest.mark.once
@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"question": "a", "context": "b c", "answers": [{"text": "c", "answer_start": 0}]}], "where it has 'b'"),
        ([{"question": "a", "context": "b c", "answers": ["d"]}], "'d' anywhere"),
        ([{"question": "a", "answers": []}], "must be called context"),
        ([{"question": "a", "context": "b"}], "no answers to learn from"),
        ([{**RECORDS[0], "answers": []}, {"question": "a", "context": "b"}], "record 1 has no 'answers'"),
        ([], "x is empty"),
    ],
)
def test_errors(make, records, message):
    with pytest.raises(ValueError, match=message):
        make().fit(records, verbose=0)


@pytest.mark.once
def test_errors_of_type(make):
    with pytest.raises(TypeError, match=r"x\[0\] must be a dict"):
        make().fit(["a"], verbose=0)
    with pytest.raises(ValueError, match="no y"):
        make().fit(RECORDS, [1], verbose=0)
    with pytest.raises(ValueError, match="raise max_length"):
        make(max_length=16, max_query_length=64).answer("a " * 30, "b")
