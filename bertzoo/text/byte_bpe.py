"""RoBERTa's tokenizer: byte-pair encoding of UTF-8 bytes (Radford et al. 2019; Liu et al. 2019)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported on first use, since the package is slow to load
    import tokenizers


def build_byte_bpe(
    vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], *, add_prefix_space: bool = False
) -> "tokenizers.Tokenizer":
    """The tokenizer without special tokens and template.

    Raises:
        ValueError: The merges have pieces that are not in the vocabulary.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    try:
        rust = Tokenizer(models.BPE(dict(vocabulary), list(merges)))
    except Exception as error:  # the Rust library raises bare Exception
        raise ValueError(f"the merges do not belong to the vocabulary: {error}.") from None
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    rust.decoder = decoders.ByteLevel()
    return rust


def with_trimmed_offsets(
    template: "tokenizers.processors.PostProcessor", add_prefix_space: bool = False
) -> "tokenizers.processors.PostProcessor":
    """A post-processor whose offsets leave out the space that a token begins with."""
    from tokenizers import processors

    return processors.Sequence([processors.ByteLevel(add_prefix_space=add_prefix_space, trim_offsets=True), template])


def read_vocabulary_json(path: Path) -> dict[str, int]:
    """vocab.json: {piece: id}."""
    try:
        content = json.loads(path.read_text("utf-8-sig"))  # editors of Windows put a mark before the text
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(content, dict) or not all(type(index) is int and index >= 0 for index in content.values()):
        raise ValueError(f"{path} must hold an object of pieces and their ids.")
    return content


def read_merges(path: Path) -> list[tuple[str, str]]:
    """merges.txt, or fairseq's vocab.bpe: a pair of pieces a line, after a line that may name the version."""
    try:
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}.") from None
    merges = []
    for number, line in enumerate(lines, start=1):
        line = line.removesuffix("\r")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        pair = tuple(line.split(" "))
        if len(pair) != 2 or not all(pair):
            raise ValueError(f"{path}, line {number} must hold two pieces with a space between, it is {line!r}.")
        merges.append(pair)
    return merges


def read_fairseq_vocabulary(dictionary: Path, encoder: Path) -> dict[str, int]:
    """{piece: id} of fairseq's RoBERTa: dict.txt lists GPT-2's ids by count, encoder.json has their pieces.

    fairseq puts four tokens before them, and its masked-LM task one behind (fairseq/data/dictionary.py).
    """
    pieces = {index: piece for piece, index in read_vocabulary_json(encoder).items()}
    tokens = ["<s>", "<pad>", "</s>", "<unk>"]
    for number, line in enumerate(dictionary.read_text("utf-8").splitlines(), start=1):
        name = line.rsplit(" ", 1)[0]
        if name.isdecimal() and int(name) not in pieces:
            raise ValueError(f"{dictionary}, line {number}: {encoder.name} has no piece of the id {name}.")
        tokens.append(pieces[int(name)] if name.isdecimal() else name)
    return {token: index for index, token in enumerate([*tokens, "<mask>"])}
