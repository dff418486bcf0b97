"""Pairs from a corpus whose words are all different, so that each token tells where it stood."""

import time

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from bertzoo.pretraining.corpus_dataset import BatchSpec, CorpusDataset, SentencePairSampler, _truncate_pairs
from bertzoo.text.masking import Masking

pytestmark = pytest.mark.once

CLS, SEP, STOP = 2, 3, 5


@pytest.fixture(scope="module")
def shards(corpus):
    return corpus(np.random.default_rng(1).integers(1, 30, 60))


class Reader:
    """Takes rows apart by what stands in them."""

    def __init__(self, shards):
        self.tokens = shards.tokens
        self.where = {int(token): position for position, token in enumerate(shards.tokens) if token >= 100}
        self.document = np.repeat(np.arange(len(shards.documents) - 1), np.diff(shards.documents))

    def segments(self, batch):
        """(A, B, label, real length) of each row: lists of token places."""
        for ids, kinds, mask, length, label in zip(
            batch["token_ids"], batch["segment_ids"], batch["padding_mask"], batch["lengths"], batch["pair"]
        ):
            assert mask.tolist() == [1] * length + [0] * (len(ids) - length)
            assert not ids[length:].any() and not kinds[length:].any()
            ends = np.flatnonzero(ids == SEP)
            assert ids[0] == CLS and len(ends) == 2 and ends[1] == length - 1
            assert kinds.tolist() == [0] * (ends[0] + 1) + [1] * (ends[1] - ends[0]) + [0] * (len(ids) - length)
            yield self._places(ids[1 : ends[0]]), self._places(ids[ends[0] + 1 : ends[1]]), label, length

    def _places(self, ids):
        """The place of the first word, counted back over the marks before it; the tokens there must be these."""
        first = next(i for i, token in enumerate(ids) if token >= 100)
        start = self.where[int(ids[first])] - first
        np.testing.assert_array_equal(self.tokens[start : start + len(ids)], ids)
        return range(start, start + len(ids))


def draw(shards, kind, count=4000, length=64, short_seq_prob=0.1, seed=0):
    return SentencePairSampler(shards, kind, short_seq_prob)(BatchSpec(length, count), np.random.default_rng(seed))


def whole(shards, segment):
    """Whether a segment begins and ends where sentences do."""
    tokens, first, last = shards.tokens, segment[0], segment[-1]
    return (first == 0 or tokens[first - 1] in (STOP, SEP)) and tokens[last] == STOP


def test_next_sentences(shards):
    reader, batch = Reader(shards), draw(shards, "nsp")
    labels = batch["pair"]
    assert abs(labels.mean() - 0.5) < 4 * np.sqrt(0.25 / len(labels))
    for a, b, label, length in reader.segments(batch):
        assert length <= 64 and len(a) and len(b)
        documents = {reader.document[position] for position in (*a, *b)}
        if label == 0:
            assert len(documents) == 1 and b[0] >= a[-1] + 1
            if length < 64:  # nothing was cut off
                assert b[0] == a[-1] + 1 and whole(shards, a) and whole(shards, b)
        else:
            assert len(documents) == 2


def test_sentence_order(shards):
    reader, batch = Reader(shards), draw(shards, "sop")
    assert abs(batch["pair"].mean() - 0.5) < 4 * np.sqrt(0.25 / 4000)
    for a, b, label, length in reader.segments(batch):
        assert len({reader.document[position] for position in (*a, *b)}) == 1
        first, second = (a, b) if label == 0 else (b, a)
        assert second[0] > first[-1]
        if length < 64:
            assert second[0] == first[-1] + 1 and whole(shards, first) and whole(shards, second)


def test_order_and_length_tell_nothing(shards):
    """A model must not see from a row's shape how it was made: swapped rows are as long, and cut as often."""
    batch = draw(shards, "sop", count=20_000)
    sizes = batch["segment_ids"].sum(axis=1)
    for measure in (sizes, batch["lengths"]):
        straight, swapped = measure[batch["pair"] == 0], measure[batch["pair"] == 1]
        error = np.sqrt(straight.var() / len(straight) + swapped.var() / len(swapped))
        assert abs(straight.mean() - swapped.mean()) < 4 * error


def test_rows_are_full_where_documents_are_long_and_short_ones_are_asked_for(corpus):
    shards = corpus([40] * 20)
    lengths = draw(shards, "nsp", short_seq_prob=0.0)["lengths"]
    true = draw(shards, "sop", short_seq_prob=0.0)["lengths"]
    assert (true == 64).all() and (lengths == 64).mean() > 0.9  # a B from elsewhere may meet its document's end
    lengths = draw(shards, "sop", short_seq_prob=0.3, count=20_000)["lengths"]
    # A short row ends with a sentence, so that one of 52 tokens and more may be full as well.
    assert 0.3 * 0.8 < (lengths < 64).mean() < 0.3
    assert lengths.min() < 14


