"""Entities, answers and words for masks from a served model, as the tasks give them."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import numpy as np

from bertzoo.export.crf import best_sequence
from bertzoo.serving.errors import RequestError, invalid
from bertzoo.serving.model import MASK_LOGITS, ServedModel, Tally, Truncation, check_characters, split_into_chunks
from bertzoo.tasks.answers.entities import best_labels, find_labelled_spans
from bertzoo.tasks.answers.masked_words import FilledMask, best_tokens, fill_masks, mask_token, target_ids
from bertzoo.tasks.answers.spans import find_candidates, rank_answers
from bertzoo.text.encoded import Encoded
from bertzoo.text.tags import detect_tag_scheme
from bertzoo.text.windows import Windows, cut_windows
from bertzoo.text.word_alignment import align_words, find_word_spans

CANDIDATES, MAX_ANSWER_LENGTH = 20, 30  # as `QuestionAnswerer.answer`


async def tag(model: ServedModel, texts: Sequence[str], tally: Tally) -> list[list[dict[str, Any]]]:
    """The entities of texts of any length, as `TokenClassifier.tag`."""
    labels, settings = model.settings["labels"], model.settings
    scheme, table = detect_tag_scheme(labels), settings.get("crf")
    transitions = None if table is None else np.array(table)

    def cut(chunk: slice) -> tuple[Encoded, tuple[slice, Windows]]:
        windows = _cut(model, texts[chunk])
        return windows.rows, (chunk, windows)

    def read(chunk: slice, windows: Windows, outputs: list[np.ndarray]) -> list[list[dict[str, Any]]]:
        found = []
        for i, (text, logits) in enumerate(zip(texts[chunk], windows.join_outputs(outputs))):
            alignment = align_words(windows.text_offsets(i), find_word_spans(text))
            if transitions is None:
                ids, scores = best_labels(logits, alignment, settings["label_all_tokens"])
            else:
                ids, scores = best_sequence(logits[alignment.tokens[:, 0]], transitions)
            found.append(find_labelled_spans(text, alignment, [labels[i] for i in ids], scores, scheme))
        return found

    entities = []
    async with aclosing(model.stream(split_into_chunks(texts), cut, "logits", tally)) as stream:
        async for (chunk, windows), outputs in stream:
            entities += await model.in_pool(read, chunk, windows, outputs)
    return entities


async def answer(
    model: ServedModel, questions: Sequence[str], contexts: Sequence[str], top_k: int, max_length: int, tally: Tally
) -> list[list[dict[str, Any]]]:
    """For each question its best answers from a text of any length, as `QuestionAnswerer.answer`."""
    settings = model.settings

    def cut(chunk: slice) -> tuple[Encoded, tuple[slice, Windows]]:
        options = {"stride": settings["stride"], "max_query_length": settings["max_query_length"]}
        windows = _cut(model, contexts[chunk], questions[chunk], **options)
        return windows.rows, (chunk, windows)

    def read(chunk: slice, windows: Windows, outputs: list[np.ndarray]) -> list[list[dict[str, Any]]]:
        texts = contexts[chunk]
        candidates = find_candidates(windows, outputs, texts, max(top_k, CANDIDATES), max_length)
        ranked = [rank_answers(*entry, settings["no_answer_threshold"]) for entry in zip(candidates, texts)]
        return [row[:top_k] for row in ranked]

    answers = []
    async with aclosing(model.stream(split_into_chunks(contexts, questions), cut, "logits", tally)) as stream:
        async for (chunk, windows), outputs in stream:
            answers += await model.in_pool(read, chunk, windows, outputs)
    return answers


def _cut(model: ServedModel, texts: Sequence[str], questions: Sequence[str] | None = None, **options: Any) -> Windows:
    for text in (*texts, *(questions or ())):
        check_characters(text)
    try:
        return cut_windows(model.tokenizer, texts, questions, **options)
    except ValueError as error:
        raise RequestError("Tokenizer", str(error)) from None


async def fill_mask(
    model: ServedModel, texts: Sequence[str], targets: list[str] | None, top_k: int, tally: Tally
) -> list[list[list[FilledMask]]]:
    """For each text, and each mask in it, the likeliest words, as `MaskedLM.fill_mask`."""
    tokenizer = model.tokenizer
    try:
        mask = mask_token(tokenizer)
        ids = np.arange(tokenizer.vocabulary_size) if targets is None else target_ids(tokenizer, targets)
    except ValueError as error:
        raise RequestError("Tokenizer", str(error)) from None
    for text in texts:
        if mask not in text:
            raise invalid(f"each text must hold the mask token {mask}. Received: {text!r:.60}.")

    def encode(chunk: slice) -> tuple[Encoded, slice]:
        return model.encode(texts[chunk], None, Truncation(False)), chunk

    def read(row: np.ndarray, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # At once: a long request would hold the vocabulary for each mask.
        return best_tokens(logits, ids, top_k)

    def fill(chunk: slice, outputs: list) -> list[list[list[FilledMask]]]:
        return [fill_masks(tokenizer, text, *best) for text, best in zip(texts[chunk], outputs)]

    filled = []
    async with aclosing(model.stream(split_into_chunks(texts), encode, MASK_LOGITS, tally, read)) as stream:
        async for chunk, outputs in stream:
            filled += await model.in_pool(fill, chunk, outputs)
    return filled
