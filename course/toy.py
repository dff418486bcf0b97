"""A small English-like grammar, and the probes drawn from it: what the course trains on in seconds.

A clause is `determiner [adjective] noun {preposition noun phrase} is|are [adverb] participle object .`; nouns between
the subject and its verb are attractors: the nearest noun is not the one that the verb agrees with. Every function draws
from `numpy.random.default_rng(seed)` alone: a seed gives the same sentences everywhere. One space separates words.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
DETERMINERS = ("the", "my", "your")  # of no number, so that they do not give the verb away
SYNONYMS = {"big": "large", "small": "little", "quick": "fast", "silent": "quiet"}
ADJECTIVES = (*SYNONYMS, *SYNONYMS.values(), "old", "new", "red", "green")
TOPICS = {
    "farm": ("dog", "cat", "horse", "cow", "goat", "farmer"),
    "town": ("car", "train", "shop", "bridge", "driver", "tower"),
}
NOUNS = tuple(noun for nouns in TOPICS.values() for noun in nouns)
PREPOSITIONS = ("near", "behind", "beside")
ADVERBS = ("now", "often", "always", "never", "still")
PARTICIPLES = {
    "watching": "watched",
    "following": "followed",
    "helping": "helped",
    "passing": "passed",
    "calling": "called",
}
FIRST_NAMES = ("anna", "ben", "clara", "david")
LAST_NAMES = ("reed", "hill", "stone")
PLACES = ("lund", "hill", "stone")  # two of them are also last names: only the context tells
DIRECTIONS = ("north", "south")
AMBIGUOUS = ("bat", "crane", "seal", "mouse")
LIVING_CUES = ("hungry", "thirsty", "asleep", "angry")
THING_CUES = ("wooden", "plastic", "rusty", "broken")
SENSE_ADVERBS = ("now", "often", "still")  # not "never", which would turn what is said around
SPEAKERS = ("honest", "liar")

WORDS = tuple(
    dict.fromkeys(
        (
            *DETERMINERS,
            *ADJECTIVES,
            *NOUNS,
            *(noun + "s" for noun in NOUNS),
            *PREPOSITIONS,
            *ADVERBS,
            "is",
            "are",
            *PARTICIPLES,
            *PARTICIPLES.values(),
            "by",
            "what",
            *FIRST_NAMES,
            *LAST_NAMES,
            *PLACES,
            *DIRECTIONS,
            *AMBIGUOUS,
            *LIVING_CUES,
            *THING_CUES,
            *SPEAKERS,
            "says",
            ".",
            "?",
        )
    )
)
VOCABULARY = (*SPECIAL_TOKENS, *WORDS)
_IDS = {word: i for i, word in enumerate(VOCABULARY)}


class Agreement(NamedTuple):
    """Sentences with `[MASK]` in place of the verb, and the verb, "is" or "are"."""

    sentences: list[str]
    verbs: list[str]


class Spans(NamedTuple):
    """Questions, contexts of several sentences, and the answer's first and last word in the context, int (n,) each."""

    questions: list[str]
    contexts: list[str]
    starts: np.ndarray
    ends: np.ndarray


class Entities(NamedTuple):
    """Sentences and their BIO tags, one per word: O, B-PER, I-PER, B-LOC, I-LOC."""

    sentences: list[str]
    tags: list[list[str]]


class Pairs(NamedTuple):
    """Two lists of sentences and, per pair, whether the second belongs to the first, int (n,)."""

    first: list[str]
    second: list[str]
    labels: np.ndarray


class Senses(NamedTuple):
    """Sentences of twelve words about an ambiguous noun (word `NOUN`) that a word to its right (`CUE`) makes clear.

    `claims` (n,) is 1 where the sentence says that it lives; `truths` (n,) is the same where the speaker (word
    `SPEAKER`) is honest, and the contrary where it is a liar: it takes a word from each side of the noun.
    """

    sentences: list[str]
    claims: np.ndarray
    truths: np.ndarray


SPEAKER, NOUN, CUE = 0, 4, 10


@dataclass(frozen=True)
class NounPhrase:
    """A determiner, perhaps an adjective, and a noun."""

    determiner: str
    adjective: str | None
    noun: str
    plural: bool

    def __str__(self) -> str:
        return _join(self.determiner, self.adjective, self.noun + "s" * self.plural)


@dataclass(frozen=True)
class Clause:
    """One clause of the grammar, before it is put into words."""

    subject: NounPhrase
    attractors: tuple[tuple[str, NounPhrase], ...]
    adverb: str | None
    participle: str
    object: NounPhrase

    @property
    def long_subject(self) -> str:
        """The subject with its attractors."""
        return _join(self.subject, *(word for attractor in self.attractors for word in attractor))

    def active(self, verb: str | None = None) -> str:
        """In words; with `verb` in place of is or are if it is given."""
        return _join(self.long_subject, verb or _be(self.subject), self.adverb, self.participle, self.object, ".")

    def passive(self) -> str:
        """The same said of the object: `the cats are watched by the dog .`"""
        done = PARTICIPLES[self.participle]
        return _join(self.object, _be(self.object), self.adverb, done, "by", self.long_subject, ".")


