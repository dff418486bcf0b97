"""Byte-level BPE and Unigram vocabularies: which special tokens, the same each time, and what they encode."""

import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from tokenizers import ByteLevelBPETokenizer, SentencePieceUnigramTokenizer
from transformers import AutoTokenizer

import bertzoo as bz
from bertzoo.text import unigram
from bertzoo.text.vocabulary import train_byte_bpe, train_unigram

pytestmark = pytest.mark.once

TRAINERS = {"byte_bpe": (partial(train_byte_bpe, progress=False), 700), "unigram": (train_unigram, 500)}


def pieces(tokenizer) -> list[str]:
    return [tokenizer.id_to_token(i) for i in range(tokenizer.vocabulary_size)]


def test_byte_bpe_agrees_with_the_library(corpus, marked_probes):
    ours = train_byte_bpe(corpus, 700, progress=False)
    theirs = ByteLevelBPETokenizer()
    theirs.train_from_iterator(
        corpus, 700, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False
    )
    assert pieces(ours) == [theirs.id_to_token(i) for i in range(700)]
    assert [ours.encode(p).row(0)[1:-1].tolist() for p in marked_probes] == [
        theirs.encode(p).ids for p in marked_probes
    ]
    assert ours.decode(ours.encode("Café 漢字 👍🏽").row(0)) == "Café 漢字 👍🏽"
    assert ours("a", "b")["token_ids"][0, [0, 2, 3, 5]].tolist() == [0, 2, 2, 2]


@pytest.mark.parametrize("size", [200, 500, 1000])
def test_unigram_cuts_texts_as_short_as_the_library(corpus, size):
    ours = train_unigram(corpus, size)
    theirs = SentencePieceUnigramTokenizer()
    theirs.train_from_iterator(corpus, size, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False)
    assert size - 10 <= ours.vocabulary_size <= size
    tokens = ours.encode(corpus).lengths.sum() - 2 * len(corpus)
    assert tokens <= 1.02 * sum(len(theirs.encode(line).ids) for line in corpus)


def test_unigram_rows(corpus):
    ours = train_unigram(corpus, 500)
    assert pieces(ours)[:5] == ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    assert ours.decode(ours.encode("the film was bright").row(0)) == "the film was bright"
    first, second = (ours.encode(t).row(0)[1:-1].tolist() for t in ("the film", "a plot"))
    batch = ours("the film", "a plot")
    assert batch["token_ids"].tolist() == [[1, *first, 2, *second, 2]] and batch["segment_ids"][0, -1] == 1


def test_expected_counts_are_those_of_all_ways_to_cut():
    """Against every segmentation, one by one."""
    words, known = {"abab": 3, "ba": 2, "a": 5}, ["a", "b", "ab", "aba", "ba"]
    scores = np.log(np.array([0.3, 0.25, 0.2, 0.1, 0.15]))
    expected = dict.fromkeys(known, 0.0)

    def cuts(word):
        if not word:
            yield []
        for end in range(1, len(word) + 1):
            if word[:end] in known:
                yield from ([word[:end], *rest] for rest in cuts(word[end:]))

    for word, count in words.items():
        ways = list(cuts(word))
        weights = [np.exp(sum(scores[known.index(p)] for p in way)) for way in ways]
        for way, weight in zip(ways, weights):
            for piece in way:
                expected[piece] += count * weight / sum(weights)
    found = unigram._Lattice(words, known).expected_counts(scores)
    np.testing.assert_allclose(found, list(expected.values()), rtol=1e-12)


def test_digamma():
    scipy = pytest.importorskip("scipy.special")
    x = np.array([0.001, 0.5, 1.0, 3.7, 7.0, 1e6])
    np.testing.assert_allclose(unigram._digamma(x), scipy.digamma(x), rtol=1e-8)


def test_unigram_keeps_the_most_frequent_characters_of_many():
    texts = [chr(0x4E00 + i) * (3 + i % 50) for i in range(400)]
    ours = train_unigram(texts, 105)
    assert ours.vocabulary_size <= 105 and ours.unk_id in ours.encode(texts[0]).row(0)
    assert ours.unk_id not in ours.encode(texts[49]).row(0)


def test_unigram_with_the_special_tokens_of_albert(corpus):
    tokens = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
    ours = train_unigram(corpus, 300, lowercase=True, special_tokens=tokens)
    assert (ours.pad_id, ours.unk_id, ours.cls_id, ours.sep_id, ours.mask_id) == (0, 1, 2, 3, 4)
    assert not any(p != p.lower() for p in pieces(ours)[5:]) and ours.lowercase
    assert 1 in ours.encode("\U00010330").row(0)


@pytest.mark.parametrize("name", TRAINERS)
def test_written_files_load_in_transformers(name, corpus, tmp_path, marked_probes):
    train, size = TRAINERS[name]
    ours = train(corpus, size)
    for file, content in ours.files().items():
        (tmp_path / file).write_bytes(content)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert ours(marked_probes)["token_ids"].tolist() == theirs(marked_probes, padding=True)["input_ids"]


@pytest.mark.parametrize("name", TRAINERS)
def test_the_same_texts_give_the_same_files(name, corpus, tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(corpus), "utf-8")
    code = (
        "import hashlib, sys; from pathlib import Path; from bertzoo.text.vocabulary import *\n"
        f"t = train_{name}(Path(sys.argv[1]), {TRAINERS[name][1]})\n"
        "print(hashlib.sha256(t.files()['tokenizer.json']).hexdigest())"
    )
    run = [sys.executable, "-c", code, str(tmp_path / "corpus.txt")]
    digests = [subprocess.run(run, capture_output=True, text=True, check=True).stdout for _ in range(3)]
    assert len(set(digests)) == 1


def test_the_order_of_texts_does_not_matter(corpus):
    assert pieces(train_unigram(corpus, 300)) == pieces(train_unigram(corpus[::-1], 300))


@pytest.mark.parametrize("name", TRAINERS)
def test_wrong_arguments_are_named(name):
    train, size = TRAINERS[name]
    with pytest.raises(ValueError, match="no text"):
        train([], size)
    with pytest.raises(ValueError, match="no text"):
        train([" ", ""], size)
    with pytest.raises(ValueError, match="special_tokens must hold"):
        train(["a b"], size, special_tokens=("x",))
    with pytest.raises(ValueError, match="vocabulary_size=6 leaves no room"):
        train(["a b"], 6)
    with pytest.raises(TypeError, match=r"texts_or_files\[1\]"):
        train(["a", None], size)


def test_they_are_public():
    assert bz.train_byte_bpe is train_byte_bpe and bz.train_unigram is train_unigram
