"""A corpus whose words are all different, so that each token tells where it stood."""

import numpy as np
import pytest

import bertzoo as bz
from bertzoo.pretraining.corpus import TokenCorpus

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "."]
SEP, STOP = 3, 5


@pytest.fixture(scope="session")
def corpus():
    """Numbers of sentences -> shards: documents of as many sentences, each of 3 to 9 new words and a full stop."""

    def make(sizes, seed=0):
        rng, tokens, documents, word = np.random.default_rng(seed), [], [0], 100
        for sentences in sizes:
            for _ in range(sentences):
                size = int(rng.integers(3, 10))
                tokens += [*range(word, word + size), STOP]
                word += size
            tokens.append(SEP)
            documents.append(len(tokens))
        return TokenCorpus(np.array(tokens, "int32"), np.array(documents), bz.Tokenizer.from_vocabulary(VOCABULARY))

    return make
