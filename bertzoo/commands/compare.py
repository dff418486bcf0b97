"""`bertzoo compare`: what encoders cost, side by side."""

import json
import statistics
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bertzoo.commands.places import check_file, write_whole
from bertzoo.commands.running import start
from bertzoo.commands.screen import show_table

WARM_UPS = 2


def compare(
    names: Annotated[
        list[str], typer.Argument(help="Two or more: bundled names, directories, or names that `bertzoo list` shows.")
    ],
    length: Annotated[list[int] | None, typer.Option(min=1, help="Tokens in a text; twice for two lengths.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts computed at once where time is measured.")] = 1,
    repeats: Annotated[int, typer.Option(min=1, help="Times of which the median counts.")] = 5,
    out: Annotated[Path | None, typer.Option(help="A .json file for the same numbers.")] = None,
) -> None:
    """Show encoders' parameters by part, operations a token, size and measured time, side by side.

    Nothing is downloaded: time does not depend on the weights' values, and they are random.
    """
    if len(names) < 2:
        raise ValueError("give at least two names to compare; for one there is `bertzoo describe`.")
    if out is not None:
        check_file(out, (".json",))
    lengths = sorted(set(length or [32, 128]))
    bz = start()
    descriptions = [bz.describe(name) for name in names]
    for found in descriptions:  # before anything takes time
        if max(lengths) > found.config.max_length:
            raise ValueError(
                f"{found.name} takes up to {found.config.max_length} tokens; choose a --length below {max(lengths)}."
            )
    rows = [_row(found, lengths, batch_size, repeats) for found in descriptions]
    _show(rows, lengths, batch_size)
    if out is not None:
        write_whole(out, (json.dumps({"batch_size": batch_size, "models": rows}, indent=1) + "\n").encode())
        print(f"the same numbers in {out}")


def _row(found, lengths: list[int], batch_size: int, repeats: int) -> dict:
    """One encoder's numbers. By length, keys are strings, as in JSON."""
    from bertzoo.analysis.flops import flops_per_token

    return {
        "name": found.name,
        "parameters": found.parameters,
        "parameters_by_part": found.parts,
        "file_bytes": _file_bytes(found.name),
        "flops_per_token": {str(length): sum(flops_per_token(found.config, length).values()) for length in lengths},
        "milliseconds": {
            str(length): 1000 * seconds for length, seconds in _seconds(found.config, lengths, batch_size, repeats)
        },
    }


def _file_bytes(name: str) -> int | None:
    """Bytes of the weights' files; None for a checkpoint that is not on this machine."""
    from bertzoo.checkpoints.files import resolve

    if name.startswith("hf://") or (name.count("/") == 1 and not Path(name).exists()):
        return None
    kinds = (".safetensors", ".bin", ".h5")
    return sum(path.stat().st_size for path in Path(resolve(name)).iterdir() if path.suffix in kinds)


def _seconds(config, lengths: list[int], batch_size: int, repeats: int):
    """(length, median seconds of a batch without padding), the transfer of the result included."""
    from bertzoo.encoder import Encoder

    encoder = Encoder(config, pooler=False)
    for length in lengths:
        # Any token but padding, whose positions RoBERTa counts otherwise.
        token = 1 if config.pad_token_id != 1 else 0
        ids = np.full((batch_size, length), token, "int32")
        taken = []
        for _ in range(WARM_UPS + repeats):
            begin = time.perf_counter()
            encoder.predict_on_batch({"token_ids": ids, "padding_mask": np.ones_like(ids)})
            taken.append(time.perf_counter() - begin)
        yield length, statistics.median(taken[WARM_UPS:])


def _show(rows: list[dict], lengths: list[int], batch_size: int) -> None:
    parts = [part for part in rows[0]["parameters_by_part"] if any(row["parameters_by_part"][part] for row in rows)]
    shown = [["parameters", *(f"{row['parameters']:,}" for row in rows)]]
    shown += [[f"  {part}", *(f"{row['parameters_by_part'][part]:,}" for row in rows)] for part in parts]
    sizes = ["–" if row["file_bytes"] is None else f"{row['file_bytes'] / 1e6:.1f}" for row in rows]
    shown.append(["files, MB", *sizes])
    for n in map(str, lengths):
        shown.append([f"MFLOPs a token, {n} tokens", *(f"{row['flops_per_token'][n] / 1e6:.2f}" for row in rows)])
    texts = "a text" if batch_size == 1 else f"{batch_size} texts"
    for n in map(str, lengths):
        shown.append([f"ms for {texts}, {n} tokens", *(f"{row['milliseconds'][n]:.1f}" for row in rows)])
    names = [row["name"] for row in rows]
    show_table(["", *names], shown, title="Encoders", numbers=names)
