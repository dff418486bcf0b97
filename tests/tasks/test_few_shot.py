"""Classifiers from few labelled texts: the head against scikit-learn, files against other libraries, and learning."""

import json
import shutil

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.data.contrastive_pairs import PairDataset, contrastive_pairs
from bertzoo.tasks.few_shot import logistic_regression
from bertzoo.tasks.probabilities import sigmoid, softmax

TEXTS = ["a good film", "the story was great", "a bright actor", "the plot was dull", "never again", "a bad film"]
LABELS = ["good", "good", "good", "bad", "bad", "bad"]
NAMES = ["bad", "good"]
OTHERS = ["a very good story", "we saw it in paris and it was bad", ""]


@pytest.fixture(scope="module")
def encoder(checkpoint):
    """Of mean pooling and Normalize, as all-MiniLM-L6-v2."""
    backbone = bz.Encoder.from_preset(checkpoint[0], verbose=False)
    tokenizer = bz.Tokenizer.from_directory(checkpoint[0])
    return bz.SentenceEncoder(backbone, tokenizer, after_pooling=[bz.layers.Normalize(dtype="float32")])


@pytest.fixture(scope="module")
def classifier(encoder):
    return encoder.fit_classifier(TEXTS, LABELS, NAMES, learning_rate=1e-3, verbose=0)


@pytest.fixture(scope="module")
def saved(classifier, tmp_path_factory):
    directory = tmp_path_factory.mktemp("few_shot") / "saved"
    classifier.save_to_preset(directory)
    return directory


@pytest.mark.once
@pytest.mark.parametrize(("count", "labels"), [(16, 2), (60, 2), (60, 5)])
@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_the_head_is_scikit_learns_logistic_regression(count, labels, scale):
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    targets = np.arange(count) % labels
    vectors = scale * (rng.normal(size=(count, 40)) + 2 * np.eye(labels, 40)[targets]) / 6
    kernel, bias = logistic_regression(vectors, targets, labels)
    expected = LogisticRegression(tol=1e-10, max_iter=10_000).fit(vectors, targets).predict_proba(vectors)
    np.testing.assert_allclose(softmax(vectors @ kernel + bias), expected, atol=1e-5)


@pytest.mark.once
def test_the_head_of_several_labels_is_one_regression_for_each():
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    rng = np.random.default_rng(0)
    vectors, targets = rng.normal(size=(50, 30)), (rng.random((50, 3)) < 0.4).astype("float32")
    kernel, bias = logistic_regression(vectors, targets, 3)
    expected = OneVsRestClassifier(LogisticRegression(tol=1e-10, max_iter=10_000)).fit(vectors, targets)
    np.testing.assert_allclose(sigmoid(vectors @ kernel + bias), expected.predict_proba(vectors), atol=1e-5)


def test_vectors_and_loss_of_shared_texts_are_those_of_plain_pairs(encoder, close, numpy):
    pairs, scores = contrastive_pairs(np.array([0, 0, 0, 1, 1, 1]))
    data = PairDataset(encoder.tokenizer.encode(TEXTS), pairs, scores, batch_size=8, shuffle=False)
    encoder.compile(loss="cosine")
    vectors = encoder.encode(TEXTS)
    close(np.concatenate([numpy(encoder(data[index][0])) for index in range(len(data))]), vectors[pairs])
    cosines = (vectors[pairs[:, 0]] * vectors[pairs[:, 1]]).sum(axis=1)
    assert encoder.evaluate(data, verbose=0) == pytest.approx(np.square(cosines - scores).mean(), abs=1e-5)


def test_training_separates_the_classes_and_leaves_the_embeddings(checkpoint):
    encoder = bz.SentenceEncoder.from_preset(checkpoint[0], verbose=False, dropout=0.0)
    before, embeddings = encoder.encode(TEXTS, normalize=True), encoder.backbone.embeddings
    table = keras.ops.convert_to_numpy(embeddings.weights[0])
    encoder.fit_classifier(TEXTS, LABELS, NAMES, epochs=8, learning_rate=3e-3, verbose=0)
    after, alike = encoder.encode(TEXTS, normalize=True), np.equal.outer(LABELS, LABELS)
    margins = [(v @ v.T)[alike].mean() - (v @ v.T)[~alike].mean() for v in (before, after)]
    assert margins[1] > margins[0] + 0.1
    assert np.array_equal(keras.ops.convert_to_numpy(embeddings.weights[0]), table) and embeddings.trainable


@pytest.mark.once
def test_three_texts_of_a_class_are_enough_for_a_pretrained_encoder(minilm):
    texts = {
        "billing": ["I was charged twice", "the invoice has a wrong amount", "please refund my payment"],
        "login": ["I forgot my password", "the code to sign in never came", "my account is locked"],
    }
    x, y = zip(*[(text, name) for name, rows in texts.items() for text in rows])
    classifier = bz.SentenceEncoder.from_preset(minilm, verbose=False).fit_classifier(x, y, list(texts), verbose=0)
    others = ["why did you take money from my card again", "I can't get into my profile", "my bill is too high"]
    assert [answer["label"] for answer in classifier.classify(others)] == ["billing", "login", "billing"]


def test_several_labels_at_once(checkpoint):
    encoder = bz.SentenceEncoder.from_preset(checkpoint[0], verbose=False)
    targets = [["film"], ["story"], ["actor"], ["story"], [], ["film"]]
    names, problem_type = ["actor", "film", "story"], "multi_label_classification"
    classifier = encoder.fit_classifier(TEXTS, targets, names, problem_type=problem_type, num_iterations=2, verbose=0)
    vectors, truth = encoder.encode(TEXTS), np.array([[name in row for name in names] for row in targets])
    expected = logistic_regression(vectors, truth, 3)
    np.testing.assert_allclose(classifier.predict(TEXTS, verbose=0), vectors @ expected[0] + expected[1], atol=1e-4)


