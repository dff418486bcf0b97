"""What DeBERTa has and transformers lacks, against NumPy from the formulas; and its distances, padding and dropout."""

import json

import keras
import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from keras import ops

import bertzoo as bz
from bertzoo.layers.attention import make_attention_mask
from bertzoo.layers.deberta import (
    ConvolvedBlock,
    DisentangledAttention,
    relative_position_scores,
    skew,
    table_rows_of_distances,
)
from bertzoo.models.registry import FAMILIES

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
    "hidden_act": "relu",
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
    "position_biased_input": False,
}
OPTIONS = {
    "deberta": SIZES,
    "deberta-v2": {**SIZES, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True},
}
HEADS, HEAD_SIZE, LENGTH = 2, 8, 11
REAL = (np.arange(LENGTH) < np.array([11, 4, 7])[:, None]).astype("int32")
IDS = (np.random.default_rng(2).integers(3, 50, REAL.shape) * REAL).astype("int32")


def make_reference(model_type: str, suffix: str = "ForMaskedLM", **changes):
    config = transformers.AutoConfig.for_model(model_type, **{**OPTIONS[model_type], **changes})
    model = getattr(transformers, FAMILIES[model_type].hf_name + suffix)(config).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.15 * torch.randn(weight.shape))
    return model


def write_original(directory, model_type: str, prefix: str = "deberta."):
    """A checkpoint as Microsoft's: positions and both heads in the tensors, nothing about them in config.json."""
    reference = make_reference(model_type, legacy=False)
    reference.save_pretrained(directory)
    path = directory / "config.json"
    content = json.loads(path.read_text())
    del content["legacy"], content["architectures"]
    content["pos_att_type"] = "c2p|p2c"
    path.write_text(json.dumps(content))
    tensors = {
        name.replace("deberta.", prefix): x
        for name, x in safetensors.torch.load_file(directory / "model.safetensors").items()
    }
    shapes = {"dense.weight": (16, 16), "dense.bias": (16,), "LayerNorm.weight": (16,), "LayerNorm.bias": (16,)}
    shapes |= {"classifier.weight": (1, 16), "classifier.bias": (1,)}
    for name, shape in shapes.items():
        tensors["mask_predictions." + name] = torch.randn(shape) * 0.3
    tensors[prefix + "embeddings.position_embeddings.weight"] = torch.randn(24, 16) * 0.3
    safetensors.torch.save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return reference, {name.removeprefix(prefix): x.double().numpy() for name, x in tensors.items()}


# ---- the formulas


def affine(x, tensors, name):
    return x @ tensors[name + ".weight"].T + tensors.get(name + ".bias", 0)


def norm(x, tensors, name):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-7) * tensors[name + ".weight"] + tensors[name + ".bias"]


def projections(tensors, model_type, content, query, table):
    """q of the query stream, k and v of the content, pk and pq of the table, all (…, heads, head size)."""
    name = "encoder.layer.1.attention.self."
    if model_type == "deberta":
        wq, wk, wv = tensors[name + "in_proj.weight"].reshape(HEADS, 3, HEAD_SIZE, 16).swapaxes(0, 1).reshape(3, 16, 16)
        q, k, v = query @ wq.T + tensors[name + "q_bias"], content @ wk.T, content @ wv.T + tensors[name + "v_bias"]
        pk, pq = affine(table, tensors, name + "pos_proj"), affine(table, tensors, name + "pos_q_proj")
    else:
        q, k, v = (
            affine(x, tensors, name + kind + "_proj")
            for x, kind in ((query, "query"), (content, "key"), (content, "value"))
        )
        pk, pq = affine(table, tensors, name + "key_proj"), affine(table, tensors, name + "query_proj")
    return [x.reshape(*x.shape[:-1], HEADS, HEAD_SIZE) for x in (q, k, v, pk, pq)]


