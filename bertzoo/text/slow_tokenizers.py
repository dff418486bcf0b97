"""Tokenizers of directories without tokenizer.json: each family's vocabulary files, and the tokenizer they make."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bertzoo.checkpoints.catalog import known_lowercase
from bertzoo.checkpoints.errors import error_source
from bertzoo.text.byte_bpe import (
    build_byte_bpe,
    read_fairseq_vocabulary,
    read_merges,
    read_vocabulary_json,
    with_trimmed_offsets,
)
from bertzoo.text.sentencepiece import build_sentencepiece, read_sentencepiece, without_accents
from bertzoo.text.special_tokens import BERT_TOKENS, ROBERTA_TOKENS, ROLES, mark_special, template, token_string
from bertzoo.text.wordpiece import build_wordpiece, looks_uncased, read_vocabulary

if TYPE_CHECKING:  # imported on first use, since the package is slow to load
    import tokenizers

FAIRSEQ_FILES = ("dict.txt", "encoder.json", "vocab.bpe")


@dataclass(frozen=True)
class TokenizerSpec:
    """A family's tokenizer.

    Attributes:
        files: Its vocabulary files.
        special_tokens: Tokens by role; tokenizer_config.json may name others.
        double_separator, segments: The template of pairs, see `template`.
        space_before_mask: `[MASK]` includes the white space before it.
        front, skipped, unk_token: How the ids of a SentencePiece file are shifted, see `build_sentencepiece`.
    """

    files: tuple[str, ...]
    special_tokens: Mapping[str, str] = field(default_factory=lambda: BERT_TOKENS)
    double_separator: bool = False
    segments: bool = True
    space_before_mask: bool = False
    front: tuple[str, ...] = ()
    skipped: int = 0
    unk_token: str | None = None

    @property
    def input_names(self) -> list[str]:
        """The inputs that transformers passes to the model."""
        return ["input_ids", *(["token_type_ids"] if self.segments else []), "attention_mask"]


_BYTE_BPE = ("vocab.json", "merges.txt")
_ROBERTA = TokenizerSpec(_BYTE_BPE, ROBERTA_TOKENS, double_separator=True, segments=False, space_before_mask=True)
# By `model_type`. Facts: the published files, and the tokenizers of google-research, fairseq and microsoft/DeBERTa.
SPECS = {
    "bert": TokenizerSpec(("vocab.txt",)),
    "electra": TokenizerSpec(("vocab.txt",)),
    "distilbert": TokenizerSpec(("vocab.txt",), segments=False),
    "mpnet": replace(_ROBERTA, files=("vocab.txt",), special_tokens={**ROBERTA_TOKENS, "unk": "[UNK]"}),
    "roberta": _ROBERTA,
    "deberta": TokenizerSpec(_BYTE_BPE, space_before_mask=True),
    "albert": TokenizerSpec(
        ("spiece.model",),
        special_tokens={**BERT_TOKENS, "pad": "<pad>", "unk": "<unk>"},
        space_before_mask=True,
    ),
    "xlm-roberta": replace(
        _ROBERTA,
        files=("sentencepiece.bpe.model",),
        front=("<s>", "<pad>", "</s>", "<unk>"),
        skipped=3,
        unk_token="<unk>",
    ),
    "camembert": replace(
        _ROBERTA,
        files=("sentencepiece.bpe.model",),
        front=("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"),
        skipped=1,
        unk_token="<unk>",
    ),
    "deberta-v2": TokenizerSpec(("spm.model",)),
}
# The class in tokenizer_config.json goes before the model's type: paraphrase-multilingual-MiniLM is a BERT with the
# tokenizer of XLM-R.
_CLASSES = {
    "AlbertTokenizer": "albert",
    "BertTokenizer": "bert",
    "CamembertTokenizer": "camembert",
    "DebertaTokenizer": "deberta",
    "DebertaV2Tokenizer": "deberta-v2",
    "DistilBertTokenizer": "distilbert",
    "ElectraTokenizer": "electra",
    "MPNetTokenizer": "mpnet",
    "RobertaTokenizer": "roberta",
    "XLMRobertaTokenizer": "xlm-roberta",
}
# What names no tokenizer of its own.
_ANY = ("PreTrainedTokenizer", "TokenizersBackend")


def vocabulary_files() -> list[str]:
    """The vocabulary files of all families."""
    return list(dict.fromkeys(name for spec in SPECS.values() for name in spec.files))


def is_byte_level(settings: Mapping) -> bool:
    """Whether tokenizer_config.json names one of the classes with byte-level BPE."""
    family = _family_named(settings)
    return family is not None and SPECS[family].files == _BYTE_BPE


def _family_named(settings: Mapping) -> str | None:
    return _CLASSES.get(str(settings.get("tokenizer_class")).removesuffix("Fast"))


def find_spec(directory: Path, settings: Mapping, model_type: str | None) -> tuple[str, TokenizerSpec] | None:
    """The family whose vocabulary files the directory has, and its spec; None where it has no family's."""
    named = _family_named(settings)
    named_class = settings.get("tokenizer_class")
    if named is None and named_class is not None and named_class.removesuffix("Fast") not in _ANY:
        raise ValueError(
            f"{directory}/tokenizer_config.json names {named_class}, which bertzoo does not have without a "
            f"tokenizer.json; it has {', '.join(_CLASSES)}."
        )
    likely = [name for name in (named, model_type) if name in SPECS]
    for name in dict.fromkeys([*likely, *SPECS]):
        files = [SPECS[name].files, *([FAIRSEQ_FILES] if name == "roberta" else [])]
        if any(all((directory / file).is_file() for file in group) for group in files):
            return name, SPECS[name]
    return None


