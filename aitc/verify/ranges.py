"""How large the values of a model get, by the reference: what ``--precision fp16`` has to leave in float32.

What it costs is bounded by counting, never by the clock: the same model and flags give the same binary on every machine.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from aitc.build.cache import cache_folder, entry_path, keep
from aitc.errors import AitcError
from aitc.importer.external import external_files
from aitc.importer.rebatch import with_batch
from aitc.importer.values import Bound
from aitc.ir import dim as dm
from aitc.ir.dtype import F32
from aitc.ir.graph import Graph, Node
from aitc.ir.op import Kind
from aitc.ir.text import walk
from aitc.passes.base import Ranges
from aitc.passes.estimate import estimated_ranges
from aitc.schedule.plan.dims import consistent, dim_sources, fit
from aitc.schedule.plan.plan import DimSource, Port, Require
from aitc.schedule.plan.requirements import requirements
from aitc.verify.child import TIMEOUT_S, ChildFailed, apart, begin
from aitc.verify.inputs import dim_choices, random_inputs
from aitc.verify.reference import NoReference, Reference, float_values, largest_magnitudes, load_structure

LIMIT_OPERATIONS = 1 << 37  # multiply-adds: a few seconds on two cores
LIMIT_BYTES = 1 << 31  # of weights: the reference holds them some times over
ELEMENT_OPERATIONS = 32  # what writing an element and measuring it costs, in multiply-adds
SAMPLES = 2  # of a batch that is too large
WHOLE_BYTES = 1 << 28  # of values that may be kept all at once, where the reference cannot measure them as it goes
VERSION = 4  # of what is kept in the cache


def measured_ranges(
    model: str | Path | bytes, graph: Graph, uses: Mapping[str, str], seed: int = 0, limit_s: float = TIMEOUT_S, bound: Sequence[Bound] = ()
) -> Ranges:
    """The largest finite magnitude of each float32 value of the main graph, by ONNX name, on random inputs.

    ``graph``: what was imported from ``model``, with the inputs ``bound`` to values. Where there is no reference or the work would be too much, nothing is
    measured, but estimated from the weights (``aitc/passes/estimate.py``). The reference runs in a child process, for at most ``limit_s``.
    """
    if not any(v.type.dtype is F32 for g in walk(graph) for v in g.values()):
        return Ranges(how="nothing to measure: the model has no float32")
    weights = sum({id(v): v.const.nbytes for g in walk(graph) for v in g.values() if v.const is not None}.values())
    if weights > LIMIT_BYTES:
        return _estimated(graph, f"{weights:.1e} bytes of weights, and the limit is {LIMIT_BYTES:.1e}")
    if not isinstance(model, bytes):
        model = Path(model).resolve()  # of a link's target: onnxruntime takes no data from another folder
    ports = tuple(Port(v.name, v.type.dtype, v.shape, "", uses.get(v.name, "")) for v in graph.inputs)
    try:
        symbols = dim_sources(graph, {})
    except AitcError as error:
        return _estimated(graph, str(error))
    requires = requirements(graph, {s.name for s in symbols})
    least = min(operations(graph, dims) for dims in _smaller(symbols, ports, requires))
    batch = next((p.shape[0] for p in ports if p.shape), 0) if not symbols else 0
    if isinstance(batch, int) and batch > SAMPLES:
        least = least * SAMPLES // batch
    if least > LIMIT_OPERATIONS:
        return _estimated(graph, f"{least:.1e} multiply-adds, and the limit is {LIMIT_OPERATIONS:.1e}")
    folder = cache_folder()
    entry = entry_path(folder, _key(model, ports, seed, bound), ".ranges.json") if folder else ""
    try:
        return Ranges(**json.loads(Path(entry).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        pass
    try:
        ranges = apart(lambda: _measure(model, graph, ports, symbols, requires, seed, bound), "measuring", limit_s)
    except ChildFailed as failed:  # a crash of onnxruntime, or a loop without end: bodies count once
        ranges = _estimated(graph, str(failed))
    if entry and ranges.measured:  # what failed may have failed for want of memory
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as file:
            json.dump(asdict(ranges), file)
            file.flush()
            keep(file.name, entry)
    return ranges


def operations(graph: Graph, dims: Mapping[str, int]) -> int:
    """What running ``graph`` costs, in multiply-adds, with its symbols at ``dims``; bodies count once."""
    return sum(_operations(n, dims) for g in walk(graph) for n in g.nodes)


def _operations(node: Node, dims: Mapping[str, int]) -> int:
    if node.op.kind is Kind.VIEW:
        return 0
    elements = sum(_size(v.type.elems, dims) for v in node.outputs)
    flops = node.op.flops([v.type for v in node.inputs if v is not None], node.attrs) if node.op.flops else 0
    return ELEMENT_OPERATIONS * elements + _size(flops, dims) // 2


def _size(d: dm.Dim, dims: Mapping[str, int]) -> int:
    return d if isinstance(d, int) else dm.hint(dm.substitute(d, dims))


def _key(model: str | Path | bytes, ports: Sequence[Port], seed: int, bound: Sequence[Bound]) -> str:
    """What a measurement depends on: the model's bytes and its external data, the inputs, the reference, these limits."""
    limits = (VERSION, LIMIT_OPERATIONS, ELEMENT_OPERATIONS, SAMPLES, WHOLE_BYTES)
    whole = hashlib.sha256(f"{version('onnxruntime')} {limits} {seed} {ports} {[b.json() for b in bound]}".encode())
    if isinstance(model, bytes):
        whole.update(model)
        return whole.hexdigest()
    with open(model, "rb") as file:
        while block := file.read(1 << 22):
            whole.update(block)
    for other in external_files(load_structure(model)):
        path = Path(model).parent / other
        if path.exists():  # what nobody reads may be missing
            whole.update(f"{other} {path.stat().st_size} {path.stat().st_mtime_ns}".encode())
    return whole.hexdigest()


