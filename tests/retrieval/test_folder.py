"""Search in a folder: answers, what is read again, and the state of the index after changes."""

import math
import os
import shutil
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
from typer.testing import CliRunner

from bertzoo.cli.main import app
from bertzoo.retrieval import DEFAULT_PRESET, FolderIndex, Index, Sparse
from bertzoo.retrieval import folder as folder_module
from bertzoo.retrieval.bm25 import K1, B, document_terms, query_terms

pytestmark = [pytest.mark.once, pytest.mark.slow]

FILES = {
    "film.txt": "A good film with a bright actor.\n\nWe saw it in Paris.\n",
    "notes/rome.md": "# Rome\n\nOnce we were in Rome with friends.\n",
    "notes/page.html": "<p>The plot is dull and the story ends badly.</p>",
    ".hidden/secret.txt": "never again",
    "image.png": "not a text",
}


@pytest.fixture
def files(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "files"


@pytest.fixture(scope="module")
def model(checkpoint, tmp_path_factory):
    """The folder of a tiny encoder's export, made once."""
    directory = tmp_path_factory.mktemp("export") / "model"
    folder_module.export_encoder(str(checkpoint[0]), directory)
    return directory


@pytest.fixture
def open_index(files, model, checkpoint, tmp_path, monkeypatch):
    """Opens the index of `files`, and notes which files are read."""
    read = []
    original = folder_module.read_passages

    def export(preset, directory):
        directory.unlink(missing_ok=True)
        directory.symlink_to(model)

    def read_passages(path):
        read.append(path.relative_to(files).as_posix())
        return original(path)

    monkeypatch.setattr(folder_module, "export_encoder", export)
    monkeypatch.setattr(folder_module, "read_passages", read_passages)

    def open_and_update():
        index = FolderIndex(files, str(checkpoint[0]), tmp_path / "cache")
        read.clear()
        index.update(index.find_changes())
        return index, sorted(read)

    return open_and_update


def test_only_changed_files_are_read_again(open_index, files):
    index, read = open_index()
    assert read == ["film.txt", "notes/page.html", "notes/rome.md"] and len(index) == 3
    assert open_index()[1] == []
    (files / "notes" / "rome.md").write_text("# Paris\n\nNow in Paris.\n\n# Actor\n\nAn actor.\n")
    (files / "new.txt").write_text("slow and poor")
    (files / "film.txt").unlink()
    index, read = open_index()
    assert read == ["new.txt", "notes/rome.md"]
    found = {(answer.file, answer.place) for answer in index.search("friends in Rome", 10)}
    assert found == {
        ("new.txt", "line 1"),
        ("notes/page.html", "line 1"),
        ("notes/rome.md", "lines 1-3"),
        ("notes/rome.md", "lines 5-7"),
    }
    (files / "notes" / "rome.md").write_text("Nothing of it.")
    index, read = open_index()
    assert read == ["notes/rome.md"] and len(index) == 3
    assert sorted(path.name for path in files.iterdir()) == [".hidden", "image.png", "new.txt", "notes"]  # as it was


def test_words_and_vectors_find_passages(open_index):
    index, _ = open_index()
    best = index.search("Rome", 1)[0]
    assert best.file == "notes/rome.md" and best.place == "lines 1-3" and "Once we were in Rome" in best.text


def test_an_interrupted_update_goes_on(open_index, files, monkeypatch):
    for i in range(30):
        (files / f"many{i:02}.txt").write_text(f"a film number {i}")
    monkeypatch.setattr(folder_module, "PASSAGES_AT_ONCE", 4)
    read = folder_module.read_passages
    monkeypatch.setattr(folder_module, "read_passages", lambda path: read(path) if path.name != "many20.txt" else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        open_index()
    monkeypatch.setattr(folder_module, "read_passages", read)
    index, again = open_index()
    assert "many20.txt" in again and "many03.txt" not in again and len(index) == 33


def test_unreadable_files_are_named_once(open_index, files):
    (files / "broken.pdf").write_bytes(b"%PDF-1.4")
    index, read = open_index()
    assert "broken.pdf" in read and "no readable PDF" in index.unreadable["broken.pdf"]
    assert open_index()[1] == []


def test_bm25_is_the_formula():
    documents = ["the film is good", "The good, the bad and the film", "rome once rome", "paris"]
    average, question = 3.0, "good film in Rome"
    frequencies = {}
    for text in documents:
        for i in document_terms(text, average).ids.tolist():
            frequencies[i] = frequencies.get(i, 0) + 1

    def count(ids):
        return np.array([frequencies.get(i, 0) for i in ids.tolist()])

    query = dict(zip(*map(list, query_terms(question, len(documents), count))))
    for text in documents:
        words, expected = text.lower().replace(",", "").split(), 0.0
        for word in question.lower().split():
            count, containing = words.count(word), sum(word in d.lower().replace(",", "").split() for d in documents)
            idf = math.log(1 + (len(documents) - containing + 0.5) / (containing + 0.5))
            expected += idf * count * (K1 + 1) / (count + K1 * (1 - B + B * len(words) / average))
        ids, weights = document_terms(text, average)
        score = sum(query.get(i, 0.0) * weight for i, weight in zip(ids.tolist(), weights))
        assert score == pytest.approx(expected, rel=1e-5)


def test_words_of_removed_documents_leave_weights_positive(tmp_path):
    index = Index(tmp_path / "index", {"words": Sparse()})
    texts = ["film film film", "a film and other things in it", "film", "the film"]
    index.add(["most", "less", "gone", "gone too"], {"words": [document_terms(text, 3.0) for text in texts]})
    index.delete(["gone", "gone too"])
    (part,) = index.parts("words")
    hits = index.search({"words": [query_terms("film", len(index), part.document_frequencies)]})[0]
    assert [hit.id for hit in hits] == ["most", "less"] and hits[1].score > 0


def test_the_command_answers_and_later_without_keras(files, checkpoint, tmp_path):
    options = ["search", str(files), "Rome", "--preset", str(checkpoint[0]), "-k", "1", "--index", str(tmp_path / "i")]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    assert "1. notes/rome.md, lines 1-3\n   # Rome\n   Once we were in Rome with friends.\n" in result.output
    assert "3/3" in result.stderr  # the bar
    code = "import sys; from bertzoo.cli.main import app; app(sys.argv[1:], standalone_mode=False)"
    code += "; print('keras' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    again = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True, env=environment)
    assert again.stdout.startswith("1. notes/rome.md, lines 1-3\n") and again.stdout.endswith("False\n"), again.stderr
    assert "reading" not in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "a question"], "folder must be a directory. Received: nowhere"),
        ([".", "a question", "--preset", "no_such_preset", "--index", ".index"], "no preset 'no_such_preset'"),
        ([".", "a question", "--index", "index"], "the index must be outside of the folder"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["search", *arguments])
    assert result.exit_code == 1 and message in result.stderr
    assert DEFAULT_PRESET in CliRunner().invoke(app, ["search", "--help"]).output


