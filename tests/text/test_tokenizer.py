import copy
import gc
import subprocess
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from transformers import BertTokenizer
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

import bertzoo.text
from bertzoo.text.tokenizer import Tokenizer

pytestmark = pytest.mark.once


def test_probe_set_is_large_enough(probes):
    assert len(set(probes)) >= 500


def test_hard_strings_agree_with_transformers(both, probes):
    tokenizer, hf_tokenizer, _ = both
    encoded = tokenizer.encode(probes)
    assert [encoded.row(i).tolist() for i in range(len(probes))] == hf_tokenizer(probes)["input_ids"]


def test_hard_strings_agree_with_the_pure_python_tokenizer(both, tmp_path, probes):
    tokenizer, _, tokens = both
    (tmp_path / "vocab.txt").write_text("".join(token + "\n" for token in tokens), "utf-8")
    legacy = BertTokenizerLegacy(str(tmp_path / "vocab.txt"), do_lower_case=tokenizer.lowercases)
    encoded = tokenizer.encode(probes)
    # It composes accents first and knows the final sigma, which the Rust library has never done.
    same = [i for i, p in enumerate(probes) if unicodedata.is_normalized("NFC", p) and "Σ" not in p]
    assert len(same) >= 500
    assert [encoded.row(i).tolist() for i in same] == [legacy(probes[i])["input_ids"] for i in same]


def test_minilm_agrees_with_transformers(minilm, probes):
    tokenizer, hf_tokenizer = Tokenizer.from_directory(minilm), BertTokenizer.from_pretrained(minilm)
    encoded = tokenizer.encode(probes)
    assert [encoded.row(i).tolist() for i in range(len(probes))] == hf_tokenizer(probes)["input_ids"]
    assert tokenizer.vocabulary_size == len(hf_tokenizer)
    assert tokenizer.max_length == 512


def test_stored_truncation_and_padding_are_off(minilm):
    tokenizer = Tokenizer.from_directory(minilm)
    assert tokenizer.encode(["word " * 300]).lengths.tolist() == [302]
    assert tokenizer.encode("word").lengths.tolist() == [3]


@pytest.mark.parametrize("max_length", [3, 4, 5, 8, 13, 40])
def test_pairs_are_truncated_as_transformers_does(both, max_length, probes):
    tokenizer, hf_tokenizer, _ = both
    firsts, seconds = probes[:200], probes[200:400]
    batch = tokenizer(firsts, seconds, max_length=max_length)
    expected = hf_tokenizer(firsts, seconds, truncation=True, max_length=max_length, padding=True, return_tensors="np")
    np.testing.assert_array_equal(batch["token_ids"], expected["input_ids"])
    np.testing.assert_array_equal(batch["segment_ids"], expected["token_type_ids"])
    np.testing.assert_array_equal(batch["padding_mask"], expected["attention_mask"])
    assert {array.dtype for array in batch.values()} == {np.dtype("int32")}


@pytest.mark.parametrize("max_length", [2, 3, 10])
def test_single_texts_are_truncated_and_keep_their_special_tokens(both, max_length, probes):
    tokenizer, hf_tokenizer, _ = both
    batch = tokenizer(probes[:100], max_length=max_length, pad_to=12)
    expected = hf_tokenizer(probes[:100], truncation=True, max_length=max_length, padding=True, return_tensors="np")
    width = expected["input_ids"].shape[1]
    np.testing.assert_array_equal(batch["token_ids"][:, :width], expected["input_ids"])
    assert batch["token_ids"].shape == (100, 12) and not batch["padding_mask"][:, max_length:].any()


def test_truncation_of_one_call_does_not_reach_the_next(tokenizer):
    tokenizer("the end the end", max_length=3)
    assert tokenizer("the end the end")["token_ids"].shape == (1, 6)


