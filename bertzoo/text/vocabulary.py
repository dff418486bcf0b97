"""Learning a WordPiece vocabulary from a corpus."""

import gzip
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
    The same texts give the same vocabulary, in any order of the lines.

    The WordPiece paper (Schuster & Nakajima 2012, section 4) joins the pair of pieces that raises the likelihood of
    the corpus most, roughly count(ab) / (count(a) count(b)). The Rust trainer joins the most frequent pair, as BPE does
    (Sennrich et al. 2016), and only writes the result with `##`; splitting a word is WordPiece's longest match first
    in either case. Of very many different characters, as in Chinese, the 1,000 most frequent are kept (fewer if the
    vocabulary is small) and the others become [UNK].

    Raises `ValueError` if a needed special token is missing, there is no room beside them, or there are no texts.
    """
    if isinstance(texts_or_files, (str, Path)):
        texts_or_files = [texts_or_files]
    missing = [token for token in ("[UNK]", "[CLS]", "[SEP]") if token not in special_tokens]
    if missing:
        raise ValueError(f"special_tokens must hold {', '.join(missing)}; got {tuple(special_tokens)}.")
    if vocabulary_size < len(special_tokens) + 3:
        raise ValueError(
            f"vocabulary_size={vocabulary_size} leaves no room beside {len(special_tokens)} special tokens; use a larger one."
        )
    rust = _wordpiece(special_tokens, lowercase)
    rust.train_from_iterator(_lines(texts_or_files), _trainer(vocabulary_size, min_frequency, special_tokens, progress))
    pieces = rust.get_vocab()
    if len(pieces) <= len(special_tokens):
        raise ValueError("there is nothing to learn from: texts_or_files holds no text.")
    # Built anew, so that a trained tokenizer is no different from one read from a vocabulary.
    rust = _wordpiece(sorted(pieces, key=pieces.get), lowercase)
    mark_special(rust, special_tokens)
    return Tokenizer(rust, find_special_tokens(rust, {}))


def _wordpiece(tokens: Sequence[str], lowercase: bool):
    return build_wordpiece(
        tokens, lowercase=lowercase, strip_accents=None, tokenize_chinese_chars=True, special_tokens=BERT_TOKENS
    )


def _trainer(vocabulary_size: int, min_frequency: int, special_tokens: Sequence[str], progress: bool):
    from tokenizers.trainers import WordPieceTrainer

    return WordPieceTrainer(
        vocab_size=vocabulary_size,
        min_frequency=min_frequency,
        special_tokens=list(special_tokens),
        # A character enters the vocabulary twice, as `x` and `##x`; without a limit they alone can exceed its size.
        limit_alphabet=min(1000, (vocabulary_size - len(special_tokens)) // 3),
        show_progress=progress,
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
