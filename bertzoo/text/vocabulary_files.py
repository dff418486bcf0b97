"""Tokenizers of directories without tokenizer.json: each family's vocabulary files, and the tokenizer they make.

Sources: the published files, and the tokenizers of google-research, fairseq and microsoft/DeBERTa.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.checkpoints.catalog import is_lowercase_in_catalog
from bertzoo.checkpoints.errors import add_source_to_errors
from bertzoo.checkpoints.json_files import integer_rule, object_rule, read_json
from bertzoo.text.sentencepiece import (
    build_sentencepiece_tokenizer,
    read_sentencepiece_model,
    strip_accents_normalizers,
)

if TYPE_CHECKING:  # imported on first use, since the package is slow to load
    import tokenizers

ROLES = ("cls", "sep", "pad", "mask", "unk")
BERT_TOKENS = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]", "unk": "[UNK]"}
ROBERTA_TOKENS = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>", "unk": "<unk>"}

WORDPIECE, BYTE_BPE = ("vocab.txt",), ("vocab.json", "merges.txt")
FAIRSEQ_BPE = ("dict.txt", "encoder.json", "vocab.bpe")
_IDS = object_rule(integer_rule())  # of pieces


@dataclass(frozen=True)
class TokenizerSpec:
    """A family's tokenizer.

    Attributes:
        hf_class: Its class in transformers.
        files: Its vocabulary files.
        special_tokens: Tokens by role; tokenizer_config.json may name others.
        double_separator: Pairs have a second [SEP] before the second text.
        segments: The second text of a pair and its [SEP] are segment 1.
        space_before_mask: `[MASK]` includes the white space before it.
        leading_tokens, num_skipped_pieces: How the ids of a SentencePiece file are shifted, see
            `build_sentencepiece_tokenizer`.
    """

    hf_class: str
    files: tuple[str, ...]
    special_tokens: Mapping[str, str] = field(default_factory=lambda: BERT_TOKENS)
    double_separator: bool = False
    segments: bool = True
    space_before_mask: bool = False
    leading_tokens: tuple[str, ...] = ()
    num_skipped_pieces: int = 0

    @property
    def input_names(self) -> list[str]:
        """The inputs that transformers passes to the model."""
        return ["input_ids", *(["token_type_ids"] if self.segments else []), "attention_mask"]

    def build_post_processor(
        self, rust: "tokenizers.Tokenizer", special_tokens: Mapping[str, str], add_prefix_space: bool = False
    ) -> "tokenizers.processors.PostProcessor":
        """What makes `[CLS] A [SEP]` of a text and `[CLS] A [SEP] B [SEP]` of a pair.

        Args:
            rust: The tokenizer, whose vocabulary has the tokens.
            special_tokens: Tokens by role.
            add_prefix_space: Whether byte-level BPE puts a space before texts.
        """
        from tokenizers.processors import ByteLevel, Sequence, TemplateProcessing

        cls, sep = special_tokens["cls"], special_tokens["sep"]
        between, second = f"{sep}:0 " * self.double_separator, int(self.segments)
        template = TemplateProcessing(
            single=f"{cls}:0 $A:0 {sep}:0",
            pair=f"{cls}:0 $A:0 {sep}:0 {between}$B:{second} {sep}:{second}",
            special_tokens=[(token, rust.token_to_id(token)) for token in dict.fromkeys((cls, sep))],
        )
        if self.files != BYTE_BPE:
            return template
        # Offsets leave out the space that a token begins with.
        return Sequence([ByteLevel(add_prefix_space=add_prefix_space, trim_offsets=True), template])


_ROBERTA = TokenizerSpec(
    "RobertaTokenizer", BYTE_BPE, ROBERTA_TOKENS, double_separator=True, segments=False, space_before_mask=True
)
# By `model_type`.
SPECS = {
    "bert": TokenizerSpec("BertTokenizer", WORDPIECE),
    "electra": TokenizerSpec("ElectraTokenizer", WORDPIECE),
    "distilbert": TokenizerSpec("DistilBertTokenizer", WORDPIECE, segments=False),
    "mpnet": TokenizerSpec(
        "MPNetTokenizer", WORDPIECE, {**ROBERTA_TOKENS, "unk": "[UNK]"}, double_separator=True, segments=False
    ),
    "roberta": _ROBERTA,
    "deberta": TokenizerSpec("DebertaTokenizer", BYTE_BPE, space_before_mask=True),
    "albert": TokenizerSpec(
        "AlbertTokenizer",
        ("spiece.model",),
        {**BERT_TOKENS, "pad": "<pad>", "unk": "<unk>"},
        space_before_mask=True,
    ),
    "xlm-roberta": replace(
        _ROBERTA,
        hf_class="XLMRobertaTokenizer",
        files=("sentencepiece.bpe.model",),
        leading_tokens=("<s>", "<pad>", "</s>", "<unk>"),
        num_skipped_pieces=3,
    ),
    "camembert": replace(
        _ROBERTA,
        hf_class="CamembertTokenizer",
        files=("sentencepiece.bpe.model",),
        leading_tokens=("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"),
        num_skipped_pieces=1,
    ),
    "deberta-v2": TokenizerSpec("DebertaV2Tokenizer", ("spm.model",)),
}
_FAMILIES = {spec.hf_class: family for family, spec in SPECS.items()}
# Classes that name no tokenizer of their own.
GENERIC_CLASSES = ("PreTrainedTokenizer", "TokenizersBackend")


def special_token_string(token: str | Mapping | None) -> str | None:
    """The string of a special token, which the files write as a string or as an object with "content"."""
    return token.get("content") if isinstance(token, Mapping) else token


def register_special_tokens(rust: "tokenizers.Tokenizer", tokens: Iterable[str]) -> None:
    """Makes the tokenizer recognise those of `tokens` that its vocabulary has when a text contains them.

    Tokens that are not in the vocabulary are passed over: the Rust library would append them behind the last row of
    the embedding table.
    """
    known = {token.content for token in rust.get_added_tokens_decoder().values()}
    rust.add_special_tokens([t for t in dict.fromkeys(tokens) if t not in known and rust.token_to_id(t) is not None])


def family_from_tokenizer_class(settings: Mapping[str, Any]) -> str | None:
    """The family whose class tokenizer_config.json names."""
    return _FAMILIES.get(str(settings.get("tokenizer_class")).removesuffix("Fast"))


def find_vocabulary_family(directory: Path, settings: Mapping[str, Any], model_type: str | None) -> str | None:
    """The family whose vocabulary files a directory has; None if it has no family's.

    The class in tokenizer_config.json goes before the model's type: paraphrase-multilingual-MiniLM is a BERT with the
    tokenizer of XLM-R.

    Raises:
        ValueError: tokenizer_config.json names a class that bertzoo does not have.
    """
    named, named_class = family_from_tokenizer_class(settings), settings.get("tokenizer_class")
    if named is None and named_class is not None and named_class.removesuffix("Fast") not in GENERIC_CLASSES:
        raise ValueError(
            f"{directory}/tokenizer_config.json names {named_class}, which bertzoo does not have without a "
            f"tokenizer.json; it has {', '.join(sorted(_FAMILIES))}."
        )
    for name in dict.fromkeys([*(name for name in (named, model_type) if name in SPECS), *SPECS]):
        for files in (SPECS[name].files, *([FAIRSEQ_BPE] if name == "roberta" else [])):
            if all((directory / file).is_file() for file in files):
                return name
    return None


def build_tokenizer_from_files(
    directory: Path, family: str, settings: Mapping[str, Any], lowercase: bool | None
) -> "tokenizers.Tokenizer":
    """The tokenizer of a family from its vocabulary files.

    Raises:
        ValueError: A file cannot be read or does not belong to the family.
    """
    from tokenizers import AddedToken

    spec = SPECS[family]
    special_tokens = {r: special_token_string(settings.get(f"{r}_token")) or spec.special_tokens[r] for r in ROLES}
    if spec.files == WORDPIECE:
        rust = _read_wordpiece(directory / "vocab.txt", settings, lowercase, special_tokens)
        if spec.double_separator:
            rust.post_processor = spec.build_post_processor(rust, special_tokens)
        return rust
    if spec.files == BYTE_BPE:
        rust = _read_byte_bpe(directory, settings, lowercase)
    else:
        rust = _read_sentencepiece(directory / spec.files[0], family, settings, lowercase)
    lacking = [t for role, t in special_tokens.items() if role != "mask" and rust.token_to_id(t) is None]
    if lacking:
        raise ValueError(
            f"{directory}: the vocabulary has no token {lacking[0]!r}; name its own in tokenizer_config.json."
        )
    # The mask is appended where the vocabulary lacks it.
    rust.add_special_tokens([AddedToken(special_tokens["mask"], lstrip=spec.space_before_mask)])
    register_special_tokens(rust, special_tokens.values())
    rust.post_processor = spec.build_post_processor(rust, special_tokens, bool(settings.get("add_prefix_space")))
    return rust


def build_wordpiece_tokenizer(
    tokens: Sequence[str],
    *,
    lowercase: bool,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
    special_tokens: Mapping[str, str] = BERT_TOKENS,
) -> "tokenizers.Tokenizer":
    """BERT's tokenizer, the longest piece first: `[CLS] A [SEP] B [SEP]` (Devlin et al. 2019, section 3).

    Args:
        tokens: The pieces by id. Of a token that is listed twice the later id counts, as in transformers.
        lowercase, strip_accents, tokenize_chinese_chars: See `Tokenizer.from_vocabulary`.
        special_tokens: Tokens by role (cls, sep, pad, mask, unk).

    Raises:
        ValueError: The cls, sep or unk token is not in the list.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    vocabulary = {token: index for index, token in enumerate(tokens)}
    for role in ("cls", "sep", "unk"):
        if special_tokens.get(role) not in vocabulary:
            raise ValueError(
                f"the vocabulary of {len(vocabulary)} tokens has no {role} token {special_tokens.get(role)!r}; add it, "
                f"or name its own as `{role}_token` in tokenizer_config.json."
            )
    rust = Tokenizer(models.WordPiece(vocabulary, unk_token=special_tokens["unk"]))
    rust.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=tokenize_chinese_chars,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rust.decoder = decoders.WordPiece(prefix="##")
    rust.post_processor = SPECS["bert"].build_post_processor(rust, special_tokens)
    register_special_tokens(rust, special_tokens.values())
    return rust