def test_files_are_read_by_sentence_transformers_and_transformers(classifier, encoder, saved, close):
    st, transformers = pytest.importorskip("sentence_transformers"), pytest.importorskip("transformers")
    logits = classifier.predict(OTHERS, verbose=0)
    close(st.SentenceTransformer(str(saved), device="cpu").encode(OTHERS), logits)
    model, report = transformers.AutoModel.from_pretrained(saved, output_loading_info=True)
    assert not report["unexpected_keys"] and model.config.id2label == {0: "bad", 1: "good"}
    loaded = bz.TextClassifier.from_preset(saved, verbose=False)
    close(loaded.predict(OTHERS, verbose=0), logits)
    assert loaded.labels == NAMES and loaded.load_report.new == []
    fresh = bz.TextClassifier.from_preset(saved, new_head=True, labels=3, verbose=False)
    assert fresh.custom_head is None and fresh.load_report.new


def test_temperature_is_kept_in_the_preset(classifier, tmp_path):
    classifier.temperature = 2.0
    classifier.save_to_preset(tmp_path / "saved")
    classifier.temperature = 1.0
    assert bz.TextClassifier.from_preset(tmp_path / "saved", verbose=False).temperature == 2.0


def test_a_keras_archive_and_further_training(classifier, saved, tmp_path, close, eager):
    classifier.save(tmp_path / "model.keras")
    close(keras.models.load_model(tmp_path / "model.keras").predict(OTHERS, verbose=0), classifier.predict(OTHERS))
    model = bz.TextClassifier.from_preset(saved, verbose=False, dropout=0.0)
    model.compile(bz.AdamW(1e-3, warmup=0.0, schedule="constant"), run_eagerly=eager)
    losses = model.fit(TEXTS, LABELS, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


@pytest.mark.once
def test_a_quantized_encoder_is_kept(saved, tmp_path, close):
    model = bz.TextClassifier.from_preset(saved, verbose=False)
    model.backbone.quantize("int8")
    model.save_to_preset(tmp_path / "int8")
    assert (tmp_path / "int8" / "model.int8.safetensors").is_file()
    loaded = bz.TextClassifier.from_preset(tmp_path / "int8", verbose=False)
    close(loaded.predict(OTHERS, verbose=0), model.predict(OTHERS, verbose=0))


@pytest.mark.once
def test_it_is_exported_and_served_as_a_classifier(classifier, saved, tmp_path, close):
    pytest.importorskip("onnxruntime")
    from bertzoo.cli.task_choice import task_for_inference
    from bertzoo.export import OnnxModel

    assert task_for_inference(bz, saved) is bz.TextClassifier
    classifier.export(tmp_path / "exported", format="onnx", verbose=0)
    model, expected = OnnxModel.from_directory(tmp_path / "exported"), classifier.predict(OTHERS, verbose=0)
    close(model.run(model.tokenizer.encode(OTHERS))["logits"], expected, 1e-4)
    assert model.task == "TextClassifier" and model.settings["labels"] == NAMES


def test_the_encoder_keeps_its_compilation_and_what_trains(checkpoint):
    backbone = bz.Encoder.from_preset(checkpoint[0], verbose=False)
    encoder = bz.SentenceEncoder(backbone, bz.Tokenizer.from_directory(checkpoint[0]))
    bz.adapters.enable_lora(encoder, rank=2)
    encoder.compile(bz.AdamW(1e-3), "cosine")
    trained = [weight.path for weight in encoder.trainable_weights]
    pairs = [("a good film", "the story was great"), ("a bad film", "never again")]
    encoder.fit(pairs, [1.0, 0.5], verbose=0)
    encoder.fit_classifier(TEXTS, LABELS, NAMES, verbose=0)
    assert [weight.path for weight in encoder.trainable_weights] == trained
    assert "loss" in encoder.fit(pairs, [1.0, 0.5], verbose=0).history


@pytest.mark.once
def test_mistakes_are_named(encoder):
    with pytest.raises(ValueError, match="learns from single texts. Received: pairs"):
        encoder.fit_classifier((TEXTS, TEXTS), LABELS, NAMES)
    with pytest.raises(ValueError, match="problem_type must be single_label_classification or multi_label"):
        encoder.fit_classifier(TEXTS, [0.1] * 6, 1)
    with pytest.raises(ValueError, match="num_iterations must be at least 1, or None for all pairs. Received: 0"):
        encoder.fit_classifier(TEXTS, LABELS, NAMES, num_iterations=0)
    with pytest.raises(ValueError, match="expected texts with different labels"):
        encoder.fit_classifier(TEXTS, ["good"] * 6, NAMES)
    prompted = bz.SentenceEncoder(
        encoder.backbone, encoder.tokenizer, prompts={"query": "query: "}, default_prompt="query"
    )
    with pytest.raises(ValueError, match="Received: an encoder with the prompt 'query'; load it with default_prompt"):
        prompted.fit_classifier(TEXTS, LABELS, NAMES)


@pytest.mark.once
@pytest.mark.parametrize("own", ["x", ["head"], {"head": "another"}])
def test_damaged_settings_are_refused(saved, tmp_path, own):
    directory = shutil.copytree(saved, tmp_path / "damaged")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "bertzoo": own}))
    with pytest.raises(CheckpointError, match="bertzoo"):
        bz.TextClassifier.from_preset(directory, verbose=False)
