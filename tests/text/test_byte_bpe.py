"""Byte-level BPE from raw files against the Rust library's own ByteLevelBPETokenizer and transformers."""

import json

import pytest
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoTokenizer, RobertaTokenizer

from bertzoo.text.tokenizer import Tokenizer

pytestmark = pytest.mark.once

ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
DEBERTA = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]


@pytest.fixture(scope="session")
def files(corpus, tmp_path_factory):
    """family -> (directory with vocab.json and merges.txt, the library's tokenizer)."""
    made = {}
    for family, specials in (("roberta", ROBERTA), ("deberta", DEBERTA)):
        directory = tmp_path_factory.mktemp(family)
        oracle = ByteLevelBPETokenizer()
        oracle.train_from_iterator(corpus, 800, special_tokens=specials, show_progress=False)
        oracle.save_model(str(directory))
        (directory / "config.json").write_text(json.dumps({"model_type": family}))
        made[family] = directory, oracle
    return made


def write(tokenizer: Tokenizer, directory, family: str):
    for name, content in tokenizer.file_contents().items():
        (directory / name).write_bytes(content)
    (directory / "config.json").write_text(json.dumps({"model_type": family}))


@pytest.mark.parametrize("family", ["roberta", "deberta"])
def test_hard_strings_agree_with_the_library(files, family, marked_probes):
    directory, oracle = files[family]
    tokenizer = Tokenizer.from_directory(directory)
    probes = [probe for probe in marked_probes if "[" not in probe]
    encoded = tokenizer.encode(probes)
    assert len(set(probes)) >= 500
    assert [encoded.row(i)[1:-1].tolist() for i in range(len(probes))] == [oracle.encode(p).ids for p in probes]


@pytest.mark.slow
def test_roberta_agrees_with_transformers(files, marked_probes):
    directory, _ = files["roberta"]
    tokenizer = Tokenizer.from_directory(directory)
    hf_tokenizer = RobertaTokenizer.from_pretrained(directory)
    # differs: transformers 5 no longer lets <mask> swallow the space before it, as fairseq's `fill_mask` does.
    marked = [*marked_probes, *(f"{p}<mask> {p}" for p in marked_probes[::7] if p == p.rstrip()), "a<mask>b </s> c"]
    batch = tokenizer(marked, marked[::-1], return_offsets=True)
    expected = hf_tokenizer(marked, marked[::-1], padding=True, return_offsets_mapping=True, return_tensors="np")
    assert batch["token_ids"].shape[1] == expected["input_ids"].shape[1]
    assert batch["token_ids"].tolist() == expected["input_ids"].tolist()
    assert not batch["segment_ids"].any()
    real = batch["padding_mask"].astype(bool)
    assert batch["offsets"][real].tolist() == expected["offset_mapping"][real].tolist()


@pytest.mark.parametrize("family", ["roberta", "deberta"])
def test_the_mask_swallows_the_space_before_it(files, family):
    directory, oracle = files[family]
    tokenizer = Tokenizer.from_directory(directory)
    mask = tokenizer.id_to_token(tokenizer.mask_id)
    expected = [*oracle.encode("the").ids, tokenizer.mask_id, *oracle.encode(" film").ids]
    assert tokenizer.encode(f"the {mask} film").row(0)[1:-1].tolist() == expected


def test_deberta_has_one_separator_and_segments(files):
    directory, oracle = files["deberta"]
    tokenizer = Tokenizer.from_directory(directory)
    first, second = oracle.encode("the film").ids, oracle.encode("a story").ids
    batch = tokenizer("the film", "a story")
    assert batch["token_ids"].tolist() == [[1, *first, 2, *second, 2]]
    assert batch["segment_ids"].tolist() == [[0] * (len(first) + 2) + [1] * (len(second) + 1)]


@pytest.mark.parametrize("family", ["roberta", "deberta"])
def test_written_files_load_in_transformers(files, family, tmp_path, marked_probes):
    tokenizer = Tokenizer.from_directory(files[family][0])
    write(tokenizer, tmp_path, family)
    hf_tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    batch = tokenizer(marked_probes, marked_probes[::-1])
    expected = hf_tokenizer(marked_probes, marked_probes[::-1], padding=True, return_tensors="np")
    assert batch["token_ids"].tolist() == expected["input_ids"].tolist()
    if family == "deberta":
        assert batch["segment_ids"].tolist() == expected["token_type_ids"].tolist()
    assert Tokenizer.from_directory(tmp_path).file_contents() == tokenizer.file_contents()


