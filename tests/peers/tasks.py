"""bertzoo and a plain transformers + PyTorch loop fine-tune the same model on the same task with the same settings.

    KERAS_BACKEND=… python tests/peers/tasks.py MODEL --data DIRECTORY --task {sst2,mrpc,stsb,wnut17,ewt_pos,squad}
        [--seeds 5] [--first-seed 0] [--examples N] [--held N] [--epochs E] [--rate R] [--json FILE]
        [--who bertzoo transformers random]

MODEL is a checkpoint directory (all-MiniLM-L6-v2 in the published figures); DIRECTORY holds the sets, a folder each.
The figures: MRPC F1, STS-B Spearman, WNUT-17 entity F1 and EWT accuracy of words on their test sets, SST-2 accuracy on
its dev set, SQuAD F1 on the held-out articles. All use a GPU where there is one, float32, batches of 32, AdamW with
decay 0.01 but on biases and LayerNorm, 10 % warm-up, linear decay, gradients clipped to 1, no dropout on attention
weights; `random` is bertzoo from random weights. Prints a line a run, the means with their standard errors, and the
margin that the project allows itself.
"""

import argparse
import functools
import json
import math
import os
import time
from pathlib import Path

import numpy as np

from bertzoo import data, metrics

BATCH = 32
SETTINGS = {  # epochs, peak rate, longest row
    "sst2": (1, 5e-5, 128),
    "mrpc": (4, 5e-5, 128),
    "stsb": (4, 5e-5, 128),
    "wnut17": (5, 2e-4, 128),
    "ewt_pos": (3, 2e-4, 128),
    "squad": (3, 1e-4, 384),
}
COLUMNS = {  # of texts, then the target
    "sst2": (("sentence",), "label"),
    "mrpc": (("sentence1", "sentence2"), "label"),
    "stsb": (("sentence1", "sentence2"), "score"),
}
HELD = {"sst2": "dev", "squad": "dev"}  # the others' is their test set
STRIDE, QUESTION, ANSWER, N_BEST = 128, 64, 30, 20


# ---- data: for every task the examples as a list, which both sides read


def load(task: str, split: str, count: int | None, seed: int = 0) -> list[dict]:
    found = data.load(task, split)
    rows = found if isinstance(found, list) else [dict(zip(found, row)) for row in zip(*found.values())]
    if count is not None and count < len(rows):
        rows = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))[:count]]
    return rows


def column(rows: list[dict], name: str) -> list:
    return [row[name] for row in rows]


def bundle(columns: tuple):
    """As `fit` takes them: one column alone, two as a pair."""
    return columns[0] if len(columns) == 1 else columns


def texts(rows: list[dict], task: str) -> tuple[list[str], ...]:
    return tuple(column(rows, name) for name in COLUMNS[task][0])


def figure(task: str, rows: list[dict], predicted) -> float:
    """The task's score in percent."""
    if task == "sst2":
        return 100 * metrics.accuracy(column(rows, "label"), predicted)
    if task == "mrpc":
        return 100 * metrics.f1(column(rows, "label"), predicted)
    if task == "stsb":
        return 100 * metrics.spearman(column(rows, "score"), predicted)
    if task == "squad":
        golds = [[answer["text"] for answer in row["answers"]] for row in rows]
        return metrics.squad_scores(predicted, golds)["f1"]
    scores = metrics.entity_scores(column(rows, "tags"), predicted)
    return 100 * scores["f1" if task == "wnut17" else "accuracy"]


def labels_of(train: list[dict]) -> list[str]:
    return sorted({tag for row in train for tag in row["tags"]})


# ---- bertzoo


