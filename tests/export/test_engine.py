"""The engine: what a directory holds, rows in any order and length, refusals, and answers of tasks."""

import subprocess
import sys

import numpy as np
import pytest

import bertzoo as bz
from bertzoo.export import OnnxModel
from bertzoo.export.crf import best_sequence
from bertzoo.export.engine import MOST_PADDING, TOKENS_AT_ONCE, group_rows

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow
TEXTS = ["a good film", "we saw it with friends in paris", "bad", "never again ! the plot was dull and not very good ."]


@pytest.fixture(scope="module")
def tokenizer(words):
    return bz.Tokenizer.from_vocabulary(words, max_length=32)


@pytest.fixture(scope="module")
def encoder_of(words):
    def make(**options):
        config = bz.EncoderConfig(
            vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
            max_position_embeddings=64, initializer_range=0.2, **options,
        )  # fmt: skip
        return bz.Encoder(config)

    return make


def test_a_directory_is_all_that_an_engine_needs(encoder_of, tokenizer, tmp_path, close):
    model = bz.SentenceEncoder(encoder_of(), tokenizer, prompts={"query": "film : "}, default_prompt="query")
    model.export(tmp_path / "model", format="onnx")
    code = (
        "import sys, numpy as np; from bertzoo.export import OnnxModel; m = OnnxModel.from_directory(sys.argv[1]);"
        "np.save(sys.argv[2], m.run(m.tokenizer.encode(sys.argv[3:]))['sentence_embedding']);"
        "assert not {'keras', 'jax', 'torch', 'tensorflow', 'onnx', 'transformers'} & set(sys.modules);"
        "assert m.task == 'SentenceEncoder' and m.settings['prompts'] == {'query': 'film : '};"
        "assert m.settings['default_prompt'] == 'query' and m.settings['width'] == 32"
    )
    vectors = tmp_path / "vectors.npy"
    subprocess.run([sys.executable, "-c", code, tmp_path / "model", vectors, *TEXTS], check=True)
    close(np.load(vectors), model.encode(TEXTS, prompt=""), 1e-5)


@pytest.mark.once
def test_rows_of_any_order_and_length(encoder_of, tmp_path, close):
    model = bz.SentenceEncoder(encoder_of())
    model.export(tmp_path / "model", format="onnx")
    engine, rng = OnnxModel.from_directory(tmp_path / "model"), np.random.default_rng(0)
    rows = [rng.integers(5, 40, n).tolist() for n in rng.permutation(np.arange(300) % 64 + 1)]
    outputs = engine.run(rows)
    assert outputs["token_embeddings"].shape == (300, 64, 32)
    for i in (0, 7, 299):
        alone = engine.run([rows[i]])
        close(outputs["sentence_embedding"][i], alone["sentence_embedding"][0], 1e-5)
        close(outputs["token_embeddings"][i, : len(rows[i])], alone["token_embeddings"][0], 1e-5)
        assert not outputs["token_embeddings"][i, len(rows[i]) :].any()
    only = engine.run(rows, ["sentence_embedding"])
    assert list(only) == ["sentence_embedding"]


@pytest.mark.once
def test_logits_of_mask_tokens_alone(encoder_of, tokenizer, tmp_path, close):
    bz.MaskedLM(encoder_of(), tokenizer).export(tmp_path / "model", format="onnx")
    engine, rng = OnnxModel.from_directory(tmp_path / "model"), np.random.default_rng(0)
    rows = [rng.choice([4, 5, 6, 7], n).tolist() for n in rng.permutation(np.arange(100) % 32 + 1)]
    outputs = engine.run(rows)
    is_mask = np.array([row + [0] * (32 - len(row)) for row in rows]) == tokenizer.mask_id
    assert len(outputs["mask_logits"]) == is_mask.sum() > 100
    close(outputs["mask_logits"], outputs["logits"][is_mask], 1e-5)
    assert engine.run([[5, 6]], ["mask_logits"])["mask_logits"].shape == (0, len(tokenizer.vocabulary))


@pytest.mark.once
def test_groups_of_rows():
    lengths = np.random.default_rng(0).integers(1, 512, 1000)
    groups = group_rows(lengths)
    assert np.array_equal(np.sort(np.concatenate(groups)), np.arange(1000))
    for group in groups:
        real = lengths[group].sum()
        assert len(group) == 1 or (real <= TOKENS_AT_ONCE and len(group) * lengths[group].max() <= MOST_PADDING * real)
        assert (np.diff(group) > 0).all()


