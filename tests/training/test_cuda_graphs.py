"""On PyTorch with a GPU, steps that are recorded as CUDA graphs give what plain steps give."""

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.training import MacroF1

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch" or not torch.cuda.is_available(), reason="CUDA graphs need PyTorch and a GPU"
)
EXAMPLES, LENGTH, LABELS = 500, 64, 3


def data(seed=0):
    rng = np.random.default_rng(seed)
    ids, lengths = rng.integers(5, 300, (EXAMPLES, LENGTH)), rng.integers(5, LENGTH, EXAMPLES)
    mask = (np.arange(LENGTH) < lengths[:, None]).astype("int32")
    return {"token_ids": ids.astype("int32"), "padding_mask": mask}, (ids[:, 1] % LABELS).astype("int32")


def classifier():
    bz.set_seed(0)
    config = bz.EncoderConfig(
        model_type="bert", vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64,
    )  # fmt: skip
    return bz.TextClassifier(bz.Encoder(config), labels=LABELS)


def recorded(model):
    """How many shapes are recorded, and whether they can be."""
    return model._training_pass.num_recorded, model._training_pass.can_record


def train(jit_compile, loss=None, metrics=None, change=None, **options):
    model, (x, y) = classifier(), data()
    model.compile(bz.AdamW(1e-3, **options), loss, metrics=metrics, jit_compile=jit_compile)
    first = model.fit(x, y, batch_size=32, epochs=2, verbose=0).history
    if change is not None:
        change(model)
    second = model.fit(x, y, batch_size=32, epochs=1, verbose=0, validation_data=(x, y)).history
    return model, {**first, **{f"second {name}": values for name, values in second.items()}}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_accumulation_steps": 3},
        {"metrics": ["accuracy", MacroF1()]},
        {"change": lambda model: setattr(model.backbone.embeddings, "trainable", False)},
    ],
    ids=["plain", "accumulated", "metrics", "frozen embeddings"],
)
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_recorded_steps_give_the_plain_steps_losses_and_weights(options, policy):
    keras.mixed_precision.set_global_policy(policy)
    try:
        (plain, log), (model, recorded_log) = (train(jit_compile, **options) for jit_compile in (False, "auto"))
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert recorded(model)[0] >= 1 and recorded(model)[1]
    # Some of PyTorch's kernels for GPUs sum in any order.
    tolerance = 1e-5 if policy == "float32" else 2e-3
    for name, values in log.items():
        np.testing.assert_allclose(recorded_log[name], values, rtol=tolerance, atol=tolerance, err_msg=name)
    if policy == "float32":
        for expected, weight in zip(plain.weights, model.weights):
            np.testing.assert_allclose(weight.numpy(), expected.numpy(), rtol=0, atol=1e-4, err_msg=weight.path)


def test_a_loss_that_reads_values_on_the_host_is_computed_as_usual():
    def loss(y_true, y_pred):
        values = keras.ops.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
        return values * (2.0 if float(values.mean()) > 1e9 else 1.0)

    (plain, log), (model, same_log) = (train(jit_compile, loss=loss) for jit_compile in (False, "auto"))
    assert recorded(model) == (0, False)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    np.testing.assert_allclose(same_log["loss"], log["loss"], rtol=1e-5)


def test_large_batches_are_not_recorded(monkeypatch):
    monkeypatch.setattr("bertzoo.training.cuda_graphs.MOST_WORK", 1e5)
    assert recorded(train("auto")[0]) == (0, True)
