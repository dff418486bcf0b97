"""Random numbers: the hash against NumPy, its statistics, and the promises that rest on it."""

import itertools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
from keras import ops

import bertzoo as bz
from bertzoo import random
from bertzoo.layers.base import skip_random_initialization
from bertzoo.random import Salt, StepCounter, fold_in, numpy_generator, random_bits, step_key

SHAPE = (64, 128, 128)  # a million draws

# ---- the hash once more, in unsigned 64-bit NumPy arithmetic cut to 32 bits

WORD = 2**32
GOLDEN, STRIDE, FIRST, SECOND = 0x9E3779B9, 0x85EBCA6B, 0x7FEB352D, 0x846CA68B


def mix_np(x):
    x = np.asarray(x, "uint64") % WORD
    x = x ^ (x >> np.uint64(16))
    x = x * np.uint64(FIRST) % WORD
    x = x ^ (x >> np.uint64(15))
    x = x * np.uint64(SECOND) % WORD
    return x ^ (x >> np.uint64(16))


def step_key_np(seed: int, step: int):
    first = mix_np(mix_np((step * GOLDEN + seed % WORD) % WORD) ^ np.uint64(seed >> 32))
    return np.array([first, mix_np(first + np.uint64(STRIDE))], "uint64")


def fold_np(key, number: int):
    return mix_np(mix_np(key + np.uint64((number * GOLDEN + 0x7F4A7C15) % WORD)) ^ np.uint64(number))


def bits_np(key, shape):
    rows, channels = np.arange(shape[0], dtype="uint64"), np.arange(shape[-1], dtype="uint64")
    inner = mix_np(rows * np.uint64(GOLDEN) + key[0])
    for size in shape[1:-1]:
        index = (np.arange(size, dtype="uint64") * np.uint64(STRIDE) + key[1]) % WORD
        inner = mix_np(inner[..., None] ^ index)
    word = mix_np(inner + np.uint64(GOLDEN))
    bits = (((channels * np.uint64(GOLDEN) + inner[..., None]) % WORD) ^ word[..., None]) * np.uint64(FIRST) % WORD
    return (bits ^ (bits >> np.uint64(15))) * np.uint64(SECOND) % WORD


def bits(key, shape):
    return ops.convert_to_numpy(random_bits(key, shape)).astype("int64") % WORD


@pytest.fixture
def key():
    return step_key(11, ops.convert_to_tensor(5, "int32"))


@pytest.mark.parametrize(("seed", "step"), [(0, 1), (11, 5), (2**40 + 3, 70_000), (2**63 - 1, 2**31 - 1)])
def test_keys_equal_the_formula(seed, step):
    actual = ops.convert_to_numpy(step_key(seed, ops.convert_to_tensor(step, "int32")))
    np.testing.assert_array_equal(actual.astype("int64") % WORD, step_key_np(seed, step))
    folded = ops.convert_to_numpy(fold_in(step_key(seed, ops.convert_to_tensor(step, "int32")), 1 << 20))
    np.testing.assert_array_equal(folded.astype("int64") % WORD, fold_np(step_key_np(seed, step), 1 << 20))


@pytest.mark.parametrize("shape", [(6, 33), (5, 7, 33), (3, 4, 9, 9)])
def test_bits_and_masks_equal_the_formula(key, shape):
    expected = bits_np(step_key_np(11, 5), shape)
    np.testing.assert_array_equal(bits(key, shape), expected)
    for rate, salt in ((0.1, 0), (0.5, 2)):
        dropped = ops.convert_to_numpy(bz.layers.dropout(ops.ones(shape), rate, key, salt=salt))
        kept = bits_np(fold_np(step_key_np(11, 5), salt), shape).astype("int32") >= round(rate * 2**32) - 2**31
        np.testing.assert_array_equal(dropped != 0, kept)
        np.testing.assert_allclose(dropped[kept], 1 / (1 - rate), rtol=1e-6)


@pytest.mark.once
def test_no_two_key_spaces_are_one():
    spaces = [salt for salt in Salt.__members__.values() if salt >= Salt.HEAD]
    assert len(spaces) == len(set(spaces)) == 6
    assert min(spaces) > 10_000  # numbers of layers