def build_byte_bpe_tokenizer(
    vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], *, add_prefix_space: bool = False
) -> "tokenizers.Tokenizer":
    """RoBERTa's tokenizer without special tokens and template: byte-pair encoding of UTF-8 bytes (Radford et al. 2019).

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


def _read_wordpiece(path: Path, settings: Mapping[str, Any], lowercase: bool | None, special_tokens: Mapping[str, str]):
    # Only the line end is taken off: pieces may hold any other white space.
    tokens = [line.removesuffix("\r") for line in _read_text(path).split("\n")]
    if tokens[-1] == "":
        tokens.pop()
    sources = (lowercase, settings.get("do_lower_case"), is_lowercase_in_catalog(path.parent), _looks_uncased(tokens))
    with add_source_to_errors(path):
        return build_wordpiece_tokenizer(
            tokens,
            lowercase=next(value for value in sources if value is not None),
            strip_accents=settings.get("strip_accents"),
            tokenize_chinese_chars=settings.get("tokenize_chinese_chars") is not False,
            special_tokens=special_tokens,
        )


def _looks_uncased(tokens: Sequence[str]) -> bool:
    """Whether a vocabulary was made from lowercased texts."""
    # differs: transformers lowercases wherever no config says otherwise, which ruins cased vocabularies that come
    # alone (Google's first releases). Cased ones hold thousands of capitals, uncased ones none.
    words = [token for token in tokens if not token.startswith("[")]
    return sum(token != token.lower() for token in words) < 0.01 * len(words)


def _read_byte_bpe(directory: Path, settings: Mapping[str, Any], lowercase: bool | None):
    if lowercase is not None:
        raise ValueError(f"lowercase={lowercase} is not for byte-level BPE, which keeps capitals; leave it out.")
    if all((directory / name).is_file() for name in BYTE_BPE):
        vocabulary, merges = read_json(directory / "vocab.json", _IDS), _read_merges(directory / "merges.txt")
    else:
        vocabulary, merges = _read_fairseq_vocabulary(directory), _read_merges(directory / "vocab.bpe")
    with add_source_to_errors(directory):
        return build_byte_bpe_tokenizer(vocabulary, merges, add_prefix_space=bool(settings.get("add_prefix_space")))


def _read_merges(path: Path) -> list[tuple[str, str]]:
    """merges.txt, or fairseq's vocab.bpe: a pair of pieces a line, after a line that may name the version."""
    merges = []
    for number, line in enumerate(_read_text(path).split("\n"), start=1):
        line = line.removesuffix("\r")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        first, _, second = line.partition(" ")
        if not first or not second or " " in second:
            raise ValueError(f"{path}, line {number} must hold two pieces with a space between, it is {line!r}.")
        merges.append((first, second))
    return merges


