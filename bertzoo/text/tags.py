"""Tags that mark entities word by word: BIO, BIOES (with its spelling BILOU), and IO.

B- begins an entity, I- goes on with it, O is outside. BIOES also marks the last word, E-, and an entity of one word,
S- (Ramshaw and Marcus 1995; Ratinov and Roth 2009). In IO, neighbours of one type are one entity. Tags without type,
B and I alone, are of the type "_", as in seqeval.
"""

from collections.abc import Iterable, Sequence

_SPELLINGS = {"L": "E", "U": "S"}
# The letters of the first, an inner, the last and a single word of an entity.
_LETTERS = {"BIO": "BIIB", "BIOES": "BIES", "BILOU": "BILU", "IO": None}
OUTSIDE = "O"
UNTYPED = "_"


def detect_tag_scheme(labels: Iterable[str]) -> str | None:
    """ "BIO", "BIOES", "BILOU", "IO", or None where the labels mark no entities, as parts of speech."""
    labels = set(labels)
    named = labels - {OUTSIDE}
    if named and all(map(_is_marked, named)):
        letters = {label[0] for label in named}
        if letters & {"L", "U"}:
            return "BILOU"
        return "BIOES" if letters & {"E", "S"} else "BIO"
    return "IO" if OUTSIDE in labels and named else None


def _split_tag(tag: str) -> tuple[str, str]:
    """(letter, type) of a tag: "L-PER" -> ("E", "PER"); a tag without letter is inside its type."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    if _is_marked(tag):
        return _SPELLINGS.get(tag[0], tag[0]), tag[2:] or UNTYPED
    return "I", tag


def make_entity_tags(entity_type: str, num_words: int, scheme: str) -> list[str]:
    """The tags of an entity's words: ("PER", 3, "BIO") -> ["B-PER", "I-PER", "I-PER"]."""
    letters = _LETTERS[scheme]
    if letters is None:
        return [entity_type] * num_words
    first, inner, last, single = tuple(letters)
    marks = single if num_words == 1 else first + inner * (num_words - 2) + last
    return [mark if entity_type == UNTYPED else f"{mark}-{entity_type}" for mark in marks]


def _is_marked(tag: str) -> bool:
    """Whether a tag is a letter of a scheme with a type, or alone."""
    return tag[:1] in tuple("BIESLU") and (len(tag) == 1 or (tag[1] == "-" and len(tag) > 2))


def find_entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """The entities that tags mark, (type, first word, word after the last), read as the CoNLL evaluation does: what is
    out of order, such as I- after O, begins an entity."""
    entities, begin, before, kind = [], 0, OUTSIDE, ""
    for i, tag in enumerate([*tags, OUTSIDE]):
        letter, next_kind = _split_tag(tag)
        if letter in ("B", "S", OUTSIDE) or before in ("E", "S", OUTSIDE) or next_kind != kind:
            if before != OUTSIDE:
                entities.append((kind, begin, i))
            begin = i
        before, kind = letter, next_kind
    return entities


def is_same_entity(tag: str, next_tag: str) -> bool:
    """Whether two tags of neighbours belong to one entity."""
    (letter, kind), (next_letter, next_kind) = _split_tag(tag), _split_tag(next_tag)
    return letter in ("B", "I") and next_letter in ("I", "E") and kind == next_kind


def to_inside_tag(tag: str) -> str:
    """The tag of an inner word of the same entity."""
    return f"I{tag[1:]}" if _is_marked(tag) else tag


def is_transition_allowed(tag: str | None, next_tag: str | None, scheme: str) -> bool:
    """Whether `next_tag` may come right after `tag`; None is the border of the text."""
    before, after = tag or OUTSIDE, next_tag or OUTSIDE
    if scheme not in ("BIO", "BIOES", "BILOU"):
        return True
    if _split_tag(after)[0] in ("I", "E"):
        return is_same_entity(before, after)
    return scheme == "BIO" or _split_tag(before)[0] not in ("B", "I")


def check_tag_order(tag_rows: Iterable[Sequence[str]], scheme: str) -> None:
    """Refuses tags that are out of order.

    Raises:
        ValueError: A tag can't follow the one before it.
    """
    for number, tags in enumerate(tag_rows):
        for i, (before, after) in enumerate(zip([None, *tags], [*tags, None])):
            if not is_transition_allowed(before, after, scheme):
                there = "the end" if after is None else f"{after!r} at word {i}"
                since = "at the beginning" if before is None else f"after {before!r}"
                raise ValueError(
                    f"y[{number}] has {there} {since}, which {scheme} does not allow"
                    f"{', where an entity begins with B-' if scheme == 'BIO' else ''}; mend the tags, or rewrite them: "
                    f"bertzoo.data.retag(tags, {scheme!r})."
                )


def retag(tags: Sequence[str], scheme: str = "BIO") -> list[str]:
    """The same entities in another scheme; also mends tags that are out of order, such as those of IOB1 files.

    Args:
        tags: The tags of a sentence, in any scheme.
        scheme: "BIO", "BIOES", "BILOU" or "IO".

    Raises:
        ValueError: The scheme is unknown.

    Example:
        >>> bz.data.retag(["B-place", "I-place", "O"], "BIOES")
        ['B-place', 'E-place', 'O']
    """
    if scheme not in _LETTERS:
        raise ValueError(f"scheme must be one of {', '.join(_LETTERS)}. Received: {scheme!r}.")
    new = [OUTSIDE] * len(tags)
    for kind, begin, end in find_entities(tags):
        new[begin:end] = make_entity_tags(kind, end - begin, scheme)
    return new
