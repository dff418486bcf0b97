"""Two English sets made from templates written here: relations between marked names, and entailment.

In both, the words of a text alone do not give its label away.
"""

from collections.abc import Sequence

import numpy as np

# Around the first and the second name of a text whose relation is asked for.
MARKERS = ("[E1]", "[/E1]", "[E2]", "[/E2]")
RELATIONS = ("comes from", "works for", "founded", "no relation")
ENTAILMENT = ("entailment", "neutral", "contradiction")

_PEOPLE = "Anna Ben Clara David Emma Frank Grace Henry Irene Jack Laura Martin Nina Oscar Paula".split()  # noqa: SIM905
_SURNAMES = "Bell Carter Dean Fisher Grant Hill Knight Marsh Price Reed Stone Walker".split()  # noqa: SIM905
_PLACES = "London Paris Berlin Rome Madrid Vienna Boston Chicago Dublin Moscow Sydney Toronto".split()  # noqa: SIM905
_FIRMS = "Northern Western Pacific Atlantic Royal National Central United".split()  # noqa: SIM905
_TRADES = "Steel Bank Motors Airlines Press Foods Records Oil".split()  # noqa: SIM905
_ORIGINS = ("who was born in {l}", "who grew up in {l}", "a native of {l}", "who came from {l}")
_DEEDS = {
    "works for": ("{p} , {o} , works for {c} .", "{p} , {o} , is employed by {c} .", "{c} hired {p} , {o} ."),
    "founded": ("{p} , {o} , founded {c} .", "{p} , {o} , is the founder of {c} .", "{c} was set up by {p} , {o} ."),
}

_NOUNS = "doctor lawyer singer farmer teacher soldier painter student judge actor baker writer".split()  # noqa: SIM905
_VERBS = (("help", "helped"), ("call", "called"), ("thank", "thanked"), ("visit", "visited"), ("follow", "followed"))
_DOINGS = (("sleep", "slept"), ("dance", "danced"), ("wait", "waited"), ("smile", "smiled"), ("arrive", "arrived"))
# What happened between two, actively and passively.
_DID = ("the {a} {ved} the {b} .", "the {b} was {ved} by the {a} .")
_DID_NOT = ("the {a} did not {v} the {b} .", "the {b} was not {ved} by the {a} .")
_REVERSED = ("the {b} {ved} the {a} .", "the {a} was {ved} by the {b} .", "the {b} did not {v} the {a} .")
# A premise, and hypotheses for each of ENTAILMENT, of which one is drawn. Traps, whose words are all in the premise,
# are those in which names change places (McCoy et al. 2019). Each form of hypothesis stands under several labels.
_TEMPLATES = (
    (_DID[0], _DID[1:], _REVERSED, _DID_NOT),
    (_DID[1], _DID[:1], _REVERSED, _DID_NOT),
    (_DID_NOT[0], _DID_NOT[1:], _REVERSED, _DID),
    (_DID_NOT[1], _DID_NOT[:1], _REVERSED, _DID),
    ("the {a} near the {b} {ded} .", ("the {a} {ded} .",), ("the {b} {ded} .",), ("the {a} did not {d} .",)),
    (
        "the {a} near the {b} did not {d} .",
        ("the {a} did not {d} .",),
        ("the {b} did not {d} .",),
        ("the {a} {ded} .",),
    ),
    (
        "the {a} {ded} and the {b} did not .",
        ("the {a} {ded} .", "the {b} did not {d} ."),
        ("the {b} {ved} the {a} .", "the {b} did not {v} the {a} ."),
        ("the {b} {ded} .", "the {a} did not {d} ."),
    ),
    ("all the {a}s {ded} .", ("some of the {a}s {ded} .",), ("some of the {b}s {ded} .",), ("no {a} {ded} .",)),
    ("some of the {a}s {ded} .", ("at least one {a} {ded} .",), ("all the {a}s {ded} .",), ("no {a} {ded} .",)),
    ("no {a} {ded} .", ("the {a}s did not {d} .",), ("all the {b}s {ded} .",), ("at least one {a} {ded} .",)),
    ("not all the {a}s {ded} .", ("some of the {a}s did not {d} .",), ("no {a} {ded} .",), ("all the {a}s {ded} .",)),
)


def relations(n: int, seed: int) -> tuple[list[str], list[str]]:
    """`n` sentences about a person, a place and a firm, two of which are marked; and how these two are related.

    "Anna Bell , who was born in Rome , works for Royal Bank ." has three labels, one for each pair that may be marked,
    so whoever does not see MARKERS is right about no more than every second one.

    Returns:
        Texts with MARKERS around the two names, and labels, which are of RELATIONS.
    """
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n):
        deed = _pick(rng, list(_DEEDS))
        pair, label = [("pl", "comes from"), ("pc", deed), ("lc", "no relation")][rng.integers(3)]
        names = {
            "p": f"{_pick(rng, _PEOPLE)} {_pick(rng, _SURNAMES)}",
            "l": _pick(rng, _PLACES),
            "c": f"{_pick(rng, _FIRMS)} {_pick(rng, _TRADES)}",
        }
        for place, key in enumerate(pair):
            names[key] = f"{MARKERS[2 * place]} {names[key]} {MARKERS[2 * place + 1]}"
        origin = _pick(rng, _ORIGINS).format(**names)
        texts.append(_pick(rng, _DEEDS[deed]).format(o=origin, **names))
        labels.append(label)
    return texts, labels


def entailment(n: int, seed: int) -> tuple[list[str], list[str], list[str]]:
    """`n` pairs of sentences: does the second follow from the first, contradict it, or neither?

    Each class has a third of the pairs, and of every template. Many neutral hypotheses have no word that their premise
    lacks, so overlap is no guide; nor is negation, which all classes have.

    Returns:
        Premises, hypotheses, and labels, which are of ENTAILMENT.
    """
    rng = np.random.default_rng(seed)
    premises, hypotheses, labels = [], [], []
    for row in rng.permutation(n):
        premise, *choices = _TEMPLATES[row // 3 % len(_TEMPLATES)]
        a, b = rng.choice(_NOUNS, 2, replace=False)
        (v, ved), (d, ded) = _pick(rng, _VERBS), _pick(rng, _DOINGS)
        words = {"a": a, "b": b, "v": v, "ved": ved, "d": d, "ded": ded}
        premises.append(premise.format(**words))
        hypotheses.append(_pick(rng, choices[row % 3]).format(**words))
        labels.append(ENTAILMENT[row % 3])
    return premises, hypotheses, labels


def _pick(rng: np.random.Generator, choices: Sequence):
    return choices[int(rng.integers(len(choices)))]
