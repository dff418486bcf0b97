"""Weights as they are written: torch and transformers read them."""

import json
import os

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch

from bertzoo.checkpoints.saving import write_preset
from bertzoo.checkpoints.tensors import build_weight_files, open_tensors_in_directory, save_tensors

pytestmark = pytest.mark.once


def test_torch_reads_what_is_written(tmp_path):
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    tensors = {
        "plain": array,
        "transposed": array.T,
        "sliced": array[::2, 1:3],
        "half": array.astype(np.float16),
        "brain": (array / 7).astype(ml_dtypes.bfloat16),
        "scalar": np.array(3.5, np.float64),
        "big endian": array.astype(">f4"),
        "ids": np.arange(3),
    }
    save_tensors(tmp_path / "x.safetensors", tensors)
    loaded = safetensors.torch.load_file(tmp_path / "x.safetensors")
    with safetensors.safe_open(tmp_path / "x.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}
    assert set(loaded) == set(tensors)
    for name, expected in tensors.items():
        assert tuple(loaded[name].shape) == expected.shape
        np.testing.assert_array_equal(loaded[name].double().numpy(), expected.astype(np.float64))
    assert loaded["brain"].dtype == torch.bfloat16
    assert loaded["half"].dtype == torch.float16


def test_small_weights_are_one_file_and_large_ones_shards(tmp_path):
    tensors = {f"t{i}": np.full((i + 1, 10), i, np.float32) for i in range(6)}  # 40, 80, …, 240 bytes
    assert list(build_weight_files(tensors)) == ["model.safetensors"]
    files = build_weight_files(tensors, max_shard_bytes=200)
    write_preset(tmp_path / "preset", files)
    names = [f"model-0000{i}-of-00005.safetensors" for i in range(1, 6)]
    assert sorted(os.listdir(tmp_path / "preset")) == [*names, "model.safetensors.index.json"]
    index = json.loads((tmp_path / "preset" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 840
    for name, shard in index["weight_map"].items():
        held = safetensors.torch.load_file(tmp_path / "preset" / shard)
        np.testing.assert_array_equal(held[name].numpy(), tensors[name])
        assert len(held) == 1 or sum(tensor.nbytes for tensor in held.values()) <= 200
    with open_tensors_in_directory(tmp_path / "preset") as loaded:
        assert set(loaded) == set(tensors)


def test_transformers_loads_shards(tmp_path):
    from transformers import BertConfig, BertModel

    sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "max_position_embeddings": 4}
    model = BertModel(BertConfig(num_hidden_layers=1, num_attention_heads=2, **sizes)).eval()
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    files = {"config.json": model.config.to_json_string().encode(), **build_weight_files(state, max_shard_bytes=1000)}
    write_preset(tmp_path / "preset", files)
    assert len(os.listdir(tmp_path / "preset")) > 3
    loaded, info = BertModel.from_pretrained(tmp_path / "preset", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    for name, tensor in loaded.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), state[name])