def test_no_key_or_no_rate_changes_nothing(key):
    x = ops.ones((2, 3))
    assert bz.layers.dropout(x, 0.5, None) is x and bz.layers.dropout(x, 0.0, key) is x


@pytest.mark.parametrize("rate", [1, 1.5, -0.1, float("nan")])
def test_rates_out_of_range_are_named(key, rate):
    for key_or_none in (key, None):
        with pytest.raises(ValueError, match=f"rate of at least 0 and below 1. Received: {rate}"):
            bz.layers.dropout(ops.ones((2, 3)), rate, key_or_none)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_the_share_that_is_kept(key, rate):
    kept = ops.convert_to_numpy(bz.layers.dropout(ops.ones(SHAPE), rate, key)) != 0
    count = kept.size
    assert abs(kept.sum() - count * (1 - rate)) < 4 * np.sqrt(count * rate * (1 - rate))
    for axis in range(3):  # and along each axis
        fraction = kept.mean(axis=tuple(a for a in range(3) if a != axis))
        assert np.abs(fraction - (1 - rate)).max() < 5 * np.sqrt(rate * (1 - rate) / (count / fraction.size))


def test_all_bits_are_even(key):
    values = bits(key, SHAPE)
    for bit in range(32):
        assert abs(((values >> bit) & 1).mean() - 0.5) < 4.5 * 0.5 / np.sqrt(values.size)
    counts = np.bincount((values >> 24).ravel(), minlength=256)
    assert ((counts - values.size / 256) ** 2 / (values.size / 256)).sum() < 255 + 5 * np.sqrt(2 * 255)


@pytest.mark.slow
def test_streams_do_not_resemble_each_other():
    """No correlation between steps, seeds, layers and sites; nor between one stream and itself moved by rows or
    tokens."""

    def stream(seed=0, step=1, layer=0, salt=0):
        key = fold_in(fold_in(step_key(seed, ops.convert_to_tensor(step, "int32")), layer), salt)
        return bits(key, SHAPE)

    base = stream()
    others = [stream(seed=1), stream(seed=2**32), stream(step=2), stream(step=3), stream(layer=1), stream(salt=1)]
    others.append(stream(layer=1, step=2))
    moved = [np.roll(base, 1, axis=axis) for axis in range(3)] + [np.flip(base, axis) for axis in range(3)]
    streams = np.stack([base, *others, *moved]).reshape(-1, base.size)
    pairs = [*itertools.combinations(range(1 + len(others)), 2), *((0, 1 + len(others) + i) for i in range(6))]
    for look in (lambda x: x / WORD, lambda x: x & 1, lambda x: x % 2**31 < 0.1 * 2**31):
        correlations = np.corrcoef(look(streams))
        assert max(abs(correlations[pair]) for pair in pairs) < 5.5 / np.sqrt(base.size)
    assert all((streams[one] == streams[other]).sum() < 10 for one, other in pairs)


def test_rows_of_one_mask_are_all_different(key):
    rows = bits(key, (512, 32, 8)).reshape(512 * 32, 8)
    assert len(np.unique(rows[:, 0])) > 512 * 32 - 5
    assert len(np.unique(rows, axis=0)) == 512 * 32


def test_masks_do_not_depend_on_padding_or_on_the_batch(key):
    small, longer, larger = bits(key, (4, 8, 16)), bits(key, (4, 24, 16)), bits(key, (9, 8, 16))
    np.testing.assert_array_equal(longer[:, :8], small)
    np.testing.assert_array_equal(larger[:4], small)


def config():
    return bz.EncoderConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )


def test_a_models_training_calls_differ_and_repeat(numpy):
    ids = np.arange(16, dtype="int32").reshape(2, 8)

    def calls(seed):
        bz.set_seed(seed)
        encoder = bz.Encoder(config(), dropout=0.3)
        return [numpy(encoder(ids, training=True)["sequence_output"]) for _ in range(3)]

    first, again, other = calls(1), calls(1), calls(2)
    for a, b in zip(first, again):
        np.testing.assert_array_equal(a, b)
    assert min(np.abs(a - b).max() for a, b in itertools.combinations([*first, *other], 2)) > 1e-3


