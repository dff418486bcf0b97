"""The catalog: facts against figures that do not come from our own counting, and what it is used for."""

import re
import subprocess
import sys
import tomllib

import pytest

from bertzoo.checkpoints.catalog import find_catalog_entry, is_lowercase_in_catalog, load_catalog
from bertzoo.models.config import EncoderConfig
from bertzoo.text.tokenizer import Tokenizer

pytestmark = pytest.mark.once


# What transformers counts for the encoder of each, with its pooler.
COUNTED = {
    "google-bert/bert-base-uncased": 109_482_240,
    "google-bert/bert-large-cased": 333_579_264,
    "google-bert/bert-base-multilingual-cased": 177_853_440,
    "allenai/scibert_scivocab_uncased": 109_918_464,
    "dmis-lab/biobert-v1.1": 108_310_272,
    "nlpaueb/legal-bert-small-uncased": 35_068_416,
    "sentence-transformers/all-MiniLM-L6-v2": 22_713_216,
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2": 117_653_760,
    "FacebookAI/roberta-large": 355_359_744,
    "distilbert/distilroberta-base": 82_118_400,
    "FacebookAI/xlm-roberta-base": 278_043_648,
    "albert/albert-xxlarge-v2": 222_595_584,
    "distilbert/distilbert-base-multilingual-cased": 134_734_080,
    "google/electra-small-discriminator": 13_483_008,
    "google/electra-large-generator": 50_999_552,
    "microsoft/mpnet-base": 109_486_464,
    "microsoft/deberta-xlarge": 757_804_032,
    "microsoft/deberta-v2-xxlarge": 1_564_549_632,
    "microsoft/deberta-v3-small": 141_304_320,
    "microsoft/mdeberta-v3-base": 278_218_752,
    "answerdotai/ModernBERT-large": 394_781_696,
    "nghuyong/ernie-3.0-base-zh": 117_944_832,
    "nghuyong/ernie-3.0-nano-zh": 17_908_176,
    "nomic-ai/nomic-embed-text-v1.5": 136_731_648,
    "Alibaba-NLP/gte-multilingual-base": 305_368_320,
    "Alibaba-NLP/gte-base-en-v1.5": 136_776_192,
    "EuroBERT/EuroBERT-210m": 211_766_016,
    "EuroBERT/EuroBERT-610m": 607_874_688,
    "EuroBERT/EuroBERT-2.1B": 2_107_590_912,
}


def test_entries_are_well_formed():
    catalog = load_catalog()
    assert len(catalog) >= 60
    for name, row in catalog.items():
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", name) and row.name == name
        assert row.tasks and row.use and row.licence in (None, "apache-2.0", "mit", "cc-by-4.0", "cc-by-sa-4.0")
        config = EncoderConfig.from_hf(row.config)
        assert not config.unknown_keys and config.max_length == row.max_length


def test_all_families_are_there():
    from bertzoo.models.registry import FAMILIES

    # RoFormer's published checkpoints need its Chinese tokenizer.
    assert {row.model_type for row in load_catalog().values()} == set(FAMILIES) - {"roformer"}


def test_parameters():
    for name, parameters in COUNTED.items():
        assert find_catalog_entry(name).parameters == parameters, name


def test_names_are_unique_in_the_file():
    path = next(p for p in _places() if p.is_file())
    names = [row["name"] for row in tomllib.loads(path.read_text("utf-8"))["checkpoints"]]
    assert len(names) == len(set(names))


def _places():
    import bertzoo

    (package,) = bertzoo.__path__
    from pathlib import Path

    return Path(package, "_bundled/weights/catalog.toml"), Path(package).parent / "weights" / "catalog.toml"


def test_an_unknown_name_is_an_error():
    with pytest.raises(ValueError, match=r"no 'google/bert-base-uncase'; similar names: google-bert/bert-base-uncased"):
        find_catalog_entry("hf://google/bert-base-uncase")


@pytest.mark.parametrize(
    ("name", "lowercase"), [("dmis-lab/biobert-v1.1", False), ("allenai/scibert_scivocab_uncased", True)]
)
def test_the_case_of_a_domain_checkpoint_without_tokenizer_config(tmp_path, name, lowercase):
    # The vocabulary tells the wrong case on purpose.
    words = ["the", "film"] if not lowercase else ["The", "Film", "FILM"]
    folder = tmp_path / f"models--{name.replace('/', '--')}" / "snapshots" / "0123abcd"
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n")
    assert is_lowercase_in_catalog(folder) is lowercase
    assert Tokenizer.from_directory(folder).lowercases is lowercase
    assert Tokenizer.from_directory(folder, lowercase=not lowercase).lowercases is not lowercase
    (folder / "tokenizer_config.json").write_text(f'{{"do_lower_case": {str(not lowercase).lower()}}}')
    assert Tokenizer.from_directory(folder).lowercases is not lowercase


def test_reading_it_imports_no_keras():
    code = (
        "import sys; from bertzoo.checkpoints.catalog import load_catalog; load_catalog()\n"
        "print([n for n in ('keras', 'tensorflow', 'jax', 'torch') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
