"""Every family with every head against transformers: numbers, files both ways, parameter counts."""

import json

import keras
import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from family_cases import ALL_CASES, CASES, VARIANTS

import bertzoo as bz
from bertzoo.analysis.parameters import count_parameters_by_part
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.models.registry import FAMILIES

TASKS = {
    "masked_lm": bz.MaskedLM,
    "classifier": bz.TextClassifier,
    "token_classifier": bz.TokenClassifier,
    "qa": bz.QuestionAnswerer,
    "multiple_choice": bz.MultipleChoice,
    "pair": bz.NextSentencePredictor,
    "rtd": bz.ReplacedTokenDetector,
    "pretraining": bz.ForPreTraining,
}


def heads_of(model_type: str) -> list[str]:
    family = FAMILIES[model_type]
    heads = {name for name, head in family.heads.items() if hasattr(transformers, family.hf_name + head.hf_class)}
    if {"masked_lm", "pair"} <= heads:
        heads.add("pretraining")
    if model_type == "albert":  # transformers has no class for sentence order alone
        heads.remove("pair")
    return sorted(heads)


# Two are RoBERTa under another name, with a vocabulary of their own.
RENAMED = ("xlm-roberta", "camembert")


def on_backends(cases):
    return [pytest.param(*case, marks=pytest.mark.once) if case[0] in RENAMED else case for case in cases]


EVERY_HEAD = [(case, head) for case, (model_type, _) in CASES.items() for head in heads_of(model_type)]
EVERY_HEAD += [(case, "masked_lm") for case in VARIANTS if not case.endswith("-long")]
EVERY_HEAD += [("modernbert-biases", head) for head in ("classifier", "multiple_choice", "qa")]
EVERY_HEAD += [(f"eurobert-{case}", "classifier") for case in ("biases", "bos")]
EVERY_HEAD += [("gte-segments", "classifier")]
EVERY_HEAD += [("roformer-values", head) for head in ("classifier", "multiple_choice")]


def make_reference(case: str, head: str | None = None, dtype=torch.float32):
    """A transformers model with random weights, all of them large enough to matter."""
    model_type, arguments = ALL_CASES[case]
    family = FAMILIES[model_type]
    suffix = "Model" if head is None else "ForPreTraining" if head == "pretraining" else family.heads[head].hf_class
    labels = {"num_labels": 3} if head in ("classifier", "token_classifier") else {}
    config = transformers.AutoConfig.for_model(model_type, **arguments, **labels)
    model = getattr(transformers, family.hf_name + suffix)._from_config(config, attn_implementation="eager").eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.15 * torch.randn(weight.shape))
    return model.to(dtype)


def make_inputs(case: str, choices: int | None = None) -> dict[str, np.ndarray]:
    """Four random rows of different lengths, padded, or two by two choices; one row has padding among its words."""
    model_type, arguments = ALL_CASES[case]
    longest = 130 if case.endswith("-long") else 11
    rng = np.random.default_rng(2)
    lengths = np.append(longest, rng.integers(3, longest, 3))
    pad = arguments.get("pad_token_id", 0)
    mask = (np.arange(longest) < lengths[:, None]).astype("int32")
    ids = np.where(mask, rng.integers(3, 50, mask.shape), pad).astype("int32")
    ids[0, 3] = pad
    inputs = {"token_ids": ids, "padding_mask": mask}
    default = FAMILIES[model_type].config_class(num_hidden_layers=1).type_vocab_size
    if arguments.get("type_vocab_size", default) == 2:
        inputs["segment_ids"] = (rng.integers(0, 2, mask.shape) * mask).astype("int32")
    if choices:
        inputs = {name: x.reshape(-1, choices, longest) for name, x in inputs.items()}
    return inputs


def run_reference(model, inputs, **options):
    names = {"token_ids": "input_ids", "padding_mask": "attention_mask", "segment_ids": "token_type_ids"}
    return model(**{names[name]: torch.tensor(x).long() for name, x in inputs.items()}, **options)


