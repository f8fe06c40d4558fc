"""Kinds that read many elements for one: reductions, products, convolutions, norms, attention, choices."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from random_models.kinds import BINARY, REDUCE, UNARY, Draw, axis_of, kind, need, pick, replaced, same, signed
from random_models.writer import Drawn, Size, Writer


@kind
def _reduce(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.is_float and x.rank)
    axes = draw(st.lists(st.integers(0, x.rank - 1), min_size=1, max_size=2, unique=True))
    keep = draw(st.booleans())
    sizes = [1 if i in axes else s for i, s in enumerate(x.sizes) if keep or i not in axes]
    inputs = [x, w.constant([signed(draw, a, x.rank) for a in axes], np.int64)]
    w.node(f"Reduce{pick(draw, *REDUCE)}", inputs, [sizes], keepdims=int(keep))


@kind
def _argument(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.exact and x.is_float and x.rank)
    axis, keep = axis_of(draw, x), draw(st.booleans())
    last = draw(st.integers(0, 1))
    sizes = replaced(x.sizes, axis, *([1] if keep else []))
    w.node(pick(draw, "ArgMax", "ArgMin"), [x], [sizes], axis=signed(draw, axis, x.rank), keepdims=int(keep), select_last_index=last)


@kind
def _top(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.exact and x.is_float and x.rank)
    axis = axis_of(draw, x)
    need(x.fixed(axis) and x.array.shape[axis])
    k = draw(st.integers(1, x.array.shape[axis]))
    sizes = replaced(x.sizes, axis, k)
    # of equal elements onnx.reference may take any: without indices the order does not matter
    w.node("TopK", [x, w.constant([k], np.int64)], [sizes, sizes], axis=axis, largest=draw(st.integers(0, 1)))
    del w.values[-1]


@kind
def _running_sum(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.is_float and x.rank)
    axis = w.constant(signed(draw, axis_of(draw, x), x.rank), np.int64)
    w.node("CumSum", [x, axis], [x.sizes], exclusive=draw(st.integers(0, 1)), reverse=draw(st.integers(0, 1)))


@kind
def _softmax(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.is_float)
    w.node(pick(draw, "Softmax", "LogSoftmax"), [x], [x.sizes], axis=signed(draw, axis_of(draw, x), x.rank))


@kind
def _layer_norm(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.is_float)
    axis = axis_of(draw, x)
    need(all(isinstance(s, int) for s in x.sizes[axis:]))
    shape = x.array.shape[axis:]
    bias = [w.weights(*shape)] if draw(st.booleans()) else []
    w.node("LayerNormalization", [x, w.weights(*shape), *bias], [x.sizes], axis=signed(draw, axis, x.rank), epsilon=1e-2)


@kind
def _spelled_norm(draw: Draw, w: Writer, x: Drawn) -> None:
    """As exporters spell it, over an axis."""
    need(x.is_float)
    axis = w.constant([axis_of(draw, x)], np.int64)
    row = replaced(x.sizes, int(axis.array[0]), 1)
    d = w.node("Sub", [x, w.node("ReduceMean", [x, axis], [row])[0]], [x.sizes])[0]
    q = w.node("Mul", [d, d], [x.sizes])[0] if draw(st.booleans()) else w.node("Pow", [d, w.constant(2)], [x.sizes])[0]
    v = w.node("Add", [w.node("ReduceMean", [q, axis], [row])[0], w.constant(0.01)], [row])[0]
    r = w.node("Sqrt", [v], [row])[0]
    if draw(st.booleans()):
        w.node("Div", [d, r], [x.sizes])
    else:
        w.node("Mul", [d, w.node("Reciprocal", [r], [row])[0]], [x.sizes])


@kind
def _channel_norm(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.is_float and x.rank >= 3 and x.fixed(1))
    c = x.array.shape[1]
    form = pick(draw, "InstanceNormalization", "GroupNormalization", "BatchNormalization")
    if form == "BatchNormalization":
        rest = [w.weights(c) for _ in range(3)] + [w.constant(np.abs(w.numbers([c])) + 0.5)]
        w.node(form, [x, *rest], [x.sizes])
    elif form == "GroupNormalization":
        groups = draw(st.sampled_from([g for g in range(1, c + 1) if c % g == 0]))
        w.node(form, [x, w.weights(c), w.weights(c)], [x.sizes], num_groups=groups, epsilon=1e-2)
    else:
        w.node(form, [x, w.weights(c), w.weights(c)], [x.sizes], epsilon=1e-2)


@kind
def _matmul_weights(draw: Draw, w: Writer, x: Drawn) -> None:
    """Perhaps with a bias and an activation behind it."""
    need(x.is_float and x.rank and x.fixed(-1))
    n = draw(st.integers(1, 9))
    sizes = (*x.sizes[:-1], n)
    y = w.node("MatMul", [x, w.weights(x.array.shape[-1], n, scale=0.5)], [sizes])[0]
    if draw(st.booleans()):
        y = w.node("Add", [y, w.weights(n)], [sizes])[0]
    if draw(st.booleans()):
        w.node(pick(draw, *UNARY), [y], [sizes])


@kind
def _matmul_itself(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.is_float and x.rank >= 2)
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    other = same(draw, w, x)
    t = w.node("Transpose", [other], [[other.sizes[p] for p in perm]], perm=perm)[0]
    lead = x.sizes[:-2]
    if draw(st.booleans()):
        w.node("MatMul", [x, t], [(*lead, x.sizes[-2], x.sizes[-2])])
    else:
        w.node("MatMul", [t, x], [(*lead, x.sizes[-1], x.sizes[-1])])


@kind
def _gemm(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.is_float and x.rank == 2)
    ta, tb = draw(st.integers(0, 1)), draw(st.integers(0, 1))
    need(x.fixed(0 if ta else 1))
    k, n = x.array.shape[0 if ta else 1], draw(st.integers(1, 9))
    c = w.weights(*pick(draw, (n,), (1, n), (1,), ()))
    b = w.weights(*((n, k) if tb else (k, n)), scale=0.5)
    w.node("Gemm", [x, b, c], [(x.sizes[1 if ta else 0], n)], transA=ta, transB=tb, alpha=pick(draw, 1.0, 0.5), beta=pick(draw, 1.0, 2.0))


@kind
def _attention(draw: Draw, w: Writer, x: Drawn) -> None:
    """Of x with itself, spelled, over its last two axes."""
    need(x.is_float and 2 <= x.rank <= 4)
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    square = (*x.sizes[:-1], x.sizes[-2])
    t = w.node("Transpose", [same(draw, w, x)], [[x.sizes[p] for p in perm]], perm=perm)[0]
    s = w.node("MatMul", [x, t], [square])[0]
    s = w.node(*(("Mul", [s, w.constant(0.25)]) if draw(st.booleans()) else ("Div", [s, w.constant(4)])), [square])[0]
    if draw(st.booleans()):
        size = w.node("Shape", [s], [(x.rank,)])[0]
        size = w.node("Slice", [size, w.constant([x.rank - 2], np.int64), w.constant([x.rank], np.int64)], [(2,)])[0]
        ones = w.node("Expand", [w.constant(1), size], [square[-2:]])[0]
        below = w.node("Trilu", [ones], [square[-2:]], upper=0)[0]
        kept = w.node("Cast", [below], [square[-2:]], to=9)[0]
        s = w.node("Where", [kept, s, w.constant(-10000)], [square])[0]
    p = w.node("Softmax", [s], [square], axis=-1)[0]
    w.node("MatMul", [p, same(draw, w, x)], [x.sizes])


@kind
def _convolution(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.is_float and 3 <= x.rank <= 5 and x.fixed(1))
    c, n = x.array.shape[1], x.rank - 2
    groups = draw(st.sampled_from([g for g in (1, 1, 2, c) if c % g == 0]))
    out = groups * draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 3)) for _ in range(n)]
    strides, dilations = ([draw(st.integers(1, 2)) for _ in range(n)] for _ in range(2))
    pads = [draw(st.integers(0, 2)) for _ in range(2 * n)]
    space: list[Size] = []
    for i in range(n):
        reach = (kernel[i] - 1) * dilations[i] + 1
        size, total = x.sizes[2 + i], pads[i] + pads[n + i]
        need(x.array.shape[2 + i] + total >= reach)
        same_size = strides[i] == 1 and total == reach - 1
        space.append((size + total - reach) // strides[i] + 1 if isinstance(size, int) else size if same_size else f"conv{w.count}_{i}({size})")
    bias = [w.weights(out)] if draw(st.booleans()) else []
    y = w.node(
        "Conv", [x, w.weights(out, c // groups, *kernel, scale=0.5), *bias], [(x.sizes[0], out, *space)],
        group=groups, strides=strides, dilations=dilations, pads=pads, exact=False,
    )[0]  # fmt: skip
    if draw(st.booleans()):
        w.node(pick(draw, *UNARY), [y], [y.sizes])


@kind
def _pool(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.is_float and 3 <= x.rank <= 5)
    n = x.rank - 2
    op = pick(draw, "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
    if op.startswith("Global"):
        w.node(op, [x], [(*x.sizes[:2], *[1] * n)])
        return
    kernel = [draw(st.integers(1, 3)) for _ in range(n)]
    strides = [draw(st.integers(1, 2)) for _ in range(n)]
    pads = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    ceil = draw(st.integers(0, 1)) if op == "MaxPool" else 0
    space: list[Size] = []
    for i in range(n):
        total = x.array.shape[2 + i] + pads[i] + pads[n + i] - kernel[i]
        need(total >= 0 and (not ceil or total % strides[i] == 0))
        size = x.sizes[2 + i]
        space.append(total // strides[i] + 1 if isinstance(size, int) else f"pool{w.count}_{i}({size})")
    extra = {"count_include_pad": draw(st.integers(0, 1))} if op == "AveragePool" else {}
    w.node(op, [x], [(*x.sizes[:2], *space)], kernel_shape=kernel, strides=strides, pads=pads, ceil_mode=ceil, **extra)


@kind
def _resize(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.is_float and x.rank == 4)
    factors = [pick(draw, 1, 2, 3), pick(draw, 1, 2)]
    sizes = (*x.sizes[:2], *(s * f if isinstance(s, int) else s if f == 1 else f"{f}*({s})" for s, f in zip(x.sizes[2:], factors)))
    mode = pick(draw, "nearest", "linear", "cubic")
    scales = w.constant([1, 1, *factors])
    w.node("Resize", [x, None, scales], [sizes], mode=mode, coordinate_transformation_mode=pick(draw, "asymmetric", "half_pixel"), exact=False)


@kind
def _residual(draw: Draw, w: Writer, x: Drawn) -> None:
    """Two layers around which x goes."""
    need(x.is_float and x.rank and x.fixed(-1))
    n = x.array.shape[-1]
    h = w.node("MatMul", [x, w.weights(n, 5, scale=0.5)], [(*x.sizes[:-1], 5)])[0]
    h = w.node(pick(draw, *UNARY), [h], [h.sizes])[0]
    y = w.node("MatMul", [h, w.weights(5, n, scale=0.5)], [x.sizes])[0]
    w.node(pick(draw, *BINARY), [y, x], [x.sizes])


@kind
def _depth(draw: Draw, w: Writer, x: Drawn) -> None:
    need(x.rank == 4 and x.fixed(1) and x.array.shape[1] % 4 == 0 and x.is_float)
    c = x.array.shape[1]
    sizes = (x.sizes[0], c // 4, *(s * 2 if isinstance(s, int) else f"2*({s})" for s in x.sizes[2:]))
    w.node("DepthToSpace", [x], [sizes], blocksize=2, mode=pick(draw, "DCR", "CRD"))
