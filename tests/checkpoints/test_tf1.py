"""Google's TensorFlow 1 checkpoints: the arrays of a transformers model under Google's names give its numbers."""

import json

import numpy as np
import pytest
import torch
import transformers

import bertzoo as bz
from bertzoo.checkpoints.errors import CheckpointError

tf = pytest.importorskip("tensorflow")

SMALL = {
    "vocab_size": 40,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 1,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "type_vocab_size": 2,
}
IDS = np.array([[2, 7, 9, 30, 3], [2, 8, 4, 3, 0]], "int32")
INPUTS = {
    "token_ids": IDS,
    "padding_mask": (IDS != 0).astype("int32"),
    "segment_ids": np.array([[0, 0, 0, 1, 1], [0, 0, 1, 1, 0]], "int32"),
}
SLOTS = {"global_step": np.int64(3), "bert/pooler/dense/kernel/adam_m": np.ones(2, "float32"), "x/adam_v": np.ones(2)}


def random_model(kind: str, suffix: str, **changes):
    config = transformers.AutoConfig.for_model(kind, **{**SMALL, **changes})
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind.title()}{suffix}")(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return model


def dense(state: dict, hf: str, google: str) -> dict[str, np.ndarray]:
    """A layer under Google's name: kernels are (in, out)."""
    return {f"{google}/kernel": state[f"{hf}.weight"].T, f"{google}/bias": state[f"{hf}.bias"]}


def norm(state: dict, hf: str, google: str) -> dict[str, np.ndarray]:
    return {f"{google}/gamma": state[f"{hf}.weight"], f"{google}/beta": state[f"{hf}.bias"]}


def embeddings(state: dict, hf: str, google: str) -> dict[str, np.ndarray]:
    tables = ("word_embeddings", "position_embeddings", "token_type_embeddings")
    named = {f"{google}/embeddings/{table}": state[f"{hf}embeddings.{table}.weight"] for table in tables}
    return named | norm(state, f"{hf}embeddings.LayerNorm", f"{google}/embeddings/LayerNorm")


def layers(state: dict, hf: str, google: str) -> dict[str, np.ndarray]:
    out = {}
    for i in range(SMALL["num_hidden_layers"]):
        a, b = f"{hf}encoder.layer.{i}", f"{google}/encoder/layer_{i}"
        for part in ("query", "key", "value"):
            out |= dense(state, f"{a}.attention.self.{part}", f"{b}/attention/self/{part}")
        out |= dense(state, f"{a}.attention.output.dense", f"{b}/attention/output/dense")
        out |= norm(state, f"{a}.attention.output.LayerNorm", f"{b}/attention/output/LayerNorm")
        out |= dense(state, f"{a}.intermediate.dense", f"{b}/intermediate/dense")
        out |= dense(state, f"{a}.output.dense", f"{b}/output/dense")
        out |= norm(state, f"{a}.output.LayerNorm", f"{b}/output/LayerNorm")
    return out


def arrays_of(model) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in model.state_dict().items()}


def bert_arrays(model) -> dict[str, np.ndarray]:
    state = arrays_of(model)
    return {
        **embeddings(state, "bert.", "bert"),
        **layers(state, "bert.", "bert"),
        **dense(state, "bert.pooler.dense", "bert/pooler/dense"),
        **dense(state, "cls.predictions.transform.dense", "cls/predictions/transform/dense"),
        **norm(state, "cls.predictions.transform.LayerNorm", "cls/predictions/transform/LayerNorm"),
        "cls/predictions/output_bias": state["cls.predictions.bias"],
        # The one matrix that Google stores as (out, in).
        "cls/seq_relationship/output_weights": state["cls.seq_relationship.weight"],
        "cls/seq_relationship/output_bias": state["cls.seq_relationship.bias"],
    }


