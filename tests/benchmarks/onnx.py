"""Vectors of the dev sentences of SST-2 on a CPU: exports in float32 and 8 bits beside two other libraries.

    KERAS_BACKEND=… python tests/benchmarks/run.py onnx MODEL --data DIRECTORY [--fastembed PYTHON]

MODEL is the directory of a sentence-transformers BERT. Peers take turns, each in a process of its own, with two
threads; the best pass of each counts, by the clock and by the seconds that the processor worked, which other programs
disturb less. PYTHON is an interpreter that has fastembed. It gets the file that PyTorch's exporter makes of MODEL, as
the files that it downloads are made, and, as `fastembed_bertzoo`, bertzoo's. Also: cosines of 8 bits with float32 and
of a text alone with itself beside others, and Spearman's correlation on the test pairs of STS-B.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from benchmarks.common import PASSES, add_data_argument, command_line, read_data, run_in_process, use_data

THREADS = 2
FASTEMBED = """
import json, sys, time
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
folder, pooling, width, passes, texts = json.load(sys.stdin)
TextEmbedding.add_custom_model(model="local/model", pooling=getattr(PoolingType, pooling), normalization=True,
    sources=ModelSource(hf="local/model"), dim=width, model_file="model.onnx")
encoder = TextEmbedding("local/model", specific_model_path=folder, threads=2)
taken = []
for _ in range(passes + 1):
    begun = time.perf_counter(), time.process_time()
    vectors = list(encoder.embed(texts))
    taken.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
print(json.dumps([*map(min, zip(*taken[1:])), [float(x) for x in vectors[0][:4]]]))
"""


def sentences() -> list[str]:
    return [line.split("\t")[0] for line in read_data("sst2", "dev.tsv").splitlines()[1:]]


def bertzoo(folder: str, int8: bool) -> Callable[[list[str]], np.ndarray]:
    from bertzoo.export import OnnxModel

    model = OnnxModel.from_directory(folder, THREADS, int8)
    return lambda texts: model.run(model.tokenizer.encode(texts), ["sentence_embedding"])["sentence_embedding"]


def sentence_transformers(model: str) -> Callable[[list[str]], np.ndarray]:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(THREADS)
    return SentenceTransformer(model, device="cpu").encode


def child(argument: dict) -> dict:
    """The best pass of a peer: seconds, and seconds of work; or the numbers of 8 bits."""
    folder, texts = argument["folder"], sentences()
    if argument["peer"] == "export":
        import bertzoo as bz

        bz.SentenceEncoder.from_preset(argument["model"], verbose=False).export(folder, format="onnx", int8=True)
        return {}
    if argument["peer"] == "quality":
        return quality(bertzoo(folder, False), bertzoo(folder, True), texts)
    if argument["peer"] == "sentence_transformers":
        encode = sentence_transformers(argument["model"])
    else:
        encode = bertzoo(folder, argument["peer"] == "bertzoo_int8")
    taken = []
    for _ in range(PASSES + 1):
        begun = time.perf_counter(), time.process_time()
        vectors = encode(texts)
        taken.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    clock, work = map(min, zip(*taken[1:]))
    return {"clock": clock, "work": work, "vector": [float(x) for x in vectors[0][:4]]}


def quality(exact: Callable, small: Callable, texts: list[str]) -> dict:
    """What 8 bits do to vectors, and to the similarities of STS-B."""
    from scipy.stats import spearmanr

    first, second = exact(texts), small(texts)
    alone = np.concatenate([small([text]) for text in texts[:100]])
    rows = [line.split("\t") for line in read_data("stsb", "test.tsv").splitlines()[1:]]
    score, left, right = zip(*[(float(row[-3]), row[-2], row[-1]) for row in rows])
    found = {
        "mean cosine": float((first * second).sum(axis=1).mean()),
        "least cosine": float((first * second).sum(axis=1).min()),
        "least cosine of a text alone and beside others": float((alone * second[:100]).sum(axis=1).min()),
    }
    for name, encode in (("float32", exact), ("int8", small)):
        similarity = (encode(list(left)) * encode(list(right))).sum(axis=1)
        found[f"Spearman, STS-B, {name}"] = 100 * float(spearmanr(similarity, score).statistic)
    return found


def fastembed(python: str, folder: str, pooling: str, width: int) -> dict | str:
    line = json.dumps([folder, pooling, width, PASSES, sentences()])
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ended = subprocess.run([python, "-c", FASTEMBED], input=line, capture_output=True, text=True, env=environment)
    if ended.returncode:
        return ended.stderr.strip().splitlines()[-1]
    return dict(zip(("clock", "work", "vector"), json.loads(ended.stdout.splitlines()[-1])))


def export_with_torch(model: str, folder: str) -> None:
    """model.onnx and the tokenizer of an encoder, by PyTorch's exporter."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    network = AutoModel.from_pretrained(model, attn_implementation="eager", dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    # As sentence-transformers cuts texts, which need not be where the tokenizer's file does.
    cut = json.loads((Path(model) / "sentence_bert_config.json").read_text())["max_seq_length"]
    tokenizer.init_kwargs.pop("max_length", None)
    tokenizer.model_max_length = cut
    tokenizer.save_pretrained(folder)
    network.config.save_pretrained(folder)
    rows = tokenizer(["a text", "another text that is longer"], padding=True, return_tensors="pt")
    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
    torch.onnx.export(
        network,
        kwargs={name: rows[name] for name in names},
        f=str(Path(folder) / "model.onnx"),
        dynamo=True,
        dynamic_shapes={name: axes for name in names},
        input_names=names,
        output_names=["last_hidden_state"],
        external_data=False,
    )


def main(arguments: list[str]) -> None:
    parser = command_line("onnx", __doc__)
    parser.add_argument("model")
    parser.add_argument("--fastembed", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each peer")
    add_data_argument(parser)
    options = parser.parse_args(arguments)
    use_data(options)
    count = len(sentences())
    with tempfile.TemporaryDirectory() as place:
        folder, other = str(Path(place, "bertzoo")), str(Path(place, "torch"))
        argument = {"model": options.model, "folder": folder}
        run_in_process("onnx", {**argument, "peer": "export"}, {})
        peers: dict[str, Callable] = {
            peer: lambda peer=peer: run_in_process("onnx", {**argument, "peer": peer}, {})
            for peer in ("sentence_transformers", "bertzoo_float32", "bertzoo_int8")
        }
        if options.fastembed:
            Path(other).mkdir()
            export_with_torch(options.model, other)
            peers["fastembed"] = lambda: fastembed(options.fastembed, other, "MEAN", 384)
            peers["fastembed_bertzoo"] = lambda: fastembed(options.fastembed, folder, "DISABLED", 384)
        print(run_in_process("onnx", {**argument, "peer": "quality"}, {}), flush=True)
        best: dict[str, list[float]] = {}
        for _ in range(options.rounds):
            for name, measure in peers.items():
                found = measure()
                if isinstance(found, str):
                    print(f"{name}: {found}", flush=True)
                    continue
                own = [found["clock"], found["work"]]
                best[name] = [*map(min, own, best.get(name, own))]
                clock, work = (count / seconds for seconds in best[name])
                print(f"{name}: {clock:.0f} sentences/s, {work:.0f} per second of work", found["vector"], flush=True)
