"""Distils a sentence encoder into a small one: `sentence_mini_en` was made by this command on a GPU.

    KERAS_BACKEND=jax python weights/distil_sentences.py CORPUS TEACHER OUT [--pieces 5_000_000] [--epochs 4]

CORPUS is a directory of `bertzoo prepare` with bert_mini_en's vocabulary, TEACHER a directory of sentence-transformers
with a lower-casing WordPiece vocabulary. Pieces of the corpus (sentences, passages of several, runs of words, and runs
of words as questions) are encoded by the teacher once. Its vectors are projected to the student's width onto their
first principal axes, which keeps the cosines, and the student, which starts as bert_mini_en, learns them (Reimers and
Gurevych 2020, "Making Monolingual Sentence Embeddings Multilingual using Knowledge Distillation", with one language).
OUT is a preset in float32; distillation.json beside it says what was done. `--pieces` and `--epochs` scale the run.
`bertzoo convert OUT DIR --store-int8` makes the form that is kept here.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import keras
import numpy as np

import bertzoo as bz
from bertzoo.backend import accelerator_name, keras_versions_text
from bertzoo.data.packed_batches import PackedDataset
from bertzoo.layers.heads import Normalize
from bertzoo.losses import EmbeddingDistillation
from bertzoo.pretraining.corpus import CorpusSentences, TokenCorpus
from bertzoo.text.encoded import Encoded, lengths_to_row_splits

LONGEST = 256  # tokens of a piece, as the teacher reads
PADDED_LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256)
PIECES_AT_ONCE = 500_000
SHARES = {"sentence": 0.45, "passage": 0.22, "words": 0.13, "question": 0.2}
OPENINGS = (
    "what is", "what was", "what are", "what did", "what does", "what type of", "what kind of", "what year did",
    "who is", "who was", "who did", "when did", "when was", "where is", "where was", "where did", "how many",
    "how much", "how did", "how is", "how long", "why did", "why is", "which", "in what year did", "in which",
    "name the", "how to",
)  # fmt: skip
Spans = tuple[np.ndarray, np.ndarray, np.ndarray]  # the first token, the one after the last, the number of an opening


class TwoVocabularies:
    """The words of a corpus as the student's tokens and as the teacher's.

    Args:
        corpus: The corpus, in the student's tokens.
        teacher: The teacher's tokenizer.
    """

    def __init__(self, corpus: TokenCorpus, teacher: bz.Tokenizer):
        self.student_tokens, self.student, self.teacher = corpus.tokens[:], corpus.tokenizer, teacher
        texts = [token for token, _ in sorted(self.student.vocabulary.items(), key=lambda item: item[1])]
        continues = np.array([text.startswith("##") for text in texts])
        self.word_starts = np.append(np.flatnonzero(~continues[self.student_tokens]), len(self.student_tokens))
        sizes = np.diff(self.word_starts)
        words = self.student_tokens[self.word_starts[:-1]].astype(np.int64)  # of one token: the token itself
        several = np.flatnonzero(sizes > 1)
        spelled: dict[bytes, int] = {}
        for word, start, size in zip(several, self.word_starts[several], sizes[several]):
            key = self.student_tokens[start : start + size].tobytes()
            words[word] = len(texts) + spelled.setdefault(key, len(spelled))
        for key in spelled:
            texts.append("".join(texts[i].removeprefix("##") for i in np.frombuffer(key, self.student_tokens.dtype)))
        special = set(self.student.special_ids)
        texts = ["" if index in special else text.removeprefix("##") for index, text in enumerate(texts)]
        table = teacher.encode(texts)
        begin, sizes = table.row_splits[:-1] + 1, table.lengths - 2  # without [CLS] and [SEP]
        self.teacher_splits = lengths_to_row_splits(sizes[words])
        self.teacher_tokens = np.empty(self.teacher_splits[-1], np.uint16)
        for first in range(0, len(words), 2**22):
            part = words[first : first + 2**22]
            tokens = table.token_ids[_ranges(begin[part], sizes[part])]
            self.teacher_tokens[self.teacher_splits[first] : self.teacher_splits[first + len(part)]] = tokens

    def encode(self, spans: Spans, for_teacher: bool) -> Encoded:
        """Rows [CLS] opening words (?) [SEP] of the student's or the teacher's tokens."""
        begins, ends, openings = spans
        tokenizer = self.teacher if for_teacher else self.student
        source = self.teacher_tokens if for_teacher else self.student_tokens
        if for_teacher:
            begins, ends = (self.teacher_splits[np.searchsorted(self.word_starts, x)] for x in (begins, ends))
        cls, sep, question = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]", "?"))
        encoded = tokenizer.encode(list(OPENINGS))
        prefixes = [np.array([cls], np.int32)]
        prefixes += [np.append(cls, encoded.row(index)[1:-1]) for index in range(len(OPENINGS))]
        table, splits = np.concatenate(prefixes), lengths_to_row_splits(np.array([len(row) for row in prefixes]))
        before, sizes, after = np.diff(splits)[openings], ends - begins, 1 + (openings > 0)
        room = LONGEST - before - after
        sizes = np.minimum(sizes, room)
        rows = lengths_to_row_splits(before + sizes + after)
        ids = np.full(rows[-1], sep, np.int32)
        ids[_ranges(rows[:-1], before)] = table[_ranges(splits[openings], before)]
        ids[_ranges(rows[:-1] + before, sizes)] = source[_ranges(begins, sizes)]
        ids[(rows[1:] - 2)[openings > 0]] = question
        return Encoded(ids, np.zeros(len(ids), np.int8), rows)


def _ranges(begins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The numbers begin, begin + 1, … of each range, end to end."""
    splits = lengths_to_row_splits(np.asarray(sizes))
    return np.repeat(begins - splits[:-1], sizes) + np.arange(splits[-1])