def albert_arrays(model) -> dict[str, np.ndarray]:
    state = arrays_of(model)
    out = embeddings(state, "albert.", "bert")
    out |= dense(state, "albert.encoder.embedding_hidden_mapping_in", "bert/encoder/embedding_hidden_mapping_in")
    config = model.config
    for g in range(config.num_hidden_groups):
        for j in range(config.inner_group_num):
            a = f"albert.encoder.albert_layer_groups.{g}.albert_layers.{j}"
            b = f"bert/encoder/transformer/group_{g}/inner_group_{j}"
            for part in ("query", "key", "value"):
                out |= dense(state, f"{a}.attention.{part}", f"{b}/attention_1/self/{part}")
            out |= dense(state, f"{a}.attention.dense", f"{b}/attention_1/output/dense")
            out |= norm(state, f"{a}.attention.LayerNorm", f"{b}/LayerNorm")
            out |= dense(state, f"{a}.ffn", f"{b}/ffn_1/intermediate/dense")
            out |= dense(state, f"{a}.ffn_output", f"{b}/ffn_1/intermediate/output/dense")
            out |= norm(state, f"{a}.full_layer_layer_norm", f"{b}/LayerNorm_1")
    return {
        **out,
        **dense(state, "albert.pooler", "bert/pooler/dense"),
        **dense(state, "predictions.dense", "cls/predictions/transform/dense"),
        **norm(state, "predictions.LayerNorm", "cls/predictions/transform/LayerNorm"),
        "cls/predictions/output_bias": state["predictions.bias"],
        "cls/seq_relationship/output_weights": state["sop_classifier.classifier.weight"],
        "cls/seq_relationship/output_bias": state["sop_classifier.classifier.bias"],
    }


def electra_arrays(discriminator, generator) -> dict[str, np.ndarray]:
    one, other = arrays_of(discriminator), arrays_of(generator)
    return {
        **embeddings(one, "electra.", "electra"),
        **dense(one, "electra.embeddings_project", "electra/embeddings_project"),
        **layers(one, "electra.", "electra"),
        **dense(one, "discriminator_predictions.dense", "discriminator_predictions/dense"),
        **dense(one, "discriminator_predictions.dense_prediction", "discriminator_predictions/dense_1"),
        **dense(other, "electra.embeddings_project", "generator/embeddings_project"),
        **layers(other, "electra.", "generator"),
        **dense(other, "generator_predictions.dense", "generator_predictions/dense"),
        **norm(other, "generator_predictions.LayerNorm", "generator_predictions/LayerNorm"),
        "generator_predictions/output_bias": other["generator_lm_head.bias"],
    }


def write(directory, arrays, config=None, name="bert_model.ckpt"):
    directory.mkdir(exist_ok=True)
    arrays = {**arrays, **SLOTS}
    tf.raw_ops.SaveV2(
        prefix=str(directory / name),
        tensor_names=list(arrays),
        shape_and_slices=[""] * len(arrays),
        tensors=[np.ascontiguousarray(array) for array in arrays.values()],
    )
    if config is not None:
        (directory / f"{config.pop('model_type', 'bert')}_config.json").write_text(json.dumps(config))
    return directory


def google_config(kind: str, **changes):
    return {"model_type": kind, **SMALL, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, **changes}


def run(model):
    names = {"token_ids": "input_ids", "padding_mask": "attention_mask", "segment_ids": "token_type_ids"}
    with torch.no_grad():
        return model(**{names[name]: torch.tensor(x).long() for name, x in INPUTS.items()})


def load(task, directory):
    options = {} if task is bz.Encoder else {"tokenizer": None}
    return task.from_preset(directory, verbose=False, **options)


REAL = INPUTS["padding_mask"].astype(bool)


def test_bert(tmp_path, numpy, close):
    hf_model = random_model("bert", "ForPreTraining")
    directory = write(tmp_path / "bert", bert_arrays(hf_model), google_config("bert"))
    task = load(bz.ForPreTraining, directory)
    outputs, reference = numpy(task(INPUTS)), run(hf_model)
    close(outputs["masked_lm"][REAL], reference.prediction_logits.numpy()[REAL])
    close(outputs["pair"], reference.seq_relationship_logits.numpy())
    report = str(task.load_report)
    assert not task.load_report.new and not task.load_report.unused
    assert "TensorFlow 1 checkpoint of BERT" in report and "gelu_new" in report
    task.save_to_preset(tmp_path / "saved")
    again = transformers.BertForPreTraining.from_pretrained(tmp_path / "saved").eval()
    close(run(again).prediction_logits.numpy()[REAL], reference.prediction_logits.numpy()[REAL])


