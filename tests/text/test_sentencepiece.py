"""SentencePiece models of all families against the `sentencepiece` library, on models trained here."""

import json
import re
import struct
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from bertzoo.text.sentencepiece import read_sentencepiece_model
from bertzoo.text.tokenizer import Tokenizer

pytestmark = pytest.mark.once

spm = pytest.importorskip("sentencepiece")

FILES = {
    "albert": "spiece.model",
    "xlm-roberta": "sentencepiece.bpe.model",
    "camembert": "sentencepiece.bpe.model",
    "deberta-v2": "spm.model",
}
CONTROLS = {
    "albert": {
        "pad_id": 0,
        "pad_piece": "<pad>",
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
    },
    "deberta-v2": {
        "pad_id": 0,
        "pad_piece": "[PAD]",
        "bos_id": 1,
        "bos_piece": "[CLS]",
        "eos_id": 2,
        "eos_piece": "[SEP]",
        "unk_id": 3,
        "unk_piece": "[UNK]",
    },
}
# name -> (family whose files it imitates, options of the trainer)
MODELS = {
    "albert": ("albert", {}),
    "deberta-v2": ("deberta-v2", {}),
    "xlm-roberta": ("xlm-roberta", {}),
    "camembert": ("camembert", {}),
    "bpe": ("xlm-roberta", {"model_type": "bpe"}),
    "bytes": ("xlm-roberta", {"byte_fallback": True, "vocab_size": 700}),
    "bpe-bytes": ("xlm-roberta", {"byte_fallback": True, "vocab_size": 700, "model_type": "bpe"}),
    "user-defined": ("deberta-v2", {"user_defined_symbols": ["<sep>", "XYZ", "gri"]}),
    "case-folding": ("xlm-roberta", {"normalization_rule_name": "nmt_nfkc_cf"}),
    "identity": ("xlm-roberta", {"normalization_rule_name": "identity"}),
    "all-spaces": ("xlm-roberta", {"remove_extra_whitespaces": False, "add_dummy_prefix": False}),
    "commas": ("albert", {"split_by_number": False, "split_by_unicode_script": False}),
    "phrases": ("xlm-roberta", {"split_by_whitespace": False}),
}


@pytest.fixture(scope="session")
def train(corpus, tmp_path_factory):
    """name of MODELS -> (directory of a checkpoint with that model, the original library's processor)."""
    made = {}

    def make(name: str):
        if name not in made:
            family, options = MODELS[name]
            directory = tmp_path_factory.mktemp(name)
            path = directory / FILES[family]
            options = {"vocab_size": 400, "character_coverage": 0.995, **CONTROLS.get(family, {}), **options}
            with open(path, "wb") as file:
                spm.SentencePieceTrainer.train(
                    sentence_iterator=iter(corpus), model_writer=file, minloglevel=2, num_threads=1, **options
                )
            (directory / "config.json").write_text(json.dumps({"model_type": family}))
            made[name] = directory, spm.SentencePieceProcessor(model_file=str(path))
        return made[name]

    return make


def prepared(name: str, text: str) -> str:
    """What ALBERT's code does to a text before SentencePiece sees it (google-research/albert, tokenization.py)."""
    if MODELS[name][0] != "albert":
        return text
    text = text.replace("``", '"').replace("''", '"')
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return "".join(c.lower() for c in text)  # by character: the Rust library does not know the final sigma


def without_commas(processor, pieces: list[str]) -> list[str]:
    """ALBERT's code splits a piece that ends in a digit and a comma (the same file, `encode_with_words`)."""
    out = []
    for piece in pieces:
        if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
            out.append(piece)
            continue
        parts = processor.encode(piece[:-1].replace("▁", ""), out_type=str)
        if piece[0] != "▁" and parts[0][0] == "▁":
            parts = [part for part in [parts[0][1:], *parts[1:]] if part]
        out += [*parts, ","]
    return out


def expected_ids(name: str, processor, text: str) -> list[int]:
    """The model's ids: fairseq's four front tokens shift XLM-R's by one and CamemBERT's by four."""
    family = MODELS[name][0]
    shift, unknown = {"xlm-roberta": (1, 3), "camembert": (4, 3)}.get(family, (0, processor.unk_id()))
    ids = processor.encode(prepared(name, text))
    if name == "commas":
        ids = [processor.piece_to_id(p) for p in without_commas(processor, [processor.id_to_piece(i) for i in ids])]
    return [unknown if i == processor.unk_id() else i + shift for i in ids]


