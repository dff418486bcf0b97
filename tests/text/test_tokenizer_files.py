import json
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer, BertTokenizer

from bertzoo.text.tokenizer import Tokenizer

pytestmark = pytest.mark.once

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_vocabulary(directory: Path, tokens: list[str], newline: str = "\n", **config) -> Path:
    (directory / "vocab.txt").write_bytes("".join(token + newline for token in tokens).encode())
    if config:
        (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def write(tokenizer: Tokenizer, directory: Path) -> Path:
    for name, content in tokenizer.file_contents().items():
        (directory / name).write_bytes(content)
    return directory


def test_vocabulary_file_with_odd_lines(tmp_path):
    tokens = SPECIALS + ["a", "\u00a0", "b", "\u2028", "##b"]
    for newline in ("\n", "\r\n"):
        tokenizer = Tokenizer.from_directory(write_vocabulary(tmp_path, tokens, newline))
        assert [tokenizer.id_to_token(i) for i in range(10)] == tokens


def test_settings_of_a_vocabulary_directory(tmp_path):
    tokens = ["<p>", "<u>", "<c>", "<s>", "<m>", "Cafe", "cafe", "café"]
    write_vocabulary(
        tmp_path,
        tokens,
        do_lower_case=True,
        strip_accents=False,
        model_max_length=1e30,
        unk_token="<u>",
        cls_token={"content": "<c>", "__type": "AddedToken"},
        mask_token=None,
    )
    special = {"sep_token": {"content": "<s>"}, "mask_token": "<m>"}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(special))
    tokenizer = Tokenizer.from_directory(tmp_path)
    assert tokenizer.encode("CAFÉ <m>").row(0).tolist() == [2, 7, 4, 3]
    assert tokenizer.max_length is None and tokenizer.mask_id == 4
    assert Tokenizer.from_directory(tmp_path, lowercase=False).encode("Cafe").row(0).tolist() == [2, 5, 3]
    assert Tokenizer.from_directory(tmp_path, max_length=5).max_length == 5


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_lone_vocabulary_tells_its_case(tmp_path, lowercase):
    words = ["the", "end"] if lowercase else ["The", "the", "End", "end"]
    assert Tokenizer.from_directory(write_vocabulary(tmp_path, SPECIALS + words)).lowercases is lowercase


def test_missing_and_broken_files(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json and vocab\.txt, .*found.*model\.safetensors"):
        Tokenizer.from_directory(tmp_path)
    with pytest.raises(FileNotFoundError, match="no directory"):
        Tokenizer.from_directory(tmp_path / "nowhere")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[CLS]\n[SEP]\n")
    with pytest.raises(ValueError, match=r"vocab.txt can't be used: .*no unk token '\[UNK\]'"):
        Tokenizer.from_directory(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="not UTF-8"):
        Tokenizer.from_directory(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a tokenizer"):
        Tokenizer.from_directory(tmp_path)


def test_written_files_load_in_transformers(both, tmp_path, probes):
    tokenizer, _, _ = both
    hf_tokenizer = AutoTokenizer.from_pretrained(write(tokenizer, tmp_path))
    assert type(hf_tokenizer).__name__ == "BertTokenizer"
    batch = tokenizer(probes, probes[::-1], max_length=30)
    expected = hf_tokenizer(probes, probes[::-1], truncation=True, max_length=30, padding=True, return_tensors="np")
    np.testing.assert_array_equal(batch["token_ids"], expected["input_ids"])
    np.testing.assert_array_equal(batch["segment_ids"], expected["token_type_ids"])
    again = Tokenizer.from_directory(tmp_path)
    assert again.file_contents() == tokenizer.file_contents()


def test_tokenizers_that_are_not_plain_bert_load_in_transformers_too(tokenizer, tmp_path):
    # One [SEP] fewer than BERT's template: transformers' BertTokenizer would put it back.
    content = json.loads(tokenizer.file_contents()["tokenizer.json"])
    content["post_processor"]["pair"].pop()
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = Tokenizer.from_directory(tmp_path)
    hf_tokenizer = AutoTokenizer.from_pretrained(write(tokenizer, tmp_path))
    expected = hf_tokenizer("the film", "the end")
    assert tokenizer("the film", "the end")["token_ids"].tolist() == [expected["input_ids"]]
    assert tokenizer("the film", "the end")["segment_ids"].tolist() == [expected["token_type_ids"]]


def test_round_trip_keeps_tokenizer_json(minilm):
    written = Tokenizer.from_directory(minilm).file_contents()
    original = json.loads((minilm / "tokenizer.json").read_text())
    original.update(truncation=None, padding=None)
    assert json.loads(written["tokenizer.json"]) == original
    config = json.loads((minilm / "tokenizer_config.json").read_text())
    assert json.loads(written["tokenizer_config.json"]) == config


def test_config_overrides_the_case_of_tokenizer_json(tmp_path):
    write(Tokenizer.from_vocabulary(SPECIALS + ["The", "the"]), tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config |= {"do_lower_case": False, "auto_map": {"AutoTokenizer": ["code.Tokenizer", None]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer.from_directory(tmp_path)
    hf_tokenizer = BertTokenizer.from_pretrained(tmp_path)
    assert tokenizer.encode("The").row(0).tolist() == hf_tokenizer("The")["input_ids"] == [2, 5, 3]
    assert "auto_map" not in json.loads(tokenizer.file_contents()["tokenizer_config.json"])