def build_from_files(directory: Path, family: str, settings: Mapping, lowercase: bool | None) -> "tokenizers.Tokenizer":
    """The tokenizer of a family from its vocabulary files.

    Raises:
        ValueError: A file cannot be read or does not belong to the family.
    """
    spec = SPECS[family]
    named = {role: token_string(settings.get(f"{role}_token")) for role in ROLES}
    special_tokens = {role: named[role] or spec.special_tokens[role] for role in ROLES}
    if spec.files == ("vocab.txt",):
        return _wordpiece(directory / "vocab.txt", spec, settings, lowercase, special_tokens)
    if spec.files == _BYTE_BPE:
        rust = _byte_bpe(directory, settings, lowercase)
    else:
        rust = _sentencepiece(directory / spec.files[0], family, settings, lowercase)
    _mark_special(rust, spec, special_tokens, directory)
    rows = template(special_tokens, rust.token_to_id, double_separator=spec.double_separator, segments=spec.segments)
    rust.post_processor = rows
    if spec.files == _BYTE_BPE:
        rust.post_processor = with_trimmed_offsets(rows, bool(settings.get("add_prefix_space")))
    return rust


def _wordpiece(path: Path, spec: TokenizerSpec, settings: Mapping, lowercase: bool | None, special_tokens):
    tokens = read_vocabulary(path)
    sources = (lowercase, settings.get("do_lower_case"), known_lowercase(path.parent), looks_uncased(tokens))
    lowercase = next(value for value in sources if value is not None)
    with error_source(path):
        rust = build_wordpiece(
            tokens,
            lowercase=lowercase,
            strip_accents=settings.get("strip_accents"),
            tokenize_chinese_chars=settings.get("tokenize_chinese_chars") is not False,
            special_tokens=special_tokens,
        )
    if spec.double_separator:
        rust.post_processor = template(special_tokens, rust.token_to_id, double_separator=True, segments=False)
    return rust


def _byte_bpe(directory: Path, settings: Mapping, lowercase: bool | None):
    if lowercase is not None:
        raise ValueError(f"lowercase={lowercase} is not for byte-level BPE, which keeps capitals; leave it out.")
    if all((directory / name).is_file() for name in _BYTE_BPE):
        vocabulary, merges = read_vocabulary_json(directory / "vocab.json"), read_merges(directory / "merges.txt")
    else:
        vocabulary = read_fairseq_vocabulary(directory / "dict.txt", directory / "encoder.json")
        merges = read_merges(directory / "vocab.bpe")
    with error_source(directory):
        return build_byte_bpe(vocabulary, merges, add_prefix_space=bool(settings.get("add_prefix_space")))


def _sentencepiece(path: Path, family: str, settings: Mapping, lowercase: bool | None):
    from tokenizers.normalizers import Lowercase, Normalizer, Replace

    spec, albert = SPECS[family], family == "albert"
    lowercase = next(value for value in (lowercase, settings.get("do_lower_case"), albert) if value is not None)
    steps: list[Normalizer] = []
    if albert:
        steps += [Replace("``", '"'), Replace("''", '"')]
        steps += () if settings.get("keep_accents") else without_accents()
    steps += [Lowercase()] if lowercase else []
    model = read_sentencepiece(path)
    with error_source(path):
        return build_sentencepiece(
            model,
            front=spec.front,
            skipped=spec.skipped,
            unk_token=spec.unk_token,
            preparation=tuple(steps),
            split_punctuation=bool(settings.get("split_by_punct")),
            split_digit_comma=albert,
        )


def _mark_special(rust, spec: TokenizerSpec, special_tokens: Mapping[str, str], directory: Path) -> None:
    """Marks the special tokens, and appends the mask where the vocabulary lacks it."""
    from tokenizers import AddedToken

    lacking = [t for role, t in special_tokens.items() if role != "mask" and rust.token_to_id(t) is None]
    if lacking:
        raise ValueError(
            f"{directory}: the vocabulary has no token {lacking[0]!r}; name its own in tokenizer_config.json."
        )
    rust.add_special_tokens([AddedToken(special_tokens["mask"], lstrip=spec.space_before_mask)])
    mark_special(rust, special_tokens.values())
