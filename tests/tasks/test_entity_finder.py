"""EntityFinder against gliner, whose outputs tasks/gliner/write.py has written; windows, labels in pieces, training."""

import json
import tarfile
from pathlib import Path

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.data.entity_data import EntityRows
from bertzoo.losses import EntityLoss
from bertzoo.tasks.answers.any_entities import Candidate, select_entities
from bertzoo.text.label_prompts import WordWindow
from bertzoo.text.windows import cut_words

ARCHIVE = Path(__file__).parent / "gliner" / "models.tar.xz"
FORMS = ("deberta_spans", "deberta_tokens", "bert_spans", "modernbert_tokens")
# As in gliner/write.py.
TEXTS = [
    "Ada Lovelace wrote to Charles Babbage in London.",
    "The U.S.-based firm paid $3.5m for a half-finished x_y model!",
    "ok",
    "Zürich’s café 🙂 sells 12 kinds of tea, and Göteborg 9 of them; no one knows why it is so.",
    "   spaces\tand\nlines   around  ",
]
LABELS = ["person", "place name", "organisation"]
ENTITIES = [[(0, 1, 0), (4, 5, 0), (7, 7, 1)], [(1, 5, 2), (3, 3, 1)]]
NESTED_THRESHOLD = 0.3


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The directory of gliner's models."""
    directory = tmp_path_factory.mktemp("gliner")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    return directory


@pytest.fixture
def finder(models):
    return bz.EntityFinder.from_preset(models / "deberta_spans", verbose=False)


def rows_and_logits(finder, texts, labels=LABELS):
    """The token ids of each row, and its logits."""
    rows = finder.data.rows_to_answer(finder.data.parse(texts), labels)
    data = rows.dataset(batch_size=3)
    ids = [row for i in range(len(data)) for row in data[i][0]["token_ids"]]
    logits = [np.asarray(row) for batch in finder.predict_each(data) for row in batch]
    order = np.argsort(data.row_order)
    return [ids[i] for i in order], [logits[i] for i in order]


def spans(entities):
    return [(one["start"], one["end"], one["text"], one["label"]) for one in entities]


@pytest.mark.parametrize("form", FORMS)
def test_tokens_and_logits_are_those_of_gliner(form, models):
    finder = bz.EntityFinder.from_preset(models / form, verbose=False)
    expected = np.load(models / form / "expected.npz")
    for i, (ids, logits) in enumerate(zip(*rows_and_logits(finder, TEXTS))):
        wanted = expected[f"ids_{i}"]
        assert ids[: len(wanted)].tolist() == wanted.tolist() and not ids[len(wanted) :].any()
        reference = expected[f"logits_{i}"]
        off = np.abs(logits[: len(reference)] - reference)
        if f"mask_{i}" in expected:  # spans that reach beyond the text mean nothing
            off = off[expected[f"mask_{i}"]]
        assert off.max() <= 1e-5 * max(1.0, np.abs(reference).max())


@pytest.mark.parametrize("form", FORMS)
def test_entities_are_those_of_gliner(form, models):
    finder = bz.EntityFinder.from_preset(models / form, verbose=False)
    expected = json.loads((models / form / "entities.json").read_text())
    for name, options in (("flat", {}), ("nested", {"nested": True, "threshold": NESTED_THRESHOLD})):
        found = finder.tag(TEXTS, LABELS, **options)
        assert list(map(spans, found)) == list(map(spans, expected[name]))
        scores, wanted = ([one["score"] for row in rows for one in row] for rows in (found, expected[name]))
        np.testing.assert_allclose(scores, wanted, atol=1e-5)
    assert finder.tag(TEXTS[0], LABELS) == finder.tag(TEXTS[:1], LABELS)[0]