@pytest.mark.once
def test_what_the_engine_refuses(encoder_of, tmp_path):
    bz.SentenceEncoder(encoder_of()).export(tmp_path / "model", format="onnx")
    engine = OnnxModel.from_directory(tmp_path / "model")
    for rows, message in [
        ([], "Received: no rows"),
        ([[5], []], "rows of 1 to 64 tokens. Received: rows of 0 to 1"),
        ([[5] * 65], "Received: rows of 65 to 65"),
        ([[5, 10_000]], "token ids from 0 to .* Received: ids from 5 to 10000"),
        ([[2**40]], "Received: ids from"),
        ([[-1]], "Received: ids from -1"),
    ]:
        with pytest.raises(ValueError, match=message):
            engine.run(rows)
    with pytest.raises(FileNotFoundError, match=r"Expected a directory with model\.onnx"):
        OnnxModel.from_directory(tmp_path)


def answers_of(model):
    if isinstance(model, bz.SentenceEncoder):
        return model.encode(TEXTS)
    if isinstance(model, bz.CrossEncoder):
        return model.predict([(TEXTS[0], text) for text in TEXTS])
    if isinstance(model, bz.TextClassifier):
        return [list(answer["scores"].values()) for answer in model.classify(TEXTS)]
    if isinstance(model, bz.TokenClassifier):
        return np.concatenate(model.predict([text * 20 for text in TEXTS]))
    if isinstance(model, bz.QuestionAnswerer):
        return [answer["score"] for answer in model.answer(["a film"] * 4, [text * 20 for text in TEXTS])]
    if isinstance(model, bz.MultipleChoice):
        return model.predict((TEXTS[:2], [TEXTS[:3], TEXTS[2:]]))
    return [filled["score"] for filled in model.fill_mask("a [MASK] film")]


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("SentenceEncoder", {}),
        ("SentenceEncoder", {"pooling": bz.layers.Pooling("mean", include_prompt=False), "prompts": {"q": "film : "}}),
        ("TextClassifier", {"labels": 3}),
        ("CrossEncoder", {}),
        ("TokenClassifier", {"labels": ["O", "B-X", "I-X"], "crf": True}),
        ("QuestionAnswerer", {}),
        ("MultipleChoice", {}),
        ("MaskedLM", {}),
    ],
)
def test_tasks_answer_by_onnx(task, options, encoder_of, tokenizer, close, monkeypatch):
    if "prompts" in options:
        options = {**options, "default_prompt": "q"}
    model = getattr(bz, task)(encoder_of(), tokenizer, **options)
    expected, runs = np.array(answers_of(model)), []
    run = OnnxModel.run
    monkeypatch.setattr(OnnxModel, "run", lambda self, *rest: runs.append(1) or run(self, *rest))
    with model.onnx_inference(num_threads=1):
        before = len(runs)
        close(np.array(answers_of(model)), expected, 1e-5)
        assert len(runs) > before
        model.compile()
        with pytest.raises(RuntimeError, match="leave its context before fit"):
            model.fit(TEXTS)
    count = len(runs)
    close(np.array(answers_of(model)), expected, 1e-6)
    assert len(runs) == count


def test_a_crf_in_numpy(encoder_of, numpy):
    """Its best labels and marginals are those of the layer, with transitions that are forbidden."""
    model = bz.TokenClassifier(encoder_of(), labels=["O", "B-X", "I-X", "B-Y", "I-Y"], crf=True)
    rng = np.random.default_rng(0)
    model.crf.transitions.assign(rng.normal(size=(6, 6)))
    table = np.array(model.exported_settings()["crf"])
    emissions = rng.normal(size=(3, 7, 5)).astype("float32") * 2
    mask = np.arange(7) < np.array([[7], [1], [4]])
    best, marginals = numpy(model.crf.viterbi(emissions, mask)), numpy(model.crf.marginals(emissions, mask))
    for row in range(3):
        length = mask[row].sum()
        labels, probabilities = best_sequence(emissions[row, :length], table)
        assert labels.tolist() == best[row, :length].tolist()
        expected = marginals[row, np.arange(length), labels]
        np.testing.assert_allclose(probabilities, expected, atol=1e-4)
    assert best_sequence(emissions[0, :0], table)[0].shape == (0,)
