"""CrossEncoder against sentence-transformers': scores, ranking, files, and training."""

import json

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.tasks.probabilities import best_temperature, best_thresholds

QUERY = "a good film"
DOCUMENTS = ["the plot was dull and bad", "a great film", "", "we saw it in paris", "a bright story"]
PAIRS = [(QUERY, text) for text in DOCUMENTS]


@pytest.fixture(scope="module")
def st():
    return pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def written(write_checkpoint):
    """Labels -> a directory with a classifier of transformers."""
    return lambda labels, **changes: write_checkpoint(
        "BertForSequenceClassification", num_labels=labels, num_hidden_layers=1, **changes
    )[0]


@pytest.fixture(scope="module")
def preset(written):
    return written(1)


def load(directory, **options):
    return bz.CrossEncoder.from_preset(directory, verbose=False, **options)


@pytest.mark.parametrize("labels", [1, 3])
def test_scores_are_those_of_sentence_transformers_and_come_back_from_a_saved_directory(
    labels, written, st, tmp_path, close
):
    directory = written(labels)
    expected = st.CrossEncoder(str(directory), device="cpu").predict(PAIRS)
    model = load(directory)
    assert model.activation == ("sigmoid" if labels == 1 else "linear")
    close(model.predict(PAIRS, batch_size=2), expected)
    close(model.predict(PAIRS[0]), expected[0])
    model.save_to_preset(tmp_path / "saved")
    close(st.CrossEncoder(str(tmp_path / "saved"), device="cpu").predict(PAIRS), expected)
    close(load(tmp_path / "saved").predict(PAIRS), expected)


@pytest.mark.parametrize("form", ["sentence-transformers 6", "config.json", "before version 4"])
def test_the_activation_of_the_files_is_used_and_kept(form, written, st, tmp_path, close):
    import torch

    directory = written(1, seed=1)
    identity = "torch.nn.modules.linear.Identity"
    if form == "sentence-transformers 6":
        model = st.CrossEncoder(str(directory), device="cpu", activation_fn=torch.nn.Identity())
        directory = tmp_path / "reference"
        model.save_pretrained(str(directory))
    else:
        content = json.loads((directory / "config.json").read_text())
        content |= (
            {"sentence_transformers": {"activation_fn": identity}}
            if form == "config.json"
            else {"sbert_ce_default_activation_function": identity}
        )
        (directory / "config.json").write_text(json.dumps(content))
    expected = st.CrossEncoder(str(directory), device="cpu").predict(PAIRS)
    keras_model = load(directory)
    assert keras_model.activation == "linear"
    close(keras_model.predict(PAIRS), expected)
    close(keras_model.predict(PAIRS, activation="sigmoid"), 1 / (1 + np.exp(-expected)))
    keras_model.save_to_preset(tmp_path / "saved")
    close(st.CrossEncoder(str(tmp_path / "saved"), device="cpu").predict(PAIRS), expected)


@pytest.mark.slow
def test_an_activation_that_we_do_not_have_is_refused(written):
    directory = written(1, seed=2)
    content = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(
        json.dumps(content | {"sentence_transformers": {"activation_fn": "os.system"}})
    )
    with pytest.raises(CheckpointError, match="names? the activation 'os.system'|name the activation 'os.system'"):
        load(directory)
    with pytest.raises(ValueError, match="activation must be one of sigmoid, linear, softmax, tanh"):
        bz.CrossEncoder(bz.Encoder.from_preset(directory, verbose=False), activation="relu")


def test_rank_as_there(preset, st, close):
    model = load(preset)
    expected = st.CrossEncoder(str(preset), device="cpu").rank(QUERY, DOCUMENTS, return_documents=True)
    ranked = model.rank(QUERY, DOCUMENTS)
    assert [row["corpus_id"] for row in ranked] == [row["corpus_id"] for row in expected]
    assert [row["text"] for row in ranked] == [row["text"] for row in expected]
    close([row["score"] for row in ranked], [row["score"] for row in expected])
    assert model.rank(QUERY, DOCUMENTS, top_k=2) == ranked[:2]
    assert model.rank(QUERY, []) == []
    assert model.predict([]).shape == (0,)
    assert model.classify([PAIRS[0]]) == [{"value": pytest.approx(float(model.predict(PAIRS[0])))}]


SEVERAL = "multi_label_classification"


