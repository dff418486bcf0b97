"""Entities of any label beside gliner: the same entities, the time they take, and training for labels never seen.

    python tests/benchmarks/run.py entities PYTHON --data DIRECTORY [--train ENCODER --steps N]

PYTHON is the interpreter of an environment with gliner 0.2.29 (and accelerate, for training). It runs beside this
process, and both take turns; beside other programs the processor's time tells more than the clock. KERAS_BACKEND
chooses the backend here; --onnx and --int8 compute with ONNX Runtime.

Without --train, 500 texts of WNUT-17 are searched for its labels by a model of random weights in the size of DeBERTa
v3 small, or the one that --model names.

With --train, both train a model on the encoder in the directory ENCODER, on WNUT-17 without the labels of --held-out,
with the same steps, rates and batches; their files are then evaluated by the same code here: F1 of exact spans in the
test split, of the labels that were trained and of those held out.
"""

import json
import os
import subprocess
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks.common import PASSES, RESULT, add_data_argument, command_line, use_data

LABELS = ["corporation", "creative-work", "group", "location", "person", "product"]
HELD_OUT = ["corporation", "creative-work", "location"]
SMALL = {  # DeBERTa v3 small, whose vocabulary is larger
    "hidden_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
}
SHARE = 0.0005  # of the spans of a random model, which are taken for entities


class Gliner:
    """gliner in a process of its own, which answers one request at a time."""

    def __init__(self, python: str, threads: int):
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
        script = str(Path(__file__).with_name("entities_gliner.py"))
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([python, script], env=environment, text=True, **pipes)

    def __call__(self, do: str, **options: Any) -> Any:
        self._process.stdin.write(json.dumps({"do": do, **options}) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(RESULT):
                return json.loads(line.removeprefix(RESULT))
        raise RuntimeError(f"gliner ended at {do!r}: run entities_gliner.py with it to see why.")

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def main(arguments: list[str]) -> None:
    parser = command_line("entities", __doc__)
    parser.add_argument("gliner", metavar="PYTHON", help="the interpreter of gliner's environment")
    add_data_argument(parser)
    parser.add_argument("--model", help="a directory of GLiNER; by default one of random weights")
    parser.add_argument("--span-mode", default="markerV0", choices=("markerV0", "token_level"))
    parser.add_argument("--count", type=int, help="texts; 500, with --train all of the test split")
    parser.add_argument("--threshold", type=float, default=0.5, help="for --model")
    parser.add_argument("--threads", type=int, default=1, help="of each side")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--onnx", action="store_true", help="compute here with ONNX Runtime")
    parser.add_argument("--int8", action="store_true", help="the same in 8 bits")
    parser.add_argument("--train", metavar="ENCODER", help="the directory of an encoder to train on")
    parser.add_argument("--held-out", nargs="+", default=HELD_OUT, choices=LABELS, help="labels without training")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=5e-5, help="the encoder's; five times it for the new layers")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each side")
    options = parser.parse_args(arguments)
    use_data(options)
    gliner = Gliner(options.gliner, options.threads)
    with tempfile.TemporaryDirectory() as folder:
        (compare_training if options.train else compare_answers)(options, gliner, Path(folder))
    gliner.close()


