"""What a user means by columns and rows, and which text is filled in."""

import io
import subprocess
import sys

import datasets
import keras
import numpy as np
import pandas
import pytest
import seqeval.metrics

import bertzoo as bz
from bertzoo.data.labels import encode_word_targets
from bertzoo.data.parsing import parse_inputs
from bertzoo.data.schemas import TEXTS, TUPLES, WORDS
from bertzoo.metrics.entities import entity_scores
from bertzoo.tasks.answers.masked_words import fill_token

FILMS = ["a good film", "a bad film", "a dull plot", "a great story"]


def read(x, y=None, schema=TEXTS):
    return parse_inputs(x, y, schema=schema)


def rows_of(x):
    """The tuples of texts that are read of x."""
    return list(zip(*read(x, schema=TUPLES).columns.values()))


@pytest.fixture(scope="module")
def trained(write_checkpoint, tmp_path_factory):
    """A saved classifier, (directory, its label of the first text)."""
    preset = write_checkpoint(num_hidden_layers=1)[0]
    model = bz.TextClassifier.from_preset(preset, labels=["neg", "pos"], verbose=False)
    model.save_to_preset(directory := tmp_path_factory.mktemp("labels") / "model")
    return directory, model.classify(FILMS[0])["label"]


# ---- columns


@pytest.mark.once
def test_a_second_text_is_taken_only_where_it_is_the_partner_of_the_first():
    def texts(**columns):
        result = read({name: [value] for name, value in columns.items()})
        return result["text"][0], result.get("second text") and result["second text"][0]

    assert texts(review="good", context="page 3") == ("good", None)
    assert texts(text="good", context="page 3") == ("good", None)
    assert texts(sentence="the answer", question="a question", label="yes") == ("a question", "the answer")  # QNLI
    assert texts(hypothesis="h", premise="p") == ("p", "h")
    assert texts(text="all", sentence1="a", sentence2="b") == ("all", None)
    with pytest.raises(ValueError, match=r"may be the pairs .* pass the one to use as x=\(table\['question'\]"):
        texts(question="q", sentence="s", context="c")


@pytest.mark.once
def test_records_are_tables_and_capitals_do_not_matter():
    records = [{"Text": "a", "Label": 1, "id": 7}, {"Text": "b", "Label": 0, "id": 8}]
    result = read(records)
    assert result.columns == {"text": ["a", "b"]} and result.targets == [1, 0] and not result.single
    assert result.description == "text from column 'Text', label from column 'Label'; not used: 'id'"
    assert read(records[0]).columns == {"text": ["a"]} and read(records[0]).single
    assert read({"text": ["small"], "Text": ["large"]})["text"] == ["small"]
    with pytest.raises(ValueError, match="record 1 has no 'Label', which other records have"):
        read([records[0], {"Text": "b"}])
    with pytest.raises(TypeError, match="record 1 must be a dict"):
        read([records[0], "b"])
    examples = read(["a", "b", "c"], [0, 1, 2]).select(np.array([2, 0]))
    assert examples["text"] == ["c", "a"] and examples.targets == [2, 0]


@pytest.mark.once
def test_one_input_gives_one_answer_and_a_list_a_list(trained, write_checkpoint):
    model = bz.TextClassifier.from_preset(trained[0], verbose=False)
    assert model.classify(FILMS[0]) == model.classify(FILMS[:1])[0] == model.classify({"text": FILMS[0]})
    tagger = bz.TokenClassifier.from_preset(write_checkpoint()[0], labels=["O", "B"], verbose=False)
    assert tagger.tag(FILMS[0]) == tagger.tag(FILMS[:1])[0]
    assert tagger.tag_words(FILMS[0]) == tagger.tag_words([FILMS[0].split()])[0]
    reader = bz.QuestionAnswerer.from_preset(write_checkpoint()[0], verbose=False)
    one = reader.answer("which film", FILMS[0])
    assert one == reader.answer(["which film"], FILMS[:1])[0]
    assert one == reader.answer({"question": "which film", "context": FILMS[0]})
    ranker = bz.CrossEncoder.from_preset(trained[0], labels=1, new_head=True, verbose=False)
    assert ranker.rank([FILMS[0]], FILMS[1:]) == [ranker.rank(FILMS[0], FILMS[1:])]
    encoder = bz.SentenceEncoder.from_preset(trained[0], verbose=False)
    np.testing.assert_allclose(encoder.encode(FILMS[0]), encoder.encode(FILMS[:1])[0], rtol=1e-6)


