"""Learning a WordPiece vocabulary from a corpus."""

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.tokenizer_files import find_special_tokens
from bertzoo.text.wordpiece import BERT_TOKENS, build_wordpiece, mark_special


def train_wordpiece(
    texts_or_files: Iterable[str | Path],
    vocabulary_size: int = 16_000,
    lowercase: bool = True,
    min_frequency: int = 2,
    special_tokens: Sequence[str] = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    progress: bool = True,
) -> Tokenizer:
    """A tokenizer with at most `vocabulary_size` pieces, the special tokens first.

    `texts_or_files` are strings, which are texts, or `pathlib.Path`s of UTF-8 text files (.gz too), read line by line.
    They are read twice; an iterator is kept in memory for that. The same texts give the same vocabulary, in any order.

    The WordPiece paper (Schuster & Nakajima 2012, section 4) joins the pair of pieces that raises the likelihood of
    the corpus most, roughly count(ab) / (count(a) count(b)). The Rust trainer joins the most frequent pair, as BPE does
    (Sennrich et al. 2016), and only writes the result with `##`; splitting a word is WordPiece's longest match first
    in either case. Of very many different characters, as in Chinese, the 1,000 most frequent are kept (fewer if the
    vocabulary is small) and the others become [UNK].

    Raises `ValueError` if a needed special token is missing, there is no room beside them, or there are no texts.
    """
    special_tokens = list(special_tokens)
    missing = [token for token in ("[UNK]", "[CLS]", "[SEP]") if token not in special_tokens]
    if missing:
        raise ValueError(f"special_tokens must hold {', '.join(missing)}; got {special_tokens}.")
    room = vocabulary_size - len(special_tokens)
    if room < 3:
        raise ValueError(
            f"vocabulary_size={vocabulary_size} leaves no room beside {len(special_tokens)} special tokens; take more."
        )
    if isinstance(texts_or_files, (str, Path)):
        texts_or_files = [texts_or_files]
    elif isinstance(texts_or_files, Iterator):
        texts_or_files = list(texts_or_files)
    alphabet = _characters(texts_or_files, lowercase, special_tokens, min(1000, room // 3))
    pieces = _learn(texts_or_files, vocabulary_size, lowercase, min_frequency, special_tokens, *alphabet, progress)
    rust = _wordpiece(pieces, lowercase)
    mark_special(rust, special_tokens)
    return Tokenizer(rust, find_special_tokens(rust, {}))


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


def _characters(sources, lowercase: bool, special_tokens: list[str], alphabet_size: int) -> tuple[list[str], list[str]]:
    """The most frequent characters, and those of them, written `##x`, that are seen inside a word."""
    from tokenizers.trainers import WordPieceTrainer

    rust, counts = _wordpiece(special_tokens, lowercase), Counter()
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
    alphabet = sorted((c for c in counts if c in seen), key=lambda c: (-counts[c], c))[:alphabet_size]
    return sorted(alphabet), sorted(seen.intersection("##" + c for c in alphabet))


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
