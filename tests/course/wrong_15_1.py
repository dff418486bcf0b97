"""Wrong answers to exercise 15.1, each of which the checker must refuse."""

import numpy as np


def only_centred(vectors):
    return vectors - vectors.mean(axis=0)


def each_place_alone(vectors):
    return (vectors - vectors.mean(axis=0)) / vectors.std(axis=0)


def unit_length(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def turned_but_not_stretched(vectors):
    centred = vectors - vectors.mean(axis=0)
    return centred @ np.linalg.eigh(np.cov(centred.T, bias=True))[1]


def stretched_by_variance(vectors):
    centred = vectors - vectors.mean(axis=0)
    variance, directions = np.linalg.eigh(np.cov(centred.T, bias=True))
    return centred @ directions / variance


def not_centred(vectors):
    variance, directions = np.linalg.eigh(np.cov(vectors.T, bias=True))
    return vectors @ directions / np.sqrt(variance)


def noise_of_the_right_spread(vectors):
    noise = np.random.default_rng(1).normal(size=vectors.shape)
    noise = noise - noise.mean(axis=0)
    variance, directions = np.linalg.eigh(noise.T @ noise / len(noise))
    return noise @ directions / np.sqrt(variance)


def sample_covariance(vectors):
    centred = vectors - vectors.mean(axis=0)
    variances, directions = np.linalg.eigh(np.cov(vectors.T))
    return centred @ directions / np.sqrt(variances)
