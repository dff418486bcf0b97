"""Distillation: what the student begins with, each loss against NumPy, and what transformers loads."""

import numpy as np
import pytest
import torch
import transformers

import bertzoo as bz
from bertzoo.checkpoints.loading import weights_by_name
from bertzoo.pretraining.distillation import Distillation, make_student, soft_kl_divergence, student_layer_indices

TEXTS = ["the film was good", "a bad plot and a slow story, again", "we saw it with friends in paris", "great"]


@pytest.fixture(scope="module")
def written(write_checkpoint):
    """Number of layers -> a directory."""
    return {layers: write_checkpoint("BertForMaskedLM", seed=4, num_hidden_layers=layers)[0] for layers in (2, 4)}


@pytest.fixture
def teacher(written):
    return bz.MaskedLM.from_preset(written[2], verbose=False, dropout=0.1)


@pytest.fixture
def batch(teacher):
    inputs = teacher.tokenizer(TEXTS)
    return inputs | {"lengths": inputs["padding_mask"].sum(axis=1, dtype="int32")}


def test_layers_of_the_student():
    assert student_layer_indices(12, 6) == (0, 2, 4, 7, 9, 11)  # DistilBERT's, scripts/extract_distilbert.py
    assert (
        student_layer_indices(4, 2) == (0, 3)
        and student_layer_indices(3, 1) == (0,)
        and student_layer_indices(5, 5) == (0, 1, 2, 3, 4)
    )
    with pytest.raises(ValueError, match="1 to 4 layers, as the teacher. Received: 5"):
        student_layer_indices(4, 5)


def test_the_student_begins_as_the_teachers_layers(written, numpy):
    """Told by the tensors of transformers' file."""
    student = make_student(bz.MaskedLM.from_preset(written[4], verbose=False), 2)
    tensors = transformers.BertForMaskedLM.from_pretrained(written[4]).state_dict()
    weights = weights_by_name(student)

    def equal(name, tensor):
        np.testing.assert_array_equal(numpy(weights[name]), tensors[tensor].numpy())

    equal("embeddings/token", "bert.embeddings.word_embeddings.weight")
    equal("embeddings/position", "bert.embeddings.position_embeddings.weight")
    equal("embeddings/norm/gamma", "bert.embeddings.LayerNorm.weight")
    equal("masked_lm/bias", "cls.predictions.bias")
    for layer, source in ((0, 0), (1, 3)):
        equal(f"layer_{layer}/output_norm/beta", f"bert.encoder.layer.{source}.output.LayerNorm.bias")
        kernel = tensors[f"bert.encoder.layer.{source}.intermediate.dense.weight"].numpy().T
        np.testing.assert_array_equal(numpy(weights[f"layer_{layer}/intermediate/kernel"]), kernel)
    assert not any("segment" in name or "pooler" in name for name in weights)


def test_each_loss_equals_numpy(teacher, batch, numpy, eager, compiled):
    model = Distillation(teacher, make_student(teacher, 1), temperature=3.0, alpha_ce=5.0, alpha_mlm=2.0, alpha_cos=0.5)
    model.compile(run_eagerly=eager)
    (inputs,) = model.mask_batch(batch, np.random.default_rng(0))
    outputs = {key: value.astype("float64") for key, value in numpy(compiled(model, model)(inputs)).items()}
    counted, real = inputs["mask_weights"] > 0, inputs["padding_mask"] > 0

    def log_softmax(x):
        return x - np.log(np.exp(x).sum(-1, keepdims=True))

    sure, guess = log_softmax(outputs["teacher"] / 3), log_softmax(outputs["student"] / 3)
    soft = 9 * (np.exp(sure) * (sure - guess)).sum(-1)[counted].mean()
    hard = np.take_along_axis(log_softmax(outputs["student"]), inputs["mask_labels"][..., None], axis=-1)[..., 0]
    a, b = outputs["student_output"][real], outputs["teacher_output"][real]
    cosine = 1 - ((a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)).mean()
    scores = model.evaluate(inputs, verbose=0, return_dict=True, batch_size=4)
    assert scores["soft_loss"] == pytest.approx(soft, rel=1e-5)
    assert scores["masked_lm_loss"] == pytest.approx(-hard[counted].mean(), rel=1e-5)
    assert scores["cosine_loss"] == pytest.approx(cosine, rel=1e-4)
    assert scores["loss"] == pytest.approx(5 * soft - 2 * hard[counted].mean() + 0.5 * cosine, rel=1e-5)