def logits_of(outputs, head: str):
    """What our task for this head returns, from what transformers returned."""
    if head == "qa":
        return {"": torch.stack([outputs.start_logits, outputs.end_logits], dim=-1)}
    if head == "pretraining":
        pair = outputs.sop_logits if "sop_logits" in outputs else outputs.seq_relationship_logits
        return {"masked_lm": outputs.prediction_logits, "pair": pair}
    return {"": outputs.logits}


def assert_close(actual, reference, real=None):
    actual, reference = keras.ops.convert_to_numpy(actual), reference.detach().numpy()
    assert actual.shape == reference.shape
    if real is not None:
        actual, reference = actual[real], reference[real]
    assert np.abs(actual - reference).max() <= 1e-5 * max(1.0, np.abs(reference).max())


def stored(directory) -> dict[str, tuple[torch.dtype, bytes]]:
    tensors = safetensors.torch.load_file(directory / "model.safetensors")
    return {name: (x.dtype, x.shape, x.contiguous().view(torch.uint8).numpy().tobytes()) for name, x in tensors.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("case", "head"), on_backends(EVERY_HEAD))
def test_head_equals_transformers_and_its_file_comes_back(case, head, tmp_path):
    reference = make_reference(case, head)
    reference.save_pretrained(tmp_path / "hf")
    task = TASKS[head].from_preset(tmp_path / "hf", tokenizer=None, verbose=False)
    assert task.load_report.new == [] and task.load_report.unused == [] and task.backbone.config.unknown_keys == []

    inputs = make_inputs(case, choices=2 if head == "multiple_choice" else None)
    outputs = task(inputs)
    for name, expected in logits_of(run_reference(reference, inputs), head).items():
        per_token = expected.shape[:2] == inputs["token_ids"].shape
        assert_close(outputs[name] if name else outputs, expected, inputs["padding_mask"] == 1 if per_token else None)

    task.save_to_preset(tmp_path / "saved")
    assert stored(tmp_path / "saved") == stored(tmp_path / "hf")
    hf_config, saved_config = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("hf", "saved"))
    own = set(task.backbone.config.to_hf())
    assert set(saved_config) - set(hf_config) <= {"problem_type", "id2label", "label2id"} | own
    assert {key: saved_config[key] for key in hf_config} == hf_config


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case not in RENAMED])
def test_sparse_vectors_are_pooled_logits_of_the_masked_lm_head(case, tmp_path):
    reference = make_reference(case, "masked_lm")
    reference.save_pretrained(tmp_path)
    inputs = make_inputs(case)
    logits = run_reference(reference, inputs).logits * torch.tensor(inputs["padding_mask"])[:, :, None]
    task = bz.SparseEncoder.from_preset(tmp_path, tokenizer=None, verbose=False)
    assert_close(task(inputs), torch.log1p(torch.relu(logits)).amax(dim=1))


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize(("case", "head"), EVERY_HEAD)
def test_bfloat16_files_come_back_bit_by_bit(case, head, tmp_path):
    make_reference(case, head, torch.bfloat16).save_pretrained(tmp_path / "hf")
    task = TASKS[head].from_preset(tmp_path / "hf", tokenizer=None, verbose=False)
    task.save_to_preset(tmp_path / "saved")
    original = stored(tmp_path / "hf")
    assert {kind for kind, *_ in original.values()} == {torch.bfloat16}
    assert stored(tmp_path / "saved") == original


