"""LoRA: what trains, what merging keeps, and files against PEFT."""

import json

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.adapters.lora import enable_lora, lora_layers, merge_lora
from bertzoo.adapters.peft import load_adapter, save_adapter
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.models.registry import FAMILIES

TEXTS = ["a good film", "a bad film", "the plot was dull and bad", "never again"]
LABELS = [1, 0, 0, 0]


@pytest.fixture(scope="module")
def preset(write_checkpoint):
    return write_checkpoint("BertForSequenceClassification", num_hidden_layers=1)


@pytest.fixture
def make(preset):
    return lambda: bz.TextClassifier.from_preset(preset[0], verbose=False, dropout=0.0)


def torch_inputs(model):
    import torch

    names = {"token_ids": "input_ids", "padding_mask": "attention_mask", "segment_ids": "token_type_ids"}
    return {names[name]: torch.tensor(x.astype("int64")) for name, x in model.tokenizer(TEXTS).items()}


def values(weights):
    return {w.path: np.array(keras.ops.convert_to_numpy(w)) for w in weights}


def test_factors_and_head_train_and_merging_changes_nothing(make, tmp_path, eager):
    model = make()
    before = model.predict(TEXTS, verbose=0)
    enable_lora(model, rank=2)
    np.testing.assert_allclose(model.predict(TEXTS, verbose=0), before, atol=1e-5)  # B starts at 0
    assert len(lora_layers(model)) == 1 and len(model.trainable_weights) == 4 + 2
    old = values(model.weights)
    model.compile(bz.AdamW(3e-2, warmup=0.0, schedule="constant"), run_eagerly=eager)
    model.fit(TEXTS, LABELS, epochs=3, verbose=0)
    trainable = {w.path for w in model.trainable_weights}
    for path, value in values(model.weights).items():
        assert (path in trainable) == (not np.array_equal(value, old[path])), path
    after = model.predict(TEXTS, verbose=0)
    assert np.abs(after - before).max() > 1e-3
    merge_lora(model)
    assert not lora_layers(model) and len(model.trainable_weights) == len(model.weights)
    np.testing.assert_allclose(model.predict(TEXTS, verbose=0), after, atol=1e-4)
    model.save_to_preset(tmp_path / "merged")
    loaded = bz.TextClassifier.from_preset(tmp_path / "merged", verbose=False)
    np.testing.assert_allclose(loaded.predict(TEXTS, verbose=0), after, atol=1e-4)


def test_adapters_go_to_peft_and_come_back(make, preset, tmp_path, close):
    peft, torch = pytest.importorskip("peft"), pytest.importorskip("torch")
    import transformers

    model = make()
    enable_lora(model, rank=3, alpha=5, targets=("query", "value", "dense"))
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(rng.normal(size=weight.shape) * 0.2)
    save_adapter(model, tmp_path / "adapter", base_model=str(preset[0]))
    expected = model.predict(TEXTS, batch_size=4, verbose=0)
    again = make()
    load_adapter(again, tmp_path / "adapter")
    np.testing.assert_allclose(again.predict(TEXTS, verbose=0), expected, atol=1e-5)

    base = transformers.AutoModelForSequenceClassification.from_pretrained(preset[0])
    peft_model = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    with torch.no_grad():
        close(expected, peft_model(**torch_inputs(model)).logits.numpy())


def test_an_adapter_of_peft_is_read(make, preset, tmp_path, close):
    peft, torch = pytest.importorskip("peft"), pytest.importorskip("torch")
    import transformers

    torch.manual_seed(0)
    base = transformers.AutoModelForSequenceClassification.from_pretrained(preset[0])
    peft_model = peft.get_peft_model(base, peft.LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=8)).eval()
    with torch.no_grad():
        for name, weight in peft_model.named_parameters():
            if "lora_B" in name or "modules_to_save" in name:
                weight.normal_(0, 0.3)
    peft_model.save_pretrained(tmp_path / "of_peft")
    model = make()
    load_adapter(model, tmp_path / "of_peft")
    with torch.no_grad():
        logits = peft_model(**torch_inputs(model)).logits.numpy()
    close(model.predict(TEXTS, verbose=0), logits)


