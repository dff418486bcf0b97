"""Shards from documents written by hand."""

import json

import numpy as np
import pytest

import bertzoo as bz
from bertzoo.pretraining.shards import Shards, prepare, read_documents

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


def test_documents_are_parted_by_blank_lines(files):
    assert list(read_documents(files)) == ["a b\nc", "d", "be zz\na"]


def test_content(files, tokenizer, tmp_path):
    shards = prepare(files, tokenizer, tmp_path / "shards")
    assert shards.tokens.tolist() == [A, B, C, SEP, D, SEP, B, E, UNK, A, SEP]
    assert shards.documents.tolist() == [0, 4, 6, 11]
    assert shards.tokens.dtype == np.uint16
    assert json.loads((tmp_path / "shards" / "shards.json").read_text()) == {"tokens": 11, "documents": 3}
    assert {path.name for path in (tmp_path / "shards").iterdir()} == {
        "tokens.npy",
        "documents.npy",
        "shards.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    again = Shards.open(tmp_path / "shards")
    np.testing.assert_array_equal(again.tokens, shards.tokens)
    assert again.tokenizer.vocabulary_size == 10 and isinstance(again.tokens, np.memmap)


def test_documents_longer_than_a_model_are_kept_whole_and_many_fit(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("bertzoo.pretraining.shards.DOCUMENTS_AT_ONCE", 7)
    tokenizer.max_length = 8
    documents = [" ".join("abcd"[(i + j) % 4] for j in range(1 + i * 3)) for i in range(40)]
    (tmp_path / "x.txt").write_text("\n\n".join(documents))
    shards = prepare([tmp_path / "x.txt"], tokenizer, tmp_path / "shards")
    for i, text in enumerate(documents):
        ids = shards.tokens[shards.documents[i] : shards.documents[i + 1]].tolist()
        assert ids == ["abcd".index(letter) + 5 for letter in text.split()] + [SEP]


def test_mistakes_are_named(files, tokenizer, tmp_path):
    with pytest.raises(ValueError, match="corpus is empty"):
        prepare([files[1]], tokenizer, tmp_path / "empty")
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin.txt is no UTF-8 text"):
        prepare([tmp_path / "latin.txt"], tokenizer, tmp_path / "latin")
    with pytest.raises(ValueError, match="lacks tokens.npy, documents.npy, tokenizer.json.*holds no shards"):
        Shards.open(tmp_path)
    prepare(files, tokenizer, tmp_path / "shards")
    smaller = bz.Tokenizer.from_vocabulary(WORDS[:8])
    for name, content in smaller.files().items():
        (tmp_path / "shards" / name).write_bytes(content)
    with pytest.raises(ValueError, match="not those of its vocabulary of 8"):
        Shards.open(tmp_path / "shards")
