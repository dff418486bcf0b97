"""One batch on several devices: the run of one device."""

import json
import os

import keras
import numpy as np
import pytest

from bertzoo.pretraining.corpus_dataset import BatchSpec
from bertzoo.pretraining.devices import use_devices

RUN = """
import json, sys
from pathlib import Path
import numpy as np
import safetensors.numpy
import bertzoo as bz
from bertzoo.pretraining.corpus import prepare_corpus
from bertzoo.pretraining.program import pretrain

folder = Path(sys.argv[1])
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *"abcdefghijklmnop"]
rng = np.random.default_rng(0)
documents = [" ".join(words[i] for i in rng.integers(5, len(words), 60)) for _ in range(60)]
(folder / "corpus.txt").write_text("\\n\\n".join(documents))
prepare_corpus([folder / "corpus.txt"], bz.Tokenizer.from_vocabulary(words), folder / "shards")
for devices in (1, 4):
    for objective, model in (("mlm+nsp", "bert"), ("rtd", "electra")):
        encoder = f'model_type = "{model}"\\nhidden_size = 16\\nnum_hidden_layers = 1\\nnum_attention_heads = 2\\n'
        encoder += "intermediate_size = 32\\n" + ("embedding_size = 16\\n" if objective == "rtd" else "")
        (folder / "run.toml").write_text(
            f'[encoder]\\n{encoder}[training]\\nobjective = "{objective}"\\nsteps = 6\\nlearning_rate = 3e-3\\n'
            "dropout = 0.1\\nwarmup = 0.0\\nlog_every = 1\\nverbose = 0\\n"
            "[[batches]]\\nlength = 24\\nbatch_size = 16\\n"
        )
        result = pretrain(folder / "run.toml", folder / "shards", folder / f"{model}_{devices}", num_devices=devices)
        weights = safetensors.numpy.load_file(folder / f"{model}_{devices}" / "model.safetensors")
        print(json.dumps([result["curve"], {name: float(np.abs(value).sum()) for name, value in weights.items()}]))
"""


def test_four_devices_are_as_one(python, backend, tmp_path):
    """With dropout, whose masks depend on the row's number in the whole batch."""
    if backend != "jax":
        pytest.skip("keras.distribution works on JAX alone")
    # In front: XLA reads flags up to the first word that is none.
    flags = f"--xla_force_host_platform_device_count=4 {os.environ['XLA_FLAGS']}"
    results = [json.loads(line) for line in python(RUN, str(tmp_path), XLA_FLAGS=flags).splitlines()[-4:]]
    for one, four in zip(results[:2], results[2:]):
        np.testing.assert_allclose(np.array(four[0])[:, 1], np.array(one[0])[:, 1], rtol=1e-5)
        for name, size in one[1].items():
            assert four[1][name] == pytest.approx(size, rel=1e-4, abs=1e-4)


def test_mistakes_are_named(backend):
    use_devices(1)
    if backend != "jax":
        has_none = backend == "torch" and keras.__version__.startswith("3.15.")
        text = "has no keras.distribution" if has_none else "keras.distribution"
        with pytest.raises(ValueError, match=f"Received: {backend}, for which Keras {keras.__version__} .*{text}"):
            use_devices(2)
        return
    with pytest.raises(ValueError, match="expected 1 to .* devices.* Received: 1000"):
        use_devices(1000, [BatchSpec(8, 8)])
