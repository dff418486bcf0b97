"""`bertzoo embed`: texts to vectors."""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bertzoo.checkpoints.files import find_preset_directory
from bertzoo.cli.app import (
    PRESET_HELP,
    PartOption,
    PositiveInt,
    TextColumn,
    Texts,
    TextsFile,
    import_bertzoo,
    parse_part,
    print_table,
)
from bertzoo.cli.dataset import ColumnNames, read_texts_or_file
from bertzoo.cli.paths import check_output_file
from bertzoo.cli.vector_blocks import VectorBlocks
from bertzoo.metrics.vector_similarity import similarity

MOST_SHOWN = 10  # texts whose similarities fit the screen


def embed(
    model: Annotated[str, typer.Argument(help=f"The encoder. {PRESET_HELP}")],
    texts: Texts = None,
    file: TextsFile = None,
    out: Annotated[Path | None, typer.Option(help="A .npy file: float32 (texts, width).")] = None,
    text: TextColumn = None,
    prompt: Annotated[str | None, typer.Option(help='Text before each text, such as "query: ".')] = None,
    prompt_name: Annotated[str | None, typer.Option(help="One of the model's own prompts.")] = None,
    normalize: Annotated[bool, typer.Option(help="Scale the vectors to length 1.")] = False,
    batch_size: PositiveInt = 32,
    part: PartOption = None,
) -> None:
    """Turn texts into vectors, as sentence-transformers does with the same model; without --out show similarities. The
    same command resumes an interrupted run. With --part, each of several machines computes its share of the texts; the
    command without --part then joins the parts."""
    chosen = None if part is None else parse_part(part)
    if out is not None:
        check_output_file(out, (".npy",))
    sentences = read_texts_or_file(texts or [], file, ColumnNames(text))["text"]
    if out is None and not 2 <= len(sentences) <= MOST_SHOWN:
        raise ValueError(f"without --out, give 2 to {MOST_SHOWN} texts to compare; received: {len(sentences)}.")
    if chosen is not None and out is None:
        raise ValueError("--part needs the file of the joined vectors: --out.")

    def load() -> Callable[[Sequence[str]], np.ndarray]:
        encoder = import_bertzoo().SentenceEncoder.from_preset(model, verbose=False)
        return partial(
            encoder.encode, batch_size=batch_size, prompt=prompt, prompt_name=prompt_name, normalize=normalize
        )

    if out is None:
        _show_similarities(sentences, load()(sentences))
        return
    settings = {"prompt": prompt, "prompt_name": prompt_name, "normalize": normalize, "batch_size": batch_size}
    blocks = VectorBlocks(out, sentences, {"model": _fingerprint(model), **settings})
    firsts = blocks.missing(chosen or (1, 1))
    if firsts:
        blocks.compute(firsts, load())
    if chosen is None:
        rows, width = blocks.join()
        print(f"{rows} vectors of {width} numbers in {out}")
    else:
        print(f"part {part} is in {blocks.folder}; once all parts are there, the command without --part joins them.")


def _fingerprint(model: str) -> str:
    """Identifies a model and the backend that computes, whatever folder the model lies in on this machine."""
    import_bertzoo()
    import keras

    directory = find_preset_directory(model)
    digest = hashlib.sha256(keras.backend.backend().encode())
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        with open(path, "rb") as file:
            digest.update(str(path.relative_to(directory)).encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _show_similarities(texts: list[str], vectors: np.ndarray) -> None:
    numbers = [str(i) for i in range(1, len(texts) + 1)]
    rows = [
        [number, text, *(f"{value:.2f}" for value in row)]
        for number, text, row in zip(numbers, texts, similarity(vectors, vectors))
    ]
    print_table(["", "text", *numbers], rows, title="Cosine similarity", numeric_columns=numbers)