@pytest.mark.parametrize(("labels", "problem"), [(1, SEVERAL), (3, SEVERAL), (3, "single_label_classification")])
@pytest.mark.parametrize("activation", ["sigmoid", pytest.param("linear", marks=pytest.mark.once)])
def test_what_reads_logits_gets_them_whatever_the_activation(labels, problem, activation, written, st, close):
    import torch

    directory = written(labels, seed=3)
    model = load(directory, problem_type=problem, activation=activation)
    logits = st.CrossEncoder(str(directory), device="cpu").predict(PAIRS, activation_fn=torch.nn.Identity())
    logits = logits.astype("float64").reshape(len(PAIRS), labels)
    probabilities = 1 / (1 + np.exp(-logits))
    scores = probabilities if activation == "sigmoid" else logits
    close(model.predict(PAIRS), scores[:, 0] if labels == 1 else scores)
    targets = (np.arange(5 * labels).reshape(5, labels) % 2).tolist()
    if problem != SEVERAL:
        probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        targets = [0, 2, 1, 1, 2]
    close([list(answer["scores"].values()) for answer in model.classify(PAIRS)], probabilities)
    close([list(model.classify(PAIRS[1])["scores"].values())], probabilities[1:2])
    temperature = best_temperature(logits, np.array(targets))
    assert model.fit_temperature(PAIRS, targets) == pytest.approx(temperature, rel=1e-3)
    if problem == SEVERAL:
        thresholds = best_thresholds(1 / (1 + np.exp(-logits / temperature)), np.array(targets))
        assert list(model.fit_thresholds(PAIRS, targets).values()) == pytest.approx(thresholds, abs=1e-4)


def test_zero_shot_is_that_of_a_text_classifier(written):
    directory, labels = written(3, seed=4), ["entailment", "neutral", "contradiction"]
    classifier = bz.TextClassifier.from_preset(directory, verbose=False, labels=labels)
    actual = load(directory, labels=labels, activation="sigmoid")
    for several in (False, True):
        result, expected = (
            model.zero_shot(DOCUMENTS, ["good", "bad"], multi_label=several) for model in (actual, classifier)
        )
        assert [row["label"] for row in result] == [row["label"] for row in expected]
        assert [row["score"] for row in result] == pytest.approx([row["score"] for row in expected], abs=1e-5)


@pytest.mark.once
def test_the_problem_of_the_files_is_kept_where_it_can_be_this_models(written, tmp_path):
    load(written(3), problem_type=SEVERAL).save_to_preset(tmp_path / "saved")
    assert load(tmp_path / "saved").problem_type == SEVERAL
    path = written(1, seed=5) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"problem_type": "single_label_classification"}))
    assert load(path.parent).problem_type == "regression"


@pytest.fixture(scope="module")
def modular(checkpoint, st, tmp_path_factory):
    """A reranker in modules: a transformer, two poolings and two dense layers."""
    import torch
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    torch.manual_seed(0)
    encoder = Transformer(str(checkpoint[0]))
    width = encoder.get_embedding_dimension()
    pooling = Pooling(width, pooling_mode=("cls", "mean"))
    hidden = Dense(2 * width, 8, activation_function=torch.nn.GELU())
    scores = Dense(8, 1, activation_function=torch.nn.Identity(), module_output_name="scores")
    model = st.CrossEncoder(modules=[encoder, pooling, hidden, scores], device="cpu", prompts={"web": "a "})
    directory = tmp_path_factory.mktemp("modular")
    model.save_pretrained(str(directory))
    return directory, model.predict(PAIRS)


def test_directories_of_modules_are_read_and_written(modular, st, tmp_path, close, eager):
    directory, expected = modular
    model = load(directory)
    assert model.activation == "sigmoid" and model.prompts == {"web": "a "} and model.load_report.new == []
    close(model.predict(PAIRS), expected)
    model.save_to_preset(tmp_path / "saved")
    close(st.CrossEncoder(str(tmp_path / "saved"), device="cpu").predict(PAIRS), expected)
    close(load(tmp_path / "saved").predict(PAIRS), expected)
    model.save(tmp_path / "model.keras")
    close(keras.models.load_model(tmp_path / "model.keras").predict(PAIRS), expected)
    model.compile(bz.AdamW(1e-3, warmup=0.0, schedule="constant"), run_eagerly=eager)
    history = model.fit(PAIRS, [0.0, 1.0, 0.5, 0.2, 0.8], epochs=15, verbose=0).history["loss"]
    assert history[-1] < history[0]
    other = load(directory, new_head=True, labels=2)  # of the same encoder
    assert other.predict(PAIRS).shape == (5, 2)


@pytest.mark.once
def test_each_task_refuses_the_modules_of_the_other(modular, plain, tmp_path):
    with pytest.raises(CheckpointError, match="must give sentence_embedding.*Rerankers are loaded with CrossEncoder"):
        bz.SentenceEncoder.from_preset(modular[0])
    bz.SentenceEncoder.from_preset(plain, verbose=False).save_to_preset(tmp_path / "encoder")
    fresh = load(tmp_path / "encoder")  # a sentence encoder, to train a reranker from
    assert fresh.custom_head is None and fresh.load_report.new


