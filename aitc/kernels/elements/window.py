"""Ops that read a small window of the input for each output element: pools and Resize."""

from __future__ import annotations

from typing import Any

from aitc.ir.dim import Dim, bounds, floordiv, product, upper
from aitc.ir.graph import Node, Value
from aitc.ir.index import Index, flatten
from aitc.kernels.core.functor import ELEMENTS, FunctorBuilder, Ref
from aitc.kernels.core.spelling import literal, note


def pool(code: FunctorBuilder, node: Node, v: Value, index: Index) -> Ref:
    """Loops over the window; elements outside the input are left out."""
    a, x = node.attrs, node.input
    dtype = v.type.dtype
    c_type = dtype.compute_c
    space = len(a.kernel)
    loops: list[str] = []
    source: list[Dim] = [index[0], index[1]]
    tests: list[str] = []
    counted: list[str] = []
    element = any(code.varies(i) for i in index[2:])
    # The largest element stays the largest if the border's are seen twice: no branches, all loads under way at once.
    clamped = a.function == "max" and not element and all(d == 1 for d in a.dilations) and _reach(a, x)
    places: list[tuple[int, str]] = []
    taps = 1
    for axis in range(space):
        taps *= a.kernel[axis]
        name = code.fresh("r")
        r = code.local(name, 0, a.kernel[axis] - 1, varies=False) if a.kernel[axis] > 1 else 0
        if a.kernel[axis] > 1:
            loops.append(f"for (int {name} = 0; {name} < {a.kernel[axis]}; ++{name}) {{")
        start = index[2 + axis] * a.strides[axis] - a.pads[axis]
        i = start + r * a.dilations[axis]
        source.append(i)
        text = code.c(i, element=element)
        extent = x.shape[2 + axis]
        below = bounds(i)[0] < 0
        last = (a.out[axis] - 1) * a.strides[axis] - a.pads[axis] + (a.kernel[axis] - 1) * a.dilations[axis]
        beyond = bounds(extent - 1 - last)[0] < 0
        if clamped and (below or beyond):
            places.append((axis, f"clamp_index({text}, index_t({code.c(extent)}))"))
        else:
            tests += [f"{text} >= 0"] * below + [f"{text} < {code.c(extent)}"] * beyond
        reach = extent + a.pads[space + axis]
        if bounds(reach - 1 - last)[0] < 0:
            counted.append(f"{text} < {code.c(reach)}")
    start_value = {"max": f"lowest_of<{c_type}>()", "average": literal(0, dtype), "lp": literal(0, dtype)}[a.function]
    acc = code.accumulators(c_type, start_value)
    divisor = str(taps)
    varying = a.function == "average" and (bool(counted) if a.count_include_pad else bool(tests))
    if varying:
        divisor = code.fresh("n")
        if element:
            divisor = code.accumulators("int", "0")
        else:
            code.emit(f"int {divisor} = 0;", True)
    opened = list(loops)
    if varying and a.count_include_pad:
        with code.nested([*loops, *([f"if ({' && '.join(counted)}) {{"] if counted else [])], element=element):
            code.emit(f"++{divisor};", not element)
    if tests:
        opened.append(f"if ({' && '.join(tests)}) {{")
    with code.nested(opened, element=element):
        for axis, text in places:
            name = code.fresh("p")
            code.emit(f"const index_t {name} = {text};", True)
            top = upper(x.shape[2 + axis])
            source[2 + axis] = code.local(name, 0, None if top is None else top - 1, varies=False)
        ref = code.value(x, tuple(source))
        if a.function == "max":
            code.emit(f"{acc} = max_nan({acc}, {ref.text});", False, note(node))
        elif a.function == "average":
            code.emit(f"{acc} += {ref.text};", False, note(node))
        else:
            power = (
                f"abs_({ref.text})"
                if a.p == 1
                else f"{ref.text} * {ref.text}"
                if a.p == 2
                else f"pow_(abs_({ref.text}), {float(a.p)}f)"
            )
            code.emit(f"{acc} += {power};", False, note(node))
        if varying and not a.count_include_pad:
            code.emit(f"++{divisor};", not element)
    if a.function == "average":
        name = code.fresh("t")
        code.emit(f"const {c_type} {name} = {acc} / {c_type}({divisor});", False)
        return Ref(name, uniform=False, outer=False)
    if a.function == "lp" and a.p != 1:
        name = code.fresh("t")
        root = f"sqrt_({acc})" if a.p == 2 else f"pow_({acc}, {1.0 / a.p!r}f)"
        code.emit(f"const {c_type} {name} = {root};", False)
        return Ref(name, uniform=False, outer=False)
    return Ref(acc, uniform=False, outer=not code.block.element)


