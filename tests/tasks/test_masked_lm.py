"""MaskedLM: its loss against NumPy, its guesses against transformers' fill-mask pipeline."""

import keras
import numpy as np
import pytest
import transformers

import bertzoo as bz
from bertzoo.text.masking import Masking

TEXTS = ["the film was good", "a bad plot and a slow story, again", "we saw it with friends in paris", "great"] * 4


@pytest.fixture(scope="module")
def written(write_checkpoint):
    return write_checkpoint("BertForMaskedLM", seed=2, num_hidden_layers=1)


@pytest.fixture(scope="module")
def model(written):
    return bz.MaskedLM.from_preset(written[0], verbose=False)


@pytest.fixture(scope="module")
def pipeline(written):
    directory, expected = written
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    return transformers.pipeline("fill-mask", model=expected, tokenizer=tokenizer, device="cpu")


def assert_equal_answers(actual, expected):
    assert [a["token"] for a in actual] == [b["token_str"] for b in expected]
    np.testing.assert_allclose([a["score"] for a in actual], [b["score"] for b in expected], rtol=2e-4)


def test_guesses_equal_the_pipelines(model, pipeline):
    """Fault 4: heads were never read, so that fill-mask was nonsense, and [MASK] in a string was split."""
    texts = ["the [MASK] was good", "we saw a[MASK]film with friends in paris once again."]
    for actual, expected in zip(model.fill_mask(texts), pipeline(texts)):
        assert_equal_answers(actual, expected)
    answer = model.fill_mask("the [MASK] was good", top_k=3)
    assert_equal_answers(answer, pipeline("the [MASK] was good", top_k=3))
    assert answer[0]["text"] == f"the {answer[0]['token']} was good"


