"""A corpus made in parts, beside the one that `prepare_corpus` makes of the same files."""

import signal
import subprocess
import sys

import pytest

import bertzoo as bz
from bertzoo.data.files import Documents
from bertzoo.pretraining import corpus_parts
from bertzoo.pretraining.corpus import prepare_corpus
from bertzoo.pretraining.corpus_parts import join_parts, parts_folder, prepare_part

pytestmark = pytest.mark.once

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "##e"]
KILLS = 4  # a run with 20 gave the same bytes too
# Makes a part, prints a line after each chunk of documents, and leaves time to be killed.
PART = """
import sys
import time
import bertzoo as bz
from bertzoo.data.files import Documents
from bertzoo.pretraining import corpus
from bertzoo.pretraining.corpus_parts import prepare_part
corpus.DOCUMENTS_AT_ONCE = 2
corpus.CHUNKS_PER_RECORD = 2
out, part, *files = sys.argv[1:]
tokenizer = bz.Tokenizer.from_vocabulary("[PAD] [UNK] [CLS] [SEP] [MASK] a b c d ##e".split())
number, total = part.split("/")
def show(documents, fraction):
    print(documents, flush=True)
    time.sleep(0.02)

prepare_part(Documents(files), tokenizer, out, (int(number), int(total)), on_progress=show)
"""


@pytest.fixture
def tokenizer():
    return bz.Tokenizer.from_vocabulary(WORDS)


@pytest.fixture
def files(tmp_path):
    """Files of 0 to 120 documents of different sizes."""
    names = []
    for number, count in enumerate((40, 0, 120, 3, 60)):
        documents = [" ".join("abcd"[(i + j + number) % 4] for j in range(1 + i % 13)) for i in range(count)]
        names.append(tmp_path / f"{number}.txt")
        names[-1].write_text("\n\n".join(documents))
    return names


def content(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@pytest.mark.parametrize("total", [1, 2, 3, 9])
def test_any_number_of_parts_gives_the_bytes_of_one_call(files, tokenizer, tmp_path, total):
    prepare_corpus(files, tokenizer, tmp_path / "whole")
    for number in reversed(range(1, total + 1)):
        prepare_part(Documents(files), tokenizer, tmp_path / "joined", (number, total))
    corpus = join_parts(Documents(files), tokenizer, tmp_path / "joined")
    assert len(corpus.documents) == 1 + 40 + 120 + 3 + 60
    assert content(tmp_path / "joined") == content(tmp_path / "whole")
    assert not parts_folder(tmp_path / "joined").exists()


def test_each_file_is_in_one_part_and_the_order_is_kept(files):
    for total in (1, 2, 3, 7):
        parts = [corpus_parts._select_files(files, number, total) for number in range(1, total + 1)]
        assert sum(parts, []) == files


def test_a_finished_part_is_not_made_again(files, tokenizer, tmp_path, monkeypatch):
    folder = prepare_part(Documents(files), tokenizer, tmp_path / "joined", (1, 2))
    monkeypatch.setattr(corpus_parts, "write_corpus", lambda *_, **__: 1 / 0)
    assert prepare_part(Documents(files), tokenizer, tmp_path / "joined", (1, 2)) == folder
    files[0].write_text("a b c")
    with pytest.raises(ZeroDivisionError):
        prepare_part(Documents(files), tokenizer, tmp_path / "joined", (1, 2))


def test_parts_that_do_not_belong_together_are_refused(files, tokenizer, tmp_path):
    out = tmp_path / "joined"
    prepare_part(Documents(files), tokenizer, out, (1, 2))
    with pytest.raises(ValueError, match="make it with --part 2/2"):
        join_parts(Documents(files), tokenizer, out)
    prepare_part(Documents(files[:4]), tokenizer, out, (2, 2))
    with pytest.raises(ValueError, match="2-of-2 must be a finished part of these files"):
        join_parts(Documents(files), tokenizer, out)
    prepare_part(Documents(files), bz.Tokenizer.from_vocabulary(WORDS[:8]), out, (2, 2))
    with pytest.raises(ValueError, match="2-of-2 must be a finished part of these files with this tokenizer"):
        join_parts(Documents(files), tokenizer, out)
    prepare_part(Documents(files), tokenizer, out, (1, 3))
    with pytest.raises(ValueError, match="one division. Received: 1-of-2, 1-of-3, 2-of-2"):
        join_parts(Documents(files), tokenizer, out)
    with pytest.raises(ValueError, match="made of files"):
        prepare_part(Documents([[{"text": "a"}]]), tokenizer, out, (1, 2))
    for number in (1, 2):
        prepare_part(Documents([files[1]]), tokenizer, tmp_path / "empty", (number, 2))
    with pytest.raises(ValueError, match="files without a document"):
        join_parts(Documents([files[1]]), tokenizer, tmp_path / "empty")


@pytest.mark.slow
def test_parts_that_are_killed_and_begun_again_give_the_same_bytes(files, tokenizer, tmp_path):
    prepare_corpus(files, tokenizer, tmp_path / "whole")
    for number in (1, 2):
        for kill in range(KILLS // 2):
            assert _run_part(files, tmp_path / "joined", f"{number}/2", kill_after=2 + kill % 2) == -signal.SIGKILL
        assert _run_part(files, tmp_path / "joined", f"{number}/2") == 0
    join_parts(Documents(files), tokenizer, tmp_path / "joined")
    assert content(tmp_path / "joined") == content(tmp_path / "whole")


def _run_part(files, out, part, kill_after=None):
    """Runs a part in a process, killed after so many lines; returns its exit status."""
    command = [sys.executable, "-c", PART, str(out), part, *map(str, files)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for number, _ in enumerate(process.stdout, start=1):
            if number == kill_after:
                process.kill()
        return process.wait()
