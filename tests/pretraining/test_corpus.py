"""TokenCorpus from documents written by hand."""

import errno
import json
import os

import numpy as np
import pytest

import bertzoo as bz
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.pretraining import corpus as corpus_module
from bertzoo.pretraining.corpus import TokenCorpus, prepare_corpus

pytestmark = pytest.mark.once

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "##e"]
A, B, C, D, E, UNK, SEP = 5, 6, 7, 8, 9, 1, 3


@pytest.fixture
def tokenizer():
    return bz.Tokenizer.from_vocabulary(WORDS)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "one.txt").write_text("\n\na b\n  c  \n\n\nd\n", encoding="utf-8")
    (tmp_path / "two.txt").write_text("be zz\na", encoding="utf-8")
    (tmp_path / "none.txt").write_text("\n \n", encoding="utf-8")
    return [tmp_path / name for name in ("one.txt", "none.txt", "two.txt")]


def test_content(files, tokenizer, tmp_path):
    shards = prepare_corpus(files, tokenizer, tmp_path / "shards")
    assert shards.tokens.tolist() == [A, B, C, SEP, D, SEP, B, E, UNK, A, SEP]
    assert shards.documents.tolist() == [0, 4, 6, 11]
    assert shards.tokens.dtype == np.uint16
    assert json.loads((tmp_path / "shards" / "corpus.json").read_text()) == {"tokens": 11, "documents": 3}
    assert {path.name for path in (tmp_path / "shards").iterdir()} == {
        "tokens.npy",
        "documents.npy",
        "corpus.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    again = TokenCorpus.open(tmp_path / "shards")
    np.testing.assert_array_equal(again.tokens, shards.tokens)
    assert again.tokenizer.vocabulary_size == 10 and isinstance(again.tokens, np.memmap)


def test_documents_longer_than_a_model_are_kept_whole_and_many_fit(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("bertzoo.pretraining.corpus.DOCUMENTS_AT_ONCE", 7)
    tokenizer.max_length = 8
    documents = [" ".join("abcd"[(i + j) % 4] for j in range(1 + i * 3)) for i in range(40)]
    (tmp_path / "x.txt").write_text("\n\n".join(documents))
    shards = prepare_corpus([tmp_path / "x.txt"], tokenizer, tmp_path / "shards")
    assert tokenizer.max_length == 8 and shards.tokenizer.max_length is None
    for i, text in enumerate(documents):
        ids = shards.tokens[shards.documents[i] : shards.documents[i + 1]].tolist()
        assert ids == ["abcd".index(letter) + 5 for letter in text.split()] + [SEP]


def test_mistakes_are_named(files, tokenizer, tmp_path):
    with pytest.raises(ValueError, match="expected texts"):
        prepare_corpus([files[1]], tokenizer, tmp_path / "empty")
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin.txt is not UTF-8 text"):
        prepare_corpus([tmp_path / "latin.txt"], tokenizer, tmp_path / "latin")
    with pytest.raises(ValueError, match="is not a corpus: it lacks tokens.npy, documents.npy, tokenizer.json"):
        TokenCorpus.open(tmp_path)
    prepare_corpus(files, tokenizer, tmp_path / "shards")
    smaller = bz.Tokenizer.from_vocabulary(WORDS[:8])
    for name, content in smaller.file_contents().items():
        (tmp_path / "shards" / name).write_bytes(content)
    with pytest.raises(ValueError, match="must be below 8"):
        TokenCorpus.open(tmp_path / "shards")


@pytest.fixture
def many(tmp_path):
    documents = [" ".join("abcd"[(i + j) % 4] for j in range(1 + i % 13)) for i in range(200)]
    (tmp_path / "many.txt").write_text("\n\n".join(documents))
    return tmp_path / "many.txt"


def content(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@pytest.mark.slow
def test_the_same_whatever_the_number_of_processes(many, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_module, "DOCUMENTS_AT_ONCE", 7)
    seen = []
    prepare_corpus([many], tokenizer, tmp_path / "one", on_progress=lambda *values: seen.append(values))
    prepare_corpus([many], tokenizer, tmp_path / "three", num_processes=3)
    assert content(tmp_path / "one") == content(tmp_path / "three")
    assert seen == sorted(seen) and seen[-1] == (200, 1.0)
    loaded = np.load(tmp_path / "one" / "tokens.npy")  # NumPy reads the header that was written by hand
    assert loaded.dtype == np.uint16 and len(loaded) == json.loads((tmp_path / "one/corpus.json").read_text())["tokens"]


@pytest.mark.parametrize("notes", [1, 3])
def test_taken_up_where_it_was_stopped(many, tokenizer, tmp_path, monkeypatch, notes):
    monkeypatch.setattr(corpus_module, "DOCUMENTS_AT_ONCE", 7)
    monkeypatch.setattr(corpus_module, "CHUNKS_PER_RECORD", notes)
    prepare_corpus([many], tokenizer, tmp_path / "whole")
    encode, calls = corpus_module._encode, []

    def dying(*arguments):
        if len(calls) == 10:
            raise KeyboardInterrupt
        calls.append(1)
        return encode(*arguments)

    monkeypatch.setattr(corpus_module, "_encode", dying)
    monkeypatch.setattr(corpus_module._PartialCorpus, "__exit__", lambda self, *_: None)  # as if killed
    with pytest.raises(KeyboardInterrupt):
        prepare_corpus([many], tokenizer, tmp_path / "stopped")
    assert not (tmp_path / "stopped").exists()
    monkeypatch.undo()
    monkeypatch.setattr(corpus_module, "DOCUMENTS_AT_ONCE", 7)
    seen = []
    prepare_corpus([many], tokenizer, tmp_path / "stopped", on_progress=lambda *values: seen.append(values))
    assert seen[0][0] == 7 + 7 * (10 // notes * notes)
    assert content(tmp_path / "stopped") == content(tmp_path / "whole")
    assert not list(tmp_path.glob(".*"))


def test_unfinished_work_on_other_texts_is_not_taken_up(many, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_module, "CHUNKS_PER_RECORD", 1)
    monkeypatch.setattr(corpus_module._PartialCorpus, "files", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prepare_corpus([many], tokenizer, tmp_path / "shards")
    monkeypatch.undo()
    many.write_text("a b\n\nc d d")
    assert prepare_corpus([many], tokenizer, tmp_path / "shards").tokens.tolist() == [A, B, SEP, C, D, D, SEP]


def no_links(*_, **__):
    raise OSError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_the_tokens_outlive_a_failure_to_write_the_shards(many, tokenizer, tmp_path, monkeypatch, error, links):
    monkeypatch.setattr(corpus_module, "DOCUMENTS_AT_ONCE", 7)
    prepare_corpus([many], tokenizer, tmp_path / "whole")

    def fail(*_):
        raise error

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(corpus_module, "save_array", fail)  # documents.npy, after tokens.npy
    with pytest.raises((CheckpointError, KeyboardInterrupt)):
        prepare_corpus([many], tokenizer, tmp_path / "shards")
    monkeypatch.undo()
    monkeypatch.setattr(corpus_module, "_encode", lambda *_: 1 / 0)  # there is nothing left to tokenize
    prepare_corpus([many], tokenizer, tmp_path / "shards")
    assert content(tmp_path / "shards") == content(tmp_path / "whole")
    assert not list(tmp_path.glob(".*"))


def test_finished_shards_are_not_written_to_by_later_work(files, many, tokenizer, tmp_path, monkeypatch):
    """As if killed when the shards stood in their place and the tokens' first name was still there."""
    monkeypatch.setattr(corpus_module._PartialCorpus, "remove", lambda self: None)
    before = prepare_corpus(files, tokenizer, tmp_path / "shards").tokens.tolist()
    monkeypatch.setattr(corpus_module, "_encode", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prepare_corpus([many], tokenizer, tmp_path / "shards")
    assert TokenCorpus.open(tmp_path / "shards").tokens.tolist() == before


def test_files_are_closed_where_the_note_cannot_be_written(many, tokenizer, tmp_path, monkeypatch):
    unfinished = []

    def fail(corpus):
        unfinished.append(corpus)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(corpus_module._PartialCorpus, "_record", fail)
    with pytest.raises(OSError, match="No space left"):
        prepare_corpus([many], tokenizer, tmp_path / "shards")
    assert all(file.closed for file in unfinished[0]._files)


def test_old_shards_stay_until_the_new_ones_are_whole(files, many, tokenizer, tmp_path, monkeypatch):
    before = prepare_corpus(files, tokenizer, tmp_path / "shards").tokens.tolist()
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="not UTF-8"):
        prepare_corpus([many, tmp_path / "bad.txt"], tokenizer, tmp_path / "shards")
    assert TokenCorpus.open(tmp_path / "shards").tokens.tolist() == before
