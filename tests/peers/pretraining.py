"""Pre-trains tiny models on a real corpus and says whether they learn: python tests/peers/pretraining.py CORPUS [STEPS]

CORPUS is text, plain or gzip, a blank line between documents. Takes some minutes on two cores. Judged, on documents
that were held out: the loss of masked language modelling against the unigram entropy, the accuracy of sentence order,
the AUC of replaced tokens. Prints one JSON object.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import keras

from bertzoo.pretraining.documents import Documents
from bertzoo.pretraining.preparing import prepare
from bertzoo.pretraining.program import pretrain
from bertzoo.text.vocabulary import train_wordpiece

BOUNDS = {"mlm": ("below_entropy", 0.2), "mlm+sop": ("pair_accuracy", 0.6), "rtd": ("rtd_auc", 0.65)}
ENCODERS = {
    "mlm": 'model_type = "bert"',
    "mlm+sop": 'model_type = "albert"\nembedding_size = 64\nhidden_act = "gelu"',
    "rtd": 'model_type = "electra"\nembedding_size = 64',
}
RUN = """
[encoder]
{encoder}
hidden_size = 128
num_hidden_layers = 2
num_attention_heads = 2
intermediate_size = 512
max_position_embeddings = 64
initializer_range = 0.08
[training]
objective = "{objective}"
steps = {steps}
learning_rate = 3e-3
warmup = 0.1
dropout = 0.0
verbose = 0
every = 10
[[batches]]
length = 64
batch_size = 32
"""


def main(corpus: str, steps: int = 1500) -> None:
    folder = Path(tempfile.mkdtemp())
    documents = list(Documents([corpus]))
    for name, part in (("train", documents[:-500]), ("held_out", documents[-500:])):
        (folder / f"{name}.txt").write_text("\n\n".join(part))
    tokenizer = train_wordpiece([folder / "train.txt"], 4000, progress=False)
    for name in ("train", "held_out"):
        prepare([folder / f"{name}.txt"], tokenizer, folder / name)
    report = {"backend": keras.backend.backend(), "steps": steps}
    for objective, (score, bound) in BOUNDS.items():
        config, out = folder / "run.toml", folder / objective
        config.write_text(RUN.format(encoder=ENCODERS[objective], objective=objective, steps=steps))
        begun = time.time()
        result = pretrain(config, folder / "train", out, folder / "held_out")
        scores = result["held_out"]
        masked = scores.get("masked_lm_loss", scores["loss"])
        scores["below_entropy"] = 1 - masked / scores["unigram_entropy"]
        report[objective] = {
            "seconds": round(time.time() - begun),
            "met": scores[score] >= bound,
            "first_20": result["curve"][:2],
            "last_50": sum(loss for _, loss in result["curve"][-5:]) / len(result["curve"][-5:]),
            **{name: round(value, 4) for name, value in scores.items()},
        }
        print(objective, report[objective], file=sys.stderr, flush=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
