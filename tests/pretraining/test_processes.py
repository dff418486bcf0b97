"""Pre-training by several processes on one machine: the run of one process with as many devices."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import safetensors.numpy

import bertzoo as bz
from bertzoo.pretraining.corpus import prepare_corpus

STEPS = 50
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *"abcdefghijklmnop"]
# Steps are slow where a test kills or stops the run, so that there is time for it.
RUN = """
import json, sys, time
from bertzoo.pretraining import program
from bertzoo.training.processes import start_processes

out, objective, address, count, index, *more = sys.argv[1:]
if int(count) > 1:
    assert start_processes(address, int(count), int(index)) == 2
if "slow" in more:
    make = program.CorpusDataset.__getitem__
    def slowly(self, index):
        time.sleep(0.3)
        print(self.first_batch + index, flush=True)
        return make(self, index)
    program.CorpusDataset.__getitem__ = slowly
if "error" in more and int(index) == 1:
    program._Trainer._train_block = lambda self, end: 1 / 0
folder = out.rpartition("/")[0]
result = program.pretrain(
    f"{folder}/{objective}.toml", f"{folder}/corpus", out, resume="resume" in more, num_devices=2,
)
print(json.dumps(result))
"""


FIT = """
import sys
import keras, numpy as np
import bertzoo as bz
from bertzoo.pretraining import use_devices
from bertzoo.training.processes import is_writer, start_processes

out, _, address, count, index, *more = sys.argv[1:]
if int(count) > 1:
    start_processes(address, int(count), int(index))
