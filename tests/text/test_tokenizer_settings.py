"""Every key of tokenizer_config.json that transformers interprets: done, refused, or without effect on tokens.

The keys are those that transformers' AutoTokenizer, PreTrainedTokenizerBase, TokenizersBackend and the tokenizer
classes of our families read; each is tried on the same directory with both libraries.
"""

import json
import shutil

import pytest
from transformers import AutoTokenizer, BertTokenizer

from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.vocabulary import train_byte_bpe

pytestmark = pytest.mark.once

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "the The café cafe film good bad , . 中 文 中文 [X] [ x ] mask was un ##happy".split()  # noqa: SIM905
TEXTS = [
    "The café was good , unhappy film 中文 .",
    "good [X] film [MASK] bad [SEP] the",
    "  <mask> The bad <s>  .",
    "[X]",
]
CUT = {"max_length": 5, "direction": "right", "stride": 0, "strategy": "longest_first"}
FILLED = {
    "length": 20,
    "direction": "right",
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "[PAD]",
    "pad_to_multiple_of": None,
}
X = {"content": "[X]", "special": True, "lstrip": True, "rstrip": False, "single_word": False, "normalized": False}

# What changes tokens, with the directories on which it does.
DONE = [
    ("added_tokens_decoder", {"17": X}, "bert vocab"),
    ("additional_special_tokens", ["[X]"], "bert vocab roberta"),
    ("additional_special_tokens", [{"__type": "AddedToken", **X}], "bert vocab roberta"),
    ("additional_special_tokens", ["good [X]"], "bert vocab roberta"),
    ("extra_special_tokens", ["[X]"], "bert vocab roberta"),
    ("extra_special_tokens", {"x_token": "[X]"}, "bert vocab roberta"),
    ("model_specific_special_tokens", {"x_token": "[X]"}, "bert vocab roberta"),
    ("bos_token", "[X]", "bert vocab"),
    ("eos_token", "[X]", "bert vocab"),
    ("image_token", "[X]", "bert vocab"),
    ("pad_token", "[X]", "bert vocab"),
    ("mask_token", "[X]", "bert vocab"),
    ("cls_token", "[X]", "vocab"),
    ("sep_token", "[X]", "vocab"),
    ("unk_token", "[X]", "vocab"),
    ("do_lower_case", False, "bert vocab"),
    ("strip_accents", False, "bert vocab"),
    ("tokenize_chinese_chars", False, "bert vocab"),
    ("add_prefix_space", True, "roberta"),
    ("truncation_side", "left", "bert vocab roberta"),
    ("split_special_tokens", True, "bert vocab roberta"),
]
# What contradicts tokenizer.json, needs what bertzoo lacks, or is of the wrong kind.
REFUSED = [
    ("cls_token", "[X]", "bert roberta"),
    ("sep_token", "[X]", "bert roberta"),
    ("unk_token", "[X]", "bert"),
    ("cls_token", "[NEW]", "vocab"),
    ("cls_token", 7, "bert vocab roberta"),
    ("cls_token", {"lstrip": True}, "bert vocab roberta"),
    ("tokenizer_class", "BertJapaneseTokenizer", "vocab"),
    ("tokenizer_class", 3, "bert vocab roberta"),
    ("truncation_side", "middle", "bert vocab roberta"),
    ("additional_special_tokens", "[X]", "bert vocab roberta"),
    ("additional_special_tokens", [["[X]"]], "bert vocab roberta"),
    ("added_tokens_decoder", {"3": X}, "bert vocab roberta"),
    ("added_tokens_decoder", {"x": X}, "bert vocab roberta"),
    ("added_tokens_decoder", {"17": "[X]"}, "bert vocab roberta"),
    ("do_lower_case", "false", "bert vocab"),
    ("model_max_length", "512", "bert vocab roberta"),
    ("model_max_length", 1, "bert vocab roberta"),
]
# Of decoding, chat, padding and how transformers finds and makes its object; and what its classes no longer read.
INERT = [
    ("auto_map", {"AutoTokenizer": ["code.Tokenizer", None]}),
    ("padding_side", "left"),
    ("pad_token_type_id", 1),
    ("pad_to_multiple_of", 8),
    ("model_input_names", ["input_ids"]),
    ("model_max_length", 1e30),
    ("max_length", 5),
    ("stride", 2),
    ("truncation_strategy", "only_first"),
    ("tokenizer_truncation", CUT),
    ("_json_truncation", CUT),
    ("tokenizer_padding", FILLED),
    ("_json_padding", FILLED),
    ("clean_up_tokenization_spaces", True),
    ("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", True),
    ("chat_template", "x"),
    ("chat_control_tokens", ["[X]"]),
    ("response_template", "x"),
    ("response_schema", {}),
    ("add_bos_token", True),
    ("add_eos_token", True),
    ("trim_offsets", False),
    ("errors", "strict"),
    ("backend", "tokenizers"),
    ("name_or_path", "x"),
    ("processor_class", "X"),
    ("verbose", True),
    ("use_fast", False),
    ("init_inputs", []),
    ("tokenizer_file", "x"),
    ("vocab_file", "x"),
    ("merges_file", "x"),
    ("special_tokens_map_file", "x"),
    ("fix_mistral_regex", True),
    ("legacy", True),
    ("unk_id", 3),
    ("keep_accents", True),
    ("remove_space", False),
    ("split_by_punct", True),
    ("sp_model_kwargs", {"enable_sampling": True}),
    ("vocab_type", "character"),
    ("do_basic_tokenize", False),
    ("never_split", ["The"]),
    ("clean_text", False),
    ("wordpieces_prefix", "@@"),
]


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """BERT with tokenizer.json, the same with vocab.txt alone, and RoBERTa with tokenizer.json."""
    root = tmp_path_factory.mktemp("tokenizers")
    vocabulary = {token: i for i, token in enumerate(SPECIALS + WORDS)}
    BertTokenizer(vocab=vocabulary, do_lower_case=True).save_pretrained(root / "bert")
    (root / "bert" / "config.json").write_text('{"model_type": "bert"}')
    shutil.copytree(root / "bert", root / "vocab")
    (root / "vocab" / "tokenizer.json").unlink()
    (root / "vocab" / "vocab.txt").write_text("".join(token + "\n" for token in vocabulary))
    (root / "roberta").mkdir()
    tokenizer = train_byte_bpe(TEXTS * 5, vocabulary_size=300, progress=False)
    for name, content in tokenizer.file_contents().items():
        (root / "roberta" / name).write_bytes(content)
    change(root / "roberta", {"tokenizer_class": "RobertaTokenizer"})
    (root / "roberta" / "config.json").write_text('{"model_type": "roberta"}')
    return root