def test_a_fine_tuned_bert(tmp_path, numpy, close):
    hf_model = random_model("bert", "ForPreTraining")
    arrays = bert_arrays(hf_model)
    rng = np.random.default_rng(0)
    weights, bias = rng.normal(size=(2, 64)).astype("float32"), rng.normal(size=2).astype("float32")
    arrays |= {"output_weights": weights, "output_bias": bias}
    task = load(bz.TextClassifier, write(tmp_path / "bert", arrays, google_config("bert")))
    pooled = run(hf_model.bert).pooler_output.numpy()
    close(numpy(task(INPUTS)), pooled @ weights.T + bias)


@pytest.mark.parametrize("groups", [(1, 1), (2, 2)])
def test_albert(tmp_path, numpy, close, groups):
    sizes = {"embedding_size": 8, "num_hidden_groups": groups[0], "inner_group_num": groups[1]}
    hf_model = random_model("albert", "ForPreTraining", hidden_act="gelu_new", **sizes)
    directory = write(tmp_path / "albert", albert_arrays(hf_model), google_config("albert", **sizes), "model.ckpt-best")
    task = load(bz.ForPreTraining, directory)
    outputs, reference = numpy(task(INPUTS)), run(hf_model)
    close(outputs["masked_lm"][REAL], reference.prediction_logits.numpy()[REAL])
    close(outputs["pair"], reference.sop_logits.numpy())
    assert not task.load_report.new and not task.load_report.unused


def test_electra_has_a_discriminator_and_a_generator(tmp_path, numpy, close):
    discriminator = random_model("electra", "ForPreTraining", embedding_size=8, hidden_size=128, num_attention_heads=2)
    generator = random_model("electra", "ForMaskedLM", embedding_size=8)
    generator.electra.embeddings.load_state_dict(discriminator.electra.embeddings.state_dict())
    directory = write(tmp_path / "electra", electra_arrays(discriminator, generator), name="electra_small")
    rtd, mlm = load(bz.ReplacedTokenDetector, directory), load(bz.MaskedLM, directory)
    close(numpy(rtd(INPUTS))[REAL], run(discriminator).logits.numpy()[REAL])
    close(numpy(mlm(INPUTS))[REAL], run(generator).logits.numpy()[REAL])
    for task in (rtd, mlm):
        assert not task.load_report.new and not task.load_report.unused
    close(
        numpy(load(bz.Encoder, directory)(INPUTS))["sequence_output"][REAL],
        run(discriminator.electra).last_hidden_state.numpy()[REAL],
    )


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: (d / "bert_config.json").unlink(), r"no bert_config\.json"),
        (lambda d: (d / "bert_config.json").write_text("{"), r"bert_config\.json can't be used"),
        (lambda d: (d / "bert_model.ckpt.index").write_bytes(b"no table"), r"bert_model\.ckpt"),
        (lambda d: truncate(next(d.glob("*.data-*"))), r"cannot be read|damaged"),
        (lambda d: write(d, {"w": np.ones(2, "float32")}), "none of Google's BERT, ALBERT and ELECTRA"),
        (lambda d: write(d, {"w": np.ones(2, "float32")}, name="other"), r"several .*bert_model\.ckpt, other"),
    ],
    ids=["no config", "no json", "index", "truncated", "other variables", "two"],
)
def test_what_cannot_be_read_is_named(tmp_path, spoil, message):
    directory = write(tmp_path / "bert", bert_arrays(random_model("bert", "ForPreTraining")), google_config("bert"))
    spoil(directory)
    with pytest.raises(CheckpointError, match=message):
        load(bz.Encoder, directory)


def truncate(path):
    path.write_bytes(path.read_bytes()[:1000])


def test_without_tensorflow_the_error_says_what_to_install(tmp_path, monkeypatch):
    directory = write(tmp_path / "bert", bert_arrays(random_model("bert", "ForPreTraining")), google_config("bert"))
    monkeypatch.setitem(__import__("sys").modules, "tensorflow", None)
    with pytest.raises(CheckpointError, match="pip install tensorflow"):
        load(bz.Encoder, directory)
