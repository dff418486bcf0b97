"""bertzoo and transformers fine-tune the same model on SST-2 with the same settings: accuracy on the dev set by seed.

    BERTZOO_DATA=… python tests/peers/sst2.py MODEL [--seeds 5] [--examples 5000] [--epochs 1]

MODEL is a checkpoint directory. Both use a GPU where there is one. Prints one line a run and the means with their
standard errors.
"""

import argparse
import csv
import gzip
import math
import os
import time
from pathlib import Path

import numpy as np


def read(path: Path) -> tuple[list[str], list[int]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return [row[0].strip() for row in rows], [int(row[1]) for row in rows]


def run_bertzoo(model: str, train, dev, seed: int, epochs: int, random_weights: bool = False) -> float:
    import bertzoo as bz

    bz.set_seed(seed)
    classifier = bz.TextClassifier.from_preset(model, labels=2, new_head=True, verbose=False)
    if random_weights:
        backbone = bz.Encoder(classifier.backbone.config)
        classifier = bz.TextClassifier(backbone, classifier.preprocessor, labels=2)
    classifier.compile()
    classifier.fit(*train, epochs=epochs, batch_size=32, verbose=0)
    return float((classifier.predict(dev[0], verbose=0).argmax(axis=1) == dev[1]).mean())


def run_transformers(model: str, train, dev, seed: int, epochs: int, rate: float) -> float:
    import torch
    import transformers

    torch.manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(
        model, num_labels=2, dtype=torch.float32, attention_probs_dropout_prob=0.0
    ).to(device)

    def encode(texts):
        return tokenizer(texts, padding=True, truncation=True, max_length=128, return_tensors="pt").to(device)

    plain = [p for n, p in network.named_parameters() if n.endswith("bias") or "LayerNorm" in n]
    decayed = [p for n, p in network.named_parameters() if not (n.endswith("bias") or "LayerNorm" in n)]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=rate, eps=1e-8)
    steps = math.ceil(len(train[0]) / 32) * epochs
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, int(0.1 * steps), steps)
    order = np.random.default_rng(seed)
    network.train()
    for _ in range(epochs):
        rows = order.permutation(len(train[0]))
        for i in range(0, len(rows), 32):
            part = rows[i : i + 32]
            batch = encode([train[0][r] for r in part])
            network(**batch, labels=torch.tensor([train[1][r] for r in part], device=device)).loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    network.eval()
    right = 0
    with torch.no_grad():
        for i in range(0, len(dev[0]), 64):
            logits = network(**encode(dev[0][i : i + 64])).logits
            right += int((logits.argmax(-1).cpu().numpy() == np.array(dev[1][i : i + 64])).sum())
    return right / len(dev[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--examples", type=int, default=5000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument(
        "--rate", type=float, default=5e-5, help="transformers' peak rate; bertzoo takes its own default"
    )
    parser.add_argument(
        "--who", nargs="+", default=["bertzoo", "transformers"], choices=["bertzoo", "random", "transformers"]
    )
    arguments = parser.parse_args()
    folder = Path(os.environ["BERTZOO_DATA"]) / "sst2"
    texts, labels = read(folder / "train.tsv.gz")
    rows = np.random.default_rng(0).permutation(len(texts))[: arguments.examples]
    train = [texts[r] for r in rows], [labels[r] for r in rows]
    texts, labels = read(folder / "dev.tsv")
    dev = texts, np.array(labels)
    for who in arguments.who:
        scores = []
        for seed in range(arguments.seeds):
            begun = time.time()
            if who == "transformers":
                score = run_transformers(arguments.model, train, dev, seed, arguments.epochs, arguments.rate)
            else:
                score = run_bertzoo(arguments.model, train, dev, seed, arguments.epochs, who == "random")
            scores.append(100 * score)
            print(f"{who} seed {seed}: {scores[-1]:.2f} % in {time.time() - begun:.0f} s", flush=True)
        error = np.std(scores, ddof=1) / math.sqrt(len(scores)) if len(scores) > 1 else float("nan")
        print(f"{who}: {np.mean(scores):.2f} ± {error:.2f} (standard error, {len(scores)} seeds)", flush=True)


if __name__ == "__main__":
    main()
