"""The rules that every notebook of the course keeps, its exercises and its quizzes. No kernel is started here."""

import json
import os
import re
import shutil
import stat
from pathlib import Path

import check
import grading
import nbformat
import numpy as np
import pytest
import refresh

pytestmark = pytest.mark.once
COURSE = Path(__file__).resolve().parents[1] / "course"
WRONG = Path(__file__).resolve().parent / "course"
NOTEBOOKS = sorted(COURSE.glob("[0-9][0-9]_*.ipynb"))
EXERCISE = re.compile(r"# (Exercise|Solution) (\d\d\.\d+)\n")


QUIZZES = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(COURSE.glob("quizzes/[0-9][0-9].json"))
}
INTERVIEW = json.loads((COURSE / "quizzes/interview.json").read_text(encoding="utf-8"))


def read(path: Path):
    return nbformat.read(path, as_version=4)


def code_cells(path: Path) -> list:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def markdown(path: Path) -> str:
    return "\n\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")


def tags(cell) -> list[str]:
    return cell.metadata.get("tags", [])


def functions(source: str) -> list:
    """The functions that a piece of code defines, in order, given NumPy."""
    namespace = {"np": np}
    exec(source, namespace)
    return [value for name, value in namespace.items() if callable(value) and not name.startswith("_")]


def answer(number: str, kind: str):
    """The `Exercise` or the `Solution` of a number: the last function of its cell, or the file it is a part of."""
    if number[:2] in check.FILES:
        return check.load(COURSE / ("solutions" if kind == "Solution" else "") / check.FILES[number[:2]])
    return functions(exercise_cells(kind)[number])[-1]


def exercise_cells(kind: str) -> dict:
    """Number of the exercise -> the source of its cell, of kind `Exercise` or `Solution`, over all notebooks."""
    cells = {}
    for path in NOTEBOOKS:
        for cell in code_cells(path):
            match = EXERCISE.match(cell.source)
            if match and match[1] == kind:
                assert kind.lower() in tags(cell), f"{path.name}: {match[0].strip()} lacks the tag {kind.lower()}"
                assert match[2] not in cells and match[2].startswith(path.name[:2])
                cells[match[2]] = cell.source
    return cells


notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
exercises = pytest.mark.parametrize("number", check.numbers())
cells_exercises = pytest.mark.parametrize("number", [n for n in check.numbers() if n[:2] not in check.FILES])


def test_notebooks_are_numbered_without_a_gap():
    assert NOTEBOOKS
    assert [path.name[:2] for path in NOTEBOOKS] == [f"{number:02d}" for number in range(1, len(NOTEBOOKS) + 1)]


@notebooks
def test_every_cell_was_executed_in_order(path):
    counts = [cell.execution_count for cell in code_cells(path)]
    assert counts == list(range(1, len(counts) + 1)), "run course/refresh.py"


@notebooks
def test_stored_outputs_can_be_compared(path):
    assert refresh.faults(read(path)) == []
    for cell in code_cells(path):
        assert (
            len(
                json.dumps(
                    [
                        {**o, "data": {k: v for k, v in o.get("data", {}).items() if k != "image/png"}}
                        for o in cell.outputs
                    ]
                )
            )
            < 10_000
        )
        for output in cell.outputs:
            assert output.output_type in ("stream", "display_data"), "end the cell with print or plt.show()"
            assert set(output.get("data", {})) <= {"text/plain", "image/png"}
    assert sum("nbval-ignore-output" in tags(cell) for cell in code_cells(path)) <= 2
    assert not any(re.search(r"^#\s*NBVAL", cell.source, re.M) for cell in code_cells(path)), "use tags"


@notebooks
def test_metadata_are_those_that_refresh_leaves(path):
    notebook = read(path)
    before = nbformat.writes(notebook)
    refresh.clean(notebook)
    assert nbformat.writes(notebook) == before
    assert notebook.metadata.kernelspec.name == "python3"


@notebooks
def test_pictures_are_small(path):
    sizes = [len(o["data"]["image/png"]) for cell in code_cells(path) for o in cell.outputs if "data" in o]
    assert sum(sizes) < 600_000


