"""`describe` against transformers' modules, counted by their names."""

import pytest
import transformers

import bertzoo as bz
from bertzoo.checkpoints.catalog import load_catalog


def counted(model) -> dict[str, int]:
    """Parameters of a transformers BERT by part, from the names that it gives them."""
    parts = {}
    for name, weight in model.named_parameters():
        part = next(
            part
            for part, sign in (
                ("head", "cls."),
                ("head", "classifier"),
                ("norms", "LayerNorm"),
                ("embeddings", "embeddings"),
                ("pooler", "pooler"),
                ("attention", "attention"),
                ("feed-forward", ""),
            )
            if sign in name
        )
        parts[part] = parts.get(part, 0) + weight.numel()
    return parts


@pytest.mark.parametrize("name", ["BertModel", "BertForSequenceClassification", "BertForMaskedLM"])
def test_parts_of_a_directory(write_checkpoint, name):
    directory, model = write_checkpoint(name)
    actual = bz.describe(directory)
    assert {part: n for part, n in actual.parts.items() if n} == counted(model)
    assert actual.parameters == model.num_parameters()


@pytest.mark.parametrize("shown", ["google-bert/bert-base-uncased", "hf://google-bert/bert-base-uncased"])
def test_parts_of_a_published_one(shown):
    import torch

    with torch.device("meta"):
        model = transformers.BertModel(transformers.BertConfig())
    actual = bz.describe(shown)
    assert {part: n for part, n in actual.parts.items() if n} == counted(model)
    text = str(actual)
    assert "109,482,240" in text and "12 layers × 768" in text and actual.published.use in text


@pytest.mark.slow
@pytest.mark.once
def test_the_catalog_agrees_with_what_is_counted():
    seen = {}
    for name, row in load_catalog().items():
        shape = tuple(f"{key}={value}" for key, value in row.config.items() if key != "vocab_size")
        if shape not in seen:
            seen[shape] = bz.describe(name)
        counted = seen[shape]
        # Encoders of one shape differ by the rows of the token table.
        rows = row.config["vocab_size"] - counted.config.vocab_size
        assert counted.parameters + rows * counted.config.embedding_size == row.parameters, name


# Counted from modules of transformers on the meta device, with poolers where these have them without a head.
PUBLISHED = {
    "google-bert/bert-base-uncased": 109_482_240,
    "google-bert/bert-base-cased": 108_310_272,
    "google-bert/bert-large-uncased": 335_141_888,
    "google-bert/bert-base-multilingual-cased": 177_853_440,
    "google-bert/bert-base-chinese": 102_267_648,
    "allenai/scibert_scivocab_uncased": 109_918_464,
    "nlpaueb/legal-bert-small-uncased": 35_068_416,
    "sentence-transformers/all-MiniLM-L6-v2": 22_713_216,
    "microsoft/MiniLM-L12-H384-uncased": 33_360_000,
    "FacebookAI/roberta-base": 124_645_632,
    "FacebookAI/roberta-large": 355_359_744,
    "distilbert/distilroberta-base": 82_118_400,
    "FacebookAI/xlm-roberta-base": 278_043_648,
    "distilbert/distilbert-base-uncased": 66_362_880,
    "google/electra-small-discriminator": 13_483_008,
    "google/electra-base-discriminator": 108_891_648,
    "google/electra-base-generator": 33_511_168,
    "google/electra-large-generator": 50_999_552,
    "microsoft/deberta-base": 138_601_728,
    "microsoft/deberta-large": 405_163_008,
    "microsoft/deberta-v2-xlarge": 884_593_152,
    "microsoft/deberta-v2-xxlarge": 1_564_549_632,
    "microsoft/deberta-v3-xsmall": 70_682_112,
    "microsoft/deberta-v3-base": 183_831_552,
    "microsoft/mdeberta-v3-base": 278_218_752,
    "sentence-transformers/all-mpnet-base-v2": 109_486_464,
    "answerdotai/ModernBERT-base": 149_014_272,
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


@pytest.mark.once
def test_the_catalog_has_the_counts_of_transformers():
    assert {name: load_catalog()[name].parameters for name in PUBLISHED} == PUBLISHED


def test_what_is_not_known_is_told(tmp_path):
    with pytest.raises(ValueError, match="catalog has no 'nobody/nothing'"):
        bz.describe("nobody/nothing")
    with pytest.raises(ValueError, match="no preset 'nothing'"):
        bz.describe("nothing")
    with pytest.raises(ValueError, match=r"no config\.json"):
        bz.describe(tmp_path)
