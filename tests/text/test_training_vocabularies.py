"""Byte-level BPE and Unigram vocabularies: which special tokens, the same each time, and what they encode."""

import io
import subprocess
import sys
from functools import partial

import pytest
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoTokenizer

import bertzoo as bz
from bertzoo.text.vocabulary import train_byte_bpe, train_unigram

pytestmark = pytest.mark.once

sentencepiece = pytest.importorskip("sentencepiece")

TRAINERS = {"byte_bpe": (partial(train_byte_bpe, progress=False), 700), "unigram": (train_unigram, 500)}


def pieces(tokenizer) -> list[str]:
    return [tokenizer.id_to_token(i) for i in range(tokenizer.vocabulary_size)]


def test_byte_bpe_agrees_with_the_library(corpus, marked_probes):
    tokenizer = train_byte_bpe(corpus, 700, progress=False)
    hf_tokenizer = ByteLevelBPETokenizer()
    hf_tokenizer.train_from_iterator(
        corpus, 700, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False
    )
    assert pieces(tokenizer) == [hf_tokenizer.id_to_token(i) for i in range(700)]
    assert [tokenizer.encode(p).row(0)[1:-1].tolist() for p in marked_probes] == [
        hf_tokenizer.encode(p).ids for p in marked_probes
    ]
    assert tokenizer.decode(tokenizer.encode("Café 漢字 👍🏽").row(0)) == "Café 漢字 👍🏽"
    assert tokenizer("a", "b")["token_ids"][0, [0, 2, 3, 5]].tolist() == [0, 2, 2, 2]


def test_unigram_rows(corpus):
    tokenizer = train_unigram(corpus, 500)
    assert pieces(tokenizer)[:5] == ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    assert tokenizer.decode(tokenizer.encode("the film was bright").row(0)) == "the film was bright"
    first, second = (tokenizer.encode(t).row(0)[1:-1].tolist() for t in ("the film", "a plot"))
    batch = tokenizer("the film", "a plot")
    assert batch["token_ids"].tolist() == [[1, *first, 2, *second, 2]] and batch["segment_ids"][0, -1] == 1


def test_unigram_needs_room_for_the_characters():
    texts = [chr(0x4E00 + i) * (3 + i % 50) for i in range(400)]
    with pytest.raises(ValueError, match="can't learn 105 pieces"):
        train_unigram(texts, 105)


@pytest.mark.slow
def test_unigram_agrees_with_sentencepiece(corpus):
    """Ids are those of a model that sentencepiece trains on its own, behind the special tokens."""
    tokenizer, file = train_unigram(corpus, 300), io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=file, vocab_size=296, minloglevel=2, num_threads=1,
        bos_id=-1, eos_id=-1, unk_id=0,
    )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
    for text in ("the film was bright", "Straße привет 日本語"):
        pieces = [p if p in tokenizer.vocabulary else "[UNK]" for p in processor.encode(text, out_type=str)]
        assert tokenizer.encode(text).row(0)[1:-1].tolist() == [tokenizer.token_to_id(piece) for piece in pieces]


def test_unigram_with_the_special_tokens_of_albert(corpus):
    tokens = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
    tokenizer = train_unigram(corpus, 300, lowercase=True, special_tokens=tokens)
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id) == (
        0,
        1,
        2,
        3,
        4,
    )
    assert not any(p != p.lower() for p in pieces(tokenizer)[5:]) and tokenizer.lowercases
    assert 1 in tokenizer.encode("\U00010330").row(0)


@pytest.mark.parametrize("name", TRAINERS)
def test_written_files_load_in_transformers(name, corpus, tmp_path, marked_probes):
    train, size = TRAINERS[name]
    tokenizer = train(corpus, size)
    for file, content in tokenizer.file_contents().items():
        (tmp_path / file).write_bytes(content)
    hf_tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer(marked_probes)["token_ids"].tolist() == hf_tokenizer(marked_probes, padding=True)["input_ids"]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINERS)
def test_the_same_texts_give_the_same_files(name, corpus, tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(corpus), "utf-8")
    code = (
        "import hashlib, sys; from pathlib import Path; from bertzoo.text.vocabulary import *\n"
        f"t = train_{name}(Path(sys.argv[1]), {TRAINERS[name][1]})\n"
        "print(hashlib.sha256(t.file_contents()['tokenizer.json']).hexdigest())"
    )
    run = [sys.executable, "-c", code, str(tmp_path / "corpus.txt")]
    digests = [subprocess.run(run, capture_output=True, text=True, check=True).stdout for _ in range(3)]
    assert len(set(digests)) == 1


def test_a_missing_sentencepiece_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ImportError, match="pip install sentencepiece"):
        bz.train_unigram(["a b"], 20)


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
