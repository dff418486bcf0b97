"""Nomic BERT, GTE and EuroBERT as published: configurations and names of their authors' code, long texts, sentences."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from family_cases import SMALL

import bertzoo as bz
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.data.packing import PackedShape, packing_arrays
from bertzoo.layers.rotary import rotary_frequencies
from bertzoo.models.config import EncoderConfig
from bertzoo.models.registry import FAMILIES

IDS = np.random.default_rng(0).integers(5, 50, (2, 9)).astype("int32")
OLD_NOMIC = {
    "model_type": "nomic_bert",
    "architectures": ["NomicBertModel"],
    "activation_function": "swiglu",
    "attn_pdrop": 0.0,
    "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
    "causal": False,
    "embd_pdrop": 0.0,
    "fused_bias_fc": True,
    "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 2048,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "n_embd": 16,
    "n_head": 2,
    "n_inner": 24,
    "n_layer": 2,
    "n_positions": 24,
    "pad_vocab_size_multiple": 10,
    "prenorm": False,
    "qkv_proj_bias": False,
    "resid_pdrop": 0.0,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_scaling_factor": None,
    "type_vocab_size": 2,
    "use_rms_norm": False,
    "vocab_size": 42,
}
OLD_GTE = {
    **SMALL,
    "model_type": "new",
    "architectures": ["NewModel"],
    "auto_map": {"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"},
    "layer_norm_type": "layer_norm",
    "logn_attention_clip1": False,
    "logn_attention_scale": False,
    "pack_qkv": True,
    "pad_token_id": 1,
    "position_embedding_type": "rope",
    "rope_scaling": {"factor": 8.0, "type": "ntk"},
    "rope_theta": 20000,
    "type_vocab_size": 1,
    "unpad_inputs": False,
    "use_memory_efficient_attention": False,
}


def reference(name: str, suffix: str = "Model", **settings):
    """A transformers model with random weights."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **{**SMALL, **settings})
    model = getattr(transformers, FAMILIES[name].hf_name + suffix)(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return model


def rewrite(directory, config, rename):
    """Gives a directory another configuration, and its tensors other names."""
    (directory / "config.json").write_text(json.dumps(config))
    file = directory / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    safetensors.torch.save_file({rename(name): tensor for name, tensor in tensors.items()}, file)


def test_a_published_nomic_bert(tmp_path, numpy, close):
    model = reference("nomic_bert", "ForMaskedLM")
    model.save_pretrained(tmp_path / "hub")
    rewrite(tmp_path / "hub", OLD_NOMIC, lambda name: name.replace("nomic_bert.", "bert."))
    task = bz.MaskedLM.from_preset(tmp_path / "hub", tokenizer=None, verbose=False)
    assert not task.load_report.new and not task.load_report.unused and not task.backbone.config.unknown_keys
    expected = model(torch.tensor(IDS).long()).logits.detach()
    close(numpy(task(IDS)), expected)
    task.save_to_preset(tmp_path / "saved")
    content = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert not set(content) & {"auto_map", "n_embd", "rotary_emb_base"}
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "saved")
    close(again(torch.tensor(IDS).long()).logits.detach(), expected)


def test_a_published_gte(tmp_path, numpy, close):
    """transformers has the same wavelengths by another theta and linear scaling."""
    rope = {"rope_type": "linear", "rope_theta": 160000.0, "factor": 8.0 ** (2 / 8)}
    model = reference("gte", pad_token_id=1, rope_parameters=rope)
    model.save_pretrained(tmp_path / "hub")
    rewrite(tmp_path / "hub", OLD_GTE, lambda name: f"new.{name}")
    encoder = bz.Encoder.from_preset(tmp_path / "hub", verbose=False)
    assert not encoder.load_report.unused and not encoder.config.unknown_keys and encoder.pooler is None
    expected = model(torch.tensor(IDS).long()).last_hidden_state.detach()
    close(numpy(encoder(IDS)["sequence_output"]), expected)
    encoder.save_to_preset(tmp_path / "saved")
    again = transformers.AutoModel.from_pretrained(tmp_path / "saved")
    close(again(torch.tensor(IDS).long()).last_hidden_state.detach(), expected)


@pytest.mark.once
def test_ntk_scaling_of_the_wavelengths():
    """As Alibaba's code computes them: theta · factor, and then all divided by factor^(2 / size)."""
    config, size, factor = EncoderConfig.from_hf(OLD_GTE), 8, 8.0
    expected = 1 / ((20000 * factor) ** (np.arange(0, size, 2) / size)) / factor ** (2 / size)
    np.testing.assert_allclose(rotary_frequencies(size, config.rope_theta, config.rope_factor), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["nomic_bert", "gte", "eurobert"])
