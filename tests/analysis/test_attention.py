"""Attention maps against transformers' weights, and their measures against NumPy from the formulas."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Rust
from tokenizers import models, pre_tokenizers

import bertzoo as bz
from bertzoo.analysis.attention import attention_maps
from bertzoo.analysis.pieces import encode_with_words
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.vocabulary_files import ROBERTA_TOKENS, SPECS

TEXTS = ["unhappily, the film was BAD.", "Paris in rome"]
PIECES = ("[CLS]", "un", "##happi", "##ly", ",", "the", "film", "was", "BAD", ".", "[SEP]")
WORDS = ("[CLS]", "unhappily", ",", "the", "film", "was", "BAD", ".", "[SEP]")


@pytest.fixture(scope="module")
def task(write_checkpoint, words):
    directory, reference = write_checkpoint("BertForSequenceClassification")
    task = bz.TextClassifier.from_preset(directory, verbose=False)
    vocabulary = [word if word != "##happy" else "##happi" for word in words]
    task.tokenizer = Tokenizer.from_vocabulary(vocabulary, max_length=64)
    return task, reference


def test_weights_are_transformers_and_padding_gets_none(task, close):
    result, reference = task
    encoded, _ = encode_with_words(result, TEXTS)
    maps = attention_maps(result, TEXTS)
    assert [actual.weights.shape for actual in maps] == [(2, 4, 11, 11), (2, 4, 5, 5)]
    for row, actual in enumerate(maps):  # the second was computed with padding, the reference without
        with torch.no_grad():
            expected = reference(torch.tensor(encoded.row(row))[None].long(), output_attentions=True).attentions
        close(actual.weights, torch.stack(expected)[:, 0])
        close(actual.weights.sum(axis=-1), np.ones(actual.weights.shape[:-1]))
    encoder = result.backbone
    (alone,) = attention_maps(encoder, TEXTS[1], tokenizer=result.tokenizer, batch_size=1)
    close(alone.weights, maps[1].weights)
    with pytest.raises(ValueError, match="pass tokenizer="):
        attention_maps(encoder, TEXTS)


def test_names_and_words(task):
    (actual, second) = attention_maps(task[0], TEXTS)
    assert actual.names == PIECES
    assert actual.word_names == WORDS
    assert actual.word_of.tolist() == [0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8]
    assert second.names == second.word_names == ("[CLS]", "Paris", "in", "rome", "[SEP]")


def test_names_of_pairs_written_specials_and_empty_texts(task):
    _, (pair, late, empty) = encode_with_words(task[0], ["the [MASK]", "", ""], ["un!", "unhappi", ""])
    assert pair.strings == ("[CLS]", "the", "[MASK]", "[SEP]", "un", "!", "[SEP]")
    assert late.strings == ("[CLS]", "[SEP]", "un", "##happi", "[SEP]")
    assert late.words == ("[CLS]", "[SEP]", "unhappi", "[SEP]")
    assert empty.strings == empty.words == ("[CLS]", "[SEP]", "[SEP]")


def test_names_of_byte_level_pieces_are_the_texts_characters(task):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *alphabet, "Ġc"]
    rust = Rust(models.BPE({token: i for i, token in enumerate(tokens)}, [("Ġ", "c")], unk_token="<unk>"))
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.post_processor = SPECS["roberta"].build_post_processor(rust, ROBERTA_TOKENS)
    tokenizer = Tokenizer(rust, ROBERTA_TOKENS)
    _, (actual,) = encode_with_words(task[0], "a cé", tokenizer=tokenizer)
    assert actual.strings[:3] == ("<s>", "a", "c") and actual.strings[3].startswith("##")
    assert actual.words == ("<s>", "a", "cé", "</s>")


def test_between_words_sums_to_and_averages_from(task, close):
    actual = attention_maps(task[0], TEXTS)[0]
    words = actual.by_word()
    expected = np.zeros((2, 4, 9, 9))
    for row in range(9):
        for column in range(9):
            rows, columns = (np.flatnonzero(actual.word_of == i) for i in (row, column))
            expected[:, :, row, column] = np.mean([actual.weights[:, :, i, columns].sum(axis=-1) for i in rows], axis=0)
    close(words.weights, expected)
    close(words.weights.sum(axis=-1), np.ones((2, 4, 9)))
    assert words.names == WORDS
    close(words.by_word().weights, words.weights)


def test_entropy_distance_and_rollout_from_the_formulas(task, close):
    actual = attention_maps(task[0], TEXTS)[0]
    weights = actual.weights.astype("float64")
    for layer in range(2):
        for head in range(4):
            rows = weights[layer, head]
            close(actual.entropy_by_head()[layer, head], np.mean([sum(-p * np.log(p) for p in row) for row in rows]))
            far = [sum(p * abs(i - j) for j, p in enumerate(row)) for i, row in enumerate(rows)]
            close(actual.mean_distance_by_head()[layer, head], np.mean(far))
    mixed = [(weights[layer].mean(axis=0) + np.eye(11)) / 2 for layer in range(2)]
    close(actual.rollout(), np.stack([mixed[0], mixed[1] @ mixed[0]]))
    close(actual.rollout().sum(axis=-1), np.ones((2, 11)))


def test_zero_weights_have_no_entropy(task):
    actual = attention_maps(task[0], TEXTS)[1]
    one_place = type(actual)(np.eye(5)[None, None], actual.names, actual.word_names, actual.word_of)
    assert one_place.entropy_by_head().tolist() == [[0]] and one_place.mean_distance_by_head().tolist() == [[0]]
