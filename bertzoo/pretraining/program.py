"""The pre-training program: a TOML file in, a preset and its loss curve out."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from bertzoo._keras_hooks import loss_tracker
from bertzoo.pretraining.devices import use_devices
from bertzoo.pretraining.events import EventLog
from bertzoo.pretraining.objectives import OBJECTIVES, Objective
from bertzoo.pretraining.plan import Plan
from bertzoo.pretraining.rows import CorpusRows, Shape
from bertzoo.pretraining.sentences import Sentences
from bertzoo.pretraining.shards import Shards, overlap
from bertzoo.pretraining.state import has_state, load_state, remove_state, save_state
from bertzoo.pretraining.throughput import peak_flops
from bertzoo.pretraining.watch import Watch, on_termination
from bertzoo.random import set_seed
from bertzoo.training.loss_mean import TOTALS, WEIGHTS
from bertzoo.training.step import BackendStep, should_jit_compile


def pretrain(
    config_file: str | Path,
    shards: str | Path,
    out: str | Path,
    held_out: str | Path | None = None,
    *,
    resume: bool = False,
    minutes: float = 15.0,
    tensorboard: str | Path | None = None,
    devices: int = 1,
) -> dict[str, Any]:
    """Pre-trains a model.

    The run is made of blocks of steps. After each, and when the process is asked to end (SIGTERM), all that it needs to
    go on is written to `out/training_state`; a run that was killed and resumed gives what it would have given.

    Args:
        config_file: TOML with the tables `encoder`, `training`, `batches` and, as the objective needs them, `masking`,
            `generator` and `distillation`; or the name of a recipe. See `bertzoo.pretraining.plan`.
        shards: Directory that `prepare` wrote.
        out: The preset's directory. `training.json` beside the weights gets the loss curve and the times.
        held_out: Shards to evaluate on at the end.
        resume: Go on with the unfinished run in `out`.
        minutes: Between two states.
        tensorboard: Directory for TensorBoard's events.
        devices: How many devices share each batch (JAX).

    Returns:
        The content of training.json; of a run that was asked to end, its `steps` so far and `stopped` = true.

    Raises:
        ValueError: The file asks for what there is not, the corpus does not suit the objective, or `out` holds an
            unfinished run, or none to resume.
    """
    corpus = Shards.open(shards)
    plan = Plan.read(config_file, corpus)
    objective = _objective(plan)
    held = None if held_out is None else _held_out(held_out, plan, objective)
    if not resume and has_state(out):
        raise ValueError(f"{out} holds an unfinished run: go on with it (--resume), or remove its training_state.")
    use_devices(devices, plan.shapes)
    set_seed(plan.training.seed)
    model = objective.model(plan)
    plan.check_lengths(model.backbone.config)
    model.compile(plan.training.optimizer(), jit_compile=should_jit_compile())
    model.optimizer.build(model.trainable_variables)
    run = Run(plan, objective, model, Path(out), minutes, EventLog(tensorboard) if tensorboard else None)
    if resume:
        run.restore()
    run.train()
    if run.step < plan.training.steps:
        return {"steps": run.step, "stopped": True}
    result = run.result()
    corpus.tokenizer.max_length = model.backbone.config.max_length
    model.save_to_preset(out)
    _write(out, result)
    if held is not None:
        result["held_out"] = evaluate(model, objective, held, min(shape.length for shape in plan.shapes))
        result["held_out"]["overlap"] = overlap(corpus, held)
        _write(out, result)
    remove_state(out)
    return result


def _write(out: str | Path, result: dict[str, Any]) -> None:
    (Path(out) / "training.json").write_text(json.dumps(result) + "\n")


def _held_out(directory: str | Path, plan: Plan, objective: Objective) -> Shards:
    """The shards to evaluate on, of which rows can be cut.

    Raises:
        ValueError: They are of another vocabulary, or don't suit the objective.
    """
    held = Shards.open(directory)
    if held.tokenizer.vocabulary != plan.shards.tokenizer.vocabulary:
        raise ValueError(
            f"the held-out shards in {directory} have another vocabulary than the corpus: make them with "
            "`bertzoo prepare --tokenizer DIR`, where DIR holds the corpus's shards."
        )
    try:
        CorpusRows(objective.rows(held, 0.0, Sentences(held)), plan.shapes[:1], None, steps=1)
    except ValueError as error:
        raise ValueError(f"the held-out shards in {directory} can't be used: {error}") from None
    return held


def _objective(plan: Plan) -> Objective:
    name = plan.training.objective
    if name not in OBJECTIVES:
        raise ValueError(f"[training] objective must be one of {', '.join(OBJECTIVES)}; it is {name!r}.")
    return OBJECTIVES[name]


class Run:
    """Blocks of steps, each one call of `fit`, with a state written after each."""

    def __init__(
        self, plan: Plan, objective: Objective, model: keras.Model, out: Path, minutes: float, log: EventLog | None
    ):
        self.plan, self.training, self.model, self.out, self.minutes = plan, plan.training, model, out, minutes
        self.step, self.seconds, self.log = 0, 0.0, log
        rows = objective.rows(plan.shards, self.training.short, Sentences(plan.shards, _longest(plan.shapes)))
        self._rows = (rows, plan.shapes, objective.transform(model))
        loss_tracker(model).shows_parts = True
        flops = {shape: objective.flops(model, shape) for shape in plan.shapes}
        turns = self._data(1).shape
        self.watch = Watch(
            self.training.steps,
            self.training.every,
            lambda a, b: sum(turns(i).length * turns(i).batch_size for i in range(a, b)),
            lambda a, b: sum(flops[turns(i)] for i in range(a, b)),
            peak_flops(self.training.dtype),
            log,
            not self.training.verbose,
        )

    def _data(self, steps: int) -> CorpusRows:
        options = {"seed": self.training.seed, "epoch": self.training.epoch, "copies": self.training.mask_copies}
        return CorpusRows(*self._rows, steps=steps, first_step=self.step, **options)

    def train(self) -> None:
        """Trains to the end, or until the process is asked to end."""
        block = self.training.every
        if self.training.verbose:
            share = self.watch.tokens(0, self.training.steps) / max(1, len(self.plan.shards.tokens))
            print(
                f"{self.training.steps:,} steps of rows that are drawn with replacement: {share:.3g} × the corpus; of "
                f"its tokens, about {1 - np.exp(-share):.0%} are read at all"
            )
        with on_termination(self._stop):
            while self.step < self.training.steps and not self.watch.stopping:
                # Blocks end at points of the curve.
                end = min(self.training.steps, (self.step + block) // self.training.every * self.training.every)
                begun, first = time.time(), self.step
                self._block(end)
                seconds = time.time() - begun
                self.seconds += seconds
                if self.step < self.training.steps:
                    save_state(self.out, self.model, self._notes())
                block = max(self.training.every, int((self.step - first) * self.minutes * 60 / max(seconds, 1e-9)))
        if self.log is not None:
            self.log.close()

    def _block(self, end: int) -> None:
        self.watch.begin_block(self.step)
        self.model.stop_training = False
        data = self.model.to_device(self._data(end - self.step))
        fitted = BackendStep.fit(self.model, data, epochs=1, shuffle=False, verbose=0, callbacks=[self.watch])
        # Of all that counts steps, the one that cannot be ahead or behind.
        self.step = self.model.backbone.step.count
        loss = float(fitted.history["loss"][-1])
        self.watch.end_block({name: values[-1] for name, values in fitted.history.items()})
        if not np.isfinite(loss):
            raise ValueError(f"the loss is {loss} at step {self.step:,}: lower the learning rate.")

    def _stop(self) -> None:
        self.watch.stopping = True

    def _notes(self) -> dict[str, Any]:
        plan = self.plan.fingerprint()
        return {"step": self.step, "seconds": self.seconds, "watch": self.watch.notes(), "plan": plan}

    def restore(self) -> None:
        """Takes the unfinished run in `out` up.

        Raises:
            ValueError: It was begun with other settings or another corpus.
        """
        notes = load_state(self.out, self.model)
        before, now = notes.get("plan", {}), self.plan.fingerprint()
        changed = [key for key, value in now.items() if before.get(key) != value]
        if changed:
            differences = "; ".join(f"{key} was {before.get(key)!r} and is {now[key]!r}" for key in changed)
            raise ValueError(
                f"the run in {self.out} was begun otherwise: {differences}. Go on with the same settings and shards, "
                "or begin a new run in another directory."
            )
        self.step, self.seconds = notes["step"], notes["seconds"]
        self.watch.restore(notes["watch"])

    def result(self) -> dict[str, Any]:
        """The content of training.json."""
        tokens = self.watch.tokens(0, self.step)
        speed = round(tokens / max(self.seconds, 1e-9))
        return {
            "curve": self.watch.points,
            "steps": self.step,
            "tokens": tokens,
            "flops": self.watch.flops(0, self.step),
            "seconds": round(self.seconds, 1),
            "tokens_per_second": speed,
        }


def _longest(shapes: Sequence[Shape]) -> int:
    """Tokens of a sentence that the shortest row has room for."""
    return min(shape.length for shape in shapes) - 2


def evaluate(
    model: keras.Model, objective: Objective, shards: Shards, length: int, batch_size: int = 64, seed: int = 1
) -> dict[str, float]:
    """Losses (nats) and accuracies on held-out documents, with the entropy of their unigram distribution.

    The rows have `length` tokens, which should be a length that the model was trained on: the order of two segments is
    harder to tell the shorter they are.
    """
    length = min(length, len(shards.tokens))
    steps = max(1, len(shards.tokens) // (length * batch_size))
    rows = objective.rows(shards, 0.0, Sentences(shards, length - 2))
    data = CorpusRows(rows, [Shape(length, batch_size)], objective.transform(model), steps=steps, seed=seed)
    scores = BackendStep.evaluate(model, data, verbose=0, return_dict=True)
    ordinary = np.asarray(shards.tokens)
    ordinary = ordinary[~np.isin(ordinary, shards.tokenizer.special_ids)]
    counts = np.bincount(ordinary)
    shares = counts[counts > 0] / counts.sum()
    return {
        **{name: float(value) for name, value in scores.items() if name not in (TOTALS, WEIGHTS)},
        "unigram_entropy": float(-(shares * np.log(shares)).sum()),
    }
