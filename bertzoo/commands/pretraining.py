"""`bertzoo prepare` and `bertzoo pretrain`: from text files to a model of one's own."""

import tomllib
from pathlib import Path
from typing import Annotated

import typer

from bertzoo.commands.places import check_preset_directory
from bertzoo.commands.running import start


def prepare(
    texts: Annotated[
        list[Path], typer.Argument(help="UTF-8 text files: a paragraph a line, a blank line between documents.")
    ],
    out: Annotated[Path, typer.Option(help="Directory for the shards.")],
    vocabulary_size: Annotated[
        int | None, typer.Option(min=100, help="Learn a WordPiece vocabulary of this size.  [default: 16000]")
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="Directory with the tokenizer to use instead.")] = None,
) -> None:
    """Tokenize a corpus for `pretrain`. The vocabulary is learnt from it, or that of another tokenizer."""
    from bertzoo.pretraining import shards
    from bertzoo.text.tokenizer import Tokenizer
    from bertzoo.text.vocabulary import train_wordpiece

    if vocabulary_size is not None and tokenizer is not None:
        raise ValueError("give --vocabulary-size or --tokenizer, not both.")
    _check_shards_directory(out)
    for path in texts:
        with open(path, "rb"):  # a missing file is to be told before hours of work
            pass
    used = Tokenizer.from_directory(tokenizer) if tokenizer else train_wordpiece(texts, vocabulary_size or 16_000)
    made = shards.prepare(texts, used, out)
    print(f"{len(made.tokens):,} tokens of {len(made.documents) - 1:,} documents in {out}")
    print(f"vocabulary: {used.vocabulary_size:,} pieces")


def pretrain(
    config: Annotated[Path, typer.Argument(help="TOML with the tables encoder, training and the list batches.")],
    shards: Annotated[Path, typer.Option(help="Directory that `bertzoo prepare` made.")],
    out: Annotated[Path, typer.Option(help="Directory to save the model in.")],
    held_out: Annotated[Path | None, typer.Option(help="Shards to evaluate on at the end.")] = None,
) -> None:
    """Pre-train a masked language model."""
    _check_config(config)
    check_preset_directory(out)
    start()
    from bertzoo.pretraining import program
    from bertzoo.pretraining.shards import Shards

    if held_out is not None:
        Shards.open(held_out)  # a missing one is to be told before the training, which may take hours
    result = program.pretrain(config, shards, out, held_out)
    print(f"{result['steps']:,} steps, {result['tokens']:,} tokens in {result['seconds']:,} s: saved in {out}")
    for name, value in result.get("held_out", {}).items():
        print(f"  held out: {name} {value:.4f}")


def _check_config(path: Path) -> None:
    try:
        content = tomllib.loads(path.read_bytes().decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no TOML: {error}.") from None
    kinds = {"encoder": dict, "training": dict, "batches": list}
    missing = [name for name, kind in kinds.items() if not isinstance(content.get(name), kind)]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}: it needs [encoder], [training] and [[batches]].")
    missing = [name for name in ("steps", "learning_rate") if name not in content["training"]]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)} in [training].")


def _check_shards_directory(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file: name a directory.")
    if out.is_dir() and any(out.iterdir()) and not (out / "shards.json").is_file():
        raise ValueError(f"{out} is not empty and holds no shards: name another directory.")
