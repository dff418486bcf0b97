"""Makes the tables of README.md and the pictures, its own and the model cards', from the numbers beside them: `python
weights/report.py`."""

import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from bertzoo.checkpoints.tensors import open_tensors_in_directory
from bertzoo.models.config import EncoderConfig
from bertzoo.models.flops import encoder_flops

HERE = Path(__file__).parent
TASKS = {"sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B", "wnut17": "WNUT-17", "ewt_pos": "EWT", "squad": "SQuAD"}
LENGTH, BATCH_SIZE = 128, 32  # of the rows whose operations are counted
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#555555"


def names() -> list[str]:
    """The presets of this directory."""
    return sorted(path.parent.name for path in HERE.glob("*/training.json"))


def read(name: str, file: str) -> dict:
    return json.loads((HERE / name / file).read_text())


# ---- tables


def cost_rows(results: dict) -> Iterator[list[str]]:
    """What a model is, and what it takes."""
    machines = sorted({machine for parts in results.values() for machine in parts.get("speed", ())})
    speeds = [f"k tokens a second in training / inference (GB in training): {machine}" for machine in machines]
    yield ["preset", "parameters, heads included", "MB", "MFLOP a token", *speeds]
    for name in names():
        config = EncoderConfig.from_hf(read(name, "config.json"))
        with open_tensors_in_directory(HERE / name) as tensors:
            count = sum(int(np.prod(tensors.shape(tensor))) for tensor in tensors)
        measured = [results.get(name, {}).get("speed", {}).get(machine) for machine in machines]
        yield [
            f"[{name}]({name}/README.md)",
            f"{count / 1e6:.1f} M",
            f"{(HERE / name / 'model.safetensors').stat().st_size / 1e6:.0f}",
            f"{encoder_flops(config, LENGTH, batch_size=BATCH_SIZE) / LENGTH / 1e6:.1f}",
            *map(speed_cell, measured),
        ]


def speed_cell(found: dict | None) -> str:
    if found is None:
        return "–"
    rates = [found["train"] / 1e3, found["infer"] / 1e3]
    memory = f" ({found['peak_bytes'] / 1e9:.1f})" if "peak_bytes" in found else ""
    return " / ".join(f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}" for rate in rates) + memory


def quality_rows(results: dict) -> Iterator[list[str]]:
    """The run that made a model, and how the model does."""
    yield ["preset", "training FLOPs", "tokens", "on held-out text", "cloze", *TASKS.values(), "mean"]
    for name in names():
        run, known = read(name, "training.json"), results.get(name, {})
        yield [
            name,
            f"{run['flops']:.1e}" if "flops" in run else "–",
            f"{run['tokens'] / 1e6:,.0f} M",
            held_out_cell(run["held_out"]),
            f"{known['knows']['cloze']} of 50" if "knows" in known else "–",
            *(score_cell(known, task) for task in TASKS),
            f"{mean(known):.1f}" if complete(known) else "–",
        ]


def card_rows(results: dict, name: str) -> Iterator[list[str]]:
    """What a card says of fine-tuning."""
    yield list(TASKS.values())
    yield [score_cell(results.get(name, {}), task) for task in TASKS]


def held_out_cell(found: dict) -> str:
    right = found.get("masked_lm_masked_accuracy", found.get("masked_accuracy"))
    if "rtd_auc" in found:
        return f"replaced tokens, AUC {found['rtd_auc']:.2f}, by a generator that is right for {right:.0%}"
    pairs = f", pairs {found['pair_accuracy']:.0%} right" if "pair_accuracy" in found else ""
    return f"masked-LM loss {found.get('masked_lm_loss', found['loss']):.2f}, {right:.0%} right{pairs}"


def again_rows(results: dict) -> Iterator[list[str]]:
    """How far the second runs lie from the first ones of the same seeds."""
    yield ["preset", *TASKS.values()]
    found = {name: [again(results[name], task) for task in TASKS] for name in names() if name in results}
    for name, cells in found.items():
        yield [name, *(cell for cell, _ in cells)]
    yield ["within the spread", *(f"{sum(within)} of {len(within)}" for within in _columns(found))]


def _columns(found: dict) -> Iterator[list[bool]]:
    for cells in zip(*found.values()):
        yield [within for _, within in cells if within is not None]


def again(known: dict, task: str) -> tuple[str, bool | None]:
    """The difference of the means, and whether it is at most the standard deviation of all runs."""
    found = seeds(known, task)
    twice = [runs for runs in found if len(runs) == 2]
    if not twice:
        return "–", None
    apart = statistics.mean(second - first for first, second in twice)
    number = f"{round(apart, 1) + 0.0:+.1f}".replace("-", "−")
    cell = number if len(twice) == len(found) else f"{number} ({len(twice)} of {len(found)})"
    return cell, abs(apart) <= statistics.stdev(run for runs in found for run in runs)


def seeds(known: dict, task: str) -> list[list[float]]:
    """For each seed the score of its run, and of its second if there is one."""
    found = known.get(task, {})
    return [
        [found[key]["score"] for key in (seed, f"{seed} again") if key in found]
        for seed in sorted(key for key in found if "again" not in key)
    ]


def task_score(known: dict, task: str) -> float:
    """The mean of the seeds."""
    return statistics.mean(statistics.mean(runs) for runs in seeds(known, task))


def complete(known: dict) -> bool:
    """Whether each task has a score."""
    return all(seeds(known, task) for task in TASKS)