def last_layer(tensors, model_type, content, query):
    """The last layer, in which `query` (batch, length, hidden) attends to `content`."""
    table, span = tensors["encoder.rel_embeddings.weight"], 24
    position = np.arange(LENGTH)
    rows = position[:, None] - position[None]
    if model_type == "deberta-v2":
        from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

        table, span = norm(table, tensors, "encoder.LayerNorm"), 8
        rows = make_log_bucket_position(torch.tensor(rows), 8, 24).long().numpy()
    rows = np.clip(rows + span, 0, 2 * span - 1)
    q, k, v, pk, pq = projections(tensors, model_type, content, query, table)
    scores = np.einsum("bihd,bjhd->bhij", q, k)
    scores += np.einsum("bihd,ijhd->bhij", q, pk[rows]) + np.einsum("bjhd,ijhd->bhij", k, pq[rows])
    scores = np.where(REAL[:, None, None] == 1, scores / np.sqrt(3 * HEAD_SIZE), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    context = np.einsum("bhij,bjhd->bihd", weights, v).reshape(query.shape)
    name = "encoder.layer.1."
    x = norm(
        query + affine(context, tensors, name + "attention.output.dense"), tensors, name + "attention.output.LayerNorm"
    )
    inner = np.maximum(affine(x, tensors, name + "intermediate.dense"), 0)
    return norm(x + affine(inner, tensors, name + "output.dense"), tensors, name + "output.LayerNorm")


def hidden_states(reference):
    with torch.no_grad():
        out = reference(torch.tensor(IDS).long(), torch.tensor(REAL).long(), output_hidden_states=True)
    return [x.double().numpy() for x in out.hidden_states]


def assert_close(actual, expected, where=REAL == 1):
    actual, expected = keras.ops.convert_to_numpy(actual)[where], expected[where]
    assert np.abs(actual - expected).max() <= 1e-5 * max(1.0, np.abs(expected).max())


# ---- heads of the original files


@pytest.mark.parametrize(("model_type", "prefix"), [("deberta", "bert."), ("deberta-v2", "deberta.")])
def test_enhanced_mask_decoder(model_type, prefix, tmp_path):
    reference, tensors = write_original(tmp_path / "original", model_type, prefix)
    *_, before, last = hidden_states(reference)
    assert_close(last, last_layer(tensors, model_type, before, before))  # the formulas are transformers'
    query = before + tensors["embeddings.position_embeddings.weight"][:LENGTH]
    for _ in range(2):
        query = last_layer(tensors, model_type, before, query)
    x = norm(
        np.maximum(affine(query, tensors, "lm_predictions.lm_head.dense"), 0),
        tensors,
        "lm_predictions.lm_head.LayerNorm",
    )
    expected = x @ tensors["embeddings.word_embeddings.weight"].T + tensors["lm_predictions.lm_head.bias"]

    task = bz.MaskedLM.from_preset(tmp_path / "original", tokenizer=None, verbose=False)
    assert task.load_report.new == [] and task.backbone.config.unknown_keys == []
    assert all(name.startswith("mask_predictions") for name in task.load_report.unused)
    inputs = {"token_ids": IDS, "padding_mask": REAL}
    assert_close(task(inputs), expected)
    positions = np.array([[1, 9], [0, 3], [2, 6]], "int32")
    assert_close(
        task({**inputs, "mask_positions": positions}), np.take_along_axis(expected, positions[:, :, None], 1), ...
    )

    with pytest.raises(Exception, match="Expected at most 24 tokens, the positions .* Received: 25"):
        task({"token_ids": np.full((1, 25), 3, "int32")})

    task.save_to_preset(tmp_path / "saved")
    actual = safetensors.torch.load_file(tmp_path / "saved" / "model.safetensors")
    original = safetensors.torch.load_file(tmp_path / "original" / "model.safetensors")
    assert set(actual) == {
        name.replace(prefix, "deberta.") for name in original if not name.startswith("mask_predictions")
    }
    assert all(torch.equal(x, original[name.replace("deberta.", prefix)]) for name, x in actual.items())
    for again in (
        bz.MaskedLM.from_preset(tmp_path / "saved", tokenizer=None, verbose=False),
        bz.MaskedLM(bz.Encoder.from_config(task.backbone.get_config())),
    ):
        again.set_weights(task.get_weights())
        assert_close(again(inputs), expected)
    hf_model, info = type(reference).from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not any(info.values()) and torch.equal(
        hf_model.eval().deberta(torch.tensor(IDS).long())[0], reference.deberta(torch.tensor(IDS).long())[0]
    )


def test_replaced_token_detection(tmp_path):
    reference, tensors = write_original(tmp_path / "original", "deberta-v2")
    last = hidden_states(reference)[-1]
    x = norm(last[:, :1] + last, tensors, "mask_predictions.LayerNorm")
    expected = affine(
        np.maximum(affine(x, tensors, "mask_predictions.dense"), 0), tensors, "mask_predictions.classifier"
    )
    task = bz.ReplacedTokenDetector.from_preset(tmp_path / "original", tokenizer=None, verbose=False)
    assert task.load_report.new == []
    assert_close(task({"token_ids": IDS, "padding_mask": REAL}), expected[..., 0])
    task.save_to_preset(tmp_path / "saved")
    original = safetensors.torch.load_file(tmp_path / "original" / "model.safetensors")
    for name, x in safetensors.torch.load_file(tmp_path / "saved" / "model.safetensors").items():
        assert torch.equal(x, original[name]), name


# ---- distances


@pytest.mark.once
def test_rows_of_distances_are_those_of_transformers():
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    for buckets, longest in ((256, 512), (32, 140), (8, 24), (6, 512), (64, 128)):
        distance = torch.arange(-longest, longest + 1)
        expected = (make_log_bucket_position(distance, buckets, longest).long() + buckets).clamp(0, 2 * buckets - 1)
        np.testing.assert_array_equal(table_rows_of_distances(longest, buckets), expected.numpy())
    known = {131: 131, 132: 131, 140: 137, 200: 169, 256: 192, 300: 207, 400: 233, 500: 254, 511: 255}
    rows = table_rows_of_distances(512, 256)
    assert {distance: rows[512 + distance] - 256 for distance in known} == known
    assert DisentangledAttention(16, 2, num_buckets=256).linear == 132


def test_skew_is_a_lookup():
    for length in (1, 2, 5):
        x = np.random.default_rng(0).normal(size=(2, 3, length, 2 * length)).astype("float32")
        i, j = np.indices((length, length))
        np.testing.assert_array_equal(ops.convert_to_numpy(skew(x, length - 1)), x[:, :, i, length - 1 - i + j])
        np.testing.assert_array_equal(ops.convert_to_numpy(skew(x, length)), x[:, :, i, length - i + j])


@pytest.mark.parametrize("terms", [("c2p",), ("c2p", "p2c")])
def test_the_order_of_a_gpu_gives_the_same(terms, compiled):
    attention = DisentangledAttention(16, 2, max_distance=24, num_buckets=8, terms=terms, share_projections=True)
    attention.build((None, None, 16))
    draws = np.random.default_rng(0)
    x, table = (draws.normal(size=shape).astype("float32") for shape in ((3, 9, 16), (16, 16)))
    queries, keys, _ = attention._project(x)
    positions = attention._positions_by_distance(table, 9)
    positions = positions if "p2c" in terms else (None, positions[1])
    formula = relative_position_scores.__wrapped__
    first = compiled(lambda axes="bh": formula(queries, keys, *positions, axes), attention)()
    other = compiled(lambda axes="hb": formula(queries, keys, *positions, axes), attention)()
    np.testing.assert_allclose(
        ops.convert_to_numpy(first), ops.convert_to_numpy(other).transpose(1, 0, 2, 3), atol=1e-6
    )


@pytest.mark.parametrize("length", [4, 9, 30])
def test_lengths_known_only_when_it_runs(length, backend):
    attention = DisentangledAttention(16, 2, max_distance=24, num_buckets=8)
    attention._project_positions = lambda table: (None, table)
    table = np.random.default_rng(0).normal(size=(16, 16)).astype("float32")
    if backend == "tensorflow":
        import tensorflow as tf

        run = tf.function(lambda size: attention._positions_by_distance(tf.constant(table), size)[1])
        dynamic = run(tf.constant(length))
    else:
        dynamic = attention._positions_by_distance(
            ops.convert_to_tensor(table), ops.convert_to_tensor(length, dtype="int32")
        )[1]
    static = ops.convert_to_numpy(attention._positions_by_distance(ops.convert_to_tensor(table), length)[1])
    distance = np.clip(np.arange(-length, length), -24, 24)
    np.testing.assert_array_equal(ops.convert_to_numpy(dynamic)[1:], table[attention.rows[distance + 24]][1:])
    np.testing.assert_array_equal(static[1:], ops.convert_to_numpy(dynamic)[1:])  # the first is never read


# ---- padding, half precision, dropout


def test_a_bare_mask_means_what_it_means_to_other_blocks(numpy):
    block = ConvolvedBlock(16, 2, 24, kernel_size=3)
    block.build((None, None, 16))
    x = np.random.default_rng(0).normal(size=(*REAL.shape, 16)).astype("float32")
    mask = ops.convert_to_tensor(REAL[:, None, None] == 1)
    out = numpy(block(x, attention_mask=mask))
    np.testing.assert_array_equal(out, numpy(block(x, attention_mask=make_attention_mask(REAL))))
    assert not out[REAL == 0].any() and out[REAL == 1].all()


@pytest.mark.parametrize("model_type", OPTIONS)
def test_padding_has_the_values_of_transformers(model_type, tmp_path):
    """Its queries attend to all places alike, so even the rows of padding are equal."""
    reference = make_reference(model_type, "Model")
    reference.save_pretrained(tmp_path)
    encoder = bz.Encoder.from_preset(tmp_path, verbose=False)
    inputs = {"token_ids": IDS, "padding_mask": REAL}
    expected = hidden_states(reference)
    assert_close(encoder(inputs)["sequence_output"], expected[-1], ...)
    for actual, hf_output in zip(encoder(inputs, return_all=True)["hidden_states"], expected, strict=True):
        assert_close(actual, hf_output, ...)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float16"])
@pytest.mark.parametrize("model_type", OPTIONS)
def test_half_precision_gives_numbers(compiled, model_type, dtype):
    changes = {"conv_kernel_size": 3} if model_type == "deberta-v2" else {}
    family = FAMILIES[model_type]
    config = family.config_class(**OPTIONS[model_type], **changes, initializer_range=1.0)  # scores of hundreds
    encoder = bz.Encoder(config, dtype=dtype, dropout=0.1)
    inputs = {"token_ids": IDS, "padding_mask": REAL * np.array([[1], [1], [0]], "int32")}  # one row is padding alone
    for options in ({}, {"return_all": True}, {"training": True}):
        for x in keras.tree.flatten(compiled(lambda options=options: encoder(inputs, **options), encoder)()):
            assert np.isfinite(ops.convert_to_numpy(ops.cast(x, "float32"))).all()


def test_relative_embeddings_are_dropped_out_anew_in_each_block():
    config = FAMILIES["deberta-v2"].config_class(**OPTIONS["deberta-v2"])
    encoder = bz.Encoder(config, dropout=0.5)
    seen = []
    for block in encoder.blocks:

        def note(table, of=block.attention._project_positions):
            seen.append(ops.convert_to_numpy(table))
            return of(table)

        object.__setattr__(block.attention, "_project_positions", note)
    table = ops.convert_to_numpy(encoder.position_bias(None))
    encoder({"token_ids": IDS}, training=True)
    for dropped in seen:
        assert dropped.shape == table.shape and 0.3 < (dropped == 0).mean() < 0.7
        np.testing.assert_allclose(dropped[dropped != 0], 2 * table[dropped != 0], rtol=1e-6)
    assert ((seen[0] == 0) != (seen[1] == 0)).mean() > 0.2


@pytest.mark.once
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pos_att_type": "c2p|p2p"}, "pos_att_type may name c2p and p2c"),
        ({"enhanced_mask_decoder": True}, "needs legacy = False"),
        ({"conv_kernel_size": 2}, "conv_kernel_size must be odd"),
        ({"position_buckets": 1100}, "more than 551 distances"),
        ({"extra": {"talking_head": True}}, "talking_head = True"),
        ({"extra": {"attention_head_size": 32}}, "attention_head_size = 32"),
    ],
)
def test_wrong_configurations_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        FAMILIES["deberta-v2"].config_class(**changes)
