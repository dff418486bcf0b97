"""Search on a CPU: the recall, size and speed of an index, and the quality of kinds of search.

    KERAS_BACKEND=… python tests/benchmarks/run.py index MODEL --data DIRECTORY [--count 1000000] [--only PART]

MODEL is the directory of a sentence encoder. PART is one of

- vectors: static vectors of MODEL (all its dimensions) for sentences of the corpus and pieces of them, `--count` in
  all, in an index; beside it usearch alone and sentence-transformers' semantic_search. 1,000 queries are other pieces.
- squad: every third question to the paragraphs of SQuAD's dev articles, by MODEL's vectors in several precisions, its
  token vectors, words (BM25), words and vectors fused, and static vectors.
- static: sentences a second of static vectors.

Every measurement has a process of its own. Memory is the most that it had resident, mapped files included. Of a query,
the milliseconds are those of one alone, and in brackets of one in a batch of all.
"""

import json
import re
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from benchmarks.common import PASSES, add_data_argument, command_line, read_data, run_in_process, use_data

QUERIES, TOP_K = 1_000, 10
SINGLE = 100  # queries that are timed one by one
FORMS = {  # name -> precision, graph precision, rescore multiplier
    "float16 + graph in int8": ("float16", "int8", 4),
    "float16 + graph in bits": ("float16", "binary", 20),
    "int8 + graph in int8": ("int8", "int8", 4),
}


def pieces(count: int) -> list[str]:
    """Different sentences of the corpus, then pieces of 4 to 12 words of them."""
    sentences = re.split(r"(?<=[.!?])\s+|\n+", read_data("corpus", "simplewiki_sample.txt.gz"))
    found = dict.fromkeys(sentence for sentence in sentences if len(sentence.split()) > 2)
    rng = np.random.default_rng(0)
    words = [sentence.split() for sentence in found]
    while len(found) < count:
        for sentence in words:
            length = int(rng.integers(4, 13))
            begin = int(rng.integers(0, max(1, len(sentence) - length)))
            found[" ".join(sentence[begin : begin + length])] = None
    texts = list(found)
    rng.shuffle(texts)
    return texts[:count]


def memory() -> float:
    """The most memory that this process had resident, in GB."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 2**20


def size_of(path: Path) -> float:
    """MB."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e6


def timed(search, queries) -> tuple[list, str]:
    """The answers of all queries, and the milliseconds of a query."""
    search(queries[:1])
    begun = time.perf_counter()
    for i in range(SINGLE):
        search(queries[i : i + 1])
    single = (time.perf_counter() - begun) / SINGLE
    begun = time.perf_counter()
    found = search(queries)
    return found, f"{1000 * single:.2f} ({1000 * (time.perf_counter() - begun) / len(queries):.2f})"


def child(argument: dict) -> dict:
    """One measurement."""
    return globals()[f"measure_{argument['part']}"](**{key: x for key, x in argument.items() if key != "part"})


# ---- a million vectors


def measure_texts(model: str, folder: str, count: int) -> dict:
    import bertzoo as bz

    encoder = bz.SentenceEncoder.from_preset(model, verbose=False)
    static = encoder.to_static(width=encoder.width)
    texts = pieces(count + QUERIES)
    path = Path(folder, "vectors.npy")
    vectors = np.lib.format.open_memmap(path, "w+", np.float32, (count + QUERIES, static.width))
    for begin in range(0, len(texts), 50_000):
        vectors[begin : begin + 50_000] = static.encode(texts[begin : begin + 50_000])
    return {"width": static.width}


def vectors_of(folder: str) -> tuple[np.ndarray, np.ndarray]:
    vectors = np.load(Path(folder, "vectors.npy"), mmap_mode="r")
    return vectors[:-QUERIES], np.array(vectors[-QUERIES:])


def measure_build(folder: str, form: str) -> dict:
    from bertzoo.retrieval import Dense, Index

    corpus, _ = vectors_of(folder)
    precision, graph_precision, _ = FORMS[form]
    field = Dense(corpus.shape[1], precision=precision, graph_precision=graph_precision)
    begun = time.perf_counter(), time.process_time()
    Index(Path(folder, "index"), {"v": field}).add([str(i) for i in range(len(corpus))], {"v": corpus})
    taken = time.perf_counter() - begun[0], time.process_time() - begun[1]
    return {"build s": taken[0], "build CPU s": taken[1], "MB": size_of(Path(folder, "index")), "build GB": memory()}


def measure_search(folder: str, form: str, exact: bool) -> dict:
    from bertzoo.retrieval import Index

    _, queries = vectors_of(folder)
    begun = time.perf_counter()
    index = Index(Path(folder, "index"))
    opened = time.perf_counter() - begun
    multiplier = FORMS[form][2]
    hits, milliseconds = timed(
        lambda x: index.search({"v": x}, TOP_K, exact=exact, rescore_multiplier=multiplier), queries
    )
    found = [[int(hit.id) for hit in row] for row in hits]
    return {"open ms": 1000 * opened, "ms": milliseconds, "GB": memory(), "recall": recall(folder, found)}


