"""The presets that this project trained: what their model cards say."""

import json

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.checkpoints.files import bundled_root
from bertzoo.data import cloze

MINI = bundled_root() / "bert_mini_en"


@pytest.fixture(scope="module")
def mini():
    return bz.MaskedLM.from_preset("bert_mini_en", verbose=False)


def test_the_wheel_can_carry_it():
    assert sum(path.stat().st_size for path in MINI.iterdir()) < 25e6


def test_cloze_facts(mini):
    texts, answers = cloze()
    best = mini.fill_mask(texts, top_k=10)
    right = sum(answer in [guess["token"] for guess in guesses] for answer, guesses in zip(answers, best))
    assert right == 46  # as the model card says; issue 3 asks for 20
    assert "paris" in [guess["token"] for guess in mini.fill_mask("The capital of France is [MASK].", top_k=5)]


def test_the_held_out_loss_of_the_card():
    held_out = json.loads((MINI / "training.json").read_text())["held_out"]
    assert held_out["loss"] < 0.6 * held_out["unigram_entropy"]
    assert f"{held_out['loss']:.2f} nats" in (MINI / "README.md").read_text()


def test_transformers_gives_the_same(mini):
    import torch
    import transformers

    theirs = transformers.AutoModelForMaskedLM.from_pretrained(MINI, dtype=torch.float32)
    texts = ["the cat sat on the [MASK].", "[MASK] is a city in italy, and so is rome.", "one"]
    batch = transformers.AutoTokenizer.from_pretrained(MINI)(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        reference = theirs(**batch).logits.numpy()
    ours = mini.preprocessor(texts)
    np.testing.assert_array_equal(ours["token_ids"], batch["input_ids"].numpy())
    logits = keras.ops.convert_to_numpy(mini(ours))
    real = ours["padding_mask"].astype(bool)
    assert np.abs(logits - reference)[real].max() <= 1e-5 * np.abs(reference[real]).max()
