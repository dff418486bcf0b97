"""How long an epoch of fine-tuning takes from raw strings: bertzoo's `fit` beside the Trainer of transformers.

    KERAS_BACKEND=jax python tests/benchmarks/run.py epochs CONTESTANT TASK … --data DIRECTORY [--size base]
        [--batch-size 32] [--examples N] [--workers 2] [--sampling group_by_length] [--multiple 8] [--cold]

CONTESTANT: bertzoo, transformers, transformers+compile, or all, which ends with a table. TASK: sst2, mrpc, stsb or
squad, a folder each in DIRECTORY. Each run is a process of its own, on one GPU where there is one, and prints a line of
JSON: `seconds` of a second pass over the training set, whose shapes are all compiled, and `first_seconds` of the first.
Where torch.compile still compiles in the second, `seconds` are of the first pass in which it does not; `graphs` is how
many it had made after each. The clock starts with lists of strings in memory, so each pass tokenizes, and stops when
the device is done.

Both sides train one shape from random weights with bert_mini_en's tokenizer: rows of at most 128 tokens, SQuAD in the
same windows of 384 from every 128th token; bfloat16 on a GPU, float32 on a CPU; dropout 0.1, none on attention weights;
AdamW, gradients clipped to 1. The Trainer pads each batch to its longest row and has what makes it fast: batches of
like length, lengths that are multiples of 8, workers that pad, fused AdamW, SDPA, copies that do not block, no logs and
no look at each loss for NaN. Its rows are a list, which is faster than a `datasets.Dataset`. All passes are by the same
Trainer, so the model stays compiled.
"""

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from benchmarks.case import SIZES, Case
from benchmarks.common import add_data_argument, command_line, run_in_process, seconds_of, use_data
from benchmarks.task_data import COLUMNS, QUESTION, SETTINGS, bundle, column, load, texts
from benchmarks.task_peers import SquadPeer, TextPeer

from bertzoo.models.config import EncoderConfig

PRESET = Path(__file__).resolve().parents[2] / "weights" / "bert_mini_en"
RATE = 2e-5
# Of what a row of tasks.py's peers holds, the model's inputs, and the names that the model has for some.
INPUTS = ("input_ids", "token_type_ids", "target", "start", "end")
NAMES = {"target": "labels", "start": "start_positions", "end": "end_positions"}


def shape(run) -> EncoderConfig:
    case = Case(run.contestant, "", "train", run.size, SETTINGS[run.task][2], run.batch_size)
    vocabulary = EncoderConfig.from_file(PRESET / "config.json").vocab_size
    return dataclasses.replace(case.config(), vocab_size=vocabulary)


# ---- the contestants: each gives a function that trains for an epoch, and one that tells the lengths of the rows


def bertzoo(run, train: list[dict]):
    import keras

    import bertzoo as bz
    from bertzoo.backend import accelerator_name
    from bertzoo.tasks.presets import load_tokenizer
    from bertzoo.training.step import jit_compile_setting

    keras.mixed_precision.set_global_policy("mixed_bfloat16" if accelerator_name() else "float32")
    config, squad = shape(run), run.task == "squad"
    parts = bz.Encoder(config, pooler=not squad), load_tokenizer(PRESET, config, SETTINGS[run.task][2], None)
    if squad:
        model, data = bz.QuestionAnswerer(*parts, max_query_length=QUESTION), (train,)
    else:
        model = bz.TextClassifier(*parts, labels=1 if run.task == "stsb" else 2)
        data = bundle(texts(train, run.task)), column(train, COLUMNS[run.task][1])
    model.compile(bz.AdamW(RATE), metrics=[], jit_compile=jit_compile_setting())

    def epoch() -> None:
        model.fit(*data, batch_size=run.batch_size, verbose=0)  # it reads the mean loss at its end, and so waits

    def lengths() -> list[int]:
        batches = model.batches(*data, batch_size=run.batch_size)
        return [int(length) for i in range(len(batches)) for length in batches[i][0]["lengths"]]

    return epoch, lengths


class SquadRows(SquadPeer):
    """Windows to learn from: which of them owns a token matters for answers alone, and takes as long as all else."""

    def mark_owners(self, rows):
        pass


