"""Cleans raw web pages and texts with datatrove, for `bertzoo prepare`.

    pip install "datatrove[processing]" spacy orjson py3langid lxml_html_clean
    python clean_corpus.py RAW WORK
    bertzoo prepare WORK/clean/*.jsonl.gz --out corpus

RAW holds .html (a document each), .txt (blank lines between documents) and .jsonl files (the key `text`), also as .gz.
Each stage is an executor; with `SlurmPipelineExecutor` or `RayPipelineExecutor` of datatrove in place of the local one,
its tasks run on several machines.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import py3langid
import trafilatura  # noqa: F401  (where it can't be imported, datatrove drops every page as too slow)
from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.extractors import Trafilatura
from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter, LambdaFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.readers.base import BaseDiskReader
from datatrove.pipeline.writers import JsonlWriter

TASKS, WORKERS = 4, 2
MINHASH = MinhashConfig(num_buckets=14, hashes_per_bucket=8, seed=1)


class TextReader(BaseDiskReader):
    """Documents of text files, with blank lines between them; of a web page, the whole file."""

    name = "Texts"

    def read_file(self, filepath: str) -> Iterator[Document]:
        with self.data_folder.open(filepath, "r", compression="infer", encoding="utf-8") as file:
            content = file.read()
        texts = [content] if filepath.endswith(".html") else content.split("\n\n")
        for number, text in enumerate(texts):
            document = self.get_document_from_dict({"text": text}, filepath, number)
            if document:
                yield document


def is_english(document: Document) -> bool:
    """By the model of 97 languages that py3langid holds; `LanguageFilter` of datatrove downloads a larger one."""
    return py3langid.classify(document.text)[0] == "en"


def clean(raw: str, work: str) -> dict[str, int]:
    """Filters and deduplicates; returns how many documents came in, went out, and were removed by each rule."""

    def run(stage: str, pipeline: list, tasks: int = TASKS) -> list[dict]:
        executor = LocalPipelineExecutor(pipeline, tasks=tasks, workers=WORKERS, logging_dir=f"{work}/logs/{stage}")
        executor.run()
        return json.loads(Path(work, "logs", stage, "stats.json").read_text())

    def removed(rule: str) -> JsonlWriter:
        return JsonlWriter(f"{work}/removed/{rule}")

    filters = {
        "language": LambdaFilter(is_english, exclusion_writer=removed("language")),
        "repetition": GopherRepetitionFilter(exclusion_writer=removed("repetition")),
        "quality": GopherQualityFilter(exclusion_writer=removed("quality")),
    }
    readers = [
        TextReader(raw, glob_pattern="*.html"),
        Trafilatura(timeout=10),  # of what is read so far; seconds a page
        TextReader(raw, glob_pattern="*.txt*"),
        JsonlReader(raw, glob_pattern="*.jsonl*"),
    ]
    filtered = run("filter", [*readers, *filters.values(), JsonlWriter(f"{work}/filtered")])
    signatures, buckets, duplicates = (f"{work}/minhash/{name}" for name in ("signatures", "buckets", "duplicates"))
    run("signatures", [JsonlReader(f"{work}/filtered"), MinhashDedupSignature(signatures, MINHASH)])
    run("buckets", [MinhashDedupBuckets(signatures, buckets, config=MINHASH)], tasks=MINHASH.num_buckets)
    run("cluster", [MinhashDedupCluster(buckets, duplicates, config=MINHASH)], tasks=1)
    keep = MinhashDedupFilter(duplicates, exclusion_writer=removed("duplicate"))
    kept = run("deduplicate", [JsonlReader(f"{work}/filtered"), keep, JsonlWriter(f"{work}/clean")])
    return summarize(filtered, kept, list(filters))


def summarize(filtered: list[dict], kept: list[dict], rules: list[str]) -> dict[str, int]:
    """Counts from the statistics of the two stages, one entry for each step."""

    def count(step: dict, name: str) -> int:
        value = step["stats"].get(name, 0)
        return int(value["total"] if isinstance(value, dict) else value)

    pages, steps = filtered[1], filtered[4:-1]
    counts = {"in": count(steps[0], "total") + count(pages, "total") - count(pages, "forwarded")}
    counts["removed: no text in the page"] = count(pages, "total") - count(pages, "forwarded")
    for rule, step in zip(rules, steps):
        reasons = {name: count(step, name) for name in step["stats"] if name.startswith("dropped_")}
        counts |= {f"removed: {rule}, {name.removeprefix('dropped_')}": n for name, n in sorted(reasons.items())}
        if not reasons:
            counts[f"removed: {rule}"] = count(step, "dropped")
    counts["removed: duplicate"] = count(kept[1], "dropped")
    return {**counts, "out": count(kept[1], "forwarded")}


if __name__ == "__main__":
    for name, number in clean(*sys.argv[1:]).items():
        print(f"{number:>10,}  {name}")
