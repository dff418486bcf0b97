"""Packed rows give what the padded batch gives: outputs, losses, and one update, with dropout of both kinds."""

import os

import keras
import numpy as np
import pytest
from family_cases import ALL_CASES

import bertzoo as bz
from bertzoo.data.packed_batches import pack_predictions
from bertzoo.data.packing import PackedShape, packing_arrays
from bertzoo.layers.functional import FIRST
from bertzoo.losses import MultipleNegativesRanking
from bertzoo.models.config import EncoderConfig
from bertzoo.models.registry import FAMILIES as REGISTRY
from bertzoo.pretraining.replaced_tokens import ReplacedTokenTraining

LENGTHS = np.array([7, 3, 12, 1, 5, 9, 2, 4], "int32")
LENGTH = 14  # two more than the longest text
SHAPE = PackedShape(16, (4,))
FAMILIES = [case for case in ALL_CASES if case not in ("xlm-roberta", "camembert") and "long" not in case]


def make_encoder(case, **options):
    model_type, arguments = ALL_CASES[case]
    config = EncoderConfig.from_hf({"model_type": model_type, **arguments, "initializer_range": 0.3})
    return bz.Encoder(config, dropout=0.2, attention_dropout=0.2, **options)


def make_inputs(pad_id=0, columns=None):
    """A padded batch, and the same packed."""
    rng = np.random.default_rng(0)
    lengths = LENGTHS if columns is None else LENGTHS.reshape(-1, columns)
    mask = (np.arange(LENGTH) < lengths[..., None]).astype("int32")
    ids = np.where(mask, rng.integers(5, 50, mask.shape), pad_id).astype("int32")
    padded = {"token_ids": ids, "segment_ids": np.zeros_like(ids), "padding_mask": mask, "lengths": lengths}
    return padded, {**padded, **packing_arrays(lengths, LENGTH, SHAPE)}


