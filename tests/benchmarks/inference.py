"""How long the dev sentences of SST-2 take through an encoder: bertzoo, transformers, sentence-transformers, KerasHub.

    KERAS_BACKEND=… python tests/benchmarks/run.py inference MODEL PEER … --data DIRECTORY

MODEL is the checkpoint directory of a BERT. Batches of 32, float32, the best of three after one pass; several take
turns, for machines whose own speed changes. Tokenizing counts; but KerasHub gets random ids at its default length of
512, 64 rows of them, scaled to the whole set.
"""

import json
from pathlib import Path

import numpy as np
from benchmarks.common import add_data_argument, command_line, read_data, take_turns, use_data

HUB_ROWS = 64


def bertzoo(model: str, texts: list[str]):
    import bertzoo as bz

    # A classifier's last layer costs next to nothing beside the encoder.
    classifier = bz.TextClassifier.from_preset(model, labels=2, new_head=True, verbose=False)
    return lambda: classifier.predict(texts, verbose=0)


def transformers(model: str, texts: list[str]):
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModel.from_pretrained(model, dtype=torch.float32).eval()

    def run():
        with torch.inference_mode():
            for i in range(0, len(texts), 32):
                network(**tokenizer(texts[i : i + 32], padding=True, truncation=True, return_tensors="pt"))

    return run


def sentence_transformers(model: str, texts: list[str]):
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(model, device="cpu")
    return lambda: encoder.encode(texts)


def keras_hub(model: str, texts: list[str]):
    from keras_hub.models import BertBackbone

    config = json.loads((Path(model) / "config.json").read_text())
    network = BertBackbone(
        vocabulary_size=config["vocab_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        hidden_dim=config["hidden_size"],
        intermediate_dim=config["intermediate_size"],
    )
    ids = np.random.default_rng(0).integers(1000, config["vocab_size"], (HUB_ROWS, 512)).astype("int32")
    mask = np.repeat((np.arange(512)[None] < 25).astype("int32"), HUB_ROWS, axis=0)
    inputs = {"token_ids": ids, "segment_ids": np.zeros_like(ids), "padding_mask": mask}
    return lambda: network.predict(inputs, batch_size=32, verbose=0)


PEERS = {peer.__name__: peer for peer in (bertzoo, transformers, sentence_transformers, keras_hub)}


def main(arguments: list[str]) -> None:
    parser = command_line("inference", __doc__)
    parser.add_argument("model")
    parser.add_argument("peers", nargs="+", choices=PEERS)
    add_data_argument(parser)
    options = parser.parse_args(arguments)
    use_data(options)
    texts = [line.split("\t")[0] for line in read_data("sst2", "dev.tsv").splitlines()[1:]]
    for name, (best, _) in take_turns({name: PEERS[name](options.model, texts) for name in options.peers}).items():
        scale = len(texts) / HUB_ROWS if name == "keras_hub" else 1
        print(f"{name}: {scale * best:.2f} s for {len(texts)} sentences")