@notebooks
def test_size_and_shape(path):
    cells, text = code_cells(path), markdown(path)
    assert max(len(cell.source.splitlines()) for cell in cells) <= 25
    assert 15 <= len(cells) <= 30
    assert 1500 <= len(text.split()) <= 2500
    assert "import bertzoo" in cells[0].source
    headings = re.findall(r"^## (\w+)", text, re.M)
    assert headings == [
        "Question",
        "Predict",
        "Build",
        "Experiment",
        "Check",
        "What",
        "Exercise",
        "Solution",
        "Same",
        "Quiz",
        "What",
    ]
    assert any("assert " in cell.source for cell in cells)
    assert "**Cost:**" in text and "**You need:**" in text


@notebooks
def test_links_lead_to_files_and_to_places_of_this_project(path):
    """A badge and a line that installs are there if pyproject.toml names the repository, and lead to it."""
    notebook = read(path)
    before = nbformat.writes(notebook)
    refresh.place(notebook, path.name, refresh.address())
    assert nbformat.writes(notebook) == before, "run course/refresh.py"
    assert_links_exist(markdown(path))


def test_badge_and_installation_follow_the_address_of_the_repository(tmp_path):
    pyproject = tmp_path / "pyproject.toml"
    assert refresh.address(pyproject) is None
    pyproject.write_text('[project]\nname = "a"\n')
    assert refresh.address(pyproject) is None
    pyproject.write_text('[project.urls]\nRepository = "https://github.com/owner/a.b.git"\n')
    address = refresh.address(pyproject)
    assert address == "https://github.com/owner/a.b"
    name = NOTEBOOKS[0].name
    notebook = read(NOTEBOOKS[0])
    refresh.place(notebook, name, None)
    without = nbformat.writes(notebook)
    assert "colab" not in without and "%pip" not in without
    refresh.place(notebook, name, address)
    refresh.place(notebook, name, address)
    text = notebook.cells[0].source
    assert text.count(f"](https://colab.research.google.com/github/owner/a.b/blob/main/course/{name})") == 1
    lines = next(cell for cell in notebook.cells if cell.cell_type == "code").source.splitlines()
    assert lines.index(f"    %pip install --quiet git+{address}") < lines.index(
        "import bertzoo as bz  # first: it chooses an installed backend before Keras is loaded"
    )
    refresh.place(notebook, name, None)
    assert nbformat.writes(notebook) == without


def test_start_page_has_the_map():
    text = (COURSE / "README.md").read_text(encoding="utf-8")
    assert_links_exist(text)
    rows = re.findall(r"^\| (\d\d) \| (.*?) \|", text, re.M)
    assert [number for number, _ in rows] == [f"{number:02d}" for number in range(1, len(NOTEBOOKS) + 1)]
    linked = [name for _, cell in rows for name in re.findall(r"\((.*?\.ipynb)\)", cell)]
    assert linked == [path.name for path in NOTEBOOKS]


def assert_links_exist(text: str) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", text):
        assert (COURSE / target).exists(), target


def test_every_exercise_of_a_notebook_is_checked_and_solved():
    in_cells = [number for number in check.numbers() if number[:2] not in check.FILES]
    assert sorted(exercise_cells("Exercise")) == sorted(exercise_cells("Solution")) == in_cells
    for path in NOTEBOOKS:
        assert any(number.startswith(path.name[:2]) for number in check.numbers())


@exercises
def test_stub_is_to_do(number):
    assert check.verdict(number, answer(number, "Exercise")) == "to do"


@exercises
def test_solution_passes(number):
    assert check.verdict(number, answer(number, "Solution")) == "passed"


@notebooks
def test_grading_finds_every_exercise(path, tmp_path):
    """`bertzoo course --check` on the notebook as it stands, and with the solution in each exercise's cell."""
    answers = exercise_cells("Solution")
    numbers = [number for number in check.numbers() if number.startswith(path.name[:2])]
    assert grading.verdicts(path) == dict.fromkeys(numbers, "to do")
    notebook = read(path)
    for cell in notebook.cells:
        match = EXERCISE.match(cell.source)
        if match and match[1] == "Exercise":
            cell.source = answers[match[2]].replace("# Solution", "# Exercise")
    nbformat.write(notebook, tmp_path / path.name)
    if path.name[:2] in check.FILES:
        file = check.FILES[path.name[:2]]
        shutil.copy(COURSE / "solutions" / file, tmp_path / file)
    assert grading.verdicts(tmp_path / path.name) == dict.fromkeys(numbers, "passed")


