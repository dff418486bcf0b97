"""Runs exported models on a CPU with ONNX Runtime: no Keras and no backend is imported here."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertzoo.text.encoded import Encoded, encoded_from_arrays, lengths_to_row_splits
from bertzoo.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import onnxruntime

MODEL_FILE, INT8_FILE = "model.onnx", "model_int8.onnx"
SETTINGS = "bertzoo"  # the key of the file's metadata
HF_NAMES = {"token_ids": "input_ids", "padding_mask": "attention_mask", "segment_ids": "token_type_ids"}


class OnnxModel:
    """An exported encoder or task, with what answers need besides: settings and tokenizer.

    `OnnxModel.from_directory(path)` loads what `model.export(path, format="onnx")` wrote.

    Args:
        graph: The file, or its content.
        tokenizer: The tokenizer; None if the caller tokenizes.
        num_threads: Threads of one run; all cores where None.

    Attributes:
        task: The class of the task, such as "TextClassifier"; "Encoder" for an encoder.
        settings: What the task's constructor was given, as JSON values: `labels`, `problem_type`, `prompts`, …
        output_names: The names of `run`'s outputs.

    Raises:
        ImportError: onnxruntime is missing; the extra `onnx` has it.
        ValueError: The file was not written by bertzoo.
    """

    def __init__(
        self, graph: bytes | str | os.PathLike, tokenizer: Tokenizer | None = None, num_threads: int | None = None
    ):
        self.session = make_session(graph, num_threads)
        metadata = self.session.get_modelmeta().custom_metadata_map
        if SETTINGS not in metadata:
            raise ValueError("Expected a model that bertzoo exported. Received: an ONNX file without its settings.")
        self.settings: dict[str, Any] = json.loads(metadata[SETTINGS])
        self.task: str = self.settings["task"]
        self.tokenizer = tokenizer
        self.input_names = [node.name for node in self.session.get_inputs()]
        self.output_names = [node.name for node in self.session.get_outputs()]
        self._axes = {node.name: node.shape for node in self.session.get_outputs()}

    @classmethod
    def from_directory(cls, directory: str | os.PathLike, num_threads: int | None = None) -> OnnxModel:
        """Loads a directory that `export` wrote.

        Args:
            directory: The directory.
            num_threads: Threads of one run; all cores where None.
        """
        folder = Path(directory)
        has_tokenizer = (folder / "tokenizer.json").exists()
        model = cls(folder / MODEL_FILE, Tokenizer.from_directory(folder) if has_tokenizer else None, num_threads)
        if model.tokenizer is not None:
            model.tokenizer.max_length = model.settings["max_length"]
            model.tokenizer.segments = "token_type_ids" in model.input_names
        return model

    def run(self, encoded: Encoded | Mapping[str, Any] | Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
        """The outputs for some rows of tokens, in their order.

        Args:
            encoded: What `tokenizer.encode` or `tokenizer(…)` gives; or lists of token ids, one for each row.

        Returns:
            Name -> float32 array. Outputs for rows are (n, …), outputs for tokens (n, length of the longest row, …)
            with 0 at padding.

        Raises:
            ValueError: A row has no tokens or too many, or an id is beyond the vocabulary.
        """
        rows = self._rows(encoded)
        batch = rows.pad(np.arange(len(rows)), int(rows.lengths.max()), self.settings["pad_token_id"] or 0)
        feed = {HF_NAMES[name]: array.astype(np.int64) for name, array in batch.items()}
        arrays = self.session.run(None, {name: feed[name] for name in self.input_names})
        outputs = dict(zip(self.output_names, arrays))
        for name, array in outputs.items():
            if self._axes[name][1:2] == ["length"]:
                array[batch["padding_mask"] == 0] = 0
        return outputs

    def _rows(self, encoded: Any) -> Encoded:
        vocab_size, max_length = self.settings["vocab_size"], self.settings["max_length"]
        if isinstance(encoded, Mapping):
            encoded = encoded_from_arrays(dict(encoded), vocab_size)
        elif not isinstance(encoded, Encoded):
            ids = np.fromiter((i for row in encoded for i in row), np.int32)
            splits = lengths_to_row_splits(np.array([len(row) for row in encoded], np.int64))
            encoded = Encoded(ids, np.zeros(len(ids), np.int8), splits)
        lengths = encoded.lengths
        if not len(lengths) or lengths.min() < 1 or lengths.max() > max_length:
            received = f"rows of {lengths.min()} to {lengths.max()} tokens" if len(lengths) else "no rows"
            raise ValueError(f"Expected rows of 1 to {max_length} tokens. Received: {received}.")
        if not 0 <= encoded.token_ids.min() <= encoded.token_ids.max() < vocab_size:
            bounds = f"{encoded.token_ids.min()} to {encoded.token_ids.max()}"
            raise ValueError(f"Expected token ids from 0 to {vocab_size - 1}. Received: ids from {bounds}.")
        return encoded


def make_session(graph: bytes | str | os.PathLike, num_threads: int | None = None) -> onnxruntime.InferenceSession:
    """A session whose memory stays flat and whose threads sleep between runs.

    Args:
        graph: The file, or its content.
        num_threads: Threads of one run; all cores where None.

    Raises:
        ImportError: onnxruntime is missing.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(
            f'{error}. Running exported models needs the extra "onnx": pip install "bertzoo[onnx]"'
        ) from error
    options = onnxruntime.SessionOptions()
    # The arena would never return memory, and a plan would be kept for each shape.
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.intra_op_num_threads = num_threads or len(os.sched_getaffinity(0))
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if saturates_int8():
        options.add_session_config_entry("session.x64quantprecision", "1")
    source = graph if isinstance(graph, bytes) else os.fspath(graph)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def saturates_int8() -> bool:
    """Whether this processor adds pairs of 8-bit products in 16 bits, where they may overflow: x86 without VNNI.

    ONNX Runtime then takes another, slower form of the weights, which does not overflow.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    cpu_info = Path("/proc/cpuinfo")
    flags = cpu_info.read_text().split() if cpu_info.exists() else []
    return not {"avx512_vnni", "avx_vnni"} & set(flags)
