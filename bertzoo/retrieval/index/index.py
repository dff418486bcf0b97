"""An index: a directory of documents that are found by their vectors. It grows by segments."""

import math
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertzoo.checkpoints.files import expand_user
from bertzoo.retrieval.index.dense import Dense
from bertzoo.retrieval.index.documents import Documents, write_documents
from bertzoo.retrieval.index.field import Field, Found, Options
from bertzoo.retrieval.index.fusion import reciprocal_rank_fusion
from bertzoo.retrieval.index.manifest import (
    Manifest,
    Segment,
    check_is_empty,
    deletions_name,
    lock,
    open_consistently,
    publish,
    read_manifest,
    remove_leftovers,
    segment_name,
)
from bertzoo.retrieval.index.multi_vector import MultiVector
from bertzoo.retrieval.index.sparse import Sparse

FIELDS: dict[str, type[Field]] = {field.kind: field for field in (Dense, Sparse, MultiVector)}
QUERIES_AT_ONCE = 256
MERGE_COUNT = 8  # segments of similar size become one
SMALL = 1_000  # documents; segments below are of one size
_Place = tuple[int, int]  # of a document: its segment and row
FUSED = 100  # documents of each ranking, at least, when rankings are fused


class Hit(NamedTuple):
    """A document that was found: its id, its score and what was stored with it."""

    id: str
    score: float
    payload: Any


class _Opened(NamedTuple):
    """A segment with its open files. alive: bool (documents,); None where nothing is deleted."""

    segment: Segment
    documents: Documents
    parts: dict[str, Any]
    alive: np.ndarray | None