def test_an_empty_folder_and_another_origin_are_refused(open_index, files, tmp_path, checkpoint):
    open_index()
    with pytest.raises(ValueError, match="must be an index of"):
        FolderIndex(files, "another", tmp_path / "cache")
    (tmp_path / "empty").mkdir()
    options = ["--preset", str(checkpoint[0]), "--index", str(tmp_path / "other")]
    result = CliRunner().invoke(app, ["search", str(tmp_path / "empty"), "question", *options])
    assert result.exit_code == 1 and "Received: none" in result.stderr


def test_directories_with_other_files_are_refused_and_stay(files, model, checkpoint, tmp_path):
    preset, place = str(checkpoint[0]), tmp_path / "mine"
    (place / "model").mkdir(parents=True)
    (place / "model" / "weights.bin").write_text("precious")
    with pytest.raises(
        ValueError, match="must be empty or hold an index of a folder. Received: a directory with model"
    ):
        FolderIndex(files, preset, place)
    assert sorted(path.name for path in place.rglob("*")) == ["model", "weights.bin"]
    before = sorted(files.rglob("*"))
    for wrong in (files, files.parent, files / "notes", files / "new" / "index"):
        with pytest.raises(ValueError, match="the index must be outside of the folder"):
            FolderIndex(files, preset, wrong)
    assert sorted(files.rglob("*")) == before


