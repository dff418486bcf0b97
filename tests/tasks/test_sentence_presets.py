"""SentenceEncoder and directories of sentence-transformers: what is read, written and refused."""

import json

import numpy as np
import pytest

import bertzoo as bz
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.layers import Normalize

TEXTS = [
    "a good film",
    "the plot was dull and bad, and the actor was not very good",
    "",
    "we saw it with friends in paris",
    "never again !",
    "a great story",
]


@pytest.fixture(scope="module")
def make_st(st, plain, tmp_path_factory):
    """Parts after the encoder, and options -> (directory that sentence-transformers wrote, its model)."""

    def make(*chunks, max_length=32, **options):
        transformer = st.models.Transformer(str(plain), max_seq_length=max_length)
        model = st.SentenceTransformer(modules=[transformer, *chunks], device="cpu", **options)
        directory = tmp_path_factory.mktemp("st")
        model.save(str(directory))
        return directory, model

    return make


def parts_of(st):
    import torch

    torch.manual_seed(0)
    models = st.models
    return {
        "mean, normalized": [models.Pooling(32, "mean"), models.Normalize()],
        "cls": [models.Pooling(32, "cls")],
        "joined": [models.Pooling(32, ("mean", "cls", "max"))],
        "old order": [models.Pooling(32, ("cls", "max", "lasttoken"))],
        "dense": [models.Pooling(32, "weightedmean"), models.Dense(32, 12), models.Normalize()],
        "two dense": [
            models.Pooling(32, "mean_sqrt_len_tokens"),
            models.Dense(32, 12, bias=False, activation_function=torch.nn.GELU()),
            models.Dense(12, 5, activation_function=torch.nn.Identity()),
        ],
    }


NAMES = ("mean, normalized", "cls", "joined", "old order", "dense", "two dense")


@pytest.fixture(scope="module")
def encoder(plain):
    return bz.SentenceEncoder.from_preset(plain, verbose=False)


# ---- directories


# How tokens are pooled is compared on each backend in layers/test_pooling.py.
@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.once] * ("dense" not in n)) for n in NAMES])
def test_loads_and_saves_what_sentence_transformers_does(name, st, make_st, tmp_path, close):
    directory, reference = make_st(*parts_of(st)[name])
    expected = reference.encode(TEXTS)
    model = bz.SentenceEncoder.from_preset(directory, verbose=False)
    close(model.encode(TEXTS), expected)
    model.save_to_preset(tmp_path / "saved")
    back = st.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    close(back.encode(TEXTS), expected)
    assert back.max_seq_length == 32
    close(bz.SentenceEncoder.from_preset(tmp_path / "saved", verbose=False).encode(TEXTS), expected)


@pytest.mark.once
def test_the_pooler_of_the_file_is_kept_and_not_trained(st, make_st, tmp_path):
    from safetensors.numpy import load_file

    directory, _ = make_st(*parts_of(st)["cls"])
    model = bz.SentenceEncoder.from_preset(directory, verbose=False)
    assert not any("pooler" in weight.path for weight in model.trainable_weights)
    model.save_to_preset(tmp_path / "saved")
    before, after = (load_file(folder / "model.safetensors") for folder in (directory, tmp_path / "saved"))
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[key], after[key]) for key in before)


def test_prompts_are_carried_and_used(st, make_st, tmp_path, close):
    prompts = {"query": "the story was ", "document": ""}
    directory, reference = make_st(
        st.models.Pooling(32, ("mean", "weightedmean"), include_prompt=False),
        prompts=prompts,
        default_prompt_name="query",
    )
    bz.SentenceEncoder.from_preset(directory, verbose=False).save_to_preset(tmp_path / "saved")
    model = bz.SentenceEncoder.from_preset(tmp_path / "saved", verbose=False)
    assert (model.prompts, model.default_prompt, model.pooling.include_prompt) == (prompts, "query", False)
    close(model.encode(TEXTS), reference.encode(TEXTS))
    close(model.encode(TEXTS, prompt_name="document"), reference.encode(TEXTS, prompt_name="document"))
    close(model.encode(TEXTS, prompt="very "), reference.encode(TEXTS, prompt="very "))
    assert not np.allclose(model.encode(TEXTS), model.encode(TEXTS, prompt=""))
    with pytest.raises(ValueError, match="one of the model's prompts: .*Received: 'qurey'"):
        model.encode(TEXTS, prompt_name="qurey")


def test_a_plain_encoder_gets_mean_pooling_as_there(plain, st, close):
    reference = st.SentenceTransformer(str(plain), device="cpu")
    model = bz.SentenceEncoder.from_preset(plain, verbose=False)
    close(model.encode(TEXTS), reference.encode(TEXTS))
    assert "mean pooling, of at most 64 tokens" in str(model.load_report)


@pytest.mark.once
def test_an_encoder_in_a_folder_of_its_own_as_before_version_2(st, make_st, tmp_path, close):
    directory, reference = make_st(*parts_of(st)["cls"])
    (tmp_path / "0_Transformer").mkdir()
    for path in directory.iterdir():
        if path.is_file() and path.name != "modules.json":
            path.rename(tmp_path / "0_Transformer" / path.name)
    (directory / "1_Pooling").rename(tmp_path / "1_Pooling")
    entries = json.loads((directory / "modules.json").read_text())
    entries[0]["path"] = "0_Transformer"
    (tmp_path / "modules.json").write_text(json.dumps(entries))
    close(bz.SentenceEncoder.from_preset(tmp_path, verbose=False).encode(TEXTS), reference.encode(TEXTS))