def _reach(a: Any, x: Value) -> bool:
    """Whether every window holds an element of the input, so that those at the border hold the border's."""
    starts = zip(a.kernel, a.pads, a.out, a.strides, x.shape[2:], strict=False)
    return all(
        bounds(kernel - before)[0] > 0 and bounds(size - 1 - ((out - 1) * stride - before))[0] >= 0
        for kernel, before, out, stride, size in starts
    )


def max_pool_indices(code: FunctorBuilder, node: Node, v: Value, index: Index) -> Ref:
    """The place of the largest element of the window (the first of equal ones) in the flattened input."""
    a, x = node.attrs, node.input
    c_type = x.type.dtype.compute_c
    space = len(a.kernel)
    loops, tests = [], []
    source: list[Dim] = [index[0], index[1]]
    for axis in range(space):
        name = code.fresh("r")
        r = code.local(name, 0, a.kernel[axis] - 1, varies=False)
        loops.append(f"for (int {name} = 0; {name} < {a.kernel[axis]}; ++{name}) {{")
        i = index[2 + axis] * a.strides[axis] - a.pads[axis] + r * a.dilations[axis]
        source.append(i)
        text = code.c(i, element=True)
        tests.append(f"{text} >= 0 && {text} < {code.c(x.shape[2 + axis])}")
    best = code.accumulators(c_type, f"lowest_of<{c_type}>()")
    place = code.accumulators("int64_t", "-1")
    with code.nested([*loops, f"if ({' && '.join(tests)}) {{"], element=True):
        ref = code.value(x, tuple(source))
        position = flatten((index[0], index[1]), x.shape[:2]) * product(x.shape[2:])
        inner = tuple(reversed(source[2:])) if a.column_major else tuple(source[2:])
        extents = tuple(reversed(x.shape[2:])) if a.column_major else x.shape[2:]
        at = code.c(position + flatten(inner, extents), element=True)
        with code.nested([f"if ({place} < 0 || {ref.text} > {best}) {{"], element=True):
            code.emit(f"{best} = {ref.text};", False)
            code.emit(f"{place} = {at};", False)
    return Ref(place, uniform=False, outer=not code.block.element)


