"""`bertzoo compare`: what encoders cost, side by side."""

import json
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Annotated

import typer

from bertzoo.analysis.charts import cost_comparison_figure
from bertzoo.cli.app import import_bertzoo, print_table
from bertzoo.cli.paths import check_output_file, write_atomically

PICTURES = (".png", ".svg", ".pdf")


def compare(
    names: Annotated[
        list[str], typer.Argument(help="Two or more: bundled names, directories, or names that `bertzoo list` shows.")
    ],
    length: Annotated[
        list[int] | None, typer.Option(min=1, help="Tokens in a text; again for each further length.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts at once where throughput is measured.")] = 8,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of which the median counts.")] = 5,
    out: Annotated[Path | None, typer.Option(help="A .json file for the same numbers.")] = None,
    plot: Annotated[Path | None, typer.Option(help="A .png, .svg or .pdf file for a picture of them.")] = None,
) -> None:
    """Show encoders' parameters by part, operations, memory and measured speed, side by side.

    Nothing is downloaded: no cost depends on the weights' values, and they are random.
    """
    if len(names) < 2:
        raise ValueError("expected at least two names. Received one: `bertzoo list NAME` shows it.")
    if out is not None:
        check_output_file(out, (".json",))
    if plot is not None:
        check_output_file(plot, PICTURES)
        if find_spec("matplotlib") is None:
            raise ImportError("a picture needs matplotlib: pip install matplotlib.")
    comparison = import_bertzoo().analysis.compare_costs(names, length or (32, 128), batch_size, repeats)
    _show(comparison)
    if out is not None:
        write_atomically(out, (json.dumps(comparison.to_dict(), indent=1) + "\n").encode())
        print(f"the same numbers in {out}")
    if plot is not None:
        drawn = BytesIO()
        cost_comparison_figure(comparison).savefig(drawn, format=plot.suffix[1:].lower())
        write_atomically(plot, drawn.getvalue())
        print(f"a picture in {plot}")


def _show(comparison) -> None:
    costs = comparison.costs
    rows = [["parameters", *(f"{sum(cost.parameters.values()):,}" for cost in costs)]]
    for part in costs[0].parameters:
        if any(cost.parameters[part] for cost in costs):
            rows.append([f"  {part}", *(f"{cost.parameters[part]:,}" for cost in costs)])
    for i, length in enumerate(comparison.lengths):
        rows += [
            [f"{length} tokens: MFLOPs a token", *(f"{cost.flops_per_token[i] / 1e6:.2f}" for cost in costs)],
            ["  activations of a text, MB", *(f"{cost.activation_bytes[i] / 1e6:.1f}" for cost in costs)],
            ["  ms, one text", *(f"{cost.milliseconds[i]:.1f}" for cost in costs)],
            [f"  tokens/s, {comparison.batch_size} texts", *(f"{cost.tokens_per_second[i]:,.0f}" for cost in costs)],
        ]
    names = [cost.name for cost in costs]
    print_table(["", *names], rows, title="Encoders", numeric_columns=names)
    print(f"{comparison.device}: {comparison.versions}, float32")
