"""The program on a toy corpus: what it saves, what it refuses."""

import json
import os
import re
import signal
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import tokenizers
import torch
import transformers

import bertzoo as bz
from bertzoo.models.flops import encoder_flops, masked_lm_head_flops
from bertzoo.models.registry import FAMILIES
from bertzoo.pretraining import program
from bertzoo.pretraining.config import PretrainConfig, TrainingConfig
from bertzoo.pretraining.corpus import TokenCorpus, prepare_corpus
from bertzoo.pretraining.corpus_dataset import CorpusDataset
from bertzoo.pretraining.objectives import OBJECTIVES, extend_tokenizer
from bertzoo.pretraining.program import _ProgressLogger, _Trainer, pretrain

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *"abcdefghijklmnop"]
ENCODER = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """120 documents in which each letter is followed by the next of the alphabet, as a rule."""
    directory, rng, documents = tmp_path_factory.mktemp("corpus"), np.random.default_rng(0), []
    for _ in range(120):
        letters = [WORDS[6 + (start + i) % 16] for start in rng.integers(0, 16, 6) for i in range(5)]
        documents.append(" ".join(letter + (" ." if i % 5 == 4 else "") for i, letter in enumerate(letters)))
    (directory / "corpus.txt").write_text("\n\n".join(documents))
    prepare_corpus([directory / "corpus.txt"], bz.Tokenizer.from_vocabulary(WORDS), directory / "shards")
    return directory / "shards"


@pytest.fixture
def write(tmp_path, backend):
    """TOML from what differs from a tiny run. Where steps are compiled, all batches have one shape."""
    short = "[[batches]]\nlength = 24\nbatch_size = 8\nshare = 3\n" if backend == "torch" else ""

    def toml(table):
        return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())

    def make(encoder=ENCODER, tables="", **training):
        training = {"steps": 4, "learning_rate": 1e-3, "verbose": 0, **training}
        path = tmp_path / "run.toml"
        batches = f"{short}[[batches]]\nlength = 48\nbatch_size = 4\n"
        path.write_text(f"[encoder]\n{toml(encoder)}[training]\n{toml(training)}{tables}{batches}")
        return path

    return make


ROBERTA = {**ENCODER, "model_type": "roberta", "max_position_embeddings": 64}
ALBERT = {**ENCODER, "model_type": "albert", "embedding_size": 8}
ELECTRA = {**ENCODER, "model_type": "electra", "embedding_size": 8}
CASES = [
    ("mlm", ENCODER, "BertForMaskedLM"),
    ("mlm+nsp", ENCODER, "BertForPreTraining"),
    ("mlm+sop", ALBERT, "AlbertForPreTraining"),
    ("mlm", ROBERTA, "RobertaForMaskedLM"),
    ("mlm", ELECTRA, "ElectraForMaskedLM"),
]
if keras.backend.backend() != "torch":  # each takes a compilation; what differs between them is no backend's matter
    CASES = CASES[1:2]


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "encoder", "architecture"), CASES)
def test_what_is_saved_is_the_model_that_transformers_loads(
    shards, write, tmp_path, objective, encoder, architecture, numpy, close, compiled
):
    result = pretrain(write(encoder, objective=objective), shards, tmp_path / "model", held_out_directory=shards)
    assert result["tokens"] == 4 * 48 * 4 if keras.backend.backend() != "torch" else 3 * 24 * 8 + 48 * 4
    assert json.loads((tmp_path / "model/training.json").read_text())
    hf_model, info = getattr(transformers, architecture).from_pretrained(tmp_path / "model", output_loading_info=True)
    assert hf_model.config.architectures == [architecture]
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    task_class = bz.MaskedLM if objective == "mlm" else bz.ForPreTraining
    task = task_class.from_preset(tmp_path / "model", verbose=False)
    texts = (["a b c d", "d e"],) if objective == "mlm" else (["a b c d", "d e"], ["e f . g", "h"])
    inputs = task.tokenizer(*texts)
    names = {"token_ids": "input_ids", "segment_ids": "token_type_ids", "padding_mask": "attention_mask"}
    with torch.no_grad():
        outputs = hf_model.eval()(**{names[key]: torch.tensor(value) for key, value in inputs.items()})
    got, real = numpy(compiled(task, task)(inputs)), inputs["padding_mask"].astype(bool)
    if objective == "mlm":
        assert "loss" in result["held_out"] and 0 <= result["held_out"]["masked_accuracy"] <= 1
        return close(got[real], outputs.logits[torch.tensor(real)])
    close(got["masked_lm"][real], outputs.prediction_logits[torch.tensor(real)])
    close(got["pair"], outputs.seq_relationship_logits if "nsp" in objective else outputs.sop_logits)
    held_out = result["held_out"]
    assert held_out["loss"] == pytest.approx(held_out["masked_lm_loss"] + held_out["pair_loss"], rel=1e-5)
    assert 0 <= held_out["pair_accuracy"] <= 1 and 0 <= held_out["masked_lm_masked_accuracy"] <= 1