def test_long_texts(name, tmp_path, numpy, close, compiled):
    """So long that JAX computes attention in blocks, alone and side by side in a packed row."""
    settings = {"num_key_value_heads": 1} if name == "eurobert" else {}
    model = reference(name, pad_token_id=0, max_position_embeddings=1300, **settings)
    model.save_pretrained(tmp_path)
    encoder = bz.Encoder.from_preset(tmp_path, verbose=False)
    lengths = np.array([1200, 700], "int32")
    mask = (np.arange(1200) < lengths[:, None]).astype("int32")
    ids = np.random.default_rng(0).integers(5, 50, mask.shape).astype("int32") * mask
    inputs = {"token_ids": ids, "padding_mask": mask, "lengths": lengths}
    packed = {**inputs, **packing_arrays(lengths, 1200, PackedShape(2048, (1,)))}
    expected = model(torch.tensor(ids).long(), torch.tensor(mask)).last_hidden_state.detach().numpy()
    for batch in (inputs, packed):
        actual = numpy(compiled(lambda batch=batch: encoder(batch)["sequence_output"], encoder)())
        close(actual[mask == 1], expected[mask == 1], 1e-5)


@pytest.mark.parametrize("name", ["nomic_bert", "gte"])
@pytest.mark.parametrize("suffix", ["Model", "ForMaskedLM", "ForSequenceClassification"])
def test_the_names_of_modules_of_transformers(name, suffix, tmp_path, numpy, close):
    model = reference(name, suffix)
    model.save_pretrained(tmp_path / "other", save_original_format=False)
    model.save_pretrained(tmp_path / "usual")
    assert any("q_proj" in key for key in safetensors.torch.load_file(tmp_path / "other" / "model.safetensors"))
    task = {"Model": bz.Encoder, "ForMaskedLM": bz.MaskedLM, "ForSequenceClassification": bz.TextClassifier}[suffix]
    options = {} if suffix == "Model" else {"tokenizer": None}
    own = task.from_preset(tmp_path / "other", verbose=False, **options)
    assert not own.load_report.new and not own.load_report.unused
    actual = own(IDS)["sequence_output"] if suffix == "Model" else own(IDS)
    close(numpy(actual), model(torch.tensor(IDS).long())[0].detach())
    counted = [bz.describe(tmp_path / directory).parts for directory in ("other", "usual")]
    assert counted[0] == counted[1] and sum(counted[0].values()) == sum(x.numel() for x in model.parameters())
    own.save_to_preset(tmp_path / "saved")
    saved, usual = (safetensors.torch.load_file(tmp_path / d / "model.safetensors") for d in ("saved", "usual"))
    assert saved.keys() == usual.keys() and all(torch.equal(saved[key], usual[key]) for key in usual)


@pytest.mark.once
def test_parts_of_different_types_do_not_make_one_tensor(tmp_path):
    reference("gte").save_pretrained(tmp_path, save_original_format=False)
    file = tmp_path / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    name = next(name for name in tensors if name.endswith("k_proj.weight"))
    safetensors.torch.save_file({**tensors, name: tensors[name].half()}, file)
    with pytest.raises(CheckpointError, match="belong together, but their types or shapes"):
        bz.Encoder.from_preset(tmp_path, verbose=False)


