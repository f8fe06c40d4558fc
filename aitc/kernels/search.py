"""Serial rules of NonZero, Unique and NonMaxSuppression with room for all results: one work item goes through everything in order."""

from __future__ import annotations

from aitc.ir.dim import Dim, product
from aitc.ir.graph import Node, Value
from aitc.ir.index import unflatten
from aitc.kernels.functor import FunctorBuilder, Ref
from aitc.kernels.serial import SERIAL, SerialRule, loop
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
    x, (places, count) = node.input, node.outputs
    code.emit("index_t found = 0;", True)
    found = code.local("found", 0, None, False)
    opening, r = loop(code, product(x.shape))
    with code.nested([opening], element=False):
        index = unflatten(r, x.shape)
        value = code.value(x, index)
        with code.nested([f"if ({value.text} != 0) {{"], element=False):
            for axis, at in enumerate(index):
                code.store(places, (found, axis), _integer(code.c(at)))
            code.emit("++found;", False)
    code.store(count, (0,), _integer("found"))


SERIAL.add("NonZeroRoom", SerialRule(_one, _nonzero))


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
    kept, count, memory = node.outputs
    batches, classes, n = scores.shape
    most, iou = code.value(limit, ()).text, code.value(overlap, ()).text
    least = code.value(threshold, ()).text if threshold is not None else "-inf_of<float>()"
    code.emit("index_t found = 0;", True)
    found, i, k = (code.local(name, 0, None, False) for name in ("found", "box", "part"))
    opening, batch = loop(code, batches)
    with code.nested([opening], element=False):
        inner, kind = loop(code, classes)
        with code.nested([inner], element=False):
            with code.nested(["const auto corner = [&](index_t box, index_t part) {"], element=False, closing="};"):
                code.emit(f"return float({code.value(boxes, (batch, i, k)).text});", False)
            with code.nested(["const auto score = [&](index_t box) {"], element=False, closing="};"):
                code.emit(f"return float({code.value(scores, (batch, kind, i)).text});", False)
            form = f"suppress<{str(node.attrs.centers).lower()}, index_t>"
            opening = f"{form}(corner, score, index_t({code.c(n)}), {most}, {iou}, {least}, {_memory(code, memory)}, [&](index_t box) {{"
            with code.nested([opening], element=False, closing="});"):
                for part, at in enumerate((batch, kind, i)):
                    code.store(kept, (found, part), _integer(code.c(at)))
                code.emit("++found;", False)
    code.store(count, (0,), _integer("found"))


SERIAL.add("NonMaxSuppressionRoom", SerialRule(_one, _boxes, ("aitc/generic/nms.h",)))
