"""What tests of TextClassifier share: texts of one length, and how to read what was trained on."""

# All of eight tokens, so that nearly all tests share one shape: on JAX each new one is compiled, operation by
# operation.
GOOD, BAD = "a good film, very bright", "the plot was dull and bad"

TEXTS = [
    GOOD,
    BAD,
    "great story with a good actor",
    "poor actor, slow and bad",
    "we saw a great film again",
    "it was bad and never good",
    "good friends and a bright film",
    "dull plot, not very good",
] * 2

NAMES = ["pos", "neg"] * 8

IDS = [1, 0] * 8

# Two words and three, so that a pair is as long.
WORDS = [text.replace(",", "").split() for text in TEXTS]

FIRSTS, SECONDS = [" ".join(words[:2]) for words in WORDS], [" ".join(words[-3:]) for words in WORDS]


def rows_of(model, texts, pairs=None):
    encoded = model.tokenizer.encode(texts, pairs)
    return [tuple(encoded.row(i).tolist()) for i in range(len(encoded))]


def pairs_in(seen):
    """What was trained on, order aside."""
    return sorted((row, target) for rows, targets, *_ in seen for row, target in zip(rows, targets))
