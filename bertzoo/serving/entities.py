"""Entities of any label from a served model, as `EntityFinder.tag` gives them."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import numpy as np

from bertzoo.serving.errors import RequestError
from bertzoo.serving.model import ServedModel, Tally, check_characters, split_into_chunks
from bertzoo.tasks.answers.any_entities import Candidate, answer_of_text, find_candidates, select_entities
from bertzoo.text.encoded import Encoded
from bertzoo.text.label_prompts import (
    LabelPrompts,
    Prompt,
    WordWindow,
    cut_word_windows,
    encode_with_roles,
    find_prompted_words,
    num_special_tokens,
    row_places,
)

Row = tuple[WordWindow, Prompt]


async def tag(
    model: ServedModel, texts: Sequence[str], labels: Sequence[str], threshold: float, nested: bool, tally: Tally
) -> list[list[dict[str, Any]]]:
    """The entities of texts of any length that have one of some labels, as `EntityFinder.tag`.

    Characters of which the tokenizer makes nothing are no words here, since rows are tokens alone.

    Raises:
        RequestError: A label can't be read, or a text is too long.
    """
    settings, of_spans = model.settings, model.settings["span_mode"] == "markerV0"
    pieces = await model.in_pool(_pieces, model, labels)
    words = await model.in_pool(_words, model, texts)
    full = [i for i, spans in enumerate(words) if len(spans)]
    longest = max(len(piece.token_ids) for piece in pieces)

    def cut(chunk: slice) -> tuple[Encoded, list[Row]]:
        taken = full[chunk]
        sentences = [[texts[i][a:b] for a, b in words[i]] for i in taken]
        lengths, reads_last = np.full(len(taken), longest), settings["subtoken_pooling"] == "last"
        try:
            windows = cut_word_windows(model.tokenizer, sentences, lengths, settings["max_len"], reads_last)
        except ValueError as error:
            raise RequestError("Tokenizer", str(error)) from None
        rows = [(window, piece) for window in windows for piece in pieces]
        return encode_with_roles(model.tokenizer, rows), rows

    def read(rows: list[Row], outputs: list[np.ndarray]) -> list[list[Candidate]]:
        found: list[list[Candidate]] = []
        for row, logits in zip(rows, outputs):
            window, prompt = row
            while len(found) <= window.text:
                found.append([])
            logits = logits[row_places(model.tokenizer, *row)]
            found[window.text] += find_candidates(logits, window, prompt, threshold, of_spans)
        return found

    def answer(i: int, found: list[Candidate]) -> list[dict[str, Any]]:
        found.sort(key=lambda one: one.sort_key(of_spans))
        return answer_of_text(texts[i], words[i], labels, select_entities(found, nested))

    candidates: list[list[Candidate]] = []
    async with aclosing(model.stream(split_into_chunks([texts[i] for i in full]), cut, "logits", tally)) as stream:
        async for rows, outputs in stream:
            candidates += await model.in_pool(read, rows, outputs)
    answers: list[list[dict[str, Any]]] = [[] for _ in texts]
    for i, found in zip(full, candidates):
        answers[i] = await model.in_pool(answer, i, found)
    return answers


def _pieces(model: ServedModel, labels: Sequence[str]) -> list[Prompt]:
    settings, tokenizer = model.settings, model.tokenizer
    try:
        prompts = LabelPrompts(
            tokenizer, labels, settings["ent_token"], settings["sep_token"], settings["embed_ent_token"]
        )
        return prompts.pieces(settings["max_types"], (model.max_length - num_special_tokens(tokenizer)) // 2)
    except ValueError as error:
        raise RequestError("Validation", str(error)) from None


def _words(model: ServedModel, texts: Sequence[str]) -> list[np.ndarray]:
    """The words of each text that have tokens, int (words, 2)."""
    for text in texts:
        check_characters(text)
    found = [find_prompted_words(text) for text in texts]
    try:
        encoded = model.tokenizer.encode_words([[text[a:b] for a, b in spans] for text, spans in zip(texts, found)])
    except ValueError as error:
        raise RequestError("Tokenizer", str(error)) from None
    assert encoded.word_ids is not None  # as `encode_words` says
    splits = encoded.row_splits
    return [spans[np.unique(encoded.word_ids[splits[i] : splits[i + 1]])] for i, spans in enumerate(found)]
