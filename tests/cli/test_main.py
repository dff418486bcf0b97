"""Each command from the outside: what it writes, and its one sentence where something is wrong."""

import csv
import json
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import bertzoo as bz
from bertzoo.cli import course, quickstart, vector_blocks
from bertzoo.cli.app import report_errors_and_exit
from bertzoo.cli.main import app
from bertzoo.data import load_reviews

TEXTS, LABELS = SAMPLE = [column[:40] for column in load_reviews("train")]
# One batch: each shape of batch is compiled.
FAST = ["--epochs", 1, "--batch-size", 40]


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    """A masked LM with one layer of width 16 and a vocabulary from the reviews."""
    tokenizer = bz.train_wordpiece(TEXTS, 400, progress=False)
    tokenizer.max_length = 32
    config = bz.EncoderConfig(
        vocab_size=tokenizer.vocabulary_size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    directory = tmp_path_factory.mktemp("presets") / "tiny"
    bz.MaskedLM(bz.Encoder(config, pooler=False), tokenizer).save_to_preset(directory)
    return directory


@pytest.fixture(scope="module")
def classifier(preset, tmp_path_factory):
    """The tiny preset fit by the command on forty reviews, with what the command printed."""
    folder = tmp_path_factory.mktemp("fit")
    write_csv(folder / "reviews.csv", {"Text": TEXTS, "Label": LABELS})
    result = run("fit", folder / "reviews.csv", "--preset", preset, "--out", folder / "model", *FAST, "--seed", 3)
    assert result.exit_code == 0, result.stderr
    return folder / "model", result.stdout


def run(*arguments, text: str | None = None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=text)


def complaint(*arguments, text: str | None = None) -> str:
    """The one line on stderr of a command that must fail."""
    result = run(*arguments, text=text)
    assert result.exit_code == 1, (result.stdout, result.stderr)
    assert result.stderr.startswith("bertzoo: ") and result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def write_csv(path, columns: dict, delimiter: str = ",") -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([list(columns), *zip(*columns.values())])


# ---- the program as a whole


@pytest.mark.once
def test_help_and_version_import_no_keras():
    code = (
        "import sys; from bertzoo.cli.main import app; app(['-h'], standalone_mode=False); "
        "print('keras' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "quickstart" in out and out.strip().endswith("False")
    assert run("--version").stdout == f"bertzoo {bz.__version__}\n"


@pytest.mark.slow
@pytest.mark.once
def test_a_missing_backend_is_a_sentence(tmp_path):
    code = (
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name in ('jax', 'torch', 'tensorflow') else real(name, *rest)\n"
        "from bertzoo.cli.main import main; main()"
    )
    for extra in ([], ["--backend", "torch"]):
        command = [sys.executable, "-c", code, "quickstart", "--out", str(tmp_path / "out"), *extra]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1 and re.search(r"pip install (jax|torch)\b", done.stderr)
        assert "Traceback" not in done.stderr


@pytest.mark.once
def test_ctrl_c_leaves_a_line_and_no_model(preset, tmp_path):
    # A shell that starts the tests in the background has them ignore the signal.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from bertzoo.cli.main import main; main()"
    )
    command = [sys.executable, "-u", "-c", code, "quickstart", "--preset", str(preset), "--out", str(tmp_path / "out")]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "Loading Keras" in running.stdout.readline()
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=120)
    assert (running.returncode, said) == (1, "bertzoo: stopped.\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.once
def test_wrong_usage_exits_with_two():
    assert run("fit").exit_code == 2
    assert run("quickstart", "--backend", "abacus").exit_code == 2


def test_debug_shows_the_error_itself(tmp_path):
    result = run("predict", tmp_path / "none", "a text", "--debug")
    assert isinstance(result.exception, ValueError)


@pytest.mark.once
@pytest.mark.parametrize(
    "error, said",
    [
        (KeyboardInterrupt(), "bertzoo: stopped.\n"),
        (KeyError("x"), "bertzoo: unexpected KeyError: 'x' (run it again with --debug to see where)\n"),
        (FileNotFoundError(2, "No such file or directory", "a.csv"), "bertzoo: a.csv: No such file or directory.\n"),
        (ValueError("two\n  lines"), "bertzoo: two lines\n"),
    ],
)
def test_errors_become_one_line(error, said, capsys):
    with pytest.raises(Exception) as caught, report_errors_and_exit():
        raise error
    assert caught.value.exit_code == 1
    assert capsys.readouterr().err == said


# ---- fit


@pytest.mark.once
@pytest.mark.parametrize(
    "name, content, said",
    [
        ("a.csv", b"text,label\n", "holds no rows"),
        ("a.csv", b"", "holds no rows"),
        ("a.csv", "text,label\ncaf\u00e9,x\n".encode("latin-1"), "byte 0xe9 after b'text,label\\ncaf'"),
        ("a.csv", b"text,label\na,b,c\n", "line 2: 3 cells; the header has 2"),
        ("a.csv", b"text,text\na,b\n", "two columns with the same name"),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', "line 2: expected a JSON object. Received"),
        ("a.jsonl", b"[1]\n", "line 1: expected a JSON object. Received: '[1]'"),
        ("a.xlsx", b"PK", "must be a .csv, .tsv, .jsonl, .ndjson, .parquet or .txt file"),
    ],
)
def test_a_broken_table_is_told_of(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    assert said in complaint("fit", tmp_path / name, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_fit_reports_and_saves_a_classifier_that_transformers_loads(classifier):
    from transformers import AutoModelForSequenceClassification

    model, printed = classifier
    assert (
        "text from column 'Text', label from column 'Label'" in printed
        and "36 rows to learn from, 4 held out" in printed
    )
    assert "precision" in printed and "Confusion" in printed
    assert AutoModelForSequenceClassification.from_pretrained(model).config.id2label == {0: "negative", 1: "positive"}


@pytest.mark.once
def test_fit_learns_from_few_texts(preset, tmp_path):
    write_csv(tmp_path / "few.csv", {"Text": TEXTS[:8], "Label": LABELS[:8]})
    write_csv(tmp_path / "dev.csv", {"Text": TEXTS[8:], "Label": LABELS[8:]})
    options = ["--preset", preset, "--few-shot", "--dev", tmp_path / "dev.csv", "--learning-rate", 1e-3]
    result = run("fit", tmp_path / "few.csv", "--out", tmp_path / "model", *options)
    assert result.exit_code == 0, result.stderr
    shown = run("predict", tmp_path / "model", TEXTS[0])
    assert shown.exit_code == 0, shown.stderr
    answer = bz.TextClassifier.from_preset(tmp_path / "model", verbose=False).classify(TEXTS[0])
    assert f"{answer['label']},{answer['score']:.4f}" in shown.stdout
    (tmp_path / "words.conll").write_text("a\tO\n\nb\tO\n")
    said = complaint("fit", tmp_path / "words.conll", "--out", tmp_path / "m", "--few-shot")
    assert "--few-shot is for tables of labelled texts" in said


@pytest.mark.once
def test_fit_takes_pairs_numbers_and_a_dev_file(preset, tmp_path):
    columns = {"sentence1": TEXTS[:20], "sentence2": TEXTS[20:], "score": [f"{i / 4}" for i in range(20)]}
    write_csv(tmp_path / "train.tsv", columns, "\t")
    write_csv(tmp_path / "dev.csv", {name: values[:6] for name, values in columns.items()})
    result = run(
        "fit",
        tmp_path / "train.tsv",
        "--dev",
        tmp_path / "dev.csv",
        "--preset",
        preset,
        "--out",
        tmp_path / "model",
        *FAST,
        "--learning-rate",
        1e-3,
        "--max-length",
        16,
    )
    assert result.exit_code == 0, result.stderr
    assert (
        "text from column 'sentence1', second text from column 'sentence2'" in result.stdout
        and "Spearman" in result.stdout
    )
    assert json.loads((tmp_path / "model" / "config.json").read_text())["problem_type"] == "regression"
    out = run("predict", tmp_path / "model", "--file", tmp_path / "dev.csv").stdout
    rows = list(csv.DictReader(out.splitlines()))
    assert [row["pair"] for row in rows] == TEXTS[20:26] and all(np.isfinite(float(row["value"])) for row in rows)


@pytest.mark.once
@pytest.mark.parametrize(
    "columns, options, said",
    [
        ({"words": ["a", "b"], "label": ["x", "y"]}, [], "name the column with --text"),
        ({"text": ["a", "b"], "kind": ["x", "y"]}, [], "name the column of labels with --label"),
        ({"text": ["a", "b"], "kind": ["x", "y"]}, ["--label", "sort"], "has no column 'sort'; it has text, kind"),
        ({"text": ["a", "b"], "label": ["x", "y"]}, ["--pair", "text"], "must be different columns"),
        ({"text": ["a", "b"], "label": ["x", "x"]}, [], "all 2 rows have the label 'x'"),
        ({"text": [" ", "b"], "label": ["x", ""]}, [], "no row has text and label"),
        ({"text": ["a", "b"], "label": ["x", "y"]}, [], "too few to hold some out"),
        ({"text": ["a"] * 60, "label": [f"id-{i}" for i in range(60)]}, [], "that is not a set of classes"),
        ({"text": ["a"] * 9, "label": list("xyxyxyxyx")}, ["--learning-rate", "-1"], "must be above 0"),
        ({"text": ["a"] * 9, "label": list("xyxyxyxyx")}, ["--preset", "no_such"], "There is no preset 'no_such'"),
    ],
)
def test_fit_says_what_is_wrong_with_the_data(tmp_path, columns, options, said):
    write_csv(tmp_path / "data.csv", columns)
    assert said in complaint("fit", tmp_path / "data.csv", "--out", tmp_path / "out", *options)


@pytest.mark.once
def test_fit_refuses_labels_of_the_dev_file_that_it_has_not_learnt(tmp_path):
    write_csv(tmp_path / "train.csv", {"text": list("abc"), "label": list("xyx")})
    write_csv(tmp_path / "dev.csv", {"text": list("ab"), "label": list("xz")})
    assert "has the label 'z'" in complaint(
        "fit", tmp_path / "train.csv", "--dev", tmp_path / "dev.csv", "--out", tmp_path / "out"
    )


@pytest.mark.once
def test_no_command_saves_over_what_is_no_preset(tmp_path, preset):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to_my_aunt.txt").write_text("Dear aunt")
    (tmp_path / "file").write_text("")
    for command in (["quickstart", "--out"], ["fit", "x.csv", "--out"], ["convert", preset]):
        assert "is not empty and holds no preset" in complaint(*command, tmp_path / "letters")
        assert "is a file" in complaint(*command, tmp_path / "file")
        assert "Not a directory" in complaint(*command, tmp_path / "file" / "below")
    assert "is the source itself" in complaint("convert", preset, preset)


# ---- predict, embed, convert


def test_predict_gives_labels_from_arguments_files_and_standard_input(classifier, tmp_path):
    model, _ = classifier
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:3]) + "\n")
    answers = [run("predict", model, *TEXTS[:3]), run("predict", model, "-", text="\n".join(TEXTS[:3]))]
    to_file = run("predict", model, "--file", tmp_path / "texts.txt", "--out", tmp_path / "out.csv")
    assert all(answer.exit_code == 0 for answer in [*answers, to_file]), answers[0].stderr
    assert answers[0].stdout == answers[1].stdout == (tmp_path / "out.csv").read_text()
    rows = list(csv.DictReader(answers[0].stdout.splitlines()))
    expected = bz.TextClassifier.from_preset(model, verbose=False).classify(TEXTS[:3])
    assert [(row["text"], row["label"]) for row in rows] == [(t, e["label"]) for t, e in zip(TEXTS, expected)]
    np.testing.assert_allclose([float(row["probability"]) for row in rows], [e["score"] for e in expected], atol=1e-4)