@pytest.fixture(scope="session")
def plain_probes(marked_probes) -> list[str]:
    """Those without special tokens, which SentencePiece knows nothing of."""
    specials = ("[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]", "<s>", "</s>", "<pad>", "<unk>", "<mask>")
    return [probe for probe in marked_probes if not any(token in probe for token in specials)]


@pytest.fixture(scope="session")
def unjoined_probes(plain_probes) -> list[str]:
    """Those in which each character is a grapheme."""
    return [probe for probe in plain_probes if "\r\n" not in probe and not any(is_joined(c) for c in probe)]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_hard_strings_agree_with_sentencepiece(train, name, plain_probes, unjoined_probes):
    directory, processor = train(name)
    tokenizer = Tokenizer.from_directory(directory)
    encoded = tokenizer.encode(plain_probes)
    assert len(set(plain_probes)) >= 500 and len(unjoined_probes) >= 380
    differing = {
        probe
        for i, probe in enumerate(plain_probes)
        if encoded.row(i)[1:-1].tolist() != expected_ids(name, processor, probe)
    }
    # The Rust library takes whole graphemes where SentencePiece takes the longest match (huggingface/tokenizers#2116).
    assert not [ascii(probe) for probe in differing.intersection(unjoined_probes)]


def test_the_known_difference_is_a_combining_mark(train):
    """SentencePiece composes the second mark's letter; the Rust library, and so transformers, leaves the text apart."""
    directory, processor = train("xlm-roberta")
    text = "ａ\u0301"
    ids = Tokenizer.from_directory(directory).encode(text).row(0)[1:-1].tolist()
    assert ids != expected_ids("xlm-roberta", processor, text)


def test_special_ids_of_each_family(train):
    expected = {
        "albert": {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4},
        "deberta-v2": {"pad": 0, "cls": 1, "sep": 2, "unk": 3, "mask": 400},
        "xlm-roberta": {"cls": 0, "pad": 1, "sep": 2, "unk": 3, "mask": 401},
        "camembert": {"cls": 5, "pad": 1, "sep": 6, "unk": 3, "mask": 404},
    }
    for name, ids in expected.items():
        tokenizer = Tokenizer.from_directory(train(name)[0])
        assert {role: getattr(tokenizer, f"{role}_id") for role in ids} == ids, name


@pytest.mark.parametrize("name", ["albert", "xlm-roberta", "camembert", "deberta-v2"])
def test_special_tokens_in_a_text_stand_between_texts(train, name, unjoined_probes):
    directory, processor = train(name)
    tokenizer = Tokenizer.from_directory(directory)
    mask = tokenizer.id_to_token(tokenizer.mask_id)
    for left, right in zip(unjoined_probes[::9], unjoined_probes[4::9]):
        row = tokenizer.encode(f"{left} {mask} {right}").row(0)[1:-1].tolist()
        parts = [expected_ids(name, processor, f"{left} "), expected_ids(name, processor, f" {right}")]
        assert row == [*parts[0], tokenizer.mask_id, *parts[1]], ascii((left, right))


@pytest.mark.parametrize("name", ["albert", "deberta-v2"])
def test_pairs_have_one_separator_and_segments(train, name):
    tokenizer = Tokenizer.from_directory(train(name)[0])
    first, second = (tokenizer.encode(text).row(0)[1:-1].tolist() for text in ("the film", "the story"))
    batch = tokenizer("the film", "the story")
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    assert batch["token_ids"].tolist() == [[cls, *first, sep, *second, sep]]
    assert batch["segment_ids"].tolist() == [[0] * (len(first) + 2) + [1] * (len(second) + 1)]


@pytest.mark.parametrize("name", ["xlm-roberta", "camembert"])
def test_pairs_of_fairseq_have_two_separators(train, name):
    tokenizer = Tokenizer.from_directory(train(name)[0])
    first, second = (tokenizer.encode(text).row(0)[1:-1].tolist() for text in ("the film", "the story"))
    batch = tokenizer("the film", "the story")
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    assert batch["token_ids"].tolist() == [[cls, *first, sep, sep, *second, sep]] and not batch["segment_ids"].any()


