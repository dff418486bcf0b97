"""Pre-trains tiny models on a real corpus, says whether they learn, and compares what three backends made of it.

    KERAS_BACKEND=jax python tests/benchmarks/run.py pretraining run CORPUS [OBJECTIVE …] > jax.json
    python tests/benchmarks/run.py pretraining compare torch.json jax.json tensorflow.json

CORPUS is text, plain or gzip, a blank line between documents. `run` takes some minutes on two cores. Judged, on
documents that were held out: the loss of masked language modelling against the unigram entropy, the accuracy of
sentence order, the AUC of replaced tokens. Prints one JSON object. `compare` says how far the files' losses lie apart.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import keras
from benchmarks.common import command_line

from bertzoo.data.files import Documents
from bertzoo.pretraining.corpus import prepare_corpus
from bertzoo.pretraining.program import pretrain
from bertzoo.text.vocabulary import train_wordpiece

VOCABULARIES = {"mlm": 2000, "mlm+sop": 4000, "rtd": 2000}
BOUNDS = {"mlm": ("below_entropy", 0.2), "mlm+sop": ("pair_accuracy", 0.6), "rtd": ("rtd_auc", 0.65)}
# Attention over whole rows is slow to find the tokens next to a mask, with absolute or rotary positions, and until
# then guesses little better than unigrams do. A window of two tokens on each side, and a convolution, begin with them.
# The order of two halves shows in the words that begin an article, so the rows are long and few of their words masked.
# With half the vocabulary, 1,500 steps do not begin to tell it.
RUNS = {
    "mlm": """
[encoder]
model_type = "modernbert"
hidden_size = 128
num_hidden_layers = 1
num_attention_heads = 4
intermediate_size = 256
max_position_embeddings = 64
initializer_range = 0.08
layer_types = ["sliding_attention"]
local_attention = 4
local_rope_theta = 100.0
[masking]
mlm_probability = 0.3
[[batches]]
length = 64
batch_size = 16
[training]
steps = 900
learning_rate = 3e-3
dropout = 0.0
""",
    "mlm+sop": """
[encoder]
model_type = "bert"
hidden_size = 128
num_hidden_layers = 2
num_attention_heads = 4
intermediate_size = 256
max_position_embeddings = 512
initializer_range = 0.08
[masking]
mlm_probability = 0.05
[[batches]]
length = 512
batch_size = 8
[training]
steps = 1500
learning_rate = 1e-3
warmup = 0.1
short_seq_prob = 0.0
dropout = 0.1
""",
    "rtd": """
[encoder]
model_type = "deberta-v2"
hidden_size = 128
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 256
max_position_embeddings = 64
initializer_range = 0.08
relative_attention = false
pos_att_type = []
conv_kernel_size = 5
[generator]
hidden = 1.0
[masking]
mlm_probability = 0.25
mask_prob = 1.0
[[batches]]
length = 64
batch_size = 16
[training]
steps = 900
learning_rate = 2e-3
dropout = 0.0
""",
}
COMMON = """
objective = "{objective}"
verbose = 0
log_every = 1
"""


def run(corpus: str, objectives: list[str]) -> None:
    folder = Path(tempfile.mkdtemp())
    documents = list(Documents([corpus]))
    for name, part in (("train", documents[:-500]), ("held_out", documents[-500:])):
        (folder / f"{name}.txt").write_text("\n\n".join(part))
    report = {"backend": keras.backend.backend()}
    for objective in objectives:
        report[objective] = learn(folder, objective)
        print(objective, report[objective], file=sys.stderr, flush=True)
    print(json.dumps(report))


def learn(folder: Path, objective: str) -> dict:
    """Trains for one objective; what came out."""
    config, (score, bound) = folder / "run.toml", BOUNDS[objective]
    tokenizer = train_wordpiece([folder / "train.txt"], VOCABULARIES[objective], progress=False)
    train, held_out = folder / f"{objective}_train", folder / f"{objective}_held_out"
    prepare_corpus([folder / "train.txt"], tokenizer, train)
    prepare_corpus([folder / "held_out.txt"], tokenizer, held_out)
    config.write_text(RUNS[objective] + COMMON.format(objective=objective))
    begun = time.time()
    result = pretrain(config, train, folder / objective, held_out)
    scores, losses = result["held_out"], [loss for _, loss in result["curve"]]
    masked = scores.get("masked_lm_loss", scores["loss"])
    scores["below_entropy"] = 1 - masked / scores["unigram_entropy"]
    return {
        "met": scores[score] >= bound,
        "seconds": round(time.time() - begun),
        **{name: round(value, 4) for name, value in scores.items()},
        "last_50": round(sum(losses[-50:]) / 50, 4),
        "first_20": losses[:20],
    }


def compare(*files: str) -> None:
    """The largest differences between the first file's losses and the others', as shares of the first's.

    A draw of a replaced token that falls on the other side of a rounding has moved a step's loss by 1e-3 of it.
    """
    first, *others = (json.loads(Path(file).read_text()) for file in files)
    for objective in (name for name in first if name in RUNS):
        for other in others:
            pairs = zip(first[objective]["first_20"], other[objective]["first_20"], strict=True)
            steps = max(abs(b / a - 1) for a, b in pairs)
            last = abs(other[objective]["last_50"] / first[objective]["last_50"] - 1)
            verdict = "agree" if steps <= 1e-3 and last <= 0.01 else "DIFFER"
            backends = f"{first['backend']} and {other['backend']}"
            print(f"{objective}: {backends} {verdict}: first 20 steps {steps:.1e}, mean of the last 50 {last:.1e}")


def main(arguments: list[str]) -> None:
    parser = command_line("pretraining", __doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    learning = commands.add_parser("run")
    learning.add_argument("corpus")
    learning.add_argument("objectives", nargs="*", metavar="OBJECTIVE", help=", ".join(RUNS) + "; all if left out")
    commands.add_parser("compare").add_argument("files", nargs="+")
    options = parser.parse_args(arguments)
    if options.what == "run":
        run(options.corpus, options.objectives or list(RUNS))
    else:
        compare(*options.files)