def test_a_head_of_which_peft_keeps_the_last_layer(tmp_path, close, numpy):
    peft, torch = pytest.importorskip("peft"), pytest.importorskip("torch")
    import transformers

    sizes = {"vocab_size": 50, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 24}
    torch.manual_seed(0)
    base = transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(**sizes))
    base.save_pretrained(tmp_path / "base")
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["q_lin", "v_lin"])
    peft_model = peft.get_peft_model(base, config).eval()
    with torch.no_grad():
        for name, weight in peft_model.named_parameters():
            if "lora_B" in name or "modules_to_save" in name:
                weight.normal_(0, 0.3)
    peft_model.save_pretrained(tmp_path / "of_peft")
    model = bz.TextClassifier.from_preset(tmp_path / "base", tokenizer=None, verbose=False)
    load_adapter(model, tmp_path / "of_peft")
    ids = np.random.default_rng(0).integers(3, 50, (2, 7)).astype("int32")
    with torch.no_grad():
        close(numpy(model(ids)), peft_model(torch.tensor(ids).long()).logits.numpy())


def rotary_base(model_type: str, suffix: str, directory):
    """A model of transformers with random weights, which is saved in a directory."""
    import torch
    import transformers

    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "pad_token_id": 0}
    more = {"num_key_value_heads": 1} if model_type == "eurobert" else {}
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **sizes, **more, intermediate_size=24)
    base = getattr(transformers, f"AutoModelFor{suffix}").from_config(config)
    base.save_pretrained(directory)
    return base


@pytest.mark.once
@pytest.mark.parametrize("model_type", ["nomic_bert", "gte", "eurobert"])
def test_modules_that_files_name_otherwise_or_that_are_of_other_widths(model_type, tmp_path, close, numpy):
    """Adapters of PEFT, both ways."""
    import peft
    import torch
    import transformers

    base = rotary_base(model_type, "SequenceClassification", tmp_path / "base")
    head = ["dense", "classifier"] if model_type == "eurobert" else ["classifier"]
    settings = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj", "up_proj"], modules_to_save=head)
    peft_model = peft.get_peft_model(base, settings).eval()
    with torch.no_grad():
        for name, weight in peft_model.named_parameters():
            if "lora_B" in name or "modules_to_save" in name:
                weight.normal_(0, 0.3)
    peft_model.save_pretrained(tmp_path / "of_peft")
    model = bz.TextClassifier.from_preset(tmp_path / "base", tokenizer=None, verbose=False)
    load_adapter(model, tmp_path / "of_peft")
    ids = np.random.default_rng(0).integers(3, 50, (2, 7)).astype("int32")
    with torch.no_grad():
        expected = peft_model(torch.tensor(ids).long()).logits.numpy()
    close(numpy(model(ids)), expected)

    save_adapter(model, tmp_path / "own", base_model=str(tmp_path / "base"))
    auto = transformers.AutoModelForSequenceClassification
    again = peft.PeftModel.from_pretrained(auto.from_pretrained(tmp_path / "base"), tmp_path / "own").eval()
    merge_lora(model)
    model.save_to_preset(tmp_path / "merged")
    merged = auto.from_pretrained(tmp_path / "merged").eval()
    with torch.no_grad():
        for other in (again, merged):
            close(other(torch.tensor(ids).long()).logits.numpy(), expected)


@pytest.mark.once
@pytest.mark.parametrize("model_type", ["nomic_bert", "gte"])
def test_a_head_that_files_name_otherwise(model_type, tmp_path):
    modules = set(rotary_base(model_type, "MaskedLM", tmp_path / "base").state_dict())
    model = bz.MaskedLM.from_preset(tmp_path / "base", tokenizer=None, verbose=False)
    enable_lora(model, rank=2)
    save_adapter(model, tmp_path / "own", base_model=str(tmp_path / "base"))
    names = {name.removeprefix("base_model.model.") for name in safetensors_of(tmp_path / "own") if "lora_" not in name}
    assert len(names) == 5 and names <= modules


def own_head():
    return keras.Sequential([keras.layers.Dense(8, "tanh"), keras.layers.BatchNormalization(), keras.layers.Dense(2)])


def crf_tagger(preset):
    return bz.TokenClassifier.from_preset(preset[0], verbose=False, dropout=0.0, labels=["O", "X"], crf=True)