@pytest.mark.parametrize("name", ["xlm-roberta", "bpe", "deberta-v2", "user-defined"])
def test_offsets_agree_with_sentencepiece(train, name, unjoined_probes):
    directory, processor = train(name)
    tokenizer = Tokenizer.from_directory(directory)
    encoded, differing = tokenizer.encode(unjoined_probes, return_offsets=True), []
    for i, probe in enumerate(unjoined_probes):
        offsets = encoded.offsets[encoded.row_splits[i] + 1 : encoded.row_splits[i + 1] - 1].tolist()
        expected, content = [], probe.encode()
        for piece in processor.encode(probe, return_type="proto").pieces:
            expected.append([len(content[:end].decode()) for end in (piece.begin, piece.end)])
        if any(
            a != b and not known_difference(j, offsets, expected) for j, (a, b) in enumerate(zip(offsets, expected))
        ):
            differing.append(probe)
    # A third kind: SentencePiece counts characters that the map drops to the piece behind them, we to none.
    assert not [ascii(probe) for probe in differing if not contains_dropped_or_composed(probe)]
    assert len(differing) <= 0.12 * len(unjoined_probes)


def known_difference(index: int, offsets: list, expected: list) -> bool:
    """A piece that is empty in SentencePiece's eyes, "▁" at the front or a part of one character, has that character
    here; so have all pieces of a character that became several."""
    (a, b), (x, y) = offsets[index], expected[index]
    shared = any(j != index and start < b and end > a for j, (start, end) in enumerate(offsets))
    return a <= x and b >= y and (x == y or shared)


def contains_dropped_or_composed(text: str) -> bool:
    # What the map composes or drops: marks, jamo, halfwidth voicing, control and format characters, and a few more.
    # Of several spaces the last one is the piece's here, all of them there.
    odd = "\u2028\u2029\ufffd\u2581ﾞ\r\n"
    marks = any(unicodedata.category(c)[0] in "MC" or c in odd or "ᄀ" <= c <= "ᇿ" for c in text)
    return marks or bool(re.search(r"\s\s", text))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_written_files_load_in_transformers(train, name, tmp_path, plain_probes, probes):
    tokenizer = Tokenizer.from_directory(train(name)[0])
    write(tokenizer, tmp_path, MODELS[name][0])
    again = Tokenizer.from_directory(tmp_path)
    assert again.file_contents() == tokenizer.file_contents()
    encoded = tokenizer.encode(plain_probes)
    assert again.encode(plain_probes).token_ids.tolist() == encoded.token_ids.tolist()
    hf_tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    expected = hf_tokenizer(plain_probes)["input_ids"]
    assert [encoded.row(i).tolist() for i in range(len(plain_probes))] == expected
    specials = [probe for probe in probes if "[" in probe]
    batch, hf_batch = tokenizer(specials, specials), hf_tokenizer(specials, specials, padding=True, return_tensors="np")
    assert batch["token_ids"].tolist() == hf_batch["input_ids"].tolist()
    if "token_type_ids" in hf_batch:
        assert batch["segment_ids"].tolist() == hf_batch["token_type_ids"].tolist()


def is_joined(c: str) -> bool:
    """Whether a character, or what it decomposes into for ALBERT, joins others in a grapheme."""
    kinds = ("가힣", "ᄀᇿ", "\u200c\u200d", "ﾞﾟ", "\U0001f1e6\U0001f1ff", "\U0001f3fb\U0001f3ff")
    return unicodedata.category(c).startswith("M") or any(a <= c <= b for a, b in kinds)


def write(tokenizer: Tokenizer, directory: Path, family: str) -> None:
    for name, content in tokenizer.file_contents().items():
        (directory / name).write_bytes(content)
    (directory / "config.json").write_text(json.dumps({"model_type": family}))


def with_settings(train, name: str, tmp_path, **settings) -> tuple[Tokenizer, object]:
    directory, processor = train(name)
    for path in directory.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    return Tokenizer.from_directory(tmp_path), processor


def test_albert_may_keep_case_and_accents(train, tmp_path):
    tokenizer, processor = with_settings(train, "albert", tmp_path, do_lower_case=False, keep_accents=True)
    assert tokenizer.encode("Café FILM").row(0)[1:-1].tolist() == processor.encode("Café FILM")


def test_albert_splits_a_comma_from_a_digit(train):
    directory, processor = train("commas")
    assert any(p[-1] == "," and p[-2:-1].isdigit() for p in map(processor.id_to_piece, range(400)) if len(p) > 1)
    tokenizer = Tokenizer.from_directory(directory)
    pieces = [tokenizer.id_to_token(i) for i in tokenizer.encode("12, 1,234, 12,").row(0)]
    assert pieces.count(",") == 3


def test_deberta_may_lower_and_split_punctuation(train, tmp_path):
    tokenizer, processor = with_settings(train, "deberta-v2", tmp_path, do_lower_case=True, split_by_punct=True)
    expected = [i for part in ("the", "-", "film") for i in processor.encode(part)]
    assert tokenizer.encode("The-FILM").row(0)[1:-1].tolist() == expected