def recall(folder: str, found: list) -> float:
    """The mean share of the exact best that were found."""
    exact = json.loads(Path(folder, "exact.json").read_text())
    return float(np.mean([len(set(a) & set(b)) / TOP_K for a, b in zip(found, exact)]))


def measure_sentence_transformers(folder: str) -> dict:
    """Exact search in float32, which the recall of the others refers to."""
    import torch
    from sentence_transformers.util import dot_score, normalize_embeddings, semantic_search

    corpus, queries = (normalize_embeddings(torch.tensor(np.array(x))) for x in vectors_of(folder))
    hits, milliseconds = timed(lambda x: semantic_search(x, corpus, top_k=TOP_K, score_function=dot_score), queries)
    found = [[hit["corpus_id"] for hit in row] for row in hits]
    Path(folder, "exact.json").write_text(json.dumps(found))
    return {"ms": milliseconds, "GB": memory(), "MB": corpus.numel() * 4 / 1e6, "recall": 1.0}


def measure_usearch(folder: str, dtype: str) -> dict:
    from usearch.index import Index

    corpus, queries = vectors_of(folder)
    begun = time.perf_counter()
    index = Index(ndim=corpus.shape[1], metric="cos", dtype=dtype)
    for begin in range(0, len(corpus), 50_000):
        index.add(np.arange(begin, min(begin + 50_000, len(corpus))), np.array(corpus[begin : begin + 50_000]))
    taken, path = time.perf_counter() - begun, Path(folder, "usearch")
    index.save(str(path))
    found, milliseconds = timed(lambda x: np.atleast_2d(index.search(x, TOP_K).keys).astype(int).tolist(), queries)
    numbers = {"build s": taken, "ms": milliseconds, "GB": memory(), "MB": path.stat().st_size / 1e6}
    return {**numbers, "recall": recall(folder, found)}


def run_vectors(model: str, folder: str, count: int) -> None:
    def show(name: str, result: dict | float | str) -> None:
        shown = result if not isinstance(result, dict) else {
            key: round(x, 3) if isinstance(x, float) else x for key, x in result.items()
        }  # fmt: skip
        print(f"{name}: {shown}", flush=True)

    show("vectors", run_in_process("index", {"part": "texts", "model": model, "folder": folder, "count": count}, {}))
    exact = run_in_process("index", {"part": "sentence_transformers", "folder": folder}, {})
    show("sentence-transformers, exact, float32", exact)
    for form in FORMS:
        show(form, run_in_process("index", {"part": "build", "folder": folder, "form": form}, {}))
        for is_exact in (False, True) if form == next(iter(FORMS)) else (False,):
            argument = {"part": "search", "folder": folder, "form": form, "exact": is_exact}
            show(f"{form}{', exact' * is_exact}", run_in_process("index", argument, {}))
        shutil.rmtree(Path(folder, "index"))
    for dtype in ("f16", "i8"):
        show(f"usearch, {dtype}", run_in_process("index", {"part": "usearch", "folder": folder, "dtype": dtype}, {}))


# ---- SQuAD


