"""Learning a vocabulary from a corpus: WordPiece, byte-level BPE, Unigram."""

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from bertzoo.text.byte_bpe import build_byte_bpe, with_trimmed_offsets
from bertzoo.text.raw_files import RECIPES
from bertzoo.text.sentencepiece import SPACE
from bertzoo.text.special_tokens import BERT_TOKENS, ROBERTA_TOKENS, frame, mark_special
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.tokenizer_files import find_special_tokens
from bertzoo.text.unigram import learn_unigram
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
    """A tokenizer with at most `vocabulary_size` pieces, the special tokens first.

    `texts_or_files` are strings, which are texts, or `pathlib.Path`s of UTF-8 text files (.gz too), read line by line.
    They are read twice; an iterator is kept in memory for that. The same texts give the same vocabulary, in any order.

    The WordPiece paper (Schuster & Nakajima 2012, section 4) joins the pair of pieces that raises the likelihood of
    the corpus most, by about count(ab) · ln(count(ab) · N / (count(a) · count(b))) of N pieces; Google published no
    trainer for BERT's vocabulary. The Rust trainer joins the most frequent pair, as BPE does (Sennrich et al. 2016),
    which comes close, and only writes the result with `##`; splitting a word is WordPiece's longest match first in
    either case. Of the different characters, the `alphabet_size` most frequent are kept and the others become [UNK]. By
    default these are 1,000, or as many as make up 99.95 % of the text, as in Chinese; but at most a third of the
    vocabulary, or, of scripts whose characters are words for themselves, nine tenths.

    Raises `ValueError` if a needed special token is missing, there is no room beside them, or there are no texts.
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
    """RoBERTa's kind of tokenizer: at most `vocabulary_size` pieces of UTF-8 bytes, special tokens and bytes first.

    Texts stay as they are, capitals and white space included, and no text is unknown. For `texts_or_files` see
    `train_wordpiece`; they are read once. The same texts give the same vocabulary (Radford et al. 2019, section 2.2).

    Raises `ValueError` if a needed special token is missing, there is no room beside them, or there are no texts.
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
    recipe = RECIPES["roberta"]
    rows = frame(ROBERTA_TOKENS, rust.token_to_id, double_separator=recipe.double_separator, segments=recipe.segments)
    rust.post_processor = with_trimmed_offsets(rows)
    return Tokenizer(rust, find_special_tokens(rust, {}), settings={"model_input_names": recipe.input_names})


def train_unigram(
    texts_or_files: Iterable[str | Path],
    vocabulary_size: int = 32_000,
    lowercase: bool = False,
    special_tokens: Sequence[str] = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"),
) -> Tokenizer:
    """DeBERTa v3's kind of tokenizer: at most `vocabulary_size` pieces of the unigram model (Kudo 2018), special first.

    ALBERT's special tokens are `("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")`. Texts are put in the form NFKC; a
    piece that begins a word begins with "▁". For `texts_or_files` see `train_wordpiece`; they are read once. The same
    texts give the same vocabulary, in any order; it takes some 20 seconds for 100,000 different words.

    Raises `ValueError` if a needed special token is missing, there is no room beside them, or there are no texts.
    """
    from tokenizers.models import Unigram

    unk = next((token for token in special_tokens if token in ("[UNK]", "<unk>")), "[UNK]")
    special_tokens = _checked(special_tokens, (unk, "[CLS]", "[SEP]"), vocabulary_size, 3)
    rust, words = _unigram(lowercase), Counter()
    for line in _some(_lines(_sources(texts_or_files))):
        words.update(word for word, _ in rust.pre_tokenizer.pre_tokenize_str(rust.normalizer.normalize_str(line)))
    learnt = learn_unigram(words, vocabulary_size - len(special_tokens))
    learnt = [(piece, score) for piece, score in learnt if piece not in special_tokens]
    pieces = [(token, learnt[-1][1]) for token in special_tokens] + learnt
    rust.model = Unigram(pieces, special_tokens.index(unk), False)
    rust.post_processor = frame(BERT_TOKENS, rust.token_to_id)
    mark_special(rust, special_tokens)
    return Tokenizer(rust, find_special_tokens(rust, {}))


def _unigram(lowercase: bool):
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as RustTokenizer
    from tokenizers.models import Unigram

    rust = RustTokenizer(Unigram())
    steps = [normalizers.Nmt(), normalizers.NFKC(), *([normalizers.Lowercase()] if lowercase else [])]
    steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace(Regex(r"\A | \z"), "")]
    rust.normalizer = normalizers.Sequence([*steps, normalizers.Prepend(SPACE)])
    rust.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "never")
    rust.decoder = decoders.Metaspace(SPACE, "always")
    return rust


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
    """The lines, at least one of which must hold more than white space."""
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
