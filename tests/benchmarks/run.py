"""All benchmarks, one command each: `python tests/benchmarks/run.py COMMAND --help`.

speed        training and inference throughput of bertzoo and its peers, in the same run
epochs       an epoch of fine-tuning from raw strings, beside the Trainer of transformers
tasks        the scores of fine-tuning, beside a transformers + PyTorch loop with the same settings
sentences    sentence vectors beside sentence-transformers: numbers, speed, memory, fine-tuning
few_shot     classifiers from few labelled texts, beside setfit and plain fine-tuning
retrieval_training  training steps of sparse and multi-vector encoders, beside sentence-transformers
inference    the dev sentences of SST-2 through an encoder, beside three peers
onnx         the same as ONNX, in float32 and 8 bits, beside two libraries
gradcache    training with in-batch negatives in large batches, beside sentence-transformers
entities     entities of any label, beside gliner: equality, speed, training
index        search in a million vectors, and in the paragraphs of SQuAD: quality, size, milliseconds, memory
serve        `bertzoo serve` under load, beside two FastAPI servers: throughput, latency, memory
electra      one ELECTRA pre-trained here and with transformers, step by step
pretraining  tiny pre-training runs on a real corpus, and how far three backends agree
steps        a training step under JAX, kernel by kernel
kernels      the tests of the GPU kernels, on the GPU of this machine (before a release)
"""

import importlib
import sys
from pathlib import Path

COMMANDS = (
    *(
        "speed",
        "epochs",
        "tasks",
        "glue",
        "sentences",
        "few_shot",
        "entities",
        "retrieval_training",
        "inference",
        "onnx",
    ),
    *("gradcache", "index", "serve", "electra", "pretraining", "steps", "kernels"),
)


def main(arguments: list[str]) -> int | str | None:
    """Runs a command; returns the exit status or a message."""
    if not arguments or arguments[0] not in COMMANDS:
        return __doc__
    benchmark = importlib.import_module(f"benchmarks.{arguments[0]}")
    if arguments[1:2] == ["child"]:  # see common.run_in_process
        import json

        from benchmarks.common import RESULT

        print(RESULT + json.dumps(benchmark.child(json.loads(arguments[2]))))
        return None
    return benchmark.main(arguments[1:])


if __name__ == "__main__":
    tests = Path(__file__).resolve().parents[1]
    sys.path[:1] = [str(tests), str(tests.parent)]  # the package of this checkout, whatever is installed
    sys.exit(main(sys.argv[1:]))
