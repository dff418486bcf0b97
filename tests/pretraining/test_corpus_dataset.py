"""Rows cut from a corpus whose words are all different, so that each can be followed."""

import numpy as np
import pytest

import bertzoo as bz
from bertzoo.pretraining.corpus import TokenCorpus
from bertzoo.pretraining.corpus_dataset import BatchSpec, CorpusDataset, FullSentenceSampler

pytestmark = pytest.mark.once

CLS, SEP, STOP = 2, 3, 5


@pytest.fixture(scope="module")
def shards():
    """300 sentences of 3 to 9 new words and a full stop; a document is three of them."""
    rng, tokens, documents, word = np.random.default_rng(0), [], [0], 100
    for sentence in range(300):
        size = int(rng.integers(3, 10))
        tokens += [*range(word, word + size), STOP]
        word += size
        if sentence % 3 == 2:
            tokens.append(SEP)
            documents.append(len(tokens))
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "."]
    return TokenCorpus(np.array(tokens, "uint16"), np.array(documents), bz.Tokenizer.from_vocabulary(vocabulary))


def sentences(shards):
    """Start -> length with the full stop, by reading on from token to token."""
    sizes, start = {}, 0
    for position, token in enumerate(shards.tokens):
        if token == SEP:
            start = position + 1
        elif token == STOP:
            sizes[start] = position + 1 - start
            start = position + 1
    return sizes


def rows(shards, steps=40, batches=(BatchSpec(16, 8),), short_seq_prob=0.1, **options):
    cut = FullSentenceSampler(shards, short_seq_prob)
    data = CorpusDataset(cut, batches, lambda inputs, rng: (inputs, rng.random()), num_batches=steps, **options)
    assert len(data) == steps
    return [data[i] for i in range(steps)]


def bare(batches):
    """(all token ids, real length) of each row."""
    for inputs, _ in batches:
        for ids, mask in zip(inputs["token_ids"], inputs["padding_mask"]):
            yield ids, int(mask.sum())


def test_rows_are_consecutive_tokens_from_the_start_of_a_sentence(shards):
    where = {int(token): position for position, token in enumerate(shards.tokens) if token >= 100}
    starts, short = sentences(shards), 0
    for ids, length in bare(rows(shards, steps=250)):
        assert ids.dtype == np.int32 and len(ids) == 16
        assert ids[0] == CLS and ids[length - 1] == SEP and ids[length - 2] != SEP and not ids[length:].any()
        start, inner = where[ids[1]], ids[1 : length - 1]
        np.testing.assert_array_equal(inner, shards.tokens[start : start + length - 2])
        assert start in starts
        if length < 15:  # 15: the token that did not fit was the document's own separator
            assert length - 2 == starts[start]
            short += 1
    assert abs(short / 2000 - 0.1) < 4 * np.sqrt(0.09 / 2000)


def test_all_sentences_are_begun_equally_often(shards):
    counts = {}
    for ids, _ in bare(rows(shards, steps=800)):
        counts[ids[1]] = counts.get(ids[1], 0) + 1
    possible = [start for start in sentences(shards) if start <= len(shards.tokens) - 16]
    assert len(possible) - 1 <= len(counts) <= len(possible)
    expected = 6400 / len(counts)
    assert sum((n - expected) ** 2 / expected for n in counts.values()) < len(counts) + 5 * np.sqrt(2 * len(counts))


def test_no_short_rows_where_none_are_asked_for(shards):
    assert min(length for _, length in bare(rows(shards, short_seq_prob=0.0))) >= 15
    assert max(length for _, length in bare(rows(shards, short_seq_prob=1.0))) <= 12


def test_shapes_take_turns(shards):
    batches = rows(shards, steps=8, batches=(BatchSpec(16, 8, share=3), BatchSpec(32, 4)))
    shapes = [inputs["token_ids"].shape for inputs, _ in batches]
    assert shapes[:4] == shapes[4:] and sorted(shapes[:4]) == [(4, 32), (8, 16), (8, 16), (8, 16)]


def test_the_run_follows_from_the_seed_and_can_be_taken_up_anywhere(shards):
    def read(**options):
        return [(inputs["token_ids"].tolist(), draw) for inputs, draw in rows(shards, **options)]

    whole = read(steps=30)
    assert read(steps=30) == whole
    assert read(steps=10, first_batch=20) == whole[20:]
    assert len({str(ids) for ids, _ in whole + read(steps=30, seed=1)}) == 60


def test_static_and_dynamic_masks(shards):
    """The generator's numbers stand for masks."""

    def read(**options):
        return [(str(inputs["token_ids"].tolist()), draw) for inputs, draw in rows(shards, steps=24, **options)]

    dynamic, static = read(repeat_examples_after=4), read(repeat_examples_after=4, repeat_masks_after=8)
    for i in range(24):
        assert dynamic[i][0] == static[i][0] == dynamic[i % 4][0]
        assert static[i] == static[i % 8]
    assert len({ids for ids, _ in dynamic}) == 4
    assert len({draw for _, draw in dynamic}) == 24 and len({draw for _, draw in static}) == 8
    assert read(repeat_examples_after=4, repeat_masks_after=8, first_batch=5) == (static * 2)[5:29]
    for wrong in ({"repeat_masks_after": 8}, {"repeat_examples_after": 4, "repeat_masks_after": 6}):
        with pytest.raises(ValueError, match="a multiple of repeat_examples_after"):
            read(**wrong)


def test_a_corpus_that_is_too_small(shards):
    with pytest.raises(ValueError, match=r"takes 5000 tokens. Received: a corpus of \d+"):
        rows(shards, batches=(BatchSpec(5000, 1),))