@pytest.mark.parametrize("form", FORMS)
def test_loss_and_gradients_are_those_of_gliner(form, models, backend):
    finder = bz.EntityFinder.from_preset(models / form, verbose=False)
    expected = np.load(models / form / "expected.npz")
    data = finder.data
    prompts = data.make_prompts(LABELS)
    windows = data.cut(data.parse(TEXTS[:2]), np.full(2, 20))
    rows = EntityRows(data, windows, [prompts.prompt(np.arange(3))] * 2, ENTITIES)
    inputs, targets = rows.dataset(batch_size=2)[0]
    focal = EntityLoss(alpha=0.75, gamma=2.0)(targets, finder(inputs))
    np.testing.assert_allclose(2 * float(keras.ops.convert_to_numpy(focal)), expected["loss_focal"], rtol=1e-5)
    value, gradients = loss_and_gradients(backend, finder, inputs, targets)
    # There the sum over the texts, here their mean.
    np.testing.assert_allclose(2 * value, expected["loss_bce"], rtol=1e-5)
    names = {f"gradient {name}" for name in gradients} & set(expected.files)
    assert len(names) == sum(name.startswith("gradient") for name in expected.files)
    for name in names:
        wanted = expected[name]
        off = np.abs(2 * gradients[name.removeprefix("gradient ")] - wanted).max()
        assert off <= 1e-4 * max(1.0, np.abs(wanted).max()), name


def loss_and_gradients(backend, model, inputs, targets):
    """The mean loss of a batch without dropout, and its gradients by the names of gliner's tensors."""
    weights, loss = model.trainable_variables, EntityLoss()
    if backend == "jax":
        import jax

        def total(values):
            state = [weight.value for weight in model.non_trainable_variables]
            return loss(targets, model.stateless_call(values, state, inputs)[0])

        value, found = jax.value_and_grad(total)([weight.value for weight in weights])
    elif backend == "torch":
        value = loss(targets, model(inputs))
        value.backward()
        value, found = value.detach(), [weight.value.grad for weight in weights]
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = loss(targets, model(inputs))
        found = tape.gradient(value, [weight.value for weight in weights])
    for weight, gradient in zip(weights, found):  # to be written as the weights are
        weight.assign(keras.ops.zeros_like(weight) if gradient is None else gradient)
    from bertzoo.checkpoints.gliner import file_names
    from bertzoo.checkpoints.loading import file_tensors

    model.checkpoint_dtypes = {}
    of_head = {name for entry in model.head_mappings for name in entry.hf_names}
    return float(keras.ops.convert_to_numpy(value)), file_names(file_tensors(model, model.backbone, ()), of_head)


# ---- files


@pytest.mark.parametrize("form", FORMS)
def test_saving_writes_what_was_read(form, models, tmp_path):
    finder = bz.EntityFinder.from_preset(models / form, verbose=False)
    finder.save_to_preset(tmp_path / "saved")
    before, after = (read_tensors(path) for path in (models / form, tmp_path / "saved"))
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    contents = [json.loads((path / "gliner_config.json").read_text()) for path in (models / form, tmp_path / "saved")]
    for name in ("class_token_index", "vocab_size", "span_mode", "max_width", "num_post_fusion_layers", "ent_token"):
        assert contents[0][name] == contents[1][name]
    again = bz.EntityFinder.from_preset(tmp_path / "saved", verbose=False)
    assert again.tag(TEXTS, LABELS) == finder.tag(TEXTS, LABELS)


def read_tensors(directory):
    from bertzoo.checkpoints.tensors import open_tensors_in_directory

    with open_tensors_in_directory(directory) as tensors:
        return {name: tensors[name] for name in tensors}


def test_keras_file_and_encoder_alone(finder, models, tmp_path):
    finder.save(tmp_path / "finder.keras")
    again = keras.saving.load_model(tmp_path / "finder.keras")
    assert again.tag(TEXTS, LABELS) == finder.tag(TEXTS, LABELS)
    encoder = bz.Encoder.from_preset(models / "deberta_spans", verbose=False)
    ids = np.array([[1, 5, 6, 2]])
    outputs = [keras.ops.convert_to_numpy(one(ids)["sequence_output"]) for one in (encoder, finder.backbone)]
    assert np.array_equal(*outputs)