def test_losses_are_true_means(shards, numpy, eager, compiled):
    """The sum over masked tokens by their number, and over rows by theirs, from the logits."""
    from bertzoo.pretraining.corpus import TokenCorpus
    from bertzoo.pretraining.corpus_dataset import BatchSpec, CorpusDataset, SentencePairSampler

    corpus = TokenCorpus.open(shards)
    config = bz.EncoderConfig(vocab_size=len(WORDS), **ENCODER)
    model = bz.ForPreTraining(bz.Encoder(config), corpus.tokenizer)
    model.compile(bz.AdamW(1e-3), run_eagerly=eager)
    data = CorpusDataset(
        SentencePairSampler(corpus, "nsp", short_seq_prob=0.5), [BatchSpec(48, 16)], model.mask_batch, num_batches=1
    )
    inputs, targets, weights = data[0]
    assert 0 < weights["masked_lm"].mean() < 1  # some rows have fewer
    scores = model.evaluate(data, verbose=0, return_dict=True)
    logits = {key: value.astype("float64") for key, value in numpy(compiled(model, model)(inputs)).items()}
    losses, hits = {}, {}
    for head, values in logits.items():
        log_probabilities = values - np.log(np.exp(values).sum(-1, keepdims=True))
        right = np.take_along_axis(log_probabilities, targets[head][..., None], axis=-1)[..., 0]
        losses[head] = -(right * weights[head]).sum() / weights[head].sum()
        hits[head] = ((values.argmax(-1) == targets[head]) * weights[head]).sum() / weights[head].sum()
    assert float(scores["loss"]) == pytest.approx(losses["masked_lm"] + losses["pair"], rel=1e-5)
    assert float(scores["masked_lm_masked_accuracy"]) == pytest.approx(hits["masked_lm"])
    assert float(scores["pair_accuracy"]) == pytest.approx(hits["pair"])
    model.fit(data, verbose=0)  # as any Keras model


