"""The strategy of models, and the inputs to run them on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from random_models import anchors
from random_models.kinds import KINDS
from random_models.writer import Array, Rejected, Writer, tame

assert anchors  # registers its kinds
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17)


@dataclass(frozen=True, slots=True)
class RandomModel:
    """As ONNX's own ``TestCase``, with what ``onnx.reference`` computes as outputs."""

    model: onnx.ModelProto
    data_sets: list[tuple[list[Array], list[Array]]]
    atol: float
    rtol: float = 2e-3
    name: str = "random"
    dims: dict[str, tuple[int, int]] = field(default_factory=dict)


@st.composite
def models(draw: Any, most: int = 14) -> RandomModel:
    """Of up to ``most`` kinds on one or two inputs of rank 1 to 4, each size fixed or a symbol."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    symbols = {"n": draw(st.sampled_from(SIZES)), "m": draw(st.sampled_from(SIZES))}
    w = Writer(rng, symbols)
    rank = draw(st.integers(1, 4))
    size = st.sampled_from((*SIZES[: 8 if rank > 2 else None], "n", "m", "n"))
    sizes = tuple(draw(size) for _ in range(rank))
    w.input(sizes)
    if draw(st.booleans()):
        w.input(sizes, draw(st.sampled_from((np.float32, np.float32, np.int64))))
    for _ in range(draw(st.integers(1, most))):
        x = w.values[-1] if draw(st.integers(0, 3)) else draw(st.sampled_from(w.values))
        before = len(w.nodes), len(w.values)
        try:
            KINDS[draw(st.sampled_from(sorted(KINDS)))](draw, w, x)
        except Rejected:
            del w.nodes[before[0] :], w.values[before[1] :]
    made = [v for v in w.values if v not in w.inputs] or w.values
    outputs = [made[-1], *draw(st.lists(st.sampled_from(made), max_size=2))]
    outputs = list({v.name: v for v in outputs}.values())
    model = w.model(outputs)
    feeds = {v.name: v.array for v in w.inputs}
    names = [i.name for i in model.graph.input]
    data_sets = [([feeds[n] for n in names], [v.array for v in outputs])]
    if any(isinstance(s, str) for s in sizes):
        data_sets += _other_sizes(w, model, sizes)
    largest = [float(np.max(np.abs(o), initial=0)) for _, out in data_sets for o in out if o.dtype.kind == "f"]
    halves = any(n.op_type == "Cast" and n.attribute[0].i == 10 for n in model.graph.node)
    atol = (2e-3 if halves else 2e-4) * max(largest, default=0.0)
    return RandomModel(model, data_sets, atol)


def _other_sizes(w: Writer, model: onnx.ModelProto, sizes: tuple[int | str, ...]) -> list[tuple[list[Array], list[Array]]]:
    """The same model on inputs of other sizes, if it takes them."""
    other = {name: n + 2 for name, n in w.symbols.items()}
    shape = [s if isinstance(s, int) else other[s] for s in sizes]
    feeds = {v.name: w.numbers(shape, v.array.dtype.type) for v in w.inputs}
    feeds = {i.name: feeds[i.name] for i in model.graph.input}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            outputs = [np.asarray(o) for o in ReferenceEvaluator(model).run(None, feeds)]  # type: ignore[arg-type]
        except Exception:
            return []
    return [(list(feeds.values()), outputs)] if all(tame(o) for o in outputs) else []