def test_older_files_take_encoder_and_tokenizer_from_the_model_they_name(finder, models, tmp_path):
    source, base, old = models / "deberta_spans", tmp_path / "base", tmp_path / "old"
    base.mkdir(), old.mkdir()
    content = json.loads((source / "gliner_config.json").read_text())
    (base / "config.json").write_text(json.dumps({**content["encoder_config"], "vocab_size": 80}))
    tokens = json.loads((source / "tokenizer.json").read_text())
    added = [token for token in tokens["added_tokens"] if token["id"] < 80]
    (base / "tokenizer.json").write_text(json.dumps({**tokens, "added_tokens": added}))
    (base / "tokenizer_config.json").write_text((source / "tokenizer_config.json").read_text())
    (old / "pytorch_model.bin").write_bytes((source / "pytorch_model.bin").read_bytes())
    content |= {"encoder_config": None, "class_token_index": -1, "vocab_size": -1, "model_name": str(base)}
    (old / "gliner_config.json").write_text(json.dumps(content))
    again = bz.EntityFinder.from_preset(old, verbose=False)
    assert again.tag(TEXTS, LABELS) == finder.tag(TEXTS, LABELS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"span_mode": "conv_share"}, "span_mode"),
        ({"subtoken_pooling": "mean"}, "subtoken_pooling"),
        ({"words_splitter_type": "spacy"}, "words_splitter_type"),
        ({"fuse_layers": True}, "fuse_layers"),
        ({"labels_encoder": "example/labels"}, "labels_encoder"),
        ({"max_width": 0}, "max_width"),
        ({"hidden_size": 10}, "shape"),
        ({"encoder_config": None, "model_name": None}, "encoder_config or a model_name. Received: neither"),
    ],
)
def test_what_is_not_computed_is_refused(change, message, models, tmp_path):
    for file in (models / "deberta_spans").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    content = json.loads((tmp_path / "gliner_config.json").read_text())
    (tmp_path / "gliner_config.json").write_text(json.dumps({**content, **change}))
    with pytest.raises(CheckpointError, match=message):
        bz.EntityFinder.from_preset(tmp_path, verbose=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_types": 0}, "max_types must be at least 1. Received: 0"),
        ({"max_len": 0}, "max_len must be at least 1"),
        ({"max_width": 0}, "max_width must be at least 1"),
        ({"num_rnn_layers": -1}, "num_rnn_layers must be at least 0"),
        ({"max_neg_type_ratio": -1}, "max_neg_type_ratio must be at least 0"),
        ({"hidden_size": 25}, "hidden_size must be even.*Received: 25"),
        ({"span_mode": "conv_share"}, "span_mode"),
    ],
)
def test_arguments_out_of_range_are_refused(options, message, small):
    with pytest.raises(ValueError, match=message):
        bz.EntityFinder.from_preset(small, verbose=False, **options)


# ---- windows and labels in pieces


@pytest.mark.parametrize("limits", [(10, 40), (16, 5), (40, 12), (3, 3)])
def test_every_span_is_read_in_one_window_that_holds_it(limits):
    rng = np.random.default_rng(0)
    for count in (1, 2, 7, 30, 83):
        sizes = rng.integers(0, 4, count)
        windows, previous_end = [], 0
        for begin, end, own_begin, own_end in cut_words(sizes, *limits):
            assert end - begin <= limits[1] and (sizes[begin:end].sum() <= limits[0] or end - begin == 1)
            nothing = np.zeros(0, int)
            windows.append(WordWindow(0, begin, end, own_begin, own_end, previous_end, nothing, nothing))
            previous_end = end
        assert [w.own_begin for w in windows] == [0, *(w.own_end for w in windows[:-1])]
        assert windows[-1].own_end == count
        for first in range(count):
            for last in range(first, count):
                holding = [w for w in windows if w.begin <= first and last < w.end]
                reading = [w for w in holding if w.reads(np.array(first), np.array(last))]
                assert len(reading) == min(1, len(holding))


