"""Sentence vectors of bertzoo beside those of sentence-transformers: the numbers, the speed, and fine-tuning.

    KERAS_BACKEND=… python tests/benchmarks/run.py sentences MODEL vectors --data DIRECTORY
    KERAS_BACKEND=… python tests/benchmarks/run.py sentences MODEL {speed,tune} {bertzoo,sentence_transformers} …
    KERAS_BACKEND=… python tests/benchmarks/run.py sentences MODEL growth SENTENCES …

MODEL is a directory of sentence-transformers. `vectors` compares 1,000 sentences of STS-B, the Spearman correlation on
its test set, and MRR@10 of SQuAD's development questions against their paragraphs. `speed` encodes 2,500 sentences of
SST-2 and 2,500 of STS-B, the best of three after one pass, and says how long that one took (it compiles); float32 and
the threads that the environment gives on a CPU, bfloat16 on a GPU; two libraries take turns in one process, as a
machine's own speed changes. `growth` encodes sentences drawn from SST-2's, and says how fast a second pass was
and what memory the process came to hold besides the vectors. `tune` trains on STS-B with five seeds (`--seeds`), one
epoch of batches of 32 at 2e-5, linear decay after 10 % of warm-up, with the cosine loss and with in-batch negatives
(pairs that score 4 or more), and gives the Spearman correlation on the test set.
"""

import functools
import json
import math

import numpy as np
from benchmarks.common import (
    add_data_argument,
    command_line,
    read_data,
    seconds_of,
    take_turns,
    torch_device,
    torch_trainer,
    use_data,
)  # fmt: skip

LIBRARIES = ("bertzoo", "sentence_transformers")
RATE, BATCH = 2e-5, 32


def stsb(part: str) -> tuple[list[str], list[str], np.ndarray]:
    rows = [line.split("\t") for line in read_data("stsb", f"{part}.tsv").splitlines()[1:]]
    return [row[1] for row in rows], [row[2] for row in rows], np.array([float(row[0]) for row in rows])


def accelerated() -> tuple[str, str]:
    """Where to compute and how exactly: bfloat16 on a GPU."""
    device = torch_device()
    return device, "bfloat16" if device == "cuda" else "float32"


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
    for article in json.loads(read_data("squad", "dev.json"))["data"]:
        for number, paragraph in enumerate(article["paragraphs"]):
            name = f"{article['title']} {number}"
            corpus[name] = paragraph["context"]
            for question in paragraph["qas"]:
                queries[question["id"]], relevant[question["id"]] = question["question"], [name]
    return queries, corpus, relevant


def vectors(model: str) -> None:
    from bertzoo.retrieval import evaluate_retrieval

    bertzoo_model, peer = load("bertzoo", model), load("sentence_transformers", model)
    firsts, seconds, _ = stsb("test")
    texts = firsts[:500] + seconds[:500]
    print(f"1,000 sentences: max |difference| {np.abs(bertzoo_model.encode(texts) - peer.encode(texts)).max():.1e}")
    print(f"STS-B test, Spearman: {correlation(bertzoo_model):.5f} and {correlation(peer):.5f}")
    queries, corpus, relevant = squad()
    result = [
        evaluate_retrieval(_Plain(encoder), queries, corpus, relevant, cutoffs=(10,))
        for encoder in (bertzoo_model, peer)
    ]
    print(f"SQuAD dev, {len(queries)} questions, {len(corpus)} paragraphs: {result[0]} and {result[1]}")


def speed(model: str, libraries: list[str]) -> None:
    sst2 = [line.split("\t")[0] for line in read_data("sst2", "train.tsv.gz").splitlines()[1:2501]]
    texts = sst2 + stsb("train")[0][:2500]
    encoders = {name: load(name, model, *accelerated()) for name in libraries}
    runs = {name: functools.partial(encoder.encode, texts) for name, encoder in encoders.items()}
    for name, (best, first) in take_turns(runs).items():
        print(f"{name}: {best:.2f} s for {len(texts)} sentences; the first pass {first:.2f} s")