def run_bertzoo(task: str, model: str, train, held, seed: int, epochs: int, rate: float, length: int, random=False):
    import bertzoo as bz

    bz.set_seed(seed)
    options = {"max_length": length, "new_head": True, "verbose": False}
    if task in COLUMNS:
        kind = {"labels": 1, "problem_type": "regression"} if task == "stsb" else {"labels": 2}
        network = bz.TextClassifier.from_preset(model, **kind, **options)
        x, y = bundle(texts(train, task)), column(train, COLUMNS[task][1])
    elif task == "squad":
        network = bz.QuestionAnswerer.from_preset(model, max_query_length=QUESTION, **options)
        x, y = train, None
    else:
        network = bz.TokenClassifier.from_preset(model, labels=labels_of(train), **options)
        x, y = column(train, "tokens"), column(train, "tags")
    if random:
        fresh = bz.Encoder.from_config(network.backbone.get_config())
        network.backbone.set_weights(fresh.get_weights())
    network.compile(bz.AdamW(rate))
    network.fit(x, y, epochs=epochs, batch_size=BATCH, verbose=0)
    if task in COLUMNS:
        logits = network.predict(bundle(texts(held, task)), batch_size=64, verbose=0)
        return logits[:, 0] if task == "stsb" else logits.argmax(axis=1)
    if task == "squad":
        found = network.answer([{k: row[k] for k in ("question", "context")} for row in held], batch_size=64)
        return column(found, "text")
    return network.tag_words(column(held, "tokens"), batch_size=64)


# ---- transformers and PyTorch


def run_transformers(task: str, model: str, train, held, seed: int, epochs: int, rate: float, length: int):
    import torch
    import transformers

    torch.manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    part = {"squad": SquadPeer, **dict.fromkeys(COLUMNS, TextPeer)}.get(task, WordPeer)(task, tokenizer, train, length)
    options = {"dtype": torch.float32, "attention_probs_dropout_prob": 0.0, **part.options}
    network = part.auto(transformers).from_pretrained(model, **options).to(device)
    rows = part.rows(train)
    learn(network, rows, part, seed, epochs, rate, device)
    network.eval()
    outputs, asked = [], part.rows(held)
    with torch.inference_mode():
        for i in range(0, len(asked), 64):
            batch = {k: v.to(device) for k, v in part.batch(asked[i : i + 64]).items() if k not in part.targets}
            outputs += part.outputs(network(**batch))
    return part.read(held, asked, outputs)


def learn(network, rows: list[dict], part, seed: int, epochs: int, rate: float, device: str) -> None:
    import torch
    import transformers

    def plain(name: str) -> bool:
        return name.endswith("bias") or "LayerNorm" in name

    groups = [
        {"params": [p for n, p in network.named_parameters() if not plain(n)], "weight_decay": 0.01},
        {"params": [p for n, p in network.named_parameters() if plain(n)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=rate, eps=1e-8)
    steps = math.ceil(len(rows) / BATCH) * epochs
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, math.ceil(0.1 * steps), steps)
    order = np.random.default_rng(seed)
    network.train()
    for _ in range(epochs):
        for places in np.array_split(order.permutation(len(rows)), range(BATCH, len(rows), BATCH)):
            batch = part.batch([rows[i] for i in places])
            network(**{name: values.to(device) for name, values in batch.items()}).loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()


def pad(rows: list[list[int]], value: int):
    import torch

    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])


class Peer:
    """How a task's examples become rows of ids with targets, batches of tensors, and outputs become predictions."""

    targets: tuple[str, ...] = ("labels",)
    options: dict = {}

    def __init__(self, task: str, tokenizer, train, length: int):
        self.task, self.tokenizer, self.length = task, tokenizer, length

    def batch(self, rows: list[dict]) -> dict:
        return {
            "input_ids": pad(column(rows, "input_ids"), self.tokenizer.pad_token_id),
            "token_type_ids": pad(column(rows, "token_type_ids"), 0),
            "attention_mask": pad([[1] * len(row["input_ids"]) for row in rows], 0),
        }