@pytest.mark.slow
@pytest.mark.parametrize(("case",), on_backends(zip(ALL_CASES)))
def test_encoder_with_all_hidden_states_and_attentions(case, tmp_path):
    reference = make_reference(case)
    reference.save_pretrained(tmp_path / "hf")
    encoder = bz.Encoder.from_preset(tmp_path / "hf", verbose=False)
    inputs = make_inputs(case)
    real = inputs["padding_mask"] == 1
    expected = run_reference(reference, inputs, output_hidden_states=True, output_attentions=True)
    plain, full = encoder(inputs), encoder(inputs, return_all=True)
    assert_close(plain["sequence_output"], expected.last_hidden_state, real)
    assert_close(full["sequence_output"], expected.last_hidden_state, real)
    assert ("pooled_output" in plain) == (expected.get("pooler_output") is not None)
    if "pooled_output" in plain:
        assert_close(plain["pooled_output"], expected.pooler_output)
    assert len(full["hidden_states"]) == len(expected.hidden_states)
    for actual, hf_output in zip(full["hidden_states"], expected.hidden_states):
        assert_close(actual, hf_output, real)
    assert len(full["attentions"]) == len(expected.attentions)
    for actual, hf_output in zip(full["attentions"], expected.attentions):
        assert_close(keras.ops.transpose(actual, (0, 2, 1, 3)), hf_output.transpose(1, 2), real)

    encoder.save_to_preset(tmp_path / "saved")
    assert stored(tmp_path / "saved") == stored(tmp_path / "hf")
    again, info = type(reference).from_pretrained(
        tmp_path / "saved", output_loading_info=True, attn_implementation="eager"
    )
    assert not any(info.values())
    assert torch.equal(run_reference(again.eval(), inputs)[0], expected[0])


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize("case", CASES)
def test_files_with_and_without_prefix(case, tmp_path):
    """A bare encoder's file loads into a task, and a task's file, with prefix or stripped of it, into an encoder."""
    family = FAMILIES[ALL_CASES[case][0]]
    inputs = make_inputs(case)
    real = inputs["padding_mask"] == 1
    bare = make_reference(case)
    bare.save_pretrained(tmp_path / "bare")
    task = bz.TokenClassifier.from_preset(tmp_path / "bare", tokenizer=None, verbose=False)
    assert task.load_report.new == ["token_classifier"]
    assert_close(task.backbone(inputs)["sequence_output"], run_reference(bare, inputs)[0], real)

    headed = make_reference(case, "token_classifier")
    headed.save_pretrained(tmp_path / "headed")
    expected = run_reference(headed.base_model, inputs)[0]
    for strip in (False, True):
        if strip:
            file = tmp_path / "headed" / "model.safetensors"
            tensors = safetensors.torch.load_file(file)
            safetensors.torch.save_file({name.removeprefix(family.prefix): x for name, x in tensors.items()}, file)
        encoder = bz.Encoder.from_preset(tmp_path / "headed", verbose=False)
        assert encoder.load_report.new == (["pooler"] if encoder.pooler is not None else [])
        head = {name for name, _ in headed.named_parameters() if not name.startswith(family.prefix)}
        assert set(encoder.load_report.unused) == head
        assert_close(encoder(inputs)["sequence_output"], expected, real)


@pytest.mark.parametrize(
    ("case", "alias", "name"),
    on_backends(
        [
            (case, *pair)
            for case, (model_type, _) in CASES.items()
            for pair in FAMILIES[model_type].tensor_aliases.items()
        ]
    ),
)
def test_tied_copies_are_ignored_and_stand_in(case, alias, name, tmp_path):
    """Old files hold the decoder's copies, some of them instead of the bias itself."""
    reference = make_reference(case, "masked_lm")
    reference.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    tensors[alias] = tensors.pop(name)
    tensors[alias.replace(".bias", ".weight")] = reference.get_output_embeddings().weight.detach().clone()
    safetensors.torch.save_file(tensors, file)
    task = bz.MaskedLM.from_preset(tmp_path, tokenizer=None, verbose=False)
    assert task.load_report.unused == [] and task.load_report.new == []
    inputs = make_inputs(case)
    assert_close(task(inputs), run_reference(reference, inputs).logits, inputs["padding_mask"] == 1)


STEPS = ["albert", "mpnet", "deberta", "deberta-v2-xl", "modernbert", "roformer-values", "gte", "eurobert"]


