"""Virtual adversarial training, against the formula in PyTorch on the same weights, and by its properties."""

import keras
import numpy as np
import pytest
from keras import ops

import bertzoo as bz
from bertzoo.random import Salt, fold_in, random_bits, step_key
from bertzoo.training import SiFT
from bertzoo.training.adversarial import divergence

# In the order of `fit`, by length, since masks and noise depend on the row.
TEXTS = ["a good film", "a bad film", "we saw it in paris once", "the plot was dull and bad , never again"]
PROBLEMS = {
    "single_label_classification": (3, [0, 1, 2, 0]),
    "multi_label_classification": (3, [[0], [1, 2], [], [0]]),
    "regression": (1, [0.5, -1.0, 2.0, 0.0]),
}


# They differ in the divergence alone, which is a line of `keras.ops` each.
ONE, *OTHERS = PROBLEMS


@pytest.fixture(scope="module", params=[ONE, *(pytest.param(name, marks=pytest.mark.once) for name in OTHERS)])
def problem(request):
    return request.param


@pytest.fixture(scope="module")
def case(write_checkpoint, problem):
    """(directory, the transformers model, problem)"""
    count = PROBLEMS[problem][0]
    options = {"num_labels": count, "problem_type": problem, "num_hidden_layers": 1}
    return *write_checkpoint("BertForSequenceClassification", **options), problem


@pytest.fixture
def make(case):
    def make(dropout=0.0, optimizer=None, adversarial=None, **options):
        model = bz.TextClassifier.from_preset(case[0], verbose=False, dropout=dropout, **options)
        model.compile(optimizer or bz.AdamW(1e-3), adversarial=adversarial)
        return model

    return make


def number(x) -> float:
    return float(ops.convert_to_numpy(x))


def extra(model, sift) -> float:
    """What is added to the loss of one training call on TEXTS."""
    batch = {name: ops.convert_to_tensor(values) for name, values in model.tokenizer(TEXTS).items()}
    return number(sift.loss(model, batch, model(batch, training=True)))


