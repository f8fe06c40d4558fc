"""A model whose every floating result is moved by about one rounding: how far its outputs then move is how much it amplifies rounding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.shape_inference

from aitc.verify.reference import Reference, graphs, without_weights

_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
# These choose or move values, or give whole numbers: nothing is rounded.
_EXACT = frozenset(
    "Abs ArgMax ArgMin Cast CastLike Ceil Clip Compress Concat Constant ConstantOfShape DepthToSpace Dropout Expand EyeLike Flatten Floor "
    "Gather GatherElements GatherND GlobalMaxPool Identity Max MaxPool MaxUnpool Min Neg OneHot Pad ReduceMax ReduceMin Relu Reshape "
    "ReverseSequence Round ScatterElements ScatterND Shape Sign Slice SpaceToDepth Split Squeeze Tile TopK Transpose Trilu Unsqueeze "
    "Where If Loop Scan SequenceAt SplitToSequence".split()
)


def noisy(model: onnx.ModelProto, roundoff: float, seed: int) -> onnx.ModelProto:
    """A copy of ``model`` (data loaded): every float weight, and every floating result of a node of the main graph that computes, times
    1 + 2·``roundoff``·N(0, 1), drawn from ``seed``. Small whole numbers and infinities stay.

    Moving inputs and weights alone would miss what is rounded in the middle: of ``(x + 20)² - 400``, say, or at a QuantizeLinear.
    """
    rng = np.random.default_rng(seed)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for g in graphs(copy):
        for t in getattr(g, "initializer", ()):
            if t.data_type in _FLOATS:
                name = t.name
                t.CopyFrom(onnx.numpy_helper.from_array(shaken(onnx.numpy_helper.to_array(t), roundoff, rng), name))
    for suffix, dtype in (("f32", np.float32), ("f64", np.float64)):
        for word, number in (("one", 1.0), ("large", _whole_below(roundoff))):
            copy.graph.initializer.append(onnx.numpy_helper.from_array(np.array(number, dtype), f"{_CONSTANT}-{word}-{suffix}"))
    types = _types(model)
    nodes = list(copy.graph.node)
    del copy.graph.node[:]
    for i, node in enumerate(nodes):
        copy.graph.node.append(node)
        own = copy.graph.node[-1]
        for j, name in enumerate(node.output):
            kind = types.get(name)
            if kind in _FLOATS and not (own.domain == "" and own.op_type in _EXACT):
                own.output[j] = f"{name}/aitc-plain"
                copy.graph.node.extend(_moved(own.output[j], name, int(kind), roundoff, 1000 * seed + 7 * i + j))
    return copy


def _types(model: onnx.ModelProto) -> dict[str, int]:
    try:
        inferred = onnx.shape_inference.infer_shapes(without_weights(model))
    except Exception:  # onnxruntime runs more than onnx can type
        inferred = model
    return {v.name: v.type.tensor_type.elem_type for v in (*inferred.graph.value_info, *inferred.graph.output)}


def _moved(plain: str, name: str, kind: int, roundoff: float, seed: int) -> list[onnx.NodeProto]:
    """Nodes that make ``name`` of ``plain``."""

    def step(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
        known = {"plain": plain, "result": name}
        names = [known.get(n, n if n.startswith(_CONSTANT) else f"{name}/aitc-{n}") for n in (*inputs.split(), output)]
        return onnx.helper.make_node(op, names[:-1], names[-1:], **attributes)

    steps, value = [], "plain"
    if kind == onnx.TensorProto.FLOAT16:
        steps, value = [step("Cast", value, "wide", to=onnx.TensorProto.FLOAT)], "wide"
    suffix = "-f64" if kind == onnx.TensorProto.DOUBLE else "-f32"
    one, large = f"{_CONSTANT}-one{suffix}", f"{_CONSTANT}-large{suffix}"
    computed = onnx.TensorProto.DOUBLE if kind == onnx.TensorProto.DOUBLE else onnx.TensorProto.FLOAT
    steps += [
        step("RandomNormalLike", value, "draw", mean=0.0, scale=2 * roundoff, seed=float(seed), dtype=computed),
        # operators as every opset since 7 has them: no Where, no Equal of floats; infinity is not whole, and times 1 + a little
        step("Floor", value, "floor"),
        step("Sub", f"{value} floor", "fraction"),
        step("Abs", value, "size"),
        step("Less", f"size {large}", "small"),
        step("Cast", "fraction", "broken", to=onnx.TensorProto.BOOL),
        step("Not", "broken", "whole"),
        step("And", "whole small", "kept"),
        step("Not", "kept", "moves"),
        step("Cast", "moves", "moving", to=computed),
        step("Mul", "draw moving", "little"),
        step("Add", f"little {one}", "factor"),
    ]
    if kind != onnx.TensorProto.FLOAT16:
        return [*steps, step("Mul", f"{value} factor", "result")]
    return [*steps, step("Mul", f"{value} factor", "moved"), step("Cast", "moved", "result", to=kind)]


_CONSTANT = "aitc-noise"


def shaken(array: np.ndarray, roundoff: float, rng: np.random.Generator) -> np.ndarray:
    """``array`` with each float moved by about ``roundoff``, relatively; small whole numbers stay."""
    if array.dtype.kind != "f" and array.dtype != ml_dtypes.bfloat16:
        return array
    wide = array.astype(np.float64)
    kept = (wide == np.floor(wide)) & (np.abs(wide) < _whole_below(roundoff))
    with np.errstate(over="ignore"):
        moved = (wide * (1 + 2 * roundoff * rng.standard_normal(array.shape))).astype(array.dtype)
        overflowed = np.isinf(moved) & np.isfinite(array)  # the least number of a type, as masks have it
    return np.asarray(np.where(kept | overflowed, array, moved))


def _whole_below(roundoff: float) -> float:
    """Larger numbers may be whole by rounding; smaller ones are counts, sizes and masks, which floats hold exactly."""
    return 0.25 / roundoff


def spreads(
    reference: Reference, feeds: Mapping[str, np.ndarray], roundoff: float, plain: Mapping[str, Any], exact_products: bool = False
) -> Iterator[tuple[dict[str, np.ndarray], dict[str, Any]]]:
    """By how much each output element has moved at the most after 1, 2, 3 ... runs with other noise, and what the last run gave;
    ``plain`` is what it moves from.

    Outputs that changed their shape in one are left out. Raises NoReference.
    """
    moved: dict[str, np.ndarray] = {}
    reshaped: set[str] = set()
    whole = reference.whole()
    seed = 0
    while True:
        rng = np.random.default_rng(seed)
        other = Reference(noisy(whole, roundoff, seed), exact_products=exact_products)
        results = other.run({n: shaken(a, roundoff, rng) for n, a in feeds.items()})
        for name, value in results.items():
            a, b = np.asarray(plain[name]), np.asarray(value)
            if a.shape != b.shape or a.dtype == object:
                reshaped.add(name)
                continue
            wide = np.complex128 if np.iscomplexobj(a) else np.float64
            with np.errstate(invalid="ignore"):
                off = np.nan_to_num(np.abs(a.astype(wide) - b.astype(wide)), nan=0.0)
            moved[name] = np.maximum(moved.get(name, np.zeros(a.shape)), off)
        yield {n: m for n, m in moved.items() if n not in reshaped}, results
        seed += 1
