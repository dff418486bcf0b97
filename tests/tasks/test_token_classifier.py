"""TokenClassifier: learning from words and from spans, windows, entities, files, and every mistake."""

import itertools
import json

import keras
import numpy as np
import pandas
import pytest

import bertzoo as bz
from bertzoo.text.tags import check_tag_order
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.word_alignment import align_words, find_word_spans

LABELS = ["O", "B-CITY", "I-CITY", "B-THING", "I-THING"]
SENTENCES = [["we", "saw", "it", "in", "paris"], ["rome", "paris", "and", "a", "film"], ["unhappy", "friends"]] * 4
TAGS = [["O", "O", "O", "O", "B-CITY"], ["B-CITY", "I-CITY", "O", "O", "B-THING"], ["B-THING", "I-THING"]] * 4
ID2LABEL = dict(enumerate(LABELS))
LABEL2ID = {name: i for i, name in ID2LABEL.items()}


@pytest.fixture(scope="module")
def preset(write_checkpoint):
    return write_checkpoint(
        "BertForTokenClassification",
        num_hidden_layers=1,
        id2label=ID2LABEL,
        label2id=LABEL2ID,
    )


@pytest.fixture
def make(preset, eager):
    def make(new=False, eager=eager, **options):
        if new:
            options = {"labels": LABELS, "new_head": True, "dropout": 0.0, **options}
        model = bz.TokenClassifier.from_preset(preset[0], verbose=False, **options)
        model.compile(bz.AdamW(1e-2, warmup=0.0, schedule="constant"), run_eagerly=eager)
        return model

    return make


def targets_of(model, x, y):
    """Text of the first character of each labelled token -> its label, of one text that fits a row."""
    data = model.batches(x, y, shuffle=False)
    inputs, labels, weights = data[0]
    tokens = [model.tokenizer.id_to_token(i) for i in inputs["token_ids"][0]]
    return [(tokens[i], LABELS[labels[0, i]]) for i in np.flatnonzero(weights[0])]


# ---- learning


def test_the_first_piece_of_each_word_is_labelled(make):
    expected = [("un", "B-THING"), ("friends", "I-THING")]
    assert targets_of(make(), [["unhappy", "friends"]], [["B-THING", "I-THING"]]) == expected
    assert targets_of(make(), [["unhappy", "friends"]], [[3, 4]]) == expected
    assert targets_of(make(), [["unhappy", "friends"]], [[-100, 3]]) == [("friends", "B-THING")]
    every = targets_of(make(label_all_tokens=True), [["unhappy", "friends"]], [["B-THING", "I-THING"]])
    assert every == [("un", "B-THING"), ("##happy", "B-THING"), ("friends", "I-THING")]


def test_spans_become_the_tags_of_their_words(make):
    text = "we saw paris rome, unhappy!"
    spans = [(7, 17, "CITY"), {"start": 19, "end": 21, "label": "THING"}]  # the second ends within its word
    expected = ["O", "O", "B-CITY", "I-CITY", "O", "B-THING", "O"]
    assert [label for _, label in targets_of(make(), [text], [spans])] == expected


FORMS = [
    lambda: (pandas.DataFrame({"tokens": SENTENCES, "ner_tags": TAGS}), None),
    lambda: ({"words": SENTENCES, "tags": [[LABELS.index(t) for t in tags] for tags in TAGS]}, None),
    lambda: ({"text": ["paris", "a film"], "entities": [[(0, 5, "CITY")], []]}, None),
]


@pytest.mark.parametrize(
    "form", [lambda: (SENTENCES, TAGS), *(pytest.param(form, marks=pytest.mark.once) for form in FORMS)]
)
def test_forms_of_input(make, form):
    x, y = form()
    history = make(new=True).fit(x, y, batch_size=4, verbose=0, validation_data=(x, y)).history
    assert {"loss", "accuracy", "val_loss", "val_accuracy"} <= set(history) and np.isfinite(history["loss"][0])


@pytest.mark.once
def test_the_recipe_trains_the_transitions_100_times_as_fast(make):
    model = make(new=True, crf=True)
    model.compile()
    model.optimizer.build(model.trainable_variables)
    rates = dict(zip((weight.path for weight in model.trainable_variables), model.optimizer._multipliers))
    assert {path: rate for path, rate in rates.items() if rate != 1.0} == {model.crf.transitions.path: 100.0}