@cells_exercises  # tests/course/test_capstone.py has the files'
def test_wrong_answers_get_a_hint(number):
    source = (WRONG / f"wrong_{number.replace('.', '_')}.py").read_text(encoding="utf-8")
    wrong = functions(source)
    assert len(wrong) >= 2
    verdicts = {function.__name__: check.verdict(number, function) for function in wrong}
    assert all(verdict.startswith("not yet: ") for verdict in verdicts.values()), verdicts
    assert not any("it raised" in verdict for verdict in verdicts.values()), verdicts


def test_an_answer_that_raises_gets_a_hint():
    def answer(length, prefix):
        raise IndexError("out of range")

    said = check.verdict("01.1", answer)
    line = answer.__code__.co_firstlineno + 1
    assert said.startswith(f"not yet: it raised IndexError: out of range, in line {line} of the cell: raise Index")


def test_unknown_exercises_and_quizzes_are_named(capsys):
    with pytest.raises(ValueError, match=r"no exercise '99.1'; there are 01.1"):
        check.verdict("99.1", print)
    check.quiz("99")
    assert "no quiz '99'; there are 01" in capsys.readouterr().out
    check.quiz("01", "abc")
    assert capsys.readouterr().out == "There are 5 questions; give one answer to each, ? for none. Received: 3.\n"


def test_every_notebook_has_a_quiz_of_five():
    assert sorted(QUIZZES) == [path.name[:2] for path in NOTEBOOKS]
    assert all(len(questions) == 5 for questions in QUIZZES.values())


@pytest.mark.parametrize("notebook", sorted(QUIZZES))
def test_quiz_has_one_right_answer_and_explains_every_choice(notebook):
    assert all(set(question) == {"question", "choices"} for question in QUIZZES[notebook])
    places = [right_place(question) for question in QUIZZES[notebook]]
    assert len(set(places)) >= 3, "the right letter must not be guessable"


def right_place(question: dict) -> int:
    """Where the one right choice stands, in a question that keeps the rules."""
    assert question["question"].endswith("?") and 3 <= len(question["choices"]) <= 5
    for choice in question["choices"]:
        assert set(choice) <= {"text", "why", "right"} and choice["text"] and len(choice["why"].split()) >= 5
    assert len({choice["text"] for choice in question["choices"]}) == len(question["choices"])
    right = [place for place, choice in enumerate(question["choices"]) if choice.get("right")]
    assert len(right) == 1
    return right[0]


def test_interview_asks_sixty_questions_about_all_notebooks():
    assert len(INTERVIEW) >= 60
    assert len({question["question"] for question in INTERVIEW}) == len(INTERVIEW)
    tagged = [question["notebook"] for question in INTERVIEW]
    assert tagged == sorted(tagged) and set(tagged) == {path.name[:2] for path in NOTEBOOKS}
    assert min(tagged.count(notebook) for notebook in tagged) >= 3


def test_interview_explains_every_choice():
    chosen = [question for question in INTERVIEW if "choices" in question]
    assert all(set(question) == {"notebook", "question", "choices"} for question in chosen)
    places = [right_place(question) for question in chosen]
    assert max(places.count(place) for place in range(3)) < 0.45 * len(places)