class Index:
    """Documents in a directory, found by their vectors.

        index = Index("articles", {"dense": Dense(384)})
        index.add(ids, {"dense": encoder.encode(texts)}, texts)
        hits = Index("articles").search({"dense": encoder.encode(questions)}, top_k=10)

    A change is there whole or, if its process is killed, not at all. Any number of processes may read, each the state
    that it opened; one writes at a time, others wait. Files are memory-mapped: opening an index reads none of them.

    Args:
        directory: The index; made where it does not exist.
        fields: Name -> `Dense`, `Sparse` or `MultiVector`: what to keep of each document. May be left out for an index
            that exists.

    Raises:
        FileNotFoundError: There is no index, and no fields are given.
        ValueError: A field's name can't be part of a file's, the index has other fields, its manifest is damaged, or
            the directory holds other files and no index.

    Example:
        >>> encoder = bz.SentenceEncoder.from_preset("sentence_mini_en", verbose=False)
        >>> texts = ["Cats sleep most of the day.", "Paris is the capital of France."]
        >>> index = bz.retrieval.Index("articles", {"dense": bz.retrieval.Dense(encoder.width)})
        >>> index.add(["cats", "paris"], {"dense": encoder.encode(texts)}, texts)
        >>> [hit.id for hit in index.search({"dense": encoder.encode(["Which city?"])}, top_k=1)[0]]
        ['paris']
    """

    def __init__(self, directory: str | Path, fields: Mapping[str, Field] | None = None):
        self.directory = expand_user(directory)
        described = {name: field.describe() for name, field in (fields or {}).items()}
        new = Manifest(described)
        if fields and read_manifest(self.directory) is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            check_is_empty(self.directory)
            with lock(self.directory):
                if read_manifest(self.directory) is None:
                    publish(self.directory, new)
        self._reopen()
        if fields and described != self._manifest.fields:
            raise ValueError(
                f"fields must be those of {self.directory}: {self._manifest.fields}. Received: {described}. "
                "Leave fields out, or name another directory."
            )

    def __len__(self) -> int:
        return sum(segment.documents - segment.deleted for segment in self._manifest.segments)

    @property
    def metadata(self) -> dict[str, Any]:
        """What `add` stored beside the documents."""
        return self._manifest.metadata

    # ---- reading

    def get(self, document_id: str) -> Any:
        """The payload of a document.

        Raises:
            KeyError: There is no such document.
        """
        for opened, rows in zip(self._opened, self._find([document_id])):
            if len(rows):
                return opened.documents[int(rows[0])][1]
        raise KeyError(document_id)

    def search(
        self, queries: Mapping[str, Any], top_k: int = 10, *, exact: bool = False, rescore_multiplier: int = 4
    ) -> list[list[Hit]]:
        """The best documents for each query.

        Args:
            queries: Name of a field -> queries, as the field takes them. The rankings of several fields are fused, see
                `reciprocal_rank_fusion`.
            top_k: How many documents to find for each query.
            exact: Compare with every document, in place of candidates from graphs.
            rescore_multiplier: `top_k` times so many candidates of each segment get exact scores.

        Returns:
            For each query a list, best first.

        Raises:
            ValueError: A field is unknown, queries are malformed or not equally many, or a number is not positive.
        """
        if min(top_k, rescore_multiplier) < 1:
            raise ValueError(f"top_k and rescore_multiplier must be positive. Received: {top_k}, {rescore_multiplier}.")
        unknown = set(queries) - set(self._fields)
        checked = {name: self._fields[name].check_queries(x) for name, x in queries.items() if not unknown}
        counts = {name: len(x) for name, x in checked.items()}
        if len(set(counts.values())) != 1:
            raise ValueError(
                f"queries must be equally many for one or more of the fields {', '.join(self._fields)}. "
                f"Received: {counts or list(queries)}."
            )
        depth = top_k if len(checked) == 1 else max(top_k, FUSED)
        options = Options(depth, exact, rescore_multiplier)
        rankings = [list(self._rank(name, x, options)) for name, x in checked.items()]
        return [self._hits(of_query, top_k) for of_query in zip(*rankings)]

    def _rank(self, name: str, queries: Sequence[Any], options: Options) -> Iterator[list[tuple[_Place, float]]]:
        """For each query documents and scores, best first."""
        for begin in range(0, len(queries), QUERIES_AT_ONCE):
            some = queries[begin : begin + QUERIES_AT_ONCE]
            found: list[list[Found]] = [
                opened.parts[name].search(some, opened.alive, options) for opened in self._opened
            ]
            for query in range(len(some)):
                met = [
                    (-float(score), segment, int(row))
                    for segment, results in enumerate(found)
                    for score, row in zip(*results[query])
                ]
                yield [((segment, row), -score) for score, segment, row in sorted(met)[: options.top_k]]

    def _hits(self, rankings: Sequence[list[tuple[_Place, float]]], top_k: int) -> list[Hit]:
        if len(rankings) == 1:
            best = rankings[0][:top_k]
        else:
            best = reciprocal_rank_fusion([[place for place, _ in ranking] for ranking in rankings], top_k)
        hits = []
        for (segment, row), score in best:
            document_id, payload = self._opened[segment].documents[row]
            hits.append(Hit(document_id, score, payload))
        return hits

    def parts(self, name: str) -> list[Any]:
        """The parts of a field, one for each segment."""
        return [opened.parts[name] for opened in self._opened]

    # ---- writing

    def add(
        self,
        ids: Sequence[str],
        values: Mapping[str, Any],
        payloads: Sequence[Any] | None = None,
        *,
        remove: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds documents, in place of those with the same ids: one change, with what is removed.

        Args:
            ids: A string for each document, all different.
            values: Name of each field -> the documents' values, as the field takes them.
            payloads: What to keep with each document and give with hits, such as its text: any JSON value.
            remove: Ids of documents to remove; unknown ids are left aside.
            metadata: A JSON object to keep beside the documents, in place of the index's.

        Raises:
            ValueError: Ids are not unique, values are missing or malformed, or lengths differ.
            TypeError: An id is no string, or a payload has no JSON form.
        """
        ids = list(ids)
        if wrong := [value for value in (*ids, *remove) if not isinstance(value, str)]:
            raise TypeError(f"ids must be strings. Received: {wrong[0]!r}.")
        payloads = [None] * len(ids) if payloads is None else payloads
        if len(set(ids)) < len(ids) or len(payloads) != len(ids) or (ids and set(values) != set(self._fields)):
            raise ValueError(
                f"ids must be different, with as many payloads and values for {', '.join(self._fields)}. Received: "
                f"{len(ids)} ids, {len(set(ids))} different, {len(payloads)} payloads, values for {', '.join(values)}."
            )
        checked = {name: self._fields[name].check(x, len(ids)) for name, x in values.items()} if ids else {}
        with self._writing():
            segments = self._mark_deleted([*ids, *remove])
            if ids:
                name = segment_name(self._manifest.changes)
                folder = self._new_folder(name)
                write_documents(folder, ids, payloads)
                for field, value in checked.items():
                    self._fields[field].write(folder, field, value)
                segments.append(Segment(name, len(ids)))
            kept = dict(self._manifest.metadata if metadata is None else metadata)
            self._publish(replace(self._manifest, segments=tuple(segments), metadata=kept))
            while chosen := _due(self._manifest.segments):
                self._merge(chosen)

    def delete(self, ids: Sequence[str]) -> None:
        """Removes documents; unknown ids are left aside."""
        self.add([], {}, remove=ids)

    def merge(self) -> None:
        """Makes all segments one, which is searched fastest."""
        with self._writing():
            if len(self._opened) > 1 or any(opened.alive is not None for opened in self._opened):
                self._merge(list(self._manifest.segments))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with lock(self.directory):
            self._reopen()
            try:
                yield
            finally:
                remove_leftovers(self.directory)

    def _merge(self, chosen: list[Segment]) -> None:
        opened = [one for one in self._opened if one.segment in chosen]
        rows = [np.arange(len(one.documents)) if one.alive is None else np.flatnonzero(one.alive) for one in opened]
        segments = [segment for segment in self._manifest.segments if segment not in chosen]
        if count := sum(map(len, rows)):
            name = segment_name(self._manifest.changes)
            folder = self._new_folder(name)
            documents = [one.documents[int(row)] for one, chosen_rows in zip(opened, rows) for row in chosen_rows]
            write_documents(folder, [document_id for document_id, _ in documents], [value for _, value in documents])
            for field in self._fields:
                self._fields[field].merge(folder, field, [(one.parts[field], r) for one, r in zip(opened, rows)])
            segments.append(Segment(name, count))
        self._publish(replace(self._manifest, segments=tuple(segments)))

    def _mark_deleted(self, ids: Sequence[str]) -> list[Segment]:
        """The segments, without the documents of some ids."""
        segments = []
        for opened, rows in zip(self._opened, self._find(ids)):
            segment = opened.segment
            if len(rows):
                alive = np.ones(segment.documents, bool) if opened.alive is None else opened.alive.copy()
                alive[rows] = False
                name = deletions_name(self._manifest.changes)
                np.save(self.directory / segment.name / name, ~alive)
                segment = replace(segment, deletions=name, deleted=int((~alive).sum()))
            segments.append(segment)
        return [segment for segment in segments if segment.deleted < segment.documents]

    def _find(self, ids: Sequence[str]) -> Iterator[np.ndarray]:
        """For each segment the rows of documents that are not deleted."""
        for opened in self._opened:
            rows = opened.documents.find(ids)
            rows = rows[rows >= 0]
            yield rows if opened.alive is None else rows[opened.alive[rows]]

    def _new_folder(self, name: str) -> Path:
        folder = self.directory / name
        shutil.rmtree(folder, ignore_errors=True)  # of a writer that was killed
        folder.mkdir()
        return folder

    def _publish(self, manifest: Manifest) -> None:
        publish(self.directory, manifest)
        self._reopen()

    def _reopen(self) -> None:
        self._manifest, self._opened = open_consistently(self.directory, self._open)

    def _open(self, manifest: Manifest) -> list[_Opened]:
        self._fields = {name: _field(described) for name, described in manifest.fields.items()}
        opened = []
        for segment in manifest.segments:
            folder = self.directory / segment.name
            try:
                parts = {name: field.open(folder, name) for name, field in self._fields.items()}
                alive = None if segment.deletions is None else ~np.load(folder / segment.deletions)
                opened.append(_Opened(segment, Documents(folder), parts, alive))
            except (EOFError, ValueError, zipfile.BadZipFile) as error:
                raise ValueError(
                    f"{folder} must be a segment of an index. Received: damaged files ({error}). Make the index again."
                ) from error
        return opened


def _field(described: Mapping[str, Any]) -> Field:
    """A field from its description.

    Raises:
        ValueError: Its kind is unknown, or an argument.
    """
    options = dict(described)
    kind = options.pop("kind", None)
    try:
        return FIELDS[kind](**options)
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"a field must be one of {', '.join(FIELDS)}, with its arguments. Received: {dict(described)}."
        ) from error


def _due(segments: Sequence[Segment]) -> list[Segment]:
    """Segments to merge: one of which most documents are deleted, or several of similar size."""
    tiers: dict[int, list[Segment]] = {}
    for segment in segments:
        if 2 * segment.deleted > segment.documents:
            return [segment]
        size = max(segment.documents - segment.deleted, SMALL) / SMALL
        tiers.setdefault(int(math.log(size, MERGE_COUNT)), []).append(segment)
    return next((tier for tier in tiers.values() if len(tier) >= MERGE_COUNT), [])
