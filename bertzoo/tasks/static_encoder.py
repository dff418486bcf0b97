"""Static vectors: a row for each token of the vocabulary, and for a text the mean of its tokens' rows. No Keras."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertzoo.checkpoints.errors import CheckpointError, add_source_to_errors
from bertzoo.checkpoints.files import find_static_directory
from bertzoo.checkpoints.json_files import Rule, encode_json, read_json
from bertzoo.checkpoints.saving import write_preset
from bertzoo.checkpoints.sentence_transformers import MODULES_FILE, SETTINGS_FILE
from bertzoo.checkpoints.tensors import build_weight_files, open_tensors_in_directory, to_finite_float32
from bertzoo.text.encoded import lengths_to_row_splits, no_garbage_collection, prepend_prompt, to_text_list

if TYPE_CHECKING:  # imported on first use, since the package is slow to load
    import tokenizers

FOLDER = "0_StaticEmbedding"
_MODULES = Rule("a list of objects", lambda x: isinstance(x, list) and all(isinstance(entry, dict) for entry in x))
TEXTS_AT_ONCE = 8_192
ROWS_AT_ONCE = 256  # texts whose sums stay in a core's cache


class StaticEncoder:
    """Turns texts into vectors by looking up their tokens: much faster than an encoder, and less exact.

        static = SentenceEncoder.from_preset(…).to_static()
        static.save_to_preset("static")         # sentence-transformers and model2vec load it
        vectors = StaticEncoder.from_preset("static").encode(texts)

    Args:
        embeddings: The rows of tokens, float (vocabulary, width).
        tokenizer: A `tokenizers.Tokenizer`, whose special tokens are not added to texts.
        normalize: Scale the vectors of texts to length 1.

    Raises:
        ValueError: The rows are fewer than the vocabulary's tokens, or hold NaN or infinity.

    Example:
        >>> static = bz.SentenceEncoder.from_preset("sentence_mini_en", verbose=False).to_static()
        >>> static.encode(["A cat sleeps."]).shape
        (1, 256)
    """

    similarity_fn_name = "cosine"

    def __init__(self, embeddings: np.ndarray, tokenizer: tokenizers.Tokenizer, normalize: bool = True):
        if embeddings.ndim != 2 or len(embeddings) < tokenizer.get_vocab_size():
            raise ValueError(
                f"embeddings must have a row for each of {tokenizer.get_vocab_size()} tokens. Received: "
                f"{embeddings.shape}."
            )
        self.embeddings, self.normalize = embeddings, normalize
        self._table = np.ascontiguousarray(embeddings, np.float32)
        if not np.isfinite(self._table).all():
            raise ValueError("embeddings must be finite. Received: NaN or infinity.")
        self._tokenizer = type(tokenizer).from_str(tokenizer.to_str())  # without padding, whatever its owner does
        self._tokenizer.no_padding()

    @property
    def width(self) -> int:
        """The width of the vectors."""
        return self.embeddings.shape[1]

    def encode(self, texts: Any, batch_size: int = TEXTS_AT_ONCE, prompt: str | None = None) -> np.ndarray:
        """The vectors of texts, in their order.

        Args:
            texts: A string, or a list, array or Series of strings.
            batch_size: Texts that are tokenized at once.
            prompt: Put before each text.

        Returns:
            float32 (n, width); (width,) for a single string. A text without known tokens gets zeros.

        Raises:
            TypeError: A text is no string.
            ValueError: The batch size is not positive.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be positive. Received: {batch_size}.")
        rows = prepend_prompt(to_text_list(texts), prompt or "")
        begins = range(0, len(rows), batch_size)
        vectors = [self._encode(rows[begin : begin + batch_size]) for begin in begins]
        result = np.concatenate([np.zeros((0, self.width), np.float32), *vectors])
        return result[0] if isinstance(texts, str) else result

    @no_garbage_collection()
    def _encode(self, texts: list[str]) -> np.ndarray:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        splits = lengths_to_row_splits(np.fromiter(map(len, ids), np.int64, len(ids)))
        flat = np.fromiter((i for row in ids for i in row), np.int32, int(splits[-1]))
        vectors = sum_rows(self._table, flat, splits)
        scale = np.linalg.norm(vectors, axis=1) if self.normalize else np.diff(splits)
        return vectors / np.maximum(scale, 1e-12)[:, None].astype(np.float32)

    # ---- presets

    @classmethod
    def from_preset(cls, preset: str | Path) -> StaticEncoder:
        """Loads what `save_to_preset`, sentence-transformers (StaticEmbedding) or model2vec wrote.

        Args:
            preset: A directory, or `hf://owner/name[@revision]`.

        Raises:
            CheckpointError: The files can't be used.
        """
        from tokenizers import Tokenizer

        root = find_static_directory(preset)
        folder = root / FOLDER if (root / FOLDER).is_dir() else root
        with add_source_to_errors(root):
            try:
                tokenizer = Tokenizer.from_str((folder / "tokenizer.json").read_text("utf-8"))
            except Exception as error:  # of the Rust library
                raise CheckpointError(f"tokenizer.json can't be used: {error}") from error
            with open_tensors_in_directory(folder) as tensors:
                return cls(_read_rows(tensors), tokenizer, _normalizes(root))

    def save_to_preset(self, directory: str | Path) -> None:
        """Writes a directory that sentence-transformers and model2vec load, with rows in float16 or as they are."""
        kinds = [("StaticEmbedding", FOLDER)] + [("Normalize", "1_Normalize")] * self.normalize
        entries = [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, path) in enumerate(kinds)
        ]
        settings = {"similarity_fn_name": self.similarity_fn_name, "normalize": self.normalize}
        weights = build_weight_files({"embedding.weight": self.embeddings})
        files: dict[str, Any] = {f"{FOLDER}/{name}": content for name, content in weights.items()}
        files[f"{FOLDER}/tokenizer.json"] = self._tokenizer.to_str(pretty=True).encode()
        files |= {MODULES_FILE: encode_json(entries), SETTINGS_FILE: encode_json(settings)}
        write_preset(Path(directory), files)