def test_offsets_agree_with_transformers_and_point_at_the_text(both, probes):
    tokenizer, hf_tokenizer, _ = both
    batch = tokenizer(probes, return_offsets=True)
    expected = hf_tokenizer(probes, padding=True, return_offsets_mapping=True, return_tensors="np")["offset_mapping"]
    np.testing.assert_array_equal(batch["offsets"], expected)
    plain = {i: t for i, t in enumerate(tokenizer.id_to_token(j) for j in range(tokenizer.vocabulary_size))}
    for text, ids, spans in zip(probes, batch["token_ids"], batch["offsets"]):
        if not text.isascii() or "[" in text:
            continue
        for token, (a, b) in zip(ids, spans):
            if b > a and token != tokenizer.unk_id:
                covered = text[a:b].lower() if tokenizer.lowercases else text[a:b]
                assert covered == plain[token].removeprefix("##")


def test_offsets_of_a_pair_count_within_their_sentence(tokenizer):
    texts, pairs = "the gripping film", "Café is the end"
    batch = tokenizer(texts, pairs, return_offsets=True)
    words = [(texts, pairs)[s][a:b] for s, (a, b) in zip(batch["segment_ids"][0], batch["offsets"][0]) if b > a]
    assert words == ["the", "gripping", "film", "C", "a", "f", "é", "is", "the", "end"]


def test_word_ids_number_the_words(tokenizer):
    encoded = tokenizer.encode("the unables film", return_offsets=True)
    assert encoded.word_ids.tolist() == [-1, 0, 1, 1, 1, 2, -1]


def test_sharp_s_stays_and_soft_hyphens_do_not_split(tokenizer):
    tokens = [tokenizer.id_to_token(i) for i in tokenizer.encode("Straße soft\u00adhyphen").row(0)]
    assert tokens == ["[CLS]", "straße", "soft", "##hyphen", "[SEP]"]


def test_written_special_tokens_are_recognised(tokenizer):
    assert tokenizer.mask_id in tokenizer.encode("the [MASK] end").row(0)
    assert tokenizer.special_ids == (0, 1, 2, 3, 4)
    ids = [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id]
    assert ids == [0, 1, 2, 3, 4]


def test_a_vocabulary_without_mask_or_pad():
    tokenizer = Tokenizer.from_vocabulary(["[UNK]", "[CLS]", "[SEP]", "a"])
    assert tokenizer.mask_id is None and tokenizer.pad_id == 0
    assert tokenizer.vocabulary_size == 4
    assert tokenizer(["a", "a a"])["token_ids"].tolist() == [[1, 3, 2, 0], [1, 3, 3, 2]]


def test_continuations(tokenizer):
    expected = [tokenizer.id_to_token(i).startswith("##") for i in range(tokenizer.vocabulary_size)]
    assert tokenizer.continuation_mask.tolist() == expected


def test_decode(both):
    tokenizer, hf_tokenizer, _ = both
    ids = hf_tokenizer("the unables film, straße")["input_ids"]
    assert tokenizer.decode(ids) == hf_tokenizer.decode(ids, skip_special_tokens=True)
    assert tokenizer.decode(np.array([ids, ids]), skip_special_tokens=False) == [hf_tokenizer.decode(ids)] * 2
    with pytest.raises(ValueError, match="99999 is no token id"):
        tokenizer.decode([99999])


def test_empty_texts_and_empty_lists(tokenizer):
    assert tokenizer("")["token_ids"].tolist() == [[2, 3]]
    assert tokenizer("", "")["token_ids"].tolist() == [[2, 3, 3]]
    assert tokenizer([])["token_ids"].shape == (0, 0)
    assert tokenizer([], [], pad_to=7, return_offsets=True)["offsets"].shape == (0, 7, 2)
    assert len(tokenizer.encode([])) == 0


def test_accepted_containers(tokenizer):
    pandas = pytest.importorskip("pandas")
    texts = ["the end", "the film"]
    expected = tokenizer(texts)["token_ids"]
    series = pandas.Series(texts, index=[7, 3])
    for given in (tuple(texts), np.array(texts), np.array(texts, dtype=object), series, [np.str_(t) for t in texts]):
        np.testing.assert_array_equal(tokenizer(given)["token_ids"], expected)
    np.testing.assert_array_equal(tokenizer(np.array("the end"))["token_ids"], tokenizer("the end")["token_ids"])


