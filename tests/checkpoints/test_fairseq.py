"""fairseq's form of RoBERTa: a transformers model written under fairseq's names gives transformers' numbers."""

import argparse
import json

import numpy as np
import pytest
import torch
import transformers

import bertzoo as bz
from bertzoo.checkpoints.errors import CheckpointError

SIZES = {"encoder_layers": 2, "encoder_embed_dim": 16, "encoder_ffn_embed_dim": 24, "encoder_attention_heads": 2}
IDS = np.array([[0, 7, 9, 30, 2], [0, 8, 4, 2, 1]], "int32")
MASK = (IDS != 1).astype("int32")


@pytest.fixture(scope="module")
def reference():
    config = transformers.RobertaConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=20,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        num_labels=3,
    )
    torch.manual_seed(0)
    models = {}
    for name in ("RobertaForMaskedLM", "RobertaForSequenceClassification"):
        models[name] = getattr(transformers, name)(config).eval()
        with torch.no_grad():
            for path, weight in models[name].named_parameters():
                weight.add_(0.2 * torch.randn_like(weight))
                if "token_type" in path:  # fairseq has none
                    weight.zero_()
    return models


def fairseq_state(model, wrapped="decoder", fused=False):
    """The state dict of a transformers RoBERTa as fairseq names it."""
    old = model.state_dict()
    body = f"{wrapped}.sentence_encoder."
    state = {
        f"{body}embed_tokens.weight": old["roberta.embeddings.word_embeddings.weight"],
        f"{body}embed_positions.weight": old["roberta.embeddings.position_embeddings.weight"],
        f"{body}version": torch.ones(1),
    }
    norm = "emb_layer_norm" if wrapped == "decoder" else "layernorm_embedding"
    for kind in ("weight", "bias"):
        state[f"{body}{norm}.{kind}"] = old[f"roberta.embeddings.LayerNorm.{kind}"]
        for i in range(2):
            fairseq, hf = f"{body}layers.{i}.", f"roberta.encoder.layer.{i}."
            qkv = [old[f"{hf}attention.self.{name}.{kind}"] for name in ("query", "key", "value")]
            if fused:
                state[f"{fairseq}self_attn.in_proj_{kind}"] = torch.cat(qkv)
            else:
                state.update({f"{fairseq}self_attn.{n}_proj.{kind}": t for n, t in zip("qkv", qkv)})
            state[f"{fairseq}self_attn.out_proj.{kind}"] = old[f"{hf}attention.output.dense.{kind}"]
            state[f"{fairseq}self_attn_layer_norm.{kind}"] = old[f"{hf}attention.output.LayerNorm.{kind}"]
            state[f"{fairseq}fc1.{kind}"] = old[f"{hf}intermediate.dense.{kind}"]
            state[f"{fairseq}fc2.{kind}"] = old[f"{hf}output.dense.{kind}"]
            state[f"{fairseq}final_layer_norm.{kind}"] = old[f"{hf}output.LayerNorm.{kind}"]
        for part in ("dense", "layer_norm", "decoder"):
            if f"lm_head.{part}.{kind}" in old:
                name = f"{wrapped}.lm_head.{part}.{kind}".replace(".decoder.", "." if wrapped != "" else "")
                state[name.replace("..", ".") if part == "decoder" else name] = old[f"lm_head.{part}.{kind}"]
        for part in ("dense", "out_proj"):
            if f"classifier.{part}.{kind}" in old:
                state[f"classification_heads.mnli.{part}.{kind}"] = old[f"classifier.{part}.{kind}"]
    return state


def write(directory, state, settings=None, **others):
    directory.mkdir(exist_ok=True)
    args = argparse.Namespace(**{**SIZES, "activation_fn": "gelu", "dropout": 0.1, **(settings or {})})
    content = {"args": args, "model": state, "extra_state": {"epoch": 3}, **others}
    torch.save({key: value for key, value in content.items() if value is not None}, directory / "model.pt")
    (directory / "dict.txt").write_text("".join(f"w{i} 1\n" for i in range(35)))
    return directory


