"""A layer norm between matrix products is no launch: the product before it stores statistics beside its results, those behind it apply them.

With W' = gamma W, LN(x) W + beta W = ((x W') - mean · colsum(W')) · inverse + beta W: the product reads x itself, and its epilogue does the rest. The column
sums are those of W' as it is stored, so that what the mean contributes is taken out again to the last bit of a float sum, however large it is beside the
deviation. A residual that adds LN(x) computes it from x and the same statistics where it is added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aitc.ir.builder import Builder
from aitc.ir.dim import hint, product
from aitc.ir.graph import Graph, Node, Value
from aitc.ir.op import Kind
from aitc.kernels.core.functor import StorageOf
from aitc.kernels.core.group import make_group
from aitc.kernels.core.kernel import KERNELS, Kernel, No, kernels_for
from aitc.schedule.core.why import Fusions
from aitc.targets.target import Target

LONGEST = 2048  # elements of a row: whoever applies the statistics merges all of its parts
READER_US = 0.4  # of a product that merges the parts of its rows, or makes them: between 0.3 and 0.8 on an H200
DESCRIBE_OPS, APPLY_OPS, ADD_OPS = 10, 3, 4  # instructions for an element of what is described, of a product that applies statistics, of a residual
WAVE_US, WAVE_ELEMS = 0.5, 128 * 160  # of a product beyond its first wave of tiles: merging waits for memory while the tensor cores do; results of a tile
LEAST_US = 0.4  # to be gained by a norm that is taken apart


@dataclass(frozen=True, slots=True)
class _Norm:
    """A norm that can be spared: its node, its input of 16 bits (which a Cast may widen for it), the product whose tail computes that, scale and
    bias, and who reads the result."""

    node: Node
    x: Value
    source: Node
    part: int
    scale: Node | None
    bias: Node | None
    result: Value
    products: tuple[Node, ...]
    addends: tuple[Node, ...]


def fold_norms(graph: Graph, storage: StorageOf, target: Target, why: Fusions) -> int:
    """Takes layer norms apart where that is faster on ``target``; returns how many. ``why`` gets the reasons of those that stay."""
    kernels = [kernel for kernel in kernels_for("MatMul", target) if kernel.moments]
    if not kernels:
        return 0
    count = 0
    for node in list(graph.nodes):
        if node.op.name != "LayerNormalization" or node.input.producer is None:
            continue
        found = _match(graph, node, storage, target)
        if isinstance(found, str):
            why.no(node.input.producer, node, found)
        else:
            graph.reorder(_rewrite(graph, found))
            graph.sweep()
            count += 1
    return count


def _match(graph: Graph, node: Node, storage: StorageOf, target: Target) -> _Norm | str:
    x, a, width = _narrow(node.input), node.attrs, node.input.shape[-1]
    if x.type.dtype.name not in ("f16", "bf16") or x.type.order is not None or a.axes != (x.type.rank - 1,):
        return "only the norm of the last axis of 16-bit elements is made of a product's statistics"
    source = _product_of(graph, x)
    if source is None:
        return "no product's epilogue computes its input"
    kernel = _kernel_of(source, storage, target)
    if kernel is None or not kernel.moments or not isinstance(width, int) or width % kernel.moments or width > LONGEST:
        return "the product before it stores no statistics of rows like these"
    scale, result = _affine(graph, _narrowed(graph, node.output, x), "Mul")
    bias, result = _affine(graph, _narrowed(graph, result, x), "Add")
    result = _narrowed(graph, result, x)
    if result.type.dtype is not x.type.dtype:
        return "its result is read in another type"
    if result in graph.outputs:
        return "its result is an output of the model"
    products = tuple(n for n in result.users if n.op.name == "MatMul")
    addends = tuple(n for n in result.users if n not in products)
    reason = next(filter(None, (_no_reader(graph, n, result, storage, target) for n in result.users)), "")
    if reason or not products:
        return reason or "no product reads its result"
    if len(addends) > 1:
        return "several epilogues would compute it again"
    norm = _Norm(node, x, source, kernel.moments, scale, bias, result, products, addends)
    return norm if _gain_us(norm, kernel, storage, target) > LEAST_US else "a launch of its own costs less than what its neighbours would lose"


def _narrow(v: Value) -> Value:
    """``v`` before a Cast that makes it wider."""
    p = v.producer
    return p.input if p is not None and p.op.name == "Cast" and p.input.type.dtype.bits < v.type.dtype.bits else v


def _narrowed(graph: Graph, v: Value, x: Value) -> Value:
    """``v`` behind the Cast to the type of ``x`` that is its only reader."""
    if v.type.dtype is x.type.dtype or len(v.users) != 1 or v in graph.outputs:
        return v
    (user,) = v.users
    return user.output if user.op.name == "Cast" and user.output.type.dtype is x.type.dtype else v


def _product_of(graph: Graph, x: Value) -> Node | None:
    """The product in whose tail ``x`` is computed: the last in the order of the nodes, since the other operands are there by then."""
    found: dict[Node, None] = {}
    stack = [x]
    while stack:
        v = stack.pop()
        p = v.producer
        if p is None or v.shape != x.shape or p not in graph:
            continue
        if p.op.name == "MatMul" and p.inputs[1] is not None and p.inputs[1].const is not None:
            found[p] = None
        elif p.op.kind is Kind.POINTWISE and (v is x or (len(v.users) == 1 and v not in graph.outputs)):
            stack += [u for u in p.inputs if u is not None]
    return next((n for n in reversed(list(graph.nodes)) if n in found), None) if found else None


def _kernel_of(node: Node, storage: StorageOf, target: Target) -> Kernel | None:
    """The kernel that will run a product."""
    alone = make_group([node], node, set())
    return next((k for k in kernels_for(node.op.name, target) if not isinstance(k.accepts(alone, storage, target), No)), None)


def _affine(graph: Graph, v: Value, op: str) -> tuple[Node | None, Value]:
    """The Mul by, or Add of, a constant row that is the only reader of ``v``, and its result; (None, v) if there is none."""
    if len(v.users) != 1 or v in graph.outputs:
        return None, v
    (user,) = v.users
    if user.op.name != op or user.output.type != v.type or _row(user, v.shape[-1]) is None:
        return None, v
    return user, user.output


def _row(node: Node, width: object) -> np.ndarray | None:
    """The constant row that ``node`` adds or multiplies by."""
    for v in node.inputs:
        if v is not None and v.const is not None and v.type.rank >= 1 and v.const.size == width == v.const.shape[-1]:
            return v.const.reshape(-1)
    return None


def _no_reader(graph: Graph, node: Node, result: Value, storage: StorageOf, target: Target) -> str:
    """Why ``node`` needs the norm's result in memory; "" if it does not."""
    if node.op.name == "MatMul":
        w, kernel = node.inputs[1], _kernel_of(node, storage, target)
        if node.input is not result or w is None or w is result or w.const is None or w.const.ndim != 2 or node.attrs.out is not None:
            return "a product reads it that has no constant matrix"
        return "" if kernel is not None and kernel.moments else "a product reads it whose kernel merges no statistics"
    if node.op.kind is Kind.POINTWISE and node.output.shape == result.shape and len(node.inputs) == 2:
        other = node.inputs[1] if node.inputs[0] is result else node.inputs[0]
        if other is not None and other is not result and _product_of(graph, other) is not None:
            return ""
    return "who reads it is no epilogue of a product"


