"""Learning a vocabulary from a corpus: WordPiece, byte-level BPE, Unigram."""

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bertzoo.text.sentencepiece import build_sentencepiece_tokenizer, read_sentencepiece_model
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.tokenizer_files import find_special_tokens
from bertzoo.text.vocabulary_files import (
    BERT_TOKENS,
    ROBERTA_TOKENS,
    SPECS,
    build_byte_bpe_tokenizer,
    build_wordpiece_tokenizer,
    register_special_tokens,
)

if TYPE_CHECKING:  # imported on first use, since the package is slow to load
    import tokenizers

COVERAGE = 0.9995  # of a text's characters


def train_wordpiece(
    texts_or_files: Iterable[str | Path],
    vocabulary_size: int = 16_000,
    lowercase: bool = True,
    min_frequency: int = 2,
    special_tokens: Sequence[str] = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    progress: bool = True,
    alphabet_size: int | None = None,
) -> Tokenizer:
    """Trains BERT's kind of tokenizer. The same texts give the same vocabulary, in any order.

    The WordPiece paper (Schuster & Nakajima 2012, section 4) joins the pair of pieces that raises the likelihood of
    the corpus most, by about count(ab) · ln(count(ab) · N / (count(a) · count(b))) of N pieces; Google published no
    trainer for BERT's vocabulary. The Rust trainer joins the most frequent pair, as BPE does (Sennrich et al. 2016),
    which is close, and writes the result with `##`; words are split by WordPiece's longest match first in either
    case.

    Args:
        texts_or_files: Strings, which are texts, or `pathlib.Path` objects of UTF-8 text files (.gz too), read line by
            line. They are read twice; an iterator is kept in memory for that.
        vocabulary_size: The largest number of pieces, special tokens included.
        lowercase: Lowercase the texts and strip accents.
        min_frequency: Pairs of pieces that are seen less often are not joined.
        special_tokens: The first ids, in this order.
        progress: Show a progress bar.
        alphabet_size: The most frequent characters to keep; the others become [UNK]. By default 1,000, or as many as
            make up 99.95 % of the text, as in Chinese; but at most a third of the vocabulary, or nine tenths in scripts
            whose characters are words.

    Raises:
        ValueError: A needed special token is missing, there is no room beside them, or there are no texts.

    Example:
        >>> tokenizer = bz.train_wordpiece(["a cat and a dog", "two cats"] * 10, vocabulary_size=40, progress=False)
        >>> tokenizer.decode(tokenizer("a cat")["token_ids"][0])
        'a cat'
    """
    from tokenizers.trainers import WordPieceTrainer

    specials = _checked(special_tokens, ("[UNK]", "[CLS]", "[SEP]"), vocabulary_size, 3)
    if isinstance(texts_or_files, Iterator):
        texts_or_files = list(texts_or_files)
    rust = build_wordpiece_tokenizer(specials, lowercase=lowercase)
    alphabet, continuations = _characters(texts_or_files, rust, vocabulary_size - len(specials), alphabet_size)
    trainer = WordPieceTrainer(
        vocab_size=vocabulary_size,
        min_frequency=min_frequency,
        # The trainer numbers `##x` in the order of a randomly seeded hash map and breaks ties between pairs by these
        # numbers, so that each run would learn another vocabulary; handed in as special tokens they are in our order.
        special_tokens=specials + continuations,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=progress,
    )
    rust = build_wordpiece_tokenizer(specials, lowercase=lowercase)
    rust.train_from_iterator(_lines(texts_or_files), trainer)
    pieces = rust.get_vocab()
    rust = build_wordpiece_tokenizer(sorted(pieces, key=pieces.__getitem__), lowercase=lowercase)
    register_special_tokens(rust, specials)
    return Tokenizer(rust, find_special_tokens(rust, {}))


