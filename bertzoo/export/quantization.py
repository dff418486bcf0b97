"""Exports in 8 bits that prove themselves: what is not like float32 on this machine is not written.

The dense layers of blocks are computed in 8 bits (see `bertzoo.export.onnx_graph.int8`); attention, normalisations,
embeddings and heads stay float32.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from bertzoo.export.agreement import LEAST, example_rows_of, measure_agreement
from bertzoo.export.engine import OnnxModel, feed_of_rows, make_session
from bertzoo.export.onnx_graph.int8 import Int8Plan
from bertzoo.export.onnx_graph.model import build_observed, build_onnx
from bertzoo.text.encoded import Encoded

ROWS_AT_ONCE = 8


def quantize(model: Any, exact: OnnxModel) -> Any:
    """The ONNX model of an encoder or task in 8 bits, whose outputs agree with those in float32.

    Layers that spoil it stay float32, the worst first, up to half of them; the file's `float32_layers` names them.

    Args:
        model: The encoder or task.
        exact: Its export in float32.

    Raises:
        ValueError: It does not agree even so; the message names the worst layer.
    """
    rows = example_rows_of(exact, for_calibration=True)
    plan, worst = Int8Plan(_observe(model, exact, rows, None, "largest")), None
    while True:
        settings: dict[str, Any] = {"dtype": "int8", "float32_layers": sorted(plan.float32_layers)}
        proto = build_onnx(model, plan, settings)
        agreement = measure_agreement(exact, OnnxModel(proto.SerializeToString(), exact.tokenizer))
        if agreement.is_enough:
            return proto
        if worst is None:
            errors = _observe(model, exact, rows, plan, "error")
            worst = sorted(errors, key=lambda name: float(np.nan_to_num(errors[name], nan=np.inf)), reverse=True)
        count = max(1, 2 * len(plan.float32_layers))
        if count > len(worst) // 2:
            raise ValueError(
                f"the model can't be computed in 8 bits: {agreement}, where at least {LEAST} is needed, even with "
                f"{len(plan.float32_layers)} layers in float32. The worst is {worst[0]}. Export it without int8."
            )
        plan = Int8Plan(plan.largest, frozenset(worst[:count]))


def _observe(model: Any, exact: OnnxModel, rows: Encoded, plan: Int8Plan | None, kind: str) -> dict[str, np.ndarray]:
    """Layer -> the largest of what it shows on all rows."""
    proto, what = build_observed(model, plan)
    session, found = make_session(proto.SerializeToString()), dict[str, np.ndarray]()
    names = [node.name for node in session.get_inputs()]
    for feed in _feeds(rows, exact):
        for (shown, layer), value in zip(what, session.run(None, {name: feed[name] for name in names})):
            if shown == kind:
                found[layer] = np.maximum(found.get(layer, value), value)
    return found


def _feeds(rows: Encoded, exact: OnnxModel) -> Iterator[dict[str, np.ndarray]]:
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        part = rows.slice_rows(begin, min(begin + ROWS_AT_ONCE, len(rows)))
        yield feed_of_rows(part, np.arange(len(part)), exact.settings["pad_token_id"], exact.has_choices)