def _gain_us(norm: _Norm, kernel: Kernel, storage: StorageOf, target: Target) -> float:
    """Microseconds saved: the norm's launch, less what its neighbours' epilogues take for it, and what they lose where fewer configurations can."""
    tail = [n for n in (norm.scale, norm.bias) if n is not None]
    own = KERNELS["normalize"]
    problem = own.accepts(make_group([norm.node, *tail], norm.node, set()), storage, target)
    assert not isinstance(problem, No)
    us = min(own.score_us(problem, c, target) for c in own.configs(problem, target))
    us -= _lost_us(norm.source, kernel, storage, target, moments=True)
    elems = hint(product(norm.node.output.shape))
    ops = elems * (DESCRIBE_OPS + ADD_OPS * len(norm.addends))
    for node in norm.products:
        us -= _lost_us(node, kernel, storage, target, merges=True)
        results = hint(product(node.output.shape))
        ops += results * APPLY_OPS
        us -= WAVE_US * max(0.0, results / (WAVE_ELEMS * max(target.units, 1)) - 1)
    rate = target.tflops.get("fp32", 1.0) * 0.5e6  # instructions a microsecond
    return us - ops / rate - READER_US * (1 + len(norm.products) + len(norm.addends))


def _lost_us(node: Node, kernel: Kernel, storage: StorageOf, target: Target, **flags: bool) -> float:
    """How much slower a product is in the configurations that are left to it with ``flags`` of its problem."""
    problem = kernel.accepts(make_group([node], node, set()), storage, target)
    assert not isinstance(problem, No)

    def best(p: Any) -> float:
        return min((kernel.score_us(p, c, target) for c in kernel.configs(p, target)), default=float("inf"))

    return best(replace(problem, **flags)) - best(problem)


