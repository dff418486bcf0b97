"""Draws the pictures of README.md and of the model cards from the numbers beside them: `python weights/draw.py`."""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#555555"


def draw_curve(preset: Path) -> None:
    """The loss of a pre-training run, from its training.json."""
    result = json.loads((preset / "training.json").read_text())
    steps, losses = zip(*result["curve"])
    figure, axes = plt.subplots(figsize=(6.4, 3.4), constrained_layout=True)
    axes.plot(steps, losses, color=BLUE, label="training (mean of 100 steps)")
    held_out = result["held_out"]
    axes.axhline(held_out["loss"], color=ORANGE, linestyle="--", label=f"held out, at the end: {held_out['loss']:.2f}")
    entropy = held_out["unigram_entropy"]
    axes.axhline(entropy, color=GREY, linestyle=":", label=f"knowing only how frequent words are: {entropy:.2f}")
    axes.set(xlabel="step", ylabel="masked-LM loss (nats a token)", ylim=(1.5, 9))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(preset / "curve.png", dpi=150)
    plt.close(figure)


def draw_one_run(runs: Path) -> None:
    """The same fine-tuning on three backends, from the losses that `python weights/one_run.py` measured."""
    losses = json.loads(runs.read_text())["losses"]
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(7.2, 4.4), sharex=True, constrained_layout=True, height_ratios=(3, 1.3)
    )
    styles = {
        "jax": (BLUE, "-", 5, "JAX"),
        "tensorflow": (ORANGE, "-", 2.5, "TensorFlow"),
        "torch": ("black", ":", 1.6, "PyTorch"),
    }
    steps = range(1, len(losses["jax"]) + 1)
    for backend, (color, line, width, name) in styles.items():
        above.plot(steps, losses[backend], color=color, linestyle=line, linewidth=width, label=name)
        if backend != "jax":
            apart = [max(abs(a - b), 1e-9) for a, b in zip(losses[backend], losses["jax"])]
            below.semilogy(steps, apart, color=color, linewidth=1.4, label=f"{name} against JAX")
    above.set(ylabel="loss of each step", title="One seed, one run: dropout 0.1, three backends")
    below.axhline(1e-4, color=GREY, linestyle="--", linewidth=1)
    below.annotate("tested bound, 1e-4", (1, 1.3e-4), color=GREY, fontsize=8)
    below.set(xlabel="step", ylabel="difference", ylim=(1e-9, 1e-2))
    for axes in (above, below):
        axes.grid(alpha=0.25)
        axes.legend(framealpha=1, edgecolor="none", fontsize=9)
    figure.savefig(HERE / "one_run.png", dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    for preset in sorted(path.parent for path in HERE.glob("*/training.json")):
        draw_curve(preset)
    if (HERE / "one_run.json").exists():
        draw_one_run(HERE / "one_run.json")