@pytest.mark.parametrize(
    ("make_task", "size"),
    [
        (lambda preset: bz.TextClassifier.from_preset(preset[0], verbose=False, head=own_head()), 8),
        (crf_tagger, 3),
    ],
)
def test_all_that_trained_comes_back(preset, tmp_path, make_task, size, numpy):
    """A head of one's own, what it keeps besides what trains, and a CRF."""
    task = make_task(preset)
    enable_lora(task, rank=2)
    rng = np.random.default_rng(0)
    inner = {id(weight) for weight in task.backbone.weights}
    head = [weight for weight in task.weights if id(weight) not in inner]
    assert len(head) == size
    for weight in [*task.trainable_weights, *head]:
        weight.assign(rng.random(weight.shape))
    save_adapter(task, tmp_path / "adapter")
    again = make_task(preset)
    load_adapter(again, tmp_path / "adapter")
    for weight, loaded in zip(task.weights, again.weights, strict=True):
        np.testing.assert_array_equal(numpy(weight), numpy(loaded), err_msg=weight.path)


def test_peft_reads_an_adapter_with_a_crf(preset, tmp_path, close, numpy):
    peft, torch = pytest.importorskip("peft"), pytest.importorskip("torch")
    import transformers

    model = crf_tagger(preset)
    enable_lora(model, rank=2)
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(rng.normal(size=weight.shape) * 0.2)
    save_adapter(model, tmp_path / "adapter")
    base = transformers.AutoModelForTokenClassification.from_pretrained(preset[0], num_labels=2)
    peft_model = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    with torch.no_grad():
        expected = peft_model(**torch_inputs(model)).logits.numpy()
    real = model.tokenizer(TEXTS)["padding_mask"] == 1
    close(numpy(model(model.tokenizer(TEXTS)))[real], expected[real])


def test_adapters_of_another_head_are_refused(make, preset, tmp_path):
    from safetensors.numpy import load_file, save_file

    def saved(model, name):
        enable_lora(model, rank=2)
        save_adapter(model, tmp_path / name)
        return tmp_path / name

    with_crf = saved(crf_tagger(preset), "crf")
    plain = saved(bz.TokenClassifier.from_preset(preset[0], verbose=False, labels=["O", "X"]), "plain")
    with pytest.raises(CheckpointError, match=r"lacks tensors of the model's head: bertzoo\.head\.0\.transitions"):
        load_adapter(crf_tagger(preset), plain)
    with pytest.raises(CheckpointError, match=r"do not fit the model: bertzoo\.head\.0\.transitions"):
        load_adapter(make(), with_crf)
    with pytest.raises(CheckpointError, match=r"classifier.weight of shape \(32, 2\); the model's is \(32, 3\)"):
        load_adapter(bz.TextClassifier.from_preset(preset[0], verbose=False, labels=3, new_head=True), plain)
    tensors = load_file(plain / "adapter_model.safetensors")
    del tensors["base_model.model.classifier.bias"]
    save_file(tensors, plain / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match=r"lacks tensors of the model's head: classifier\.bias"):
        load_adapter(make(), plain)


def test_an_adapter_may_have_no_head(make, tmp_path, numpy):
    model = make()
    enable_lora(model, rank=2, train_head=False)
    save_adapter(model, tmp_path / "adapter")
    again = make()
    before = numpy(again.classifier.logits.kernel).copy()
    load_adapter(again, tmp_path / "adapter")
    np.testing.assert_array_equal(numpy(again.classifier.logits.kernel), before)


@pytest.mark.parametrize("options", [{}, {"pooling": "attention"}, {"after_pooling": True}])
def test_sentence_encoders(preset, tmp_path, numpy, options):
    def encoder():
        layers = (
            {"after_pooling": [keras.layers.Dense(4, name="projection")]} if "after_pooling" in options else options
        )
        return bz.SentenceEncoder.from_preset(preset[0], verbose=False, **layers)

    model = encoder()
    model.compile(loss="softmax")  # its layer trains, and is thrown away
    enable_lora(model, rank=2)
    rng = np.random.default_rng(0)
    for _, b in (pair for layer in lora_layers(model) for pair in layer.factors if pair):
        b.assign(rng.normal(size=b.shape))
    if options:
        name = "pooling/attention" if "pooling" in options else "projection/kernel"
        with pytest.raises(ValueError, match=f"no place for .*{name}.*train_head=False.*merge_lora"):
            save_adapter(model, tmp_path / "adapter")
        assert not (tmp_path / "adapter").exists()
        for layer in (model.pooling, *model.after_pooling):
            layer.trainable = False
    save_adapter(model, tmp_path / "adapter")
    again = encoder()
    for layer, loaded in zip(model.after_pooling, again.after_pooling):
        loaded.set_weights(layer.get_weights())
    load_adapter(again, tmp_path / "adapter")
    np.testing.assert_allclose(again.encode(TEXTS), model.encode(TEXTS), atol=1e-5)
    merge_lora(again)
    again.save_to_preset(tmp_path / "merged")
    loaded = bz.SentenceEncoder.from_preset(tmp_path / "merged", verbose=False)
    np.testing.assert_allclose(loaded.encode(TEXTS), model.encode(TEXTS), atol=1e-4)


