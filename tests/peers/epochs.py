"""How long an epoch of fine-tuning takes from raw strings: bertzoo's `fit` beside the Trainer of transformers.

    KERAS_BACKEND=jax python tests/peers/epochs.py CONTESTANT TASK … --data DIRECTORY [--size base] [--batch-size 32]
        [--examples N] [--workers 2] [--sampling group_by_length] [--multiple 8] [--cold]

CONTESTANT: bertzoo, transformers, transformers+compile, or all, which runs the three one after another and ends with a
table. TASK: sst2, mrpc, stsb or squad, a folder each in DIRECTORY. Each run is a process of its own on one GPU, or on
the CPU where there is none, and prints a line of JSON. `seconds` are those of a second pass over the training set,
whose shapes are all compiled; `first_seconds` those of the first. The clock starts with lists of strings in memory, so
each pass tokenizes, and stops when the device is done.

Both sides train the same shape from random weights with the WordPiece tokenizer of bert_mini_en: rows of at most 128
tokens, SQuAD in the same windows of 384 from every 128th token; bfloat16 on a GPU, float32 on a CPU; dropout 0.1 and
none on attention weights; AdamW, gradients clipped to 1. The Trainer pads each batch to its longest row, and has what
makes it fast: batches of like length, lengths that are multiples of 8, workers that pad, fused AdamW, SDPA, copies that
do not block, no logging, no look at each loss for NaN. Its rows are a plain list, which is faster than a
`datasets.Dataset`. The second pass is the same Trainer's, so its model stays compiled; `graphs` counts what
torch.compile had compiled after each pass.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tasks import COLUMNS, QUESTION, SETTINGS, STRIDE, SquadPeer, TextPeer, bundle, column, load, texts

from bertzoo.bench.case import SIZES, Case
from bertzoo.config import EncoderConfig

PRESET = Path(__file__).resolve().parents[2] / "weights" / "bert_mini_en"
RATE = 2e-5
# What a row of the peers in tasks.py holds -> what the model calls it.
INPUTS = {
    "input_ids": "input_ids",
    "token_type_ids": "token_type_ids",
    "target": "labels",
    "start": "start_positions",
    "end": "end_positions",
}


def shape(run) -> EncoderConfig:
    case = Case(run.contestant, "", "train", run.size, SETTINGS[run.task][2], run.batch_size)
    vocabulary = EncoderConfig.from_file(PRESET / "config.json").vocab_size
    return dataclasses.replace(case.config(), vocab_size=vocabulary)


# ---- the contestants: each gives a function that runs an epoch, and one that tells what it was


def bertzoo(run, train: list[dict]):
    import keras

    import bertzoo as bz
    from bertzoo.accelerator import accelerator
    from bertzoo.bench.device import keras_versions
    from bertzoo.text.preprocessor import load_preprocessor
    from bertzoo.training.step import long_run

    keras.mixed_precision.set_global_policy("mixed_bfloat16" if accelerator() else "float32")
    config, squad = shape(run), run.task == "squad"
    preprocessor = load_preprocessor(PRESET, config, SETTINGS[run.task][2], None)
    encoder = bz.Encoder(config, pooler=not squad)
    if squad:
        model = bz.QuestionAnswerer(encoder, preprocessor, stride=STRIDE, question_limit=QUESTION)
        x, y = train, None
    else:
        model = bz.TextClassifier(encoder, preprocessor, labels=1 if run.task == "stsb" else 2)
        x, y = bundle(texts(train, run.task)), column(train, COLUMNS[run.task][1])
    model.compile(bz.AdamW(RATE), metrics=[], jit_compile=long_run())

    def epoch() -> None:
        model.fit(x, y, batch_size=run.batch_size, verbose=0)  # reads the mean loss at its end: that waits

    def told() -> dict:
        batches = model.batches(x, y, batch_size=run.batch_size)
        lengths = [int(n) for i in range(len(batches)) for n in batches[i][0]["lengths"]]
        return {"rows": len(lengths), "tokens": sum(lengths), "versions": keras_versions()}

    return epoch, told


class SquadRows(SquadPeer):
    """Windows to learn from: whose each token is matters for reading answers alone, and takes as long as the rest."""

    def mark_owners(self, rows):
        pass


def peer(run, train: list[dict]):
    import accelerate
    import torch
    import transformers

    gpu, compiled = torch.cuda.is_available(), run.contestant.endswith("+compile")
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    file = str(PRESET / "tokenizer.json")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=file, model_input_names=inputs, **special)
    kind = SquadRows if run.task == "squad" else TextPeer
    part = kind(run.task, tokenizer, train, SETTINGS[run.task][2])
    config = transformers.AutoConfig.for_model(**shape(run).to_hf(), **part.options)
    options = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        num_train_epochs=1,
        per_device_train_batch_size=run.batch_size,
        learning_rate=RATE,
        weight_decay=0.01,
        optim="adamw_torch_fused",
        bf16=gpu,
        use_cpu=not gpu,
        torch_compile=compiled,
        train_sampling_strategy=run.sampling,
        dataloader_num_workers=run.workers,
        accelerator_config={"non_blocking": True},
        logging_strategy="no",
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(
        model=part.auto(transformers).from_config(config, attn_implementation="sdpa"),
        args=options,
        data_collator=transformers.DataCollatorWithPadding(tokenizer, pad_to_multiple_of=run.multiple),
        processing_class=tokenizer,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    graphs = []

    def epoch() -> None:
        rows = part.rows(train)
        trainer.train_dataset = [{INPUTS[name]: row[name] for name in INPUTS if name in row} for row in rows]
        trainer.train()
        if gpu:
            torch.cuda.synchronize()
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])

    def told() -> dict:
        rows, settings = (
            trainer.train_dataset,
            {name: getattr(run, name) for name in ("workers", "sampling", "multiple")},
        )
        versions = ", ".join(f"{m.__name__} {m.__version__}" for m in (transformers, torch, accelerate))
        tokens = sum(len(row["input_ids"]) for row in rows)
        return {"rows": len(rows), "tokens": tokens, "versions": versions, **settings, "graphs": graphs}

    return epoch, told


CONTESTANTS = {"bertzoo": bertzoo, "transformers": peer, "transformers+compile": peer}


# ---- one run, and several


def measure(run) -> dict:
    train = load(run.task, "train", run.examples)
    epoch, told = CONTESTANTS[run.contestant](run, train)
    taken = []
    for _ in range(2):
        begun = time.perf_counter()
        epoch()
        taken.append(time.perf_counter() - begun)
    from bertzoo.bench.device import device  # Keras, which the peers do without while they are timed

    first, seconds = taken
    facts = told()
    return {
        **{name: getattr(run, name) for name in ("contestant", "task", "size", "batch_size", "cold")},
        "seconds": round(seconds, 3),
        "first_seconds": round(first, 3),
        "examples": len(train),
        "examples_per_second": round(len(train) / seconds, 1),
        "tokens_per_second": round(facts["tokens"] / seconds),
        "device": device(),
        **facts,
    }


def in_process(run: dict) -> dict | None:
    """What a process of its own measured; None where it failed, and has said why."""
    own = {"CUDA_VISIBLE_DEVICES": "0", "KERAS_BACKEND": "jax", "TOKENIZERS_PARALLELISM": "true"}
    environment = {**own, **os.environ}
    if run["contestant"] != "bertzoo":
        environment["KERAS_BACKEND"] = "torch"
    with tempfile.TemporaryDirectory() as empty:
        if run["cold"]:
            environment |= {"JAX_COMPILATION_CACHE_DIR": empty, "TORCHINDUCTOR_CACHE_DIR": empty}
        command = [sys.executable, __file__, "measure", json.dumps(run)]
        ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if ended.returncode:
        return None
    line = ended.stdout.splitlines()[-1]
    print(line, flush=True)
    return json.loads(line)


def show(lines: list[dict]) -> None:
    """Each run, with how many times as long as bertzoo it took."""
    print(
        f"\n{'task':6}{'contestant':22}{'epoch, s':>10}{'first, s':>10}{'examples/s':>12}{'tokens/s':>12}{'ratio':>8}"
    )
    for line in lines:
        ours = [x["seconds"] for x in lines if x["task"] == line["task"] and x["contestant"] == "bertzoo"]
        ratio = f"{line['seconds'] / ours[0]:.2f}" if ours else ""
        numbers = f"{line['seconds']:10.2f}{line['first_seconds']:10.2f}{line['examples_per_second']:12,.0f}"
        print(f"{line['task']:6}{line['contestant']:22}{numbers}{line['tokens_per_second']:12,}{ratio:>8}")


def main() -> None:
    if sys.argv[1:2] == ["measure"]:
        print(json.dumps(measure(argparse.Namespace(**json.loads(sys.argv[2])))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("contestant", choices=[*CONTESTANTS, "all"])
    parser.add_argument("task", nargs="+", choices=[*COLUMNS, "squad"])
    parser.add_argument("--data", default=os.environ.get("BERTZOO_DATA"))
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--examples", type=int, help="training examples; all if left out")
    parser.add_argument("--workers", type=int, default=2, help="of the Trainer's data loader")
    parser.add_argument("--sampling", choices=["group_by_length", "random"], default="group_by_length")
    parser.add_argument("--multiple", type=int, default=8, help="of which the Trainer's padded lengths are")
    parser.add_argument("--cold", action="store_true", help="with empty caches of what is compiled")
    arguments = parser.parse_args()
    os.environ["BERTZOO_DATA"] = arguments.data
    names = list(CONTESTANTS) if arguments.contestant == "all" else [arguments.contestant]
    runs = [{**vars(arguments), "task": task, "contestant": name} for task in arguments.task for name in names]
    lines = [in_process(run) for run in runs]
    if arguments.contestant == "all":
        show([line for line in lines if line])
    if None in lines:
        sys.exit("a run failed")


if __name__ == "__main__":
    main()
