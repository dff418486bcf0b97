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
    found = bz.describe(directory)
    assert {part: n for part, n in found.parts.items() if n} == counted(model)
    assert found.parameters == model.num_parameters()


@pytest.mark.parametrize("shown", ["google-bert/bert-base-uncased", "hf://google-bert/bert-base-uncased"])
def test_parts_of_a_published_one(shown):
    import torch

    with torch.device("meta"):
        model = transformers.BertModel(transformers.BertConfig())
    found = bz.describe(shown)
    assert {part: n for part, n in found.parts.items() if n} == counted(model)
    text = str(found)
    assert "109,482,240" in text and "12 layers × 768" in text and found.published.use in text


def test_the_catalog_agrees_with_what_is_counted():
    seen = {}
    for name, row in load_catalog().items():
        key = tuple(map(str, row.config.items()))
        seen.setdefault(key, (name, row.parameters))
        assert seen[key][1] == row.parameters
    for name, parameters in seen.values():
        assert bz.describe(name).parameters == parameters, name


def test_what_is_not_known_is_told(tmp_path):
    with pytest.raises(ValueError, match="catalog has no 'nobody/nothing'"):
        bz.describe("nobody/nothing")
    with pytest.raises(ValueError, match="no preset 'nothing'"):
        bz.describe("nothing")
    with pytest.raises(ValueError, match=r"no config\.json"):
        bz.describe(tmp_path)
