"""Tags: what they mark (against seqeval), what may follow what, and rewriting."""

import numpy as np
import pytest

from bertzoo.text.tags import check_tag_order, detect_tag_scheme, find_entities, is_transition_allowed, retag

pytestmark = pytest.mark.once

SCHEMES = {"BIO": "BI", "BIOES": "BIES", "BILOU": "BILU"}


def labels_of(scheme):
    return ["O"] + [f"{letter}-{kind}" for letter in SCHEMES[scheme] for kind in ("A", "B-x")]


def test_schemes_are_known_by_their_labels():
    assert detect_tag_scheme(["O", "B-PER", "I-PER"]) == "BIO"
    assert detect_tag_scheme(["O", "I-PER"]) == "BIO"
    assert detect_tag_scheme(labels_of("BIOES")) == "BIOES"
    assert detect_tag_scheme(labels_of("BILOU")) == "BILOU"
    assert detect_tag_scheme(["O", "PER", "LOC"]) == "IO"
    assert detect_tag_scheme(["NOUN", "VERB"]) is None
    assert detect_tag_scheme(["B-", "O-"]) is None
    assert detect_tag_scheme(["O"]) is None


@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
def test_entities_are_those_of_seqeval(scheme):
    """In any order of tags, valid or not. seqeval's ends are inclusive."""
    get_entities = pytest.importorskip("seqeval.metrics.sequence_labeling").get_entities
    rng = np.random.default_rng(0)
    for _ in range(1000):
        tags = [str(tag) for tag in rng.choice(labels_of(scheme), rng.integers(0, 9))]
        assert find_entities(tags) == [(kind, first, last + 1) for kind, first, last in get_entities(tags)]


def test_bilou_and_io():
    assert find_entities(["U-A", "U-A", "B-A", "L-A", "O"]) == [("A", 0, 1), ("A", 1, 2), ("A", 2, 4)]
    assert find_entities(["A", "A", "O", "X", "A"]) == [("A", 0, 2), ("X", 3, 4), ("A", 4, 5)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_retag_keeps_entities_and_gives_what_the_check_allows(scheme):
    rng = np.random.default_rng(1)
    for _ in range(300):
        tags = [str(tag) for tag in rng.choice(labels_of("BIOES"), rng.integers(0, 9))]
        new = retag(tags, scheme)
        assert find_entities(new) == find_entities(tags)
        check_tag_order([new], scheme)
    assert retag(["I-A", "I-A", "I-B"]) == ["B-A", "I-A", "B-B"]  # IOB1
    assert retag(["B-A", "I-A", "O"], "IO") == ["A", "A", "O"]
    with pytest.raises(ValueError, match="scheme"):
        retag(["O"], "IOB")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_may_follow_allows_the_sequences_that_retag_leaves_alone(scheme):
    """A sequence is in order if and only if writing its entities anew gives itself."""
    rng = np.random.default_rng(2)
    for _ in range(2000):
        tags = [str(tag) for tag in rng.choice(labels_of(scheme), rng.integers(1, 5))]
        allowed = all(is_transition_allowed(a, b, scheme) for a, b in zip([None, *tags], [*tags, None]))
        assert allowed == (retag(tags, scheme) == tags), tags


def test_errors_say_where_and_how_to_mend():
    with pytest.raises(ValueError, match=r"y\[1\] has 'I-A' at word 2 after 'O'.*begins with B-.*retag"):
        check_tag_order([["O"], ["O", "O", "I-A"]], "BIO")
    with pytest.raises(ValueError, match=r"y\[0\] has the end after 'B-A'"):
        check_tag_order([["B-A"]], "BIOES")
    with pytest.raises(ValueError, match="at the beginning"):
        check_tag_order([["I-A"]], "BIO")