def run(model):
    return model(input_ids=torch.tensor(IDS).long(), attention_mask=torch.tensor(MASK).long())


@pytest.mark.parametrize("fused", [False, True], ids=["q k v", "in_proj"])
@pytest.mark.parametrize("wrapped", ["decoder", "encoder"])
def test_masked_lm(reference, tmp_path, numpy, close, wrapped, fused):
    hf_model = reference["RobertaForMaskedLM"]
    directory = write(tmp_path / "model", fairseq_state(hf_model, wrapped, fused))
    task = bz.MaskedLM.from_preset(directory, tokenizer=None, verbose=False)
    assert not task.load_report.new and not task.load_report.unused
    real = MASK.astype(bool)
    close(numpy(task({"token_ids": IDS, "padding_mask": MASK}))[real], run(hf_model).logits.detach().numpy()[real])
    # Saved, it is an ordinary checkpoint.
    task.save_to_preset(tmp_path / "saved")
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "saved").eval()
    close(run(again).logits.detach().numpy()[real], run(hf_model).logits.detach().numpy()[real])


def test_a_fine_tuned_classifier(reference, tmp_path, numpy, close):
    hf_model = reference["RobertaForSequenceClassification"]
    directory = write(tmp_path / "model", fairseq_state(hf_model))
    task = bz.TextClassifier.from_preset(directory, tokenizer=None, verbose=False)
    assert len(task.labels) == 3 and not task.load_report.new
    close(numpy(task({"token_ids": IDS, "padding_mask": MASK})), run(hf_model).logits.detach().numpy())


def test_settings_of_newer_files_and_other_vocabularies(reference, tmp_path):
    state = fairseq_state(reference["RobertaForMaskedLM"])
    directory = write(tmp_path / "model", state, args=None, cfg={"model": argparse.Namespace(**SIZES), "task": {}})
    (directory / "sentencepiece.bpe.model").write_bytes(b"x")
    encoder = bz.Encoder.from_preset(directory, pooler=False, verbose=False)
    assert encoder.config.model_type == "xlm-roberta" and encoder.config.max_length == 18
    encoder.save_to_preset(tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["model_type"] == "xlm-roberta"


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        ({"decoder.sentence_encoder.layer_norm.weight": torch.ones(16)}, {}, "sentence_encoder.layer_norm.weight"),
        ({"decoder.sentence_encoder.layers.1.fc1.bias": None}, {}, "lacks 1 tensors.*layer.1.intermediate.dense.bias"),
        ({"decoder.sentence_encoder.embed_tokens.weight": None}, {}, "lacks its embeddings"),
        ({}, {"activation_fn": "relu"}, "activation_fn 'relu'"),
        ({}, {"encoder_layers": "2"}, "lacks encoder_layers"),
        ({}, {"encoder_attention_heads": 3}, "multiple of num_attention_heads"),
    ],
)
def test_what_cannot_be_right_is_refused(reference, tmp_path, change, settings, message):
    state = {**fairseq_state(reference["RobertaForMaskedLM"]), **change}
    directory = write(tmp_path / "model", {k: v for k, v in state.items() if v is not None}, settings)
    with pytest.raises(ValueError, match=message):
        bz.MaskedLM.from_preset(directory, tokenizer=None, verbose=False)


def test_what_is_no_fairseq_checkpoint(tmp_path):
    torch.save({"w": torch.ones(2)}, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match=r"model\.pt is no fairseq checkpoint"):
        bz.Encoder.from_preset(tmp_path, verbose=False)


class Runs:
    def __reduce__(self):
        return print, ("executed",)


def test_settings_are_read_as_data(reference, tmp_path, capsys):
    """A Namespace is a list of names and values; what its pickle calls is refused."""
    directory = write(tmp_path / "model", fairseq_state(reference["RobertaForMaskedLM"]), {"user_dir": Runs()})
    with pytest.raises(CheckpointError, match=r"builtin.*print.*nothing of it was run"):
        bz.Encoder.from_preset(directory, verbose=False)
    assert capsys.readouterr().out == ""
