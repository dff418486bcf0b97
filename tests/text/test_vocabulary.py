import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from bertzoo.text.vocabulary import train_wordpiece

pytestmark = pytest.mark.once

PACKAGE = str(Path(sys.modules[train_wordpiece.__module__].__file__).parents[1])
LINES = ["the unbreakable film was gripping", "the films were breaking", "a gripping break", "Café films 中文字"] * 5


def pieces(tokenizer) -> list[str]:
    return [tokenizer.id_to_token(i) for i in range(tokenizer.vocabulary_size)]


def test_first_merges_are_the_most_frequent_pairs():
    # ab is seen 9 times, cd 5 times: BPE's order. By likelihood (9 / (9 * 9) against 5 / (5 * 5)) cd would come first.
    learnt = pieces(train_wordpiece(["ab"] * 9 + ["cd"] * 5, vocabulary_size=40, progress=False))
    assert learnt[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert sorted(learnt[5:11]) == ["##b", "##d", "a", "b", "c", "d"]
    assert learnt[11:] == ["ab", "cd"]


def test_size_case_and_frequency():
    tokenizer = train_wordpiece(LINES, vocabulary_size=60, progress=False)
    assert tokenizer.vocabulary_size <= 60 and tokenizer.lowercases
    assert tokenizer.encode("CAFÉ").row(0).tolist() == tokenizer.encode("cafe").row(0).tolist()
    cased = train_wordpiece(LINES, vocabulary_size=200, lowercase=False, progress=False)
    assert not cased.lowercases and "Café" in pieces(cased)
    assert tokenizer.unk_id not in tokenizer.encode("breakable").row(0)
    rare = train_wordpiece([*LINES, "zebra"], vocabulary_size=500, progress=False)
    assert "zebra" not in pieces(rare) and "zebra" in pieces(train_wordpiece(["zebra"] * 2, 500, progress=False))


def test_files_and_texts_give_the_same_vocabulary(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(LINES[:10]), "utf-8")
    with gzip.open(tmp_path / "b.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(LINES[10:]))
    from_files = train_wordpiece([tmp_path / "a.txt", tmp_path / "b.txt.gz"], 80, progress=False)
    assert pieces(from_files) == pieces(train_wordpiece(LINES[::-1], 80, progress=False))


def test_another_process_learns_the_same():
    code = (
        "import sys, types; package = types.ModuleType('bertzoo'); package.__path__ = [sys.argv[1]]\n"
        "sys.modules['bertzoo'] = package\n"  # the text part alone, without Keras, to be quick
        f"from bertzoo.text.vocabulary import train_wordpiece\nt = train_wordpiece({LINES!r}, 80, progress=False)\n"
        "print(ascii([t.id_to_token(i) for i in range(t.vocabulary_size)]))"
    )
    result = subprocess.run([sys.executable, "-c", code, PACKAGE], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ascii(pieces(train_wordpiece(LINES, 80, progress=False)))


@pytest.mark.parametrize("limit", [30, 60, 90])
def test_rare_characters_are_left_out_the_same_way_each_time(limit):
    # Twenty characters of one count each: which stay must not depend on a hash map.
    lines = ["the film"] * 9 + [chr(0x4E00 + i) + " " + chr(0x3B1 + i) * 2 for i in range(20)] * 2
    first = pieces(train_wordpiece(lines, limit, progress=False))
    assert len(first) <= limit and "the" in first
    assert all(pieces(train_wordpiece(lines[::-1], limit, progress=False)) == first for _ in range(3))


def test_an_iterator_will_do():
    expected = pieces(train_wordpiece(LINES, 80, progress=False))
    assert pieces(train_wordpiece(iter(LINES), 80, progress=False)) == expected


def test_further_special_tokens_are_recognised():
    specials = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[NAME]")
    tokenizer = train_wordpiece(LINES, 100, special_tokens=specials, progress=False)
    assert tokenizer.encode("[NAME] films").row(0)[1] == 5 and 5 in tokenizer.special_ids


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="no text"):
        train_wordpiece([], 100, progress=False)
    with pytest.raises(ValueError, match=r"must hold \[CLS\]"):
        train_wordpiece(LINES, 100, special_tokens=("[UNK]", "[SEP]"), progress=False)
    with pytest.raises(ValueError, match="vocabulary_size=6"):
        train_wordpiece(LINES, 6, progress=False)
    with pytest.raises(TypeError, match=r"texts_or_files\[1\]"):
        train_wordpiece(["a", None], 100, progress=False)
