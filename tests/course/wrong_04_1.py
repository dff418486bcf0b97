"""Wrong answers to exercise 04.1, each of which the checker must refuse."""

import numpy as np


def single_pieces(word_ids, budget, rng):
    chosen = np.zeros(len(word_ids), bool)
    chosen[rng.permutation(np.flatnonzero(word_ids >= 0))[:budget]] = True
    return chosen


def special_tokens_are_a_word(word_ids, budget, rng):
    chosen = np.zeros(len(word_ids), bool)
    for word in rng.permutation(np.unique(word_ids)):
        if chosen.sum() + (word_ids == word).sum() <= budget:
            chosen |= word_ids == word
    return chosen


def exceeds_the_budget(word_ids, budget, rng):
    chosen = np.zeros(len(word_ids), bool)
    for word in rng.permutation(np.unique(word_ids[word_ids >= 0])):
        if chosen.sum() < budget:
            chosen |= word_ids == word
    return chosen


def always_from_the_left(word_ids, budget, rng):
    chosen = np.zeros(len(word_ids), bool)
    for word in np.unique(word_ids[word_ids >= 0]):
        if chosen.sum() + (word_ids == word).sum() <= budget:
            chosen |= word_ids == word
    return chosen


def stops_at_the_first_that_does_not_fit(word_ids, budget, rng):
    chosen = np.zeros(len(word_ids), bool)
    for word in rng.permutation(np.unique(word_ids[word_ids >= 0])):
        if chosen.sum() + (word_ids == word).sum() > budget:
            break
        chosen |= word_ids == word
    return chosen


def places_in_place_of_truth(word_ids, budget, rng):
    return np.flatnonzero(word_ids >= 0)[:budget]