def _rewrite(graph: Graph, norm: _Norm) -> list[Node]:
    node, x = norm.node, norm.x
    width = int(x.shape[-1])  # type: ignore[arg-type]
    scale, bias = (_row(n, width) if n is not None else None for n in (norm.scale, norm.bias))
    made: list[Node] = []
    b = Builder(graph, node.locs, place=False)
    parts = b.op("Moments", x, part=norm.part)
    made += b.made
    for reader in norm.products:
        made += _product(graph, reader, x, parts, norm, scale, bias)
    if norm.addends:
        b = Builder(graph, node.locs, place=False)
        y = b.op("Standardize", x, *_statistics(b, parts, norm))
        if node.output.type.dtype is not x.type.dtype:
            y = b.op("Cast", y, to=node.output.type.dtype)
        graph.replace_uses(node.output, y)
        made += b.made
    return made


def _factor(weights: np.ndarray) -> float:
    """A power of two that brings weights to where half precision has all its digits; 1 if they are."""
    largest = float(np.abs(weights).max(initial=0.0))
    if largest == 0 or not np.isfinite(largest) or 2.0**-8 <= largest <= 2.0**8:
        return 1.0
    return float(2.0 ** np.clip(-np.round(np.log2(largest)), -14, 14))


def _statistics(b: Builder, parts: Value, norm: _Norm) -> Iterator[Value]:
    """Mean and inverse deviation of each row, for one reader: each merges the parts by itself."""
    merged = b.op("MergedMoments", parts, part=norm.part, epsilon=norm.node.attrs.epsilon, center=norm.node.attrs.center)
    rank = merged.type.rank
    for i in (0, 1):
        yield b.op("Slice", merged, starts=(*(0 for _ in range(rank - 1)), i), sizes=(*merged.shape[:-1], 1), steps=(1,) * rank)


def _product(
    graph: Graph, node: Node, x: Value, parts: Value, norm: _Norm, scale: np.ndarray | None, bias: np.ndarray | None
) -> list[Node]:
    """``node`` as a product of ``x`` itself. Where a constant row is added behind it, that takes in what the norm's bias gives."""
    w = node.inputs[1]
    assert w is not None and w.const is not None
    b = Builder(graph, tuple(dict.fromkeys((*norm.node.locs, *node.locs))), place=False)
    wide = w.const.astype(np.float32)
    wide = wide if scale is None else wide * scale.astype(np.float32)[:, None]
    factor = _factor(wide)
    scaled = (wide * np.float32(factor)).astype(w.const.dtype)
    sums = scaled.astype(np.float64).sum(axis=0).astype(np.float32)
    mean, inverse = _statistics(b, parts, norm)
    y = b.op("MatMul", x, b.constant(scaled, name="scaled"), out=None)
    y = b.op("Standardize", y, b.op("Mul", mean, b.constant(sums, name="sums")) if norm.node.attrs.center else mean, inverse)
    if factor != 1:
        y = b.op("Mul", y, b.like(1 / factor, y))
    last = node
    if bias is not None:
        row = bias.astype(np.float64) @ w.const.astype(np.float64)
        add, _ = _affine(graph, node.output, "Add")
        if add is not None:
            own = _row(add, node.output.shape[-1])
            assert own is not None
            row, last = row + own.astype(np.float64), add
            b.locs = tuple(dict.fromkeys((*b.locs, *add.locs)))
        y = b.op("Add", y, b.constant(row.astype(w.const.dtype), name="bias"))
    graph.replace_uses(last.output, y)
    return b.made
