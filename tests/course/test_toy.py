"""Properties of the toy grammar that the notebooks rely on, checked on the text that comes out."""

import re
from collections import Counter

import numpy as np
import pytest
import toy

pytestmark = pytest.mark.once

PLURALS = {noun + "s" for noun in toy.NOUNS}


def nouns(text: str) -> list[str]:
    return [word for word in text.split() if word in PLURALS or word in toy.NOUNS]


def number(noun: str) -> str:
    return "are" if noun in PLURALS else "is"


def topic(text: str) -> set[str]:
    return {name for name, members in toy.TOPICS.items() for noun in nouns(text) if noun.removesuffix("s") in members}


def everything(seed: int) -> list[str]:
    spans, pairs = toy.spans(50, seed), toy.topic_pairs(50, seed)
    paraphrases = toy.paraphrases(50, seed)
    return [
        *toy.sentences(200, seed),
        *toy.agreement(50, seed).sentences,
        *spans.questions,
        *spans.contexts,
        *toy.entities(100, seed).sentences,
        *pairs.first,
        *pairs.second,
        *paraphrases.first,
        *paraphrases.second,
        *toy.senses(200, seed).sentences,
    ]


def test_vocabulary():
    assert len(toy.VOCABULARY) == len(set(toy.VOCABULARY)) and 85 <= len(toy.WORDS) <= 95
    assert toy.VOCABULARY[:5] == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    used = set(" ".join(text for seed in range(5) for text in everything(seed)).split())
    assert used == {*toy.WORDS, "[MASK]"}


def test_a_seed_is_a_draw():
    assert everything(3) == everything(3)
    assert everything(3) != everything(4)


def test_encode_and_decode():
    ids = toy.encode(["the dog is old", "the dogs"])
    assert ids.dtype == np.int32
    words = [toy.VOCABULARY[i] for i in ids[1]]
    assert words == ["[CLS]", "the", "dogs", "[SEP]", "[PAD]", "[PAD]"]
    assert toy.decode(ids[0]) == "[CLS] the dog is old [SEP]"
    assert toy.encode(["the dog"], length=8).shape == (1, 8)
    assert toy.decode(toy.encode(["the dog"], special_tokens=False)[0]) == "the dog"


def test_encode_refuses():
    with pytest.raises(ValueError, match=r"'zebra' is not a word of the toy grammar"):
        toy.encode(["the zebra"])
    with pytest.raises(ValueError, match=r"length is 3, but a sentence has 4 tokens"):
        toy.encode(["the dog"], length=3)


def test_verbs_agree_with_the_first_noun():
    for text in toy.sentences(300, 0):
        verb = re.search(r" (is|are) ", text)[1]
        assert verb == number(nouns(text)[0]), text
        assert text.endswith(" .") and "  " not in text


@pytest.mark.parametrize("attractors", [0, 1, 2])
def test_agreement_attractors_mislead(attractors):
    probe = toy.agreement(100, 1, attractors)
    assert Counter(probe.verbs) == {"is": 50, "are": 50}
    for text, verb in zip(probe.sentences, probe.verbs):
        subject, *between = nouns(text.split("[MASK]")[0])
        assert number(subject) == verb and len(between) == attractors
        assert all(number(noun) != verb for noun in between)
        assert not {"is", "are"} & set(text.split())


def test_span_answers_can_be_found_from_the_question():
    probe = toy.spans(100, 2)
    assert len({int(start) for start in probe.starts}) > 10
    for question, context, start, end in zip(*probe):
        asked = question.removeprefix("what is ").removesuffix(" ?")
        clause = next(part for part in context.split(" . ") if part.removesuffix(" .").endswith(asked))
        answer = " ".join(context.split()[start : end + 1])
        assert clause.startswith(answer + " ") and len(nouns(answer)) == 1
        assert nouns(clause)[0] == nouns(answer)[0]
    with pytest.raises(ValueError, match="expected 1 to 5"):
        toy.spans(1, 0, clauses=6)


def test_entities_are_valid_bio_and_need_context():
    probe = toy.entities(400, 3)
    of_word: dict[str, set[str]] = {}
    for text, tags in zip(*probe):
        words = text.split()
        assert len(words) == len(tags)
        for before, (word, tag) in zip(["O", *tags], zip(words, tags)):
            if tag.startswith("I-"):
                assert before.endswith(tag[1:])
            of_word.setdefault(word, set()).add(tag[2:])
    assert of_word["hill"] == of_word["stone"] == {"PER", "LOC"}
    assert of_word["dog"] == {""} and of_word["anna"] == {"PER"} and of_word["lund"] == {"LOC"}


@pytest.mark.parametrize("negatives", ["other", "same"])
def test_topic_pairs(negatives):
    pairs = toy.topic_pairs(200, 4, negatives)
    assert pairs.labels.sum() == 100
    for first, second, label in zip(*pairs):
        assert len(topic(first)) == len(topic(second)) == 1
        assert (topic(first) == topic(second)) == bool(label or negatives == "same")
        assert (nouns(first)[-1].removesuffix("s") == nouns(second)[0].removesuffix("s")) == bool(label)
    with pytest.raises(ValueError, match=r"negatives is 'none'"):
        toy.topic_pairs(2, 0, "none")


def test_paraphrases_say_the_same_of_the_same():
    pairs = toy.paraphrases(200, 5)
    assert len(set(pairs.first)) == 200 and pairs.labels.all()
    for first, second in zip(pairs.first, pairs.second):
        assert Counter(nouns(first)) == Counter(nouns(second))
        assert nouns(first)[-1] == nouns(second)[0] and " by " in second
        participle = next(word for word in first.split() if word in toy.PARTICIPLES)
        assert toy.PARTICIPLES[participle] in second.split()
        assert re.search(r" (is|are) ", second)[1] == number(nouns(second)[0])


def test_senses_come_in_blocks_that_differ_in_speaker_and_cue():
    probe = toy.senses(400, 6)
    rows = np.array([text.split() for text in probe.sentences])
    assert rows.shape == (400, 12)
    assert set(rows[:, toy.NOUN]) == set(toy.AMBIGUOUS)
    assert (np.isin(rows[:, toy.CUE], toy.LIVING_CUES) == probe.claims).all()
    assert ((rows[:, toy.SPEAKER] == "honest") == (probe.truths == probe.claims)).all()
    blocks = rows.reshape(100, 4, 12)
    same = (blocks == blocks[:, :1]).all(axis=(0, 1))
    assert np.flatnonzero(~same).tolist() == [toy.SPEAKER, toy.CUE]
    with pytest.raises(ValueError, match="multiple of 4"):
        toy.senses(6, 0)


def test_no_word_on_one_side_tells_the_truth():
    probe = toy.senses(400, 7)
    rows = np.array([text.split() for text in probe.sentences])
    for position in (toy.SPEAKER, toy.CUE):
        for word in set(rows[:, position]):
            assert probe.truths[rows[:, position] == word].mean() == 0.5
