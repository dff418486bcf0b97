"""Real English beside the toy: what `bert_mini_en` answers at a mask, and the scores of this project's eight models.

The models, their common corpus and budget, and how the scores were made, are described in weights/README.md.
"""

import functools
import json
from collections.abc import Sequence

import numpy as np
from keras import ops

import bertzoo as bz
from bertzoo.checkpoints.files import bundled_presets_directory

TASKS = {"sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B", "wnut17": "WNUT-17", "ewt_pos": "EWT", "squad": "SQuAD"}


@functools.cache
def model() -> bz.MaskedLM:
    """bert_mini_en: 6 layers, 256 wide, trained on the English Wikipedia; it comes with the package."""
    return bz.MaskedLM.from_preset("bert_mini_en", verbose=False)


def log_probabilities(texts: Sequence[str]) -> np.ndarray:
    """Texts with one [MASK] each -> float (n, vocabulary), in nats."""
    batch = model().tokenizer(list(texts))
    places = batch["token_ids"] == model().tokenizer.mask_id
    if (places.sum(axis=1) != 1).any():
        raise ValueError("Expected one [MASK] in each text.")
    return ops.convert_to_numpy(ops.log_softmax(model()(batch), axis=-1))[places]


def log_odds(texts: Sequence[str], word: str, other: str) -> np.ndarray:
    """float (n,): how much likelier `word` is at the mask than `other`, in nats."""
    ids = [model().tokenizer.token_to_id(piece) for piece in (word, other)]
    if None in ids:
        raise ValueError(f"Expected words that are one piece each. Received: {word!r}, {other!r}.")
    chosen = log_probabilities(texts)[:, ids]
    return chosen[:, 0] - chosen[:, 1]


def scores() -> dict[str, dict[str, np.ndarray]]:
    """Preset -> task -> the scores of all fine-tuning runs, in percent."""
    results = json.loads((bundled_presets_directory() / "results.json").read_text(encoding="utf-8"))
    return {
        name: {task: np.array([run["score"] for run in known[task].values()]) for task in TASKS}
        for name, known in results.items()
    }


def show(*presets: str) -> None:
    """Prints a row for each preset, mean ± standard deviation of its runs, and how far each is from the last."""
    known = scores()
    print(f"{'':26}", *(f"{task:>11}" for task in TASKS.values()), f"{'mean':>6}")
    for name in presets:
        cells = [f"{runs.mean():.1f} ± {runs.std(ddof=1):.1f}" for runs in known[name].values()]
        print(f"{name:26}", *(f"{cell:>11}" for cell in cells), f"{_mean(known[name]):6.1f}")
    last = known[presets[-1]]
    for name in presets[:-1]:
        gaps = [known[name][task].mean() - last[task].mean() for task in TASKS]
        print(f"{name + ' − last':26}", *(f"{gap:+11.1f}" for gap in gaps), f"{np.mean(gaps):+6.1f}")


def _mean(tasks: dict[str, np.ndarray]) -> float:
    return float(np.mean([runs.mean() for runs in tasks.values()]))