def test_a_student_of_all_layers_is_its_teacher(teacher, batch, numpy, close):
    """But for the segment embeddings, which a DistilBERT has not."""
    weights_by_name(teacher)["embeddings/segment"].assign(np.zeros((2, 32), "float32"))
    model = Distillation(teacher, make_student(teacher, 2))
    (inputs,) = model.mask_batch(batch, np.random.default_rng(0))
    outputs = numpy(model(inputs))
    close(outputs["student"], outputs["teacher"])


def test_soft_targets_equal_torchs(numpy):
    """The authors' line: KLDivLoss(batchmean) of log_softmax(s / T) and softmax(t / T), times T²."""
    rng = np.random.default_rng(0)
    teacher, student = rng.normal(size=(2, 6, 9)).astype("float32") * 3
    functional = torch.nn.functional
    expected = 4 * functional.kl_div(
        functional.log_softmax(torch.tensor(student) / 2, dim=-1),
        functional.softmax(torch.tensor(teacher) / 2, dim=-1),
        reduction="batchmean",
    )
    assert numpy(soft_kl_divergence(teacher, student, 2.0)).mean() == pytest.approx(float(expected), rel=1e-5)


def test_a_student_whose_vectors_are_0_can_learn(teacher, batch, numpy, eager):
    """The cosine has no derivative there; a NaN would go into every weight."""
    model = Distillation(teacher, make_student(teacher, 1, dropout=0.0))
    weights = weights_by_name(model.student)
    for name in ("layer_0/output_norm/gamma", "layer_0/output_norm/beta"):
        weights[name].assign(np.zeros(32, "float32"))
    model.compile(bz.AdamW(3e-3, warmup=0.0), run_eagerly=eager)
    (inputs,) = model.mask_batch(batch, np.random.default_rng(0))
    scores = model.fit(inputs, batch_size=4, shuffle=False, verbose=0).history
    assert scores["cosine_loss"] == [1.0]
    for name, weight in weights.items():
        assert np.isfinite(numpy(weight)).all(), name
    assert numpy(weights["layer_0/output_norm/beta"]).any()


@pytest.mark.slow
def test_only_the_student_learns_and_transformers_loads_it(teacher, batch, tmp_path, numpy, close):
    model = Distillation(teacher, make_student(teacher, 1, dropout=0.0))
    model.compile(bz.AdamW(3e-3, warmup=0.0))
    (inputs,) = model.mask_batch(batch, np.random.default_rng(0))
    before = [numpy(weight).copy() for weight in teacher.weights]
    losses = model.fit(inputs, batch_size=4, epochs=25, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    for weight, old in zip(teacher.weights, before):
        np.testing.assert_array_equal(numpy(weight), old)
    model.save_to_preset(tmp_path / "student")
    hf_model, info = transformers.DistilBertForMaskedLM.from_pretrained(tmp_path / "student", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        expected = hf_model.eval()(torch.tensor(batch["token_ids"]), torch.tensor(batch["padding_mask"])).logits.numpy()
    real = batch["padding_mask"] > 0
    close(numpy(model.student(batch))[real], expected[real])


def test_mistakes_are_named(teacher):
    student = make_student(teacher, 1)
    with pytest.raises(ValueError, match="temperature must be above 0"):
        Distillation(teacher, student, temperature=0)
    narrow = bz.EncoderConfig(
        vocab_size=teacher.backbone.config.vocab_size, hidden_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    other = bz.MaskedLM(bz.Encoder(narrow, pooler=False), teacher.tokenizer)
    with pytest.raises(ValueError, match="agree in hidden_size. Received: 32 and 8"):
        Distillation(teacher, other)