@pytest.mark.parametrize("case", STEPS)
def test_one_step_of_training_equals_torch(case, tmp_path, eager):
    """Weights that all blocks share get their whole gradient, also where blocks are recomputed in the backward pass."""
    reference = make_reference(case, "token_classifier")
    reference.save_pretrained(tmp_path / "before")
    inputs = make_inputs(case)
    labels = np.random.default_rng(3).integers(0, 3, inputs["token_ids"].shape)
    real = torch.tensor(inputs["padding_mask"]) == 1
    logits = run_reference(reference, inputs).logits
    torch.nn.functional.cross_entropy(logits[real], torch.tensor(labels)[real]).backward()
    with torch.no_grad():
        for weight in reference.parameters():
            if weight.grad is not None:
                weight -= 0.5 * weight.grad
    reference.save_pretrained(tmp_path / "expected")
    expected = safetensors.torch.load_file(tmp_path / "expected" / "model.safetensors")

    task = bz.TokenClassifier.from_preset(tmp_path / "before", tokenizer=None, verbose=False, dropout=0.0, remat=True)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
    task.compile(keras.optimizers.SGD(0.5), loss, run_eagerly=eager)
    task.train_on_batch(inputs, labels.astype("int32"), inputs["padding_mask"].astype("float32"))
    task.save_to_preset(tmp_path / "after")
    after = safetensors.torch.load_file(tmp_path / "after" / "model.safetensors")
    assert set(after) == set(expected)
    pad = reference.config.pad_token_id
    for name, weight in expected.items():
        updated = after[name]
        is_table = name.endswith(("_embeddings.weight", "embed_tokens.weight"))
        if is_table and "rel_" not in name and "token_type" not in name:  # torch gives padding no gradient
            updated[pad] = weight[pad] = 0
        assert torch.allclose(updated, weight, rtol=0, atol=1e-5), name


def test_each_application_of_a_shared_block_drops_other_elements(compiled, numpy):
    config = FAMILIES["albert"].config_class(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=24,
        embedding_size=8,
    )
    encoder = bz.Encoder(config, dropout=0.5)
    keys = []
    block = encoder.blocks[0].call

    def note_key(x, **options):
        keys.append(options["key"])
        return block(x, **options)

    def run(ids):
        encoder(ids, training=True)
        return keys

    encoder.blocks[0].call = note_key
    assert len({tuple(key) for key in numpy(compiled(run, encoder)(np.ones((1, 4), "int32")))}) == 3


ELECTRA_BASE = {"embedding_size": 768, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}


def mini(layers: int, hidden: int, heads: int | None = None, vocabulary: int = 30522, inner: int | None = None):
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads or hidden // 64,
        "intermediate_size": inner or 4 * hidden,
        "vocab_size": vocabulary,
    }


