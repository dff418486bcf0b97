"""The likeliest words for the masks of a text, from the logits at their tokens."""

from typing import NamedTuple

import numpy as np

from bertzoo.tasks.probabilities import softmax
from bertzoo.text.tokenizer import Tokenizer


class FilledMask(NamedTuple):
    """A token for a mask: its id, its text, its probability, and the text with the token in place."""

    token_id: int
    token: str
    score: float
    text: str


def best_tokens(logits: np.ndarray, candidate_ids: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """The ids and probabilities of the likeliest tokens, best first, (masks, top_k) each.

    Args:
        logits: float (masks, vocabulary).
        candidate_ids: The token ids that compete, int (candidates,).
        top_k: How many to give.
    """
    probabilities = softmax(logits)
    order = np.argsort(-probabilities[:, candidate_ids], axis=-1, kind="stable")[:, :top_k]
    ids = candidate_ids[order]
    return ids, np.take_along_axis(probabilities, ids, axis=-1)


def fill_masks(tokenizer: Tokenizer, text: str, ids: np.ndarray, scores: np.ndarray) -> list[list[FilledMask]]:
    """The tokens for each mask of a text.

    Args:
        tokenizer: The tokenizer.
        text: A text with as many masks.
        ids, scores: (masks, top_k) as of `best_tokens`.

    Raises:
        ValueError: The text has another number of masks.
    """
    mask = mask_token(tokenizer)
    between = text.split(mask)
    if len(between) - 1 != len(ids):
        raise ValueError(f"{len(ids)} tokens of {text!r:.60} are {mask}, which it holds {len(between) - 1} times.")
    answers = []
    for i, tokens in enumerate(ids.tolist()):
        left, right = mask.join(between[: i + 1]), mask.join(between[i + 1 :])
        answers.append(
            [
                FilledMask(index, token, float(score), filled)
                for index, score in zip(tokens, scores[i])
                for token, filled in [fill_token(tokenizer, left, index, right)]
            ]
        )
    return answers


def mask_token(tokenizer: Tokenizer) -> str:
    """The mask token.

    Raises:
        ValueError: The vocabulary has none.
    """
    if tokenizer.mask_id is None:
        raise ValueError("the vocabulary has no mask token.")
    return tokenizer.id_to_token(tokenizer.mask_id)


def target_ids(tokenizer: Tokenizer, targets: str | list[str]) -> np.ndarray:
    """The token ids of words, int (targets,).

    Raises:
        ValueError: There is no word, or one is not a single token.
    """
    ids = []
    targets = [targets] if isinstance(targets, str) else list(dict.fromkeys(targets))
    if not targets:
        raise ValueError("targets must hold a word or more; None lets the whole vocabulary compete.")
    for word in targets:
        tokens = [int(i) for i in tokenizer.encode(word).row(0) if int(i) not in tokenizer.special_ids]
        if len(tokens) != 1:
            raise ValueError(f"target {word!r} is {len(tokens)} tokens in this vocabulary; a target must be one.")
        ids.append(tokens[0])
    return np.array(ids)


def fill_token(tokenizer: Tokenizer, left: str, index: int, right: str) -> tuple[str, str]:
    """A token's text, and the text with the token between `left` and `right`, with the spaces that it implies.

    A token that continues a word (`##ing`; one without `Ġ` or `▁`) joins what is before it; one that begins a word is
    separated from a word before it. All other spaces are those of `left` and `right`.

    Raises:
        ValueError: The vocabulary has no such id.
    """
    once, twice = list(tokenizer.decode([[index], [index, index]], False))
    continuation = twice[len(once) :] if twice.startswith(once) else once
    token = continuation.strip() or continuation
    if not continuation[:1].isspace():
        return token, left.rstrip(" ") + token + right
    if tokenizer.id_to_token(index)[0] in "Ġ▁":  # the space is in the token
        return token, f"{left}{'' if not left or left[-1].isspace() else ' '}{token}{right}"
    return token, _join_words(tokenizer, _join_words(tokenizer, left, token), right)


def _join_words(tokenizer: Tokenizer, left: str, right: str) -> str:
    """Two texts side by side, with a space where they would be one word without it."""
    if not (left[-1:].isalnum() and right[:1].isalnum()):
        return left + right
    words = np.asarray(tokenizer.encode(left[-1] + right[0], return_offsets=True).word_ids)
    return left + right if len(set(words[words >= 0])) > 1 else f"{left} {right}"
