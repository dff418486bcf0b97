"""The encoder against transformers on the same weights, and its own promises."""

import keras
import numpy as np
import pytest
import torch
from keras import ops

import bertzoo as bz
import bertzoo.data
from bertzoo.layers.functional import FIRST
from bertzoo.models.registry import FAMILIES
from bertzoo.tasks.pretraining_heads import ForPreTraining

LENGTHS = (12, 5, 1, 9)


@pytest.fixture(scope="module")
def batch(words):
    rng = np.random.default_rng(3)
    mask = (np.arange(12) < np.array(LENGTHS)[:, None]).astype("int32")
    ids = rng.integers(5, len(words), mask.shape).astype("int32") * mask
    segments = (np.arange(12) >= np.array([6, 3, 1, 0])[:, None]).astype("int32") * mask
    return {"token_ids": ids, "segment_ids": segments, "padding_mask": mask}


def reference(model, batch, **options):
    with torch.no_grad():
        return model(
            input_ids=torch.tensor(batch["token_ids"]),
            attention_mask=torch.tensor(batch["padding_mask"]),
            token_type_ids=torch.tensor(batch["segment_ids"]),
            **options,
        )


@pytest.mark.parametrize(
    ("changes", "pooler"),
    [
        ({}, True),
        ({"hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "type_vocab_size": 1}, True),
        ({"hidden_act": "relu", "type_vocab_size": 3}, False),
        ({"layer_norm_eps": 1e-2}, False),
    ],
    ids=["gelu", "gelu_new-eps-one-type", "relu-three-types-no-pooler", "large-eps-no-pooler"],
)
def test_equals_transformers(write_checkpoint, batch, numpy, close, changes, pooler):
    """Fault 5 (activation and epsilon of the file) and fault 6 (type_vocab_size, pooler)."""
    directory, hf_model = write_checkpoint(pooler=pooler, **changes)
    types = changes.get("type_vocab_size", 2)
    inputs = {**batch, "segment_ids": np.minimum(batch["segment_ids"] * 2, types - 1)}
    encoder = bz.Encoder.from_preset(directory, verbose=False, pooler=pooler)
    expected = reference(hf_model, inputs, output_hidden_states=True, output_attentions=True)
    fused, full = numpy(encoder(inputs)), numpy(encoder(inputs, return_all=True))
    real = inputs["padding_mask"].astype(bool)
    close(fused["sequence_output"][real], expected.last_hidden_state.numpy()[real])
    close(full["sequence_output"][real], expected.last_hidden_state.numpy()[real])
    assert len(full["hidden_states"]) == 3 and len(full["attentions"]) == 2
    for actual, hf_output in zip(full["hidden_states"], expected.hidden_states):
        close(actual[real], hf_output.numpy()[real])
    for actual, hf_output in zip(full["attentions"], expected.attentions):
        close(actual.transpose(0, 2, 1, 3)[real], hf_output.numpy().transpose(0, 2, 1, 3)[real])
    assert ("pooled_output" in fused) == pooler
    if pooler:
        close(fused["pooled_output"], expected.pooler_output.numpy())
    assert encoder.count_params() == sum(weight.numel() for weight in hf_model.parameters())


def test_another_activation_or_epsilon_would_show(checkpoint, batch):
    """The comparison above can tell the variants apart."""
    _, hf_model = checkpoint
    base = reference(hf_model, batch).last_hidden_state
    changed = type(hf_model)(type(hf_model.config)(**{**hf_model.config.to_dict(), "hidden_act": "gelu_new"}))
    changed.load_state_dict(hf_model.state_dict())
    assert (reference(changed.eval(), batch).last_hidden_state - base).abs().max() > 1e-4


@pytest.mark.slow
def test_minilm_equals_transformers(minilm, numpy, close, compiled):
    import transformers

    reviews = bertzoo.data.load_reviews("train")[0]
    texts = [" ".join(reviews[i : i + 1 + i % 3]) for i in range(64)]
    encoder = bz.Encoder.from_preset(minilm, verbose=False)
    inputs = bz.Tokenizer.from_directory(minilm)(texts)
    hf_model = transformers.AutoModel.from_pretrained(minilm, dtype=torch.float32, attn_implementation="eager").eval()
    expected = reference(hf_model, inputs)
    actual = numpy(compiled(encoder, encoder)(inputs))
    real = inputs["padding_mask"].astype(bool)
    close(actual["sequence_output"][real], expected.last_hidden_state.numpy()[real])
    close(actual["pooled_output"], expected.pooler_output.numpy())


@pytest.fixture(scope="module")
def encoder(checkpoint):
    return bz.Encoder.from_preset(checkpoint[0], verbose=False)


def test_segments_and_mask_may_be_left_out(encoder, batch, numpy):
    ids = batch["token_ids"]
    zeros, ones = np.zeros_like(ids), np.ones_like(ids)
    whole = numpy(encoder({"token_ids": ids, "segment_ids": zeros, "padding_mask": ones}))
    for inputs in ({"token_ids": ids}, ids, {"token_ids": ids, "padding_mask": ones.astype(bool)}):
        np.testing.assert_allclose(numpy(encoder(inputs))["sequence_output"], whole["sequence_output"], atol=2e-6)


def test_more_padding_and_other_rows_change_nothing(encoder, batch, numpy):
    longer = {key: np.pad(value, ((0, 0), (0, 4))) for key, value in batch.items()}
    longer["token_ids"][:, 12:] = 7  # what stands at padding has no effect either
    turned = {key: value[::-1] for key, value in batch.items()}
    real = batch["padding_mask"].astype(bool)
    base = numpy(encoder(batch))["sequence_output"]
    np.testing.assert_allclose(numpy(encoder(longer))["sequence_output"][:, :12][real], base[real], atol=5e-6)
    np.testing.assert_allclose(numpy(encoder(turned))["sequence_output"][::-1][real], base[real], atol=5e-6)


@pytest.mark.parametrize("return_all", [False, True])
def test_a_row_of_padding_alone_gives_numbers(encoder, batch, numpy, return_all):
    inputs = {**batch, "padding_mask": batch["padding_mask"] * np.array([[1], [0], [1], [1]], "int32")}
    outputs = keras.tree.flatten(numpy(encoder(inputs, return_all=return_all)))
    assert all(np.isfinite(values).all() for values in outputs)
    gradient_safe = encoder(inputs, training=True)["sequence_output"]
    assert np.isfinite(numpy(gradient_safe)).all()


def test_bfloat16_stays_close(checkpoint, batch, numpy, encoder):
    half = bz.Encoder.from_preset(checkpoint[0], verbose=False, dtype="mixed_bfloat16")
    assert all(weight.dtype == "float32" for weight in half.weights)
    output = half(batch)["sequence_output"]
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    real = batch["padding_mask"].astype(bool)
    off = numpy(ops.cast(output, "float32"))[real] - numpy(encoder(batch))["sequence_output"][real]
    assert np.abs(off).mean() < 0.02 and np.abs(off).max() < 0.3


def test_weight_paths_are_unique(encoder):
    paths = [weight.path for weight in encoder.weights]
    assert len(set(paths)) == len(paths) == 5 + 2 * 12 + 2
    assert all(path.startswith("encoder/") for path in paths)


def test_keras_files_bring_it_back(encoder, batch, numpy, tmp_path):
    base = numpy(encoder(batch))
    encoder.save(tmp_path / "encoder.keras")
    again = keras.saving.load_model(tmp_path / "encoder.keras")
    assert again.config == encoder.config and again.config.extra == encoder.config.extra
    encoder.save_weights(tmp_path / "encoder.weights.h5")
    fresh = bz.Encoder(encoder.config)
    assert np.abs(numpy(fresh(batch))["sequence_output"] - base["sequence_output"]).max() > 0.01
    fresh.load_weights(tmp_path / "encoder.weights.h5")
    for model in (again, fresh):
        np.testing.assert_array_equal(numpy(model(batch))["sequence_output"], base["sequence_output"])


def test_wrong_configurations_are_named():
    with pytest.raises(ValueError, match="model_type must be one of .*bert.*'gpt2'"):
        bz.Encoder(bz.EncoderConfig(model_type="gpt2"))
    with pytest.raises(ValueError, match=r"multiple of num_attention_heads. Received: 30 and 4"):
        bz.EncoderConfig(hidden_size=30, num_attention_heads=4)
    with pytest.raises(ValueError, match="hidden_act must be one of"):
        bz.EncoderConfig(hidden_act="mish")
    with pytest.raises(ValueError, match="hidden_dropout_prob must be .* below 1. Received: 1.0"):
        bz.Encoder(bz.EncoderConfig(), dropout=1.0)


@pytest.mark.once
@pytest.mark.parametrize(
    ("family", "name", "value"),
    [
        ("bert", "hidden_dropout_prob", None),
        ("bert", "attention_probs_dropout_prob", float("nan")),
        ("bert", "classifier_dropout", 1.5),
        ("bert", "classifier_dropout", "0.1"),
        ("bert", "layer_norm_eps", -1),
        ("bert", "layer_norm_eps", "1e-12"),
        ("bert", "initializer_range", float("inf")),
        ("distilbert", "qa_dropout", True),
        ("electra", "summary_last_dropout", -0.1),
        ("modernbert", "embedding_dropout", 1),
        ("modernbert", "classifier_activation", "nope"),
        ("deberta", "pooler_dropout", 2),
        ("deberta-v2", "pooler_hidden_act", None),
    ],
)
def test_values_out_of_range_are_named(family, name, value):
    config_class = FAMILIES[family].config_class
    config_class(classifier_dropout=None, layer_norm_eps=0, hidden_dropout_prob=0)  # not beyond
    with pytest.raises(ValueError, match=f"{name} must be .*. Received: {value!r}"):
        config_class(**{name: value})


@pytest.mark.parametrize(("family", "room"), [("bert", 12), ("roberta", 10), ("mpnet", 10)])
def test_rows_longer_than_the_position_table_are_named(family, room):
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    encoder = bz.Encoder(FAMILIES[family].config_class(**sizes, max_position_embeddings=12))
    assert encoder.config.max_length == room
    assert np.isfinite(ops.convert_to_numpy(encoder(np.full((1, room), 5))["sequence_output"])).all()
    with pytest.raises(ValueError, match=f"Expected at most {room} tokens.* Received: {room + 1} tokens"):
        encoder(np.full((1, room + 1), 5))


@pytest.mark.parametrize(
    "family", ["bert", "albert", "roberta", "mpnet", "deberta-v2", "modernbert", "gte", "eurobert"]
)
def test_the_first_token_alone(family, compiled, close, numpy):
    """The same numbers with dropout of both kinds, where the last block is spared the other tokens and where not."""
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    config = FAMILIES[family].config_class(**sizes, num_hidden_layers=2, initializer_range=0.3)
    encoder = bz.Encoder(config, dropout=0.2, attention_dropout=0.2)
    ids = np.random.default_rng(0).integers(3, 50, (3, 7)).astype("int32")
    mask = np.array([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6], "int32")
    key = np.array([12345, -678], "int32")

    def run(positions):
        inputs = {"token_ids": ids, "padding_mask": mask}
        return compiled(
            lambda key: encoder(inputs, training=True, dropout_key=key, query_positions=positions), encoder
        )(keras.ops.convert_to_tensor(key))

    first, whole = numpy(run(FIRST)), numpy(run(None))
    close(first["sequence_output"], whole["sequence_output"][:, :1])
    if "pooled_output" in whole:
        close(first["pooled_output"], whole["pooled_output"])


@pytest.mark.parametrize("lengths", [None, np.array([7, 4, 1], "int32")])
@pytest.mark.parametrize(
    "family", ["bert", "albert", "roberta", "mpnet", "deberta-v2", "deberta", "modernbert", "gte", "eurobert"]
)
def test_some_tokens(family, lengths, close, numpy):
    """In any order, more than there are, and twice; what the masked-LM head reads too, and the pooler's output; dropout
    drops what it would drop if all were computed."""
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    options = {"enhanced_mask_decoder": True, "legacy": False} if family == "deberta" else {}
    config = FAMILIES[family].config_class(**sizes, num_hidden_layers=2, initializer_range=0.3, **options)
    encoder = bz.Encoder(config, dropout=0.2, attention_dropout=0.2)
    head = bz.MaskedLM(encoder).masked_lm
    inputs = {
        "token_ids": np.random.default_rng(0).integers(3, 50, (3, 7)).astype("int32"),
        "padding_mask": np.array([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6], "int32"),
        **({} if lengths is None else {"lengths": lengths}),
    }
    positions = np.array([[3, 1, 6, 6, 0, 2, 5, 4], [2, 3, 0, 0, 0, 0, 1, 1], [0] * 8], "int32")
    for options in (
        {},
        {"training": True, "dropout_key": keras.ops.convert_to_tensor(np.array([12345, -678], "int32"))},
    ):
        whole = numpy(encoder(inputs, decoder=head, **options))
        some = numpy(encoder(inputs, decoder=head, query_positions=keras.ops.convert_to_tensor(positions), **options))
        assert some.keys() == whole.keys()
        for name, vectors in some.items():
            expected = whole[name]
            if name != "pooled_output":
                expected = np.take_along_axis(expected, positions[..., None], axis=1)
            close(vectors, expected)


@pytest.mark.once
def test_who_asks_for_some_tokens_alone(monkeypatch):
    asked, usual = [], bz.layers.EncoderBlock._forward

    def forward(self, *arguments):
        asked.append(arguments[-1] is not None)
        return usual(self, *arguments)

    monkeypatch.setattr(bz.layers.EncoderBlock, "_forward", forward)
    config = bz.EncoderConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
    ids = np.ones((2, 5), "int32")
    masked = {"token_ids": ids, "padding_mask": ids}
    encoder = bz.Encoder(config)
    for model, inputs, expected in (
        (bz.TextClassifier(encoder), ids, True),
        (bz.MultipleChoice(encoder), ids[:, None], True),
        (bz.SentenceEncoder(encoder, pooling="cls"), ids, True),
        (bz.SentenceEncoder(encoder, pooling="cls"), {**masked, "lengths": np.full(2, 5)}, True),
        (bz.SentenceEncoder(encoder, pooling="cls"), masked, False),  # padding may come first
        (bz.SentenceEncoder(encoder, pooling="cls"), {**masked, "lengths": np.full(2, 5), "pooling_mask": ids}, False),
        (bz.SentenceEncoder(encoder, pooling=("cls", "mean")), ids, False),
        (bz.TokenClassifier(encoder, labels=["a", "b"]), ids, False),
        (bz.MaskedLM(encoder), {**masked, "mask_positions": ids[:, :2]}, True),
        (bz.MaskedLM(encoder), masked, False),
        (ForPreTraining(encoder), {**masked, "mask_positions": ids[:, :2]}, True),
    ):
        asked.clear()
        model(inputs)
        assert asked == [False, expected], type(model)