@pytest.mark.slow
def test_all_sentences_are_read(shards):
    """Each document's first and last words too; without shifting rows over their place the first would be rare."""
    reader, seen = Reader(shards), np.zeros(len(shards.tokens), int)
    for a, b, _, _ in reader.segments(draw(shards, "sop", count=20_000)):
        seen[list(a)] += 1
        seen[list(b)] += 1
    sentences = np.diff(np.cumsum(shards.tokens == STOP)[shards.documents[1:] - 1], prepend=0)
    for document, count in enumerate(sentences):
        words = slice(shards.documents[document], shards.documents[document + 1] - 1)
        if count == 1:
            assert not seen[words].any()  # no pair can be made of it
        elif words.stop - words.start > 128:
            assert seen[words].min() > 0.1 * np.median(seen[words])


def truncate_as_the_authors_do(a, b, room, rng):
    """create_pretraining_data.py: one token at a time from the longer, at the front or the back."""
    a, b = list(a), list(b)
    while len(a) + len(b) > room:
        longer = a if len(a) > len(b) else b
        del longer[0 if rng.random() < 0.5 else -1]
    return a, b


@pytest.mark.parametrize("room", [8, 9])
def test_truncation(room):
    rng, fronts, expected = np.random.default_rng(0), [], []
    for a_size in range(1, 16):
        for b_size in range(1, 16):
            left_a, left_b = truncate_as_the_authors_do(range(a_size), range(b_size), room, rng)
            a, a_left, b, b_left = _truncate_pairs(
                np.full(400, 100), np.full(400, a_size), np.full(400, 200), np.full(400, b_size), room, rng
            )
            assert set(a_left) == {len(left_a)} and set(b_left) == {len(left_b)}
            assert a.min() >= 100 and (a + a_left).max() <= 100 + a_size and (b + b_left).max() <= 200 + b_size
            fronts.append((a - 100).mean() + (b - 200).mean())
            expected.append((a_size + b_size - len(left_a) - len(left_b)) / 2)
    np.testing.assert_allclose(fronts, expected, atol=0.5)


def test_draws_repeat_and_can_be_taken_up(shards):
    def read(kind, **options):
        data = CorpusDataset(
            SentencePairSampler(shards, kind), [BatchSpec(32, 4)], lambda inputs, rng: inputs, **options
        )
        return [{key: value.tolist() for key, value in data[i].items()} for i in range(len(data))]

    for kind in ("nsp", "sop"):
        whole = read(kind, num_batches=12, seed=3)
        assert (
            read(kind, num_batches=12, seed=3) == whole
            and read(kind, num_batches=4, seed=3, first_batch=8) == whole[8:]
        )
        assert read(kind, num_batches=12, seed=4) != whole


@pytest.mark.parametrize("kind", ["nsp", "sop"])
def test_ten_thousand_rows_a_second_with_masks(corpus, kind):
    shards = corpus([20] * 2000)
    sampler = SentencePairSampler(shards, kind)
    data = CorpusDataset(sampler, [BatchSpec(128, 512)], Masking(300_000, 4, (0, 1, 2, 3, 4)), num_batches=8)
    sampler.sentences.ends, sampler.sentences.followed_indices, data[0]
    begun = time.process_time()
    for i in range(1, 8):
        inputs = data.examples(BatchSpec(128, 512), np.random.default_rng(i))
        data.transform(inputs, np.random.default_rng(i))
    assert 7 * 512 / (time.process_time() - begun) > 10_000


def test_unsuitable_corpora_are_named(corpus, shards):
    with pytest.raises(ValueError, match="documents of two or more sentences"):
        SentencePairSampler(corpus([1, 1, 1]), "sop")
    with pytest.raises(ValueError, match="a corpus of one document"):
        SentencePairSampler(corpus([9]), "nsp")
    SentencePairSampler(corpus([9]), "sop")
    with pytest.raises(ValueError, match="kind must be one of nsp, sop. Received: 'nap'"):
        SentencePairSampler(shards, "nap")


@pytest.mark.parametrize("sizes", ["even", "mostly short"])
def test_the_length_of_the_second_segment_tells_little(corpus, sizes):
    """The best rule by length alone, learnt on half of the rows, is right in little more than half of the others."""
    rng = np.random.default_rng(0)
    long = rng.integers(1, 60, 200)
    batch = draw(corpus(long if sizes == "even" else np.where(rng.random(200) < 0.7, 3, long)), "nsp", count=20_000)
    measures = np.stack([batch["segment_ids"].sum(axis=1), batch["lengths"]], axis=1)
    tree = DecisionTreeClassifier(min_samples_leaf=200).fit(measures[::2], batch["pair"][::2])
    assert tree.score(measures[1::2], batch["pair"][1::2]) < 0.545