def test_rows_of_the_table_that_no_token_has_are_never_guessed():
    tokenizer = bz.Tokenizer.from_vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"], max_length=16)
    config = bz.EncoderConfig(
        vocab_size=12, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    model = bz.MaskedLM(bz.Encoder(config), tokenizer)
    assert len(model.fill_mask("a [MASK]", top_k=12)) == 7


def test_several_masks_and_targets(model, pipeline):
    text = "the [MASK] was [MASK] and good"
    for actual, expected in zip(model.fill_mask(text, top_k=2), pipeline(text, top_k=2), strict=True):
        assert_equal_answers(actual, expected)
    words = ["film", "plot", "paris"]
    assert_equal_answers(
        model.fill_mask("the [MASK] was good", targets=words), pipeline("the [MASK] was good", targets=words)
    )


def test_predict_gives_logits_at_the_masks_in_the_order_of_the_texts(model, numpy, compiled):
    texts = ["good", "the [MASK] was good", "[MASK] [MASK]", "a film, very bright, and not [MASK] in the end"]
    logits = model.predict(texts, batch_size=2, verbose=0)
    assert logits.shape == (4, 2, model.backbone.config.vocab_size) and logits.dtype == np.float32
    assert not logits[0].any() and not logits[1, 1].any()
    inputs = model.tokenizer(texts)
    full = numpy(compiled(model, model)(inputs))
    for row, positions in ((1, 1), (2, 2), (3, 1)):
        at_masks = full[row][inputs["token_ids"][row] == model.masking.mask_id]
        np.testing.assert_allclose(logits[row, :positions], at_masks, atol=2e-5)


def test_more_masks_than_a_batch_of_short_texts_has_tokens(model):
    few, many = "[MASK]", "[MASK] " * 20  # padded to 8 and to 24 tokens
    alone = [model.predict([text], verbose=0)[0] for text in (few, many)]
    texts = [few, many] * 20
    for count, batch_size in ((2, 1), (40, 8)):
        logits = model.predict(texts[:count], batch_size=batch_size, verbose=0)
        assert logits.shape[:2] == (count, 20) and not logits[::2, 1:].any()
        np.testing.assert_allclose(logits[::2, :1], [alone[0]] * (count // 2), atol=2e-5)
        np.testing.assert_allclose(logits[1::2], [alone[1]] * (count // 2), atol=2e-5)
    assert [len(answer) for answer in model.fill_mask(texts[:2], batch_size=1)] == [5, 20]  # tokens, places


@pytest.mark.once
def test_mistakes_are_named(model):
    with pytest.raises(ValueError, match=r"no \[MASK\] in 'the film'"):
        model.fill_mask("the film")
    with pytest.raises(ValueError, match=r"target 'unhappy' is 2 tokens"):
        model.fill_mask("the [MASK]", targets=["unhappy"])
    with pytest.raises(ValueError, match=r"lies beyond the model's 64 tokens"):
        model.fill_mask("good " * 70 + "[MASK]")
    for targets in (None, ["film"]):
        with pytest.raises(ValueError, match="no tokenizer: call the model with token_ids"):
            bz.MaskedLM(model.backbone).fill_mask("the [MASK]", targets=targets)
    with pytest.raises(ValueError, match="pass no y"):
        model.batches(TEXTS, [1] * 16)
    with pytest.raises(ValueError, match="no sample_weight"):
        model.batches(TEXTS, sample_weight=[1.0] * 16)
    tokenizer = bz.Tokenizer.from_vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"])
    with pytest.raises(ValueError, match="needs a tokenizer with a mask token"):
        bz.MaskedLM(model.backbone, tokenizer)


def test_the_loss_is_the_mean_over_masked_tokens(written, numpy, compiled):
    """Fault 8: the loss was averaged over all slots instead of the real masks."""
    model = bz.MaskedLM.from_preset(written[0], verbose=False, dropout=0.0)
    model.compile(keras.optimizers.SGD(0.0))
    data = model.batches(TEXTS, batch_size=16, shuffle=False)
    inputs, labels, weights = data[0]
    assert (weights == 0).any() and (weights == 1).any()  # rows of unlike length: some slots are empty
    logits = numpy(compiled(model, model)(inputs)).astype("float64")
    probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    cross_entropy = -np.take_along_axis(probabilities, labels[..., None], axis=-1)[..., 0][weights > 0].mean()
    hits = (logits.argmax(axis=-1) == labels)[weights > 0].mean()
    scores = model.evaluate(data, verbose=0, return_dict=True)
    assert scores["loss"] == pytest.approx(cross_entropy, rel=1e-5)
    assert scores["masked_accuracy"] == pytest.approx(hits, rel=1e-5)
    trained = model.train_on_batch(inputs, labels, weights, return_dict=True)
    assert trained["loss"] == pytest.approx(cross_entropy, rel=1e-5)


def test_fit_learns_and_masks_anew_each_epoch(written):
    model = bz.MaskedLM.from_preset(written[0], verbose=False, dropout=0.0)
    data = model.batches(TEXTS, batch_size=16)
    epochs = []
    for epoch in range(3):
        data.epoch = epoch
        epochs.append(
            {
                (tuple(row), tuple(positions))
                for row, positions in zip(data[0][0]["token_ids"], data[0][0]["mask_positions"])
            }
        )
    assert epochs[0] != epochs[1] != epochs[2]
    model.compile(bz.AdamW(1e-2, warmup=0.0))
    losses = model.fit(TEXTS, batch_size=16, epochs=25, verbose=0).history["loss"]
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:3])


@pytest.mark.once
@pytest.mark.parametrize("count", [2, 3])
def test_a_list_of_few_texts_is_validated_on(written, count):
    model = bz.MaskedLM.from_preset(written[0], verbose=False, dropout=0.0)
    model.compile()
    history = model.fit(TEXTS, validation_data=TEXTS[:count], batch_size=16, verbose=0).history
    assert history["val_loss"] == [pytest.approx(model.evaluate(TEXTS[:count], verbose=0)[0])]


@pytest.mark.parametrize("masking", [pytest.param(None, marks=pytest.mark.once), "own"])
def test_keras_files_bring_it_back(written, tmp_path, masking):
    own = {"masking": Masking(47, 4, (0, 1, 2, 3, 4), mlm_probability=0.3)} if masking else {}
    model = bz.MaskedLM.from_preset(written[0], verbose=False, **own)
    if masking is None:
        model.compile("sgd")
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.masking == model.masking
    if masking is None:
        assert again.evaluate(TEXTS, verbose=0, return_dict=True) == model.evaluate(TEXTS, verbose=0, return_dict=True)
    text = "the [MASK] was good"
    assert again.fill_mask(text) == model.fill_mask(text)


@pytest.mark.once
def test_long_texts_are_read_whole(written):
    """Every token once, in rows that the model takes, each with its special tokens."""
    model = bz.MaskedLM.from_preset(written[0], verbose=False, max_length=16)
    texts = ["great", " ".join(["the film was good and bad"] * 9), "a story", " ".join(["rome"] * 14), "rome " * 15]
    rows = model.data.encode(model.data.parse(texts))
    assert rows.lengths.max() == 16
    tokenizer = model.tokenizer
    own = [tokenizer.encode([text], truncate=False).row(0)[1:-1].tolist() for text in texts]
    whole = [row[1:-1].tolist() for row in map(rows.row, range(len(rows)))]
    assert all(
        rows.row(i)[0] == own_start and rows.row(i)[-1] == own_end
        for i in range(len(rows))
        for own_start, own_end in [(tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]"))]
    )
    assert sum(whole, []) == sum(own, [])
    assert len(rows) == sum(-(-len(ids) // 14) for ids in own)
    assert sum(len(batch[0]["token_ids"]) for batch in model.batches(texts)) == len(rows)


@pytest.mark.once
def test_evaluation_masks_as_training_does(model):
    """As many tokens of each row, by the same rule, and alike in every call."""
    texts = [" ".join(["the film was good"] * count) for count in (1, 3, 9, 2)] * 40
    data, again = (model.batches(texts, shuffle=False, batch_size=size) for size in (32, 7))
    counts, kinds = {}, []
    for source in (data, again):
        for inputs, labels, weights in source:
            lengths = inputs["padding_mask"].sum(axis=1)
            np.testing.assert_array_equal(weights.sum(axis=1), np.maximum(1, np.round(0.15 * lengths)))
            there = np.take_along_axis(inputs["token_ids"], inputs["mask_positions"], axis=1)
            kinds += [(a == model.masking.mask_id, a == b) for a, b in zip(there[weights > 0], labels[weights > 0])]
            for row, label in zip(inputs["token_ids"], labels):
                key = tuple(row[row > 0].tolist()), tuple(label[label > 0].tolist())
                counts[key] = counts.get(key, 0) + 1
    assert all(count % 2 == 0 for count in counts.values())
    masked, kept = np.mean(kinds, axis=0)
    assert abs(masked - 0.8) < 0.06 and 0.05 < kept < 0.2