@pytest.mark.parametrize(
    ("texts", "pairs", "error", "message"),
    [
        (None, None, TypeError, "texts must be a string or a sequence of strings.*NoneType"),
        (3, None, TypeError, "got int: 3"),
        ({"a": 1}, None, TypeError, "got dict"),
        (["a", None], None, TypeError, r"texts\[1\] must be a string. Received: NoneType.*missing rows"),
        (["a", float("nan")], None, TypeError, r"texts\[1\] must be a string. Received: float: nan.*missing rows"),
        (["a", "b", 5], None, TypeError, r"texts\[2\] must be a string. Received: int: 5"),
        ([["a", "b"]], None, TypeError, r"texts\[0\] must be a string. Received: list.*`pairs`"),
        ([b"a"], None, TypeError, r"texts\[0\].*bytes.*decode"),
        (np.zeros((2, 2)), None, TypeError, r"shape \(2, 2\)"),
        (["a"], ["b", "c"], ValueError, "1 texts and 2 pairs"),
        (["a", "b"], "c", TypeError, "both be strings"),
        (["a"], [None], TypeError, r"pairs\[0\]"),
        (["a", "b \ud800"], None, ValueError, r"texts\[1\] holds a lone surrogate"),
    ],
)
def test_wrong_input_is_named(tokenizer, texts, pairs, error, message):
    with pytest.raises(error, match=message):
        tokenizer(texts, pairs)


def test_missing_values_of_pandas_are_named(tokenizer):
    pandas = pytest.importorskip("pandas")
    with pytest.raises(TypeError, match=r"texts\[1\].*NAType.*missing rows"):
        tokenizer(pandas.Series(["a", pandas.NA], dtype="object"))


def test_wrong_lengths_are_named(tokenizer):
    with pytest.raises(ValueError, match="max_length=1 cannot hold the 2 special tokens"):
        tokenizer("the", max_length=1)
    with pytest.raises(ValueError, match="max_length=2 cannot hold the 3 special tokens of a pair"):
        tokenizer("the", "end", max_length=2)
    tokenizer.max_length = 8
    assert tokenizer("the " * 20, max_length=100)["token_ids"].shape == (1, 8)
    with pytest.raises(ValueError, match="pad_to=9"):
        tokenizer("the", pad_to=9)
    with pytest.raises(TypeError, match="whole number"):
        tokenizer.max_length = 1e30


def test_copies_and_threads(tokenizer):
    twin = copy.deepcopy(tokenizer)
    lengths = [3 + i % 9 for i in range(64)]
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(lambda n: twin("the end " * 20, max_length=n)["token_ids"].shape[1], lengths))
    assert rows == lengths


def test_import_leaves_keras_and_the_backends_alone():
    code = (
        "import sys, types; package = types.ModuleType('bertzoo'); package.__path__ = [sys.argv[1]]\n"
        "sys.modules['bertzoo'] = package\n"
        "from bertzoo.text import Encoded, Tokenizer\n"
        "print([n for n in ('keras', 'tensorflow', 'jax', 'torch', 'transformers', 'tokenizers') if n in sys.modules])"
    )
    package = str(Path(sys.modules[Tokenizer.__module__].__file__).parents[1])
    result = subprocess.run([sys.executable, "-c", code, package], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]", result.stdout


def test_text_package_names():
    assert "Tokenizer" in dir(bertzoo.text) and bertzoo.text.Tokenizer is Tokenizer
    with pytest.raises(AttributeError, match="nothing"):
        getattr(bertzoo.text, "nothing")  # noqa: B009


def test_no_garbage_is_collected_while_texts_are_tokenized(tokenizer):
    """JAX adds a callback to each collection; an interrupt that comes while Rust makes its objects would be raised
    there, where Python ignores it."""
    within = []

    def note(phase, info):
        frame = sys._getframe()
        while frame is not None and frame.f_code.co_name != "_encode_chunk":
            frame = frame.f_back
        within.append(frame is not None)

    gc.callbacks.append(note)
    try:
        for enabled in (gc.disable, gc.enable):
            enabled()
            tokenizer.encode(["the film is gripping"] * 5000)
            assert gc.isenabled() is (enabled is gc.enable)
        gc.collect()
    finally:
        gc.callbacks.remove(note)
        gc.enable()
    assert within and not any(within)
