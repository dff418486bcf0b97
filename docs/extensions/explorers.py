"""Writes the explorers: each the frame `explorers/page.html` with a body, and data from the library."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from sphinx.application import Sphinx

import bertzoo as bz
from bertzoo.data.packing import assign_rows
from bertzoo.text.masking import Masking

FOLDER = Path(__file__).resolve().parents[1] / "explorers"

SENTENCES = [
    "The doctor asked the nurse to help her.",
    "She poured the water into the glass until it was full.",
    "She poured the water into the glass until it was empty.",
    "The keys to the cabinet are on the table.",
    "The dog that chased the cats was barking.",
    "Paris is the capital of France.",
    "He sat on the bank of the river.",
    "He took his money to the bank.",
    "The old man the boat.",
    "I saw the man with the telescope.",
    "The trophy does not fit in the suitcase because it is too big.",
    "The trophy does not fit in the suitcase because it is too small.",
    "Anna gave Peter the book that she had read.",
    "The chef who won the prize cooked dinner for us.",
    "It rained, so the match was cancelled.",
    "Neither the teacher nor the students were late.",
    "They made him president of the club.",
    "The film was long, but not boring.",
    "An unbelievable number of people came.",
    "What you see is what you get.",
]
STRATEGIES = {
    "single tokens": {},
    "whole words": {"whole_word_mask": True},
    "up to three words": {"whole_word_mask": True, "max_ngram": 3},
}
SHARES = (0.15, 0.3, 0.5)
DRAWS = 30
LABELS = ["O", "B", "I"]
WORDS = ["Anna", "Berg", "met", "Ben", "today"]
EMISSIONS = [[0.5, 2.0, 1.0], [1.5, 0.5, 1.3], [2.0, 0.5, 0.5], [0.8, 1.0, 1.5], [2.0, 0.2, 0.4]]


def masking_data(tokenizer: bz.Tokenizer) -> dict[str, Any]:
    texts = [
        f"{SENTENCES[0]} {SENTENCES[4]}",
        f"{SENTENCES[18]} {SENTENCES[13]}",
        f"{SENTENCES[10]} {SENTENCES[3]}",
    ]
    return {"texts": [_masked(tokenizer, text) for text in texts], "strategies": list(STRATEGIES), "shares": SHARES}


def _masked(tokenizer: bz.Tokenizer, text: str) -> dict[str, Any]:
    inputs = tokenizer([text])
    tokens = [tokenizer.id_to_token(int(i)) for i in inputs["token_ids"][0]]

    def draw(options: dict[str, Any], share: float, seed: int) -> list[list]:
        masking = Masking.for_tokenizer(tokenizer, mlm_probability=share, **options)
        masked, labels, weights = masking(inputs, np.random.default_rng(seed))
        found = []
        for place, label, weight in zip(masked["mask_positions"][0], labels[0], weights[0]):
            if weight:
                shown = int(masked["token_ids"][0, place])
                kind = 0 if shown == tokenizer.mask_id else 2 if shown == label else 1
                found.append([int(place), kind, tokenizer.id_to_token(shown)])
        return found

    draws = [
        [[draw(options, share, seed) for seed in range(DRAWS)] for share in SHARES] for options in STRATEGIES.values()
    ]
    return {"tokens": tokens, "draws": draws}


def packing_data(tokenizer: bz.Tokenizer) -> dict[str, Any]:
    reviews, _ = bz.data.load_reviews("train")
    batches = []
    for size in (8, 16, 32):
        # One to three reviews each, so that lengths differ as those of sentences and paragraphs do.
        texts = [" ".join(reviews[3 * i : 3 * i + 1 + i % 3]) for i in range(size)]
        lengths = tokenizer.encode(texts).lengths
        packed = [{"length": length, "rows": assign_rows(lengths, length)} for length in (64, 96, 128)]
        batches.append({"texts": texts, "lengths": lengths.tolist(), "packed": packed})
    return {"batches": batches}


def pages() -> dict[str, str]:
    """File name -> HTML."""
    model = bz.MaskedLM.from_preset("bert_mini_en", verbose=False)
    tokenizer = model.tokenizer
    made = {"attention.html": bz.analysis.attention_html(bz.analysis.attention_maps(model, SENTENCES))}
    for name, title, data in (
        ("masking", "Masking", masking_data(tokenizer)),
        ("wordpiece", "WordPiece, step by step", {"vocabulary": list(tokenizer.vocabulary)}),
        ("crf", "The lattice of a CRF", {"words": WORDS, "labels": LABELS, "emissions": EMISSIONS}),
        ("packing", "A batch, padded and packed", packing_data(tokenizer)),
    ):
        parts = {"title": title, "data": json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")}
        parts["body"] = (FOLDER / f"{name}.html").read_text("utf-8")
        page = (FOLDER / "page.html").read_text("utf-8")
        for part, text in parts.items():
            page = page.replace(f"{{{{{part}}}}}", text)
        made[f"{name}.html"] = page
    return made


def write(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        for name, page in pages().items():
            Path(app.outdir, "explorers", name).write_text(page, "utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", write)
    return {"parallel_read_safe": True}