def mean(known: dict) -> float:
    """Of the tasks' scores."""
    return statistics.mean(task_score(known, task) for task in TASKS)


def score_cell(known: dict, task: str) -> str:
    """With the standard deviation of its runs."""
    runs = [run for found in seeds(known, task) for run in found]
    if not runs:
        return "–"
    return f"{task_score(known, task):.1f} " + (f"± {statistics.stdev(runs):.1f}" if len(runs) > 1 else "(1 seed)")


def put_table(file: Path, name: str, rows: Iterator[list[str]]) -> None:
    """Renews the table that a file has between its two marks."""
    header, *others = rows
    lines = [header, ["---"] * len(header), *others]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    text = file.read_text()
    begin, end = f"<!-- {name} -->\n", "<!-- end -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{file} has no {begin.strip()} … {end.strip()} to put the table between.")
    file.write_text(pattern.sub(lambda _: f"{begin}{table}\n{end}", text))


# ---- pictures


def draw_curve(preset: Path) -> None:
    """The loss of a pre-training run, from its training.json."""
    result = json.loads((preset / "training.json").read_text())
    steps, losses = zip(*result["curve"])
    figure, axes = plt.subplots(figsize=(6.4, 3.4), constrained_layout=True)
    axes.plot(steps, losses, color=BLUE, label="training (mean of 100 steps)")
    held_out = result["held_out"]
    axes.axhline(held_out["loss"], color=ORANGE, linestyle="--", label=f"held out, at the end: {held_out['loss']:.2f}")
    if held_out["loss"] == held_out.get("masked_lm_loss", held_out["loss"]):  # of masked language modelling alone
        entropy = held_out["unigram_entropy"]
        axes.axhline(entropy, color=GREY, linestyle=":", label=f"knowing only how frequent words are: {entropy:.2f}")
    axes.set(xlabel="step", ylabel="loss (nats)", ylim=(0, min(1.05 * max(losses), 4 * losses[-1])))
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


def draw_family(results: dict) -> None:
    """The scores beside those of bert_small_en, and their mean against the speed of inference, of complete presets."""
    speeds = [machine for parts in results.values() for machine in parts.get("speed", ())]
    done = sorted((name for name in names() if complete(results.get(name, {}))), key=lambda name: mean(results[name]))
    if "bert_small_en" not in done or not speeds:
        return
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4.2), constrained_layout=True, width_ratios=(1.25, 1))
    draw_scores(left, done, results)
    machine = next((name for name in speeds if not name.startswith("CPU")), speeds[0])
    draw_speeds(right, {name: results[name] for name in done if machine in results[name].get("speed", {})}, machine)
    figure.savefig(HERE / "family.png", dpi=150)
    plt.close(figure)


def short(name: str) -> str:
    return name.replace("_small_en", "").replace("_en", "")


def draw_scores(axes, done: list[str], results: dict) -> None:
    """A row for each preset, with its training compute; colours say how far a score lies from bert_small_en's."""
    means = np.array([[task_score(results[name], task) for task in TASKS] for name in done])
    apart = means - means[done.index("bert_small_en")]
    axes.imshow(apart, cmap="RdBu", vmin=-6, vmax=6, aspect="auto")
    for (row, column), score in np.ndenumerate(means):
        color = "white" if abs(apart[row, column]) > 4 else "black"
        axes.text(column, row, f"{score:.1f}", ha="center", va="center", color=color, fontsize=9)
    runs = [read(name, "training.json") for name in done]
    labels = [f"{short(name)}\n{run['flops'] / 1e16:.1f}·10¹⁶ FLOPs" for name, run in zip(done, runs)]
    axes.set_yticks(range(len(done)), labels, fontsize=8)
    axes.set_xticks(range(len(TASKS)), TASKS.values(), fontsize=9)
    axes.tick_params(length=0)
    axes.set_title("scores (%), blue above bert, red below; best mean last", fontsize=10)


def draw_speeds(axes, found: dict, machine: str) -> None:
    """One that lies far below the others stands at the lower edge, with its mean."""
    edge = statistics.median(map(mean, found.values())) - 4
    for place, (name, parts) in enumerate(sorted(found.items(), key=lambda item: mean(item[1]))):
        x, y = parts["speed"][machine]["infer"] / 1e6, mean(parts)
        label = short(name) if y > edge else f"{short(name)}: {y:.1f} ↓"
        left = place % 2 == 0
        axes.scatter(x, max(y, edge), color=BLUE, zorder=3)
        axes.annotate(
            label, (x, max(y, edge)), xytext=(-7 if left else 7, 0), textcoords="offset points",
            ha="right" if left else "left", va="center", fontsize=9,
        )  # fmt: skip
    axes.set(xlabel=f"million tokens a second, inference\n{machine}", ylabel="mean of the six scores (%)")
    axes.grid(alpha=0.25)
    axes.margins(x=0.22, y=0.08)


def main() -> None:
    results = read("", "results.json")
    for table, rows in (("costs", cost_rows), ("qualities", quality_rows), ("again", again_rows)):
        put_table(HERE / "README.md", table, rows(results))
    draw_family(results)
    for name in names():
        put_table(HERE / name / "README.md", "scores", card_rows(results, name))
        draw_curve(HERE / name)
    draw_one_run(HERE / "one_run.json")


if __name__ == "__main__":
    main()
