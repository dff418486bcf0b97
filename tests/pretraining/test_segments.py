"""ELECTRA's rows against its authors' code written out for the same sentences."""

import numpy as np
import pytest

from bertzoo.pretraining.corpus_dataset import BatchSpec, ElectraSampler

pytestmark = pytest.mark.once

CLS, SEP, LENGTH = 2, 3, 48


def sentences(tokens, first, last):
    """The sentences of tokens[first:last], by their full stops."""
    sentences_of_window = [[]]
    for token in tokens[first:last]:
        sentences_of_window[-1].append(int(token))
        if token == 5:
            sentences_of_window.append([])
    return [sentence for sentence in sentences_of_window if sentence]


def authors_segments(sentences_of_window, target, coin, single):
    """_create_example of build_pretraining_dataset.py: the two segments before they are cut."""
    half = 100_000 if single else (target - 3) // 2
    first, second = [], []
    for sentence in sentences_of_window:
        # The first two conditions hold there even where the second segment has begun: a later short sentence would go
        # to the first, out of order.
        fits = not second and (not first or len(first) + len(sentence) < half)
        if fits or (not second and len(first) < half and coin):
            first += sentence
        else:
            second += sentence
    return first[: LENGTH - 2], second[: max(0, LENGTH - len(first[: LENGTH - 2]) - 3)]


@pytest.mark.parametrize("sizes", [[30] * 20, list(range(1, 25))])
def test_segments_are_those_of_the_authors_code(corpus, sizes):
    shards = corpus(sizes)
    where = {int(token): position for position, token in enumerate(shards.tokens) if token >= 100}
    ends = shards.documents[1:] - 1
    batch = ElectraSampler(shards, short_seq_prob=0.0)(BatchSpec(LENGTH, 3000), np.random.default_rng(0))
    coins = np.zeros(2)
    for ids, kinds, length in zip(batch["token_ids"], batch["segment_ids"], batch["lengths"]):
        stops = np.flatnonzero(ids == SEP)
        assert ids[0] == CLS and stops[-1] == length - 1 and not ids[length:].any()
        first, second = ids[1 : stops[0]].tolist(), ids[stops[0] + 1 : length - 1].tolist() if len(stops) == 2 else []
        assert kinds.tolist() == [0] * (stops[0] + 1) + [1] * (length - 1 - stops[0]) + [0] * (LENGTH - length)
        start = where[first[0]]
        stop = min(start + LENGTH + 30, ends[np.searchsorted(ends, start)])
        sentences_of_window = sentences(shards.tokens, start, stop)
        choices = [
            authors_segments(sentences_of_window, LENGTH, coin, single) for coin, single in ((0, 0), (1, 0), (0, 1))
        ]
        if choices[0][0] != choices[1][0] and (first, second) in [choices[0], choices[1]]:
            coins[choices.index((first, second))] += 1
        # Which sentences were taken is the window's matter: the second segment may end before the row does.
        assert any(first == a and b[: len(second)] == second for a, b in choices)
    assert abs(coins[0] / coins.sum() - 0.5) < 4 * np.sqrt(0.25 / coins.sum())


def test_shares(corpus):
    shards = corpus([40] * 20)
    batch = ElectraSampler(shards)(BatchSpec(LENGTH, 20_000), np.random.default_rng(0))
    single = (batch["segment_ids"].max(axis=1) == 0).mean()
    assert 0.1 < single < 0.13  # and short rows that one sentence fills
    full = (batch["lengths"] == LENGTH).mean()
    assert 0.93 < full < 0.97
