"""Learning a vocabulary from a corpus: WordPiece, byte-level BPE, Unigram."""

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np

from bertzoo.text.byte_bpe import build_byte_bpe, with_trimmed_offsets
from bertzoo.text.sentencepiece import build_sentencepiece, read_sentencepiece
from bertzoo.text.slow_tokenizers import SPECS
from bertzoo.text.special_tokens import BERT_TOKENS, ROBERTA_TOKENS, mark_special, template
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.tokenizer_files import find_special_tokens
from bertzoo.text.wordpiece import build_wordpiece

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
        texts_or_files: Strings, which are texts, or `pathlib.Path`s of UTF-8 text files (.gz too), read line by line.
            They are read twice; an iterator is kept in memory for that.
        vocabulary_size: At most so many pieces, special tokens included.
        lowercase: Lowercase the texts and strip accents.
        min_frequency: Pairs of pieces that are seen less often are not joined.
        special_tokens: The first ids, in this order.
        progress: Show a progress bar.
        alphabet_size: The most frequent characters to keep; the others become [UNK]. By default 1,000, or as many as
            make up 99.95 % of the text, as in Chinese; but at most a third of the vocabulary, or nine tenths in scripts
            whose characters are words.

    Raises:
        ValueError: A needed special token is missing, there is no room beside them, or there are no texts.
    """
    special_tokens = _checked(special_tokens, ("[UNK]", "[CLS]", "[SEP]"), vocabulary_size, 3)
    room = vocabulary_size - len(special_tokens)
    texts_or_files = _sources(texts_or_files)
    alphabet = _characters(texts_or_files, lowercase, special_tokens, room, alphabet_size)
    pieces = _learn(texts_or_files, vocabulary_size, lowercase, min_frequency, special_tokens, *alphabet, progress)
    rust = _wordpiece(pieces, lowercase)
    mark_special(rust, special_tokens)
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
        vocabulary_size: At most so many pieces, special tokens and the 256 bytes included.
        min_frequency: Pairs of pieces that are seen less often are not joined.
        special_tokens: The first ids, in this order.
        progress: Show a progress bar.

    Raises:
        ValueError: A needed special token is missing, there is no room beside them, or there are no texts.
    """
    from tokenizers import AddedToken
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    special_tokens = _checked(special_tokens, ("<s>", "</s>"), vocabulary_size, 257)
    trainer = BpeTrainer(
        vocab_size=vocabulary_size,
        min_frequency=min_frequency,
        special_tokens=[AddedToken(t, lstrip=t == ROBERTA_TOKENS["mask"], normalized=False) for t in special_tokens],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=progress,
    )
    rust = build_byte_bpe({}, [])
    rust.train_from_iterator(_some(_lines(_sources(texts_or_files))), trainer)
    spec = SPECS["roberta"]
    rows = template(ROBERTA_TOKENS, rust.token_to_id, double_separator=spec.double_separator, segments=spec.segments)
    rust.post_processor = with_trimmed_offsets(rows)
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
        vocabulary_size: At most so many pieces, special tokens included.
        lowercase: Lowercase the texts.
        special_tokens: The first ids, in this order. ALBERT's are `("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")`.

    Raises:
        ImportError: The `sentencepiece` extra is not installed.
        ValueError: A needed special token is missing, there is no room for the characters of the texts, or there are
            no texts.
    """
    from tokenizers.normalizers import Lowercase

    unk = next((token for token in special_tokens if token in ("[UNK]", "<unk>")), "[UNK]")
    special_tokens = _checked(special_tokens, (unk, "[CLS]", "[SEP]"), vocabulary_size, 3)
    lines = _some(_lines(_sources(texts_or_files)))
    if lowercase:
        lines = (line.lower() for line in lines)
    others = [token for token in special_tokens if token != unk]
    model = read_sentencepiece(_learn_unigram(lines, vocabulary_size, unk, others))
    rust = build_sentencepiece(
        model,
        front=tuple(special_tokens),
        skipped=len(special_tokens),
        unk_token=unk,
        preparation=(Lowercase(),) if lowercase else (),
    )
    rust.post_processor = template(BERT_TOKENS, rust.token_to_id)
    mark_special(rust, special_tokens)
    return Tokenizer(rust, find_special_tokens(rust, {}))


def _learn_unigram(lines: Iterator[str], size: int, unk: str, others: list[str]) -> bytes:
    """The `.model` file of a unigram model: the unknown piece, the other special tokens, then what is learnt."""
    try:
        from sentencepiece import SentencePieceTrainer
    except ImportError as error:
        raise ImportError("train_unigram needs sentencepiece: pip install sentencepiece.") from error
    model, failures = BytesIO(), []

    def guarded() -> Iterator[str]:
        try:
            yield from lines
        except Exception as error:  # the trainer would make a RuntimeError of it
            failures.append(error)

    try:
        SentencePieceTrainer.train(
            sentence_iterator=guarded(),
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
        if not failures:
            raise ValueError(f"sentencepiece can't learn {size} pieces from these texts: {error}.") from error
    if failures:
        raise failures[0]
    return model.getvalue()


def _checked(special_tokens: Sequence[str], needed: Sequence[str], vocabulary_size: int, room: int) -> list[str]:
    special_tokens = list(special_tokens)
    missing = [token for token in needed if token not in special_tokens]
    if missing:
        raise ValueError(f"special_tokens must hold {', '.join(missing)}; got {special_tokens}.")
    if vocabulary_size - len(special_tokens) < room:
        raise ValueError(
            f"vocabulary_size={vocabulary_size} leaves no room beside {len(special_tokens)} special tokens; take "
            f"{len(special_tokens) + room} or more."
        )
    return special_tokens


def _sources(texts_or_files) -> Iterable[str | Path]:
    if isinstance(texts_or_files, (str, Path)):
        return [texts_or_files]
    return list(texts_or_files) if isinstance(texts_or_files, Iterator) else texts_or_files


def _some(lines: Iterator[str]) -> Iterator[str]:
    """The lines; raises ValueError if all are blank."""
    found = False
    for line in lines:
        found = found or bool(line.strip())
        yield line
    if not found:
        raise ValueError("there is nothing to learn from: texts_or_files holds no text.")


def _learn(sources, size, lowercase, min_frequency, special_tokens, alphabet, continuations, progress) -> list[str]:
    from tokenizers.trainers import WordPieceTrainer

    rust = _wordpiece(special_tokens, lowercase)
    trainer = WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        # The trainer numbers `##x` in the order of a randomly seeded hash map and breaks ties between pairs by these
        # numbers, so that each run would learn another vocabulary; handed in as special tokens they are in our order.
        special_tokens=special_tokens + continuations,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=progress,
    )
    rust.train_from_iterator(_lines(sources), trainer)
    pieces = rust.get_vocab()
    return sorted(pieces, key=pieces.get)


def _characters(
    sources, lowercase: bool, special_tokens: list[str], room: int, alphabet_size: int | None
) -> tuple[list[str], list[str]]:
    """The most frequent characters, and those of them, written `##x`, that are seen inside a word."""
    from tokenizers.trainers import WordPieceTrainer

    rust = _wordpiece(special_tokens, lowercase)
    counts: Counter[str] = Counter()
    normalizer = rust.normalizer  # the tokenizer itself is locked while it trains

    def counted() -> Iterator[str]:
        for line in _lines(sources):
            counts.update(normalizer.normalize_str(line))
            yield line

    # With no room for merges, what is learnt are the single characters.
    trainer = WordPieceTrainer(vocab_size=0, special_tokens=special_tokens, show_progress=False)
    rust.train_from_iterator(counted(), trainer)
    seen = set(rust.get_vocab()).difference(special_tokens)
    if not seen:
        raise ValueError("there is nothing to learn from: texts_or_files holds no text.")
    alphabet = sorted((c for c in counts if c in seen), key=lambda c: (-counts[c], c))
    alphabet = alphabet[: _alphabet_size(alphabet, counts, seen, room) if alphabet_size is None else alphabet_size]
    return sorted(alphabet), sorted(seen.intersection("##" + c for c in alphabet))


def _alphabet_size(alphabet: list[str], counts: Counter, seen: set[str], room: int) -> int:
    """How many of the characters, most frequent first, to keep."""
    shares = np.cumsum([counts[c] for c in alphabet]) / sum(counts[c] for c in alphabet)
    covering = int(np.searchsorted(shares, COVERAGE)) + 1
    inside = ["##" + c in seen for c in alphabet[:covering]]  # as many more pieces
    return max(min(1000, room // 3), min(covering, (room * 9 // 10 if sum(inside) < len(inside) / 2 else room // 3)))


def _wordpiece(tokens: Sequence[str], lowercase: bool):
    return build_wordpiece(
        tokens, lowercase=lowercase, strip_accents=None, tokenize_chinese_chars=True, special_tokens=BERT_TOKENS
    )


def _lines(texts_or_files: Iterable[str | Path]) -> Iterator[str]:
    for index, item in enumerate(texts_or_files):
        if isinstance(item, Path):
            opener = gzip.open if item.suffix == ".gz" else open
            with opener(item, "rt", encoding="utf-8") as file:
                yield from file
        elif isinstance(item, str):
            yield item
        else:
            raise TypeError(
                f"texts_or_files[{index}] must be a string or a pathlib.Path, got {type(item).__name__}: {item!r}."
            )