use_devices(2)
bz.set_seed(1)
class Broken(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if more and batch == 3 and index == "1":
            raise ArithmeticError("on purpose")
rng = np.random.default_rng(0)
mask = (np.arange(30) < rng.integers(2, 30, (80, 1))).astype("int32")
x = {"token_ids": rng.integers(5, 50, mask.shape).astype("int32") * mask, "padding_mask": mask}
y = rng.integers(0, 2, 80)
sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
model = bz.TextClassifier(bz.Encoder(bz.EncoderConfig(**sizes), dropout=0.2))
model.compile(optimizer=bz.training.AdamW(1e-3))
validation = ({name: array[:32] for name, array in x.items()}, y[:32])
history = model.fit(x, y, batch_size=16, epochs=10, validation_data=validation, validation_batch_size=16, verbose=0,
                    callbacks=[Broken()])
if is_writer():
    np.savez(out, *[keras.ops.convert_to_numpy(w) for w in model.weights], *history.history.values())
"""


@pytest.fixture(autouse=True)
def _only_jax(backend):
    if backend != "jax":
        pytest.skip("several processes need JAX")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("processes"), np.random.default_rng(0)
    documents = [" ".join(WORDS[i] for i in rng.integers(5, len(WORDS), 60)) for _ in range(60)]
    (folder / "corpus.txt").write_text("\n\n".join(documents))
    prepare_corpus([folder / "corpus.txt"], bz.Tokenizer.from_vocabulary(WORDS), folder / "corpus")
    for objective, model in (("mlm", "bert"), ("rtd", "electra")):
        encoder = f'model_type = "{model}"\nhidden_size = 16\nnum_hidden_layers = 1\nnum_attention_heads = 2\n'
        encoder += "intermediate_size = 32\n" + ("embedding_size = 16\n" if objective == "rtd" else "")
        (folder / f"{objective}.toml").write_text(
            f'[encoder]\n{encoder}[training]\nobjective = "{objective}"\nsteps = {STEPS}\nlearning_rate = 3e-3\n'
            "dropout = 0.1\nwarmup = 0.0\nlog_every = 10\nverbose = 0\n"
            "[[batches]]\nlength = 24\nbatch_size = 16\n"
        )
    return folder


def start(out, objective, count, *more, code=RUN):
    """Starts the processes of a run; one process has two devices."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    devices = 2 if count == 1 else 1
    flags = f"--xla_force_host_platform_device_count={devices} {os.environ.get('XLA_FLAGS', '')}"
    return [
        subprocess.Popen(
            [sys.executable, "-c", code, str(out), objective, address, str(count), str(index), *more],
            env={**os.environ, "XLA_FLAGS": flags},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(count)
    ]


def finish(processes):
    """The results that the processes print."""
    printed = [process.communicate(timeout=280) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), printed
    return [json.loads(out.splitlines()[-1]) for out, _ in printed]


def weights(directory):
    return safetensors.numpy.load_file(directory / "model.safetensors")


def assert_same_run(folder, one, other):
    for name, value in weights(folder / one).items():
        np.testing.assert_allclose(weights(folder / other)[name], value, atol=1e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["mlm", "rtd"])
def test_two_processes_are_as_one_with_two_devices(folder, objective):
    (one,) = finish(start(folder / f"{objective}-one", objective, 1))
    first, second = finish(start(folder / f"{objective}-two", objective, 2))
    assert len(one["curve"]) == STEPS // 10 and one["curve"][-1][1] < one["curve"][0][1]
    for two in (first, second):
        np.testing.assert_allclose(two["curve"], one["curve"], rtol=1e-6, atol=2e-6)  # of six decimals
    assert_same_run(folder, f"{objective}-one", f"{objective}-two")


@pytest.mark.slow
def test_two_processes_fit_a_classifier_as_one(folder):
    for count in (1, 2):
        printed = [process.communicate(timeout=280) for process in start(folder / f"{count}.npz", "", count, code=FIT)]
        assert (folder / f"{count}.npz").is_file(), printed
    with np.load(folder / "1.npz") as one, np.load(folder / "2.npz") as two:
        assert len(one.files) > 20 and two.files == one.files
        for name in one.files:
            np.testing.assert_allclose(two[name], one[name], atol=1e-6)


@pytest.mark.slow
def test_a_killed_process_ends_the_others_and_the_run_resumes_on_another_number(folder):
    finish(start(folder / "whole", "mlm", 1))
    processes = start(folder / "stopped", "mlm", 2, "slow")
    for line in processes[0].stdout:
        if line.strip() == "15":  # within the second block
            processes[1].send_signal(signal.SIGTERM)
            break
    first, second = finish(processes)
    assert first == second == {"steps": 20, "stopped": True}
    assert not (folder / "stopped" / "model.safetensors").exists()

    processes = start(folder / "stopped", "mlm", 2, "slow", "resume")
    for line in processes[0].stdout:
        if line.strip() == "25":
            processes[1].kill()
            break
    started = time.time()
    _, error = processes[0].communicate(timeout=200)
    assert processes[0].returncode != 0 and time.time() - started < 60
    assert "stopped sending heartbeats):\n1\n" in error, error  # JAX's message, with the number of the process

    (resumed,) = finish(start(folder / "stopped", "mlm", 1, "resume"))
    assert resumed["steps"] == STEPS
    assert_same_run(folder, "whole", "stopped")


@pytest.mark.slow
@pytest.mark.parametrize(("code", "message"), [(RUN, "division by zero"), (FIT, "on purpose")])
def test_an_error_in_one_process_ends_all_with_its_message(folder, code, message):
    for process in start(folder / "error", "mlm", 2, "error", code=code):
        _, error = process.communicate(timeout=100)
        assert process.returncode != 0 and f"process 1 failed: {'Zero' if code == RUN else 'Arithmetic'}" in error, (
            error
        )
        assert message in error


@pytest.mark.slow
def test_the_command_starts_a_process(folder):
    """Run by hand for each process, as a scheduler would."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["pretrain", f"{folder}/mlm.toml", "--corpus", f"{folder}/corpus", "--out"]
    divided = ["--processes", "2", "--coordinator", f"127.0.0.1:{port}", "--process-id"]
    program = "from bertzoo.cli.main import main; main()"
    flags = f"--xla_force_host_platform_device_count=1 {os.environ.get('XLA_FLAGS', '')}"
    commands = [[f"{folder}/cli-two", *divided, "0"], [f"{folder}/cli-two", *divided, "1"], [f"{folder}/cli-one"]]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, *arguments, *command],
            env={**os.environ, "XLA_FLAGS": flags},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    printed = [process.communicate(timeout=280) for process in processes]
    assert all(f"{STEPS} steps, 19,200 tokens" in out for out, _ in printed), printed
    for name, value in weights(folder / "cli-one").items():
        np.testing.assert_allclose(weights(folder / "cli-two")[name], value, atol=1e-5)