@pytest.mark.slow
@pytest.mark.parametrize("crf", [pytest.param(False, marks=pytest.mark.once), True])
def test_it_learns(make, crf):
    model = make(new=True, crf=crf, eager=False)
    losses = model.fit(SENTENCES, TAGS, batch_size=4, epochs=15, verbose=0, validation_split=1 / 3).history["loss"]
    assert losses[-1] < 0.2 * losses[0]
    assert model.tag_words(SENTENCES) == TAGS
    result = model.tag(["We saw it in Paris"])[0]
    assert [(e["text"], e["label"], e["start"], e["end"]) for e in result] == [("Paris", "CITY", 13, 18)]
    assert 0.3 < result[0]["score"] <= 1


def test_loss_is_the_mean_over_labelled_words(make):
    """By NumPy, for rows of unlike length, and with weights."""
    model = make()
    x, y = [["paris"], ["we", "saw", "a", "film"]], [["B-CITY"], ["O", "O", "O", "B-THING"]]
    logits = [rows[[0, 1, 2, 3][: len(s)]].astype("float64") for rows, s in zip(model.predict(x, verbose=0), x)]
    losses = [
        np.log(np.exp(rows).sum(-1)) - rows[range(len(t)), [LABELS.index(n) for n in t]] for rows, t in zip(logits, y)
    ]
    loss = model.evaluate(x, y, verbose=0, return_dict=True)["loss"]
    assert loss == pytest.approx(np.concatenate(losses).mean(), rel=1e-4)
    loss = model.evaluate(x, y, sample_weight=[3.0, 1.0], verbose=0, return_dict=True)["loss"]
    assert loss == pytest.approx((3 * losses[0].sum() + losses[1].sum()) / 7, rel=1e-4)


def test_streams_of_words(make):
    """The first two batches have as many tokens each, which Keras takes on TensorFlow for the length of all."""

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return len(order)

        def __getitem__(self, index):
            return [SENTENCES[order[index]]], [TAGS[order[index]]]

    order, model = (0, 3, 2, 1), make()
    loss = model.evaluate([SENTENCES[i] for i in order], [TAGS[i] for i in order], verbose=0)[0]
    assert model.evaluate(Batches(), verbose=0)[0] == pytest.approx(loss, rel=1e-4)


def test_callbacks_are_told_of_predictions(make):
    """As by Keras: each batch in order, its outputs, and the model."""
    messages = []

    class Told(keras.callbacks.Callback):
        def on_predict_begin(self, logs=None):
            messages.append((self.model, self.params["steps"]))

        def on_predict_batch_end(self, batch, logs=None):
            messages.append((batch, logs["outputs"].shape[0]))

        def on_predict_end(self, logs=None):
            messages.append("end")

    model = make()
    plain, seen = (model.predict(SENTENCES[:3], 2, verbose=0, callbacks=c) for c in (None, [Told()]))
    assert messages == [(model, 2), (0, 2), (1, 1), "end"]
    for actual, expected in zip(plain, seen, strict=True):
        np.testing.assert_array_equal(actual, expected)
    with pytest.raises(ValueError, match=r"steps \(1\) counts the batches of a stream"):
        model.predict(SENTENCES, steps=1)
    with pytest.raises(ValueError, match="pass them as a list"):
        model.predict(iter([["a film"]]), steps=1, verbose=0)


def test_without_tokenizer(make, preset, eager):
    full, bare = make(), bz.TokenClassifier.from_preset(preset[0], verbose=False, tokenizer=None)
    inputs = full.tokenizer(["paris is bright", "a film"])
    logits = bare.predict(inputs, verbose=0)
    assert logits.shape == (2, 5, 5) and not logits[1, 4:].any()
    for actual, rows in zip(full.predict(["paris is bright", "a film"], verbose=0), logits):
        np.testing.assert_allclose(actual, rows[1 : 1 + len(actual)], atol=1e-5)
    stream = ({name: values[i : i + 1] for name, values in inputs.items()} for i in (1, 0, 1))
    np.testing.assert_allclose(bare.predict(stream, steps=2, verbose=0)[1], logits[0], atol=1e-5)
    bare.compile(run_eagerly=eager)
    labels = np.where(inputs["padding_mask"] > 0, 1, -100)
    bare.fit(inputs, labels, verbose=0)
    with pytest.raises(ValueError, match="y must be integers"):
        bare.fit(inputs, labels[:, :2], verbose=0)
    with pytest.raises(ValueError, match="no tokenizer"):
        bare.tag(["paris"])