def _smaller(symbols: Sequence[DimSource], ports: Sequence[Port], requires: Sequence[Require]) -> Iterator[dict[str, int]]:
    """The sizes to measure at, best first; those of a batch are SAMPLES where they were more."""
    for dims in dim_choices(symbols, ports, requires):
        wanted = {d.name: min(dims[d.name], fit(SAMPLES, d)) if d.axis == 0 else dims[d.name] for d in symbols}
        yield consistent(wanted, symbols, requires) or wanted


def _measure(
    model: str | Path | bytes, graph: Graph, ports: tuple[Port, ...], symbols: Sequence[DimSource], requires: Sequence[Require], seed: int,
    bound: Sequence[Bound],
) -> Ranges:
    folder = None if isinstance(model, bytes) else Path(model).parent
    why = "no size of the inputs fits"
    for whole, smaller in zip(dim_choices(symbols, ports, requires), _smaller(symbols, ports, requires)):
        dims = whole if operations(graph, whole) <= LIMIT_OPERATIONS else smaller
        taken, how, proto = ports, "measured on random inputs", None
        if operations(graph, dims) > LIMIT_OPERATIONS:
            cut = None if symbols else with_batch(model, {p.name: tuple(map(_fixed, p.shape)) for p in ports}, SAMPLES)
            if cut is None:
                why = f"{operations(graph, dims):.1e} multiply-adds, and the limit is {LIMIT_OPERATIONS:.1e}"
                continue
            proto, shapes = cut
            taken = tuple(replace(p, shape=shapes[p.name]) for p in ports)
            how = f"measured on random inputs, {SAMPLES} samples of a batch of {next(p.shape[0] for p in ports if p.shape)}"
        try:
            feeds = random_inputs(taken, dims, seed) | {b.name: b.array for b in bound}
            structure = proto or load_structure(model)
            begin()
            try:
                return Ranges(largest_magnitudes(structure, folder, float_values(structure), feeds), how, True)
            except NoReference as none:
                why = str(none)
                kept = 4 * sum(_size(v.type.elems, dims) for v in graph.values() if v.const is None)
                if proto is None and kept <= WHOLE_BYTES:
                    return Ranges(_whole(model, feeds), how, True)
        except (AitcError, NoReference) as error:
            why = str(error)
    return _estimated(graph, why)


def _estimated(graph: Graph, why: str) -> Ranges:
    return Ranges(estimated_ranges(graph), f"estimated from the weights, not measured: {why}")


def _fixed(d: dm.Dim) -> int:
    assert isinstance(d, int)
    return d


def _whole(model: str | Path | bytes, feeds: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The same for small models that the reference cannot measure as it goes: all their values at once."""
    values = Reference(model, float_values(model)).run(feeds)
    return {n: _largest(v) for n, v in values.items() if isinstance(v, np.ndarray) and v.dtype.kind == "f" and v.size}


def _largest(array: np.ndarray) -> float:
    finite = np.abs(array[np.isfinite(array)].astype(np.float64))
    return float(finite.max()) if finite.size else 0.0
