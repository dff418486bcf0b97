"""Pre-training on other languages than English, and on what is no language, by the same commands."""

from pathlib import Path

import numpy as np
import pytest
import regex

from bertzoo.pretraining import corpus as corpus_module
from bertzoo.pretraining.corpus import CorpusSentences, _sentence_end_ids, prepare_corpus
from bertzoo.pretraining.corpus_dataset import BatchSpec, ElectraSampler, FullSentenceSampler, SentencePairSampler
from bertzoo.pretraining.program import pretrain
from bertzoo.text.vocabulary import train_byte_bpe, train_unigram, train_wordpiece

LETTERS = {
    "Chinese": [chr(c) for c in range(0x4E00, 0x4E00 + 3000)],
    "Hindi": list("अआइईउऊएकखगघचजटडणतदनपफबभमयरलवशसह"),
    "Arabic": list("ابتثجحخدذرزسشصضطظعغفقكلمنهوي"),
    "codes": list("ACGT"),
}
ENDS = {"Chinese": "。", "Hindi": " ।", "Arabic": "؟", "codes": ""}


def corpus(language: str, documents: int = 12, words: int = 900) -> list[str]:
    """Long documents of random words, a sentence of 8 to 20 words where the language has marks for it."""
    rng, texts = np.random.default_rng(0), []
    for _ in range(documents):
        text, left = [], 0
        for _ in range(words):
            size = 6 if language == "codes" else int(rng.integers(1, 5))
            text.append("".join(rng.choice(LETTERS[language], size)))
            left = left - 1 if left else int(rng.integers(8, 20))
            if left == 0:
                text[-1] += ENDS[language]
        texts.append(("" if language == "Chinese" else " ").join(text))
    return texts


@pytest.fixture(scope="module", params=[pytest.param("Chinese", marks=pytest.mark.slow), "Hindi", "Arabic", "codes"])
def shards(request, tmp_path_factory):
    texts = corpus(request.param)
    tokenizer = train_wordpiece(texts, 5000, progress=False)
    return prepare_corpus(
        [[{"text": text} for text in texts]], tokenizer, tmp_path_factory.mktemp(request.param) / "shards"
    )


@pytest.mark.once
def test_rows_reach_all_of_the_corpus(shards):
    sentences = CorpusSentences(shards)
    reached = np.zeros(len(shards.tokens), bool)
    for start in sentences.starts:
        reached[start : start + 126] = True
    separators = shards.documents[1:] - 1
    assert np.delete(reached, separators).all()
    inside = np.searchsorted(shards.documents, sentences.starts, "right")
    assert (np.searchsorted(shards.documents, sentences.ends - 1, "right") == inside).all()
    assert (sentences.ends - sentences.starts).max() <= 126 and (sentences.ends > sentences.starts).all()
    pairs = [SentencePairSampler(shards, kind) for kind in ("nsp", "sop")]
    for sampler in (FullSentenceSampler(shards), ElectraSampler(shards), *pairs):
        batch = sampler(BatchSpec(128, 64), np.random.default_rng(0))
        assert (batch["lengths"] == 128).mean() > 0.6


@pytest.mark.slow
@pytest.mark.once
def test_the_program_runs_on_them(shards, tmp_path):
    (tmp_path / "run.toml").write_text(
        "[encoder]\nhidden_size = 8\nnum_hidden_layers = 1\nnum_attention_heads = 2\nintermediate_size = 8\n"
        '[training]\nsteps = 2\nlearning_rate = 1e-3\nverbose = 0\nobjective = "mlm+nsp"\n'
        "[[batches]]\nlength = 32\nbatch_size = 4\n"
    )
    directory = Path(shards.tokens.filename).parent
    result = pretrain(tmp_path / "run.toml", directory, tmp_path / "model", held_out_directory=directory)
    assert result["steps"] == 2 and np.isfinite(result["held_out"]["loss"]) and result["held_out"]["overlap"] == 1.0


@pytest.mark.once
def test_marks_of_any_script_end_a_sentence():
    """Of each kind of tokenizer; compared with Unicode's property, by a list written by hand."""
    marks = list(".?!。！？।॥؟۔።။։")
    text = " ".join(["ab cd 中文 कख"] * 3 + marks * 3)
    for train in (train_wordpiece, train_byte_bpe, train_unigram):
        tokenizer = train([text] * 3, 700)
        ends = {tokenizer.decode([i]).strip() for i in _sentence_end_ids(tokenizer)}
        assert ends and all(regex.fullmatch(r"[.?!。！？।॥؟۔።။։]+", end) for end in ends)
        if train is train_wordpiece:  # which has each mark as a token
            assert set(marks) == ends


@pytest.mark.slow
@pytest.mark.once
def test_a_vocabulary_keeps_the_characters_of_a_script_that_has_many():
    texts = corpus("Chinese", 12, 1500)
    tokenizer = train_wordpiece(texts, 21_128, progress=False)
    ids = tokenizer.encode(texts).token_ids
    assert (ids == tokenizer.unk_id).mean() < 0.001  # 3,000 characters, of which 1,000 were kept
    fewer = train_wordpiece(texts, 21_128, progress=False, alphabet_size=100)
    assert fewer.vocabulary_size < 400 < tokenizer.vocabulary_size
    assert (fewer.encode(texts).token_ids == fewer.unk_id).mean() > 0.5


@pytest.mark.once
def test_long_documents_are_cut_at_lines_without_a_trace(tmp_path, monkeypatch):
    lines = [f"a bc {i} d." for i in range(300)]
    texts = ["\n".join(lines), "short", "\n".join(lines[:50])]
    for train in (train_wordpiece, train_byte_bpe):
        tokenizer = train(texts, 400)
        whole = prepare_corpus([[{"text": text} for text in texts]], tokenizer, tmp_path / "whole")
        monkeypatch.setattr(corpus_module, "CHARACTERS_AT_ONCE", 40)
        cut = prepare_corpus([[{"text": text} for text in texts]], tokenizer, tmp_path / "cut")
        monkeypatch.undo()
        np.testing.assert_array_equal(cut.tokens, whole.tokens)
        np.testing.assert_array_equal(cut.documents, whole.documents)