def test_fit_says_which_columns_it_takes(trained, capsys):
    model = bz.TextClassifier.from_preset(trained[0], verbose=False)
    model.compile(bz.AdamW(1e-3), run_eagerly=True)
    table = pandas.DataFrame({"id": ["x"] * 4, "review": FILMS, "score": ["pos", "neg", "neg", "pos"]})
    capsys.readouterr()
    model.fit(table, batch_size=4, verbose=2)
    assert "fit: text from column 'review', label from column 'score'; not used: 'id'" in capsys.readouterr().out
    model.fit(table, batch_size=4, verbose=0)
    assert "column" not in capsys.readouterr().out


@pytest.mark.once
def test_columns_of_triplets_are_found_by_name():
    row = {"positive": ["p"], "anchor": ["a"], "negative": ["n"]}
    assert rows_of(pandas.DataFrame(row)) == [("a", "p", "n")]
    assert rows_of({"id": ["7"], **row}) == [("a", "p", "n")]
    assert rows_of({"negative_2": ["n2"], "negative_1": ["n1"], "positive": ["p"], "query": ["a"]}) == [
        ("a", "p", "n2", "n1")
    ]
    assert rows_of({"id": ["7"], "title": ["t"], "body": ["b"]}) == [("t", "b")]
    assert rows_of({"idx": [7], "sentence2": ["b"], "sentence1": ["a"], "label": [0.5]}) == [("a", "b")]
    with pytest.raises(ValueError, match="beside 'positive', columns must be called anchor.* Rename or drop"):
        rows_of({"comment": ["c"], **row})
    with pytest.raises(ValueError, match="beside 'positive', columns must be called anchor"):
        rows_of({"positive": ["p"], "negative": ["n"]})


@pytest.mark.once
def test_a_tuple_of_pairs_holds_rows():
    pairs = (("q1", "d1"), ("q2", "d2"))
    columns = {"text": ["q1", "q2"], "second text": ["d1", "d2"]}
    assert read(pairs).columns == read(list(pairs)).columns == columns
    assert read((["q1", "q2"], ["d1", "d2"])).columns == columns
    assert rows_of(pairs) == list(pairs)
    with pytest.raises(ValueError, match="tuple of tuples, which may be rows or columns"):
        rows_of((("a1", "a2", "a3"), ("p1", "p2", "p3")))


@pytest.mark.once
def test_columns_of_numbers_are_not_said_to_be_texts(trained, capsys):
    model = bz.SentenceEncoder.from_preset(trained[0], verbose=False)
    model.compile(bz.AdamW(1e-3), loss="multiple_negatives", run_eagerly=True)
    table = pandas.DataFrame({"Unnamed: 0": range(4), "question": FILMS, "context": FILMS[::-1], "score": [1] * 4})
    capsys.readouterr()
    model.fit(table, batch_size=4, verbose=2)
    output = capsys.readouterr().out
    assert "text 1 from column 'question', text 2 from column 'context'; not used: 'Unnamed: 0', 'score'" in output


@pytest.mark.once
def test_hidden_labels_are_no_matter_to_predictions(trained):
    model = bz.TextClassifier.from_preset(trained[0], verbose=False)
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    hidden = datasets.Dataset.from_dict({"text": FILMS, "label": [-1] * 4}, features)
    expected = model.predict(FILMS, verbose=0)
    for table in (hidden, pandas.DataFrame({"text": FILMS, "label": ["other"] * 4})):
        np.testing.assert_array_equal(model.predict(table, verbose=0), expected)
        assert [row["label"] for row in model.classify(table)] == [row["label"] for row in model.classify(FILMS)]


