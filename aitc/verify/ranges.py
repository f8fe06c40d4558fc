"""How large the values of a model get, by the reference: what ``--precision fp16`` has to leave in float32."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from aitc.errors import AitcError
from aitc.ir.graph import Graph
from aitc.schedule.dims import dim_sources
from aitc.schedule.plan import Port
from aitc.verify.inputs import dim_choices, random_inputs
from aitc.verify.reference import NoReference, Reference, float_values

LIMIT_BYTES = 1 << 31  # of a model file: beyond it the measurement would take longer than the compile


def measured_ranges(
    model: str | Path | bytes, graph: Graph, uses: Mapping[str, str], seed: int = 0
) -> dict[str, float]:
    """The largest finite magnitude of each float value of the main graph, by ONNX name, on random inputs.

    Empty where there is no reference for the model: rules alone decide then.
    """
    size = len(model) if isinstance(model, bytes) else Path(model).stat().st_size
    if size > LIMIT_BYTES:
        return {}
    ports = tuple(Port(v.name, v.type.dtype, v.shape, "", uses.get(v.name, "")) for v in graph.inputs)
    try:
        sources = dim_sources(graph, {})
        reference = Reference(model, float_values(model))
    except (AitcError, NoReference):
        return {}
    for dims in dim_choices(sources, ports):
        try:
            values = reference.run(random_inputs(ports, dims, seed))
        except NoReference:
            continue
        return {
            name: _largest(v)
            for name, v in values.items()
            if isinstance(v, np.ndarray) and v.dtype.kind == "f" and v.size
        }
    return {}


def _largest(array: np.ndarray) -> float:
    finite = np.abs(array[np.isfinite(array)].astype(np.float64))
    return float(finite.max()) if finite.size else 0.0
