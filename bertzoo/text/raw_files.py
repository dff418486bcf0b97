"""Which files a family keeps its vocabulary in where it has no tokenizer.json, and the tokenizer that they make."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bertzoo.checkpoints.catalog import known_lowercase
from bertzoo.text.byte_bpe import (
    build_byte_bpe,
    read_fairseq_vocabulary,
    read_merges,
    read_vocabulary_json,
    with_trimmed_offsets,
)
from bertzoo.text.special_tokens import BERT_TOKENS, ROBERTA_TOKENS, ROLES, frame, mark_special
from bertzoo.text.tokenizer_settings import content_of
from bertzoo.text.wordpiece import build_wordpiece

FAIRSEQ_FILES = ("dict.txt", "encoder.json", "vocab.bpe")


@dataclass(frozen=True)
class Recipe:
    """A family's tokenizer.

    files: What it is made from. special_tokens: By role; tokenizer_config.json may name others.
    double_separator, segments: The frame of a pair, see `frame`.
    space_before_mask: `[MASK]` swallows white space before it.
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
        """What transformers gives to the model."""
        return ["input_ids", *(["token_type_ids"] if self.segments else []), "attention_mask"]


_FAIRSEQ = {"special_tokens": ROBERTA_TOKENS, "double_separator": True, "segments": False, "space_before_mask": True}
_BYTE_BPE = ("vocab.json", "merges.txt")
# By `model_type`. Facts: the published files, and the tokenizers of google-research, fairseq and microsoft/DeBERTa.
RECIPES = {
    "bert": Recipe(("vocab.txt",)),
    "electra": Recipe(("vocab.txt",)),
    "distilbert": Recipe(("vocab.txt",), segments=False),
    "mpnet": Recipe(("vocab.txt",), **{**_FAIRSEQ, "special_tokens": {**ROBERTA_TOKENS, "unk": "[UNK]"}}),
    "roberta": Recipe(_BYTE_BPE, **_FAIRSEQ),
    "deberta": Recipe(_BYTE_BPE, space_before_mask=True),
    "albert": Recipe(
        ("spiece.model",),
        special_tokens={**BERT_TOKENS, "pad": "<pad>", "unk": "<unk>"},
        space_before_mask=True,
    ),
    "xlm-roberta": Recipe(
        ("sentencepiece.bpe.model",),
        **_FAIRSEQ,
        front=("<s>", "<pad>", "</s>", "<unk>"),
        skipped=3,
        unk_token="<unk>",
    ),
    "camembert": Recipe(
        ("sentencepiece.bpe.model",),
        **_FAIRSEQ,
        front=("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"),
        skipped=1,
        unk_token="<unk>",
    ),
    "deberta-v2": Recipe(("spm.model",)),
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


def raw_names() -> list[str]:
    """All files that a tokenizer may be made from."""
    return list(dict.fromkeys(name for recipe in RECIPES.values() for name in recipe.files))


def is_byte_level(settings: Mapping) -> bool:
    """Whether tokenizer_config.json names one of the classes with byte-level BPE."""
    return RECIPES.get(_family_named(settings), Recipe(())).files == _BYTE_BPE


def _family_named(settings: Mapping) -> str | None:
    return _CLASSES.get(str(settings.get("tokenizer_class")).removesuffix("Fast"))


def find_recipe(directory: Path, settings: Mapping, model_type: str | None) -> tuple[str, Recipe] | None:
    """The family whose tokenizer the files make, and its recipe; None where the directory holds none of them."""
    named = _family_named(settings)
    named_class = settings.get("tokenizer_class")
    if named is None and named_class is not None and named_class.removesuffix("Fast") not in _ANY:
        raise ValueError(
            f"{directory}/tokenizer_config.json names {named_class}, which bertzoo does not have without a "
            f"tokenizer.json; it has {', '.join(_CLASSES)}."
        )
    likely = [name for name in (named, model_type) if name in RECIPES]
    for name in dict.fromkeys([*likely, *RECIPES]):
        files = [RECIPES[name].files, *([FAIRSEQ_FILES] if name == "roberta" else [])]
        if any(all((directory / file).is_file() for file in group) for group in files):
            return name, RECIPES[name]
    return None


def build_from_files(
    directory: Path,
    family: str,
    settings: Mapping,
    lowercase: bool | None,
    added: Sequence[tuple[int, Mapping]] = (),
):
    """The tokenizer of a family from its raw files.

    `added` are further tokens by ascending id, as the arguments of `tokenizers.AddedToken`. Raises `ValueError` for
    files that cannot be read, that do not belong to the family, or ids that do not follow on the vocabulary's.
    """
    recipe = RECIPES[family]
    named = {role: content_of(settings.get(f"{role}_token")) for role in ROLES}
    special_tokens = {role: named[role] or recipe.special_tokens[role] for role in ROLES}
    if recipe.files == ("vocab.txt",):
        return _wordpiece(directory / "vocab.txt", recipe, settings, lowercase, special_tokens)
    if recipe.files == _BYTE_BPE:
        rust = _byte_bpe(directory, settings, lowercase)
    else:
        rust = _sentencepiece(directory / recipe.files[0], family, settings, lowercase)
    _add_tokens(rust, recipe, special_tokens, added, directory)
    rows = frame(special_tokens, rust.token_to_id, double_separator=recipe.double_separator, segments=recipe.segments)
    if recipe.files == _BYTE_BPE:
        rows = with_trimmed_offsets(rows, bool(settings.get("add_prefix_space")))
    rust.post_processor = rows
    return rust


def read_vocabulary(path: str | Path) -> list[str]:
    """One token a line; only the line end is taken off, since pieces may hold any other white space."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}.") from None
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def _wordpiece(path: Path, recipe: Recipe, settings: Mapping, lowercase: bool | None, special_tokens):
    tokens = read_vocabulary(path)
    if lowercase is None:
        lowercase = settings.get("do_lower_case")
    if lowercase is None:
        lowercase = known_lowercase(path.parent)
    try:
        rust = build_wordpiece(
            tokens,
            lowercase=_looks_uncased(tokens) if lowercase is None else lowercase,
            strip_accents=settings.get("strip_accents"),
            tokenize_chinese_chars=settings.get("tokenize_chinese_chars") is not False,
            special_tokens=special_tokens,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if recipe.double_separator:
        rust.post_processor = frame(special_tokens, rust.token_to_id, double_separator=True, segments=False)
    return rust


def _looks_uncased(tokens: Sequence[str]) -> bool:
    # differs: transformers lowercases wherever no config says otherwise, which ruins cased vocabularies that come
    # alone (Google's first releases). Cased ones hold thousands of capitals, uncased ones none.
    words = [token for token in tokens if not token.startswith("[")]
    return sum(token != token.lower() for token in words) < 0.01 * len(words)


def _byte_bpe(directory: Path, settings: Mapping, lowercase: bool | None):
    if lowercase is not None:
        raise ValueError(f"lowercase={lowercase} is not for byte-level BPE, which keeps capitals; leave it out.")
    if all((directory / name).is_file() for name in _BYTE_BPE):
        vocabulary, merges = read_vocabulary_json(directory / "vocab.json"), read_merges(directory / "merges.txt")
    else:
        vocabulary = read_fairseq_vocabulary(directory / "dict.txt", directory / "encoder.json")
        merges = read_merges(directory / "vocab.bpe")
    try:
        return build_byte_bpe(vocabulary, merges, add_prefix_space=bool(settings.get("add_prefix_space")))
    except ValueError as error:
        raise ValueError(f"{directory}: {error}") from None


def _sentencepiece(path: Path, family: str, settings: Mapping, lowercase: bool | None):
    from tokenizers.normalizers import Lowercase, Replace

    from bertzoo.text.sentencepiece import build_sentencepiece, without_accents
    from bertzoo.text.sentencepiece_file import read_sentencepiece

    recipe, albert = RECIPES[family], family == "albert"
    if lowercase is None:
        lowercase = settings.get("do_lower_case")
    if lowercase is None:
        lowercase = albert
    steps = []
    if albert:
        steps += [Replace("``", '"'), Replace("''", '"')]
        steps += () if settings.get("keep_accents") else without_accents()
    steps += [Lowercase()] if lowercase else []
    model = read_sentencepiece(path)
    try:
        return build_sentencepiece(
            model,
            front=recipe.front,
            skipped=recipe.skipped,
            unk_token=recipe.unk_token,
            preparation=tuple(steps),
            split_punctuation=bool(settings.get("split_by_punct")),
            split_digit_comma=albert,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _add_tokens(rust, recipe: Recipe, special_tokens: Mapping[str, str], added, directory: Path) -> None:
    """Marks special tokens, and appends those that the vocabulary lacks: the mask, and what `added` lists."""
    from tokenizers import AddedToken

    lacking = [t for role, t in special_tokens.items() if role != "mask" and rust.token_to_id(t) is None]
    if lacking:
        raise ValueError(
            f"{directory}: the vocabulary has no token {lacking[0]!r}; name its own in tokenizer_config.json."
        )
    mask = special_tokens["mask"]
    rust.add_special_tokens([AddedToken(mask, lstrip=recipe.space_before_mask)])
    mark_special(rust, special_tokens.values())
    for index, token in added:
        (rust.add_special_tokens if token.get("special") else rust.add_tokens)([AddedToken(**token)])
        if rust.token_to_id(token["content"]) != index:
            raise ValueError(
                f"{directory}: the files give the added token {token['content']!r} the id {index}; after the "
                f"vocabulary it gets {rust.token_to_id(token['content'])}."
            )
