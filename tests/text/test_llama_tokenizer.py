"""EuroBERT's kind of tokenizer, Llama 3's byte-level BPE between two markers, against transformers."""

import json

import pytest
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import bertzoo as bz

pytestmark = pytest.mark.once
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BEGIN, END, MASK, PAD = MARKERS = ["<|begin_of_text|>", "<|end_of_text|>", "<|mask|>", "<|pad|>"]
TEXTS = ["l'été 1234567 schön  don't\n\n", f"a {MASK} film", "", "Ein schöner Film 中文 🙂"]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """transformers' tokenizer and its directory."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(WORDS), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Sequence([split, byte_level]), decoders.ByteLevel()
    options = {"special_tokens": MARKERS, "initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    tokenizer.train_from_iterator(
        [*TEXTS, "a gripping film, don't you think"] * 3, trainers.BpeTrainer(vocab_size=330, **options)
    )
    ids = [(name, tokenizer.token_to_id(name)) for name in (BEGIN, END)]
    single = f"{BEGIN} $A {END}"
    tokenizer.post_processor = processors.TemplateProcessing(single, f"{single} $B:1 {END}:1", ids)
    names = {"bos_token": BEGIN, "eos_token": END, "mask_token": MASK, "pad_token": PAD}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    directory = tmp_path_factory.mktemp("eurobert")
    fast.save_pretrained(directory)
    sizes = {"vocab_size": 330, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    content = {**sizes, "model_type": "eurobert", "pad_token_id": tokenizer.token_to_id(PAD)}
    (directory / "config.json").write_text(json.dumps(content))
    return fast, directory


def test_ids_are_those_of_transformers(reference, tmp_path):
    fast, directory = reference
    tokenizer = bz.Tokenizer.from_directory(directory)
    (tmp_path / "config.json").write_bytes((directory / "config.json").read_bytes())
    for name, content in tokenizer.file_contents().items():
        (tmp_path / name).write_bytes(content)
    for own in (tokenizer, bz.Tokenizer.from_directory(tmp_path)):
        for pairs in (None, TEXTS[::-1]):
            expected = fast(TEXTS, pairs, padding=True)
            actual = own(TEXTS, pairs)
            assert actual["token_ids"].tolist() == expected["input_ids"]
            assert actual["padding_mask"].tolist() == expected["attention_mask"]


def test_a_masked_language_model_finds_its_mask(reference):
    _, directory = reference
    config = bz.EncoderConfig.from_file(directory / "config.json")
    task = bz.MaskedLM(bz.Encoder(config), bz.Tokenizer.from_directory(directory))
    answers = task.fill_mask(f"a {MASK} film")
    assert len(answers) == 5 and all("token" in answer for answer in answers)
