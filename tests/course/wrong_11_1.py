"""Wrong answers to exercise 11.1, each of which the checker must refuse."""

import numpy as np


def without_the_factor(teacher, student, temperature):
    p, q = (np.exp(x / temperature) / np.exp(x / temperature).sum() for x in (teacher, student))
    return q - p


def without_t_squared(teacher, student, temperature):
    p, q = (np.exp(x / temperature) / np.exp(x / temperature).sum() for x in (teacher, student))
    return (q - p) / temperature


def downhill(teacher, student, temperature):
    p, q = (np.exp(x / temperature) / np.exp(x / temperature).sum() for x in (teacher, student))
    return temperature * (p - q)


def at_temperature_one(teacher, student, temperature):
    p, q = (np.exp(x) / np.exp(x).sum() for x in (teacher, student))
    return temperature**2 * (q - p)


def of_the_swapped_divergence(teacher, student, temperature):
    p, q = (np.exp(x / temperature) / np.exp(x / temperature).sum() for x in (teacher, student))
    ratio = np.log(q) - np.log(p)
    return temperature * q * (ratio - np.sum(q * ratio))


def regression_on_logits(teacher, student, temperature):
    return (student - teacher) / len(student)
