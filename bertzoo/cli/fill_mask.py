"""`bertzoo fill-mask`: what a masked language model puts into a gap."""

from typing import Annotated

import typer

from bertzoo.cli.app import PRESET_HELP, start
from bertzoo.cli.console import percent, show_table


def fill_mask(
    text: Annotated[str, typer.Argument(help='A text with one [MASK] or more: "The capital of France is [MASK]."')],
    preset: Annotated[str, typer.Option(help=PRESET_HELP)] = "bert_mini_en",
    top_k: Annotated[int, typer.Option(min=1, help="How many words to show.")] = 5,
) -> None:
    """Guess the words behind [MASK]."""
    model = start().MaskedLM.from_preset(preset, verbose=False)
    if model.load_report.new:
        raise ValueError(f"{preset} has no masked-LM head, so that its guesses would be random.")
    answer = model.fill_mask(text, top_k=top_k)
    gaps = [answer] if isinstance(answer[0], dict) else answer
    for number, guesses in enumerate(gaps, start=1):
        rows = [[guess["token"], percent(guess["score"]), guess["text"]] for guess in guesses]
        title = f"[MASK] number {number}" if len(gaps) > 1 else None
        show_table(["word", "probability", "text"], rows, title=title, numbers=["probability"])
