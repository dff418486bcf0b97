"""solutions/bert.py, the file that notebook 19 asks for: beside transformers and the library, and wrong forms of it."""

import json
from pathlib import Path

import check
import grading
import numpy as np
import pytest
import refresh
from keras import ops

import bertzoo as bz
from bertzoo.checkpoints.files import bundled_presets_directory

COURSE = Path(__file__).resolve().parents[2] / "course"
SOURCE = (COURSE / "solutions/bert.py").read_text(encoding="utf-8")
PRESET = bundled_presets_directory() / "bert_mini_en"
STAGES = [number for number in check.numbers() if number.startswith("19.")]
TEXTS = [
    "The keys to the cabinet [MASK] on the table.",
    "Ångström's naïve café, 5% off; état-major (2019)?",
    "İstanbul ΑΣ 中文字 x",
]

# Stage -> pairs of what is replaced in the solution, and by what.
MUTANTS = {
    "19.1": [
        ('unicodedata.normalize("NFD", text) if lower else text', "text"),
        ("for end in range(len(word), start, -1)", "for end in range(start + 1, len(word) + 1)"),
        ('or letter in "$+<=>^`|~"', ""),
        ("[: max_length - 2]", "[:max_length]"),
        ("len(word) > 100", "len(word) > 1000"),
    ],
    "19.2": [
        ("ops.matmul(x, ops.transpose(weights[f\"{name}.weight\"]))", 'ops.matmul(x, weights[f"{name}.weight"])'),
        ("keepdims=True) + epsilon)", "keepdims=True)) + epsilon"),
        ("tokens + segments + positions", "tokens + positions"),
        ('.replace("gamma", "weight")', ""),
        ('value.astype("float32")', "value"),
    ],
    "19.3": [
        (" / math.sqrt(size)", ""),
        ("/ math.sqrt(size)", "/ math.sqrt(x.shape[-1])"),
        ("[:, None, None, :], scores", "[:, None, :, None], scores"),
        ("scores = ops.where(ops.cast", "ops.where(ops.cast"),
        ("mixed = ops.swapaxes(ops.matmul(ops.softmax(scores, axis=-1), value), 1, 2)",
         "mixed = ops.matmul(ops.softmax(scores, axis=-1), value)"),
    ],
    "19.4": [
        ('inner = ops.gelu(dense(x, weights, f"{name}.intermediate.dense"), approximate=False)',
         'inner = ops.gelu(dense(x, weights, f"{name}.intermediate.dense"), approximate=True)'),
        ("x = layer_norm(x + drop(attended)", "x = layer_norm(drop(attended)"),
        ('range(config["num_hidden_layers"])', 'range(config["num_hidden_layers"] - 1)'),
    ],
    "19.5": [
        (' + weights["cls.predictions.bias"]', ""),
        ('x = layer_norm(x, weights, "cls', 'layer_norm(x, weights, "cls'),
        ("weights, config)[0, place]", "weights, config)[0, 0]"),
        ("np.argsort(-probabilities)", "np.argsort(probabilities)"),
    ],
    "19.6": [
        ("-ops.mean(ops.take_along_axis", "-ops.sum(ops.take_along_axis"),
        ("0.0, x / (1 - rate))", "0.0, x)"),
        ("noise[next(uses)]", "noise[0]"),
        ('no_decay = name.endswith("bias") or "LayerNorm" in name', "no_decay = False"),
        ("v / (1 - beta_2**step)", "v"),
        ("min(1.0, limit / norm)", "limit / norm"),
        ("peak * (step / warm if", "peak * (1 if"),
        ("best = max(best, (right, weights), key=lambda pair: pair[0])", "best = (right, weights)"),
        ("labels[rows], noise)", "labels[: len(rows)], noise)"),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def bert():
    return check.load(COURSE / "solutions/bert.py")


def write(path: Path, source: str) -> Path:
    path.write_text(source, encoding="utf-8")
    return path


def close(answer, expected, real=slice(None)) -> bool:
    answer, expected = np.asarray(ops.convert_to_numpy(answer))[real], np.asarray(expected)[real]
    return bool(np.abs(answer - expected).max() <= 1e-5 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("number", STAGES)
def test_the_solution_passes_on_every_backend(bert, number):
    assert check.verdict(number, bert) == "passed"


@pytest.mark.once
def test_it_is_one_short_file_and_the_learner_gets_its_stubs():
    assert len(SOURCE.splitlines()) <= 250
    stubs = (COURSE / "bert.py").read_text(encoding="utf-8")
    assert stubs == refresh.stubs(SOURCE), "run course/refresh.py"
    assert stubs.count("raise NotImplementedError") == SOURCE.count("\ndef ") - len(refresh.GIVEN)
    for module in ("bertzoo", "transformers", "keras.layers", "keras.optimizers"):
        assert module not in SOURCE


@pytest.mark.once
def test_stages_are_graded_from_stubs_to_solution(tmp_path):
    """What a learner sees who fills in one stage after the other."""
    stubs = (COURSE / "bert.py").read_text(encoding="utf-8")
    notebook = write(tmp_path / "19_capstone.ipynb", '{"cells": []}')
    marks = [f"# Stage {number}:" for number in range(2, 7)]
    for done in range(7):
        if done == 6:
            source = SOURCE
        elif done == 0:
            source = stubs
        else:
            mark = marks[done - 1]
            source = SOURCE[: SOURCE.index(mark)] + stubs[stubs.index(mark) :]
        write(tmp_path / "bert.py", source)
        verdicts = list(grading.verdicts(notebook).values())
        assert verdicts == ["passed"] * done + ["to do"] * (6 - done)


@pytest.mark.once
def test_a_file_that_raises_is_named_with_its_line(tmp_path):
    notebook = write(tmp_path / "19_capstone.ipynb", '{"cells": []}')
    write(tmp_path / "bert.py", "import keras\n1 / 0\n")
    said = "not yet: bert.py raised ZeroDivisionError: division by zero, in line 2 of bert.py: 1 / 0"
    assert grading.verdicts(notebook) == dict.fromkeys(STAGES, said)


@pytest.mark.once
@pytest.mark.parametrize(
    ("number", "old", "new"), [(number, *pair) for number, pairs in MUTANTS.items() for pair in pairs]
)
def test_wrong_forms_get_a_hint(tmp_path, number, old, new):
    assert SOURCE.count(old) == 1
    said = check.verdict(number, check.load(write(tmp_path / "bert.py", SOURCE.replace(old, new))))
    assert said.startswith("not yet: ") and "it raised" not in said, said


def test_it_equals_transformers_and_the_library_on_real_weights(bert):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    config, vocabulary, weights = bert.load(PRESET)
    batch = bert.encode(TEXTS, vocabulary)
    real = batch["padding_mask"] > 0
    model = transformers.AutoModelForMaskedLM.from_pretrained(PRESET, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(PRESET)
    inputs = tokenizer(TEXTS, padding="max_length", max_length=batch["token_ids"].shape[1], return_tensors="pt")
    assert (inputs["input_ids"].numpy() == batch["token_ids"]).all()
    with torch.no_grad():
        theirs = model(**inputs, output_hidden_states=True)
    x = bert.encoder(batch, weights, config)
    assert close(x, theirs.hidden_states[-1].numpy(), real)
    logits = bert.masked_lm(x, weights, config)
    assert close(logits, theirs.logits.numpy(), real)
    assert close(logits, ops.convert_to_numpy(bz.MaskedLM.from_preset(PRESET, verbose=False)(batch)), real)


@pytest.mark.parametrize("lower", [True, False])
def test_it_reads_a_directory_that_transformers_wrote(bert, tmp_path, lower):
    """Another size, with a pooler, cased and uncased; the classifier's logits are transformers'."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    torch.manual_seed(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Good", "good", "##s", "é", "e", ",", "É"]
    tokenizer = transformers.BertTokenizer(vocab={word: i for i, word in enumerate(words)}, do_lower_case=lower)
    sizes = {"vocab_size": 12, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
    config = transformers.BertConfig(**sizes, intermediate_size=40, initializer_range=0.5)
    model = transformers.BertForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    texts = ["Good goods, É", "é e"]
    config, vocabulary, weights = bert.load(tmp_path)
    batch = bert.encode(texts, vocabulary, config["lower"])
    inputs = tokenizer(texts, padding="max_length", max_length=8, return_tensors="pt")
    assert (inputs["input_ids"].numpy() == batch["token_ids"]).all()
    with torch.no_grad():
        assert close(bert.classify(batch, weights, config), model(**inputs).logits.numpy())


@pytest.mark.once
def test_tokens_are_those_of_tokenizers(bert):
    """Every bundled review and cloze, and every letter of four blocks of Unicode."""
    vocabulary = json.loads((PRESET / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    tokenizer = bz.MaskedLM.from_preset(PRESET, verbose=False).tokenizer
    data = Path(bz.__path__[0]) / "data"
    files = [(data / f"{name}_en.tsv").read_text(encoding="utf-8") for name in ("reviews", "cloze")]
    texts = [line.split("\t")[0] for file in files for line in file.splitlines()]
    texts += ["a" + chr(code) + "b" for code in (*range(1, 0x600), *range(0x2000, 0x2070), *range(0x3000, 0x3040))]
    for first in range(0, len(texts), 500):
        mine, theirs = bert.encode(texts[first : first + 500], vocabulary), tokenizer(texts[first : first + 500])
        for row in range(len(mine["token_ids"])):
            count = theirs["padding_mask"][row].sum()
            same = (mine["token_ids"][row][:count] == theirs["token_ids"][row][:count]).all()
            assert same and mine["padding_mask"][row].sum() == count, repr(texts[first + row])