V3 = {"position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True}
V2_XL = {**mini(24, 1536, vocabulary=128100), **V3, "conv_kernel_size": 3, "conv_act": "gelu"}


def v3(layers: int, hidden: int, vocabulary: int = 128100):
    return {**mini(layers, hidden, vocabulary=vocabulary), **V3}


# Family, configuration; parameters of the encoder, without pooler, of the token table, with the pre-training head.
COUNTS = {
    "bert-base-uncased": ("bert", {}, 109_482_240, 108_891_648, 23_440_896, 110_106_428),
    "bert-base-cased": ("bert", {"vocab_size": 28996}, 108_310_272, 107_719_680, 22_268_928, 108_932_934),
    "bert-large-uncased": ("bert", LARGE, 335_141_888, 334_092_288, 31_254_528, 336_226_108),
    "bert-large-cased": ("bert", {**LARGE, "vocab_size": 28996}, 333_579_264, 332_529_664, 29_691_904, 334_661_958),
    "bert-base-multilingual-cased": ("bert", {"vocab_size": 119547}, 177_853_440, 177_262_848, 91_812_096, 178_566_653),
    "bert-base-multilingual-uncased": (
        "bert",
        {"vocab_size": 105879},
        167_356_416,
        166_765_824,
        81_315_072,
        168_055_961,
    ),
    "bert-base-chinese": ("bert", {"vocab_size": 21128}, 102_267_648, 101_677_056, 16_226_304, 102_882_442),
    "bert_uncased_L-2_H-128": ("bert", mini(2, 128), 4_385_920, 4_369_408, 3_906_816, 4_433_468),
    "bert_uncased_L-4_H-256": ("bert", mini(4, 256), 11_170_560, 11_104_768, 7_813_632, 11_267_900),
    "bert_uncased_L-4_H-512": ("bert", mini(4, 512), 28_763_648, 28_500_992, 15_627_264, 29_058_876),
    "bert_uncased_L-8_H-512": ("bert", mini(8, 512), 41_373_184, 41_110_528, 15_627_264, 41_668_412),
    "scibert_scivocab_uncased": ("bert", {"vocab_size": 31090}, 109_918_464, 109_327_872, 23_877_120, 110_543_220),
    "scibert_scivocab_cased": ("bert", {"vocab_size": 31116}, 109_938_432, 109_347_840, 23_897_088, 110_563_214),
    "legal-bert-small-uncased": ("bert", mini(6, 512), 35_068_416, 34_805_760, 15_627_264, 35_363_644),
    "finbert-pretrain": ("bert", {"vocab_size": 30873}, 109_751_808, 109_161_216, 23_710_464, 110_376_347),
    "all-MiniLM-L6-v2": ("bert", mini(6, 384, 12), 22_713_216, 22_565_376, 11_720_448, 22_893_116),
    "all-MiniLM-L12-v2, bge-small, e5-small": (
        "bert",
        mini(12, 384, 12),
        33_360_000,
        33_212_160,
        11_720_448,
        33_539_900,
    ),
    "paraphrase-multilingual-MiniLM-L12-v2": (
        "bert",
        mini(12, 384, 12, 250037),
        117_653_760,
        117_505_920,
        96_014_208,
        118_053_175,
    ),
    "roberta-base": ("roberta", {}, 124_645_632, 124_055_040, 38_603_520, 124_697_433),
    "roberta-large": ("roberta", LARGE, 355_359_744, 354_310_144, 51_471_360, 355_412_057),
    "distilroberta-base": ("roberta", {"num_hidden_layers": 6}, 82_118_400, 81_527_808, 38_603_520, 82_170_201),
    "xlm-roberta-base": ("xlm-roberta", {}, 278_043_648, 277_453_056, 192_001_536, 278_295_186),
    "xlm-roberta-large": ("xlm-roberta", LARGE, 559_890_432, 558_840_832, 256_002_048, 560_142_482),
    "albert-base": ("albert", {}, 11_683_584, 11_092_992, 3_840_000, 11_813_810),
    "albert-large": ("albert", LARGE, 17_683_968, 16_634_368, 3_840_000, 17_847_474),
    "albert-xlarge": ("albert", mini(24, 2048, 16, 30000), 58_724_864, 54_528_512, 3_840_000, 59_021_490),
    "albert-xxlarge": ("albert", mini(12, 4096, 64, 30000), 222_595_584, 205_814_272, 3_840_000, 223_158_450),
    "distilbert-base-uncased": ("distilbert", {}, 66_362_880, 66_362_880, 23_440_896, 66_985_530),
    "distilbert-base-cased": ("distilbert", {"vocab_size": 28996}, 65_190_912, 65_190_912, 22_268_928, 65_812_036),
    "distilbert-base-multilingual-cased": (
        "distilbert",
        {"vocab_size": 119547},
        134_734_080,
        134_734_080,
        91_812_096,
        135_445_755,
    ),
    "electra-small-discriminator": ("electra", {}, 13_483_008, 13_483_008, 3_906_816, 13_549_057),
    "electra-base-discriminator": ("electra", ELECTRA_BASE, 108_891_648, 108_891_648, 23_440_896, 109_483_009),
    "electra-large-discriminator": (
        "electra",
        {**LARGE, "embedding_size": 1024},
        334_092_288,
        334_092_288,
        31_254_528,
        335_142_913,
    ),
    "electra-small-generator": ("electra", {}, 13_483_008, 13_483_008, 3_906_816, 13_546_682),
    "electra-base-generator": ("electra", {"embedding_size": 768}, 33_511_168, 33_511_168, 23_440_896, 33_740_602),
    "electra-large-generator": (
        "electra",
        {"embedding_size": 1024, "num_hidden_layers": 24},
        50_999_552,
        50_999_552,
        31_254_528,
        51_295_290,
    ),
    "deberta-base": ("deberta", {}, 138_601_728, 138_601_728, 38_603_520, 139_244_121),
    "deberta-large": ("deberta", LARGE, 405_163_008, 405_163_008, 51_471_360, 406_264_921),
    "deberta-xlarge": (
        "deberta",
        {**LARGE, "num_hidden_layers": 48},
        757_804_032,
        757_804_032,
        51_471_360,
        758_905_945,
    ),
    "deberta-v2-xlarge": ("deberta-v2", V2_XL, 884_593_152, 884_593_152, 196_761_600, 887_085_156),
    "deberta-v2-xxlarge": (
        "deberta-v2",
        {**V2_XL, "num_hidden_layers": 48},
        1_564_549_632,
        1_564_549_632,
        196_761_600,
        1_567_041_636,
    ),
    "deberta-v3-xsmall": ("deberta-v2", v3(12, 384), 70_682_112, 70_682_112, 49_190_400, 70_958_820),
    "deberta-v3-small": ("deberta-v2", v3(6, 768), 141_304_320, 141_304_320, 98_380_800, 142_024_548),
    "deberta-v3-base": ("deberta-v2", v3(12, 768), 183_831_552, 183_831_552, 98_380_800, 184_551_780),
    "deberta-v3-large": ("deberta-v2", v3(24, 1024), 434_012_160, 434_012_160, 131_174_400, 435_191_908),
    "mdeberta-v3-base": ("deberta-v2", v3(12, 768, 251000), 278_218_752, 278_218_752, 192_768_000, 279_061_880),
    "ModernBERT-base": ("modernbert", {}, 149_014_272, 149_014_272, 38_682_624, 149_655_232),
    "ModernBERT-large": (
        "modernbert",
        {**LARGE, "num_hidden_layers": 28, "intermediate_size": 2624},
        394_781_696,
        394_781_696,
        51_576_832,
        395_881_664,
    ),
    # Without the pooler, which is made for a classifier alone, and with it.
    "nomic-embed-text-v1.5": ("nomic_bert", {}, 137_322_240, 136_731_648, 23_445_504, 137_354_304),
    "gte-multilingual-base": ("gte", {}, 305_958_912, 305_368_320, 192_036_864, 306_210_496),
    "EuroBERT-210m": ("eurobert", {}, 211_766_016, 211_766_016, 98_500_608, 310_266_624),
    "EuroBERT-610m": (
        "eurobert",
        {**mini(26, 1152, 18, 128256, 4096), "num_key_value_heads": 6},
        607_874_688,
        607_874_688,
        147_750_912,
        755_625_600,
    ),
    "ernie-3.0-base-zh": (
        "ernie",
        {"vocab_size": 40000, "max_position_embeddings": 2048, "type_vocab_size": 4, "use_task_id": True},
        117_944_832,
        117_354_240,
        30_720_000,
        118_578_498,
    ),
    "mpnet-base": ("mpnet", {}, 109_486_464, 108_895_872, 23_444_736, 109_518_527),
    # The table of positions, 1536 × 64, among them.
    "roformer_chinese_base": ("roformer", {}, 123_555_840, 123_555_840, 38_400_000, 124_197_968),
    "roformer_chinese_small": (
        "roformer",
        {**mini(6, 384, vocabulary=50000), "embedding_size": 128},
        17_195_136,
        17_195_136,
        6_400_000,
        17_294_672,
    ),
}


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize("checkpoint", COUNTS)
def test_parameter_counts(checkpoint):
    model_type, arguments, full, no_pooler, table, with_head = COUNTS[checkpoint]
    family = FAMILIES[model_type]
    config = family.config_class(**arguments)
    counts = count_parameters_by_part(config)
    assert sum(counts.values()) == full
    assert full - counts.get("pooler", 0) == no_pooler
    assert config.vocab_size * config.embedding_size == table
    both = "pair" in family.heads
    task = bz.ForPreTraining if both else bz.ReplacedTokenDetector if "discriminator" in checkpoint else bz.MaskedLM
    assert sum(count_parameters_by_part(config, pooler=both, make_task=task).values()) == with_head


def test_counting_equals_a_model_that_was_made():
    config = FAMILIES["bert"].config_class(**mini(2, 128))
    assert bz.Encoder(config).count_params() == 4_385_920 == sum(count_parameters_by_part(config).values())


@pytest.mark.once
@pytest.mark.parametrize(
    ("model_type", "key"),
    [
        ("bert", "num_attention_heads"),
        ("roberta", "layer_norm_eps"),
        ("mpnet", "layer_norm_eps"),
        ("distilbert", "n_heads"),
    ],
)
def test_a_missing_key_that_matters_is_an_error(model_type, key, tmp_path):
    make_reference(model_type).save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    del content[key]
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=key):
        bz.Encoder.from_preset(tmp_path)