# ---- numbers and files


def test_logits_are_those_of_transformers(make, preset, close):
    import torch

    model, reference = make(), preset[1]
    texts = ["we saw unhappy friends", "paris"]
    for text, actual in zip(texts, model.predict(texts, verbose=0)):
        ids = model.tokenizer.encode([text]).token_ids
        with torch.no_grad():
            close(actual, reference(torch.tensor(ids[None].astype("int64"))).logits[0, 1:-1].numpy())


@pytest.mark.parametrize(
    "options", [{}, {"crf": True}, pytest.param({"label_all_tokens": True}, marks=pytest.mark.once)]
)
def test_files(make, tmp_path, options):
    model = make(new=True, **options)
    model.fit(SENTENCES, TAGS, batch_size=4, verbose=0)
    model.save_to_preset(tmp_path / "preset")
    config = json.loads((tmp_path / "preset" / "config.json").read_text())
    assert config["id2label"] == {str(i): name for i, name in enumerate(LABELS)}
    assert config.get("bertzoo") == (options or None)
    loaded = bz.TokenClassifier.from_preset(tmp_path / "preset", verbose=False)
    assert (loaded.labels, loaded.label_all_tokens, loaded.crf is not None) == (
        LABELS,
        model.label_all_tokens,
        model.crf is not None,
    )
    model.save(tmp_path / "model.keras")
    for other in (loaded, keras.models.load_model(tmp_path / "model.keras")):
        actual, expected = model.tag(["paris rome a film"])[0], other.tag(["paris rome a film"])[0]
        assert [e["text"] for e in actual] == [e["text"] for e in expected]
        assert [e["score"] for e in actual] == pytest.approx([e["score"] for e in expected], abs=1e-5)

    import transformers

    network, report = transformers.AutoModelForTokenClassification.from_pretrained(
        tmp_path / "preset", output_loading_info=True
    )
    assert not report["missing_keys"] and all(name.startswith("bertzoo.") for name in report["unexpected_keys"])
    assert len(report["unexpected_keys"]) == ("crf" in options) and network.config.id2label == ID2LABEL


def test_crf_gives_valid_tags_whatever_the_emissions(make, random_texts):
    model = make(crf=True)
    tags = model.tag_words(random_texts[:60])
    check_tag_order(tags, "BIO")


# ---- long texts


def test_long_texts_are_labelled_as_short_ones(make):
    """Without positions and with attention switched off, a window would not matter; here it must hardly matter."""
    model = make(new=True)
    for weight in model.backbone.weights:
        if "attention/output" in weight.path or "embeddings/position" in weight.path:
            weight.assign(np.zeros(weight.shape))
    words = list(np.random.default_rng(0).choice(["paris", "rome", "unhappy", "film", "we", "."], 400))
    whole, flatten_tuple_inputs = model.tag_words([words])[0], model.tag_words([[word] for word in words])
    assert whole == [tags[0] for tags in flatten_tuple_inputs]


def test_every_word_of_a_long_text_is_learnt_once(make):
    model = make()
    words = ["unhappy", "paris"] * 100
    data = model.batches([words], [["B-THING", "B-CITY"] * 100], shuffle=False)
    assert len(data._encoded) > 1
    total = sum(data[i][2].sum() for i in range(len(data)))
    assert total == len(words)


# ---- what must hold for any text


def tokenizers(texts):
    """WordPiece, byte-level BPE and Unigram, trained on the texts."""
    from tokenizers import Tokenizer as Rust
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

    yield "wordpiece", bz.train_wordpiece(texts, vocabulary_size=600, progress=False)
    rust = Rust(models.BPE())
    rust.pre_tokenizer, rust.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    rust.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False))
    rust.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    roles = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
    yield "bpe", Tokenizer(rust, roles)
    rust = Rust(models.Unigram())
    rust.normalizer, rust.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    rust.train_from_iterator(
        texts, trainers.UnigramTrainer(vocab_size=700, special_tokens=special, unk_token="<unk>", show_progress=False)
    )
    rust.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    yield "unigram", Tokenizer(rust, roles)


