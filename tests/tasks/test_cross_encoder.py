"""CrossEncoder against sentence-transformers': scores, ranking, files, and training."""

import json

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.checkpoints.errors import CheckpointError

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
    theirs = st.CrossEncoder(str(directory), device="cpu").predict(PAIRS)
    ours = load(directory)
    assert ours.activation == ("sigmoid" if labels == 1 else "linear")
    close(ours.predict(PAIRS, batch_size=2), theirs)
    close(ours.predict(PAIRS[0]), theirs[0])
    ours.save_to_preset(tmp_path / "saved")
    close(st.CrossEncoder(str(tmp_path / "saved"), device="cpu").predict(PAIRS), theirs)
    close(load(tmp_path / "saved").predict(PAIRS), theirs)


@pytest.mark.parametrize("form", ["sentence-transformers 6", "config.json", "before version 4"])
def test_the_activation_of_the_files_is_used_and_kept(form, written, st, tmp_path, close):
    import torch

    directory = written(1, seed=1)
    identity = "torch.nn.modules.linear.Identity"
    if form == "sentence-transformers 6":
        model = st.CrossEncoder(str(directory), device="cpu", activation_fn=torch.nn.Identity())
        directory = tmp_path / "theirs"
        model.save_pretrained(str(directory))
    else:
        content = json.loads((directory / "config.json").read_text())
        content |= (
            {"sentence_transformers": {"activation_fn": identity}}
            if form == "config.json"
            else {"sbert_ce_default_activation_function": identity}
        )
        (directory / "config.json").write_text(json.dumps(content))
    theirs = st.CrossEncoder(str(directory), device="cpu").predict(PAIRS)
    ours = load(directory)
    assert ours.activation == "linear"
    close(ours.predict(PAIRS), theirs)
    close(ours.predict(PAIRS, activation="sigmoid"), 1 / (1 + np.exp(-theirs)))
    ours.save_to_preset(tmp_path / "saved")
    close(st.CrossEncoder(str(tmp_path / "saved"), device="cpu").predict(PAIRS), theirs)


def test_an_activation_that_we_do_not_have_is_refused(written):
    directory = written(1, seed=2)
    content = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(
        json.dumps(content | {"sentence_transformers": {"activation_fn": "os.system"}})
    )
    with pytest.raises(CheckpointError, match="names? the activation 'os.system'|name the activation 'os.system'"):
        load(directory)
    with pytest.raises(ValueError, match='activation must be "sigmoid" or "linear"'):
        bz.CrossEncoder(bz.Encoder.from_preset(directory, verbose=False), activation="tanh")


def test_rank_as_there(preset, st, close):
    ours = load(preset)
    theirs = st.CrossEncoder(str(preset), device="cpu").rank(QUERY, DOCUMENTS, return_documents=True)
    ranked = ours.rank(QUERY, DOCUMENTS)
    assert [row["corpus_id"] for row in ranked] == [row["corpus_id"] for row in theirs]
    assert [row["text"] for row in ranked] == [row["text"] for row in theirs]
    close([row["score"] for row in ranked], [row["score"] for row in theirs])
    assert ours.rank(QUERY, DOCUMENTS, top_k=2) == ranked[:2]
    assert ours.rank(QUERY, []) == []
    assert ours.predict([]).shape == (0,)
    assert ours.classify([PAIRS[0]]) == [{"value": pytest.approx(float(ours.predict(PAIRS[0])))}]


def test_mistakes_are_named(preset, written):
    model = load(preset)
    model.compile()
    with pytest.raises(ValueError, match="scores must lie between 0 and 1; they run from 0 to 5"):
        model.fit(PAIRS, [0, 1, 2, 3, 5], verbose=0)
    with pytest.raises(TypeError, match="query must be a string"):
        model.rank(None, DOCUMENTS)
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
