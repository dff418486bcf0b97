"""Writes old_checkpoints.tar.xz: tiny models of transformers' TensorFlow and Flax classes with random weights, their
files and their outputs.

These classes are gone since transformers 5, so this runs in an environment of its own, with Python 3.11:

    pip install transformers==4.46.3 tensorflow-cpu==2.17.1 tf-keras==2.17.0
    pip install flax==0.8.5 jax==0.4.30 jaxlib==0.4.30 "numpy<2"
    TF_USE_LEGACY_KERAS=1 python write.py
"""

import io
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import transformers

SMALL = {
    "vocab_size": 20,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 12,
}
ROBERTA = {**SMALL, "type_vocab_size": 1, "pad_token_id": 1, "layer_norm_eps": 1e-5}
DEBERTA = {**SMALL, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}
CONV = {"conv_kernel_size": 3, "conv_act": "gelu"}
FAMILIES = {
    "Bert": SMALL,
    "Roberta": ROBERTA,
    "XLMRoberta": ROBERTA,
    "Camembert": ROBERTA,
    "Albert": {**SMALL, "embedding_size": 4},
    "DistilBert": {
        "vocab_size": 20,
        "dim": 8,
        "n_layers": 1,
        "n_heads": 2,
        "hidden_dim": 8,
        "max_position_embeddings": 12,
    },
    "Electra": {**SMALL, "embedding_size": 4},
    "MPNet": {**SMALL, "pad_token_id": 1},
    "Deberta": DEBERTA,
    "DebertaV2": {**DEBERTA, "position_buckets": 4, "share_att_key": True, "norm_rel_ebd": "layer_norm", **CONV},
    "RoFormer": {**SMALL, "embedding_size": 4},
}
HEADS = (
    "Model",
    "ForMaskedLM",
    "ForPreTraining",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
    "ForNextSentencePrediction",
)
SHARDED = ("BertForMaskedLM",)


def draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random numbers that compress well: sixteenths, around 1 for scales."""
    values = np.round(rng.normal(size=shape) * 6) / 16
    return (values + (name.endswith(("gamma:0", "scale")))).astype("float32")


def inputs_of(name: str, settings: dict) -> dict[str, np.ndarray]:
    rng, pad = np.random.default_rng(1), settings.get("pad_token_id", 0)
    mask = np.arange(7) < np.array([[7], [4]])
    ids = np.where(mask, rng.integers(3, 20, mask.shape), pad)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if name.startswith(("Bert", "Albert", "Electra", "RoFormer")):
        inputs["token_type_ids"] = rng.integers(0, 2, mask.shape) * mask
    if name.endswith("MultipleChoice"):
        inputs = {key: array[None] for key, array in inputs.items()}
    return {key: array.astype("int32") for key, array in inputs.items()}


def run_tf(name: str, config, inputs):
    model = getattr(transformers, f"TF{name}")(config)
    model(inputs)
    rng = np.random.default_rng(2)
    for weight in model.weights:
        if "embed_positions" not in weight.name:  # RoFormer's sines
            weight.assign(draw(rng, weight.name, weight.shape))
    return model, {key: value.numpy() for key, value in model(inputs).items() if hasattr(value, "numpy")}


def run_flax(name: str, config, inputs):
    import jax
    from flax.traverse_util import flatten_dict, unflatten_dict

    for kind in (type(jax.numpy.zeros(1)), jax.core.Tracer):  # transformers' classes use a method that JAX dropped
        kind.split = lambda array, parts, axis: jax.numpy.split(array, parts, axis)
    shape = (1, *inputs["input_ids"].shape[-2:]) if name.endswith("MultipleChoice") else (1, 7)
    model = getattr(transformers, f"Flax{name}")(config, input_shape=shape)
    rng, params = np.random.default_rng(2), {}
    for path, value in flatten_dict(model.params).items():
        params[path] = draw(rng, path[-1], value.shape)
    model.params = unflatten_dict(params)
    return model, {key: np.asarray(value) for key, value in model(**inputs).items() if hasattr(value, "shape")}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for prefix, run in (("TF", run_tf), ("Flax", run_flax)):
            for family, settings in FAMILIES.items():
                for head in HEADS:
                    name = family + head
                    if not hasattr(transformers, prefix + name):
                        continue
                    own = {**settings, **({"num_labels": 3} if head.endswith("Classification") else {})}
                    if prefix + family == "FlaxRoFormer":  # has no narrow embeddings
                        del own["embedding_size"]
                    config = getattr(transformers, f"{family}Config")(**own)
                    inputs = inputs_of(name, settings)
                    model, outputs = run(name, config, inputs)
                    arrays = {**inputs, **{f"out_{key}": value for key, value in outputs.items()}}
                    forms = {"": {}, "-sharded": {"max_shard_size": "1KB"}} if name in SHARDED else {"": {}}
                    for suffix, options in forms.items():
                        directory = root / f"{prefix}{name}{suffix}"
                        model.save_pretrained(directory, **options)
                        np.savez(directory / "outputs.npz", **arrays)
                    print(prefix + name, sorted(outputs), flush=True)
        target = Path(__file__).with_name("old_checkpoints.tar.xz")
        with tarfile.open(target, "w:xz", preset=9) as archive:
            # By kind, so that the compressor sees alike files side by side.
            for path in sorted(root.rglob("*"), key=lambda path: (path.suffix, path.name, str(path))):
                if path.is_file() and path.name != "generation_config.json":
                    info = tarfile.TarInfo(str(path.relative_to(root)))
                    info.size = path.stat().st_size
                    archive.addfile(info, io.BytesIO(path.read_bytes()))
        print(target.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