def torch_loss(reference, batch, noise, radius, problem) -> float:
    """The formula in float64."""
    import torch
    from torch.distributions import Bernoulli, Categorical, kl_divergence

    reference = reference.double()
    norm = reference.bert.embeddings.LayerNorm
    moved_by = [torch.zeros(1, dtype=torch.float64)]
    handle = norm.register_forward_hook(lambda layer, inputs, out: out + layer.weight * moved_by[0])
    mask = torch.tensor(batch["padding_mask"]).long()
    ids, segments = (torch.tensor(batch[name]).long() for name in ("token_ids", "segment_ids"))

    def logits(delta):
        moved_by[0] = delta
        return reference(input_ids=ids, token_type_ids=segments, attention_mask=mask).logits

    def apart(a, b):
        if problem == "regression":
            return ((a - b) ** 2).sum(-1)
        kind = Categorical if problem == "single_label_classification" else Bernoulli
        a, b = kind(logits=a), kind(logits=b)
        both = kl_divergence(a, b) + kl_divergence(b, a)
        return both if both.ndim == 1 else both.sum(-1)

    clean = logits(moved_by[0]).detach()
    delta = torch.tensor(noise, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(apart(clean, logits(delta)).sum(), delta)
    assert not slope[mask == 0].any()
    lengths = (mask.sum(1) * noise.shape[2]).double().sqrt()
    worst = radius * lengths[:, None, None] * slope / slope.flatten(1).norm(dim=1)[:, None, None]
    loss = apart(clean, logits(worst)).mean().item()
    handle.remove()
    reference.float()
    return loss


def test_the_loss_is_that_of_the_formula(make, case):
    model, sift = make(), SiFT(radius=0.1, weight=2.0, noise=0.02)
    batch = model.tokenizer(TEXTS)
    bits = random_bits(
        fold_in(step_key(0, ops.convert_to_tensor(1, dtype="int32")), Salt.ADVERSARIAL_NOISE), (4, 11, 32)
    )
    noise = ops.convert_to_numpy(bits).astype("float64") / 2**31 * 0.02 * np.sqrt(3)
    assert noise.std() == pytest.approx(0.02, rel=0.05)
    assert batch["token_ids"].shape == (4, 11)
    expected = 2 * torch_loss(case[1], batch, noise, 0.1, case[2])
    assert expected > 1e-4
    assert extra(model, sift) == pytest.approx(expected, rel=1e-3)


def test_no_radius_adds_nothing_even_under_dropout(make):
    model = make(dropout=0.1)
    assert extra(model, SiFT(radius=0.0)) == 0
    assert extra(model, SiFT()) > 0


def test_the_worst_direction_is_worse_than_random_ones_of_its_length(make, case):
    model, sift = make(), SiFT(radius=0.02)
    worst = extra(model, sift)
    batch = model.tokenizer(TEXTS)
    clean = model(batch)
    rng, mask = np.random.default_rng(0), batch["padding_mask"][:, :, None]
    for _ in range(5):
        push = rng.normal(size=(4, 11, 32)) * mask
        push *= 0.02 * np.sqrt(mask.sum((1, 2)) * 32 / (push**2).sum((1, 2)))[:, None, None]
        other = model({**batch, "perturbation": push.astype("float32")})
        assert number(ops.mean(divergence(clean, other, case[2]))) < worst / 2


def test_fit_adds_it_to_the_loss_and_learns(make, case, tmp_path):
    if case[2] != "single_label_classification":
        pytest.skip("the steps of the other problems differ in the formula alone, which is tested above")
    y = PROBLEMS[case[2]][1]
    first, sift = make(dropout=0.1), SiFT()
    plain = number(first.loss(np.reshape(y, (4, -1)), first(first.tokenizer(TEXTS), training=True)))
    model = make(0.1, bz.AdamW(1e-2, warmup=0.0, schedule="constant"), sift)
    losses = model.fit(TEXTS, y, epochs=25, batch_size=4, verbose=0, shuffle=False).history["loss"]
    assert losses[0] == pytest.approx(plain + extra(make(dropout=0.1), sift), rel=1e-4)
    assert losses[-1] < 0.7 * losses[0]
    model.save(tmp_path / "model.keras")
    assert keras.models.load_model(tmp_path / "model.keras").adversarial.get_config() == sift.get_config()


DEBERTA = {"relative_attention": True, "pos_att_type": "c2p|p2c", "position_biased_input": False}


@pytest.mark.parametrize("family", ["albert", "deberta"])
def test_embeddings_of_other_shapes_are_moved_between_normalisation_and_scale(family, close):
    """The same push for all tokens is a change of the bias, times the scale; ALBERT projects, DeBERTa masks."""
    config = {"albert": {"embedding_size": 8}, "deberta": DEBERTA}[family]
    config = bz.EncoderConfig.from_hf(
        {"model_type": family, "vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 16, "max_position_embeddings": 16, **config}
    )  # fmt: skip
    encoder = bz.Encoder(config)
    norm, rng = encoder.embeddings.norm, np.random.default_rng(0)
    gamma, push = (rng.normal(size=norm.gamma.shape).astype("float32") for _ in range(2))
    norm.gamma.assign(gamma)
    batch = {"token_ids": rng.integers(3, 20, (2, 5)), "padding_mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])}
    moved = encoder({**batch, "perturbation": np.broadcast_to(push, (2, 5, len(push)))})["sequence_output"]
    norm.beta.assign(gamma * push)
    real = batch["padding_mask"] > 0
    shifted = encoder(batch)["sequence_output"]
    close(ops.convert_to_numpy(moved)[real], ops.convert_to_numpy(shifted)[real])


def test_embeddings_that_are_not_normalised_are_moved_themselves(close):
    """The same push for all tokens is a change of all rows of EuroBERT's table."""
    config = bz.EncoderConfig.from_hf(
        {"model_type": "eurobert", "vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1,
         "num_attention_heads": 2, "intermediate_size": 16, "pad_token_id": 0}
    )  # fmt: skip
    encoder, rng = bz.Encoder(config), np.random.default_rng(0)
    push = rng.normal(size=16).astype("float32")
    ids = rng.integers(3, 20, (2, 5))
    moved = encoder({"token_ids": ids, "perturbation": np.broadcast_to(push, (2, 5, 16))})["sequence_output"]
    encoder.embeddings.token.assign(ops.convert_to_numpy(encoder.embeddings.token) + push)
    close(ops.convert_to_numpy(moved), ops.convert_to_numpy(encoder(ids)["sequence_output"]))
    model = bz.TextClassifier(encoder)
    assert 0 < number(SiFT().loss(model, {"token_ids": ids}, model(ids))) < np.inf


def test_half_precision_gives_numbers(write_checkpoint, compiled):
    preset = write_checkpoint("BertForSequenceClassification", num_hidden_layers=1)[0]
    model = bz.TextClassifier.from_preset(preset, verbose=False, dtype="mixed_float16")
    sift = SiFT()
    loss = compiled(lambda batch: sift.loss(model, batch, model(batch, training=True)), model)
    assert 0 < number(loss(model.tokenizer(TEXTS))) < np.inf


def test_mistakes_are_named():
    for options in ({"radius": -1.0}, {"weight": float("nan")}, {"noise": 0.0}):
        with pytest.raises(ValueError, match="at least 0 and noise above 0"):
            SiFT(**options)