def compare_answers(options: Any, gliner: Gliner, folder: Path) -> None:
    """The entities of the same texts, and the best time of several passes in turns."""
    import bertzoo as bz
    from bertzoo.backend import keras_versions_text
    from bertzoo.data import load

    texts = [" ".join(words) for split in ("train", "test") for words in load("wnut17", split)["tokens"]]
    directory, threshold = options.model, options.threshold
    if directory is None:
        directory = str(folder / "model")
        config = {"span_mode": options.span_mode, "hidden_size": 512}
        request = {"texts": texts, "labels": LABELS, "config": config, "sizes": SMALL, "share": SHARE}
        threshold = gliner("make", directory=directory, **request)["threshold"]
    count = options.count or 500
    texts = texts[:: len(texts) // count][:count]
    finder = bz.EntityFinder.from_preset(directory, verbose=False)
    versions = gliner("load", directory=directory, threads=options.threads)["version"]
    request = {"texts": texts, "labels": LABELS, "threshold": threshold, "batch_size": options.batch_size}
    taken: dict[str, list] = {"gliner": [], "bertzoo": []}
    on_onnx = options.onnx or options.int8
    engine = finder.onnx_inference(options.int8, options.threads) if on_onnx else nullcontext()
    with engine:
        for _ in range(PASSES + 1):
            answer = gliner("tag", **request)
            taken["gliner"].append(answer["seconds"])
            begun, worked = time.perf_counter(), time.process_time()
            found = finder.tag(texts, LABELS, threshold, batch_size=options.batch_size)
            taken["bertzoo"].append((time.perf_counter() - begun, time.process_time() - worked))
    here = f"ONNX Runtime, {'8 bits' if options.int8 else 'float32'}" if on_onnx else keras_versions_text()
    print(f"{here}; {versions}; {options.threads} threads, batches of {options.batch_size}")
    report_equality(found, answer["entities"])
    best = {name: [min(column) for column in zip(*passes[1:])] for name, passes in taken.items()}
    for i, kind in enumerate(("the clock", "the processor")):
        rates = ", ".join(f"{name} {len(texts) / seconds[i]:.1f}" for name, seconds in best.items())
        ratio = best["gliner"][i] / best["bertzoo"][i]
        print(f"texts a second by {kind}: {rates}; ratio {ratio:.2f}")


def report_equality(found: list, expected: list) -> None:
    """In how many texts both find the same entities, and how far their scores are apart."""

    def spans(row: list[dict]) -> list[tuple]:
        return [(one["start"], one["end"], one["label"], one["text"]) for one in row]

    same = [spans(a) == spans(b) for a, b in zip(found, expected)]
    off = [abs(x["score"] - y["score"]) for a, b, s in zip(found, expected, same) if s for x, y in zip(a, b)]
    count, most = sum(map(len, expected)), max(off, default=0)
    print(f"equal entities in {sum(same)} of {len(same)} texts, {count} in all; scores differ by {most:.1e}")


def compare_training(options: Any, gliner: Gliner, folder: Path) -> None:
    """F1 of labels that were trained and of those that were not, after the same training on both sides."""
    import bertzoo as bz
    from bertzoo.data import load

    trained = [label for label in LABELS if label not in options.held_out]
    columns = load("wnut17", "train")
    sentences, entities = columns["tokens"], spans_of_words(columns["tags"], trained)
    test = {name: column[: options.count] for name, column in load("wnut17", "test").items()}
    encoder = str(Path(options.train).resolve())
    config = {"span_mode": options.span_mode, "hidden_size": 512}
    for seed in range(options.seeds):
        peer = folder / f"gliner_{seed}"
        rows = [{"tokenized_text": words, "ner": row} for words, row in zip(sentences, entities)]
        rates = {"learning_rate": options.rate, "others_lr": 5 * options.rate}
        steps = {"max_steps": options.steps, "per_device_train_batch_size": options.batch_size}
        request = {"encoder": encoder, "rows": rows, "config": config, "options": {**rates, **steps}, "seed": seed}
        seconds = gliner("train", directory=str(peer), **request)["seconds"]
        print_scores("gliner", seed, seconds, bz.EntityFinder.from_preset(peer, verbose=False), test, options)
        own, seconds = train(encoder, sentences, entities, config, options, seed)
        print_scores("bertzoo", seed, seconds, own, test, options)


def train(encoder: str, sentences: list, entities: list, config: dict, options: Any, seed: int) -> tuple[Any, float]:
    """A model trained here, and the seconds that it took."""
    import bertzoo as bz

    bz.set_seed(seed)
    finder = bz.EntityFinder.from_preset(encoder, verbose=False, **config)
    tags = [["O"] * len(words) for words in sentences]
    for row, spans in zip(tags, entities):
        for begin, end, label in spans:
            row[begin : end + 1] = [f"B-{label}"] + [f"I-{label}"] * (end - begin)
    finder.compile(bz.AdamW(options.rate, lr_multipliers={"entities/": 5.0}))
    batches = -(-len(sentences) // options.batch_size)
    epochs = -(-options.steps // batches)
    begun = time.perf_counter()
    steps = options.steps // epochs
    finder.fit(sentences, tags, batch_size=options.batch_size, epochs=epochs, steps_per_epoch=steps, verbose=0)
    return finder, time.perf_counter() - begun


def spans_of_words(tags: list[list[str]], labels: list[str]) -> list[list[tuple[int, int, str]]]:
    """The entities of some labels, in words, the last one included."""
    from bertzoo.text.tags import find_entities

    return [[(a, b - 1, kind) for kind, a, b in find_entities(row) if kind in labels] for row in tags]


def print_scores(name: str, seed: int, seconds: float, finder: Any, test: dict, options: Any) -> None:
    """F1 of exact spans, over all entities of the trained labels, and of those held out."""
    parts = {"held out": options.held_out, "trained": [label for label in LABELS if label not in options.held_out]}
    scores = []
    for part, labels in parts.items():
        expected = spans_of_words(test["tags"], labels)
        right = found = wanted = 0
        for words, row, answers in zip(test["tokens"], expected, finder.tag(test["tokens"], labels)):
            begins = [sum(len(word) + 1 for word in words[:i]) for i in range(len(words))]
            spans = {(begins[a], begins[b] + len(words[b]), kind) for a, b, kind in row}
            answered = {(one["start"], one["end"], one["label"]) for one in answers}
            right, found, wanted = right + len(spans & answered), found + len(answered), wanted + len(spans)
        scores.append(f"{part} {200 * right / max(1, found + wanted):.1f}")
    print(f"{name}, seed {seed}: F1 {', '.join(scores)}; trained in {seconds:.0f} s", flush=True)