def test_mistakes_are_named(preset, written):
    model = load(preset)
    model.compile()
    with pytest.raises(ValueError, match="scores must lie between 0 and 1. Received: values from 0 to 5"):
        model.fit(PAIRS, [0, 1, 2, 3, 5], verbose=0)
    with pytest.raises(TypeError, match="documents must be a list of strings. Received: 'abc'"):
        model.rank(QUERY, "abc")
    with pytest.raises(TypeError, match="query must be a string"):
        model.rank(None, DOCUMENTS)
    with pytest.raises(ValueError, match="activation must be one of .* Received: 'relu'"):
        model.predict(PAIRS, activation="relu")
    with pytest.raises(TypeError):
        model.rank(QUERY, ["a", None])
    with pytest.raises(ValueError, match="rank needs a model with one label"):
        load(written(3)).rank(QUERY, DOCUMENTS)


def test_it_learns_scores_by_binary_cross_entropy(preset, eager):
    model = load(preset, dropout=0.0)
    scores = np.array([0.0, 1.0, 0.5, 0.2, 0.8])
    model.compile(bz.AdamW(3e-3, warmup=0.0, schedule="constant"), run_eagerly=eager)
    p = model.predict(PAIRS)
    expected = -np.mean(scores * np.log(p) + (1 - scores) * np.log(1 - p))
    assert model.evaluate(PAIRS, scores, verbose=0) == pytest.approx(expected, abs=1e-5)
    model.fit(PAIRS, scores, epochs=30, batch_size=5, verbose=0)
    assert np.abs(model.predict(PAIRS) - scores).max() < 0.2


def test_a_keras_archive_holds_everything(preset, tmp_path, close):
    model = load(preset, activation="linear")
    model.save(tmp_path / "model.keras")
    close(keras.saving.load_model(tmp_path / "model.keras").predict(PAIRS), model.predict(PAIRS))


@pytest.mark.parametrize(("labels", "activation"), [(1, "Tanh"), (3, "Softmax"), (3, "Tanh")])
def test_other_activations_of_sentence_transformers(labels, activation, written, st, tmp_path, close):
    import torch

    directory = written(labels)
    reference = st.CrossEncoder(str(directory), device="cpu", activation_fn=getattr(torch.nn, activation)())
    reference.save(str(tmp_path / "reference"))
    expected = st.CrossEncoder(str(tmp_path / "reference"), device="cpu").predict(PAIRS)
    model = load(tmp_path / "reference")
    assert model.activation == activation.lower()
    close(model.predict(PAIRS), expected)
    model.save_to_preset(tmp_path / "saved")
    close(st.CrossEncoder(str(tmp_path / "saved"), device="cpu").predict(PAIRS), expected)
    close(load(tmp_path / "saved").predict(PAIRS), expected)


def test_prompts_of_sentence_transformers(preset, st, tmp_path, close):
    prompts = {"search": "not very ", "none": ""}
    reference = st.CrossEncoder(str(preset), device="cpu", prompts=prompts, default_prompt_name="search")
    reference.save(str(tmp_path / "reference"))
    expected, plain = reference.predict(PAIRS), reference.predict(PAIRS, prompt="")
    assert np.abs(expected - plain).max() > 1e-3
    model = load(tmp_path / "reference")
    close(model.predict(PAIRS), expected)
    close(model.predict(PAIRS[0]), expected[0])
    close(model.predict(PAIRS, prompt_name="none"), plain)
    close(model.predict(PAIRS, prompt="bad "), reference.predict(PAIRS, prompt="bad "))
    assert [row["corpus_id"] for row in model.rank(QUERY, DOCUMENTS)] == [
        row["corpus_id"] for row in reference.rank(QUERY, DOCUMENTS)
    ]
    model.save_to_preset(tmp_path / "saved")
    close(st.CrossEncoder(str(tmp_path / "saved"), device="cpu").predict(PAIRS), expected)
    close(load(tmp_path / "saved").predict(PAIRS), expected)
    model.save(tmp_path / "model.keras")
    close(keras.saving.load_model(tmp_path / "model.keras").predict(PAIRS), expected)
    with pytest.raises(ValueError, match="one of the model's prompts: none, search. Received: 'other'"):
        model.predict(PAIRS, prompt_name="other")


@pytest.mark.once
def test_the_default_prompt_is_put_before_texts_to_classify_too(write_checkpoint):
    preset = write_checkpoint(num_hidden_layers=1)[0]
    model = bz.CrossEncoder.from_preset(
        preset, prompts={"query": "we saw a "}, default_prompt="query", new_head=True, verbose=False
    )
    pairs = [("good film", "a film"), ("bad plot", "the plot")]
    scores = model.predict(pairs)
    assert not np.allclose(scores, model.predict(pairs, prompt=""), atol=1e-6)
    np.testing.assert_allclose([row["value"] for row in model.classify(pairs)], scores, rtol=1e-6)
