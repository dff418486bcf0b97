"""Faults of other libraries that no other test file meets: what is imported (1), and the fused attention path (3).

The rest are tested where they belong: 2, 7, 9 in tasks/test_text_classifier.py, 4 and 8 in tasks/test_masked_lm.py and
pretraining/test_masking.py, 5 and 6 in test_encoder.py and checkpoints/test_loading.py, 10 and offsets (11) in
text/test_tokenizer.py.
"""

import json

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.layers import attention

# Makes packages invisible, as if they were not installed.
HIDE = """
import sys
class Without:
    def __init__(self, finder, names):
        self.finder, self.names = finder, names
    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in self.names else self.finder.find_spec(name, path, target)
def hide(*names):
    sys.meta_path[:] = [Without(finder, names) for finder in sys.meta_path]
"""

USE = """
import sys, bertzoo as bz, numpy as np
[getattr(bz, name) for name in dir(bz)]
config = bz.EncoderConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
tokens = bz.Tokenizer.from_vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"], max_length=16)
model = bz.TextClassifier(bz.Encoder(config), tokens, labels=2)
model(model.tokenizer(["a b", "a"]))
model.save_to_preset(sys.argv[1])
bz.TextClassifier.from_preset(sys.argv[1], verbose=False)
from bertzoo.models.electra import ElectraConfig
from bertzoo.pretraining.replaced_tokens import ReplacedTokenTraining
config = ElectraConfig(vocab_size=9, embedding_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
ReplacedTokenTraining(config, config, model.tokenizer)
import keras
print(keras.backend.backend(), *sorted({"tensorflow", "tensorflow_text", "torch", "jax"} & set(sys.modules)))
"""


IMPORT = """
import keras, time
begun = time.process_time()
import bertzoo as bz
bz.Encoder, bz.EncoderConfig, bz.set_seed, bz.layers
print(time.process_time() - begun)
"""


@pytest.mark.slow
def test_nothing_imports_tensorflow_unless_it_is_the_backend(python, backend, tmp_path):
    """Fault 1: TensorFlow and tensorflow-text were required and imported on every backend, which took 2.6 to 3.3 s of
    processor time."""
    taken, used, *imported = python(f"{IMPORT}\n{USE}", str(tmp_path / "model"), KERAS_BACKEND=backend).split()
    assert float(taken) < 0.4
    assert used == backend and backend in imported
    if backend != "tensorflow":
        assert not {"tensorflow", "tensorflow_text"} & set(imported)


@pytest.mark.slow
def test_it_runs_where_only_the_backend_is_installed(python, backend, tmp_path):
    """Fault 1, the other way round: the other backends can't even be found."""
    others = sorted(
        {"jax", "jaxlib", "torch", "tensorflow", "tensorflow_text", "keras_hub", "transformers"} - {backend}
    )
    if backend == "jax":
        others.remove("jaxlib")
    code = f"{HIDE}\nhide(*{others!r})\n{USE}"
    assert python(code, str(tmp_path / "model"), KERAS_BACKEND=None, KERAS_HOME=str(tmp_path)).split()[0] == backend


CHOICE = HIDE + "hide({hidden})\nimport os, bertzoo\nprint('keras' in sys.modules, os.environ.get('KERAS_BACKEND'))"


@pytest.mark.once
@pytest.mark.parametrize(
    ("hidden", "keras_json", "chosen"),
    [
        ((), None, "jax"),
        (("jax",), None, "torch"),
        (("jax", "torch"), None, "tensorflow"),
        ((), "torch", "None"),  # left to Keras, which reads its file
        (("tensorflow",), "tensorflow", "jax"),  # Keras writes "tensorflow" there whatever is installed
    ],
)
def test_the_choice_of_a_backend(python, tmp_path, hidden, keras_json, chosen):
    if keras_json:
        (tmp_path / "keras.json").write_text(json.dumps({"backend": keras_json}))
    code = CHOICE.format(hidden=", ".join(map(repr, hidden)))
    assert python(code, KERAS_BACKEND=None, KERAS_HOME=str(tmp_path)).split() == ["False", chosen]


@pytest.mark.once
@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (None, "bertzoo needs one of JAX, PyTorch or TensorFlow and found none: pip install jax (or torch,"),
        ("torch", "the backend 'torch' is not installed: pip install torch."),
    ],
)
def test_without_a_backend_one_sentence_says_what_to_install(python, tmp_path, environment, message):
    code = HIDE + (
        "hide('jax', 'torch', 'tensorflow')\nimport bertzoo\n"
        "try:\n    bertzoo.Encoder\nexcept ImportError as error:\n    print(error)"
    )
    printed = python(code, KERAS_BACKEND=environment, KERAS_HOME=str(tmp_path))
    assert printed.startswith(message) and printed.count("\n") == 1


@pytest.mark.parametrize("training", [False, True])
def test_dropout_keeps_the_dot_product_attention(monkeypatch, backend, training):
    """Fault 3: the fused path was lost as soon as dropout was set, at inference too."""
    if backend == "tensorflow":
        pytest.skip("TensorFlow has no fused attention")
    config = bz.EncoderConfig(
        vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.1
    encoder, ids = bz.Encoder(config), np.ones((1, 4), "int32")

    def explicit(*args, **kwargs):
        raise AssertionError("the weights were computed")

    monkeypatch.setattr(attention, "attention_weights", explicit)
    encoder({"token_ids": ids, "padding_mask": ids}, training=training)
    with pytest.raises(AssertionError, match="weights were computed"):
        encoder(ids, return_all=True)


def test_query_key_and_value_are_one_product():
    """Fault 3: separate kernels."""
    layer = bz.layers.SelfAttention(8, 2)
    layer.build((None, None, 8))
    assert [tuple(w.shape) for w in layer.weights] == [(8, 24), (24,), (8, 8), (8,)]
    assert isinstance(layer.qkv, keras.layers.Dense)  # so that LoRA and quantization reach it