@pytest.mark.slow
@pytest.mark.once  # both are fit on each backend in test_electra.py and test_distillation.py
def test_replaced_tokens_and_distillation(shards, write, tmp_path):
    result = pretrain(
        write(ELECTRA, "[generator]\nhidden = 0.5\n", objective="rtd"), shards, tmp_path / "electra", shards
    )
    assert {"loss", "masked_accuracy", "rtd_auc", "rtd_loss"} <= set(result["held_out"])
    for name, directory in (("ElectraForPreTraining", "electra"), ("ElectraForMaskedLM", "electra/generator")):
        _, info = getattr(transformers, name).from_pretrained(tmp_path / directory, output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"]
    config = bz.EncoderConfig(vocab_size=len(WORDS), **{**ENCODER, "num_hidden_layers": 2})
    teacher = bz.MaskedLM(bz.Encoder(config), TokenCorpus.open(shards).tokenizer)
    teacher.save_to_preset(tmp_path / "bert")
    table = f'[distillation]\nteacher = "{tmp_path / "bert"}"\nlayers = 1\n[masking]\nrarity = 0.7\n'
    result = pretrain(write({}, table, objective="distillation"), shards, tmp_path / "student", shards)
    assert {"soft_loss", "masked_lm_loss", "cosine_loss"} <= set(result["held_out"])
    student = transformers.DistilBertForMaskedLM.from_pretrained(tmp_path / "student")
    assert student.config.n_layers == 1


def arrays(directory):
    from safetensors.numpy import load_file

    return load_file(directory / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["mlm", "rtd"] if keras.backend.backend() == "torch" else ["mlm"])
def test_stopped_and_resumed_in_mid_epoch_it_is_the_run_that_was_not(
    shards, write, tmp_path, objective, monkeypatch, capsys
):
    """Asked to end at step 5 of 12, with blocks of 3: the same batches, curve and weights."""
    encoder = ELECTRA if objective == "rtd" else ENCODER
    config = write(encoder, objective=objective, steps=12, log_every=3, dropout=0.1, verbose=1)
    read, cut = [], CorpusDataset.__getitem__

    def reading(self, index):
        read.append(self.first_batch + index)
        return cut(self, index)

    whole = pretrain(config, shards, tmp_path / "whole", minutes_between_saves=0)
    printed = capsys.readouterr().out
    assert "step 6/12  loss" in printed and "tokens/s" in printed
    calls, act = [], _ProgressLogger.on_train_batch_end

    def terminating(self, batch, logs=None):
        calls.append(1)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.2)  # the handler runs in the main thread
        act(self, batch, logs)

    monkeypatch.setattr(_ProgressLogger, "on_train_batch_end", terminating)
    stopped = pretrain(config, shards, tmp_path / "cut", minutes_between_saves=0)
    assert stopped["stopped"] and stopped["steps"] < 12
    assert not (tmp_path / "cut" / "config.json").exists()
    monkeypatch.undo()
    with pytest.raises(ValueError, match="unfinished run: continue it"):
        pretrain(config, shards, tmp_path / "cut")
    monkeypatch.setattr(CorpusDataset, "__getitem__", reading)
    resumed = pretrain(config, shards, tmp_path / "cut", resume=True)
    assert sorted(set(read)) == list(range(stopped["steps"], 12))
    np.testing.assert_allclose(resumed["curve"], whole["curve"], atol=2e-4)
    assert len(whole["curve"]) == 4 and not (tmp_path / "cut" / "training_state").exists()
    expected = arrays(tmp_path / "whole")
    for name, value in arrays(tmp_path / "cut").items():
        np.testing.assert_allclose(value, expected[name], atol=1e-6)