def test_an_index_hidden_in_the_folder_is_not_searched(open_index, files, tmp_path):
    (tmp_path / "cache").symlink_to(files / ".index")
    (files / ".index").mkdir()
    assert len(open_index()[0]) == 3 and open_index()[1] == []


def test_a_preset_that_was_trained_again_is_noticed(files, model, checkpoint, tmp_path, monkeypatch):
    exported = []

    def export(preset, directory):
        exported.append(preset)
        directory.unlink(missing_ok=True)
        directory.symlink_to(model)

    monkeypatch.setattr(folder_module, "export_encoder", export)
    preset = tmp_path / "preset"
    shutil.copytree(checkpoint[0], preset)

    def passages_left():
        index = FolderIndex(files, str(preset), tmp_path / "cache")
        count = len(index)
        index.update(index.find_changes())
        return count

    assert [passages_left(), passages_left()] == [0, 3] and len(exported) == 1
    weights = next(preset.glob("*.safetensors"))
    os.utime(weights, ns=(0, weights.stat().st_mtime_ns + 1))
    assert [passages_left(), passages_left()] == [0, 3] and len(exported) == 2


def test_devices_and_links_that_lead_out_are_left_out(files, tmp_path):
    (tmp_path / "outside.txt").write_text("secret")
    (files / "out.txt").symlink_to(tmp_path / "outside.txt")
    (files / "in.txt").symlink_to("film.txt")
    (files / "zero.txt").symlink_to("/dev/zero")
    os.mkfifo(files / "pipe.txt")
    assert [name for name, _ in folder_module.find_files(files)] == [
        "film.txt",
        "in.txt",
        "notes/page.html",
        "notes/rome.md",
    ]


def test_two_processes_leave_no_passages_of_old_texts(open_index, files, checkpoint, tmp_path):
    open_index()
    film = files / "film.txt"

    def begin():
        index = FolderIndex(files, str(checkpoint[0]), tmp_path / "cache")
        return index, index.find_changes()

    film.write_text("shorter")
    slow = begin()
    film.write_text("\n\n".join(f"# part {i}\npear {i}" for i in range(6)))
    quick = begin()
    quick[0].update(quick[1])
    film.write_text("now tiny")
    slow[0].update(slow[1])
    index, _ = open_index()
    assert [a.text for a in index.search("pear", 10) if a.file == "film.txt"] == ["now tiny"] and len(index) == 3
    film.unlink()
    first, second = begin(), begin()
    first[0].update(first[1])
    second[0].update(second[1])
    assert len(second[0]) == 2


def test_control_characters_are_not_printed(tmp_path, checkpoint):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a\x1b[2Jb.txt").write_text("pear \x1b]0;title\x07 and\x9b31m\ttab\x7f")
    (tmp_path / "files" / "c\x1b[2Jd.pdf").write_bytes(b"%PDF-1.4")
    options = ["--preset", str(checkpoint[0]), "--index", str(tmp_path / "i")]
    result = CliRunner().invoke(app, ["search", str(tmp_path / "files"), "pear", *options])
    assert result.exit_code == 0, result.output
    shown = result.stdout.splitlines()
    assert shown[0] == "1. a[2Jb.txt, line 1" and "pear ]0;title and31m" in shown[1]
    (left_out,) = [line for line in result.stderr.splitlines() if "left out" in line]
    assert "c[2Jd.pdf" in left_out and not any(unicodedata.category(c) == "Cc" for c in left_out)