@pytest.mark.once
def test_options_overrule_the_files(st, make_st, close):
    directory, reference = make_st(*parts_of(st)["mean, normalized"])
    model = bz.SentenceEncoder.from_preset(directory, verbose=False, max_length=8, pooling="cls", after_pooling=[])
    reference.max_seq_length = 8
    tokens = reference.encode(TEXTS, output_value="token_embeddings")
    close(model.encode(TEXTS), np.stack([row[0].numpy() for row in tokens]))


def test_attention_pooling_is_kept_but_beyond_sentence_transformers(plain, st, tmp_path, close):
    model = bz.SentenceEncoder.from_preset(plain, verbose=False, pooling=("cls", "attention"))
    model.pooling.attention.assign(np.linspace(-1, 1, 32))
    model.save_to_preset(tmp_path / "saved")
    again = bz.SentenceEncoder.from_preset(tmp_path / "saved", verbose=False)
    close(again.encode(TEXTS), model.encode(TEXTS))
    with pytest.raises(ValueError, match="attention"):
        st.SentenceTransformer(str(tmp_path / "saved"), device="cpu")


@pytest.mark.once
def test_saving_replaces_all_or_nothing(st, make_st, encoder, monkeypatch, close):
    from bertzoo.checkpoints import saving

    directory, reference = make_st(*parts_of(st)["dense"])
    expected = reference.encode(TEXTS)
    monkeypatch.setattr(saving, "_rename", lambda *paths: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(CheckpointError, match="no space left"):
        encoder.save_to_preset(directory)
    monkeypatch.undo()
    close(bz.SentenceEncoder.from_preset(directory, verbose=False).encode(TEXTS), expected)
    encoder.save_to_preset(directory)
    close(bz.SentenceEncoder.from_preset(directory, verbose=False).encode(TEXTS), encoder.encode(TEXTS))


def edited(directory, name, **changes):
    path = directory / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def entry(**changes):
    return [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}] + [
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling", **changes}
    ]


@pytest.mark.once
@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (entry(type="custom_code.Pooling"), "runs no code that comes with a checkpoint"),
        (entry(type="sentence_transformers.models.LSTM"), "names sentence_transformers.models.LSTM"),
        (entry(path="../elsewhere"), "a name inside the directory is expected"),
        (entry(path="/etc"), "a name inside the directory is expected"),
        (entry(type="sentence_transformers.models.Normalize"), "one Pooling must come first"),
        (entry()[1:], "an encoder is expected"),
        (["x"], "each with a type and a path"),
    ],
)
def test_damaged_lists_of_parts_are_refused(entries, message, st, make_st):
    directory, _ = make_st(*parts_of(st)["cls"])
    (directory / "modules.json").write_text(json.dumps(entries))
    with pytest.raises(CheckpointError, match=message):
        bz.SentenceEncoder.from_preset(directory, verbose=False)


@pytest.mark.once
def test_dense_parts_that_we_do_not_compute_are_refused(st, make_st):
    for changes, message in (
        ({"activation_function": "os.system"}, r"2_Dense/config.json .*activation_function must .* 'os.system'"),
        ({"use_residual": True}, "does not compute"),
        ({"out_features": 13}, "2_Dense/config.json .*out_features must be 12. Received: 13"),
    ):
        directory, _ = make_st(*parts_of(st)["dense"])
        edited(directory / "2_Dense", "config.json", **changes)
        with pytest.raises(CheckpointError, match=message):
            bz.SentenceEncoder.from_preset(directory, verbose=False)


def load(directory, **options):
    return bz.SentenceEncoder.from_preset(directory, verbose=False, **options)


def test_a_number_of_dimensions_in_the_files(make_st, st, tmp_path, close):
    directory, model = make_st(st.models.Pooling(32, "mean"), truncate_dim=8)
    keras_model = load(directory)
    assert keras_model.encode(TEXTS).shape == (len(TEXTS), 8)
    close(keras_model.encode(TEXTS), model.encode(TEXTS))
    close(keras_model.encode(TEXTS, normalize=True), model.encode(TEXTS, normalize_embeddings=True))
    close(keras_model.encode(TEXTS, truncate_dim=20), model.encode(TEXTS, truncate_dim=20))
    keras_model.save_to_preset(tmp_path)
    close(st.SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS), model.encode(TEXTS))


def test_an_option_replaces_its_own_layers_alone(make_st, st, plain, tmp_path, close):
    """The Dense of the files keeps its weights beside another pooling, and learnt pooling its own before others."""
    directory, _ = make_st(st.models.Pooling(32, "cls"), st.models.Dense(32, 6))
    _, expected = make_st(st.models.Pooling(32, "mean"), st.SentenceTransformer(str(directory), device="cpu")[2])
    close(load(directory, pooling="mean").encode(TEXTS), expected.encode(TEXTS))

    model = load(plain, pooling="attention")
    for weight in model.pooling.weights:
        weight.assign(np.random.default_rng(0).normal(size=weight.shape))
    model.save_to_preset(tmp_path)
    vectors = load(tmp_path, after_pooling=[Normalize()]).encode(TEXTS)
    close(vectors, model.encode(TEXTS, normalize=True))


@pytest.mark.parametrize(("value", "message"), [(np.nan, "not finite"), (1, "holds int64, not floating-point")])
def test_wrong_numbers_of_a_dense_are_named(make_st, st, value, message):
    from safetensors.numpy import load_file, save_file

    directory, _ = make_st(st.models.Pooling(32, "cls"), st.models.Dense(32, 6))
    path = directory / "2_Dense" / "model.safetensors"
    tensors = load_file(path)
    tensors["linear.weight"] = np.full((6, 32), value)
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=f"{directory}.*2_Dense.*linear.weight.*{message}"):
        load(directory)
