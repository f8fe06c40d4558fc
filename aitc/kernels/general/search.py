"""Serial rules of NonZero, Unique and NonMaxSuppression with room for all results: a work item goes through a segment in order; Unique has one."""

from __future__ import annotations

from aitc.ir.dim import Dim, product, upper
from aitc.ir.graph import Node, Value
from aitc.ir.index import unflatten
from aitc.kernels.core.functor import FunctorBuilder, Ref
from aitc.kernels.general.serial import SERIAL, SerialRule, loop
from aitc.targets.target import Target


def _one(node: Node, target: Target) -> Dim:
    return 1


def _integer(text: str) -> Ref:
    return Ref(f"int64_t({text})", False, True)


def _memory(code: FunctorBuilder, v: Value) -> str:
    """The pointer to a result that is written by C++ code itself."""
    pointer = code.parameters.pointer(code.storage(v).root, const=False)
    code.used[pointer] = None
    return pointer


def _nonzero(code: FunctorBuilder, node: Node, item: Dim, target: Target) -> None:
    x, (places, counts) = node.input, node.outputs
    size = product(x.shape)
    code.emit("index_t found = 0;", True)
    found = code.local("found", 0, None, False)
    opening, r = loop(code, size)
    if node.attrs.segment:
        first, top = item * node.attrs.segment, upper(size)
        r = code.local("r", 0, None if top is None else max(top - 1, 0), False)
        opening = f"for (index_t r = {code.c(first)}; r < {code.c(size)} && r < {code.c(first + node.attrs.segment)}; ++r) {{"
    with code.nested([opening], element=False):
        index = unflatten(r, x.shape)
        value = code.value(x, index)
        with code.nested([f"if ({value.text} != 0) {{"], element=False):
            for axis, at in enumerate(index):
                code.store(places, (item, found, axis), _integer(code.c(at)))
            code.emit("++found;", False)
    code.store(counts, (item,), _integer("found"))


def _segments(node: Node, target: Target) -> Dim:
    return node.output.shape[0]


SERIAL.add("NonZeroRoom", SerialRule(_segments, _nonzero))


def _pack(code: FunctorBuilder, node: Node, item: Dim, target: Target) -> None:
    (room, counts, ends), (y, total) = node.inputs, node.outputs
    assert room is not None and counts is not None and ends is not None
    segments, size, width = room.shape
    assert isinstance(width, int)
    top = upper(size)
    row = code.local("row", 0, None if top is None else max(top - 1, 0), False)
    place = code.local("place", 0, None, False)
    with code.nested([f"if ({code.c(item)} < {code.c(segments)}) {{"], element=False):
        end, mine = code.value(ends, (item,)).text, code.value(counts, (item,)).text
        opening = f"for (index_t row = 0, place = index_t({end} - {mine}); row < {mine}; ++row, ++place) {{"
        with code.nested([opening], element=False):
            for part in range(width):
                code.store(y, (place, part), code.value(room, (item, row, part)))
    with code.nested([f"if ({code.c(item)} == {code.c(segments)}) {{"], element=False):
        code.emit("int64_t all = 0;", True)
        with code.nested([f"if ({code.c(segments)} > 0) {{"], element=False):
            code.emit(f"all = {code.value(ends, (segments - 1,)).text};", True)
        code.store(total, (0,), Ref("all", False, True))


def _segments_and_one(node: Node, target: Target) -> Dim:
    """One item for the total: there may be no segment."""
    return node.input.shape[0] + 1


SERIAL.add("PackRows", SerialRule(_segments_and_one, _pack))


def _unique(code: FunctorBuilder, node: Node, item: Dim, target: Target) -> None:
    x, a = node.input, node.attrs
    y, first, inverse, counts, count, memory = node.outputs
    dtype = x.type.dtype
    n = product(x.shape) if a.axis is None else x.shape[a.axis]
    rest = () if a.axis is None else tuple(d for k, d in enumerate(x.shape) if k != a.axis)
    row, column, group = (code.local(name, 0, None, False) for name in ("row", "column", "group"))

    def at(r: Dim, k: Dim) -> tuple[Dim, ...]:
        if a.axis is None:
            return unflatten(r, x.shape)
        index = list(unflatten(k, rest))
        index.insert(a.axis, r)
        return tuple(index)

    with code.nested(["const auto at = [&](index_t row, [[maybe_unused]] index_t column) {"], element=False, closing="};"):
        code.emit(f"return {code.value(x, at(row, column)).text};", False)
    with code.nested(["const auto keep = [&](index_t group, index_t row, int64_t count) {"], element=False, closing="};"):
        code.store(first, (group,), _integer("row"))
        code.store(counts, (group,), _integer("count"))
        with code.nested([f"for (index_t column = 0; column < {code.c(product(rest))}; ++column) {{"], element=False):
            target_index = (group,) if a.axis is None else at(group, column)
            code.store(y, target_index, Ref("at(row, column)", False, True))
    with code.nested(["const auto belongs = [&](index_t row, index_t group) {"], element=False, closing="};"):
        code.store(inverse, (row,), _integer("group"))
    form = f"unique<{str(a.sorted).lower()}, {dtype.compute_c}>"
    call = f"{form}(at, index_t({code.c(n)}), index_t({code.c(product(rest))}), {_memory(code, memory)}, keep, belongs)"
    code.store(count, (0,), _integer(call))


SERIAL.add("UniqueRoom", SerialRule(_one, _unique, ("aitc/generic/unique.h",)))


def _boxes(code: FunctorBuilder, node: Node, item: Dim, target: Target) -> None:
    boxes, scores, limit, overlap, threshold = node.inputs
    assert boxes is not None and scores is not None and limit is not None and overlap is not None
    kept, counts, memory = node.outputs
    batch, kind = unflatten(item, scores.shape[:2])
    n = scores.shape[2]
    most, iou = code.value(limit, ()).text, code.value(overlap, ()).text
    least = code.value(threshold, ()).text if threshold is not None else "-inf_of<float>()"
    code.emit("index_t found = 0;", True)
    found, i, k = (code.local(name, 0, None, False) for name in ("found", "box", "part"))
    with code.nested(["const auto corner = [&](index_t box, index_t part) {"], element=False, closing="};"):
        code.emit(f"return float({code.value(boxes, (batch, i, k)).text});", False)
    with code.nested(["const auto score = [&](index_t box) {"], element=False, closing="};"):
        code.emit(f"return float({code.value(scores, (batch, kind, i)).text});", False)
    form, own = f"suppress<{str(node.attrs.centers).lower()}, index_t>", f"{_memory(code, memory)} + {code.c(item * n)}"
    opening = f"{form}(corner, score, index_t({code.c(n)}), {most}, {iou}, {least}, {own}, [&](index_t box) {{"
    with code.nested([opening], element=False, closing="});"):
        for part, at in enumerate((batch, kind, i)):
            code.store(kept, (item, found, part), _integer(code.c(at)))
        code.emit("++found;", False)
    code.store(counts, (item,), _integer("found"))


SERIAL.add("NonMaxSuppressionRoom", SerialRule(_segments, _boxes, ("aitc/generic/nms.h",)))