def test_predict_says_what_is_wrong(classifier, preset, tmp_path):
    model, _ = classifier
    encoder = bz.Encoder.from_preset(preset, pooler=False, verbose=False)
    encoder.save_to_preset(tmp_path / "encoder", bz.Tokenizer.from_directory(preset))
    assert "is not a trained classifier: it lacks classifier" in complaint("predict", tmp_path / "encoder", "a text")
    assert "one of both" in complaint("predict", model)
    assert "one of both" in complaint("predict", model, "a", "--file", tmp_path / "b.txt")
    assert "No such file" in complaint("predict", model, "--file", tmp_path / "b.txt")
    assert "holds no rows" in complaint("predict", model, "-", text="\n\n")
    assert "must end in .csv" in complaint("predict", model, "a", "--out", tmp_path / "out.json")
    assert "there is no directory" in complaint("predict", model, "a", "--out", tmp_path / "none" / "out.csv")
    (tmp_path / "gaps.csv").write_text("text,more\na,1\n,2\n")
    assert "1 of 2 rows have no text" in complaint("predict", model, "--file", tmp_path / "gaps.csv")


def test_predict_fills_masks(preset):
    text = "The [MASK] is very [MASK]."
    result = run("predict", preset, text, "Good [MASK].", "--top-k", 3)
    assert result.exit_code == 0, result.stderr
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert [(row["text"], row["mask"]) for row in rows[::3]] == [("1", "1"), ("1", "2"), ("2", "1")]
    model = bz.MaskedLM.from_preset(preset, verbose=False)
    expected = [guess for gap in model.fill_mask(text, top_k=3) for guess in gap]
    assert [row["word"] for row in rows[:6]] == [guess["token"] for guess in expected]
    np.testing.assert_allclose(
        [float(row["probability"]) for row in rows[:6]], [g["score"] for g in expected], atol=1e-4
    )
    assert "there is no [MASK]" in complaint("predict", preset, "No gap.")