def sample_spans(corpus: TokenCorpus, word_starts: np.ndarray, count: int, rng: np.random.Generator) -> Spans:
    """Samples pieces of the corpus, which begin and end with whole words."""
    sentences = CorpusSentences(corpus, LONGEST - 2)
    starts, ends, bounds = sentences.starts, sentences.ends, sentences.bounds
    sampled = rng.integers(0, len(starts), count)
    kind = rng.choice(len(SHARES), count, p=list(SHARES.values()))
    begins, stops = starts[sampled].copy(), ends[sampled].copy()
    # Passages go on to the last sentence that fits into a random number of tokens.
    last = bounds[sentences.document_indices(sampled) + 1] - 1
    target = begins + rng.integers(24, LONGEST - 2, count)
    until = np.clip(np.searchsorted(ends, target, "right") - 1, sampled, last)
    stops = np.where(kind == 1, ends[until], stops)
    # Runs of words are 1 to 12 words long; of a question, 2 to 10.
    first = np.searchsorted(word_starts, begins)
    words = np.maximum(np.searchsorted(word_starts, stops) - first, 1)
    wanted = np.where(kind == 2, rng.integers(1, 13, count), rng.integers(2, 11, count))
    size = np.minimum(wanted, words)
    offset = (rng.random(count) * (words - size + 1)).astype(np.int64)
    is_run = kind >= 2
    begins = np.where(is_run, word_starts[first + offset], word_starts[first])
    stops = np.where(is_run, word_starts[first + offset + size], stops)
    stops = np.maximum(stops, begins + 1)
    stops = word_starts[np.searchsorted(word_starts, stops)]
    return begins, stops, np.where(kind == 3, rng.integers(1, len(OPENINGS) + 1, count), 0)


def teacher_vectors(teacher: bz.SentenceEncoder, encoded: Encoded) -> np.ndarray:
    """float32 (n, width), of length 1."""
    data = teacher.data.make_dataset(encoded, batch_size=1024, padded_lengths=np.array(PADDED_LENGTHS))
    vectors = data.unsort(teacher.predict_batches(data, verbose=0))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def chunks(spans: Spans) -> Iterator[Spans]:
    """The spans, some at once."""
    for first in range(0, len(spans[0]), PIECES_AT_ONCE):
        yield tuple(x[first : first + PIECES_AT_ONCE] for x in spans)