@pytest.mark.parametrize("form", ["deberta_spans", "deberta_tokens"])
def test_texts_longer_than_a_row(form, models):
    finder = bz.EntityFinder.from_preset(models / form, max_length=40, verbose=False)
    text = " … ".join(TEXTS) * 3
    rows = finder.data.rows_to_answer(finder.data.parse(text), LABELS)
    assert len({(row.begin, row.end) for row in rows.windows}) > 3 and rows.lengths.max() <= 40
    found = finder.tag([text, "", "ok"], LABELS, threshold=0.4, nested=True)
    assert found[0] and found[1] == []
    assert all(one["text"] == text[one["start"] : one["end"]] for one in found[0])
    assert spans(found[2]) == spans(finder.tag("ok", LABELS, threshold=0.4, nested=True))


def test_many_labels_are_asked_for_in_pieces(models):
    finder = bz.EntityFinder.from_preset(models / "deberta_spans", max_types=2, verbose=False)
    labels = ["person", "place", "firm", "number", "fruit"]
    _, together = rows_and_logits(finder, TEXTS[:1], labels)
    pieces = [rows_and_logits(finder, TEXTS[:1], labels[i : i + 2])[1][0] for i in (0, 2, 4)]
    assert len(together) == 3
    for logits, alone in zip(together, pieces):
        np.testing.assert_allclose(logits[..., : alone.shape[-1]], alone, atol=1e-4)
    for text, found in zip(TEXTS, finder.tag(TEXTS, labels)):
        alone = [one for i in (0, 2, 4) for one in finder.tag(text, labels[i : i + 2])]
        best = max(alone, key=lambda one: one["score"])
        assert spans([best])[0] in spans(found)
        assert max(one["score"] for one in found) == pytest.approx(best["score"], abs=1e-5)


def test_selection():
    a, b, inside = Candidate(0, 3, 0, 0.9), Candidate(3, 4, 1, 0.8), Candidate(1, 2, 1, 0.7)
    same, later = Candidate(0, 3, 1, 0.6), Candidate(5, 5, 0, 0.5)
    everything = [later, same, inside, b, a]
    assert select_entities(everything, nested=False) == [a, later]
    assert select_entities(everything, nested=True) == [a, inside, later]
    assert select_entities([], nested=True) == []


@pytest.mark.parametrize("nested", [False, True])
def test_selected_entities_are_the_best_that_do_not_clash(nested):
    rng = np.random.default_rng(0)
    first, width, label = rng.integers(0, 30, 200), rng.integers(0, 6, 200), rng.integers(0, 3, 200)
    candidates = [Candidate(a, a + w, k, float(s)) for a, w, k, s in zip(first, width, label, rng.random(200))]

    def clash(one, other):
        a, b = (set(range(span.first, span.last + 1)) for span in (one, other))
        return bool(a & b) and not (nested and (a < b or b < a))

    selected = select_entities(candidates, nested)
    assert len(set(selected)) == len(selected) and set(selected) <= set(candidates)
    for one in candidates:  # is selected, or clashes with a better one that is
        better = any(other.score > one.score and clash(one, other) for other in selected)
        assert better != (one in selected)


def test_wrong_input(finder):
    for labels in ([], ["a", "a"], [" "], ["a <<ENT>>"]):
        with pytest.raises(ValueError, match="label"):
            finder.tag(TEXTS, labels)
    with pytest.raises(TypeError, match="labels"):
        finder.tag(TEXTS, "person")
    with pytest.raises(ValueError, match="threshold"):
        finder.tag(TEXTS, LABELS, threshold=2)
    for refused in (lambda: finder.predict(TEXTS), lambda: finder.data.encode(finder.data.parse(TEXTS))):
        with pytest.raises(ValueError, match=r"needs label names\. Received: texts alone\. Call tag"):
            refused()
    finder.compile()
    with pytest.raises(ValueError, match=r"fit expects lists or a table.*Received: a stream"):
        finder.fit(iter([(TEXTS[:1], [[(0, 3, "person")]])]), steps_per_epoch=1, verbose=0)
    with pytest.raises(ValueError, match="label"):
        finder.tag(TEXTS, ["word " * 200])
    with pytest.raises(ValueError, match="gamma"):
        EntityLoss(gamma=-1)


