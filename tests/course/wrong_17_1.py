"""Wrong answers to exercise 17.1, each of which the checker must refuse."""

import numpy as np


def links_not_ways(attend):
    return int(np.ceil(len(attend) / attend.sum(axis=1).min()))


def one_too_few(attend):
    heard = attend.astype(int)
    for layers in range(len(attend)):
        if (heard > 0).all():
            return layers
        heard = heard @ attend.astype(int)
    return -1


def as_if_sight_were_mutual(attend):
    sees = (attend | attend.T).astype(int)
    heard = np.eye(len(attend), dtype=int)
    for layers in range(1, len(attend) + 1):
        heard = ((sees @ heard) > 0).astype(int)
        if heard.all():
            return layers
    return -1


def length_where_none_is_enough(attend):
    heard = np.eye(len(attend), dtype=int)
    for layers in range(1, len(attend) + 1):
        heard = ((attend.astype(int) @ heard) > 0).astype(int)
        if heard.all():
            return layers
    return len(attend)


def from_the_first_token_only(attend):
    heard = np.eye(len(attend), dtype=int)
    for layers in range(1, len(attend) + 1):
        heard = ((attend.astype(int) @ heard) > 0).astype(int)
        if heard[0].all():
            return layers
    return -1