@pytest.fixture(scope="module")
def kinds(plain_texts):
    return dict(tokenizers(plain_texts))


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_entities_are_true_substrings_and_split_no_word(kinds, kind, random_texts):
    config = bz.EncoderConfig(
        vocab_size=kinds[kind].vocabulary_size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=48,
        initializer_range=0.5,
    )
    tokenizer = kinds[kind]
    tokenizer.max_length = 48
    model = bz.TokenClassifier(bz.Encoder(config, pooler=False), tokenizer, labels=LABELS)
    answers = model.tag(random_texts, batch_size=64)
    tagged = model.data.parse(random_texts)
    count = 0
    for text, words, entities in zip(random_texts, tagged["words"], answers, strict=True):
        begins, ends = set(words[:, 0].tolist()), set(words[:, 1].tolist())
        for entity in entities:
            assert text[entity["start"] : entity["end"]] == entity["text"] and entity["text"]
            assert entity["start"] in begins and entity["end"] in ends
            assert entity["label"] in ("CITY", "THING") and 0 < entity["score"] <= 1
        assert all(a["end"] <= b["start"] for a, b in itertools.pairwise(entities))
        count += len(entities)
    assert count > 500


@pytest.mark.once
@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_units_hold_each_word_with_tokens_once(kinds, kind, random_texts):
    for text in random_texts[:300]:
        words = find_word_spans(text)
        encoded = kinds[kind].encode([text], return_offsets=True)
        offsets = encoded.offsets[encoded.word_ids >= 0]
        alignment = align_words(offsets, words)
        covered = [i for a, b in alignment.words for i in range(a, b)]
        overlaps = [bool(((offsets[:, 0] < b) & (offsets[:, 1] > a)).any()) for a, b in words]
        assert set(np.flatnonzero(overlaps)) <= set(covered) and covered == sorted(set(covered))
        assert (alignment.tokens[1:, 0] >= alignment.tokens[:-1, 1]).all()


# ---- mistakes, which are told before Keras has anything to do


@pytest.mark.once
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([["a", "b"]], [["O"]], r"a tag for each of the 2 words\. Received: 1 tags"),
        ([["a"]], [["B-TOWN"]], r"y\[0\]\[0\] must be one of the labels .* Received: 'B-TOWN'"),
        ([["a"]], [[7]], "from 0 to 4"),
        ([["a"]], [[0.5]], "from 0 to 4"),
        ([["a"]], [["O"], ["O"]], "x has 1 rows and y has 2"),
        ([["a", "b"]], [["O", "I-CITY"]], "BIO does not allow"),
        (["a b"], [[(0, 9, "CITY")]], r"from 0 to 3\. Received: 0:9"),
        (["a b"], [[(1, 2, "CITY")]], "covers no word"),
        (["ab c"], [[(0, 1, "CITY"), (1, 4, "CITY")]], "shares the word 'ab'"),
        (["a"], [[(0, 1, "TOWN")]], "B-TOWN"),
        ({"label": [1]}, None, "must be called tokens"),
        ([], [], "x is empty"),
        ([["a"]], None, "no targets"),
    ],
)
def test_errors(make, x, y, message):
    with pytest.raises(ValueError, match=message):
        make().fit(x, y, verbose=0)


@pytest.mark.once
def test_errors_of_type_and_constructor(make, preset):
    with pytest.raises(TypeError, match=r"x\[1\]"):
        make().tag([["a"], "b"])
    for span in (("a", 1, "CITY"), (0, 1.0, "CITY"), (0, 1, ["CITY"])):
        with pytest.raises(TypeError, match=r"y\[0\] must hold entities of two integers and a string"):
            make().fit(["a"], [[span]], verbose=0)
    with pytest.raises(TypeError, match="list of words"):
        make().tag([["a", 3]])
    with pytest.raises(ValueError, match="CRF"):
        bz.TokenClassifier.from_preset(preset[0], verbose=False, label_all_tokens=True, crf=True)