def measure_squad(model: str) -> dict:
    """nDCG@10 and MRR@10 of questions, MB of the index without texts, milliseconds of a query."""
    from bertzoo.retrieval import Index

    articles = json.loads(read_data("squad", "dev.json"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    asked = [(qa["question"], str(i)) for i, paragraph in enumerate(paragraphs) for qa in paragraph["qas"]][::3]
    questions, right = zip(*asked)
    contexts, results = [paragraph["context"] for paragraph in paragraphs], {}
    fields = squad_fields(model, contexts, list(questions))
    fused = [fields["vectors, float16"], fields["words (BM25)"]]
    for name, parts in {**{name: [field] for name, field in fields.items()}, "vectors and words, fused": fused}.items():
        with tempfile.TemporaryDirectory() as place:
            index = Index(place, {str(i): field for i, (field, _, _) in enumerate(parts)})
            index.add([str(i) for i in range(len(contexts))], {str(i): x for i, (_, x, _) in enumerate(parts)})
            size = sum(x.stat().st_size for i in range(len(parts)) for x in Path(place).rglob(f"segment_*/{i}.*")) / 1e6
            queries = list(zip(*(q for _, _, q in parts)))

            def search(some: list, index: Index = index) -> list:
                return index.search({str(i): list(column) for i, column in enumerate(zip(*some))}, TOP_K)

            hits, milliseconds = timed(search, queries)
            results[name] = {**quality(hits, right), "MB": round(size, 2), "ms": milliseconds}
    return {"questions": len(questions), "paragraphs": len(contexts), **results}


def squad_fields(model: str, contexts: list[str], questions: list[str]) -> dict:
    """Name -> a field, the values of the contexts, and those of the questions."""
    import bertzoo as bz
    from bertzoo.export.onnx_files import build_engine
    from bertzoo.retrieval import Dense, MultiVector, Sparse
    from bertzoo.retrieval.bm25 import document_terms, query_terms

    encoder = bz.SentenceEncoder.from_preset(model, verbose=False)
    engine, static = build_engine(encoder, int8=True), encoder.to_static()
    terms = [document_terms(context, 120.0) for context in contexts]
    frequencies = Counter(i for document in terms for i in document.ids.tolist())

    def embed(rows: list[str]) -> np.ndarray:
        return engine.run(engine.tokenizer.encode(rows), ["sentence_embedding"])["sentence_embedding"]

    def embed_tokens(rows: list[str]) -> list[np.ndarray]:
        encoded = engine.tokenizer.encode(rows)
        vectors = engine.run(encoded, ["token_embeddings"])["token_embeddings"]
        kept = [row[1 : length - 1] for row, length in zip(vectors, encoded.lengths)]
        return [row / np.linalg.norm(row, axis=1, keepdims=True) for row in kept]

    def count(ids: np.ndarray) -> np.ndarray:
        return np.array([frequencies[i] for i in ids.tolist()])

    dense, tokens = (embed(contexts), embed(questions)), (embed_tokens(contexts), embed_tokens(questions))
    words = terms, [query_terms(question, len(contexts), count) for question in questions]
    forms, token_forms = ("float32", "float16", "int8", "binary"), ("int8", "residual2")
    return {
        **{f"vectors, {form}": (Dense(encoder.width, precision=form), *dense) for form in forms},
        "static vectors": (Dense(static.width), static.encode(contexts), static.encode(questions)),
        "words (BM25)": (Sparse(), *words),
        **{f"token vectors, {form}": (MultiVector(encoder.width, form), *tokens) for form in token_forms},
    }


def quality(hits: list, right: tuple) -> dict:
    ranks = [next((i for i, hit in enumerate(row) if hit.id == answer), None) for row, answer in zip(hits, right)]
    return {
        "nDCG@10": round(float(np.mean([0 if rank is None else 1 / np.log2(rank + 2) for rank in ranks])), 4),
        "MRR@10": round(float(np.mean([0 if rank is None else 1 / (rank + 1) for rank in ranks])), 4),
    }


# ---- static vectors


def measure_static(model: str) -> dict:
    """Sentences a second beside model2vec's, with the same files, and Spearman's correlation on STS-B's test pairs."""
    from scipy.stats import spearmanr

    import bertzoo as bz

    encoder = bz.SentenceEncoder.from_preset(model, verbose=False)
    rows = [line.split("\t") for line in read_data("stsb", "test.tsv").splitlines()[1:]]
    score, left, right = zip(*[(float(row[-3]), row[-2], row[-1]) for row in rows])
    texts = [line.split("\t")[0] for line in read_data("sst2", "train.tsv.gz").splitlines()[1:]]
    with tempfile.TemporaryDirectory() as folder:
        encoder.to_static().save_to_preset(folder)
        static = bz.StaticEncoder.from_preset(folder)
        peers = {"bertzoo": static.encode}
        try:
            from model2vec import StaticModel

            peers["model2vec"] = StaticModel.from_pretrained(folder).encode
        except ImportError:
            pass
    best: dict[str, list] = {name: [] for name in peers}
    for _ in range(PASSES + 1):
        for name, encode in peers.items():
            begun = time.perf_counter(), time.process_time()
            encode(texts)
            best[name].append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    similarity = (static.encode(list(left)) * static.encode(list(right))).sum(axis=1)
    speeds = {f"{name}, sentences/s": [round(len(texts) / min(x)) for x in zip(*taken)] for name, taken in best.items()}
    return {**speeds, "Spearman, STS-B": round(100 * float(spearmanr(similarity, score).statistic), 2)}


def main(arguments: list[str]) -> None:
    parser = command_line("index", __doc__)
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--only", choices=("vectors", "squad", "static"))
    add_data_argument(parser)
    options = parser.parse_args(arguments)
    use_data(options)
    for part in ("static", "squad"):
        if options.only in (None, part):
            result = run_in_process("index", {"part": part, "model": options.model}, {})
            for name, value in result.items() if isinstance(result, dict) else [(part, result)]:
                print(f"{name}: {value}", flush=True)
    if options.only in (None, "vectors"):
        with tempfile.TemporaryDirectory() as folder:
            run_vectors(options.model, folder, options.count)
