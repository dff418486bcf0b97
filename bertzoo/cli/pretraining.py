"""`bertzoo prepare` and `bertzoo pretrain`: from text files to a pre-trained model."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from bertzoo.checkpoints.saving import check_writable
from bertzoo.cli.app import PartOption, import_bertzoo, parse_part
from bertzoo.cli.paths import check_preset_output_directory
from bertzoo.data.files import Documents
from bertzoo.pretraining.corpus import prepare_corpus
from bertzoo.pretraining.corpus_parts import join_parts, parts_folder, prepare_part
from bertzoo.text import vocabulary
from bertzoo.text.tokenizer import Tokenizer

KINDS = ("wordpiece", "bpe", "unigram")
RECIPES = sorted(path.stem for path in Path(__file__).parents[1].glob("pretraining/recipes/*.toml"))


def prepare(
    texts: Annotated[
        list[Path],
        typer.Argument(
            help="UTF-8 text files with a paragraph per line and a blank line between documents; or .jsonl, .csv, .tsv "
            "or .parquet with a document per row. Also as .gz, .xz and .zst."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Directory for the corpus.")],
    column: Annotated[str, typer.Option(help="Column of the texts, in files with columns.")] = "text",
    lines: Annotated[bool, typer.Option("--lines", help="Each line of a text file is a document.")] = False,
    vocabulary_size: Annotated[
        int | None, typer.Option(min=100, help="Learn a vocabulary of this size.  [default: 16000]")
    ] = None,
    kind: Annotated[
        str, typer.Option(help="Kind of the vocabulary to learn: wordpiece, bpe (RoBERTa) or unigram.")
    ] = "wordpiece",
    tokenizer: Annotated[Path | None, typer.Option(help="Directory with the tokenizer to use instead.")] = None,
    alphabet_size: Annotated[
        int | None,
        typer.Option(min=1, help="Most characters of a WordPiece vocabulary; by the corpus if left out."),
    ] = None,
    add_words: Annotated[
        Path | None, typer.Option(help="File of words, one per line, to add to the vocabulary as whole tokens.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes that tokenize.")] = os.cpu_count() or 1,
    part: PartOption = None,
) -> None:
    """Tokenize a corpus for `pretrain`. The vocabulary is learnt from it, or taken from another tokenizer. The same
    command resumes an interrupted run. With --part, each of several machines tokenizes its share of the files; the
    command without --part then joins the parts."""
    if vocabulary_size is not None and tokenizer is not None:
        raise ValueError("give --vocabulary-size or --tokenizer, not both.")
    if alphabet_size is not None and (tokenizer is not None or kind != "wordpiece"):
        raise ValueError("--alphabet-size needs a WordPiece vocabulary to learn.")
    if kind not in KINDS:
        raise ValueError(f"--kind must be one of {', '.join(KINDS)}. Received: {kind!r}.")
    parts = parts_folder(out)
    if tokenizer is None and (part is not None or parts.is_dir()):
        raise ValueError(f"parts of a corpus ({parts}) need one vocabulary: name its directory with --tokenizer.")
    _check_corpus_directory(out)
    used = _tokenizer(Documents(texts, column, lines), tokenizer, kind, vocabulary_size or 16_000, alphabet_size)
    if add_words is not None:
        from bertzoo.pretraining.objectives import extend_tokenizer

        used = extend_tokenizer(used, add_words.read_text(encoding="utf-8").splitlines())
    _write_corpus(Documents(texts, column, lines), used, out, part, processes)


def _write_corpus(documents: Documents, tokenizer, out: Path, part: str | None, processes: int) -> None:
    if part is not None:
        with _progress() as show:
            folder = prepare_part(documents, tokenizer, out, parse_part(part), processes, show)
        print(f"part {part} is in {folder}; once all parts are there, the command without --part joins them.")
        return
    if parts_folder(out).is_dir():
        corpus = join_parts(documents, tokenizer, out)
    else:
        with _progress() as show:
            corpus = prepare_corpus(
                documents.sources, tokenizer, out, processes, show, documents.column, documents.lines
            )
    print(f"{len(corpus.tokens):,} tokens of {len(corpus.documents) - 1:,} documents in {out}")
    print(f"vocabulary: {tokenizer.vocabulary_size:,} tokens")


@contextmanager
def _progress() -> Iterator[Callable[[int, float], None]]:
    from rich.progress import Progress

    with Progress() as bar:
        task = bar.add_task("tokenizing", total=1.0)

        def show(documents: int, share: float) -> None:
            bar.update(task, completed=share)

        yield show


def _tokenizer(corpus, directory: Path | None, kind: str, size: int, alphabet_size: int | None):
    if directory is not None:
        return Tokenizer.from_directory(directory)
    if kind == "wordpiece":
        return vocabulary.train_wordpiece(corpus, size, alphabet_size=alphabet_size)
    return (vocabulary.train_byte_bpe if kind == "bpe" else vocabulary.train_unigram)(corpus, size)


def pretrain(
    config: Annotated[
        Path,
        typer.Argument(
            help="A TOML file with the tables encoder and training and the list batches, or a recipe: "
            f"{', '.join(RECIPES)}."
        ),
    ],
    corpus: Annotated[Path, typer.Option(help="Directory that `bertzoo prepare` made.")],
    out: Annotated[Path, typer.Option(help="Directory to save the model in.")],
    held_out: Annotated[Path | None, typer.Option(help="Corpus to evaluate on at the end.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the unfinished run in OUT.")] = False,
    minutes: Annotated[float, typer.Option(min=0, help="Time between two saves of the run's state.")] = 15.0,
    devices: Annotated[int, typer.Option(min=1, help="Number of devices that share each batch (JAX).")] = 1,
    processes: Annotated[
        int | None,
        typer.Option(min=2, help="Number of processes that share each batch on all their devices (JAX); start each."),
    ] = None,
    process_id: Annotated[
        int | None, typer.Option(min=0, help="This process's number, from 0; by the environment under Slurm.")
    ] = None,
    coordinator: Annotated[
        str | None, typer.Option(help="HOST:PORT of process 0; by the environment under Slurm.")
    ] = None,
) -> None:
    """Pre-train a model: masked tokens (alone, with next sentences or with sentence order), replaced tokens, or
    distillation. When interrupted, it saves its state; `--resume` continues."""
    if not config.is_file() and config.name not in RECIPES:
        raise ValueError(f"{config} must be a TOML file or one of {', '.join(RECIPES)}.")
    if not (out / "training_state").is_dir():
        check_preset_output_directory(out)
    if processes is None and (process_id is not None or coordinator is not None):
        raise ValueError("--process-id and --coordinator need --processes.")
    bz = import_bertzoo()
    if processes is not None:
        devices = bz.training.start_processes(coordinator, processes, process_id)
    result = bz.pretraining.pretrain(
        config, corpus, out, held_out, resume=resume, minutes_between_saves=minutes, num_devices=devices
    )
    if result.get("stopped"):
        print(f"stopped after {result['steps']:,} steps; the same command with --resume continues.")
        return
    print(f"{result['steps']:,} steps, {result['tokens']:,} tokens in {result['seconds']:,} s: saved in {out}")
    for name, value in result.get("held_out", {}).items():
        print(f"  held out: {name} {value:.4f}")


def _check_corpus_directory(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file: name a directory.")
    if out.is_dir() and any(out.iterdir()) and not (out / "corpus.json").is_file():
        raise ValueError(f"{out} is not empty and holds no corpus: name another directory.")
    check_writable(out)
