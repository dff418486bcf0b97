"""DeBERTa v3's sharing: the discriminator reads the generator's tables and never moves them."""

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

import bertzoo as bz
from bertzoo.models.deberta import DebertaV2Config
from bertzoo.models.electra import ElectraConfig
from bertzoo.pretraining.replaced_tokens import ReplacedTokenTraining, generator_config

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
SIZE = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "num_hidden_layers": 1}
CONFIG = DebertaV2Config(vocab_size=len(WORDS), max_position_embeddings=64, **SIZE)


@pytest.fixture
def model(request):
    tokenizer = bz.Tokenizer.from_vocabulary(WORDS)
    generator = generator_config(CONFIG, getattr(request, "param", 1.0), 0.5)
    return ReplacedTokenTraining(CONFIG, generator, tokenizer, sharing="disentangled", dropout=0.0)


@pytest.fixture
def inputs(model):
    ids = np.random.default_rng(0).integers(5, len(WORDS), (4, 12)).astype("int32")
    ids[:, 0], ids[:, -1] = 2, 3
    batch = {"token_ids": ids, "padding_mask": np.ones_like(ids), "lengths": np.full(4, 12, "int32")}
    return model.mask_batch(batch, np.random.default_rng(1))[0]


def table(model, numpy):
    return numpy(model.generator.backbone.token_embedding_table()).copy()


def test_they_begin_alike_and_share_nothing_else(model, numpy):
    np.testing.assert_array_equal(numpy(model.discriminator.backbone.token_embedding_table()), table(model, numpy))
    discriminator, generator = ({id(w) for w in network.weights} for network in (model.discriminator, model.generator))
    assert not discriminator & generator


@pytest.mark.once
def test_positions_are_the_generators_plus_a_difference(numpy):
    config = CONFIG.replace(position_biased_input=True)
    tokenizer = bz.Tokenizer.from_vocabulary(WORDS)
    model = ReplacedTokenTraining(config, generator_config(config, 1.0, 0.5), tokenizer, sharing="disentangled")
    owner, embeddings = model.generator.backbone.embeddings, model.discriminator.backbone.embeddings
    difference = np.random.default_rng(0).normal(size=owner.position.shape).astype("float32")
    embeddings.position_difference.assign(difference)
    np.testing.assert_array_equal(numpy(embeddings.position), numpy(owner.position) + difference)


@pytest.mark.parametrize("only", ["rtd", "masked_lm"])
def test_gradients(model, inputs, numpy, only, eager):
    """The discriminator's loss moves the differences alone; the generator's moves its tables, and both see them."""

    def loss(x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if only == "masked_lm":
            return keras.ops.mean(
                keras.ops.sparse_categorical_crossentropy(x["mask_labels"], y_pred["masked_lm"], from_logits=True)
            )
        return keras.ops.mean(keras.ops.softplus(y_pred["rtd"]))

    model.compute_loss = loss
    model.compile(bz.AdamW(0.01, 0.0, warmup=0.0), run_eagerly=eager)
    before = {w.path: numpy(w).copy() for w in model.trainable_weights}
    model.fit(inputs, batch_size=4, epochs=2, shuffle=False, verbose=0)
    moved = {w.path for w in model.trainable_weights if np.abs(numpy(w) - before[w.path]).max() > 0}
    generator = {w.path for w in model.generator.trainable_weights}
    if only == "rtd":
        assert moved and not moved & generator
        assert any(path.endswith("embeddings/token_difference") for path in moved)
    else:
        assert any(path.endswith("embeddings/token") for path in moved) and moved <= generator
        np.testing.assert_array_equal(numpy(model.discriminator.backbone.token_embedding_table()), table(model, numpy))


@pytest.mark.parametrize(
    "model",
    [pytest.param(1.0, id="as wide", marks=pytest.mark.once), pytest.param(0.5, id="half as wide")],
    indirect=True,
)
def test_saved_with_tables_of_its_own(model, inputs, numpy, close, tmp_path, eager, compiled):
    model.compile(bz.AdamW(0.01), run_eagerly=eager)
    model.fit(inputs, batch_size=4, epochs=3, shuffle=False, verbose=0)
    model.save_to_preset(tmp_path / "model")
    stored = load_file(tmp_path / "model" / "model.safetensors")
    (name,) = [name for name in stored if name.endswith("word_embeddings.weight")]
    difference = numpy(model.discriminator.backbone.embeddings.token_difference)
    assert np.abs(difference).max() > 1e-4
    np.testing.assert_allclose(stored[name], table(model, numpy) + difference, atol=1e-7)
    again = bz.ReplacedTokenDetector.from_preset(tmp_path / "model", verbose=False)
    batch = {key: inputs[key] for key in ("token_ids", "padding_mask")}
    close(numpy(compiled(again, again)(batch)), numpy(compiled(model.discriminator, model)(batch)))
    bz.MaskedLM.from_preset(tmp_path / "model" / "generator", verbose=False)


def test_mistakes_are_named():
    tokenizer = bz.Tokenizer.from_vocabulary(WORDS)
    electra = ElectraConfig(vocab_size=len(WORDS), embedding_size=32, **SIZE)
    with pytest.raises(ValueError, match=r"need sharing = \"disentangled\", and those of other families"):
        ReplacedTokenTraining(electra, electra, tokenizer, sharing="disentangled")
    with pytest.raises(ValueError, match='need sharing = "disentangled"'):
        ReplacedTokenTraining(CONFIG, CONFIG, tokenizer)
    with pytest.raises(ValueError, match="sharing must be one of plain, disentangled"):
        ReplacedTokenTraining(electra, electra, tokenizer, sharing="all")
