"""What `speed` measures, each in a process of its own: the contestants, and the ceiling of the machine."""

import statistics

from benchmarks.case import Case, Measured
from benchmarks.common import measure, peak_memory, seconds_of, torch_device

from bertzoo.backend import device_name, keras_versions_text


def run_bertzoo(case: Case) -> Measured:
    """`fit` and `predict` of a TextClassifier, batches and padding its own."""
    import bertzoo as bz
    from bertzoo.training.step import jit_compile_setting

    set_policy(case)
    model = bz.TextClassifier(bz.Encoder(case.config()))
    model.compile(bz.AdamW(1e-5), metrics=[], jit_compile=jit_compile_setting())
    ids, mask, labels = case.rows()
    return measure_keras(model, {"token_ids": ids, "padding_mask": mask}, labels, case)


def run_keras_hub(case: Case) -> Measured:
    """KerasHub's backbone with a dense head. Its preprocessors pad every row to one length."""
    import keras
    import keras_hub
    import numpy as np

    set_policy(case)
    config = case.config()
    bert = case.family == "bert"
    backbone = (keras_hub.models.BertBackbone if bert else keras_hub.models.DebertaV3Backbone)(
        vocabulary_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        hidden_dim=config.hidden_size,
        intermediate_dim=config.intermediate_size,
        max_sequence_length=config.max_position_embeddings,
        dropout=case.dropout,
    )
    pooled = backbone.output["pooled_output"] if bert else backbone.output[:, 0]
    logits = keras.layers.Dense(2, dtype="float32")(pooled)
    model = keras.Model(backbone.input, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(1e-5, global_clipnorm=1.0), loss)
    ids, mask, labels = case.rows()
    x = {"token_ids": ids, "padding_mask": mask, **({"segment_ids": np.zeros_like(ids)} if bert else {})}
    return measure_keras(model, x, labels, case)


def set_policy(case: Case) -> None:
    """What Keras computes in."""
    import keras

    keras.mixed_precision.set_global_policy("mixed_bfloat16" if case.dtype == "bfloat16" else "float32")


def measure_keras(model, x, labels, case: Case) -> Measured:
    """A Keras model by its own `fit` or `predict`."""
    if case.mode == "train":
        seconds, first = measure(lambda: model.fit(x, labels, batch_size=case.batch_size, verbose=0))
    else:
        seconds, first = measure(lambda: model.predict(x, batch_size=case.batch_size, verbose=0))
    return Measured(seconds, first, peak_memory(case.backend), device_name(), keras_versions_text())


def run_transformers(case: Case) -> Measured:
    """transformers' classifier, scaled dot-product attention where it has it, no dropout of attention weights, each
    batch padded to its longest row, in a plain PyTorch loop."""
    import torch
    import transformers

    shape = case.config().to_hf()
    config = transformers.AutoConfig.for_model(**shape)
    place = torch_device()
    torch.set_float32_matmul_precision("high")
    model = transformers.AutoModelForSequenceClassification.from_config(config).to(place).train(case.mode == "train")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    forward = torch.compile(model) if case.contestant.endswith("+compile") else model
    batches = [tuple(torch.tensor(part).to(place) for part in batch) for batch in _dynamic_batches(case)]

    def run():
        for ids, mask, labels in batches:
            with torch.autocast(place, torch.bfloat16, enabled=case.dtype == "bfloat16"):
                if case.mode == "infer":
                    with torch.inference_mode():
                        forward(input_ids=ids, attention_mask=mask)
                    continue
                loss = forward(input_ids=ids, attention_mask=mask, labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if place == "cuda":
            torch.cuda.synchronize()

    seconds, first = measure(run)
    versions = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"
    return Measured(seconds, first, peak_memory("torch"), device_name(), versions)


def _dynamic_batches(case: Case):
    ids, mask, labels = case.rows()
    for start in range(0, len(ids), case.batch_size):
        rows = slice(start, start + case.batch_size)
        longest = int(mask[rows].sum(axis=1).max())
        yield ids[rows, :longest].astype("int64"), mask[rows, :longest], labels[rows].astype("int64")


RUNNERS = {
    "bertzoo": run_bertzoo,
    "keras-hub": run_keras_hub,
    "transformers": run_transformers,
    "transformers+compile": run_transformers,
}


def product_rate(dtype: str) -> float:
    """Operations a second of a square matrix product by the backend that `KERAS_BACKEND` names."""
    import keras
    from keras import ops

    from bertzoo.backend import accelerator_name

    # An accelerator gets many products before the host waits for one, so that the waiting does not count.
    size, products = (8192, 16) if accelerator_name() else (2048, 1)
    a = ops.cast(keras.random.normal((size, size)), dtype)
    # TensorFlow's bfloat16 scalars are not NumPy arrays.
    product = _compiled(lambda x, y: ops.cast(ops.sum(ops.matmul(x, y)), "float32"))

    def run():
        sums = [product(a, a) for _ in range(products)]
        float(ops.convert_to_numpy(sums[-1]))

    times = [seconds_of(run) for _ in range(8)]
    return 2 * size**3 * products / statistics.median(times[2:])


def _compiled(function):
    import keras

    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    return function