def test_words_may_take_a_space_before_them(files, tmp_path):
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_bytes((files["roberta"][0] / name).read_bytes())
    plain = Tokenizer.from_directory(tmp_path).encode(" the").row(0).tolist()
    (tmp_path / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
    assert Tokenizer.from_directory(tmp_path).encode("the").row(0).tolist() == plain


def test_fairseq_files_give_the_same_pieces(files, tmp_path, marked_probes):
    """What fairseq ships: GPT-2's vocabulary with its own ids, and a list of these ids in another order."""
    directory, oracle = files["roberta"]
    vocabulary = json.loads((directory / "vocab.json").read_text("utf-8"))
    pieces = [piece for piece in vocabulary if piece not in ROBERTA]
    (tmp_path / "encoder.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    lines = [f"{i} {1000 - i}\n" for i in reversed(range(len(pieces)))] + ["madeupword0000 0\n"]
    (tmp_path / "dict.txt").write_text("".join(lines))
    (tmp_path / "vocab.bpe").write_bytes((directory / "merges.txt").read_bytes())
    tokenizer = Tokenizer.from_directory(tmp_path)
    assert (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id, tokenizer.unk_id) == (0, 1, 2, 3)
    assert tokenizer.mask_id == len(pieces) + 5 == tokenizer.vocabulary_size - 1
    for probe in marked_probes[::5]:
        if "[" not in probe:
            row = tokenizer.encode(probe).row(0)[1:-1]
            assert [tokenizer.id_to_token(i) for i in row] == oracle.encode(probe).tokens
            assert [4 + len(pieces) - 1 - pieces.index(tokenizer.id_to_token(i)) for i in row] == row.tolist()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.json", "{", r"vocab\.json can't be used"),
        ("vocab.json", '["a"]', r"vocab\.json can't be used: .* an object, each value an integer"),
        ("vocab.json", '{"a": -1}', r"vocab\.json can't be used: .*an integer of at least 0"),
        ("vocab.json", '{"a": 0}', "merges do not belong to the vocabulary"),
        ("merges.txt", "a b c\n", r"merges\.txt, line 1 must hold two pieces"),
        ("merges.txt", "#version: 0.2\n\u0120 t\nab\n", r"merges\.txt, line 3 must hold two pieces.*'ab'"),
        ("merges.txt", "qqqq zzzz\n", "merges do not belong to the vocabulary"),
    ],
)
def test_malformed_files_are_refused(files, tmp_path, name, content, message):
    for file in ("vocab.json", "merges.txt"):
        (tmp_path / file).write_bytes((files["roberta"][0] / file).read_bytes())
    (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(ValueError, match=message):
        Tokenizer.from_directory(tmp_path)


def test_files_saved_by_windows_give_the_same_ids(files, tmp_path, marked_probes):
    directory, _ = files["roberta"]
    for name in ("vocab.json", "merges.txt"):
        content = (directory / name).read_bytes().replace(b"\n", b"\r\n")
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + content)
    expected, actual = (Tokenizer.from_directory(d)(marked_probes)["token_ids"] for d in (directory, tmp_path))
    assert actual.tolist() == expected.tolist()


def test_a_vocabulary_without_its_special_tokens_is_refused(files, tmp_path):
    for file in ("vocab.json", "merges.txt"):
        (tmp_path / file).write_bytes((files["deberta"][0] / file).read_bytes())
    with pytest.raises(ValueError, match=r"no token '<s>'"):  # nothing says that these are DeBERTa's
        Tokenizer.from_directory(tmp_path)
    with pytest.raises(ValueError, match="lowercase=True is not for byte-level BPE"):
        Tokenizer.from_directory(files["roberta"][0], lowercase=True)


def test_mpnet_has_the_words_of_bert_and_the_frame_of_roberta(tmp_path):
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "the", "film", "##s", "<mask>"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    (tmp_path / "config.json").write_text('{"model_type": "mpnet"}')
    tokenizer = Tokenizer.from_directory(tmp_path)
    assert tokenizer("The films", "xyz <mask>")["token_ids"].tolist() == [[0, 5, 6, 7, 2, 2, 4, 8, 2]]
    assert tokenizer.pad_id == 1 and tokenizer.unk_id == 4