@pytest.mark.once
def test_a_masked_model_leaves_a_tables_labels_aside(trained):
    model = bz.MaskedLM.from_preset(trained[0], new_head=True, verbose=False)
    model.compile(bz.AdamW(1e-3), run_eagerly=True)
    table = pandas.DataFrame({"text": FILMS * 2, "label": [0, 1] * 4})
    assert np.isfinite(model.fit(table, validation_split=0.5, verbose=0).history["val_loss"][0])
    with pytest.raises(ValueError, match="texts in a stream are not masked"):
        model.fit((batch for batch in [FILMS] * 4), steps_per_epoch=2, verbose=0)
    with pytest.raises(TypeError, match="fill_mask takes single texts, not pairs"):
        model.fill_mask([("a [MASK]", "b")])
    with pytest.raises(ValueError, match="targets must hold a word or more"):
        model.fill_mask("a [MASK]", targets=[])
    assert [answer["token"] for answer in model.fill_mask("a [MASK]", targets="film")] == ["film"]
    assert len(model.fill_mask("a [MASK]", targets=["film", "plot", "film"])) == 2


# ---- inputs


@pytest.mark.parametrize("called", ["encoder", "classifier"])
def test_arrays_of_unknown_names_are_refused(trained, called):
    model = bz.TextClassifier.from_preset(trained[0], verbose=False)
    called = model.backbone if called == "encoder" else model
    arrays = model.tokenizer(FILMS)
    mask = arrays.pop("padding_mask")
    with pytest.raises(ValueError, match="attention_mask. Use padding_mask for attention_mask"):
        called({**arrays, "attention_mask": mask})
    with pytest.raises(ValueError, match="must hold token_ids.*Use token_ids for input_ids"):
        called({"input_ids": arrays["token_ids"]})


@pytest.mark.once
def test_rows_of_unlike_length_are_refused(trained):
    model = bz.TextClassifier.from_preset(trained[0], tokenizer=None, verbose=False)
    with pytest.raises(ValueError, match="token_ids must be one array"):
        model.predict({"token_ids": [[2, 7, 3], [2, 3]]}, verbose=0)


def test_all_batches_of_a_generator_are_evaluated(trained):
    """Those too at which Keras looks to build a model that has not been called."""
    texts, names = FILMS * 5, ["pos"] * 10 + ["neg", "pos"] * 5
    batches = [(texts[i : i + 4], names[i : i + 4]) for i in range(0, 20, 4)]

    def evaluated(x, **options):
        model = bz.TextClassifier.from_preset(trained[0], verbose=False)
        model.compile(keras.optimizers.SGD(0.0), run_eagerly=keras.backend.backend() == "torch")
        return model.evaluate(x, verbose=0, return_dict=True, **options)

    for steps, rows in ((5, 20), (3, 12)):
        result = evaluated(iter(batches), steps=steps)
        expected = evaluated(texts[:rows], y=names[:rows], batch_size=4)
        assert result["loss"] == pytest.approx(expected["loss"], abs=1e-6)
        assert result["accuracy"] == pytest.approx(expected["accuracy"])


@pytest.mark.once
def test_streams_without_targets_and_one_hot_metrics_are_named(trained):
    model = bz.TextClassifier.from_preset(trained[0], verbose=False)
    model.compile(bz.AdamW(1e-3), run_eagerly=True)
    with pytest.raises(ValueError, match="there are no targets: pass y; the batches of a stream must be"):
        model.fit((texts for texts in [FILMS] * 9), steps_per_epoch=2, verbose=0)
    for options in (
        {"metrics": ["categorical_accuracy"]},
        {"weighted_metrics": [keras.metrics.TopKCategoricalAccuracy()]},
        {"loss": "categorical_crossentropy"},
        {"loss": keras.losses.CategoricalFocalCrossentropy(from_logits=True)},
    ):
        with pytest.raises(ValueError, match="compares one-hot rows. Use Sparse"):
            model.compile("sgd", **options)


# ---- tags and text