def encode(sentences: Sequence[str], length: int | None = None, special_tokens: bool = True) -> np.ndarray:
    """Words to ids: int32 (n, length), padded with 0 on the right.

    Args:
        sentences: Words of the grammar and special tokens, separated by spaces.
        length: Number of columns; that of the longest sentence where None.
        special_tokens: Put [CLS] first and [SEP] last.

    Raises:
        ValueError: A word is not of the grammar, or a sentence is longer than `length`.
    """
    rows = [sentence.split() for sentence in sentences]
    if special_tokens:
        rows = [["[CLS]", *row, "[SEP]"] for row in rows]
    longest = max(map(len, rows), default=0)
    if length is not None and longest > length:
        raise ValueError(f"length is {length}, but a sentence has {longest} tokens: raise it or leave it out.")
    ids = np.zeros((len(rows), length or longest), "int32")
    for i, row in enumerate(rows):
        unknown = [word for word in row if word not in _IDS]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not a word of the toy grammar: toy.VOCABULARY lists all.")
        ids[i, : len(row)] = [_IDS[word] for word in row]
    return ids


def decode(ids: Sequence[int]) -> str:
    """Ids (length,) to words, padding left out."""
    return " ".join(VOCABULARY[i] for i in ids if i)


def sentences(n: int, seed: int) -> list[str]:
    """`n` clauses of the grammar, active and passive, with 0 to 2 attractors."""
    rng = np.random.default_rng(seed)
    clauses = [_clause(rng) for _ in range(n)]
    return [clause.passive() if rng.random() < 0.3 else clause.active() for clause in clauses]


def agreement(n: int, seed: int, attractors: int = 1) -> Agreement:
    """Is it `is` or `are`? Half of the subjects are plural, and each of the `attractors` has the other number."""
    rng = np.random.default_rng(seed)
    texts, verbs = [], []
    for plural in rng.permutation(np.arange(n) % 2 == 1):
        clause = _clause(rng, attractors=attractors)
        subject = replace(clause.subject, plural=bool(plural))
        between = tuple((word, replace(phrase, plural=not plural)) for word, phrase in clause.attractors)
        clause = replace(clause, subject=subject, attractors=between)
        texts.append(clause.active("[MASK]"))
        verbs.append(_be(subject))
    return Agreement(texts, verbs)


def spans(n: int, seed: int, clauses: int = 3) -> Spans:
    """Who does it? The answer is the subject, without its attractors, of one of up to five sentences of the context.

    Raises:
        ValueError: `clauses` is not from 1 to 5: each needs a participle of its own.
    """
    if not 1 <= clauses <= len(PARTICIPLES):
        raise ValueError(f"clauses is {clauses}, expected 1 to {len(PARTICIPLES)}: each needs a participle of its own.")
    rng = np.random.default_rng(seed)
    questions, contexts, starts, ends = [], [], [], []
    for _ in range(n):
        participles = rng.permutation(list(PARTICIPLES))
        context = [replace(_clause(rng), participle=str(participles[i])) for i in range(clauses)]
        asked = int(rng.integers(clauses))
        questions.append(_join("what is", context[asked].participle, context[asked].object, "?"))
        contexts.append(_join(*(clause.active() for clause in context)))
        starts.append(sum(len(clause.active().split()) for clause in context[:asked]))
        ends.append(starts[-1] + len(str(context[asked].subject).split()) - 1)
    return Spans(questions, contexts, np.array(starts), np.array(ends))


def entities(n: int, seed: int) -> Entities:
    """People and places of one or two words; `hill` and `stone` may be either."""
    rng = np.random.default_rng(seed)
    texts, tags = [], []
    for _ in range(n):
        parts = [_mention(rng, "PER"), [(_pick(rng, PREPOSITIONS), "O")], _mention(rng, "LOC")]
        if rng.random() < 0.3:
            parts[0] = [(word, "O") for word in str(_noun_phrase(rng, NOUNS, plural=False)).split()]
        parts.append([(word, "O") for word in ("is", _pick(rng, ADVERBS), _pick(rng, list(PARTICIPLES)))])
        last = str(_noun_phrase(rng, NOUNS)).split()
        parts.append(_mention(rng, "PER") if rng.random() < 0.5 else [(word, "O") for word in last])
        words = [*(pair for part in parts for pair in part), (".", "O")]
        texts.append(_join(*(word for word, _ in words)))
        tags.append([tag for _, tag in words])
    return Entities(texts, tags)