@pytest.mark.once
def test_longest_inputs():
    """RoBERTa's positions start after the padding id, so two rows of its table are never reached."""
    assert FAMILIES["roberta"].config_class().max_length == 512
    assert FAMILIES["mpnet"].config_class().max_length == 512
    assert FAMILIES["albert"].config_class().max_length == 512


def test_a_head_that_the_family_lacks():
    encoder = bz.Encoder(FAMILIES["mpnet"].config_class(**mini(1, 64, 1, 50)), pooler=True)
    with pytest.raises(ValueError, match="MPNet has no head 'pair'"):
        bz.NextSentencePredictor(encoder)


@pytest.mark.parametrize(
    "model_type",
    [
        "bert",
        "roberta",
        "distilbert",
        "albert",
        "electra",
        "mpnet",
        "modernbert",
        "roformer",
        "nomic_bert",
        "gte",
        "eurobert",
    ],
)
def test_untied_decoders(model_type, tmp_path, close, numpy):
    arguments = {key: value for key, value in CASES[model_type][1].items() if key != "tie_word_embeddings"}
    config = transformers.AutoConfig.for_model(CASES[model_type][0], **arguments, tie_word_embeddings=False)
    torch.manual_seed(0)
    hf_model = transformers.AutoModelForMaskedLM.from_config(config).eval()
    with torch.no_grad():
        for weight in hf_model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    hf_model.save_pretrained(tmp_path / "hf")
    task = bz.MaskedLM.from_preset(tmp_path / "hf", tokenizer=None, verbose=False)
    ids = np.random.default_rng(0).integers(4, 40, (2, 7)).astype("int32")
    with torch.no_grad():
        expected = hf_model(torch.tensor(ids).long()).logits.numpy()
    close(numpy(task(ids)), expected)
    assert not task.load_report.new
    task.save_to_preset(tmp_path / "saved")
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "saved").eval()
    with torch.no_grad():
        close(again(torch.tensor(ids).long()).logits.numpy(), expected)
    decoder = next(weight for weight in task.trainable_weights if weight.path.endswith("masked_lm/decoder"))
    assert decoder.shape == (config.vocab_size, hf_model.get_output_embeddings().weight.shape[1])
