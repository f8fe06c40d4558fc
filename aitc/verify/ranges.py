"""How large the values of a model get, by the reference: what ``--precision fp16`` has to leave in float32."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from aitc.build.cache import cache_folder, entry_path, keep
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
    folder = cache_folder()
    entry = entry_path(folder, _key(model, ports, seed), ".ranges.json") if folder else ""
    try:
        known: dict[str, float] = json.loads(Path(entry).read_text(encoding="utf-8"))
        return known
    except (OSError, ValueError):
        pass
    ranges = _measure(model, graph, ports, seed)
    if entry:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as file:
            json.dump(ranges, file)
            file.flush()
            keep(file.name, entry)
    return ranges


def _key(model: str | Path | bytes, ports: Sequence[Port], seed: int) -> str:
    """What a measurement depends on: the model's bytes and the files beside it (its external data may be among them),
    the inputs, the reference."""
    whole = hashlib.sha256(f"{version('onnxruntime')} {seed} {ports}".encode())
    if isinstance(model, bytes):
        whole.update(model)
    else:
        with open(model, "rb") as file:
            while block := file.read(1 << 22):
                whole.update(block)
        for other in sorted(Path(model).resolve().parent.iterdir()):
            if other.is_file():
                state = other.stat()
                whole.update(f"{other.name} {state.st_size} {state.st_mtime_ns}".encode())
    return whole.hexdigest()


def _measure(model: str | Path | bytes, graph: Graph, ports: tuple[Port, ...], seed: int) -> dict[str, float]:
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