@pytest.mark.once
@pytest.mark.parametrize("tags", ["OBI", "OBIES", ["O", "B-X", "I-X", "B", "I"]])
def test_entities_of_tags_without_type_are_those_of_seqeval(tags):
    rng = np.random.default_rng(0)
    for _ in range(50):
        truth, predicted = [[rng.choice(list(tags), 9).tolist()] for _ in range(2)]
        right = seqeval.metrics.f1_score(truth, predicted, zero_division=0)
        assert entity_scores(truth, predicted)["f1"] == pytest.approx(right)


@pytest.mark.once
def test_a_tagger_of_tags_without_type(write_checkpoint, monkeypatch):
    model = bz.TokenClassifier.from_preset(write_checkpoint()[0], labels=["O", "B", "I"], verbose=False)
    assert model.scheme == "BIO"
    entities = read(["the film is good"], [[(0, 8, "_")]], WORDS)
    assert encode_word_targets(entities, model.labels, model.scheme)[0].tolist() == [1, 2, 0, 0]
    best = np.array([1, 2, 2, 0]), np.ones(4)
    monkeypatch.setattr("bertzoo.tasks.token_classifier.best_labels", lambda *arguments: best)
    assert [entity["text"] for entity in model.tag("the film is good")] == ["the film is"]


@pytest.mark.once
def test_filled_text_has_no_marks_of_pieces_and_the_blanks_of_the_original(write_checkpoint):
    tokenizer = bz.MaskedLM.from_preset(write_checkpoint()[0], verbose=False).tokenizer

    def filled(left, token, right=""):
        return fill_token(tokenizer, left, tokenizer.token_to_id(token), right)

    assert filled("Very un ", "##happy", "!") == ("happy", "Very unhappy!")  # as transformers' decode
    assert filled("The ", "film", " is") == ("film", "The film is")
    assert filled('The "', "film", '" is') == ("film", 'The "film" is')
    assert filled("The end ", ".") == (".", "The end.")
    assert filled("film", "and", "plot") == ("and", "film and plot")
    assert filled("電", "film", "影") == ("film", "電film影")  # each of which is a word for itself


@pytest.mark.once
def test_blanks_of_byte_level_and_sentencepiece_tokens(tmp_path, plain_texts):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    for model, space, decoder, pre in (
        ("BPE", "Ġ", decoders.ByteLevel(), pre_tokenizers.ByteLevel(add_prefix_space=False)),
        ("BPE", "▁", decoders.Metaspace(), pre_tokenizers.Metaspace()),
    ):
        tokens = ["<s>", "</s>", "<pad>", "<unk>", "<mask>", f"{space}film", "ly"]
        vocabulary = {token: i for i, token in enumerate(tokens)}
        rust = Tokenizer(getattr(models, model)(vocab=vocabulary, merges=[], unk_token="<unk>"))
        rust.decoder, rust.pre_tokenizer = decoder, pre
        roles = dict(zip(("cls", "sep", "pad", "unk", "mask"), ("<s>", "</s>", "<pad>", "<unk>", "<mask>")))
        tokenizer = bz.Tokenizer(rust, roles)
        assert fill_token(tokenizer, "The ", 5, " is") == ("film", "The film is")
        assert fill_token(tokenizer, "The", 5, " is") == ("film", "The film is")
        assert fill_token(tokenizer, "", 5, " is") == ("film", "film is")
        for left in ("bad", "bad "):
            assert fill_token(tokenizer, left, 6, " made") == ("ly", "badly made")


@pytest.mark.once
def test_no_texts_to_fill(write_checkpoint):
    assert bz.MaskedLM.from_preset(write_checkpoint()[0], verbose=False).fill_mask([]) == []


@pytest.mark.once
@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_commands_print_on_any_console(encoding):
    code = "import bertzoo.cli.main as cli; cli.escape_unencodable_output(); print('→ naïve 日本')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env={"PYTHONIOENCODING": encoding}, check=True
    )
    text = io.TextIOWrapper(io.BytesIO(done.stdout), encoding=encoding).read()
    assert text.startswith("\\u2192 na") and "\\u65e5\\u672c" in text


@pytest.mark.slow
@pytest.mark.once
def test_a_closed_output_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m bertzoo list >&-", shell=True, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert (done.returncode, done.stderr) == (0, b"")