def recomputed() -> dict:
    """The numeric answers of the interview, each from the library, by trying all cases, or from the definition."""
    import bertzoo as bz
    from bertzoo.analysis.parameters import count_parameters_by_part
    from bertzoo.metrics.squad import answer_f1
    from bertzoo.models.distilbert import DistilBertConfig

    rng, base = np.random.default_rng(0), count_parameters_by_part(bz.EncoderConfig())
    bert = sum(base.values())
    queries, keys = rng.normal(size=(2, 100_000, 64))
    attended = np.eye(2) / 2 + np.array([[0.5, 0.5], [0.2, 0.8]]) / 2
    near = np.abs(np.subtract.outer(np.arange(60), np.arange(60))) <= 3
    moment = 0.1 * 250 / (1 - 0.9), 0.001 * 250**2 / (1 - 0.999)  # each divided by its correction
    begins = [begin for begin in range(0, 1000, 200) if begin == 0 or begin + 100 < 1000]
    precision, recall = 3 / 5, 3 / 4
    stages, pieces, gradients = 8, 24, 100e6 * 4
    return {
        "causal-pairs": np.tril(np.ones((10, 10))).sum(),
        "merge-score": 20 / (40 * 25),
        "bert-base-weights": bert / 1e6,
        "block-weights": base["layer_0"] / 1e6,
        "score-spread": (queries * keys).sum(axis=1).std(),
        "mask-tokens": 10_000 * 0.15 * 0.8,
        "uniform-loss": -np.log(1 / 30_522),
        "adam-first-step": 0.001 * moment[0] / np.sqrt(moment[1]),
        "warm-up-steps": len(range(0, 3200, 16)) * 3 / 10,
        "entity-f1": 2 * precision * recall / (precision + recall),
        "tag-sequences": np.ones([5] * 6).size,
        "windows": len(begins),
        "answer-f1": answer_f1("old green bridge", ["the bridge"]),
        "effective-batch": 8 * 32 * 16,
        "roberta-length": len(range(1 + 1, 514)),
        "factorised-table": (np.empty((30_000, 128)).size + np.empty((128, 768)).size) / 1e6,
        "bert-per-albert": bert / bz.describe("albert/albert-base-v2").parameters,
        "soft-probability": 1 / (1 + np.exp(-2 / 2)),
        "distilbert-share": 100 * sum(count_parameters_by_part(DistilBertConfig()).values()) / bert,
        "replaced-share": 100 * 0.15 * (1 - 0.4),
        "answers-per-row": 1 / 0.15,
        "relative-rows": len(range(2 * 512)),
        "perplexity": np.exp(2.0),
        "cosine": np.dot([3, 4], [4, 3]) / 25,
        "sentence-pairs": np.triu(np.ones((1000, 1000)), 1).sum(),
        "rollout": (attended @ attended)[0, 1],
        "receptive-field": (np.linalg.matrix_power(near, 4)[30] > 0).sum(),
        "band-saving": 4096 / 513,
        "pipeline-idle": 100 * (1 - stages * pieces / (stages * (pieces + stages - 1))),
        "training-state": bz.describe("google-bert/bert-large-uncased").parameters * 16 / 1e9,
        "bert-large-weights": bz.describe("google-bert/bert-large-uncased").parameters / 1e6,
        "global-layers": bz.describe("answerdotai/ModernBERT-base").config.layer_types.count("full_attention"),
        "all-reduce": 2 * (4 - 1) / 4 * gradients / 1e9,
    }


def test_interview_numbers_are_recomputed():
    asked = {question["name"]: question["answer"] for question in INTERVIEW if "answer" in question}
    numbers = [question for question in INTERVIEW if "answer" in question]
    assert all(set(question) == {"notebook", "question", "name", "answer", "why"} for question in numbers)
    assert len(asked) == len(numbers) and all(len(question["why"].split()) >= 5 for question in numbers)
    numbers = recomputed()
    assert sorted(numbers) == sorted(asked)
    wrong = {name: (answer, numbers[name]) for name, answer in asked.items() if abs(answer / numbers[name] - 1) > 5e-3}
    assert not wrong


def test_interview_asks_and_grades(capsys):
    check.interview(seed=1)
    first = capsys.readouterr().out
    assert re.findall(r"^(\d+)\. ", first, re.M) == [f"{number}" for number in range(1, 11)]
    check.interview(seed=2)
    assert capsys.readouterr().out != first
    check.interview("10", "b ? 3.95 nine")
    printed = capsys.readouterr().out
    assert printed.count("You are right.") == 2 and "The answer is 9.37. You said nine." in printed
    assert printed.endswith("\n2 of 4 right, 1 left out\n")
    check.interview("15", "a b 0.96 499,500")
    assert capsys.readouterr().out.endswith("\n4 of 4 right, 0 left out\n")