# ---- training

NAMES = ["Ada", "Grace", "Alan", "Kurt", "Emmy", "Sofia"]
PLACES = ["Rome", "Oslo", "Bern", "Lima", "Cairo", "Turin"]


def training_set():
    """Texts with a person or a place, or with neither."""
    texts, entities = [], []
    for i in range(48):
        name, place = NAMES[i % 6], PLACES[(i // 2) % 6]
        text = [f"{name} went to {place} again", f"we saw {place} today", "it rained and it rained", f"{name} slept"][
            i % 4
        ]
        texts.append(text)
        found = [(text.find(name), "person")] if name in text else []
        found += [(text.find(place), "place")] if place in text else []
        entities.append([(at, at + len(name if kind == "person" else place), kind) for at, kind in found])
    return texts, entities


@pytest.fixture
def small(models, tmp_path):
    """A new model on an encoder without tokens of prompts."""
    bz.set_seed(1)
    words = sorted({word.lower() for text in training_set()[0] for word in text.split()})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "person", "place", "color", *words]
    config = bz.EncoderConfig(
        vocab_size=len(tokens),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    tokenizer = bz.Tokenizer.from_vocabulary(tokens, max_length=64)
    bz.Encoder(config, pooler=False).save_to_preset(tmp_path / "bert", tokenizer=tokenizer)
    return tmp_path / "bert"


@pytest.mark.parametrize("span_mode", ["markerV0", "token_level"])
def test_training_finds_the_entities_of_new_texts(span_mode, small, tmp_path):
    # Labels by the tokens of their names: an encoder this small hardly learns to take them to another token.
    options = {"hidden_size": 24, "max_width": 3, "dropout": 0.1, "embed_ent_token": False}
    finder = bz.EntityFinder.from_preset(small, span_mode=span_mode, verbose=False, **options)
    assert "entities" in finder.load_report.new
    texts, entities = training_set()
    finder.compile(bz.AdamW(2e-3))
    losses = finder.fit(texts, entities, batch_size=8, epochs=40, verbose=0).history["loss"]
    assert losses[-1] < 0.01 * losses[0]
    text = "Emmy went to Oslo again"  # a pair that was not there
    found = [(one["text"], one["label"]) for one in finder.tag(text, ["place", "person"])]
    assert found == [("Emmy", "person"), ("Oslo", "place")]
    loss = finder.evaluate(texts, entities, batch_size=8, verbose=0)
    assert finder.evaluate(texts, entities, batch_size=5, verbose=0) == pytest.approx(loss, rel=1e-4)
    finder.save_to_preset(tmp_path / "saved")
    again = bz.EntityFinder.from_preset(tmp_path / "saved", verbose=False)
    assert again.tag(text, ["place", "person"]) == finder.tag(text, ["place", "person"])


def test_compile_names_the_rates_that_it_sets(small, capsys):
    finder = bz.EntityFinder.from_preset(small, hidden_size=24, max_width=3, verbose=False)
    finder.compile()
    rate = finder.backbone.config.default_learning_rate
    assert f"peak rate {rate:g} for the encoder and {5 * rate:g} for the layers after it" in capsys.readouterr().out


def test_prompts_in_training_are_drawn_by_the_seed_and_epoch(small):
    finder = bz.EntityFinder.from_preset(small, hidden_size=24, max_width=3, verbose=False)
    texts, entities = training_set()
    data, same = (finder.data.batches(texts, entities, batch_size=8) for _ in range(2))
    first, second = ([data.peek_batch(epoch, i)[0]["token_ids"] for i in range(len(data))] for epoch in (0, 1))
    assert all(np.array_equal(a, same.peek_batch(0, i)[0]["token_ids"]) for i, a in enumerate(first))
    assert not all(np.array_equal(a, b) for a, b in zip(first, second))
    ent = finder.tokenizer.token_to_id("<<ENT>>")
    counts = np.concatenate([(ids == ent).sum(axis=1) for ids in first])
    assert counts.min() == 1 and counts.max() == 2
    for i in range(len(data)):
        inputs, targets = data.peek_batch(0, i)
        for row, target in enumerate(targets):  # 1 at the entities of labels that are in the prompt, 0 elsewhere
            number = data._plan[i][row]
            words = texts[number].split()
            names = [
                finder.tokenizer.id_to_token(inputs["token_ids"][row, p + 1])
                for p in inputs["label_positions"][row]
                if p >= 0
            ]
            marked = {(words[w], names[c]) for w, k, c in np.argwhere(target == 1)}
            wanted = {(texts[number][a:b], kind) for a, b, kind in entities[number]}
            assert marked == {pair for pair in wanted if pair[1] in names}
            assert {kind for _, kind in wanted} <= set(names)


def test_words_with_tags_are_the_same_entities(small):
    finder = bz.EntityFinder.from_preset(small, hidden_size=24, max_width=3, verbose=False)
    texts, entities = training_set()
    sentences = [text.split() for text in texts]
    kinds = [{text[a:b]: kind for a, b, kind in row} for text, row in zip(texts, entities)]
    tags = [[f"B-{kind[word]}" if word in kind else "O" for word in row] for row, kind in zip(sentences, kinds)]
    data, other = finder.data.batches(texts, entities), finder.data.batches(sentences, tags)
    for a, b in zip(data[0], other[0]):
        for x, y in zip(keras.tree.flatten(a), keras.tree.flatten(b)):
            assert np.array_equal(x, y)
    with pytest.raises(ValueError, match="no entities"):
        finder.data.batches(sentences, [["O"] * len(row) for row in sentences])
    with pytest.warns(UserWarning, match="max_width = 3"):
        finder.data.batches(["a b c d", "e"], [[(0, 7, "x")], [(0, 1, "y")]])
    with pytest.raises(TypeError, match="two integers and a string"):
        finder.data.batches(["a b"], [[(0, 1, ["x"])]])
    with pytest.raises(ValueError, match="covers no word"):
        finder.data.batches(["a b"], [[(1, 2, "x")]])


def test_packed_rows_give_the_loss_of_padded_ones(small):
    finder = bz.EntityFinder.from_preset(small, hidden_size=24, max_width=3, verbose=False)
    texts, entities = training_set()
    texts = [f"{text} {'and it rained ' * (i % 7)}".strip() for i, text in enumerate(texts)]
    inputs, targets = finder.data.batches(texts, entities, batch_size=16)[0]
    assert "packing" in inputs
    padded = {name: array for name, array in inputs.items() if name not in ("packing", "text_starts")}
    losses = [float(keras.ops.convert_to_numpy(EntityLoss()(targets, finder(one)))) for one in (inputs, padded)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_validation_and_sample_weights(small):
    finder = bz.EntityFinder.from_preset(small, hidden_size=24, max_width=3, verbose=False)
    texts, entities = training_set()
    finder.compile(bz.AdamW(1e-3))
    history = finder.fit(texts, entities, batch_size=8, validation_split=0.25, verbose=0).history
    assert np.isfinite([history["loss"], history["val_loss"]]).all()
    weights = np.r_[np.ones(24), np.zeros(24)]
    weighed = finder.evaluate(texts, entities, sample_weight=weights, batch_size=8, verbose=0)
    alone = finder.evaluate(texts[:24], entities[:24], batch_size=8, verbose=0)
    assert weighed == pytest.approx(alone, rel=1e-4)
