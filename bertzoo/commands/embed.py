"""`bertzoo embed`: texts to vectors."""

import io
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bertzoo.commands.labelled import Examples
from bertzoo.commands.places import check_file, write_whole
from bertzoo.commands.running import PRESET_HELP, start
from bertzoo.commands.screen import show_table
from bertzoo.commands.texts import TEXTS_HELP, given_texts

MOST_SHOWN = 10  # texts whose similarities fit the screen


def embed(
    texts: Annotated[list[str] | None, typer.Argument(help=TEXTS_HELP)] = None,
    file: Annotated[Path | None, typer.Option(help="Texts in a .csv, .tsv, .jsonl or .txt file.")] = None,
    out: Annotated[Path | None, typer.Option(help="A .npy file: float32 (texts, width).")] = None,
    preset: Annotated[str, typer.Option(help=PRESET_HELP)] = "bert_mini_en",
    text: Annotated[str | None, typer.Option(help="Column of the texts, if its name does not tell.")] = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 32,
) -> None:
    """Turn texts into vectors. They are means over the tokens' outputs; without --out it shows how alike they are."""
    if out is not None:
        check_file(out, (".npy",))
    examples = given_texts(texts or [], file, text)
    if out is None and not 2 <= len(examples) <= MOST_SHOWN:
        raise ValueError(f"without --out, give 2 to {MOST_SHOWN} texts to compare; there are {len(examples)}.")
    vectors = mean_vectors(preset, examples.texts, batch_size)
    if out is not None:
        buffer = io.BytesIO()
        np.save(buffer, vectors)
        write_whole(out, buffer.getvalue())
        print(f"{len(vectors)} vectors of {vectors.shape[1]} numbers in {out}")
    else:
        _show_similarities(examples, vectors)


def mean_vectors(preset: str, texts: list[str], batch_size: int) -> np.ndarray:
    """The mean over each text's tokens, padding left out, of the encoder's output: float32 (texts, hidden)."""
    start()
    import keras
    from keras import ops

    from bertzoo.checkpoints.files import resolve
    from bertzoo.encoder import Encoder
    from bertzoo.text.batches import LengthBatches
    from bertzoo.text.preprocessor import load_preprocessor

    class MeanPooled(keras.Model):
        def __init__(self, encoder):
            super().__init__()
            self.encoder, self.built = encoder, True

        def call(self, inputs):
            outputs = ops.cast(self.encoder(inputs)["sequence_output"], "float32")
            mask = ops.cast(inputs["padding_mask"], "float32")[:, :, None]
            return ops.sum(outputs * mask, axis=1) / ops.sum(mask, axis=1)

    encoder = Encoder.from_preset(preset, pooler=False, verbose=False)
    preprocessor = load_preprocessor(resolve(preset), encoder.config, None, None)
    batches = LengthBatches(
        preprocessor.encode(texts), batch_size=batch_size, pad_id=preprocessor.pad_id, shuffle=False, max_shapes=4
    )
    return batches.restore(MeanPooled(encoder).predict(batches, verbose=0))


def _show_similarities(examples: Examples, vectors: np.ndarray) -> None:
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    numbers = [str(i) for i in range(1, len(examples) + 1)]
    rows = [
        [number, text, *(f"{value:.2f}" for value in row)]
        for number, text, row in zip(numbers, examples.texts, directions @ directions.T)
    ]
    show_table(["", "text", *numbers], rows, title="Cosine similarity", numbers=numbers)