class TextPeer(Peer):
    def __init__(self, task, tokenizer, train, length):
        super().__init__(task, tokenizer, train, length)
        self.options = {"num_labels": 1, "problem_type": "regression"} if task == "stsb" else {"num_labels": 2}

    def auto(self, transformers):
        return transformers.AutoModelForSequenceClassification

    def rows(self, examples):
        encoded = self.tokenizer(*texts(examples, self.task), truncation=True, max_length=self.length)
        rows = [dict(zip(encoded, values)) for values in zip(*encoded.values())]
        for row, target in zip(rows, column(examples, COLUMNS[self.task][1])):
            row["target"] = float(target) if self.task == "stsb" else target
        return rows

    def batch(self, rows):
        import torch

        return {**super().batch(rows), "labels": torch.tensor(column(rows, "target"))}

    def outputs(self, out):
        return list(out.logits.float().cpu().numpy())

    def read(self, examples, rows, outputs):
        logits = np.stack(outputs)
        return logits[:, 0] if self.task == "stsb" else logits.argmax(axis=1)


class WordPeer(Peer):
    def __init__(self, task, tokenizer, train, length):
        super().__init__(task, tokenizer, train, length)
        self.labels = labels_of(train)
        self.options = {"num_labels": len(self.labels)}

    def auto(self, transformers):
        return transformers.AutoModelForTokenClassification

    def rows(self, examples):
        rows = []
        for example in examples:
            encoded = self.tokenizer(
                example["tokens"], is_split_into_words=True, truncation=True, max_length=self.length
            )
            words, firsts = encoded.word_ids(), {}
            for place, word in enumerate(words):
                if word is not None:
                    firsts.setdefault(word, place)
            labels = [-100] * len(words)
            for word, place in firsts.items():
                tag = example["tags"][word]
                labels[place] = self.labels.index(tag) if tag in self.labels else -100
            rows.append({**encoded, "labels": labels, "firsts": firsts})
        return rows

    def batch(self, rows):
        return {**super().batch(rows), "labels": pad(column(rows, "labels"), -100)}

    def outputs(self, out):
        return list(out.logits.argmax(-1).cpu().numpy())

    def read(self, examples, rows, outputs):
        usual = "O" if "O" in self.labels else self.labels[0]
        return [
            [self.labels[ids[row["firsts"][w]]] if w in row["firsts"] else usual for w in range(len(example["tokens"]))]
            for example, row, ids in zip(examples, rows, outputs)
        ]


class SquadPeer(Peer):
    """As BERT's own code: windows from every 128th token; the answer is the best pair of ends of all windows."""

    targets = ("start_positions", "end_positions")

    def auto(self, transformers):
        return transformers.AutoModelForQuestionAnswering

    def rows(self, examples):
        cls, sep = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        plain = {"add_special_tokens": False, "truncation": False, "verbose": False}
        questions = self.tokenizer(column(examples, "question"), **plain)["input_ids"]
        contexts = self.tokenizer(column(examples, "context"), return_offsets_mapping=True, **plain)
        rows = []
        for number, example in enumerate(examples):
            question = questions[number][:QUESTION]
            ids, offsets = contexts["input_ids"][number], contexts["offset_mapping"][number]
            room, column_ = self.length - len(question) - 3, len(question) + 2
            first, last = self.ends(example, offsets)
            begin = 0
            while True:
                piece = ids[begin : begin + room]
                inside = begin <= first and last < begin + len(piece)
                rows.append(
                    {
                        "input_ids": [cls, *question, sep, *piece, sep],
                        "token_type_ids": [0] * column_ + [1] * (len(piece) + 1),
                        "start": first - begin + column_ if inside else 0,
                        "end": last - begin + column_ if inside else 0,
                        "example": number,
                        "column": column_,
                        "offsets": offsets[begin : begin + room],
                        "begin": begin,
                        "length": len(piece),
                    }
                )
                if begin + room >= len(ids):
                    break
                begin += min(STRIDE, room)
        self.mark_owners(rows)
        return rows

    def ends(self, example, offsets):
        begin = example["answers"][0]["answer_start"]
        end = begin + len(example["answers"][0]["text"])
        inside = [i for i, (a, b) in enumerate(offsets) if a < end and b > begin]
        return (inside[0], inside[-1]) if inside else (-1, -1)

    def mark_owners(self, rows):
        """A token may start an answer only in the window in which its lesser context is the greatest."""
        best = {}
        for row in rows:
            for i in range(row["length"]):
                context = min(i, row["length"] - 1 - i) + 0.01 * row["length"]
                key = (row["example"], row["begin"] + i)
                if key not in best or context > best[key][0]:
                    best[key] = (context, id(row))
        for row in rows:
            row["own"] = [best[row["example"], row["begin"] + i][1] == id(row) for i in range(row["length"])]

    def batch(self, rows):
        import torch

        ends = {f"{end}_positions": torch.tensor(column(rows, end)) for end in ("start", "end")}
        return {**super().batch(rows), **ends}

    def outputs(self, out):
        return list(zip(out.start_logits.float().cpu().numpy(), out.end_logits.float().cpu().numpy()))

    def read(self, examples, rows, outputs):
        found = [(-math.inf, "")] * len(examples)
        for row, (starts, ends) in zip(rows, outputs):
            starts, ends = (logits[row["column"] : row["column"] + row["length"]] for logits in (starts, ends))
            top_ends = np.argsort(-ends)[:N_BEST]
            for a in [i for i in np.argsort(-starts)[:N_BEST] if row["own"][i]]:
                for b in top_ends:
                    score = starts[a] + ends[b]
                    if a <= b < a + ANSWER and score > found[row["example"]][0]:
                        span = slice(row["offsets"][a][0], row["offsets"][b][1])
                        found[row["example"]] = (score, examples[row["example"]]["context"][span])
        return [text for _, text in found]


