"""Pooling against sentence-transformers, and by properties."""

import keras
import numpy as np
import pytest

from bertzoo.layers import Normalize, Pooling
from bertzoo.layers.heads import SHARED_POOLINGS

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 6, 8)).astype("float32")
MASK = np.array([[1] * 6, [1] * 4 + [0] * 2, [1] + [0] * 5], "int32")


def pooled(layer, x=X, mask=MASK):
    return keras.ops.convert_to_numpy(layer(x, mask))


@pytest.mark.parametrize("modes", [*SHARED_POOLINGS, SHARED_POOLINGS, ("mean", "cls")])
@pytest.mark.parametrize("prompt", [0, 2])
def test_equals_sentence_transformers(modes, prompt, close):
    torch = pytest.importorskip("torch")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    rows = slice(0, 2) if prompt else slice(0, 3)  # the third text has no token besides its prompt
    features = {
        "token_embeddings": torch.tensor(X[rows]),
        "attention_mask": torch.tensor(MASK[rows]),
        "prompt_length": prompt,
    }
    expected = modules.Pooling(8, modes, include_prompt=False)(features)["sentence_embedding"].numpy()
    counted = MASK[rows].copy()
    counted[:, :prompt] = 0
    close(pooled(Pooling(modes, include_prompt=False), X[rows], counted), expected)


def test_padding_never_counts():
    layer = Pooling((*SHARED_POOLINGS, "attention"))
    layer.build(X.shape)
    other = np.where(MASK[:, :, None] > 0, X, 77.0).astype("float32")
    np.testing.assert_array_equal(pooled(layer), pooled(layer, other))


def test_attention_starts_as_the_mean_and_turns_to_the_token_that_the_vector_points_at(close):
    layer = Pooling("attention")
    layer.build(X.shape)
    close(pooled(layer), pooled(Pooling("mean")))
    layer.attention.assign(1000 * X[0, 2] / np.linalg.norm(X[0, 2]))
    close(pooled(layer)[0], X[0, np.argmax(X[0] @ X[0, 2])])


def test_without_a_mask_all_tokens_count(close):
    close(pooled(Pooling("mean"), X, None), X.mean(axis=1))


def test_normalize_gives_length_one_and_leaves_zero_as_it_is(close):
    x = np.stack([X[0, 0], np.zeros(8, "float32")])
    out = keras.ops.convert_to_numpy(Normalize()(x))
    close(np.linalg.norm(out, axis=1), [1, 0])


def test_mistakes_are_named():
    for wrong in ("average", (), ("mean", "first")):
        with pytest.raises(ValueError, match="Expected poolings of cls"):
            Pooling(wrong)


def test_layers_are_serialised_whole():
    layer = Pooling(("max", "cls"), include_prompt=False)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert (tuple(again.modes), again.include_prompt) == (("max", "cls"), False)
