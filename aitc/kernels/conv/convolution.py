"""What the convolution kernels share: how a Conv looks to them, in one, two or three dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from aitc.ir.dim import Dim, Symbol, divisor, product
from aitc.ir.graph import Node, Value
from aitc.ir.index import Index, is_view, unflatten
from aitc.ir.types import TensorType
from aitc.kernels.core.functor import StorageOf
from aitc.kernels.core.kernel import No, coordinate, dim_of
from aitc.kernels.core.sites import linear, locate


def channels_last(rank: int) -> tuple[int, ...]:
    """The storage order N, space …, C of a tensor with axes N, C, space …"""
    return (0, *range(2, rank), 1)


@dataclass(frozen=True, slots=True)
class ConvProblem:
    """D[N, O, P, Q, K] = conv(X[N, D, H, W, C]); ``C`` and ``K`` are per group. Window entries are (depth, height, width)."""

    dtype: str
    N: Dim
    input: tuple[Dim, Dim, Dim]
    output: tuple[Dim, Dim, Dim]
    C: int
    K: int
    group: int
    window: tuple[int, int, int]
    stride: tuple[int, int, int]
    dilation: tuple[int, int, int]
    pad: tuple[Dim, Dim, Dim]
    align: int

    def __str__(self) -> str:
        x = "x".join
        return (
            f"{self.dtype} n{self.N} {x(map(str, self.input))} c{self.C} k{self.K} g{self.group} w{x(map(str, self.window))} "
            f"s{x(map(str, self.stride))} d{x(map(str, self.dilation))} p{x(map(str, self.pad))} a{self.align}"
        )

    @property
    def pixels(self) -> Dim:
        return product((self.N, *self.output))


@dataclass(frozen=True, slots=True)
class ConvForm:
    """A Conv in a kernel's coordinates: ``group``, ``row`` (flattened n, o, p, q), ``col`` (output channel within the group)."""

    node: Node
    problem: ConvProblem
    coords: tuple[Symbol, Symbol, Symbol]
    index: Index
    root: Value  # behind the input
    offset: Dim
    strides: tuple[Dim, Dim, Dim, Dim]  # n, d, h, w in elements


def static(shape: tuple[Dim, ...]) -> tuple[int, ...]:
    """A shape that is known when compiling."""
    return tuple(d for d in shape if isinstance(d, int))


def three(values: tuple, fill: int) -> tuple:
    """Axes of space padded to (depth, height, width) in front."""
    return (*(fill for _ in range(3 - len(values))), *values)


def conv_form(node: Node, storage: StorageOf, depthwise: bool = False, part: int | None = None) -> ConvForm | No:
    """The form of Conv ``node``, or why it has none; the input must be channels-last.

    With ``depthwise`` (one channel a group) ``col`` runs over all channels and ``group`` is always 0. ``part``: of two that add up, which; None
    where there must not be two.
    """
    if node.attrs.also and part is None:
        return No("two convolutions that add up")
    which = part or 0
    x, w = node.inputs[2 * which : 2 * which + 2]
    assert x is not None and w is not None
    a = node.attrs.part(which)
    space = len(a.strides)
    if space > 3:
        return No(f"{space} axes of space; at most 3 are supported")
    if not all(isinstance(d, int) for d in w.shape):
        return No("the filter has symbolic dims")
    group = a.group
    filters, C, *window = static(w.shape)
    K = filters // group
    n = coordinate("n", x.shape[0])
    c = coordinate("c", x.shape[1])
    spots = [coordinate(name, d) for name, d in zip(("d", "h", "w")[3 - space :], x.shape[2:], strict=True)]
    root, offset = locate(x, (dim_of(n), dim_of(c), *(dim_of(s) for s in spots)), storage)
    form = linear(offset, (n, c, *spots))
    if form is None or (form[1][1] != 1 and x.shape[1] != 1):
        return No("the input is not stored channels-last", ((2 * which, channels_last(x.type.rank)),))
    rest, (sn, _, *rest_strides) = form
    strides = (sn, *three(tuple(rest_strides), 0))
    out = node.output.shape
    pixels = product((out[0], *out[2:]))
    g = coordinate("group", group)
    row = coordinate("row", pixels)
    col = coordinate("col", group if depthwise else K)
    n_index, *space_index = unflatten(dim_of(row), (out[0], *out[2:]))
    channel = dim_of(g) * K + dim_of(col) if group > 1 and not depthwise else dim_of(col)
    index = (n_index, channel, *space_index)
    align = 0
    for s in (rest, *strides):
        align = gcd(align, divisor(s))
    problem = ConvProblem(
        x.type.dtype.name, x.shape[0], three(tuple(x.shape[2:]), 1), three(tuple(out[2:]), 1), C, K, group,
        three(tuple(window), 1), three(tuple(a.strides), 1), three(tuple(a.dilations), 1),
        three(tuple(a.pads[:space]), 0), min(gcd(align, C if group > 1 and not depthwise else 1 << 20) or 16, 16),
    )  # fmt: skip
    n_stride, d_stride, h_stride, w_stride = strides
    return ConvForm(node, problem, (g, row, col), index, root, rest, (n_stride, d_stride, h_stride, w_stride))


@dataclass(frozen=True, slots=True)
class RunTimeFilter:
    """A filter that is computed at run time, stored (groups K, T R S C): the memory behind it, and the elements before it."""

    root: Value
    offset: Dim


def run_time_filter(node: Node, storage: StorageOf) -> RunTimeFilter | No:
    """The filter of ``node`` where it lies, if it is dense with channels innermost; else the copy that would make it so."""
    w = node.inputs[1]
    assert w is not None
    order = channels_last(w.type.rank)
    coords = [coordinate(f"w{a}", d) for a, d in enumerate(w.shape)]
    root, offset = locate(w, tuple(dim_of(c) for c in coords), storage)
    form = linear(offset, coords)
    steps = TensorType(w.type.dtype, w.shape, order).strides()
    if form is None or any(d != 1 and s != t for d, s, t in zip(w.shape, form[1], steps, strict=True)):
        return No("the filter is not stored with its channels innermost", ((1, order),))
    return RunTimeFilter(root, form[0])


def filter_root(node: Node, part: int = 0) -> Value | None:
    """The constant behind a convolution's filter, through its views; None if it is computed at run time."""
    root = node.inputs[2 * part + 1]
    while root is not None and root.const is None:
        root = root.producer.input if is_view(root.producer) and root.producer is not None else None
    return root