def test_a_bert_with_the_tokenizer_of_xlm_r(train, tmp_path):
    with_settings(train, "xlm-roberta", tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')
    assert Tokenizer.from_directory(tmp_path).cls_id == 0


def test_added_tokens_follow_on_the_vocabulary(train, tmp_path):
    with_settings(train, "deberta-v2", tmp_path)
    (tmp_path / "added_tokens.json").write_text('{"[MASK]": 400, "[NAME]": 401}')
    tokenizer = Tokenizer.from_directory(tmp_path)
    assert 401 in tokenizer.encode("the [NAME] film").row(0)
    (tmp_path / "added_tokens.json").write_text('{"[NAME]": 500}')
    with pytest.raises(ValueError, match=r"'\[NAME\]' the id 500"):
        Tokenizer.from_directory(tmp_path)


def test_a_file_of_another_family_is_refused(train, tmp_path):
    with_settings(train, "albert", tmp_path)
    (tmp_path / "spiece.model").rename(tmp_path / "sentencepiece.bpe.model")
    (tmp_path / "config.json").write_text('{"model_type": "xlm-roberta"}')
    with pytest.raises(ValueError, match=r"sentencepiece\.bpe\.model"):
        Tokenizer.from_directory(tmp_path)


def test_the_reader_agrees_with_the_protobuf_library(train):
    from sentencepiece import sentencepiece_model_pb2

    directory, _ = train("bytes")
    model = read_sentencepiece_model(directory / FILES["xlm-roberta"])
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString((directory / FILES["xlm-roberta"]).read_bytes())
    assert model.pieces == [(p.piece, float(str(np.float32(p.score))), p.type) for p in proto.pieces]
    assert model.charsmap == proto.normalizer_spec.precompiled_charsmap and model.byte_fallback


def malformed(content: bytes) -> dict[str, tuple[bytes, str]]:
    def piece(text: bytes, *rest: bytes) -> bytes:
        body = b"\x0a" + bytes([len(text)]) + text + b"".join(rest)
        return b"\x0a" + bytes([len(body)]) + body

    unknown = piece(b"<unk>", b"\x18\x02")
    return {
        "empty": (b"", "no pieces"),
        "cut": (content[: len(content) // 2], "ends within a field"),
        "text": (b"this is no model", "no SentencePiece model"),
        "endless number": (b"\xff" * 20, "longer than 64 bits"),
        "cut number": (unknown + b"\x0a\xff", "ends within a number"),
        "huge length": (unknown + b"\x0a\xff\xff\xff\xff\x0f", "ends within a field"),
        "wire type": (unknown + b"\x0f", "wire type 7"),
        "field 0": (unknown + b"\x02\x00", "number 0"),
        "no unknown": (piece(b"a"), "one unknown piece"),
        "two unknown": (unknown + piece(b"b", b"\x18\x02"), "it has 2"),
        "twice": (unknown + piece(b"a") + piece(b"a"), "occur twice"),
        "not a number": (unknown + piece(b"a", b"\x15" + struct.pack("<f", float("nan"))), "malformed.*nan"),
        "not UTF-8": (unknown + piece(b"\xff"), "utf-8"),
        "no text": (unknown + piece(b""), "malformed"),
        "score as text": (unknown + piece(b"a", b"\x12\x01a"), "field 2 is encoded as bytes, float is expected"),
        "words": (unknown + b"\x12\x02\x18\x03", "model_type is 3"),
        "unescaped": (unknown + b"\x1a\x02\x28\x00", "escape"),
        "suffix": (unknown + b"\x12\x03\xc0\x01\x01", "at their end"),
    }


def test_malformed_files_are_refused(train, tmp_path):
    directory, _ = train("xlm-roberta")
    path = tmp_path / "bad.model"
    for name, (content, message) in malformed((directory / FILES["xlm-roberta"]).read_bytes()).items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_sentencepiece_model(path)
            pytest.fail(name)


def test_a_malformed_character_map_is_refused(train, tmp_path):
    directory, _ = train("xlm-roberta")
    content = (directory / FILES["xlm-roberta"]).read_bytes()
    charsmap = read_sentencepiece_model(directory / FILES["xlm-roberta"]).charsmap
    at = content.index(charsmap)
    path = tmp_path / "sentencepiece.bpe.model"
    path.write_bytes(content[:at] + struct.pack("<I", 2**31) + content[at + 4 :])
    with pytest.raises(ValueError, match=r"sentencepiece\.bpe\.model.*character map"):
        Tokenizer.from_directory(tmp_path)
