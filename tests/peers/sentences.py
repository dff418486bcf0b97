"""Sentence vectors of bertzoo beside those of sentence-transformers: the numbers, the speed, and fine-tuning.

    BERTZOO_DATA=… KERAS_BACKEND=… python tests/peers/sentences.py MODEL vectors
    BERTZOO_DATA=… KERAS_BACKEND=… python tests/peers/sentences.py MODEL {speed,tune} {bertzoo,sentence_transformers}
    BERTZOO_DATA=… KERAS_BACKEND=torch python tests/peers/sentences.py MODEL speed both
    BERTZOO_DATA=… KERAS_BACKEND=… python tests/peers/sentences.py MODEL growth SENTENCES

MODEL is a directory of sentence-transformers. `vectors` compares 1,000 sentences of STS-B, the Spearman correlation on
its test set, and MRR@10 of SQuAD's development questions against their paragraphs. `speed` encodes 2,500 sentences of
SST-2 and 2,500 of STS-B, the best of three after one pass, and says how long that one took (it compiles); float32 and
the threads that the environment gives on a CPU, bfloat16 on a GPU; `both` takes turns in one process, for machines
whose own speed changes. `growth` encodes so many sentences, drawn from SST-2's, and says how fast a second pass was and
what memory the process came to hold besides the vectors. `tune` trains on STS-B with five seeds (TUNE_SEEDS), one epoch
of batches of 32 at 2e-5, linear decay after 10 % of warm-up, with the cosine loss and with in-batch negatives (pairs
that score 4 or more), and gives the Spearman correlation on the test set.
"""

import gzip
import json
import math
import os
import sys
import time
from pathlib import Path

import numpy as np

LIBRARIES = ("bertzoo", "sentence_transformers")
RATE, BATCH = 2e-5, 32


def data(*parts: str) -> str:
    path = Path(os.environ["BERTZOO_DATA"], *parts)
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")


def stsb(part: str) -> tuple[list[str], list[str], np.ndarray]:
    rows = [line.split("\t") for line in data("stsb", f"{part}.tsv").splitlines()[1:]]
    return [row[1] for row in rows], [row[2] for row in rows], np.array([float(row[0]) for row in rows])


def accelerated() -> tuple[str, str]:
    """Where to compute and how exactly: bfloat16 on a GPU."""
    import torch

    return ("cuda", "bfloat16") if torch.cuda.is_available() else ("cpu", "float32")


def load(who: str, model: str, device: str = "cpu", dtype: str = "float32"):
    if who == "bertzoo":
        import bertzoo as bz

        policy = {"float32": "float32", "bfloat16": "mixed_bfloat16"}[dtype]
        return bz.SentenceEncoder.from_preset(model, verbose=False, dtype=policy)
    import sentence_transformers

    return sentence_transformers.SentenceTransformer(model, device=device, model_kwargs={"dtype": dtype})


def correlation(encoder) -> float:
    from bertzoo.retrieval import evaluate_sts

    return evaluate_sts(_Plain(encoder), *stsb("test"))["spearman"]


class _Plain:
    """Either library's `encode`, called with what both take."""

    def __init__(self, encoder):
        self.encoder = encoder

    def encode(self, texts, batch_size: int = 32, prompt=None):
        return self.encoder.encode(list(texts), batch_size=batch_size, prompt=prompt)


def squad() -> tuple[dict[str, str], dict[str, str], dict[str, list[str]]]:
    queries, corpus, relevant = {}, {}, {}
    for article in json.loads(data("squad", "dev.json"))["data"]:
        for number, paragraph in enumerate(article["paragraphs"]):
            name = f"{article['title']} {number}"
            corpus[name] = paragraph["context"]
            for question in paragraph["qas"]:
                queries[question["id"]], relevant[question["id"]] = question["question"], [name]
    return queries, corpus, relevant


def vectors(model: str) -> None:
    from bertzoo.retrieval import evaluate_retrieval

    ours, theirs = load("bertzoo", model), load("sentence_transformers", model)
    firsts, seconds, _ = stsb("test")
    texts = firsts[:500] + seconds[:500]
    print(f"1,000 sentences: max |difference| {np.abs(ours.encode(texts) - theirs.encode(texts)).max():.1e}")
    print(f"STS-B test, Spearman: {correlation(ours):.5f} and {correlation(theirs):.5f}")
    queries, corpus, relevant = squad()
    found = [evaluate_retrieval(_Plain(encoder), queries, corpus, relevant, at=(10,)) for encoder in (ours, theirs)]
    print(f"SQuAD dev, {len(queries)} questions, {len(corpus)} paragraphs: {found[0]} and {found[1]}")