def change(directory, settings):
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


@pytest.fixture
def with_setting(directories, tmp_path):
    def make(kind, settings):
        shutil.copytree(directories / kind, tmp_path / kind)
        change(tmp_path / kind, settings)
        return tmp_path / kind

    return make


def token_ids(directory):
    tokenizer = Tokenizer.from_directory(directory)
    rows = [tokenizer.encode(text) for text in TEXTS]
    rows += [tokenizer.encode(text, max_length=6) for text in TEXTS]
    rows += [tokenizer.encode(text, TEXTS[0], max_length=10) for text in TEXTS]
    return [encoded.row(0).tolist() for encoded in rows]


def hf_token_ids(directory):
    tokenizer = AutoTokenizer.from_pretrained(directory)
    rows = [tokenizer(text) for text in TEXTS]
    rows += [tokenizer(text, truncation=True, max_length=6) for text in TEXTS]
    rows += [tokenizer(text, TEXTS[0], truncation=True, max_length=10) for text in TEXTS]
    return [row["input_ids"] for row in rows]


def cases(table):
    return [(key, value, kind) for key, value, kinds in table for kind in kinds.split()]


@pytest.mark.parametrize(("key", "value", "kind"), cases(DONE))
def test_done(key, value, kind, directories, with_setting, tmp_path):
    directory = with_setting(kind, {key: value})
    expected = hf_token_ids(directory)
    assert expected != hf_token_ids(directories / kind)
    assert token_ids(directory) == expected
    for name, content in Tokenizer.from_directory(directory).file_contents().items():  # and kept
        (tmp_path / name).write_bytes(content)
    assert token_ids(tmp_path) == expected


@pytest.mark.parametrize(("key", "value", "kind"), cases(REFUSED))
def test_refused(key, value, kind, with_setting):
    directory = with_setting(kind, {key: value})
    with pytest.raises(ValueError, match=str(directory)):
        Tokenizer.from_directory(directory)


@pytest.mark.parametrize("kind", ["bert", "vocab"])
@pytest.mark.parametrize("named", ["RoFormerTokenizer", "RoFormerTokenizerFast", None])
def test_jieba_is_refused(named, kind, with_setting):
    """Both files could be read, as another tokenizer: transformers writes BERT's rule into its tokenizer.json."""
    directory = with_setting(kind, {"tokenizer_class": named})
    (directory / "config.json").write_text('{"model_type": "roformer"}')
    with pytest.raises(ValueError, match="jieba"):
        Tokenizer.from_directory(directory)
    change(directory, {"tokenizer_class": "BertTokenizer"})
    assert token_ids(directory) == hf_token_ids(directory)


@pytest.mark.parametrize("kind", ["bert", "vocab", "roberta"])
def test_without_effect_on_tokens(kind, directories, tmp_path):
    expected = hf_token_ids(directories / kind)
    for key, value in INERT:
        directory = tmp_path / key
        shutil.copytree(directories / kind, directory)
        change(directory, {key: value})
        assert hf_token_ids(directory) == expected, key
        assert token_ids(directory) == expected, key


def test_the_longest_row_is_what_either_key_says(with_setting, tmp_path):
    """Here without asking, where transformers cuts if `truncation=True`."""
    for key in ("model_max_length", "max_len"):
        directory = with_setting("bert", {"model_max_length": None, key: 6})
        settings = json.loads((directory / "tokenizer_config.json").read_text())
        if key == "max_len":
            del settings["model_max_length"]
            (directory / "tokenizer_config.json").write_text(json.dumps(settings))
        expected = AutoTokenizer.from_pretrained(directory)(TEXTS[0], truncation=True)["input_ids"]
        assert Tokenizer.from_directory(directory).encode(TEXTS[0]).row(0).tolist() == expected and len(expected) == 6
        shutil.rmtree(directory)


def test_null_is_as_if_a_setting_were_not_there(directories, with_setting):
    directory = with_setting("bert", {"do_lower_case": None, "tokenize_chinese_chars": None, "cls_token": None})
    assert token_ids(directory) == token_ids(directories / "bert")


POST = {
    "an id beyond the vocabulary": lambda p: p["special_tokens"]["[CLS]"].update(ids=[999]),
    "a segment that there is not": lambda p: p["pair"][3]["Sequence"].update(type_id=7),
}


@pytest.mark.parametrize("kind", POST)
def test_a_frame_that_no_model_can_have(kind, directories, tmp_path):
    shutil.copytree(directories / "bert", tmp_path / "bert")
    path = tmp_path / "bert" / "tokenizer.json"
    content = json.loads(path.read_text())
    POST[kind](content["post_processor"])
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"{tmp_path}.*template for texts has (the id 999|the segment 7)"):
        Tokenizer.from_directory(tmp_path / "bert")