@pytest.mark.once
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({**OLD_NOMIC, "prenorm": True}, "prenorm = True.*supported: False"),
        ({**OLD_NOMIC, "qkv_proj_bias": True}, "qkv_proj_bias = True"),
        ({**OLD_NOMIC, "num_experts": 8, "moe_every_n_layers": 2}, "moe_every_n_layers = 2"),
        ({**OLD_NOMIC, "activation_function": "glu"}, "activation_function = 'glu'; supported: swiglu, geglu"),
        ({**OLD_NOMIC, "rotary_emb_fraction": 0.5}, "rotary_emb_fraction = 0.5"),
        ({**OLD_NOMIC, "n_embd": "16"}, "n_embd must be a positive integer. Received: '16'"),
        ({**OLD_NOMIC, "pad_vocab_size_multiple": 0}, "pad_vocab_size_multiple must be a positive integer"),
        ({**OLD_NOMIC, "n_embd": 18, "n_head": 6}, "must be even. Received: 18 and 6"),
        ({**OLD_GTE, "layer_norm_type": "rms_norm"}, "layer_norm_type = 'rms_norm'"),
        ({**OLD_GTE, "logn_attention_scale": True}, "logn_attention_scale = True"),
        ({**OLD_GTE, "position_embedding_type": "absolute"}, "position_embedding_type = 'absolute'"),
        ({**OLD_GTE, "rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope_type must be .* Received: 'yarn'"),
        ({**OLD_GTE, "rope_scaling": {"type": "ntk", "factor": 0}}, "factor must be a number of at least 1"),
        ({**OLD_GTE, "rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.6}}, "mixed_b"),
        ({**OLD_GTE, "rope_scaling": "ntk"}, "rope_scaling must be an object"),
        ({**OLD_GTE, "rope_theta": "x"}, "rope_theta must be a number"),
        ({**SMALL, "model_type": "gte", "head_dim": 4}, "head_dim = 4.*num_attention_heads, 8"),
        ({**SMALL, "model_type": "eurobert", "num_key_value_heads": 3}, "multiple of num_key_value_heads"),
        ({**SMALL, "model_type": "eurobert", "classifier_pooling": "cls"}, "one of bos, mean, late"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(content, message):
    with pytest.raises(ValueError, match=message):
        EncoderConfig.from_hf(content)


@pytest.mark.once
def test_a_nomic_bert_whose_wavelengths_depend_on_the_length():
    """Up to the length that it was trained with they do not."""
    config = EncoderConfig.from_hf(
        {**OLD_NOMIC, "n_positions": 8192, "max_trained_positions": 20, "rotary_scaling_factor": 2}
    )
    assert config.max_length == 20 and config.vocab_size == 50


@pytest.mark.once
def test_a_nomic_bert_with_the_keys_of_both():
    """As the published files have them now."""
    both = {
        **OLD_NOMIC,
        "max_position_embeddings": 16,
        "rope_parameters": {"rope_theta": 1000.0, "rope_type": "default"},
    }
    config = EncoderConfig.from_hf({**both, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2})
    assert config == EncoderConfig.from_hf(OLD_NOMIC) and config.max_length == 24 and config.unknown_keys == []


@pytest.mark.once
def test_a_eurobert_of_its_authors():
    old = {**SMALL, "model_type": "eurobert", "clf_pooling": "mean", "rope_theta": 250000, "rope_scaling": None}
    config = EncoderConfig.from_hf({**old, "auto_map": {"AutoModel": "x--y.Z"}, "head_dim": 8, "pad_token_id": 0})
    assert (config.classifier_pooling, config.rope_theta, config.unknown_keys) == ("mean", 250000, [])
    content = config.replace(hidden_size=32).to_hf()
    assert content["rope_parameters"] == {"rope_theta": 250000, "rope_type": "default"} and content["head_dim"] == 16
    assert not set(content) & {"auto_map", "clf_pooling", "rope_theta", "rope_scaling"}


@pytest.mark.once
@pytest.mark.parametrize("name", ["ernie", "nomic_bert", "gte", "eurobert"])
def test_sentence_vectors_are_those_of_sentence_transformers(name, words, tmp_path, close):
    """From its directory, and in it from ours; EuroBERT's pooler is the last token, as in its embedding models."""
    import sentence_transformers
    from sentence_transformers import models

    more = {"eurobert": {"num_key_value_heads": 1}, "ernie": {"use_task_id": True}}.get(name, {})
    base = reference(name, pad_token_id=0, vocab_size=len(words), **more)
    base.save_pretrained(tmp_path / "base")
    vocabulary = {word: index for index, word in enumerate(words)}
    transformers.BertTokenizer(vocab=vocabulary, do_lower_case=True).save_pretrained(tmp_path / "base")
    transformer = models.Transformer(str(tmp_path / "base"))
    pooling = models.Pooling(SMALL["hidden_size"], "lasttoken" if name == "eurobert" else "mean")
    theirs = sentence_transformers.SentenceTransformer(modules=[transformer, pooling, models.Normalize()], device="cpu")
    theirs.save(str(tmp_path / "theirs"))
    texts = ["a good film", "never again", "the plot was dull and bad , and the actor not very good !"]
    expected = theirs.encode(texts)
    encoder = bz.SentenceEncoder.from_preset(tmp_path / "theirs", verbose=False)
    close(encoder.encode(texts), expected)
    encoder.save_to_preset(tmp_path / "ours")
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    close(again.encode(texts), expected)
