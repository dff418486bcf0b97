"""Makes `course/data/toy_bert`, the small BERT that notebooks 06, 11, 14, 15 and 16 start from.

What: a two-layer BERT of width 64, pre-trained as in notebook 05 by masked language modelling on the toy grammar of
`toy.py`, single sentences and pairs in turn, and saved as a preset directory with its tokenizer; besides it
`toy_bert_curve.json`, the loss and the agreement accuracy after every 50 steps.
Why: so that no notebook depends on another having been run, and none trains for a minute before it begins.
Command: `KERAS_BACKEND=torch OMP_NUM_THREADS=1 python course/make_toy_bert.py`. Time: two minutes on one CPU core.
"""

import json
from pathlib import Path

import keras
import numpy as np
import toy

import bertzoo as bz

STEPS, EVERY, BATCH, SEED = 1500, 50, 32, 0
HERE = Path(__file__).resolve().parent / "data" / "toy_bert"


def make_model() -> bz.MaskedLM:
    """BERT without dropout; its initial weights come from NumPy, so that they are the same on every backend."""
    tokenizer = bz.Tokenizer.from_vocabulary(toy.VOCABULARY, max_length=64)
    config = bz.EncoderConfig(
        vocab_size=len(toy.VOCABULARY),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.05,
    )
    return bz.MaskedLM(bz.Encoder(config, pooler=False), tokenizer)


def batches(model: bz.MaskedLM):
    """Masked batches: two of sentences, one of pairs that stay on a topic, and so on; each row is seen once."""
    rng = np.random.default_rng(SEED)
    sentences = model.tokenizer.encode(toy.sentences((STEPS + 3) * BATCH * 2 // 3, SEED))
    pairs = model.tokenizer.encode(*toy.topic_pairs((STEPS + 3) * BATCH // 3, SEED, negatives="same")[:2])
    for step in range(STEPS + 1):  # Keras draws one batch more, to see what they look like
        rows, turn, length = (pairs, step // 3, 48) if step % 3 == 2 else (sentences, step - step // 3, 24)
        yield model.masking(rows.pad(np.arange(turn * BATCH, (turn + 1) * BATCH), length), rng)


def agreement(model: bz.MaskedLM) -> float:
    """Share of probes with one misleading noun in which the right one of "is" and "are" gets the higher logit."""
    probe = toy.agreement(400, seed=99)
    logits = model.predict(probe.sentences, verbose=0)[:, 0]
    ids = [model.tokenizer.token_to_id(verb) for verb in ("is", "are")]
    return float((logits[:, ids].argmax(axis=1) == np.array([verb == "are" for verb in probe.verbs])).mean())


def main() -> None:
    model = make_model()
    model.compile(bz.AdamW(3e-3))
    curve = {"step": [], "loss": [], "agreement": []}

    def measure(epoch, logs):
        curve["step"].append((epoch + 1) * EVERY)
        curve["loss"].append(round(logs["loss"], 3))
        curve["agreement"].append(agreement(model))

    measuring = keras.callbacks.LambdaCallback(on_epoch_end=measure)
    model.fit(batches(model), epochs=STEPS // EVERY, steps_per_epoch=EVERY, callbacks=[measuring], verbose=0)
    HERE.with_name("toy_bert_curve.json").write_text(json.dumps(curve) + "\n", encoding="utf-8")
    print(f"{model.count_params()} parameters, agreement accuracy {agreement(model):.3f}")
    model.save_to_preset(HERE)


if __name__ == "__main__":
    main()
