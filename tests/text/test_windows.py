"""Windows hold all of a text, each token once as their own, in rows as the tokenizer would make them."""

import numpy as np
import pytest

from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.windows import cut_windows

pytestmark = pytest.mark.once

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh", *(f"##{c}" for c in "abcdefgh")]


@pytest.fixture
def tokenizer():
    return Tokenizer.from_vocabulary(VOCABULARY, max_length=12)


def random_texts(count, rng):
    return [" ".join(rng.choice(list("abcdefgh"), rng.integers(0, 40))) for _ in range(count)]


@pytest.mark.parametrize("stride", [None, 0, 1, 4])
@pytest.mark.parametrize("pairs", [False, True])
def test_rows_equal_the_tokenizer_s_of_the_same_text(tokenizer, stride, pairs):
    rng = np.random.default_rng(0)
    texts = random_texts(40, rng)
    questions = random_texts(40, rng) if pairs else None
    windows = cut_windows(tokenizer, texts, questions, stride=stride, max_query_length=4)
    seen = {i: [] for i in range(len(texts))}
    for w, source in enumerate(windows.source):
        offsets = windows.text_offsets(source)[windows.begin[w] : windows.end[w]]
        part = texts[source][offsets[0, 0] : offsets[-1, 1]] if len(offsets) else ""
        question = " ".join(questions[source].split()[:4]) if pairs else None
        expected = tokenizer.encode([part], [question] if pairs else None)
        if pairs:
            expected = tokenizer.encode([question], [part])
        at = slice(windows.rows.row_splits[w], windows.rows.row_splits[w + 1])
        assert windows.rows.token_ids[at].tolist() == expected.token_ids.tolist()
        assert windows.rows.segment_ids[at].tolist() == expected.segment_ids.tolist()
        assert len(expected.token_ids) <= 12
        assert windows.begin[w] <= windows.own_begin[w] <= windows.own_end[w] <= windows.end[w]
        seen[source] += range(windows.own_begin[w], windows.own_end[w])
    for i, text in enumerate(texts):
        assert seen[i] == list(range(len(text.split())))


def test_every_token_is_owned_by_a_row_with_most_context(tokenizer):
    text = " ".join("abcdefgh" * 6)
    windows = cut_windows(tokenizer, [text], stride=6)
    for token in range(48):
        context = np.minimum(token - windows.begin, windows.end - 1 - token)
        owner = int(np.flatnonzero((windows.own_begin <= token) & (token < windows.own_end))[0])
        assert context[owner] == context.max()


def test_join_and_spread_are_inverse(tokenizer):
    rng = np.random.default_rng(1)
    texts = random_texts(20, rng)
    windows = cut_windows(tokenizer, texts, stride=7)
    values = np.arange(len(windows.pieces.token_ids), dtype=np.int32)
    spread = windows.to_window_tokens(values, -1)
    rows = [spread[a:b] for a, b in zip(windows.rows.row_splits, windows.rows.row_splits[1:])]
    joined = windows.join_outputs(rows)
    assert [len(part) for part in joined] == windows.pieces.lengths.tolist()
    assert np.concatenate(joined).tolist() == values.tolist()
    assert (spread >= 0).sum() == len(values)  # each token once


def test_without_segments_and_without_limit():
    tokenizer = Tokenizer.from_vocabulary(VOCABULARY)
    tokenizer.segments = False
    windows = cut_windows(tokenizer, ["a b " * 50], ["c"])
    assert len(windows.rows) == 1 and not windows.rows.segment_ids.any()
    assert windows.column.tolist() == [3]  # [CLS] c [SEP]


def test_errors(tokenizer):
    with pytest.raises(ValueError, match="stride"):
        cut_windows(tokenizer, ["a"], stride=-1)
    with pytest.raises(ValueError, match="stride"):
        cut_windows(tokenizer, ["a " * 20], stride=10)
    with pytest.raises(ValueError, match="raise max_length"):
        cut_windows(tokenizer, ["a"], ["a " * 20])
