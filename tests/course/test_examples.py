"""The worked examples: their parts on a tiny model; the relations learnt on PyTorch, where it takes seconds."""

import entailment
import numpy as np
import pytest
import relations
from keras import ops
from templated import MARKERS, RELATIONS
from templated import entailment as make_pairs
from templated import relations as make_relations

import bertzoo as bz
from bertzoo.tasks.added_tokens import add_tokens

pytestmark = pytest.mark.slow

TEXTS = ["[E1] Anna Bell [/E1] works for [E2] Royal Bank [/E2] .", "[E2] Royal Bank [/E2] hired [E1] Anna Bell [/E1] ."]


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    """A masked LM with one layer of width 16 that knows the words of both sets."""
    texts = [*make_relations(300, 0)[0], *make_pairs(300, 0)[0]]
    words = sorted({word.lower() for text in texts for word in text.split() if word not in MARKERS})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    config = bz.EncoderConfig(
        vocab_size=len(tokens),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    directory = tmp_path_factory.mktemp("presets") / "tiny"
    tokenizer = bz.Tokenizer.from_vocabulary(tokens, max_length=64)
    bz.MaskedLM(bz.Encoder(config, pooler=False), tokenizer).save_to_preset(directory)
    return directory


def test_added_tokens_change_nothing_else(preset, tmp_path):
    import transformers

    encoder = bz.Encoder.from_preset(preset, pooler=False, verbose=False)
    tokenizer = bz.Tokenizer.from_directory(preset)
    larger, knowing = add_tokens(encoder, tokenizer, MARKERS)
    size = encoder.config.vocab_size
    assert [knowing.token_to_id(marker) for marker in MARKERS] == [size + i for i in range(4)]
    assert tokenizer.vocabulary_size == size and knowing.vocabulary_size == larger.config.vocab_size == size + 4
    plain = tokenizer(["anna works for royal bank ."])
    assert all(np.array_equal(plain[name], knowing(["anna works for royal bank ."])[name]) for name in plain)
    before, after = (ops.convert_to_numpy(model(plain)["sequence_output"]) for model in (encoder, larger))
    np.testing.assert_array_equal(before, after)
    table = ops.convert_to_numpy(larger.embeddings.token)
    assert np.isclose(table[size:], table[:size].mean(axis=0), atol=2 * 0.02 + 1e-6).all()
    larger.save_to_preset(tmp_path / "larger", knowing)
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path / "larger")
    assert reference(TEXTS)["input_ids"] == [row[row > 0].tolist() for row in knowing(TEXTS)["token_ids"]]
    again, same = add_tokens(larger, knowing, MARKERS)
    assert again.config.vocab_size == size + 4 and same.vocabulary_size == size + 4


def test_the_head_reads_the_vectors_of_the_markers(preset, tmp_path, close):
    model = relations.make(preset)
    inputs = model.tokenizer(TEXTS)
    states = ops.convert_to_numpy(model.backbone(inputs)["sequence_output"])
    kernel, bias = (ops.convert_to_numpy(weight) for weight in model.classifier.weights)
    assert kernel.shape == (32, len(RELATIONS))
    starts = [[inputs["token_ids"][row].tolist().index(model.tokenizer.token_to_id(marker)) for marker in
               ("[E1]", "[E2]")] for row in range(2)]  # fmt: skip
    assert starts == [[1, 7], [6, 1]]
    expected = np.stack([np.concatenate(states[row, places]) for row, places in enumerate(starts)]) @ kernel + bias
    logits = model.predict(TEXTS, verbose=0)
    close(logits, expected)
    model.save_to_preset(tmp_path / "saved")
    loaded = relations.RelationClassifier.from_preset(tmp_path / "saved", verbose=False)
    close(loaded.predict(TEXTS, verbose=0), logits)
    assert loaded.classify(TEXTS)[0]["label"] in RELATIONS


def test_relations_run_on_a_tiny_model(preset):
    model = relations.make(preset)
    relations.fit(model, rows=32, epochs=1)
    assert 0 <= relations.accuracy(model, rows=20) <= 1


@pytest.mark.once  # its model is a plain TextClassifier
def test_entailment_runs_on_a_tiny_model(preset):
    actual = entailment.scores(entailment.fit(preset, rows=32, epochs=1), rows=60)
    assert actual.keys() == {"all", "traps"} and all(0 <= score <= 1 for score in actual.values())
    assert entailment.is_trap("the doctor helped the judge .", "the judge helped the doctor .", "neutral")
    assert not entailment.is_trap("the doctor slept .", "the doctor did not sleep .", "contradiction")


def test_relations_are_learnt_from_the_markers(backend):
    if backend != "torch":
        pytest.skip("one run is one run on every backend, and PyTorch compiles nothing")
    model = relations.make()
    relations.fit(model, rows=320, epochs=2, rate=5e-4)
    assert relations.accuracy(model, rows=100) > 0.8  # without the markers at most 0.5
