"""Fine-tuning as transformers' users write it: rows, batches and answers of each task, and a plain PyTorch loop."""

import math

import numpy as np
from benchmarks.common import torch_device, torch_trainer
from benchmarks.task_data import ANSWER, BATCH, COLUMNS, N_BEST, QUESTION, STRIDE, column, labels_of, texts


def run_transformers(task: str, model: str, train, held, seed: int, epochs: int, rate: float, length: int):
    import torch
    import transformers

    torch.manual_seed(seed)
    device = torch_device()
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
    """Trains in a plain PyTorch loop."""
    step = torch_trainer(network, rate, math.ceil(len(rows) / BATCH) * epochs)
    order = np.random.default_rng(seed)
    network.train()
    for _ in range(epochs):
        for places in np.array_split(order.permutation(len(rows)), range(BATCH, len(rows), BATCH)):
            batch = part.batch([rows[i] for i in places])
            network(**{name: values.to(device) for name, values in batch.items()}).loss.backward()
            step()


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
        result = [(-math.inf, "")] * len(examples)
        for row, (starts, ends) in zip(rows, outputs):
            starts, ends = (logits[row["column"] : row["column"] + row["length"]] for logits in (starts, ends))
            top_ends = np.argsort(-ends)[:N_BEST]
            for a in [i for i in np.argsort(-starts)[:N_BEST] if row["own"][i]]:
                for b in top_ends:
                    score = starts[a] + ends[b]
                    if a <= b < a + ANSWER and score > result[row["example"]][0]:
                        span = slice(row["offsets"][a][0], row["offsets"][b][1])
                        result[row["example"]] = (score, examples[row["example"]]["context"][span])
        return [text for _, text in result]
