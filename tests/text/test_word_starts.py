"""Which tokens begin a word, compared with the words of the tokenizers library."""

import pytest
import tokenizers

import bertzoo as bz
from bertzoo.text.masking import word_starts

pytestmark = pytest.mark.once

TEXT = "unhappily we saw 3 films, and re-read: don't stop! naïve café"
ROLES = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}


def train(model, pre_tokenizer, trainer, **options):
    rust = tokenizers.Tokenizer(model)
    rust.pre_tokenizer = pre_tokenizer
    rust.train_from_iterator([TEXT] * 3, trainer(special_tokens=list(ROLES.values()), **options))
    return bz.Tokenizer(rust, ROLES)


def test_wordpiece():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##happy", "##", "a", "#"]
    starts = word_starts(bz.Tokenizer.from_vocabulary(words))
    assert [word for word, start in zip(words, starts) if not start] == ["##happy"]


def test_byte_level():
    pre = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer = train(tokenizers.models.BPE(), pre, tokenizers.trainers.BpeTrainer, vocab_size=120)
    ids = tokenizer._rust.encode(TEXT).ids
    begun = word_starts(tokenizer)[ids]
    assert begun.sum() == len(TEXT.split())  # words are what spaces part
    assert word_starts(tokenizer)[list(tokenizer.special_ids)].all()


def test_sentence_piece():
    pre = tokenizers.pre_tokenizers.Metaspace()
    tokenizer = train(
        tokenizers.models.Unigram(), pre, tokenizers.trainers.UnigramTrainer, vocab_size=60, unk_token="<unk>"
    )
    starts = word_starts(tokenizer)
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.vocabulary_size)]
    assert all(starts[i] for i, token in enumerate(tokens) if token.startswith("▁"))
    inner = [token for token, start in zip(tokens, starts) if not start]
    assert inner and all(token.isascii() and token.isalpha() for token in inner)
    marks = [i for i, token in enumerate(tokens) if token in (",", ":", "!", "'", "-")]
    assert marks and starts[marks].all()


def test_a_vocabulary_that_does_not_tell():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    with pytest.raises(ValueError, match="whole-word masking expects tokens"):
        word_starts(bz.Tokenizer.from_vocabulary(words))
