"""Runs exported models on a CPU with ONNX Runtime: no Keras and no backend is imported here."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertzoo.export.agreement import LEAST, measure_agreement
from bertzoo.text.encoded import Encoded, encoded_from_arrays
from bertzoo.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import onnxruntime

MODEL_FILE, INT8_MODEL_FILE = "model.onnx", "model_int8.onnx"
SETTINGS = "bertzoo"  # the key of the file's metadata
TOKENS_AT_ONCE = 256
MOST_PADDING = 2.0
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
        dtype: "float32" or "int8".
        output_names: The names of `run`'s outputs.

    Raises:
        ImportError: onnxruntime is missing.
        ValueError: The file was not written by bertzoo.

    Example:
        >>> encoder = bz.SentenceEncoder.from_preset("sentence_mini_en", verbose=False)
        >>> encoder.export("encoder", format="onnx")
        >>> model = bz.export.OnnxModel.from_directory("encoder")
        >>> model.task, model.output_names
        ('SentenceEncoder', ...)
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
        self.dtype: str = self.settings.get("dtype", "float32")
        self.tokenizer = tokenizer
        inputs, outputs = self.session.get_inputs(), self.session.get_outputs()
        self.input_names, self.output_names = [node.name for node in inputs], [node.name for node in outputs]
        self.has_choices = len(inputs[0].shape) == 3
        self._options = only_what_is_asked()
        self._shapes = {node.name: node.shape for node in outputs}

    @classmethod
    def from_directory(
        cls, directory: str | os.PathLike, num_threads: int | None = None, int8: bool | None = None
    ) -> OnnxModel:
        """Loads a directory that `export` wrote.

        A model in 8 bits is compared with the one in float32 first, on this machine.

        Args:
            directory: The directory.
            num_threads: Threads of one run; all cores where None.
            int8: Whether to load the model in 8 bits; where None, if there is one.

        Raises:
            FileNotFoundError: The directory lacks the file.
            ValueError: The model in 8 bits does not agree with the one in float32.
        """
        folder = Path(directory)
        if not (folder / MODEL_FILE).is_file():
            raise FileNotFoundError(f"Expected a directory with {MODEL_FILE}. Received: {folder}.")
        has_tokenizer = (folder / "tokenizer.json").exists()
        model = cls(folder / MODEL_FILE, Tokenizer.from_directory(folder) if has_tokenizer else None, num_threads)
        if model.tokenizer is not None:
            model.tokenizer.max_length = model.settings["max_length"]
            model.tokenizer.segments = "token_type_ids" in model.input_names
        if int8 is False or (int8 is None and not (folder / INT8_MODEL_FILE).is_file()):
            return model
        smaller = cls(folder / INT8_MODEL_FILE, model.tokenizer, num_threads)
        agreement = measure_agreement(model, smaller)
        if not agreement.is_enough:
            raise ValueError(
                f"on this machine the model in 8 bits is not like the one in float32: {agreement}, where at least "
                f"{LEAST} is needed. Load it with int8=False."
            )
        return smaller

    @property
    def reads_token_roles(self) -> bool:
        """Whether rows hold, in place of segments, which tokens stand for labels and words."""
        return "token_roles" in self.input_names

    def is_per_token(self, output: str) -> bool:
        """Whether an output has values for each token, (n, length, …)."""
        return self._shapes[output][1:2] == ["length"]

    def run(
        self, encoded: Encoded | Mapping[str, Any] | Sequence[Sequence[int]], outputs: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """The outputs for some rows of tokens, in their order.

        Rows of similar length are computed together, about 256 tokens at a time, which stay in a core's cache.

        Args:
            encoded: What `tokenizer.encode` gives, or lists of token ids, one for each row; or padded arrays as
                `tokenizer(…)` gives them, which for multiple choice are (n, choices, length).
            outputs: The names of the outputs to compute; all where None.

        Returns:
            Name -> float32 array. Outputs for rows are (n, …), outputs for tokens (n, length of the longest row, …)
            with 0 at padding, `mask_logits` (mask tokens, vocabulary), row by row.

        Raises:
            ValueError: There are no rows, a row has no tokens or too many, or an id is beyond the vocabulary.
        """
        names = self.output_names if outputs is None else list(outputs)
        if isinstance(encoded, Mapping) and (self.has_choices or "pooling_mask" in encoded):
            self._check(np.asarray(encoded["token_ids"]), np.asarray(encoded["padding_mask"]).sum(axis=-1).ravel())
            feed = {HF_NAMES.get(name, name): np.asarray(array).astype(np.int64) for name, array in encoded.items()}
            return self._run(feed, names)
        rows = self._rows(encoded)
        groups = group_rows(rows.lengths)
        found: list[dict[str, np.ndarray]] = []
        for group in groups:
            feed = feed_of_rows(rows, group, self.settings["pad_token_id"], self.has_choices)
            found.append(self._run(feed, names))
        if len(groups) == 1:
            return found[0]
        return {name: self._in_order(name, rows, groups, [outputs.pop(name) for outputs in found]) for name in names}

    def _in_order(self, name: str, rows: Encoded, groups: list[np.ndarray], arrays: list[np.ndarray]) -> np.ndarray:
        """An output of all rows in their order, from those of groups of rows."""
        if self._shapes[name][0] == "masks":
            is_mask = rows.token_ids == self.settings["mask_token_id"]
            counts = np.add.reduceat(is_mask, rows.row_splits[:-1], dtype=np.int64)
            order = np.concatenate([np.repeat(group, counts[group]) for group in groups])
            return np.concatenate(arrays)[np.argsort(order, kind="stable")]
        lengths = (int(rows.lengths.max()),) if self.is_per_token(name) else ()
        result = np.zeros((len(rows), *lengths, *arrays[0].shape[1 + len(lengths) :]), np.float32)
        for group, array in zip(groups, arrays):
            result[(group, slice(array.shape[1])) if lengths else group] = array
        return result

    def _run(self, feed: dict[str, np.ndarray], names: list[str]) -> dict[str, np.ndarray]:
        feed.setdefault("pooling_mask", feed["attention_mask"])
        if self.reads_token_roles:
            feed["token_roles"] = feed["token_type_ids"]
        arrays = self.session.run(names, {name: feed[name] for name in self.input_names}, self._options)
        outputs = dict(zip(names, arrays))
        for name in names:
            if self.is_per_token(name):
                outputs[name][feed["attention_mask"] == 0] = 0
        return outputs

    def _rows(self, encoded: Any) -> Encoded:
        if isinstance(encoded, Mapping):
            encoded = encoded_from_arrays(dict(encoded), self.settings["vocab_size"])
        elif not isinstance(encoded, Encoded):
            encoded = Encoded.from_rows(encoded)
        self._check(encoded.token_ids, encoded.lengths)
        return encoded

    def _check(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        vocab_size, max_length = self.settings["vocab_size"], self.settings["max_length"]
        if not len(lengths) or lengths.min() < 1 or lengths.max() > max_length:
            received = f"rows of {lengths.min()} to {lengths.max()} tokens" if len(lengths) else "no rows"
            raise ValueError(f"Expected rows of 1 to {max_length} tokens. Received: {received}.")
        if not 0 <= ids.min() <= ids.max() < vocab_size:
            raise ValueError(
                f"Expected token ids from 0 to {vocab_size - 1}. Received: ids from {ids.min()} to {ids.max()}."
            )


def feed_of_rows(rows: Encoded, group: np.ndarray, pad_id: int, has_choices: bool = False) -> dict[str, np.ndarray]:
    """The inputs of a graph for some rows, padded to the longest of them; with `has_choices` each is a choice alone."""
    batch = rows.pad(group, int(rows.lengths[group].max()), pad_id)
    feed = {HF_NAMES[name]: array.astype(np.int64) for name, array in batch.items()}
    return {name: array[:, None] for name, array in feed.items()} if has_choices else feed


def group_rows(lengths: np.ndarray) -> list[np.ndarray]:
    """The indices of rows that are computed together: of similar length, about `TOKENS_AT_ONCE` tokens, each ascending.

    Attention alone computes padding, so that rows of a group are at most twice as long as the mean.
    """
    order = np.argsort(lengths, kind="stable")
    groups, begin, tokens = [], 0, 0
    for i, row in enumerate(order):
        length, count = int(lengths[row]), i - begin
        is_full = tokens + length > TOKENS_AT_ONCE or length * (count + 1) > MOST_PADDING * (tokens + length)
        if count and is_full:
            groups.append(np.sort(order[begin:i]))
            begin, tokens = i, 0
        tokens += length
    return [*groups, np.sort(order[begin:])]


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
            f'{error}. Exports need the extra "export"; in the clone of this project: pip install -e ".[export]"'
        ) from error
    options = onnxruntime.SessionOptions()
    # The arena would never return memory, and a plan would be kept for each shape.
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.intra_op_num_threads = num_threads or available_cores()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if saturates_int8():
        options.add_session_config_entry("session.x64quantprecision", "1")
    source = graph if isinstance(graph, bytes) else os.fspath(graph)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def saturates_int8() -> bool:
    """Whether this processor adds pairs of 8-bit products in 16 bits, where they may overflow: x86 without VNNI.

    ONNX Runtime then takes another, slower form of the weights, which does not overflow.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    cpu_info = Path("/proc/cpuinfo")
    flags = cpu_info.read_text().split() if cpu_info.exists() else []
    return not {"avx512_vnni", "avx_vnni"} & set(flags)


def only_what_is_asked() -> onnxruntime.RunOptions:
    """Options of a run that computes no outputs but those asked for."""
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.only_execute_path_to_fetches = True
    return options