def test_the_seed_is_in_the_counters_state_and_not_in_the_compiled_step(numpy):
    one, other = StepCounter(seed=3), StepCounter(seed=2**40)
    assert not np.array_equal(numpy(one.next_key()), numpy(other.next_key()))
    other.state.assign(one.state)
    np.testing.assert_array_equal(numpy(one.next_key()), numpy(other.next_key()))
    np.testing.assert_array_equal(numpy(one.current_key()).astype("int64") % WORD, step_key_np(3, 2))
    assert one.num_calls == 2


def test_initial_weights_follow_from_seed_and_name():
    def weights(seed):
        bz.set_seed(seed)
        return {weight.path: np.asarray(weight.numpy()) for weight in bz.Encoder(config()).weights}

    first, again, other = weights(3), weights(3), weights(2**40)
    drawn = [path for path in first if path.endswith(("kernel", "token", "position", "segment"))]
    assert len(drawn) == 3 + 2 * 4 + 1
    for path in first:
        np.testing.assert_array_equal(first[path], again[path])
    for path in drawn:
        assert np.abs(first[path] - other[path]).max() > 0.01
        assert 0 < np.abs(first[path]).max() <= 2 * 0.02
    same_shape = [first[f"encoder/layer_{i}/{part}/kernel"] for i in (0, 1) for part in ("intermediate", "output")]
    assert min(np.abs(a - b).max() for a, b in itertools.combinations(same_shape, 2)) > 0.01
    everything = np.concatenate([first[path].ravel() for path in drawn]) / 0.02
    # A normal distribution cut at two standard deviations has 0.8796 of its standard deviation left.
    assert abs(everything.std() - 0.8796) < 0.02 and abs(everything.mean()) < 0.02


def test_weights_made_while_another_thread_loads_are_drawn():
    """What a checkpoint fills in one thread is no concern of a model that another thread makes."""
    expected = np.asarray(bz.Encoder(config()).weights[0].numpy())
    with skip_random_initialization(["encoder/embeddings/token"].__contains__), ThreadPoolExecutor(1) as pool:
        assert not np.asarray(bz.Encoder(config()).weights[0].numpy()).any()
        drawn = pool.submit(lambda: bz.Encoder(config()).weights[0].numpy()).result()
    np.testing.assert_array_equal(np.asarray(drawn), expected)


@pytest.mark.once
def test_host_generators_are_apart():
    draws = [
        numpy_generator(seed, stream).random(4)
        for seed, stream in ((0, "a"), (0, "b"), (1, "a"), (2**32, "a"), (0, ("a", "b")), (0, ("b", "a")))
    ]
    assert len({tuple(draw) for draw in draws}) == len(draws)
    np.testing.assert_array_equal(numpy_generator(0, "a").random(4), draws[0])


@pytest.mark.once
@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True, "0", None])
def test_wrong_seeds_are_named(seed):
    with pytest.raises(ValueError, match=r"seed from 0 to 2\*\*63 - 1. Received"):
        bz.set_seed(seed)


@pytest.mark.once
def test_the_seed_of_keras_is_followed_until_there_is_one_of_ones_own(monkeypatch):
    monkeypatch.setattr(random, "_seed", None)
    keras.utils.clear_session(free_memory=False)
    assert bz.get_seed() == 0
    draws = {}
    for seed in (1, 2, 1):
        keras.utils.set_random_seed(seed)
        config = bz.EncoderConfig(
            vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        )
        task = bz.TextClassifier(bz.Encoder(config), labels=2)
        drawn = ops.convert_to_numpy(task.weights[0])
        assert bz.get_seed() == task.data.seed == seed
        np.testing.assert_array_equal(draws.setdefault(seed, drawn), drawn)
    assert np.abs(draws[1] - draws[2]).max() > 1e-3
    bz.set_seed(5)
    keras.utils.set_random_seed(3)
    assert bz.get_seed() == 5


@pytest.mark.slow
@pytest.mark.once
def test_following_the_seed_of_keras_imports_no_tensorflow():
    code = (
        "import sys, bertzoo as bz, keras; from keras.src.backend.common import global_state; "
        "global_state.set_global_attribute('global_random_seed', 7); "
        "print(bz.get_seed(), 'tensorflow' in sys.modules)"
    )
    environment = {**os.environ, "KERAS_BACKEND": "torch"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["7", "False"], done.stderr
