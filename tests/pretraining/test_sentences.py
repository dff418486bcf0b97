"""Sentences told from tokens, against a reading by hand."""

import numpy as np
import pytest

import bertzoo as bz
from bertzoo.pretraining import corpus as corpus_module
from bertzoo.pretraining.corpus import CorpusSentences, TokenCorpus

pytestmark = pytest.mark.once

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "?", "a"]
SEP, STOP, ASK, A = 3, 5, 6, 7


def make(*documents):
    tokens = [token for document in documents for token in (*document, SEP)]
    bounds = np.cumsum([0] + [len(document) + 1 for document in documents])
    return TokenCorpus(np.array(tokens, "uint16"), bounds, bz.Tokenizer.from_vocabulary(VOCABULARY))


@pytest.mark.parametrize("at_once", [1, 2, 3, 2**24])
def test_sentences_go_on_to_their_last_mark_and_never_over_a_document(monkeypatch, at_once):
    monkeypatch.setattr(corpus_module, "TOKENS_AT_ONCE", at_once)
    # 0: a a . a ? ? a |  8: . . a |  12: . |  14: |  15: a .
    shards = make([A, A, STOP, A, ASK, ASK, A], [STOP, STOP, A], [STOP], [], [A, STOP])
    sentences = CorpusSentences(shards)
    assert sentences.starts.tolist() == [0, 3, 6, 10, 15]
    assert sentences.ends.tolist() == [3, 6, 7, 11, 17]
    assert sentences.bounds.tolist() == [0, 3, 4, 5]
    assert sentences.followed_indices.tolist() == [0, 1]
    assert sentences.document_indices(np.arange(5)).tolist() == [0, 0, 0, 1, 2]


def test_a_vocabulary_without_marks_has_documents_as_sentences():
    tokens = np.array([8, 9, SEP, 8, SEP], "int32")
    shards = TokenCorpus(tokens, np.array([0, 3, 5]), bz.Tokenizer.from_vocabulary(VOCABULARY[:5] + ["b", "c"]))
    sentences = CorpusSentences(shards)
    assert sentences.starts.tolist() == [0, 3] and sentences.ends.tolist() == [2, 4]
    assert len(sentences.followed_indices) == 0