def test_an_adapter_that_does_not_fit_leaves_the_task_as_it_was(make, tmp_path):
    from safetensors.numpy import load_file, save_file

    model = make()
    enable_lora(model, rank=2)
    save_adapter(model, tmp_path / "good")
    config = json.loads((tmp_path / "good" / "adapter_config.json").read_text())
    tensors = load_file(tmp_path / "good" / "adapter_model.safetensors")
    name = next(name for name in tensors if "lora_A" in name)
    head = next(name for name in tensors if "lora" not in name)
    again = make()
    trained, before = [weight.path for weight in again.trainable_weights], values(again.weights)
    for settings, changed, message in (
        ([1], tensors, "holds no JSON object"),
        ({**config, "r": 10**12}, tensors, "factors of rank 2 .*; r is 1000000000000"),
        ({**config, "r": True}, tensors, "r must be a positive integer. Received: True"),
        ({**config, "lora_alpha": float("nan")}, tensors, "lora_alpha must be a number. Received: nan"),
        ({**config, "lora_alpha": "16"}, tensors, "lora_alpha must be a number"),
        ({**config, "use_rslora": 1}, tensors, "use_rslora must be true or false"),
        ({**config, "alpha_pattern": {".*query": 3.0}}, tensors, "name of a module is expected"),
        ({key: value for key, value in config.items() if key != "r"}, tensors, "has no r that can be used"),
        (config, {head: tensors[head]}, "has no factors"),
        (config, {**tensors, name: tensors[name] * np.nan}, r"lora_A.weight .*NaN or infinity"),
        (config, {**tensors, name: tensors[name][:, 1:].copy()}, "lacks lora_A"),
        (config, {**tensors, head: tensors[head][1:].copy()}, "the model's is"),
    ):
        (tmp_path / "bad").mkdir(exist_ok=True)
        (tmp_path / "bad" / "adapter_config.json").write_text(json.dumps(settings))
        save_file(changed, tmp_path / "bad" / "adapter_model.safetensors")
        with pytest.raises(CheckpointError, match=f"{tmp_path / 'bad'}.*{message}"):
            load_adapter(again, tmp_path / "bad")
        assert [weight.path for weight in again.trainable_weights] == trained
        assert all(np.array_equal(value, before[path]) for path, value in values(again.weights).items())
    load_adapter(again, tmp_path / "good")


