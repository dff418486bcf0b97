"""`bertzoo embed`: texts to vectors."""

import io
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bertzoo.cli.app import PRESET_HELP, PositiveInt, TextColumn, Texts, TextsFile, import_bertzoo, print_table
from bertzoo.cli.dataset import ColumnNames, read_texts_or_file
from bertzoo.cli.paths import check_output_file, write_atomically

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
) -> None:
    """Turn texts into vectors, as sentence-transformers does with the same model; without --out show similarities."""
    if out is not None:
        check_output_file(out, (".npy",))
    sentences = read_texts_or_file(texts or [], file, ColumnNames(text))["text"]
    if out is None and not 2 <= len(sentences) <= MOST_SHOWN:
        raise ValueError(f"without --out, give 2 to {MOST_SHOWN} texts to compare; received: {len(sentences)}.")
    encoder = import_bertzoo().SentenceEncoder.from_preset(model, verbose=False)
    vectors = encoder.encode(sentences, batch_size, prompt=prompt, prompt_name=prompt_name, normalize=normalize)
    if out is not None:
        buffer = io.BytesIO()
        np.save(buffer, vectors)
        write_atomically(out, buffer.getvalue())
        print(f"{len(vectors)} vectors of {vectors.shape[1]} numbers in {out}")
    else:
        _show_similarities(sentences, vectors)


def _show_similarities(texts: list[str], vectors: np.ndarray) -> None:
    from bertzoo.metrics.vector_similarity import similarity

    numbers = [str(i) for i in range(1, len(texts) + 1)]
    rows = [
        [number, text, *(f"{value:.2f}" for value in row)]
        for number, text, row in zip(numbers, texts, similarity(vectors, vectors))
    ]
    print_table(["", "text", *numbers], rows, title="Cosine similarity", numeric_columns=numbers)
