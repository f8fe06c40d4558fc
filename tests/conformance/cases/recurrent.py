"""LSTM, GRU and RNN on sequences of which some, or all, have no steps: Y is 0 behind the end of each, and so is the last state of one
without steps, as ONNX Runtime has it (ONNX leaves it open; ``onnx.reference`` does not read the lengths)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from conformance.cases.case import Array, Case, Expect, case, normal, onnxruntime_gives, parse

STEPS, BATCH, SIZE, HIDDEN = 5, 3, 2, 4
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
LENGTHS = ([0, 0, 0], [0, 3, 5], [5, 0, 2])
EMULATED = ("LSTM_bidirectional_layout_0", "GRU_reverse_layout_1", "RNN_forward_layout_0")  # on a GPU that the CPU emulates, too


def _text(op: str, direction: str, layout: int) -> str:
    n, gates = 2 if direction == "bidirectional" else 1, GATES[op] * HIDDEN
    x = (BATCH, STEPS, SIZE) if layout else (STEPS, BATCH, SIZE)
    state = (BATCH, n, HIDDEN) if layout else (n, BATCH, HIDDEN)
    y = (BATCH, STEPS, n, HIDDEN) if layout else (STEPS, n, BATCH, HIDDEN)
    shapes = {"x": x, "w": (n, gates, SIZE), "r": (n, gates, HIDDEN), "b": (n, 2 * gates), "h0": state, **({"c0": state} if op == "LSTM" else {})}
    results = {"y": y, "h": state, **({"c": state} if op == "LSTM" else {})}

    def listed(typed: dict[str, tuple[int, ...]]) -> str:
        return ", ".join(f"float[{', '.join(map(str, s))}] {name}" for name, s in typed.items())

    attributes = f'hidden_size = {HIDDEN}, direction = "{direction}", layout = {layout}'
    given = "x, w, r, b, n, h0" + (", c0" if op == "LSTM" else "")
    return f"""({listed(shapes)}, int32[{BATCH}] n) => ({listed(results)}) {{
        {", ".join(results)} = {op} <{attributes}> ({given})
    }}"""


def _layout_0(op: str, direction: str) -> Expect:
    """What ONNX Runtime, which has no layout 1, gives of the same data in layout 0."""
    compute = onnxruntime_gives(parse(_text(op, direction, 0)))

    def expect(**feeds: Array) -> tuple[Array, ...]:
        turned = {k: v.swapaxes(0, 1) if k in ("x", "h0", "c0") else v for k, v in feeds.items()}
        y, *last = compute(**turned)
        return (y.transpose(2, 0, 1, 3), *(v.swapaxes(0, 1) for v in last))

    return expect


def _cases() -> Iterator[Case]:
    for seed, (op, direction, layout) in enumerate(product(GATES, ("forward", "reverse", "bidirectional"), (0, 1))):
        text = _text(op, direction, layout)
        model = parse(text)
        shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input if i.name != "n"}
        feeds = {name: normal(*shape, seed=seed + 20 * k) for k, (name, shape) in enumerate(shapes.items())}
        runs = [{**feeds, "n": np.array(lengths, np.int32)} for lengths in LENGTHS]
        expect = _layout_0(op, direction) if layout else None
        yield case(f"{op}_{direction}_layout_{layout}", text, *runs, expect=expect)


CASES = list(_cases())
