"""How long the dev sentences of SST-2 take through an encoder: bertzoo, transformers and KerasHub.

    BERTZOO_DATA=… KERAS_BACKEND=… python tests/peers/inference.py MODEL {bertzoo,transformers,keras_hub}

MODEL is the checkpoint directory of a BERT. Batches of 32, float32, the best of three after one pass. Tokenizing
counts; but KerasHub gets random ids at its default length of 512, 64 rows of them, scaled to the whole set.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np


def best_of(function, times: int = 3) -> float:
    function()
    seconds = []
    for _ in range(times):
        begun = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def run_bertzoo(model: str, texts: list[str]) -> float:
    import bertzoo as bz

    # A classifier's last layer costs next to nothing beside the encoder.
    classifier = bz.TextClassifier.from_preset(model, labels=2, new_head=True, verbose=False)
    return best_of(lambda: classifier.predict(texts, verbose=0))


def run_transformers(model: str, texts: list[str]) -> float:
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    network = transformers.AutoModel.from_pretrained(model, dtype=torch.float32).eval()

    def run():
        with torch.inference_mode():
            for i in range(0, len(texts), 32):
                network(**tokenizer(texts[i : i + 32], padding=True, truncation=True, return_tensors="pt"))

    return best_of(run)


def run_keras_hub(model: str, texts: list[str]) -> float:
    import keras_hub

    config = json.loads((Path(model) / "config.json").read_text())
    network = keras_hub.models.BertBackbone(
        vocabulary_size=config["vocab_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        hidden_dim=config["hidden_size"],
        intermediate_dim=config["intermediate_size"],
    )
    rows = 64
    ids = np.random.default_rng(0).integers(1000, config["vocab_size"], (rows, 512)).astype("int32")
    mask = np.repeat((np.arange(512)[None] < 25).astype("int32"), rows, axis=0)
    inputs = {"token_ids": ids, "segment_ids": np.zeros_like(ids), "padding_mask": mask}
    return best_of(lambda: network.predict(inputs, batch_size=32, verbose=0), 1) * len(texts) / rows


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    model, who = sys.argv[1:]
    lines = (Path(os.environ["BERTZOO_DATA"]) / "sst2" / "dev.tsv").read_text(encoding="utf-8").splitlines()[1:]
    texts = [line.split("\t")[0] for line in lines]
    runs = {"bertzoo": run_bertzoo, "transformers": run_transformers, "keras_hub": run_keras_hub}
    print(f"{who}: {runs[who](model, texts):.2f} s for {len(texts)} sentences")


if __name__ == "__main__":
    main()