def test_interview_names_mistakes(capsys):
    check.interview("21")
    assert "no questions on '21'; there are some on 01, 02" in capsys.readouterr().out
    check.interview(answers="a b 1")
    assert "There are 10 questions; give one answer to each, ? for none. Received: 3." in capsys.readouterr().out
    check.quiz("interview")
    assert "no quiz 'interview'; there are 01" in capsys.readouterr().out


def test_quiz_grades(capsys):
    check.quiz("01", "bcad?")
    printed = capsys.readouterr().out
    assert printed.count("You are right.") == 4 and printed.endswith("4 of 5 right, 1 left out\n")
    check.quiz("01", "aaaaa")
    printed = capsys.readouterr().out
    assert "The answer is b. You said a." in printed and printed.endswith("1 of 5 right, 0 left out\n")


def test_quiz_takes_spaces_between_letters(capsys):
    check.quiz("03", "a c b d a")
    spaced = capsys.readouterr().out
    check.quiz("03", "acbda")
    assert capsys.readouterr().out == spaced and spaced.endswith("of 5 right, 0 left out\n")


def test_quiz_keeps_its_answers_for_a_second_try(capsys):
    right = "".join("abcde"[right_place(question)] for question in QUIZZES["03"])
    wrong = ("b" if right[0] == "a" else "a") + right[1:4] + "?"
    check.quiz("03", wrong, reveal=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"1. {wrong[0]}: not right, try again" and lines[1] == f"2. {right[1]}: right"
    assert lines[4:] == ["5. left out", "", "3 of 5 right, 1 left out"]
    check.interview("10", "b ? 3.95 nine", reveal=False)
    printed = capsys.readouterr().out
    assert "4. nine: not right, try again" in printed and "9.37" not in printed


def test_files_that_texts_name_exist():
    """Paths of the package's files in the documents and notebooks."""
    texts = [*COURSE.rglob("*.ipynb"), *COURSE.parent.glob("*.md"), *COURSE.parent.glob("[cdtw]*/**/*.md")]
    named = {
        (text.name, name) for text in texts for name in re.findall(r"\bbertzoo/[\w/]+\.py\b", text.read_text("utf-8"))
    }
    assert len(named) > 30
    lost = [pair for pair in sorted(named) if not (COURSE.parent / pair[1]).is_file()]
    assert [pair for pair in lost if not pair[1].endswith("/NAME.py")] == []  # NAME.py is a guide's


@pytest.mark.parametrize(
    "questions",
    [
        [question for question in INTERVIEW if "choices" in question],
        [question for questions in QUIZZES.values() for question in questions],
    ],
    ids=["interview", "quizzes"],
)
def test_the_right_choice_cannot_be_told_by_its_length(questions):
    longest, right, wrong = 0, [], []
    for question in questions:
        lengths = [len(choice["text"]) for choice in question["choices"]]
        length = lengths.pop(right_place(question))
        longest += length > max(lengths)
        right.append(length)
        wrong += lengths
    assert longest <= 0.4 * len(questions)
    assert 0.85 <= np.mean(right) / np.mean(wrong) <= 1.15


def test_faults_are_found():
    cell = nbformat.v4.new_code_cell("1", outputs=[nbformat.v4.new_output("stream", name="stderr", text="warning")])
    cell.metadata.tags = ["quizz"]
    problems = refresh.faults(nbformat.v4.new_notebook(cells=[cell]))
    assert len(problems) == 2 and "'quizz'" in problems[0] and "stderr: warning" in problems[1]


def test_write_replaces_whole_files_only(tmp_path, monkeypatch):
    path = tmp_path / "01_a.ipynb"
    refresh.write(nbformat.v4.new_notebook(), path)
    before = path.read_bytes()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o644

    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr(nbformat, "write", fails)
    with pytest.raises(OSError, match="disk full"):
        refresh.write(nbformat.v4.new_notebook(cells=[]), path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
