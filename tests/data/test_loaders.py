"""Files of public sets, written here in each form, and the real ones where they are on disk."""

import gzip
import json
import os
from pathlib import Path

import pytest

from bertzoo.data import load, load_conll, load_squad, load_table

pytestmark = pytest.mark.once

REAL = Path(os.environ.get("BERTZOO_DATA") or Path(__file__).parents[3] / "shared" / "data")


def test_glue_tables_keep_quotation_marks_and_have_numbers(tmp_path):
    path = tmp_path / "train.tsv.gz"
    path.write_bytes(gzip.compress(b'label\tsentence1\tsentence2\n1\t"a" b\t"c"\n0\t"d\te"\n'))
    assert load_table(path) == {"label": [1, 0], "sentence1": ['"a" b', '"d'], "sentence2": ['"c"', 'e"']}
    (tmp_path / "a.csv").write_text('text,score\n"a, b",0.5\nc,2\n')
    assert load_table(tmp_path / "a.csv") == {"text": ["a, b", "c"], "score": [0.5, 2.0]}
    (tmp_path / "b.csv").write_text("text,label\na,pos\nc,1\n")
    assert load_table(tmp_path / "b.csv")["label"] == ["pos", "1"]


def test_parquet(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame({"text": ["a", "b"], "label": [0, 1]}).to_parquet(tmp_path / "a.parquet")
    assert load_table(tmp_path / "a.parquet") == {"text": ["a", "b"], "label": [0, 1]}


def test_conll(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("-DOCSTART- -X- O O\n\n# a comment\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\n. . O O\n")
    assert load_conll(path)["tags"][0] == ["B-ORG", "O"]
    assert load_conll(path, tag_column=1)["tags"] == [["NNP", "VBZ"], ["."]]
    (tmp_path / "b.conll").write_text("#\tO\nhash tag\tO\n")
    assert load_conll(tmp_path / "b.conll") == {"tokens": [["#", "hash tag"]], "tags": [["O", "O"]]}
    conllu = tmp_path / "c.conllu"
    conllu.write_text(
        "# text = du\n1-2\tdu\t_\t_\t_\n1\tde\tde\tADP\tx\n2\tle\tle\tDET\tx\n2.1\te\te\tX\tx\n\n", encoding="utf-8"
    )
    assert load_conll(conllu) == {"tokens": [["de", "le"]], "tags": [["ADP", "DET"]]}
    (tmp_path / "bad.conll").write_text("one O\ntwo\n")
    with pytest.raises(ValueError, match="line 2: 1 columns"):
        load_conll(tmp_path / "bad.conll")
    (tmp_path / "none.conll").write_text("\n")
    with pytest.raises(ValueError, match="no sentences"):
        load_conll(tmp_path / "none.conll")


def test_squad(tmp_path):
    answer = {"text": "b", "answer_start": 2}
    questions = [
        {"id": "1", "question": "q", "answers": [answer]},
        {"id": "2", "question": "r", "answers": [], "is_impossible": True, "plausible_answers": [answer]},
    ]
    content = {"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": "a b", "qas": questions}]}]}
    (tmp_path / "a.json").write_text(json.dumps(content))
    records = load_squad(tmp_path / "a.json")
    assert records[0] == {"id": "1", "title": "t", "question": "q", "context": "a b", "answers": [answer]}
    assert records[1]["answers"] == []
    (tmp_path / "b.json").write_text('{"data": [{}]}')
    with pytest.raises(ValueError, match="not a SQuAD file"):
        load_squad(tmp_path / "b.json")


def test_sets_by_name_from_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BERTZOO_DATA", str(tmp_path))
    (tmp_path / "custom").mkdir()
    (tmp_path / "custom" / "dev.conll").write_text("a O\n")
    assert load("custom", "dev") == {"tokens": [["a"]], "tags": [["O"]]}
    with pytest.raises(ValueError, match="has no train"):
        load("custom")
    with pytest.raises(ValueError, match="not one of the sets"):
        load("other")
    with pytest.raises(ValueError, match="split"):
        load("custom", "validation")


@pytest.mark.parametrize("name", ["..", ".", "", "../outside", "a/b", "a\\b", "custom/", "C:custom"])
def test_names_that_lead_elsewhere_are_refused(tmp_path, name):
    (tmp_path / "sets" / "custom").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "sets", tmp_path / "sets" / "custom"):
        (folder / "dev.conll").write_text("a O\n")
    with pytest.raises(ValueError, match="name must be that of a set or of a folder, not a path"):
        load(name, "dev", tmp_path / "sets")


def test_sets_by_name_through_datasets(monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.delenv("BERTZOO_DATA", raising=False)
    features = datasets.Features(
        {
            "tokens": datasets.Sequence(datasets.Value("string")),
            "ner_tags": datasets.Sequence(datasets.ClassLabel(names=["O", "B-X"])),
            "label": datasets.ClassLabel(names=["no", "yes"]),
        }
    )
    asked = []

    def load_dataset(path, config, split):
        asked.append((path, config, split))
        rows = {"tokens": [["a", "b"]], "ner_tags": [[0, 1]], "label": [1]}
        return datasets.Dataset.from_dict(rows, features=features)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert load("mnli", "dev")[0] == {"tokens": ["a", "b"], "ner_tags": ["O", "B-X"], "label": "yes"}
    assert asked == [("nyu-mll/glue", "mnli", "validation_matched")]


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="the public sets are not on disk")
def test_the_real_files(monkeypatch):
    monkeypatch.setenv("BERTZOO_DATA", str(REAL))
    mrpc = load("mrpc", "dev")
    assert len(mrpc["label"]) == 500 and set(mrpc["label"]) == {0, 1}
    assert all(0 <= score <= 5 for score in load("stsb", "test")["score"])
    assert [len(load("wnut17", split)["tokens"]) for split in ("train", "dev", "test")] == [3394, 1009, 1287]
    assert len(load("ewt_pos", "train")["tokens"]) == 12544
    records = load("squad", "dev")
    assert len(records) == 1339
    for record in records:
        for answer in record["answers"]:
            assert record["context"][answer["answer_start"] :].startswith(answer["text"])
