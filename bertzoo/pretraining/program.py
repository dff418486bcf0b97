"""The pre-training program: a TOML file in, a preset and its loss curve out."""

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

from bertzoo._keras_hooks import loss_tracker, model_of_callback, print_message
from bertzoo.backend import peak_flops_per_second
from bertzoo.pretraining.config import PretrainConfig
from bertzoo.pretraining.corpus import CorpusSentences, TokenCorpus, ngram_overlap
from bertzoo.pretraining.corpus_dataset import BatchSpec, CorpusDataset
from bertzoo.pretraining.devices import use_devices
from bertzoo.pretraining.objectives import Objective, find_objective, step_flops
from bertzoo.random import set_seed
from bertzoo.training.calls import handle_signals
from bertzoo.training.metrics import TOTALS, WEIGHTS
from bertzoo.training.processes import end_together, gather, is_writer, num_processes, writer_first
from bertzoo.training.resume import TrainingState
from bertzoo.training.step import BackendModel, jit_compile_setting


def pretrain(
    config_file: str | Path,
    corpus_directory: str | Path,
    output_directory: str | Path,
    held_out_directory: str | Path | None = None,
    *,
    resume: bool = False,
    minutes_between_saves: float = 15.0,
    num_devices: int = 1,
) -> dict[str, Any]:
    """Pre-trains a model.

    The run consists of blocks of steps. After each block, and when the process is asked to terminate (SIGTERM), the
    state is written to `out/training_state`; a run that was killed and resumed ends as if it had not been interrupted.

    Args:
        config_file: A TOML file with the tables `encoder`, `training`, `batches` and, for some objectives, `masking`,
            `generator` and `distillation`; or the name of a recipe. See `bertzoo.pretraining.config`.
        corpus_directory: Directory that `prepare_corpus` wrote.
        output_directory: The preset's directory. `training.json` beside the weights holds the loss curve and the times.
        held_out_directory: A corpus to evaluate on at the end.
        resume: Continue the unfinished run in `output_directory`.
        minutes_between_saves: Time between two saves of the state.
        num_devices: Number of devices that share each batch (JAX); of several processes, all devices, see
            `bertzoo.training.processes`. Processes share the directories, and only the first one writes.

    Returns:
        The content of training.json; for a run that was asked to terminate, its `steps` so far and `stopped` = True.

    Raises:
        ValueError: The file is invalid, the corpus does not suit the objective, or `output_directory` holds an
            unfinished run, or none to resume.
    """
    with end_together():
        return _pretrain(
            config_file,
            corpus_directory,
            Path(output_directory),
            held_out_directory,
            resume,
            minutes_between_saves,
            num_devices,
        )


def _pretrain(
    config_file: str | Path,
    corpus_directory: str | Path,
    output_directory: Path,
    held_out_directory: str | Path | None,
    resume: bool,
    minutes_between_saves: float,
    num_devices: int,
) -> dict[str, Any]:
    with writer_first():
        tokens = TokenCorpus.open(corpus_directory)
        config = PretrainConfig.read(config_file, tokens)
        objective = find_objective(config)
        held = None if held_out_directory is None else _open_held_out(held_out_directory, config, objective)
        if not resume and TrainingState.read(output_directory) is not None:
            raise ValueError(
                f"{output_directory} holds an unfinished run: continue it (--resume), or remove its training_state."
            )
    use_devices(num_devices, config.batches)
    set_seed(config.training.seed)
    model = objective.model(config)
    config.check_lengths(model.backbone.config)
    model.compile(config.training.make_optimizer(), jit_compile=jit_compile_setting())
    model.optimizer.build(model.trainable_variables)
    trainer = _Trainer(config, objective, model, output_directory, minutes_between_saves)
    if resume:
        trainer.restore()
    trainer.train()
    if trainer.step < config.training.steps:
        return {"steps": trainer.step, "stopped": True}
    result = trainer.result()
    tokens.tokenizer.max_length = model.backbone.config.max_length
    if is_writer():
        model.save_to_preset(output_directory)
        _write(output_directory, result)
    if held is not None:
        result["held_out"] = _evaluate(model, objective, held, min(spec.length for spec in config.batches))
        result["held_out"]["overlap"] = ngram_overlap(tokens, held)
    if is_writer():
        _write(output_directory, result)
    TrainingState.remove(output_directory)
    return result


def _write(out: Path, result: dict[str, Any]) -> None:
    (out / "training.json").write_text(json.dumps(result) + "\n")


def _open_held_out(directory: str | Path, config: PretrainConfig, objective: Objective) -> TokenCorpus:
    """Opens the corpus to evaluate on and checks it, before hours of training.

    Raises:
        ValueError: It has another vocabulary, or does not suit the objective.
    """
    held = TokenCorpus.open(directory)
    if held.tokenizer.vocabulary != config.corpus.tokenizer.vocabulary:
        raise ValueError(
            f"the held-out corpus in {directory} must have the vocabulary of the training corpus: make it with "
            "`bertzoo prepare --tokenizer DIR`, where DIR holds the training corpus."
        )
    try:
        CorpusDataset(objective.examples(held), config.batches[:1], lambda inputs, rng: inputs, num_batches=1)
    except ValueError as error:
        raise ValueError(f"the held-out corpus in {directory} can't be used: {error}") from None
    return held