RUNS = {
    "bertzoo": run_bertzoo,
    "transformers": run_transformers,
    "random": functools.partial(run_bertzoo, random=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", default=os.environ.get("BERTZOO_DATA"))
    parser.add_argument("--task", required=True, choices=SETTINGS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--examples", type=int, help="training examples; all if left out")
    parser.add_argument("--held", type=int, help="test examples; all if left out")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--who", nargs="+", choices=RUNS, default=["bertzoo", "transformers"])
    parser.add_argument("--json", type=Path, help="file that gets a line for each run")
    arguments = parser.parse_args()
    os.environ["BERTZOO_DATA"] = arguments.data
    task, (epochs, rate, length) = arguments.task, SETTINGS[arguments.task]
    epochs, rate = arguments.epochs or epochs, arguments.rate or rate
    train = load(task, "train", arguments.examples)
    held = load(task, HELD.get(task, "test"), arguments.held)
    print(f"{task}: {len(train)} to learn from, {len(held)} to test, {epochs} epochs, rate {rate:g}", flush=True)
    results = {}
    for who in arguments.who:
        scores = []
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            begun = time.time()
            predicted = RUNS[who](task, arguments.model, train, held, seed, epochs, rate, length)
            scores.append(figure(task, held, predicted))
            seconds = time.time() - begun
            print(f"{who} seed {seed}: {scores[-1]:.2f} in {seconds:.0f} s", flush=True)
            if arguments.json:
                line = {"task": task, "who": who, "seed": seed, "score": scores[-1], "seconds": seconds}
                with arguments.json.open("a") as file:
                    file.write(json.dumps({**line, "examples": len(train), "epochs": epochs, "rate": rate}) + "\n")
        results[who] = scores
        print(
            f"{who}: {np.mean(scores):.2f} ± {error_of(scores):.2f} (standard error, {len(scores)} seeds)", flush=True
        )
    if {"bertzoo", "transformers"} <= set(results):
        gap = np.mean(results["bertzoo"]) - np.mean(results["transformers"])
        error = math.hypot(error_of(results["bertzoo"]), error_of(results["transformers"]))
        allowed = max(1.0, 2 * error) if math.isfinite(error) else 1.0
        verdict = "met" if gap >= -allowed else "missed"
        print(f"bertzoo − transformers: {gap:+.2f}; allowed below: {allowed:.2f}; {verdict}")


def error_of(scores: list[float]) -> float:
    return float(np.std(scores, ddof=1) / math.sqrt(len(scores))) if len(scores) > 1 else math.nan


if __name__ == "__main__":
    main()
