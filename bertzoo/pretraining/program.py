"""The pre-training program: a TOML file in, a preset and its loss curve out."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from bertzoo.pretraining.config import PretrainConfig
from bertzoo.pretraining.corpus import Sentences, TokenCorpus, overlap
from bertzoo.pretraining.corpus_dataset import BatchSpec, CorpusDataset
from bertzoo.pretraining.objectives import Objective, find_objective
from bertzoo.pretraining.trainer import Trainer
from bertzoo.random import set_seed
from bertzoo.training.metrics import TOTALS, WEIGHTS
from bertzoo.training.resume import TrainingState
from bertzoo.training.step import BackendStep, should_jit_compile


def pretrain(
    config_file: str | Path,
    corpus: str | Path,
    out: str | Path,
    held_out: str | Path | None = None,
    *,
    resume: bool = False,
    minutes: float = 15.0,
    devices: int = 1,
) -> dict[str, Any]:
    """Pre-trains a model.

    The run consists of blocks of steps. After each block, and when the process is asked to terminate (SIGTERM), the
    state is written to `out/training_state`; a run that was killed and resumed ends as if it had not been interrupted.

    Args:
        config_file: A TOML file with the tables `encoder`, `training`, `batches` and, for some objectives, `masking`,
            `generator` and `distillation`; or the name of a recipe. See `bertzoo.pretraining.config`.
        corpus: Directory that `prepare` wrote.
        out: The preset's directory. `training.json` beside the weights holds the loss curve and the times.
        held_out: A corpus to evaluate on at the end.
        resume: Continue the unfinished run in `out`.
        minutes: Time between two saves of the state.
        devices: Number of devices that share each batch (JAX).

    Returns:
        The content of training.json; for a run that was asked to terminate, its `steps` so far and `stopped` = True.

    Raises:
        ValueError: The file is invalid, the corpus does not suit the objective, or `out` holds an unfinished run, or
            none to resume.
    """
    tokens = TokenCorpus.open(corpus)
    config = PretrainConfig.read(config_file, tokens)
    objective = find_objective(config)
    held = None if held_out is None else _open_held_out(held_out, config, objective)
    if not resume and TrainingState.read(out) is not None:
        raise ValueError(f"{out} holds an unfinished run: continue it (--resume), or remove its training_state.")
    use_devices(devices, config.batches)
    set_seed(config.training.seed)
    model = objective.model(config)
    config.check_lengths(model.backbone.config)
    model.compile(config.training.optimizer(), jit_compile=should_jit_compile())
    model.optimizer.build(model.trainable_variables)
    trainer = Trainer(config, objective, model, Path(out), minutes)
    if resume:
        trainer.restore()
    trainer.train()
    if trainer.step < config.training.steps:
        return {"steps": trainer.step, "stopped": True}
    result = trainer.result()
    tokens.tokenizer.max_length = model.backbone.config.max_length
    model.save_to_preset(out)
    _write(out, result)
    if held is not None:
        result["held_out"] = evaluate(model, objective, held, min(spec.length for spec in config.batches))
        result["held_out"]["overlap"] = overlap(tokens, held)
        _write(out, result)
    TrainingState.remove(out)
    return result


def _write(out: str | Path, result: dict[str, Any]) -> None:
    (Path(out) / "training.json").write_text(json.dumps(result) + "\n")


def _open_held_out(directory: str | Path, config: PretrainConfig, objective: Objective) -> TokenCorpus:
    """The corpus to evaluate on, checked before hours of training.

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
        CorpusDataset(objective.examples(held), config.batches[:1], lambda inputs, rng: inputs, steps=1)
    except ValueError as error:
        raise ValueError(f"the held-out corpus in {directory} can't be used: {error}") from None
    return held


def evaluate(
    model: keras.Model, objective: Objective, corpus: TokenCorpus, length: int, batch_size: int = 64, seed: int = 1
) -> dict[str, float]:
    """Losses (nats) and accuracies on held-out documents, with the entropy of their unigram distribution.

    Args:
        model: The compiled model.
        objective: The objective it was trained for.
        corpus: The held-out documents.
        length: Tokens of an example; best a length of the training, since the order of two segments is harder to
            predict the shorter they are.
        batch_size: Examples in a batch.
        seed: Seed of the examples and masks.
    """
    length = min(length, len(corpus.tokens))
    steps = max(1, len(corpus.tokens) // (length * batch_size))
    examples = objective.examples(corpus, short_seq_prob=0.0, sentences=Sentences(corpus, length - 2))
    data = CorpusDataset(examples, [BatchSpec(length, batch_size)], objective.transform(model), steps=steps, seed=seed)
    scores = BackendStep.evaluate(model, data, verbose=0, return_dict=True)
    ordinary = corpus.tokens[~np.isin(corpus.tokens, corpus.tokenizer.special_ids)]
    counts = np.bincount(ordinary)
    probabilities = counts[counts > 0] / counts.sum()
    return {
        **{name: float(value) for name, value in scores.items() if name not in (TOTALS, WEIGHTS)},
        "unigram_entropy": float(-(probabilities * np.log(probabilities)).sum()),
    }


def use_devices(count: int, batches: Sequence[BatchSpec] = ()) -> None:
    """Distributes each batch over `count` devices from now on; 1 changes nothing.

    JAX compiles one program for all devices, in which means over the batch are means over the whole batch and dropout
    depends on the row's index in it, so that the run equals that of one device. `keras.distribution` supports JAX only;
    on TensorFlow and PyTorch several devices need a custom training loop.

    Args:
        count: Number of devices.
        batches: The shapes of the batches, which `count` must divide.

    Raises:
        ValueError: The backend is not JAX, there are fewer devices, or a batch can't be divided evenly.
    """
    if count == 1:
        return
    if keras.backend.backend() != "jax":
        raise ValueError(f"several devices need the JAX backend. Received: {keras.backend.backend()}.")
    available = keras.distribution.list_devices()
    if not 1 <= count <= len(available):
        raise ValueError(f"expected 1 to {len(available)} devices, {', '.join(available)}. Received: {count}.")
    uneven = [spec.batch_size for spec in batches if spec.batch_size % count]
    if uneven:
        raise ValueError(f"batch_size must be a multiple of the {count} devices. Received: {uneven[0]}.")
    strategy = keras.distribution.DataParallel(devices=available[:count], auto_shard_dataset=False)
    keras.distribution.set_distribution(strategy)