@pytest.mark.parametrize("case", FAMILIES)
def test_outputs(case, compiled, close, numpy):
    encoder = make_encoder(case)
    decoder = bz.MaskedLM(encoder).masked_lm
    padded, packed = make_inputs(encoder.config.pad_token_id)
    assert packed["packing"].size < padded["token_ids"].size
    positions = keras.ops.convert_to_tensor(np.stack([LENGTHS - 1, LENGTHS // 2, 0 * LENGTHS], 1))

    def run(key, *arrays):
        results = {}
        for name, inputs in (("padded", padded), ("packed", packed)):
            call = {"training": True, "dropout_key": key, "decoder": decoder}
            results[name] = [
                encoder(inputs, **call),
                encoder(inputs, **call, query_positions=positions),
                encoder(inputs, **call, query_positions=FIRST),
                encoder(inputs)["sequence_output"],
            ]
        return results

    results = numpy(compiled(run, encoder, decoder)(keras.ops.convert_to_tensor(np.array([12345, -678], "int32"))))
    real = padded["padding_mask"][:, :, None]

    def real_alone(output):
        return output * real if output.ndim == 3 and output.shape[1] == LENGTH else output

    for one, other in zip(keras.tree.flatten(results["padded"]), keras.tree.flatten(results["packed"])):
        close(other, real_alone(one))


def test_texts_do_not_see_each_other(compiled, numpy):
    encoder = make_encoder("deberta-v2-xl")
    _, packed = make_inputs()
    other = {**packed, "token_ids": packed["token_ids"].copy()}
    other["token_ids"][2] = 7
    before, after = (
        numpy(compiled(lambda ids, x=x: encoder({**x, "token_ids": ids})["sequence_output"], encoder)(x["token_ids"]))
        for x in (packed, other)
    )
    changed = (before != after).any(axis=(1, 2))
    assert changed.tolist() == [i == 2 for i in range(len(LENGTHS))]


def classifier(encoder, inputs):
    return bz.TextClassifier(encoder, labels=["a", "b", "c"]), (inputs, LENGTHS % 3)


def tagger(encoder, inputs):
    tags, weights = inputs["token_ids"] % 3, inputs["padding_mask"].astype("float32")
    return bz.TokenClassifier(encoder, labels=["a", "b", "c"]), (inputs, tags, weights)


def crf_tagger(encoder, inputs):
    tags, weights = inputs["token_ids"] % 3, inputs["padding_mask"].astype("float32")
    return bz.TokenClassifier(encoder, labels=["a", "b", "c"], crf=True), (inputs, tags, weights)


def answerer(encoder, inputs):
    ends = np.zeros((*inputs["token_ids"].shape, 2), "float32")
    ends[np.arange(len(ends)), LENGTHS // 2, 0] = ends[np.arange(len(ends)), LENGTHS - 1, 1] = 1.0
    return bz.QuestionAnswerer(encoder), (inputs, ends)


def masked_lm(encoder, inputs):
    positions = np.stack([LENGTHS - 1, LENGTHS // 2], axis=1)
    inputs = {**inputs, "mask_positions": positions}
    return bz.MaskedLM(encoder), (inputs, positions + 5, (positions > 0).astype("float32"))


TASKS = {task.__name__: task for task in (classifier, tagger, answerer, masked_lm, crf_tagger)}


def losses_and_changes(model, batch):
    """The losses of two steps, and what the first of them changed."""
    before = [keras.ops.convert_to_numpy(weight).copy() for weight in model.trainable_weights]
    first = float(np.ravel(model.train_on_batch(*batch))[0])
    changes = [keras.ops.convert_to_numpy(w) - b for w, b in zip(model.trainable_weights, before)]
    model.reset_metrics()
    return (first, float(np.ravel(model.train_on_batch(*batch))[0])), changes


def check_equal(padded, packed):
    assert np.allclose(padded[0], packed[0], rtol=1e-5)
    largest = max(np.abs(change).max() for change in padded[1])
    assert largest > 1e-3
    for one, other in zip(padded[1], packed[1]):
        assert np.abs(one - other).max() <= 1e-5 * largest


# Compiling takes JAX seconds for each, and what tasks see of a packed batch is the same in every family.
EVERYWHERE = [("bert", task) for task in TASKS] + [("mpnet", "masked_lm"), ("deberta-v2-xl", "tagger")]
HEADS = {"answerer": "qa"}  # not every family has it
ELSEWHERE = [
    (case, task)
    for case in FAMILIES
    for task in TASKS
    if (case, task) not in EVERYWHERE and HEADS.get(task, "masked_lm") in REGISTRY[ALL_CASES[case][0]].heads
]


@pytest.mark.parametrize(
    ("case", "task"), [*EVERYWHERE, *(pytest.param(*pair, marks=pytest.mark.once) for pair in ELSEWHERE)]
)
def test_update(case, task, eager):
    results = []
    for inputs in make_inputs(pad_id=1 if case.startswith(("roberta", "mpnet")) else 0):
        bz.set_seed(1)
        model, batch = TASKS[task](make_encoder(case), inputs)
        model.compile(keras.optimizers.SGD(0.1), run_eagerly=eager)
        results.append(losses_and_changes(model, batch))
    check_equal(*results)


def test_update_with_predictions_laid_out_anew(eager):
    """In another order, and beside other texts."""
    results = []
    padded, packed = make_inputs()
    positions = np.stack([LENGTHS - 1, LENGTHS // 2, LENGTHS // 3], axis=1)
    batch = {**padded, "mask_positions": positions}, positions + 5, ((positions > 1) * 1.0).astype("float32")
    laid_out = pack_predictions({**packed, "mask_positions": positions}, *batch[1:], 2)
    for inputs, *targets in ((*batch,), laid_out):
        bz.set_seed(1)
        model = bz.MaskedLM(make_encoder("bert"))
        model.compile(keras.optimizers.SGD(0.1), run_eagerly=eager)
        results.append(losses_and_changes(model, (inputs, *targets)))
    assert laid_out[1].shape == (8, 2)
    check_equal(*results)


def test_update_of_sentences(eager):
    results = []
    for inputs in make_inputs(columns=2):
        bz.set_seed(1)
        model = bz.SentenceEncoder(make_encoder("bert"))
        model.compile(keras.optimizers.SGD(0.01), MultipleNegativesRanking(), run_eagerly=eager)
        results.append(losses_and_changes(model, (inputs, np.zeros(len(inputs["lengths"])))))
    check_equal(*results)


@pytest.mark.parametrize("sharing", ["plain", pytest.param("disentangled", marks=pytest.mark.once)])
def test_update_of_replaced_tokens(sharing, eager):
    """What the generator draws, and so what the discriminator reads, is the same too."""
    tokenizer = bz.Tokenizer.from_vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(45))])
    results = []
    for inputs in make_inputs():
        bz.set_seed(1)
        case = "electra" if sharing == "plain" else "deberta-v2"
        config = make_encoder(case).config
        generator = config.replace(num_hidden_layers=1, hidden_size=config.embedding_size, num_attention_heads=1)
        options = {"sharing": sharing, "dropout": 0.2, "attention_dropout": 0.2}
        model = ReplacedTokenTraining(config, generator, tokenizer, **options)
        model.compile(keras.optimizers.SGD(0.01), run_eagerly=eager)
        positions = np.stack([LENGTHS - 1, LENGTHS // 2], axis=1)
        masks = {"mask_positions": positions, "mask_labels": positions + 5, "mask_weights": (positions > 0) * 1.0}
        results.append(losses_and_changes(model, ({**inputs, **masks},)))
    check_equal(*results)


TWO_DEVICES = """
import keras, numpy as np
import bertzoo as bz

rng = np.random.default_rng(0)
mask = (np.arange(30) < rng.integers(2, 30, (64, 1))).astype("int32")
x = {"token_ids": rng.integers(5, 50, mask.shape).astype("int32") * mask, "padding_mask": mask}
y = rng.integers(0, 2, 64)
sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}

def run():
    bz.set_seed(1)
    model = bz.TextClassifier(bz.Encoder(bz.EncoderConfig(**sizes), dropout=0.2))
    model.compile(keras.optimizers.SGD(0.1))
    rows = model.batches(x, y, batch_size=16)[0][0]["packing"]
    return rows, model.fit(x, y, batch_size=16, epochs=2, verbose=0).history["loss"]

_, one = run()
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
rows, two = run()
assert len(rows) % 2 == 0
np.testing.assert_allclose(one, two, rtol=1e-6)
"""


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="several devices are JAX's")
def test_two_devices(python):
    """Each computes rows of its own, and the losses are those of one device."""
    flags = f"--xla_force_host_platform_device_count=2 {os.environ['XLA_FLAGS']}"
    python(TWO_DEVICES, XLA_FLAGS=flags, JAX_PLATFORMS="cpu")