def resize(code: FunctorBuilder, node: Node, v: Value, index: Index) -> Ref:
    """Nearest and linear sampling axis by axis; whole-number upsampling of nearest is an index division."""
    a, x = node.attrs, node.input
    given_scales, given_roi = (*node.inputs[1:3], None, None)[:2]  # those that only the data decides
    dtype = v.type.dtype
    taps: list[tuple[int, str]] = []
    source: list[Dim] = list(index)
    loops: list[str] = []
    weights: list[str] = []
    element_any = False
    for axis in range(v.type.rank):
        size_in, size_out, scale = x.shape[axis], v.shape[axis], a.scales[axis]
        same = size_in == size_out and (scale in (0, 1) or not scale) and given_scales is None
        if same and a.coordinates != "tf_crop_and_resize":
            continue
        factor = None if given_scales is not None else whole_factor(a, size_in, size_out, scale)
        if factor is not None:
            source[axis] = floordiv(index[axis], factor)
            continue
        varies = code.varies(index[axis])
        element_any = element_any or varies
        name = code.fresh("z")
        ratio = repr(float(scale)) + "f" if scale else f"float({code.c(size_out)}) / float({code.c(size_in)})"
        if given_scales is not None:
            ratio = f"float({code.value(given_scales, (axis,)).text})"
        roi = ""
        if a.coordinates == "tf_crop_and_resize" and given_roi is not None:
            roi = "".join(f", float({code.value(given_roi, (place,)).text})" for place in (axis, v.type.rank + axis))
        elif a.coordinates == "tf_crop_and_resize":
            roi = f", {a.roi[axis]!r}f, {a.roi[v.type.rank + axis]!r}f"
        code.emit(
            f"const ResizeAxis<ResizeMode::{a.mode}, ResizeCoordinates::{a.coordinates}, ResizeNearest::{a.nearest}, {str(a.antialias).lower()}, "
            f"{str(a.exclude_outside).lower()}> {name}({code.c(index[axis], element=varies)}, {code.c(size_in)}, "
            f"{code.c(size_out)}, {ratio}, {a.cubic_a!r}f{roi});",
            not varies, note(node),
        )  # fmt: skip
        top = upper(size_in)
        if a.mode == "nearest":
            position = code.fresh("p")
            code.emit(f"const index_t {position} = {name}.index(0);", not varies)
            source[axis] = code.local(position, 0, None if top is None else top - 1, varies)
            if a.coordinates == "tf_crop_and_resize":
                weights.append(f"{name}.inside()")
        else:
            tap = code.fresh("r")
            loops.append(f"for (int {tap} = 0; {tap} < {name}.count(); ++{tap}) {{")
            taps.append((axis, f"{name}.index({tap})"))
            weights.append(f"{name}.weight({tap})")
    if not loops and not weights:
        return code.value(x, tuple(source))
    crop = a.coordinates == "tf_crop_and_resize"
    if not loops:  # nearest with extrapolation
        ref = code.value(x, tuple(source))
        name = code.fresh("t")
        code.emit(
            f"const {dtype.compute_c} {name} = {' && '.join(weights)} ? {ref.text} : {literal(a.extrapolation, dtype)};",
            False,
        )
        return Ref(name, uniform=False, outer=False)
    sum_type = "double" if dtype.compute_c == "double" else "float"
    acc = code.accumulators(sum_type, "0")
    with code.nested(loops, element=element_any):
        for axis, text in taps:
            position = code.fresh("p")
            code.emit(f"const index_t {position} = {text};", not element_any)
            top = upper(x.shape[axis])
            source[axis] = code.local(position, 0, None if top is None else top - 1, element_any)
        ref = code.value(x, tuple(source))
        code.emit(f"{acc} += {' * '.join(weights)} * {sum_type}({ref.text});", False)
    value = acc
    if crop:
        inside = " && ".join(w.split(".")[0] + ".inside()" for w in weights)
        value = f"({inside} ? {acc} : {sum_type}({literal(a.extrapolation, dtype)}))"
    if dtype.is_integer:
        value = f"round_saturate<{dtype.compute_c}>({value})"
    elif value == acc and sum_type == dtype.compute_c:
        return Ref(acc, uniform=False, outer=not code.block.element)
    name = code.fresh("t")
    code.emit(f"const {dtype.compute_c} {name} = {value};", False)
    return Ref(name, uniform=False, outer=False)


def whole_factor(a: Any, size_in: Dim, size_out: Dim, scale: float) -> int | None:
    """The factor of nearest upsampling by a whole number, where every mode picks element i // factor."""
    if a.mode != "nearest":
        return None
    exact = a.coordinates == "asymmetric" and a.nearest in ("floor", "outward")
    middle = a.coordinates in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric") and a.nearest in (
        "round_prefer_floor",
        "round_prefer_ceil",
    )
    if not (exact or middle):
        return None
    for factor in (2, 3, 4, 8):
        if size_out == size_in * factor and scale in (0, factor):
            return factor
    return None


ELEMENTS.add("Pool", pool)
ELEMENTS.add("MaxPoolIndices", max_pool_indices)
ELEMENTS.add("Resize", resize)