def speed(model: str, who: str) -> None:
    sst2 = [line.split("\t")[0] for line in data("sst2", "train.tsv.gz").splitlines()[1:2501]]
    texts, names = sst2 + stsb("train")[0][:2500], LIBRARIES if who == "both" else (who,)
    encoders = {name: load(name, model, *accelerated()) for name in names}
    seconds = {name: [] for name in names}
    for _ in range(4):
        for name, encoder in encoders.items():
            begun = time.perf_counter()
            encoder.encode(texts)
            seconds[name].append(time.perf_counter() - begun)
    for name, (first, *others) in seconds.items():
        print(f"{name}: {min(others):.2f} s for {len(texts)} sentences; the first pass {first:.2f} s")


def growth(model: str, count: str) -> None:
    import resource

    encoder, draws = load("bertzoo", model, *accelerated()), np.random.default_rng(0)
    sst2 = [line.split("\t")[0] for line in data("sst2", "train.tsv.gz").splitlines()[1:]]
    texts = [sst2[i] for i in draws.integers(0, len(sst2), int(count))]
    for place in ("first", "second"):
        found = None  # not the vectors of two passes at once
        begun = time.perf_counter()
        found = encoder.encode(texts)
        taken = time.perf_counter() - begun
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - found.nbytes
        print(f"{place} pass: {len(texts) / taken:,.0f} sentences a second, {held / 1e9:.2f} GB besides the vectors")


def tune(model: str, who: str) -> None:
    firsts, seconds, scores = stsb("train")
    alike = scores >= 4
    pairs = [(a, b) for a, b, keep in zip(firsts, seconds, alike) if keep]
    tasks = {
        "cosine": (firsts, seconds, (scores / 5).tolist()),
        "multiple_negatives": ([pair[0] for pair in pairs], [pair[1] for pair in pairs], None),
    }
    train = {"bertzoo": tune_ours, "sentence_transformers": tune_theirs}[who]
    for loss, columns in tasks.items():
        found = [
            correlation(train(model, loss, seed, *columns)) for seed in range(int(os.environ.get("TUNE_SEEDS", 5)))
        ]
        error = np.std(found, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else float("nan")
        each = " ".join(f"{value:.4f}" for value in found)
        print(f"{who}, {loss}: Spearman {np.mean(found):.4f} ± {error:.4f} (standard error): {each}", flush=True)


def tune_ours(model: str, loss: str, seed: int, firsts, seconds, scores):
    import bertzoo as bz

    bz.set_seed(seed)
    encoder = load("bertzoo", model)
    encoder.compile(bz.AdamW(RATE), loss=loss)
    encoder.fit((firsts, seconds), scores, batch_size=BATCH, verbose=0)
    return encoder


def tune_theirs(model: str, loss: str, seed: int, firsts, seconds, scores):
    """Its losses in a plain loop: its Trainer asks for `datasets`, and does the same."""
    import torch
    from sentence_transformers.sentence_transformer import losses
    from transformers import get_linear_schedule_with_warmup

    torch.manual_seed(seed)
    encoder = load("sentence_transformers", model, accelerated()[0])
    made = {"cosine": losses.CosineSimilarityLoss, "multiple_negatives": losses.MultipleNegativesRankingLoss}[loss]
    objective = made(encoder)

    def plain(name: str) -> bool:
        return name.endswith("bias") or "LayerNorm" in name

    groups = [
        {"params": [p for n, p in encoder.named_parameters() if plain(n) == bare], "weight_decay": decay}
        for bare, decay in ((False, 0.01), (True, 0.0))
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE)
    steps = math.ceil(len(firsts) / BATCH)
    schedule = get_linear_schedule_with_warmup(optimizer, math.ceil(0.1 * steps), steps)
    order = np.random.default_rng(seed).permutation(len(firsts))
    encoder.train()
    for places in np.array_split(order, range(BATCH, len(order), BATCH)):
        rows = [encoder.tokenize([column[i] for i in places]) for column in (firsts, seconds)]
        features = [
            {name: values.to(encoder.device) if torch.is_tensor(values) else values for name, values in row.items()}
            for row in rows
        ]
        wanted = None if scores is None else torch.tensor([scores[i] for i in places], device=encoder.device)
        objective(features, wanted).backward()
        torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return encoder.eval()


def main() -> None:
    what = {"vectors": vectors, "speed": speed, "growth": growth, "tune": tune}
    if len(sys.argv) not in (3, 4) or sys.argv[2] not in what:
        sys.exit(__doc__)
    what[sys.argv[2]](sys.argv[1], *sys.argv[3:])


if __name__ == "__main__":
    main()