def growth(model: str, count: int) -> None:
    import resource

    encoder, draws = load("bertzoo", model, *accelerated()), np.random.default_rng(0)
    sst2 = [line.split("\t")[0] for line in read_data("sst2", "train.tsv.gz").splitlines()[1:]]
    texts = [sst2[i] for i in draws.integers(0, len(sst2), count)]
    for place in ("first", "second"):
        vectors = []  # not those of two passes at once

        def encode():
            vectors.append(encoder.encode(texts))  # noqa: B023  (called at once)

        taken = seconds_of(encode)
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - vectors[0].nbytes
        print(f"{place} pass: {len(texts) / taken:,.0f} sentences a second, {held / 1e9:.2f} GB besides the vectors")


def tune(model: str, who: str, seeds: int) -> None:
    firsts, seconds, scores = stsb("train")
    alike = scores >= 4
    pairs = [(a, b) for a, b, keep in zip(firsts, seconds, alike) if keep]
    tasks = {
        "cosine": (firsts, seconds, (scores / 5).tolist()),
        "multiple_negatives": ([pair[0] for pair in pairs], [pair[1] for pair in pairs], None),
    }
    train = {"bertzoo": tune_bertzoo, "sentence_transformers": tune_peer}[who]
    for loss, columns in tasks.items():
        result = [correlation(train(model, loss, seed, *columns)) for seed in range(seeds)]
        error = np.std(result, ddof=1) / np.sqrt(len(result)) if len(result) > 1 else float("nan")
        each = " ".join(f"{value:.4f}" for value in result)
        print(f"{who}, {loss}: Spearman {np.mean(result):.4f} ± {error:.4f} (standard error): {each}", flush=True)


def tune_bertzoo(model: str, loss: str, seed: int, firsts, seconds, scores):
    import bertzoo as bz

    bz.set_seed(seed)
    encoder = load("bertzoo", model)
    encoder.compile(bz.AdamW(RATE), loss=loss)
    encoder.fit((firsts, seconds), scores, batch_size=BATCH, verbose=0)
    return encoder


def tune_peer(model: str, loss: str, seed: int, firsts, seconds, scores):
    """Its losses in a plain loop: its Trainer asks for `datasets`, and does the same."""
    import torch
    from sentence_transformers.sentence_transformer import losses

    torch.manual_seed(seed)
    encoder = load("sentence_transformers", model, torch_device())
    made = {"cosine": losses.CosineSimilarityLoss, "multiple_negatives": losses.MultipleNegativesRankingLoss}[loss]
    objective = made(encoder)

    step = torch_trainer(encoder, RATE, math.ceil(len(firsts) / BATCH))
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
        step()
    return encoder.eval()


def main(arguments: list[str]) -> None:
    parser = command_line("sentences", __doc__)
    parser.add_argument("model")
    parser.add_argument("what", choices=["vectors", "speed", "growth", "tune"])
    parser.add_argument("of", nargs="*", metavar="LIBRARY|SENTENCES", help="libraries: " + ", ".join(LIBRARIES))
    parser.add_argument("--seeds", type=int, default=5, help="of `tune`")
    add_data_argument(parser)
    options = parser.parse_args(arguments)
    use_data(options)
    if options.what == "vectors":
        vectors(options.model)
    elif options.what == "growth":
        for count in options.of:
            growth(options.model, int(count))
    else:
        libraries = options.of or list(LIBRARIES)
        unknown = set(libraries) - set(LIBRARIES)
        if unknown:
            parser.error(f"expected libraries of {', '.join(LIBRARIES)}. Received: {min(unknown)}.")
        if options.what == "speed":
            speed(options.model, libraries)
        else:
            for name in libraries:
                tune(options.model, name, options.seeds)