def sum_rows(table: np.ndarray, ids: np.ndarray, row_splits: np.ndarray) -> np.ndarray:
    """The sums of the rows of each text's tokens.

    Texts of similar length are added up together, position by position: fifteen times faster than
    `np.add.reduceat`.

    Args:
        table: float32 (vocabulary, width).
        ids: Token ids, int (total,).
        row_splits: int64 (n + 1,); text i has the tokens `row_splits[i]:row_splits[i + 1]`.

    Returns:
        float32 (n, width).
    """
    lengths = np.diff(row_splits)
    order = np.argsort(-lengths, kind="stable")
    sums = np.empty((len(lengths), table.shape[1]), np.float32)
    buffer = np.empty((ROWS_AT_ONCE, table.shape[1]), np.float32)
    for begin in range(0, len(order), ROWS_AT_ONCE):
        rows = order[begin : begin + ROWS_AT_ONCE]
        total = np.zeros((len(rows), table.shape[1]), np.float32)
        for position in range(int(lengths[rows[0]])):
            count = int(np.searchsorted(-lengths[rows], -position))  # texts that are longer
            np.take(table, ids[row_splits[rows[:count]] + position], axis=0, out=buffer[:count], mode="clip")
            total[:count] += buffer[:count]
        sums[rows] = total
    return sums


def _read_rows(tensors: Any) -> np.ndarray:
    """The rows of tokens; model2vec may store one for several tokens, and weights."""
    if "embedding.weight" in tensors:
        return tensors["embedding.weight"]
    if "embeddings" not in tensors:
        raise CheckpointError(f"tensors must hold embedding.weight or embeddings. Received: {', '.join(tensors)}.")
    rows = tensors["embeddings"]
    if "mapping" in tensors:
        mapping = np.asarray(tensors["mapping"])
        if mapping.dtype.kind not in "iu" or (mapping.size and not 0 <= mapping.min() <= mapping.max() < len(rows)):
            raise CheckpointError(f"mapping must hold numbers of the {len(rows)} rows. Received: others.")
        rows = rows[mapping]
    if "weights" in tensors:
        if tensors["weights"].shape != rows.shape[:1]:
            raise CheckpointError(
                f"weights must be one for each of {len(rows)} rows. Received: {tensors['weights'].shape}."
            )
        rows = to_finite_float32(rows, "embeddings") * np.asarray(tensors["weights"], np.float32)[:, None]
    return rows


def _normalizes(root: Path) -> bool:
    if not (root / MODULES_FILE).is_file():
        return bool(read_json(root / "config.json", default={}).get("normalize"))
    modules = read_json(root / MODULES_FILE, _MODULES)
    kinds = [str(entry.get("type")).rpartition(".")[-1] for entry in modules]
    if kinds[:1] != ["StaticEmbedding"] or set(kinds[1:]) - {"Normalize"}:
        raise CheckpointError(f"modules must be StaticEmbedding and, if any, Normalize. Received: {', '.join(kinds)}.")
    return "Normalize" in kinds