def test_memory_that_is_not_there_leaves_the_task_as_it_was(make, tmp_path, monkeypatch):
    model = make()
    enable_lora(model, rank=2)
    save_adapter(model, tmp_path / "adapter")
    again = make()
    trained = [weight.path for weight in again.trainable_weights]

    def full(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr("bertzoo.adapters.lora.LoRADense.add_weight", full)
    for attempt in (lambda: load_adapter(again, tmp_path / "adapter"), lambda: enable_lora(again)):
        with pytest.raises(MemoryError):
            attempt()
        assert [weight.path for weight in again.trainable_weights] == trained


PLAIN = [
    {"use_rslora": True},
    {"rank_pattern": {"query": 3, "bert.encoder.layer.0.attention.self.value": 5}},
    {"alpha_pattern": {"layer.0.attention.self.query": 3, "value": 7.5}, "rank_pattern": {"value": 1}},
    {"target_modules": "all-linear"},
    {"target_modules": ["dense"], "exclude_modules": ["pooler.dense", "intermediate.dense"]},
    {"target_modules": r".*\.(query|dense)", "exclude_modules": ".*pooler.*"},
    {"target_modules": ["bert.encoder.layer.0.attention.self.key"]},
    {"layers_to_transform": [0], "layers_pattern": "layer"},
    {"modules_to_save": ["classifier"], "lora_dropout": 0.3, "revision": "main", "base_model_name_or_path": "x"},
    {"init_lora_weights": "gaussian"},
    {"init_lora_weights": "orthogonal", "r": 4},
    {"init_lora_weights": False},
]
OTHERS = [
    ({"init_lora_weights": "pissa"}, "init_lora_weights = 'pissa', which changed .*path_initial_model"),
    ({"init_lora_weights": "pissa_niter_2"}, "init_lora_weights = 'pissa_niter_2'"),
    ({"init_lora_weights": "olora"}, "init_lora_weights = 'olora'"),
    ({"bias": "all"}, "trains biases"),
    ({"bias": "lora_only"}, "trains biases"),
    ({"lora_bias": True}, "lora_bias = True, which bertzoo does not compute"),
    ({"use_dora": True}, "use_dora = True"),
    ({"trainable_token_indices": [3, 4]}, "trainable_token_indices"),
]


def adapter_of_peft(preset, folder, options, **saving):
    import torch
    import transformers
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    base = transformers.AutoModelForSequenceClassification.from_pretrained(preset[0])
    peft_model = get_peft_model(base, LoraConfig(**{"task_type": "SEQ_CLS", "r": 2, "lora_alpha": 5, **options})).eval()
    with torch.no_grad():
        for name, weight in peft_model.named_parameters():
            if "lora_B" in name or "modules_to_save" in name:
                weight.normal_(0, 0.3)
    peft_model.save_pretrained(folder, **saving)
    return peft_model


@pytest.mark.parametrize("options", PLAIN, ids=str)
def test_what_an_adapter_says_is_done(make, preset, tmp_path, close, options):
    import torch

    peft_model = adapter_of_peft(preset, tmp_path / "of_peft", options)
    model = make()
    load_adapter(model, tmp_path / "of_peft")
    with torch.no_grad():
        expected = peft_model(**torch_inputs(model)).logits.numpy()
    close(model.predict(TEXTS, verbose=0), expected)
    save_adapter(model, tmp_path / "saved")
    import transformers
    from peft import PeftModel

    base = transformers.AutoModelForSequenceClassification.from_pretrained(preset[0])
    again = PeftModel.from_pretrained(base, tmp_path / "saved").eval()
    with torch.no_grad():
        close(again(**torch_inputs(model)).logits.numpy(), expected)


@pytest.mark.once
@pytest.mark.parametrize(("options", "message"), OTHERS, ids=str)
def test_or_refused(make, preset, tmp_path, options, message):
    adapter_of_peft(preset, tmp_path / "of_peft", options)
    with pytest.raises(CheckpointError, match=message):
        load_adapter(make(), tmp_path / "of_peft")


@pytest.mark.slow
@pytest.mark.once
def test_every_setting_of_peft_is_known(make, preset, tmp_path):
    """With its default, an adapter loads; another value of a key that is neither done nor inert is refused."""
    import dataclasses

    from peft import LoraConfig

    from bertzoo.adapters.peft import INERT

    adapter_of_peft(preset, tmp_path / "of_peft", {})
    load_adapter(make(), tmp_path / "of_peft")
    path = tmp_path / "of_peft" / "adapter_config.json"
    content = json.loads(path.read_text())
    done = "r lora_alpha target_modules exclude_modules modules_to_save use_rslora layers_to_transform layers_pattern "
    done += "rank_pattern alpha_pattern init_lora_weights"
    keys = {field.name for field in dataclasses.fields(LoraConfig)} | set(content)
    for key in sorted(keys - set(done.split()) - set(INERT)):
        path.write_text(json.dumps({**content, key: "something"}))
        with pytest.raises(CheckpointError, match="something|trains biases"):
            load_adapter(make(), tmp_path / "of_peft")


@pytest.mark.once
def test_a_hostile_expression_is_never_tried(make, preset, tmp_path):
    """It would take longer than the world lasts."""
    adapter_of_peft(preset, tmp_path / "of_peft", {})
    path = tmp_path / "of_peft" / "adapter_config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "target_modules": "(.+)+" * 20 + "!", "exclude_modules": "(.+)+" * 20}))
    model = make()
    load_adapter(model, tmp_path / "of_peft")
    save_adapter(model, tmp_path / "saved")
    assert "+" not in (tmp_path / "saved" / "adapter_config.json").read_text()


@pytest.mark.once
def test_the_older_file_of_an_adapter(make, preset, tmp_path, close):
    import torch

    peft_model = adapter_of_peft(preset, tmp_path / "of_peft", {})
    state = safetensors_of(tmp_path / "of_peft")
    torch.save({name: torch.tensor(value) for name, value in state.items()}, tmp_path / "of_peft" / "adapter_model.bin")
    (tmp_path / "of_peft" / "adapter_model.safetensors").unlink()
    model = make()
    load_adapter(model, tmp_path / "of_peft")
    with torch.no_grad():
        close(model.predict(TEXTS, verbose=0), peft_model(**torch_inputs(model)).logits.numpy())


def safetensors_of(folder):
    from safetensors.numpy import load_file

    return load_file(folder / "adapter_model.safetensors")


@pytest.mark.once
@pytest.mark.parametrize(
    "model_type",
    ["distilbert", "mpnet", "deberta", "deberta-v2", "roberta", "electra", "bert", "nomic_bert", "gte", "eurobert"],
)
def test_targets_where_none_are_named(model_type):
    """PEFT's where it has some, and queries and values by the names that other families give them."""
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as PEFT_TARGETS

    own = {"distilbert": ["q_lin", "v_lin"], "mpnet": ["q", "v"], "electra": ["query", "value"]}
    own |= {name: ["q_proj", "v_proj"] for name in ("nomic_bert", "gte", "eurobert")}
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    encoder = bz.Encoder(FAMILIES[model_type].config_class(**sizes, intermediate_size=24))
    enable_lora(encoder)
    assert encoder.lora["targets"] == PEFT_TARGETS.get(model_type, own.get(model_type))
    (layer,) = lora_layers(encoder)
    assert sum(pair is not None for pair in layer.factors) == len(encoder.lora["targets"])


def test_targets_by_a_regular_expression(make, preset, tmp_path, close):
    """As PEFT takes a string, for whole names."""
    model = make()
    enable_lora(model, rank=2, targets=r".*\.self\.(query|key)")
    save_adapter(model, tmp_path / "adapter")
    from peft import PeftModel

    peft_model = PeftModel.from_pretrained(preset[1], tmp_path / "adapter")
    adapted = {
        name.split(".lora_A")[0].rsplit(".", 1)[1] for name, _ in peft_model.named_parameters() if "lora_A" in name
    }
    assert adapted == {"query", "key"}
    load_adapter(make(), tmp_path / "adapter")
    with pytest.raises(ValueError, match="is called quer; modules end in"):
        enable_lora(make(), targets="quer")


def test_merging_lets_train_what_did(preset):
    head = keras.Sequential([keras.layers.BatchNormalization(), keras.layers.Dense(2)])
    model = bz.TextClassifier.from_preset(preset[0], verbose=False, head=head, labels=2)
    model.freeze(1)
    before = [weight.path for weight in model.trainable_weights]
    enable_lora(model, rank=2)
    merge_lora(model)
    assert [weight.path for weight in model.trainable_weights] == before


@pytest.mark.once
def test_fit_asks_for_compile_after_the_weights_that_train_changed(make, tmp_path):
    model = make()
    for change in (enable_lora, merge_lora):
        model.compile()
        change(model)
        with pytest.raises(ValueError, match=r"call compile\(\) before fit"):
            model.fit(TEXTS, LABELS, verbose=0)


@pytest.mark.once
def test_an_adapter_alone_is_no_preset(make, tmp_path):
    model = make()
    enable_lora(model, rank=2)
    save_adapter(model, tmp_path / "adapter", base_model="owner/base")
    for task in (bz.TextClassifier, bz.SentenceEncoder, bz.Encoder):
        with pytest.raises(CheckpointError, match=r"holds a PEFT adapter.*owner/base.*load_adapter\(model"):
            task.from_preset(tmp_path / "adapter")
    with pytest.raises(CheckpointError, match="no hub name"):
        load_adapter(make(), "hf://x")


def test_errors(make, tmp_path):
    model = make()
    with pytest.raises(ValueError, match="called nothing"):
        enable_lora(model, targets=("nothing",))
    with pytest.raises(ValueError, match="rank"):
        enable_lora(model, rank=0)
    with pytest.raises(ValueError, match="no LoRA factors"):
        merge_lora(model)
    enable_lora(model)
    with pytest.raises(ValueError, match="already"):
        enable_lora(model)
    save_adapter(model, tmp_path / "adapter")
    config = tmp_path / "adapter" / "adapter_config.json"
    config.write_text(config.read_text().replace('"LORA"', '"IA3"'))
    with pytest.raises(ValueError, match="IA3"):
        load_adapter(make(), tmp_path / "adapter")
    with pytest.raises(ValueError, match="no adapter"):
        load_adapter(make(), tmp_path / "none")