def topic_pairs(n: int, seed: int, negatives: str = "other") -> Pairs:
    """Does the second sentence go on where the first ended? Half do: their subject is the first one's object.

    Args:
        n: Number of pairs.
        seed: Of the draw.
        negatives: Where a sentence that does not go on comes from: `"other"`, the other topic, so that the topic alone
            gives it away; or `"same"`, the same topic.

    Raises:
        ValueError: `negatives` is another value.
    """
    if negatives not in ("other", "same"):
        raise ValueError(f"negatives is {negatives!r}, expected 'other' or 'same' (which topic they come from).")
    rng = np.random.default_rng(seed)
    first, second, labels = [], [], rng.permutation(np.arange(n) % 2)
    for label in labels:
        topic = _pick(rng, list(TOPICS))
        clause = _clause(rng, TOPICS[topic])
        if not label and negatives == "other":
            topic = next(name for name in TOPICS if name != topic)
        following = _clause(rng, TOPICS[topic])
        if label:
            following = replace(following, subject=clause.object)
        while not label and following.subject.noun == clause.object.noun:
            following = _clause(rng, TOPICS[topic])
        first.append(clause.active())
        second.append(following.active())
    return Pairs(first, second, labels)


def paraphrases(n: int, seed: int) -> Pairs:
    """`n` different clauses, and each once more in the passive, with synonyms for its adjectives (all labels are 1)."""
    rng = np.random.default_rng(seed)
    clauses: dict[Clause, None] = {}
    while len(clauses) < n:
        clauses[_clause(rng)] = None
    second = [replace(clause, subject=_synonym(clause.subject), object=_synonym(clause.object)) for clause in clauses]
    return Pairs([c.active() for c in clauses], [c.passive() for c in second], np.ones(n, "int64"))


def senses(n: int, seed: int) -> Senses:
    """Blocks of four sentences that differ in the speaker and the cue only, so that neither alone gives the truth away.

    Whoever cannot see the cue says the same for both halves of a block, and is right about exactly half of the claims.

    Raises:
        ValueError: `n` is not a multiple of 4.
    """
    if n % 4:
        raise ValueError(f"n is {n}, expected a multiple of 4: sentences come in blocks of four.")
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(n // 4):
        adjective, noun, preposition = _pick(rng, ADJECTIVES), _pick(rng, AMBIGUOUS), _pick(rng, PREPOSITIONS)
        near = replace(_noun_phrase(rng, NOUNS), adjective=None)
        middle = _join("says the", adjective, noun, preposition, near, "is", _pick(rng, SENSE_ADVERBS))
        cues = _pick(rng, THING_CUES), _pick(rng, LIVING_CUES)
        texts += [_join(speaker, middle, cue, ".") for speaker in SPEAKERS for cue in cues]
    claims, lies = np.tile([0, 1, 0, 1], n // 4), np.tile([0, 0, 1, 1], n // 4)
    return Senses(texts, claims, claims ^ lies)


def _clause(rng: np.random.Generator, nouns: Sequence[str] = NOUNS, attractors: int | None = None) -> Clause:
    if attractors is None:
        attractors = int(rng.integers(3))
    return Clause(
        _noun_phrase(rng, nouns),
        tuple((_pick(rng, PREPOSITIONS), _noun_phrase(rng, nouns)) for _ in range(attractors)),
        _pick(rng, ADVERBS) if rng.random() < 0.5 else None,
        _pick(rng, list(PARTICIPLES)),
        _noun_phrase(rng, nouns),
    )


def _noun_phrase(rng: np.random.Generator, nouns: Sequence[str], plural: bool | None = None) -> NounPhrase:
    adjective = _pick(rng, ADJECTIVES) if rng.random() < 0.5 else None
    if plural is None:
        plural = bool(rng.random() < 0.5)
    return NounPhrase(_pick(rng, DETERMINERS), adjective, _pick(rng, nouns), plural)


def _mention(rng: np.random.Generator, kind: str) -> list[tuple[str, str]]:
    if kind == "PER":
        words = [_pick(rng, FIRST_NAMES), _pick(rng, LAST_NAMES)][: 1 + int(rng.random() < 0.5)]
    else:
        words = [_pick(rng, DIRECTIONS), _pick(rng, PLACES)][int(rng.random() < 0.5) :]
    return [(word, f"{'I' if i else 'B'}-{kind}") for i, word in enumerate(words)]


def _synonym(phrase: NounPhrase) -> NounPhrase:
    both = {**SYNONYMS, **{other: word for word, other in SYNONYMS.items()}}
    return replace(phrase, adjective=both.get(phrase.adjective, phrase.adjective))


def _be(phrase: NounPhrase) -> str:
    return "are" if phrase.plural else "is"


def _pick(rng: np.random.Generator, words: Sequence[str]) -> str:
    return words[int(rng.integers(len(words)))]


def _join(*parts: object) -> str:
    return " ".join(str(part) for part in parts if part)
