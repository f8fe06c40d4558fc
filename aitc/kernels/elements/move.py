"""Copies whose index map depends on data or on cases: Gather and its kin, Concat, Pad."""

from __future__ import annotations

from aitc.ir.dim import Dim, add, bounds, divisor, max_, mul, upper
from aitc.ir.graph import Node, Value
from aitc.ir.index import Index
from aitc.kernels.core.functor import ELEMENTS, FunctorBuilder, Ref
from aitc.kernels.core.spelling import literal
from aitc.kernels.core.vectors import vectorizes


def _below(extent: Dim) -> int | None:
    top = upper(extent)
    return None if top is None else max(top - 1, 0)


def gather(code: FunctorBuilder, node: Node, v: Value, index: Index) -> Ref:
    data, indices = node.inputs
    assert data is not None and indices is not None
    axis = node.attrs.axis
    rank = indices.type.rank
    chosen = code.value(indices, index[axis : axis + rank])
    extent = data.shape[axis]
    g = code.integer(chosen, 0, _below(extent), wrap=extent)
    return code.value(data, (*index[:axis], g, *index[axis + rank :]))


def gather_elements(code: FunctorBuilder, node: Node, v: Value, index: Index) -> Ref:
    data, indices = node.inputs
    assert data is not None and indices is not None
    axis = node.attrs.axis
    extent = data.shape[axis]
    g = code.integer(code.value(indices, index), 0, _below(extent), wrap=extent)
    return code.value(data, (*index[:axis], g, *index[axis + 1 :]))


def gather_nd(code: FunctorBuilder, node: Node, v: Value, index: Index) -> Ref:
    data, indices = node.inputs
    assert data is not None and indices is not None
    batch = node.attrs.batch_dims
    depth = indices.shape[-1]
    assert isinstance(depth, int)
    lead = index[: indices.type.rank - 1]
    source: list[Dim] = list(index[:batch])
    for d in range(depth):
        extent = data.shape[batch + d]
        source.append(code.integer(code.value(indices, (*lead, d)), 0, _below(extent), wrap=extent))
    return code.value(data, (*source, *index[indices.type.rank - 1 :]))


def concat(code: FunctorBuilder, node: Node, v: Value, index: Index) -> Ref:
    axis, dtype = node.attrs.axis, v.type.dtype
    i = index[axis]
    starts: list[Dim] = [0]
    for x in node.inputs:
        assert x is not None
        starts.append(starts[-1] + x.shape[axis])
    aligned = all(isinstance(s, int) and s % code.width == 0 for s in starts) and vectorizes(i, code.vector, code.width)
    element = code.varies(i) and not aligned
    i = code.index(i) if element else i
    acc = code.accumulators(dtype.compute_c, literal(0, dtype))
    for n, x in enumerate(node.inputs):
        assert x is not None
        at = code.c(i, element=element)
        low = f"{at} >= {code.c(starts[n])}" if n else ""
        high = f"{at} < {code.c(starts[n + 1])}" if n + 1 < len(node.inputs) else ""
        condition = " && ".join(c for c in (low, high) if c) or "true"
        with code.nested([f"if ({condition}) {{"], element=element):
            ref = code.value(x, (*index[:axis], i - starts[n], *index[axis + 1 :]))
            code.emit(f"{acc} = {ref.text};", False)
    return Ref(acc, uniform=False, outer=not code.block.element)


_OUTSIDE = {"reflect": "reflect_index", "edge": "clamp_index", "wrap": "wrap_around_index"}


def pad(code: FunctorBuilder, node: Node, v: Value, index: Index) -> Ref:
    x = node.input
    a, dtype, rank = node.attrs, v.type.dtype, v.type.rank
    source: list[Dim] = []
    if a.mode != "constant":
        for axis in range(rank):
            before, after = a.pads[axis], a.pads[rank + axis]
            if before == 0 and after == 0:
                source.append(index[axis])
                continue
            cut = max_(mul(before, -1), 0)  # what negative pads cut is gone before the rest is repeated
            extent = add(x.shape[axis], mul(add(cut, max_(mul(after, -1), 0)), -1))
            i = index[axis] - max_(before, 0)
            varies = code.varies(i)
            name = code.fresh("p")
            code.emit(
                f"const index_t {name} = {_OUTSIDE[a.mode]}({code.c(i, element=varies)}, {code.c(extent)});", not varies
            )
            source.append(add(code.local(name, 0, _below(extent), varies), cut))
        return code.value(x, tuple(source))
    filler = node.inputs[1] if len(node.inputs) > 1 else None
    value = code.value(filler, tuple(0 for _ in filler.shape)).text if filler is not None else literal(0, dtype)
    conditions: list[str] = []
    element = False
    for axis in range(rank):
        i = index[axis] - a.pads[axis]
        source.append(i)
        tests: list[tuple[str, Dim]] = []
        extent = x.shape[axis]
        if bounds(a.pads[axis])[1] > 0:
            tests.append((">= 0", 0))
        if bounds(a.pads[rank + axis])[1] > 0:
            tests.append((f"< {code.c(extent)}", extent))
        if tests and code.varies(i):
            whole = vectorizes(i, code.vector, code.width) and all(divisor(t[1]) % code.width == 0 for t in tests)
            element = element or not whole
        conditions += [f"{{{axis}}} {t}" for t, _ in tests]
    if not conditions:
        return code.value(x, tuple(source))
    acc = code.accumulators(dtype.compute_c, value)
    shown = [f"({code.c(i, element=element)})" for i in source]
    test = " && ".join(c.format(*shown) for c in conditions)
    with code.nested([f"if ({test}) {{"], element=element):
        ref = code.value(x, tuple(source))
        code.emit(f"{acc} = {ref.text};", False)
    return Ref(acc, uniform=False, outer=not code.block.element)


def reverse_sequence(code: FunctorBuilder, node: Node, v: Value, index: Index) -> Ref:
    x, lengths = node.inputs
    assert x is not None and lengths is not None
    a = node.attrs
    t = index[a.time_axis]
    length = code.value(lengths, (index[a.batch_axis],))
    varies = code.varies(t) or not length.uniform
    name = code.fresh("p")
    at = code.c(t, element=varies)
    end = code.fresh("g")  # a length beyond the axis reaches to its end
    code.emit(f"const index_t {end} = min_of(int64_t({length.text}), int64_t({code.c(x.shape[a.time_axis])}));", not varies)
    code.emit(f"const index_t {name} = {at} < {end} ? {end} - 1 - ({at}) : {at};", not varies)
    moved = code.local(name, 0, _below(x.shape[a.time_axis]), varies)
    return code.value(x, (*index[: a.time_axis], moved, *index[a.time_axis + 1 :]))


ELEMENTS.add("ReverseSequence", reverse_sequence)
ELEMENTS.add("Gather", gather)
ELEMENTS.add("GatherElements", gather_elements)
ELEMENTS.add("GatherND", gather_nd)
ELEMENTS.add("Concat", concat)
ELEMENTS.add("Pad", pad)
