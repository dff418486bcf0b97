"""Models and texts that several tests of tasks share; texts of every kind, for what must hold whatever comes."""

import json

import keras
import numpy as np
import pytest

import bertzoo as bz

# fmt: off
_PARTS = [
    "the", "film", "Paris", "Rome", "New-York", "U.S.A.", "don't", "naïve", "e\u0301t\u0301", "ﬁne", "İstanbul",
    "日本語", "東京都に行く", "漢字、。「」", "สวัสดีชาวโลก", "नमस्ते", "한국어", "😀", "👩\u200d👩\u200d👧", "🇩🇪", "👍🏽",
    "\u200b", "a\u200bb", "\u00ad", "soft\u00adhyphen", "\ufeff", "\x00", "\x07", "...", "?!", "(U.S.-based),",
    "“quotes”", "C++/C#", "3.14e-10", "http://x.org/?q=1", "#tag", "@you", "[MASK]", "[CLS]", "##", "##s",
    "antidisestablishmentarianism", "\u0301", "\u0301a", "Straße", "ß", "ſ", "½", "∑", "$1,234.56", "x-y_z",
    "שָׁלוֹם", "مَرْحَبًا",
]
# fmt: on
_SPACES = [" ", " ", " ", "  ", "\n", "\t", "\u00a0", "\u3000", "\u2028", ""]


@pytest.fixture(scope="session")
def random_texts() -> list[str]:
    """1,000 texts: words, scripts, emoji, control characters, in all lengths from none to several windows."""
    rng = np.random.default_rng(0)
    texts = ["", " ", "\n\n", "\u0301", "x" * 500]
    while len(texts) < 1000:
        words = int(rng.choice([1, 3, 8, 20, 60], p=[0.2, 0.3, 0.3, 0.17, 0.03]))
        text = "".join(str(rng.choice(_PARTS)) + str(rng.choice(_SPACES)) for _ in range(words))
        if rng.random() < 0.2:  # any characters at all
            text += "".join(chr(c) for c in rng.integers(1, 0x2FFFF, 6) if not 0xD800 <= c < 0xE000)
        texts.append(text)
    return texts


@pytest.fixture(scope="session")
def plain_texts() -> list[str]:
    """Texts to train tokenizers on, which thus do not know every character of the others."""
    rng = np.random.default_rng(1)
    return [" ".join(rng.choice(_PARTS, 12)) for _ in range(300)]


@pytest.fixture
def make_task(checkpoint, eager):
    """A task of one encoder without dropout."""

    def make(task, optimizer=None, compiled=True, **options):
        compile_options = options.pop("compile", {})
        model = task.from_preset(checkpoint[0], verbose=False, dropout=0.0, **options)
        if compiled:
            model.compile(optimizer or keras.optimizers.SGD(1.0), run_eagerly=eager, **compile_options)
        return model

    return make


@pytest.fixture(scope="module")
def classifier_preset(write_checkpoint):
    return write_checkpoint(initializer_range=0.05, num_hidden_layers=1)[0]


@pytest.fixture
def make_classifier(classifier_preset):
    def make(compiled: bool = True, eager: bool = True, **options):
        options = {"labels": ["neg", "pos"], **options}
        model = bz.TextClassifier.from_preset(classifier_preset, verbose=False, dropout=0.0, **options)
        if compiled:
            model.compile(bz.AdamW(1e-2, warmup=0.0, schedule="constant"), run_eagerly=eager)
        return model

    return make


@pytest.fixture
def seen_batches(monkeypatch):
    """The batches that reach a model's training step, in order: (token ids as tuples, targets)."""
    batches = []
    original = bz.TextClassifier.compute_loss

    def record(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if training:
            ids, mask = (keras.ops.convert_to_numpy(x[name]) for name in ("token_ids", "padding_mask"))
            rows = [tuple(row[m > 0].tolist()) for row, m in zip(ids, mask)]
            weight = None if sample_weight is None else keras.ops.convert_to_numpy(sample_weight).tolist()
            batches.append((rows, keras.ops.convert_to_numpy(y).tolist(), weight, ids.shape[1]))
        return original(self, x, y, y_pred, sample_weight, training)

    monkeypatch.setattr(bz.TextClassifier, "compute_loss", record)
    return batches


@pytest.fixture(scope="module")
def st():
    library = pytest.importorskip("sentence_transformers")
    library.models = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    return library


@pytest.fixture(scope="module")
def plain(write_checkpoint):
    return write_checkpoint(num_hidden_layers=1)[0]


@pytest.fixture(scope="module")
def masked_lm(write_checkpoint):
    return write_checkpoint("BertForMaskedLM", num_hidden_layers=1)[0]


@pytest.fixture(scope="module")
def sparse():
    return pytest.importorskip("sentence_transformers.sparse_encoder.modules")


@pytest.fixture(scope="module")
def make_sparse_st(st, sparse, masked_lm, words, tmp_path_factory):
    """A form of directory -> (one that sentence-transformers wrote, its model)."""
    import torch

    def make(form, **options):
        transformer = sparse.Transformer(str(masked_lm), transformer_task="fill-mask", max_seq_length=32)
        pooling = sparse.SpladePooling("sum", "log1p_relu") if form == "sum" else sparse.SpladePooling()
        modules = [transformer, pooling]
        if form == "router":
            torch.manual_seed(0)
            weights = torch.rand(len(words))
            weights[7] = 0
            static = sparse.SparseStaticEmbedding(transformer.tokenizer, weights, frozen=True)
            modules = [sparse.Router.for_query_document(query_modules=[static], document_modules=modules)]
        model = st.SparseEncoder(modules=modules, device="cpu", **options)
        directory = tmp_path_factory.mktemp(form)
        model.save(str(directory))
        if form == "old":
            parts = json.loads((directory / "modules.json").read_text())
            parts[0]["type"] = "sentence_transformers.sparse_encoder.models.MLMTransformer"
            parts[1]["type"] = "sentence_transformers.sparse_encoder.models.SpladePooling"
            (directory / "modules.json").write_text(json.dumps(parts))
            (directory / "sentence_bert_config.json").write_text('{"max_seq_length": 32, "do_lower_case": false}')
            config = {"pooling_strategy": "max", "activation_function": "relu", "word_embedding_dimension": None}
            (directory / "1_SpladePooling/config.json").write_text(json.dumps(config))
        return directory, model

    return make
