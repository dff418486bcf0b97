"""The templated sets: what their labels rest on, and what they don't."""

from collections import Counter

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from templated import ENTAILMENT, MARKERS, RELATIONS, entailment, relations

pytestmark = pytest.mark.once


def learnt(train, test, labels, truth) -> float:
    """The accuracy of a bag of words."""
    words = CountVectorizer(token_pattern=r"\S+")
    model = LogisticRegression(max_iter=2000).fit(words.fit_transform(train), labels)
    return model.score(words.transform(test), truth)


@pytest.mark.parametrize("make", [entailment, relations])
def test_a_seed_gives_a_set(make):
    assert make(50, 3) == make(50, 3) != make(50, 4)
    assert all(len(column) == 50 for column in make(50, 3))


def test_a_name_is_marked_once_and_the_words_do_not_tell():
    texts, labels = relations(900, 0)
    assert set(labels) == set(RELATIONS)
    for text in texts:
        words = text.split()
        assert all(words.count(marker) == 1 for marker in MARKERS)
        for opening, closing in (MARKERS[:2], MARKERS[2:]):
            assert 1 <= words.index(closing) - words.index(opening) - 1 <= 2
    test, truth = relations(300, 1)

    def plain(texts):
        return [" ".join(word for word in text.split() if word not in MARKERS) for text in texts]

    assert learnt(plain(texts), plain(test), labels, truth) < 0.5


def test_neither_overlap_nor_one_sentence_nor_a_bag_of_words_gives_entailment_away():
    train, test = entailment(1800, 0), entailment(600, 1)
    assert set(Counter(train[2]).values()) == {600}
    assert learnt(train[1], test[1], train[2], test[2]) < 0.6  # hypotheses alone
    assert learnt(train[0], test[0], train[2], test[2]) < 0.45  # premises alone
    inside = np.array([set(b.split()) <= set(a.split()) for a, b, _ in zip(*train)])
    shares = [inside[np.array(train[2]) == name].mean() for name in ENTAILMENT]
    assert shares[1] >= shares[0] > 0  # neutral hypotheses are traps at least as often as those that follow
    negated = np.array([any(word in b.split() for word in ("not", "no", "nobody")) for b in train[1]])
    assert all(0.3 < negated[np.array(train[2]) == name].mean() < 0.7 for name in ENTAILMENT)