def _evaluate(model: keras.Model, objective: Objective, corpus: TokenCorpus, length: int) -> dict[str, float]:
    """Losses (nats) and accuracies on held-out documents, with the entropy of their unigram distribution.

    Args:
        model: The compiled model.
        objective: The objective it was trained for.
        corpus: The held-out documents.
        length: Tokens of an example; best a length of the training, since the order of two segments is harder to
            predict the shorter they are.
    """
    spec = BatchSpec(min(length, len(corpus.tokens)), 64)
    steps = max(1, len(corpus.tokens) // (spec.length * spec.batch_size))
    examples = objective.examples(corpus, short_seq_prob=0.0, sentences=CorpusSentences(corpus, spec.length - 2))
    data = CorpusDataset(examples, [spec], objective.transform(model), num_batches=steps, seed=1)
    scores = BackendModel.evaluate(model, data, verbose=0, return_dict=True)
    ordinary = corpus.tokens[~np.isin(corpus.tokens, corpus.tokenizer.special_ids)]
    counts = np.bincount(ordinary)
    probabilities = counts[counts > 0] / counts.sum()
    return {
        **{name: float(value) for name, value in scores.items() if name not in (TOTALS, WEIGHTS)},
        "unigram_entropy": float(-(probabilities * np.log(probabilities)).sum()),
    }


class _Trainer:
    """Trains a compiled model in blocks of steps, each one call of `fit`, and saves the state after each block.

    Args:
        config: The run.
        objective: Its objective.
        model: The compiled model.
        directory: Where the state is kept.
        minutes: Time between two saves.
    """

    def __init__(
        self, config: PretrainConfig, objective: Objective, model: keras.Model, directory: Path, minutes: float
    ):
        self.config, self.training, self.model = config, config.training, model
        self.directory, self.minutes = directory, minutes
        self.step, self.seconds = 0, 0.0
        longest_sentence = min(spec.length for spec in config.batches) - 2
        sentences = CorpusSentences(config.corpus, longest_sentence)
        self._examples = objective.examples(
            config.corpus, short_seq_prob=self.training.short_seq_prob, sentences=sentences
        )
        self._transform = objective.transform(model)
        self._flops = {spec: step_flops(model, spec) for spec in config.batches}
        self._spec = self._dataset(1).batch_spec
        loss_tracker(model).reports_sums = True
        self.logger = _ProgressLogger(self)

    def _dataset(self, steps: int) -> CorpusDataset:
        return CorpusDataset(
            self._examples,
            self.config.batches,
            self._transform,
            num_batches=steps,
            first_batch=self.step,
            seed=self.training.seed,
            repeat_examples_after=self.training.repeat_examples_after,
            repeat_masks_after=self.training.repeat_masks_after,
        )

    def tokens(self, first: int, last: int) -> int:
        """Tokens of the batches from step `first` up to, without, step `last`."""
        return sum(spec.length * spec.batch_size for spec in map(self._spec, range(first, last)))

    def flops(self, first: int, last: int) -> float:
        """Floating-point operations of these steps."""
        return sum(self._flops[self._spec(step)] for step in range(first, last))

    def train(self) -> None:
        """Trains to the end, or until the process is asked to terminate (SIGTERM, Ctrl-C)."""
        if self.training.verbose and is_writer():
            ratio = self.tokens(0, self.training.steps) / max(1, len(self.config.corpus.tokens))
            print_message(
                f"{self.training.steps:,} steps of examples sampled with replacement: {ratio:.3g} × the corpus; about "
                f"{1 - np.exp(-ratio):.0%} of its tokens are read at least once"
            )
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def stop(number: int, frame: Any) -> None:
            self.logger.is_stopping = True
            signal.signal(number, handlers[signal.Signals(number)])  # the second one terminates the process

        with handle_signals(stop, *handlers):
            self._train_blocks()

    def _train_blocks(self) -> None:
        block = every = self.training.log_every
        is_alone, is_stopping, unsaved = num_processes() == 1, False, 0.0
        while self.step < self.training.steps and not is_stopping:
            # Blocks end at points of the curve.
            end = min(self.training.steps, (self.step + block) // every * every)
            started, first = time.time(), self.step
            self._train_block(end)
            seconds = time.time() - started
            self.seconds, unsaved = self.seconds + seconds, unsaved + seconds
            if is_alone:
                block = max(every, int((self.step - first) * self.minutes * 60 / max(seconds, 1e-9)))
            # Several processes stop where all know of it: after the block in which one was asked to.
            is_stopping = bool(gather(int(self.logger.is_stopping)).any())
            is_due = is_alone or is_stopping or unsaved >= self.minutes * 60
            if self.step < self.training.steps and is_due:
                self._save()
                unsaved = 0.0

    def _train_block(self, end: int) -> None:
        self.logger.begin_block(self.step)
        self.model.stop_training = False
        data = self.model.dataset_on_device(self._dataset(end - self.step))
        history = BackendModel.fit(
            self.model, data, epochs=1, shuffle=False, verbose=0, callbacks=[self.logger]
        ).history
        # Of all counters of steps, the one that is exact after an interruption.
        self.step = self.model.backbone.step.num_calls
        self.logger.end_block({name: values[-1] for name, values in history.items()})
        loss = float(history["loss"][-1])
        if not np.isfinite(loss):
            raise ValueError(f"the loss is {loss} at step {self.step:,}: lower the learning rate.")

    def _save(self) -> None:
        notes = {
            "step": self.step,
            "seconds": self.seconds,
            "points": self.logger.points,
            "pending": self.logger.pending.tolist(),
            "config": self.config.fingerprint(),
        }
        TrainingState.write(self.directory, self.model, notes)

    def restore(self) -> None:
        """Continues the unfinished run in the directory.

        Raises:
            ValueError: There is none, or it has other settings or another corpus.
        """
        with writer_first():
            state = TrainingState.read(self.directory)
        if state is None:
            raise ValueError(f"{self.directory} holds no state of an unfinished run to resume.")
        state.restore(self.model, "model", "optimizer")
        before, now = state.notes["config"], self.config.fingerprint()
        changed = [key for key, value in now.items() if before.get(key) != value]
        if changed:
            differences = "; ".join(f"{key} was {before.get(key)!r} and is {now[key]!r}" for key in changed)
            raise ValueError(
                f"the run in {self.directory} has other settings: {differences}. Resume it with the same settings and "
                "corpus, or begin a new run in another directory."
            )
        self.step, self.seconds = state.notes["step"], state.notes["seconds"]
        self.logger.points, self.logger.pending = state.notes["points"], np.array(state.notes["pending"])

    def result(self) -> dict[str, Any]:
        """The content of training.json."""
        tokens = self.tokens(0, self.step)
        return {
            "curve": self.logger.points,
            "steps": self.step,
            "tokens": tokens,
            "flops": self.flops(0, self.step),
            "seconds": round(self.seconds, 1),
            "tokens_per_second": round(tokens / max(self.seconds, 1e-9)),
        }


class _ProgressLogger(keras.callbacks.Callback):
    """Records the mean loss of every `log_every` steps over all blocks of a run, and prints it.

    Attributes:
        points: [step, loss] for each point of the curve.
        pending: The sums of losses and of weights since the last point, (2, terms).
        is_stopping: Set it to stop `fit` after the present step.
    """

    # Keras then reads the logs in another thread; otherwise each step would wait for the device.
    async_safe = True

    def __init__(self, trainer: _Trainer):
        super().__init__()
        self.trainer, self.every = trainer, trainer.training.log_every
        self.peak = peak_flops_per_second(trainer.training.dtype)
        self.points: list[list[float]] = []
        self.pending = np.zeros((2, 1))
        self.is_stopping = False
        self._lock = threading.Lock()
        self.begin_block(0)

    def begin_block(self, step: int) -> None:
        """Prepares for a block that begins after `step`."""
        self._first, self._next = step, (step // self.every + 1) * self.every
        self._waiting: dict[int, dict[str, Any]] = {}
        self._clock, self._clock_step = time.time(), step

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self.is_stopping and num_processes() == 1:
            # Not `self.model`, which would fetch the state from the device on JAX.
            model_of_callback(self).stop_training = True
        step = self._first + batch + 1
        if step % self.every == 0:
            with self._lock:  # Keras has several threads, which may arrive out of order
                self._waiting[step] = logs or {}
                while self._next in self._waiting:
                    self._add_point(self._next, self._waiting.pop(self._next))
                    self._next += self.every

    def end_block(self, logs: dict[str, Any]) -> None:
        """Keeps the sums of the steps after the block's last point; `logs` are those of the whole block."""
        self.pending = self.pending + _sums(logs)

    def _add_point(self, step: int, logs: dict[str, Any]) -> None:
        sums = _sums(logs)
        losses, weights = self.pending + sums
        self.pending = -sums  # logs are sums since the beginning of the block
        self.points.append([step, round(float(np.sum(losses / np.maximum(weights, 1e-30))), 6)])
        if self.trainer.training.verbose and is_writer():
            self._print(step, time.time() - self._clock)
        self._clock, self._clock_step = time.time(), step

    def _print(self, step: int, seconds: float) -> None:
        first, steps, seconds = self._clock_step, self.trainer.training.steps, max(seconds, 1e-9)
        speed = self.trainer.tokens(first, step) / seconds
        used = "" if self.peak is None else f"  {self.trainer.flops(first, step) / seconds / self.peak:.0%} of peak"
        minutes = round((steps - step) * seconds / (step - first) / 60)
        left = f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"
        loss = self.points[-1][1]
        print_message(f"step {step:,}/{steps:,}  loss {loss:.4f}  {speed:,.0f} tokens/s{used}  {left} left")


def _sums(logs: dict[str, Any]) -> np.ndarray:
    return np.stack([np.atleast_1d(np.array(logs[name], "float64")) for name in (TOTALS, WEIGHTS)])
