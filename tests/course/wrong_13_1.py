"""Wrong answers to exercise 13.1, each of which the checker must refuse."""

import numpy as np


def clipped(distances, buckets, max_distance):
    return np.clip(distances, 1 - buckets, buckets - 1)


def without_sign(distances, buckets, max_distance):
    half = buckets // 2
    far = np.maximum(np.abs(distances), half)
    steps = np.log(far / half) / np.log((max_distance - 1) / half) * (half - 1)
    return np.where(np.abs(distances) <= half, distances, np.ceil(steps).astype(int) + half)


def rounded_down(distances, buckets, max_distance):
    half = buckets // 2
    far = np.maximum(np.abs(distances), half)
    steps = np.log(far / half) / np.log((max_distance - 1) / half) * (half - 1)
    return np.where(np.abs(distances) <= half, distances, np.sign(distances) * (np.floor(steps).astype(int) + half))


def near_ones_shared_too(distances, buckets, max_distance):
    half = buckets // 2
    far = np.maximum(np.abs(distances), 1)
    steps = np.ceil(np.log(far) / np.log(max_distance - 1) * (half - 1)).astype(int)
    return np.sign(distances) * steps


def all_buckets_for_one_side(distances, buckets, max_distance):
    far = np.maximum(np.abs(distances), buckets)
    steps = np.log(far / buckets) / np.log((max_distance - 1) / buckets) * (buckets - 1)
    shared = np.sign(distances) * (np.ceil(np.maximum(steps, 0)).astype(int) + buckets)
    return np.where(np.abs(distances) <= buckets, distances, shared)


def not_shifted(distances, buckets, max_distance):
    half = buckets // 2
    far = np.maximum(np.abs(distances), half)
    steps = np.log(far / half) / np.log((max_distance - 1) / half) * (half - 1)
    return np.where(np.abs(distances) <= half, distances, np.sign(distances) * np.ceil(steps).astype(int))