@pytest.mark.slow
@pytest.mark.once  # the state is written and read as in the test above
def test_killed_it_goes_on_from_the_last_state(shards, write, tmp_path, monkeypatch):
    config = write(steps=9, log_every=3)
    whole = pretrain(config, shards, tmp_path / "whole", minutes_between_saves=0)
    block = _Trainer._train_block
    monkeypatch.setattr(_Trainer, "_train_block", lambda self, end: block(self, end) if self.step < 6 else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pretrain(config, shards, tmp_path / "cut", minutes_between_saves=0)
    monkeypatch.undo()
    resumed = pretrain(config, shards, tmp_path / "cut", resume=True)
    np.testing.assert_allclose(resumed["curve"], whole["curve"], atol=2e-4)
    with pytest.raises(ValueError, match="no state of an unfinished run"):
        pretrain(config, shards, tmp_path / "cut", resume=True)


@pytest.mark.once
def test_the_state_of_another_model_is_refused(shards, write, tmp_path, monkeypatch):
    monkeypatch.setattr(_Trainer, "result", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pretrain(write(steps=6, log_every=3), shards, tmp_path / "cut", minutes_between_saves=0)
    with pytest.raises(ValueError, match="state of another model"):
        pretrain(write({**ENCODER, "hidden_size": 32}, steps=6, log_every=3), shards, tmp_path / "cut", resume=True)


@pytest.mark.once
def test_continued_with_more_words(shards, write, tmp_path, numpy):
    """New words are tokens of their own, and begin as the mean of the pieces that they were."""
    pretrain(write(), shards, tmp_path / "first")
    first = bz.MaskedLM.from_preset(tmp_path / "first", verbose=False)
    tokenizer = extend_tokenizer(first.tokenizer, ["a-b", "c", "kk"])
    (tmp_path / "new.txt").write_text("\n\n".join(["a-b c d kk . a a-b b c ."] * 60))
    prepare_corpus([tmp_path / "new.txt"], tokenizer, tmp_path / "new")
    text = tokenizer.encode("a-b c").row(0)
    assert text.tolist() == [2, len(WORDS), WORDS.index("c"), 3]
    monkey = write({"from": str(tmp_path / "first")}, steps=1, learning_rate=1e-12, warmup=0.0)
    pretrain(monkey, tmp_path / "new", tmp_path / "second")
    second = bz.MaskedLM.from_preset(tmp_path / "second", verbose=False)
    old, new = (numpy(model.backbone.token_embedding_table()) for model in (first, second))
    np.testing.assert_allclose(new[: len(WORDS)], old, atol=1e-6)
    token_ids = first.tokenizer.encode("a-b").row(0)[1:-1]
    np.testing.assert_allclose(new[len(WORDS)], old[token_ids].mean(axis=0), atol=1e-6)
    hf_model = transformers.BertForMaskedLM.from_pretrained(tmp_path / "second")
    assert hf_model.config.vocab_size == len(WORDS) + 2
    other = bz.Tokenizer.from_vocabulary([*WORDS[:6], *reversed(WORDS[6:])])
    prepare_corpus([tmp_path / "new.txt"], other, tmp_path / "other")
    with pytest.raises(ValueError, match="must be tokenized with the vocabulary of"):
        pretrain(monkey, tmp_path / "other", tmp_path / "third")


@pytest.mark.once
def test_words_with_blanks_and_in_another_case():
    """Ids are those of transformers, which is given the words as they are after the tokenizer's normalisation."""
    tokenizer = bz.Tokenizer.from_vocabulary([*WORDS, "nasa", "new", "york"])
    larger = extend_tokenizer(tokenizer, ["NASA", "New York", "new york", " Kk ", "", "kk"])
    assert [larger.id_to_token(i) for i in range(tokenizer.vocabulary_size, larger.vocabulary_size)] == [
        "new york",
        "kk",
    ]
    hf_tokenizer = transformers.BertTokenizer(
        vocab={token: i for i, token in enumerate([*WORDS, "nasa", "new", "york"])}
    )
    hf_tokenizer.add_tokens([tokenizers.AddedToken(word, single_word=True) for word in ("new york", "kk")])
    for text in ("NEW YORK nasa", "a new york, KK kkk", "New yorks York"):
        assert larger.encode(text).row(0).tolist() == hf_tokenizer(text)["input_ids"]
    with pytest.raises(ValueError, match="white space other than single spaces"):
        extend_tokenizer(tokenizer, ["new  york"])


@pytest.mark.once
def test_spare_rows_of_a_table_become_those_of_new_words(tmp_path, numpy):
    from bertzoo.pretraining.objectives import load_task
    from bertzoo.tasks.added_tokens import add_tokens

    tokenizer = bz.Tokenizer.from_vocabulary(WORDS, max_length=16)
    config = FAMILIES["bert"].config_class(**{**ENCODER, "vocab_size": len(WORDS) + 4})
    first = bz.MaskedLM(bz.Encoder(config), tokenizer)
    first.save_to_preset(tmp_path)
    larger = extend_tokenizer(tokenizer, ["a-b", "kk"])
    table = numpy(first.backbone.token_embedding_table())
    expected = table[tokenizer.encode("a-b").row(0)[1:-1]].mean(axis=0)
    task = load_task(bz.MaskedLM, {"from": str(tmp_path)}, larger, first.masking, {})
    table_after = numpy(task.backbone.token_embedding_table())
    assert len(table_after) == len(WORDS) + 4 and task.tokenizer.vocabulary_size == len(WORDS) + 2
    np.testing.assert_allclose(table_after[len(WORDS)], expected, atol=1e-6)
    np.testing.assert_array_equal(table_after[: len(WORDS)], table[: len(WORDS)])
    encoder, marked = add_tokens(first.backbone, tokenizer, ["a-b c"])
    assert marked.encode("d a-b c").row(0).tolist()[1:-1] == [WORDS.index("d"), len(WORDS)]
    first_row = numpy(encoder.token_embedding_table())[len(WORDS)]
    token_ids = tokenizer.encode("a-b c").row(0)[1:-1]
    assert np.abs(first_row - table[token_ids].mean(axis=0)).max() <= 2 * config.initializer_range + 1e-6


RECIPES = sorted(path.stem for path in Path(program.__file__).with_name("recipes").glob("*.toml"))


@pytest.mark.once
@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_are_plans(shards, recipe):
    plan = PretrainConfig.read(recipe, TokenCorpus.open(shards))
    plan.training.make_optimizer()
    assert plan.training.objective in OBJECTIVES
    if plan.training.objective != "distillation":
        config = plan.make_encoder_config()
        plan.check_lengths(config)
        assert config.hidden_size in (128, 256, 768, 1024)


@pytest.mark.once
def test_published_sizes(shards):
    assert {"bert_base", "bert_large", "roberta_base", "albert_base", "distilbert", "electra_small"} < set(RECIPES)
    plan = PretrainConfig.read("electra_base", TokenCorpus.open(shards))
    assert round(plan.generator["hidden"] * plan.make_encoder_config().hidden_size) == 256


@pytest.mark.once
def test_flops_by_hand():
    """BERT-base has 85 million weights in its blocks: 2 operations for each and a token, and 4 L H for attention."""
    config = bz.EncoderConfig()
    per_token = encoder_flops(config, 512) / 512
    assert per_token == pytest.approx(2 * 12 * (4 * 768**2 + 2 * 768 * 3072) + 12 * 4 * 512 * 768)
    assert masked_lm_head_flops(config, 77) == 77 * 2 * (768**2 + 768 * 30522)


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "clm"}, "objective must be one of mlm, mlm+nsp, mlm+sop, rtd"),
        ({"encoder": {"model_type": "gpt2"}}, "model_type must be one of albert, bert"),
        ({"encoder": {"widht": 3}}, "'widht'"),
        ({"encoder": {"vocab_size": 4}}, "vocab_size must be at least 22, the corpus's vocabulary. Received: 4"),
        (
            {"encoder": {**ENCODER, "max_position_embeddings": 32}},
            "length must not exceed 32, the encoder's limit. Received: 48",
        ),
        ({"encoder": ROBERTA, "objective": "mlm+nsp"}, "Roberta has no head 'pair'"),
        ({"step": 3}, "[training] has no key step;"),
        ({"tables": "[masking]\nngram = 3\n"}, "[masking] has no key ngram"),
        ({"tables": "[optimizer]\n"}, "unknown tables: optimizer"),
        ({"tables": "[distillation]\n", "objective": "distillation"}, "needs teacher and layers"),
        ({"encoder": {"from": "x", "hidden_size": 3}}, "takes no other keys"),
        ({"steps": 0}, "steps, log_every and gradient_accumulation_steps must be 1 or more"),
        (
            {"gradient_accumulation_steps": 8},
            "no weight would change. Received: 8 and 4 steps",
        ),
        ({"learning_rate": 1e30, "warmup": 0.0, "global_clipnorm": 0.0, "steps": 8}, "lower the learning rate"),
    ],
)
def test_mistakes_are_named(shards, write, tmp_path, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        pretrain(write(**options), shards, tmp_path / "model")


@pytest.mark.once
def test_held_out_shards_are_looked_at_before_the_training(shards, write, tmp_path, monkeypatch):
    monkeypatch.setattr(_Trainer, "train", lambda self: pytest.fail("it was trained before"))
    (tmp_path / "one.txt").write_text("a b . c d .\nb c . d e ." * 10)
    tokenizer = TokenCorpus.open(shards).tokenizer
    prepare_corpus([tmp_path / "one.txt"], tokenizer, tmp_path / "one")
    other = bz.Tokenizer.from_vocabulary([*WORDS[:6], *reversed(WORDS[6:])])  # as many pieces
    prepare_corpus([tmp_path / "one.txt"], other, tmp_path / "other")
    with pytest.raises(ValueError, match="held-out corpus in .* must have the vocabulary of the training corpus"):
        pretrain(write(), shards, tmp_path / "model", held_out_directory=tmp_path / "other")
    with pytest.raises(ValueError, match="held-out corpus in .* can't be used: next-sentence prediction"):
        pretrain(write(objective="mlm+nsp"), shards, tmp_path / "model", held_out_directory=tmp_path / "one")


@pytest.mark.once
def test_the_model_is_saved_before_it_is_evaluated(shards, write, tmp_path, monkeypatch):
    monkeypatch.setattr(program, "_evaluate", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pretrain(write(), shards, tmp_path / "model", held_out_directory=shards)
    assert bz.MaskedLM.from_preset(tmp_path / "model", verbose=False)
    assert json.loads((tmp_path / "model/training.json").read_text())["steps"] == 4


@pytest.mark.once
def test_a_run_goes_on_with_its_own_settings_and_corpus_alone(shards, write, tmp_path, monkeypatch):
    monkeypatch.setattr(_Trainer, "result", lambda self: 1 / 0)
    config = write(steps=6, log_every=3)
    with pytest.raises(ZeroDivisionError):
        pretrain(config, shards, tmp_path / "cut", minutes_between_saves=0)
    monkeypatch.undo()
    prepare_corpus([[{"text": "a b c . d e f ." * 40}] * 3], TokenCorpus.open(shards).tokenizer, tmp_path / "other")
    with pytest.raises(ValueError, match="has other settings: tokens was .* documents was 120 and is 3"):
        pretrain(config, tmp_path / "other", tmp_path / "cut", resume=True)
    config.write_text(config.read_text().replace("batch_size = 4", "batch_size = 2"))
    with pytest.raises(ValueError, match=r"has other settings: batches was .*'batch_size': 4.* is .*'batch_size': 2"):
        pretrain(config, shards, tmp_path / "cut", resume=True)
    assert pretrain(write(steps=6, log_every=2), shards, tmp_path / "cut", resume=True)["steps"] == 6


def test_ctrl_c_saves_the_state(shards, write, tmp_path, monkeypatch):
    act = _ProgressLogger.on_train_batch_end

    def interrupting(self, batch, logs=None):
        if batch == 1:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
        act(self, batch, logs)

    monkeypatch.setattr(_ProgressLogger, "on_train_batch_end", interrupting)
    before = signal.getsignal(signal.SIGINT)  # a shell that starts the tests in the background has them ignore it
    stopped = pretrain(write(steps=9, log_every=3), shards, tmp_path / "cut", minutes_between_saves=0)
    assert stopped["stopped"] and 0 < stopped["steps"] < 9
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGINT) is before
    assert pretrain(write(steps=9, log_every=3), shards, tmp_path / "cut", resume=True)["steps"] == 9


@pytest.mark.once
def test_the_log_says_what_the_steps_read(shards, write, tmp_path, capsys):
    pretrain(write(verbose=1), shards, tmp_path / "model")
    tokens = len(TokenCorpus.open(shards).tokens)
    tokens_read = 4 * 48 * 4  # each backend's shapes hold as many tokens a step
    printed = capsys.readouterr().out
    assert "4 steps of examples sampled with replacement" in printed and tokens > tokens_read
    assert f"{tokens_read / tokens:.3g} × the corpus" in printed


@pytest.mark.once
def test_overlap_with_held_out_text(shards):
    from bertzoo.pretraining.corpus import ngram_overlap

    corpus = TokenCorpus.open(shards)
    half = len(corpus.tokens) // 2
    rng = np.random.default_rng(0)
    other = rng.integers(100, 60_000, half)  # tokens that the corpus does not have
    mixed = TokenCorpus(np.concatenate([corpus.tokens[:half], other]), corpus.documents, corpus.tokenizer)
    assert ngram_overlap(corpus, corpus) == 1.0
    assert ngram_overlap(corpus, mixed) == pytest.approx(0.5, abs=0.01)
    assert ngram_overlap(corpus, TokenCorpus(corpus.tokens[:5], corpus.documents[:1], corpus.tokenizer)) == 0.0


@pytest.mark.once
@pytest.mark.parametrize(("steps", "accumulate"), [(1, 1), (4, 4), (9, 4)])
def test_the_first_update_of_the_shortest_run_has_a_rate(steps, accumulate):
    optimizer = TrainingConfig(steps=steps, learning_rate=1e-3, gradient_accumulation_steps=accumulate).make_optimizer()
    assert float(optimizer.current_learning_rate) == pytest.approx(1e-3)
