"""Inputs for the interpreter: random arrays that fit a graph."""

from __future__ import annotations

import numpy as np

from aitc.ir import dim as dm
from aitc.ir.graph import Graph


def random_inputs(graph: Graph, seed: int = 0, sizes: dict[str, int] | None = None) -> dict[str, np.ndarray]:
    """Normal floats, small integers and bools for each input; symbols take ``sizes``, or their least value above one."""
    rng = np.random.default_rng(seed)
    symbols = {s.name: s for v in graph.inputs for d in v.shape for s in dm.symbols(d)}
    bound = {name: max(s.lo, min(2 * s.multiple_of, s.hi or 2)) for name, s in symbols.items()} | (sizes or {})
    inputs = {}
    for v in graph.inputs:
        shape = tuple(dm.evaluate(d, bound) for d in v.shape)
        dtype = v.type.dtype
        if dtype.name == "bool":
            array = rng.integers(0, 2, shape).astype(bool)
        elif dtype.is_float:
            array = rng.standard_normal(shape).astype(dtype.numpy)
        else:
            array = rng.integers(0, 3, shape).astype(dtype.numpy)
        inputs[v.name] = array
    return inputs