def targets(teacher: bz.SentenceEncoder, both: TwoVocabularies, spans: Spans, width: int) -> np.ndarray:
    """The teacher's vectors, float16 (n, width), projected onto the axes that keep most of their dot products."""
    result, axes = np.empty((len(spans[0]), width), np.float16), None
    for number, chunk in enumerate(chunks(spans)):
        vectors = teacher_vectors(teacher, both.encode(chunk, for_teacher=True))
        if axes is None:
            axes = np.linalg.eigh(vectors.T @ vectors)[1][:, ::-1][:, :width]
            print(f"{width} axes keep {np.square(vectors @ axes).sum() / len(vectors):.1%} of the vectors", flush=True)
        vectors = vectors @ axes
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        result[number * PIECES_AT_ONCE :][: len(vectors)] = vectors
    return result


def distil(
    student: bz.SentenceEncoder, encoded: Encoded, vectors: np.ndarray, options: argparse.Namespace
) -> list[float]:
    """Trains the student; returns the mean loss (1 - cosine) of each epoch."""

    def with_vectors(inputs: dict, rows: Sequence[int], rng: np.random.Generator) -> tuple:
        return inputs, vectors[rows].astype("float32")

    data = PackedDataset(encoded, batch_size=options.batch_size, seed=options.seed, transform=with_vectors)
    optimizer = bz.AdamW(options.rate, warmup=0.03, weight_decay=0.01, beta_2=0.98)
    optimizer.set_total_steps(options.epochs * len(data))
    student.compile(optimizer, EmbeddingDistillation("cosine"), metrics=[])
    begin = [data.initial_epoch_callback(0)]
    history = student.fit(data, epochs=options.epochs, shuffle=False, verbose=2, callbacks=begin)
    return [float(loss) for loss in history.history["loss"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("corpus", "teacher", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--pieces", type=int, default=5_000_000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--student", default="bert_mini_en")
    options = parser.parse_args()
    started = time.time()

    def say(what: str) -> None:
        print(f"{time.time() - started:6.0f} s  {what}", flush=True)

    bz.set_seed(options.seed)
    keras.config.set_dtype_policy("mixed_bfloat16" if accelerator_name() else "float32")
    corpus = TokenCorpus.open(options.corpus)
    teacher = bz.SentenceEncoder.from_preset(options.teacher, verbose=False)
    both = TwoVocabularies(corpus, teacher.tokenizer)
    say(f"{len(both.student_tokens):,} tokens, of the teacher's {len(both.teacher_tokens):,}")
    spans = sample_spans(corpus, both.word_starts, options.pieces, np.random.default_rng(options.seed))
    encoder = bz.Encoder.from_preset(options.student, pooler=False, verbose=False, dropout=0.0)
    student = bz.SentenceEncoder(encoder, corpus.tokenizer, "mean", [Normalize(dtype="float32")])
    vectors = targets(teacher, both, spans, student.width)
    say(f"{len(vectors):,} pieces encoded by the teacher")
    parts = [both.encode(chunk, for_teacher=False) for chunk in chunks(spans)]
    encoded = Encoded.concatenate(parts)
    say(f"{len(encoded.token_ids):,} tokens in the pieces")
    trained = time.time()
    losses = distil(student, encoded, vectors, options)
    say(f"losses {losses}")
    student.tokenizer.max_length = LONGEST
    student.save_to_preset(options.out)
    settings = ("pieces", "epochs", "batch_size", "rate", "seed", "student")
    record = {
        "teacher": options.teacher.name,
        **{name: getattr(options, name) for name in settings},
        "losses": losses,
        "tokens": options.epochs * len(encoded.token_ids),
        "seconds_of_training": round(time.time() - trained, 1),
        "seconds": round(time.time() - started, 1),
        "device": accelerator_name() or "CPU",
        "versions": keras_versions_text(),
        "date": time.strftime("%Y-%m-%d"),
    }
    (options.out / "distillation.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