def test_embed_averages_real_tokens_as_transformers_gives_them(preset, tmp_path):
    import torch
    from transformers import AutoModel, AutoTokenizer

    texts = [*TEXTS[:5], "Short."]
    assert run("embed", preset, *texts, "--out", tmp_path / "v.npy", "--batch-size", 4).exit_code == 0
    vectors = np.load(tmp_path / "v.npy")
    assert vectors.dtype == np.float32 and vectors.shape == (6, 16)
    tokenizer, model = AutoTokenizer.from_pretrained(preset), AutoModel.from_pretrained(preset).eval()
    for text, vector in zip(texts, vectors):
        with torch.no_grad():
            expected = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0).numpy()
        np.testing.assert_allclose(vector, expected, atol=1e-5)
    assert "1.00" in run("embed", preset, *texts[:2]).stdout
    assert "give 2 to 10 texts" in complaint("embed", preset, "one")


@pytest.mark.once
def test_convert_keeps_weights_tokenizer_and_head(preset, classifier, tmp_path):
    from transformers import AutoModel, BertModel

    for source in (preset, classifier[0]):
        result = run("convert", source, tmp_path / "copy")
        assert result.exit_code == 0 and "tensors loaded" in result.stdout, result.stderr
        before, after = (json.loads((path / "config.json").read_text()) for path in (source, tmp_path / "copy"))
        assert before["architectures"] == after["architectures"]
        assert (tmp_path / "copy" / "model.safetensors").read_bytes() == (source / "model.safetensors").read_bytes()
        assert (tmp_path / "copy" / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    # A bare encoder in PyTorch's format, as transformers wrote it.
    bare = tmp_path / "bare"
    BertModel.from_pretrained(preset, add_pooling_layer=False).save_pretrained(bare)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (bare / name).write_bytes((preset / name).read_bytes())
    assert run("convert", bare, tmp_path / "encoder").exit_code == 0
    _, info = AutoModel.from_pretrained(tmp_path / "encoder", add_pooling_layer=False, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]


@pytest.mark.once
def test_convert_refuses_a_head_that_the_file_lacks(preset, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in preset.iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    content = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps({**content, "architectures": ["BertForSequenceClassification"]}))
    assert "lacks classifier" in complaint("convert", broken, tmp_path / "out")
    (broken / "config.json").write_text("{")
    assert "config.json" in complaint("convert", broken, tmp_path / "out")


def test_parts_of_embed_give_the_bytes_of_one_call(preset, tmp_path, monkeypatch):
    monkeypatch.setattr(vector_blocks, "BLOCK_ROWS", 8)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:35]) + "\n")

    def embed(out, *more):
        arguments = ("embed", preset, "--file", tmp_path / "texts.txt", "--out", tmp_path / out, "--batch-size", 4)
        result = run(*arguments, *more)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    assert "35 vectors of 16 numbers" in embed("whole.npy")
    whole = np.load(tmp_path / "whole.npy")
    encoder = bz.SentenceEncoder.from_preset(preset, verbose=False)
    np.testing.assert_allclose(whole, encoder.encode(TEXTS[:35]), atol=1e-5)
    for total in (1, 2, 3):
        for number in reversed(range(1, total + 1)):
            assert f"part {number}/{total} is in" in embed("joined.npy", "--part", f"{number}/{total}")
        with monkeypatch.context() as patch:  # nothing is left to compute
            patch.setattr(vector_blocks.VectorBlocks, "compute", lambda *_: 1 / 0)
            embed("joined.npy")
        assert (tmp_path / "joined.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
        assert not (tmp_path / "joined.npy.parts").exists()


@pytest.mark.once
def test_embed_resumes_where_it_was_killed_and_refuses_other_settings(preset, tmp_path, monkeypatch):
    monkeypatch.setattr(vector_blocks, "BLOCK_ROWS", 8)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:35]) + "\n")
    command = ("embed", preset, "--file", tmp_path / "texts.txt", "--out", tmp_path / "v.npy")
    assert "unknown" in complaint(*command, "--prompt-name", "unknown")
    assert run(*command, "--part", "1/2").exit_code == 0
    folder = tmp_path / "v.npy.parts"
    times = {path.name: path.stat().st_mtime_ns for path in folder.glob("0*")}
    assert list(times) and len(times) == 3  # rows 0, 16 and 32
    (folder / ".000000000008.npy.1.part").write_bytes(b"killed")
    assert "Received: another normalize" in complaint(*command, "--normalize")
    assert run(*command, "--part", "2/3").exit_code == 0  # rows 8 and 32
    assert {path.name: path.stat().st_mtime_ns for path in folder.glob("0*")}.items() >= times.items()
    assert run(*command).exit_code == 0
    assert run(*command[:-1], tmp_path / "whole.npy").exit_code == 0
    assert (tmp_path / "v.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert "--part needs the file" in complaint("embed", preset, "a", "b", "--part", "1/2")


# ---- list, course, prepare and pretrain, quickstart


@pytest.mark.once
def test_list_shows_what_transformers_counts(preset, monkeypatch):
    from transformers import AutoModelForMaskedLM

    from bertzoo.checkpoints import files
    from bertzoo.cli import presets

    for module in (files, presets):
        monkeypatch.setattr(module, "bundled_presets_directory", lambda: preset.parent)
    shown = run("list").stdout
    count = AutoModelForMaskedLM.from_pretrained(preset).num_parameters()
    assert "tiny" in shown and f"{count / 1e6:.1f} M" in shown and "MaskedLM" in shown
    monkeypatch.setattr(files, "bundled_presets_directory", lambda: preset / "none")
    assert "no bundled presets" in complaint("list")


@pytest.mark.once
def test_course_copies_and_overwrites_nothing(tmp_path, monkeypatch):
    source = tmp_path / "source"
    (source / "img" / "__pycache__").mkdir(parents=True)
    for name in ("01_first.ipynb", "img/a.svg", "img/__pycache__/x.pyc", ".hidden"):
        (source / name).write_text(name)
    monkeypatch.setattr(course, "bundled_directory", lambda name: source)
    assert run("course", tmp_path / "mine").exit_code == 0
    copied = sorted(path.name for path in (tmp_path / "mine").rglob("*") if path.is_file())
    assert copied == ["01_first.ipynb", "a.svg"] and (tmp_path / "mine" / "img" / "a.svg").is_file()
    (tmp_path / "mine" / "01_first.ipynb").write_text("my notes")
    assert "has 01_first.ipynb, img/a.svg already" in complaint("course", tmp_path / "mine")
    assert (tmp_path / "mine" / "01_first.ipynb").read_text() == "my notes"


def write_notebook(path, *sources: str) -> None:
    heading = {"cell_type": "markdown", "source": ["[badge]\n", "\n", "# 01 · Why bidirectional\n", "More."]}
    cells = [{"cell_type": "code", "source": source.splitlines(keepends=True)} for source in sources]
    path.write_text(json.dumps({"cells": [heading, *cells]}), encoding="utf-8")


@pytest.mark.once
def test_course_without_a_directory_lists_notebooks(tmp_path, monkeypatch):
    write_notebook(tmp_path / "01_first.ipynb", "# not a heading")
    monkeypatch.setattr(course, "bundled_directory", lambda name: tmp_path)
    shown = run("course").stdout
    assert shown.startswith("01 · Why bidirectional\n\n") and str(tmp_path / "README.md") in shown
    assert "not a heading" not in shown


CHECK = 'check.ex("01.1", prefix_mask)'
STUB = "# Exercise 01.1\ndef prefix_mask(length, prefix):\n    raise NotImplementedError\n"
RIGHT = """
# mine
# Exercise 01.1
print("noise")
def prefix_mask(length, prefix):
    return np.tril(np.ones((length, length), bool)) | (np.arange(length) < prefix)
def helper_below(): ...
"""


@pytest.mark.once
@pytest.mark.parametrize(
    ("cell", "said"),
    [
        (RIGHT, "passed"),
        ("%matplotlib inline\n!ls\n" + RIGHT, "passed"),
        (STUB, "to do"),
        (RIGHT.replace("tril", "triu"), "not yet: prefix_mask(4, 2): "),
        (RIGHT + "raise KeyError(3)", "not yet: the cell raised KeyError: 3, in line 8 of the cell: raise KeyError(3)"),
        (RIGHT + "def x(:", "not yet: the cell raised SyntaxError: "),
        (RIGHT + "raise SystemExit(0)", "not yet: the cell raised SystemExit: 0"),
        (STUB.replace("prefix_mask", "another"), "not yet: the cell defines no function prefix_mask"),
        (RIGHT.replace("# Exercise", "#"), "not yet: no cell has the line # Exercise 01.1"),
    ],
)
def test_course_grades_a_copy(tmp_path, cell, said):
    """The solution further down, and cells that are no exercise, do not run."""
    write_notebook(tmp_path / "01_mine.ipynb", "raise OSError", cell, CHECK, RIGHT.replace("Exercise", "Solution"))
    result = run("course", tmp_path, "--check", "1")
    assert result.stdout.startswith(f"01.1: {said}") and len(result.stdout.splitlines()) == 1, result
    assert result.exit_code == int(said != "passed")


@pytest.mark.slow
@pytest.mark.once
def test_course_grades_all_notebooks_and_counts(tmp_path):
    write_notebook(tmp_path / "01_mine.ipynb", RIGHT, CHECK)
    for number, name in (("02", "longest_piece"), ("03", "attention_weights")):
        stub = f"# Exercise {number}.1\ndef {name}(*_):\n    raise NotImplementedError\n"
        write_notebook(tmp_path / f"{number}_mine.ipynb", stub, f'check.ex("{number}.1", {name})')
    (tmp_path / "03_mine.ipynb").write_text("{")
    result = run("course", tmp_path, "--check", "all")
    first, second, third, summary = result.stdout.splitlines()
    assert result.exit_code == 1 and (first, second) == ("01.1: passed", "02.1: to do")
    assert third.startswith("03: not yet: ") and "could not be graded" in third
    assert summary == "1 of 3 exercises passed, 1 to do, 1 not yet right."
    for name in ("02", "03"):
        (tmp_path / f"{name}_mine.ipynb").unlink()
    result = run("course", tmp_path, "--check", "all")
    assert result.exit_code == 0 and result.stdout.endswith("1 of 1 exercises passed, 0 to do, 0 not yet right.\n")
    (tmp_path / "01_mine.ipynb").unlink()
    assert "`bertzoo course DIRECTORY` copies them" in complaint("course", tmp_path, "--check", "all")


@pytest.mark.slow
@pytest.mark.once
def test_course_grading_says_what_keeps_it_from_a_verdict(tmp_path, monkeypatch):
    write_notebook(tmp_path / "01_mine.ipynb", RIGHT + "while True: ...", CHECK)
    assert "has no notebook '07'; there are: 01." in complaint("course", tmp_path, "--check", "07")
    monkeypatch.setenv("BERTZOO_GRADING_SECONDS", "2")
    assert "no verdict within 2 s" in complaint("course", tmp_path, "--check", "01")
    monkeypatch.setenv("BERTZOO_GRADING_SECONDS", "60")
    write_notebook(tmp_path / "01_mine.ipynb", RIGHT + "import os\nos._exit(7)", CHECK)
    assert "could not be graded: exit status 7" in complaint("course", tmp_path, "--check", "01")
    (tmp_path / "01_mine.ipynb").write_text("{")
    assert "could not be graded: json.decoder.JSONDecodeError" in complaint("course", tmp_path, "--check", "01")


@pytest.mark.slow
@pytest.mark.once  # the program runs on each backend in pretraining/test_program.py
def test_prepare_and_pretrain_make_a_model_from_text(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n\n".join(TEXTS))
    assert run("prepare", corpus, "--out", tmp_path / "a", "--vocabulary-size", 200).exit_code == 0
    assert run("prepare", corpus, "--out", tmp_path / "b", "--tokenizer", tmp_path / "a").exit_code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "a" / "tokens.npy"), np.load(tmp_path / "b" / "tokens.npy"))
    parts = ("prepare", corpus, "--out", tmp_path / "joined", "--tokenizer", tmp_path / "a")
    for part in ("2/2", "1/2"):
        assert f"part {part} is in" in run(*parts, "--part", part).stdout
    assert "need one vocabulary" in complaint(*parts[:4])
    assert run(*parts).exit_code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "a" / "tokens.npy"), np.load(tmp_path / "joined" / "tokens.npy"))
    assert "Received: '3/2'" in complaint(*parts, "--part", "3/2")
    config = tmp_path / "run.toml"
    config.write_text(
        "[encoder]\nhidden_size = 16\nnum_hidden_layers = 1\nnum_attention_heads = 2\nintermediate_size = 32\n"
        "[training]\nsteps = 3\nlearning_rate = 1e-3\n[[batches]]\nlength = 16\nbatch_size = 8\n"
    )
    arguments = ("pretrain", config, "--corpus", tmp_path / "a", "--out", tmp_path / "model")
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    assert "3 steps, 384 tokens" in result.stdout
    assert json.loads((tmp_path / "model" / "config.json").read_text())["architectures"] == ["BertForMaskedLM"]
    assert "is not a corpus" in complaint(*arguments, "--held-out", tmp_path)
    config.write_text("[encoder]\n")
    assert "lacks training, batches" in complaint(*arguments)
    both = ("--vocabulary-size", 200, "--tokenizer", tmp_path / "a")
    assert "not both" in complaint("prepare", corpus, "--out", tmp_path / "c", *both)
    assert "No such file" in complaint("prepare", tmp_path / "none.txt", "--out", tmp_path / "c")


def test_quickstart_runs_to_its_end(preset, tmp_path, monkeypatch):
    monkeypatch.setattr(quickstart, "EPOCHS", 1)
    test = [column[:35] for column in SAMPLE]
    monkeypatch.setattr(quickstart, "load_reviews", lambda split: SAMPLE if split == "train" else test)
    result = run("quickstart", "--preset", preset, "--out", tmp_path / "first")
    assert result.exit_code == 0, result.stderr
    assert f"bertzoo predict {tmp_path / 'first'}" in result.stdout
    config = json.loads((tmp_path / "first" / "config.json").read_text())
    assert config["id2label"] == {"0": "negative", "1": "positive"}
    weights = (tmp_path / "first" / "model.safetensors").read_bytes()
    assert "exists already: name another directory" in complaint("quickstart", "--out", tmp_path / "first")
    assert (tmp_path / "first" / "model.safetensors").read_bytes() == weights