def _read_fairseq_vocabulary(directory: Path) -> dict[str, int]:
    """{piece: id} of fairseq's RoBERTa: dict.txt lists GPT-2's ids by count, encoder.json has their pieces.

    fairseq puts four tokens before them, and its masked-LM task one behind (fairseq/data/dictionary.py).
    """
    pieces = {index: piece for piece, index in read_json(directory / "encoder.json", _IDS).items()}
    tokens = ["<s>", "<pad>", "</s>", "<unk>"]
    for number, line in enumerate(_read_text(directory / "dict.txt").splitlines(), start=1):
        name = line.rsplit(" ", 1)[0]
        if name.isdecimal() and int(name) not in pieces:
            raise ValueError(f"{directory}/dict.txt, line {number}: encoder.json has no piece of the id {name}.")
        tokens.append(pieces[int(name)] if name.isdecimal() else name)
    return {token: index for index, token in enumerate([*tokens, "<mask>"])}


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")  # editors of Windows put a mark before the text
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}.") from None


def _read_sentencepiece(path: Path, family: str, settings: Mapping[str, Any], lowercase: bool | None):
    from tokenizers.normalizers import Lowercase, Normalizer, Replace

    spec, is_albert = SPECS[family], family == "albert"
    steps: list[Normalizer] = []
    if is_albert:
        steps += [Replace("``", '"'), Replace("''", '"')]
        steps += () if settings.get("keep_accents") else strip_accents_normalizers()
    if next(value for value in (lowercase, settings.get("do_lower_case"), is_albert) if value is not None):
        steps.append(Lowercase())
    model = read_sentencepiece_model(path)
    with add_source_to_errors(path):
        return build_sentencepiece_tokenizer(
            model,
            leading_tokens=spec.leading_tokens,
            num_skipped_pieces=spec.num_skipped_pieces,
            first_normalizers=tuple(steps),
            split_punctuation=bool(settings.get("split_by_punct")),
            split_digit_comma=is_albert,
        )