def train_byte_bpe(
    texts_or_files: Iterable[str | Path],
    vocabulary_size: int = 32_000,
    min_frequency: int = 2,
    special_tokens: Sequence[str] = ("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
    progress: bool = True,
) -> Tokenizer:
    """Trains RoBERTa's kind of tokenizer: pieces of UTF-8 bytes (Radford et al. 2019, section 2.2).

    Capitals and white space are kept, and no text is unknown. The same texts give the same vocabulary.

    Args:
        texts_or_files: See `train_wordpiece`; read once.
        vocabulary_size: The largest number of pieces, special tokens and the 256 bytes included.
        min_frequency: Pairs of pieces that are seen less often are not joined.
        special_tokens: The first ids, in this order.
        progress: Show a progress bar.

    Raises:
        ValueError: A needed special token is missing, there is no room beside them, or there are no texts.
    """
    from tokenizers import AddedToken
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    specials = _checked(special_tokens, ("<s>", "</s>"), vocabulary_size, 257)
    trainer = BpeTrainer(
        vocab_size=vocabulary_size,
        min_frequency=min_frequency,
        special_tokens=[AddedToken(t, lstrip=t == ROBERTA_TOKENS["mask"], normalized=False) for t in specials],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=progress,
    )
    rust = build_byte_bpe_tokenizer({}, [])
    rust.train_from_iterator(_lines(texts_or_files), trainer)
    spec = SPECS["roberta"]
    rust.post_processor = spec.build_post_processor(rust, ROBERTA_TOKENS)
    return Tokenizer(rust, find_special_tokens(rust, {}), settings={"model_input_names": spec.input_names})


def train_unigram(
    texts_or_files: Iterable[str | Path],
    vocabulary_size: int = 32_000,
    lowercase: bool = False,
    special_tokens: Sequence[str] = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"),
) -> Tokenizer:
    """Trains DeBERTa v3's kind of tokenizer, a unigram model (Kudo 2018), with the `sentencepiece` package.

    Texts are normalized to NFKC; a piece that begins a word begins with "▁". The same texts in the same order
    give the same vocabulary.

    Args:
        texts_or_files: See `train_wordpiece`; read once.
        vocabulary_size: The largest number of pieces, special tokens included.
        lowercase: Lowercase the texts.
        special_tokens: The first ids, in this order. ALBERT's are `("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")`.

    Raises:
        ImportError: The `sentencepiece` extra is not installed.
        ValueError: A needed special token is missing, there is no room for the characters of the texts, or there are
            no texts.
    """
    from tokenizers.normalizers import Lowercase

    unk = next((token for token in special_tokens if token in ("[UNK]", "<unk>")), "[UNK]")
    specials = _checked(special_tokens, (unk, "[CLS]", "[SEP]"), vocabulary_size, 3)
    lines = [line.lower() if lowercase else line for line in _lines(texts_or_files)]
    others = [token for token in specials if token != unk]
    rust = build_sentencepiece_tokenizer(
        read_sentencepiece_model(_learn_unigram(lines, vocabulary_size, unk, others)),
        leading_tokens=tuple(specials),
        num_skipped_pieces=len(specials),
        first_normalizers=(Lowercase(),) if lowercase else (),
    )
    rust.post_processor = SPECS["deberta-v2"].build_post_processor(rust, BERT_TOKENS)
    register_special_tokens(rust, specials)
    return Tokenizer(rust, find_special_tokens(rust, {}))


def _learn_unigram(lines: list[str], size: int, unk: str, others: list[str]) -> bytes:
    """The `.model` file of a unigram model: the unknown piece, the other special tokens, then what is learnt."""
    try:
        from sentencepiece import SentencePieceTrainer
    except ImportError as error:
        raise ImportError("train_unigram needs sentencepiece: pip install sentencepiece.") from error
    model = BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=size,
            hard_vocab_limit=False,
            unk_id=0,
            unk_piece=unk,
            control_symbols=others,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            character_coverage=COVERAGE,
            max_sentence_length=1 << 30,
            num_threads=1,  # of several, the sums of probabilities depend on the timing
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(f"sentencepiece can't learn {size} pieces from these texts: {error}.") from error
    return model.getvalue()


def _checked(special_tokens: Sequence[str], required: Sequence[str], vocabulary_size: int, room: int) -> list[str]:
    missing = [token for token in required if token not in special_tokens]
    if missing:
        raise ValueError(f"special_tokens must hold {', '.join(missing)}. Received: {list(special_tokens)}.")
    if vocabulary_size - len(special_tokens) < room:
        raise ValueError(
            f"vocabulary_size={vocabulary_size} leaves no room beside {len(special_tokens)} special tokens; take "
            f"{len(special_tokens) + room} or more."
        )
    return list(special_tokens)


def _characters(
    texts_or_files: Iterable[str | Path], rust: "tokenizers.Tokenizer", room: int, alphabet_size: int | None
) -> tuple[list[str], list[str]]:
    """The most frequent characters, and those of them, written `##x`, that are seen inside a word."""
    from tokenizers.trainers import WordPieceTrainer

    specials = list(rust.get_vocab())
    counts: Counter[str] = Counter()
    normalizer = rust.normalizer  # the tokenizer itself is locked while it trains

    def counted() -> Iterator[str]:
        for line in _lines(texts_or_files):
            counts.update(normalizer.normalize_str(line))
            yield line

    # With no room for merges, what is learnt are the single characters.
    rust.train_from_iterator(counted(), WordPieceTrainer(vocab_size=0, special_tokens=specials, show_progress=False))
    seen = set(rust.get_vocab()).difference(specials)
    alphabet = sorted(seen.intersection(counts), key=lambda c: (-counts[c], c))
    if alphabet_size is None:
        shares = np.cumsum([counts[c] for c in alphabet]) / sum(counts[c] for c in alphabet)
        covering = int(np.searchsorted(shares, COVERAGE)) + 1
        inside = sum("##" + c in seen for c in alphabet[:covering])  # as many more pieces
        words = inside < len(alphabet[:covering]) / 2
        alphabet_size = max(min(1000, room // 3), min(covering, room * 9 // 10 if words else room // 3))
    alphabet = alphabet[:alphabet_size]
    return sorted(alphabet), sorted(seen.intersection("##" + c for c in alphabet))


def _lines(texts_or_files: str | Path | Iterable[str | Path]) -> Iterator[str]:
    """The texts, and the lines of the files.

    Raises:
        TypeError: An item is neither a string nor a path.
        ValueError: All of them are blank.
    """
    is_blank = True
    for index, item in enumerate([texts_or_files] if isinstance(texts_or_files, (str, Path)) else texts_or_files):
        if not isinstance(item, (str, Path)):
            kind = type(item).__name__
            raise TypeError(f"texts_or_files[{index}] must be a string or a pathlib.Path. Received: {kind}: {item!r}.")
        for line in [item] if isinstance(item, str) else _file_lines(item):
            is_blank = is_blank and not line.strip()
            yield line
    if is_blank:
        raise ValueError("there is nothing to learn from: texts_or_files holds no text.")


def _file_lines(path: Path) -> Iterator[str]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        yield from file