def peer(run, train: list[dict]):
    import torch
    import transformers

    gpu, length = torch.cuda.is_available(), SETTINGS[run.task][2]
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    special["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(PRESET / "tokenizer.json"), **special)
    part = (SquadRows if run.task == "squad" else TextPeer)(run.task, tokenizer, train, length)
    config = transformers.AutoConfig.for_model(**shape(run).to_hf(), **part.options)
    model = part.auto(transformers).from_config(config, attn_implementation="sdpa")
    recipe = {"num_train_epochs": 1, "per_device_train_batch_size": run.batch_size, "learning_rate": RATE}
    step = {"bf16": gpu, "use_cpu": not gpu, "optim": "adamw_torch_fused", "torch_compile": "+" in run.contestant}
    loader = {"train_sampling_strategy": run.sampling, "dataloader_num_workers": run.workers}
    loader["accelerator_config"] = {"non_blocking": True}
    quiet = {"logging_strategy": "no", "save_strategy": "no", "report_to": "none", "disable_tqdm": True}
    quiet["logging_nan_inf_filter"] = False  # it waits for the device at each step
    options = {"output_dir": tempfile.mkdtemp(), "weight_decay": 0.01, **recipe, **step, **loader, **quiet}
    trainer = transformers.Trainer(
        model,
        transformers.TrainingArguments(**options),
        transformers.DataCollatorWithPadding(tokenizer, pad_to_multiple_of=run.multiple),
        processing_class=tokenizer,
    )
    trainer.remove_callback(transformers.PrinterCallback)

    def epoch() -> None:
        rows = part.rows(train)
        trainer.train_dataset = [{NAMES.get(name, name): row[name] for name in INPUTS if name in row} for row in rows]
        trainer.train()
        if gpu:
            torch.cuda.synchronize()

    return epoch, lambda: [len(row["input_ids"]) for row in trainer.train_dataset]


CONTESTANTS = {"bertzoo": bertzoo, "transformers": peer, "transformers+compile": peer}


# ---- one run, and several


def child(run: dict) -> dict:
    """In a process of its own: what the run measures."""
    run = argparse.Namespace(**run)
    train = load(run.task, "train", run.examples)
    epoch, lengths = CONTESTANTS[run.contestant](run, train)
    taken, graphs, names = [], [], ("transformers", "torch", "accelerate")
    while len(taken) < 2 or graphs[-2:-1] != graphs[-1:]:
        taken.append(seconds_of(epoch))
        if run.contestant != "bertzoo":
            graphs.append(sys.modules["torch"]._dynamo.utils.counters["stats"]["unique_graphs"])
    from bertzoo.backend import (  # Keras, which the peers do without while they are timed
        device_name,
        keras_versions_text,
    )

    first, seconds, rows = taken[0], taken[-1], lengths()
    versions = ", ".join(f"{name} {version(name)}" for name in names) if graphs else keras_versions_text()
    return {
        **{name: value for name, value in vars(run).items() if name != "data"},
        **{"examples": len(train), "rows": len(rows), "tokens": sum(rows), "graphs": graphs},
        **{"seconds": round(seconds, 3), "first_seconds": round(first, 3)},
        **{"examples/s": round(len(train) / seconds), "tokens/s": round(sum(rows) / seconds)},
        **{"device": device_name(), "versions": versions},
    }


def in_process(run: dict) -> dict | None:
    """What a process of its own measured; None where it failed."""
    environment = {"KERAS_BACKEND": "jax", "CUDA_VISIBLE_DEVICES": "0", "TOKENIZERS_PARALLELISM": "true", **os.environ}
    if run["contestant"] != "bertzoo":
        environment["KERAS_BACKEND"] = "torch"
    with tempfile.TemporaryDirectory() as empty:
        if run["cold"]:
            environment |= {"JAX_COMPILATION_CACHE_DIR": empty, "TORCHINDUCTOR_CACHE_DIR": empty}
        result = run_in_process("epochs", run, environment)
    if isinstance(result, str):
        print(f"{run['contestant']}, {run['task']}: {result}", flush=True)
        return None
    print(json.dumps(result), flush=True)
    return result


def show(lines: list[dict]) -> None:
    """A row a run, with how many times as long as bertzoo's it took."""
    print(f"\n{'task':6}{'contestant':22}{'epoch':>9}{'first':>9}{'examples/s':>12}{'tokens/s':>12}{'ratio':>7}")
    bertzoo_seconds = {line["task"]: line["seconds"] for line in lines if line["contestant"] == "bertzoo"}
    for line in lines:
        times = f"{line['seconds']:7.2f} s{line['first_seconds']:7.1f} s"
        rates = f"{line['examples/s']:12,.0f}{line['tokens/s']:12,.0f}"
        ratio = f"{line['seconds'] / bertzoo_seconds[line['task']]:7.2f}" if line["task"] in bertzoo_seconds else ""
        print(f"{line['task']:6}{line['contestant']:22}{times}{rates}{ratio}")


def main(arguments: list[str]) -> None:
    parser = command_line("epochs", __doc__)
    parser.add_argument("contestant", choices=[*CONTESTANTS, "all"])
    parser.add_argument("task", nargs="+", choices=[*COLUMNS, "squad"])
    add_data_argument(parser)
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--examples", type=int, help="training examples; all if left out")
    parser.add_argument("--workers", type=int, default=2, help="of the Trainer's data loader")
    parser.add_argument("--sampling", choices=["group_by_length", "random"], default="group_by_length")
    parser.add_argument("--multiple", type=int, default=8, help="of which the Trainer's padded lengths are")
    parser.add_argument("--cold", action="store_true", help="with empty caches of what is compiled")
    options = parser.parse_args(arguments)
    use_data(options)
    names = list(CONTESTANTS) if options.contestant == "all" else [options.contestant]
    runs = [{**vars(options), "task": task, "contestant": name} for task in options.task for name in names]
    lines = [in_process(run) for run in runs]
    if options.contestant == "all":
        show([line for line in lines if line])
    if None in lines:
        sys.exit("a run failed")
