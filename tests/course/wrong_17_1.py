"""Wrong answers to exercise 17.1, each of which the checker must refuse."""

import numpy as np


def links_not_ways(attention_mask):
    return int(np.ceil(len(attention_mask) / attention_mask.sum(axis=1).min()))


def one_too_few(attention_mask):
    heard = attention_mask.astype(int)
    for layers in range(len(attention_mask)):
        if (heard > 0).all():
            return layers
        heard = heard @ attention_mask.astype(int)
    return -1


def as_if_sight_were_mutual(attention_mask):
    sees = (attention_mask | attention_mask.T).astype(int)
    heard = np.eye(len(attention_mask), dtype=int)
    for layers in range(1, len(attention_mask) + 1):
        heard = ((sees @ heard) > 0).astype(int)
        if heard.all():
            return layers
    return -1


def length_where_none_is_enough(attention_mask):
    heard = np.eye(len(attention_mask), dtype=int)
    for layers in range(1, len(attention_mask) + 1):
        heard = ((attention_mask.astype(int) @ heard) > 0).astype(int)
        if heard.all():
            return layers
    return len(attention_mask)


def from_the_first_token_only(attention_mask):
    heard = np.eye(len(attention_mask), dtype=int)
    for layers in range(1, len(attention_mask) + 1):
        heard = ((attention_mask.astype(int) @ heard) > 0).astype(int)
        if heard[0].all():
            return layers
    return -1
