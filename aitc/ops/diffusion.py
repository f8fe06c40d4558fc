"""What onnxruntime fuses the layers of image generators into, most of it with the channels last."""

from __future__ import annotations

from typing import Annotated

from aitc.ir import dim as d
from aitc.ir.graph import Value
from aitc.ops import declare
from aitc.ops.attribute import AutoPad, Counts, Finite, FusedActivation, Positive, Positives, Range
from aitc.ops.contract import convolution, matmul
from aitc.ops.contrib import MS, activated
from aitc.ops.declare import Scope, along_channel, cast, onnx_op, transpose
from aitc.ops.normalize import affine, stash
from aitc.ops.pool import max_pool

SILU = Annotated[int, Range(0, 1)]  # what follows a norm: nothing, or SiLU
FLOAT = 1  # TensorProto.FLOAT


def channels_first(b: Scope, x: Value) -> Value:
    """[N, space..., C] as [N, C, space...]."""
    rank = x.type.rank
    return transpose(b, x, (0, rank - 1, *range(1, rank - 1)))


def channels_last(b: Scope, x: Value) -> Value:
    """[N, C, space...] as [N, space..., C]."""
    return transpose(b, x, (0, *range(2, x.type.rank), 1))


def _normalized(
    b: Scope, x: Value, gamma: Value, beta: Value, groups: int, epsilon: float, silu: bool, last: bool
) -> Value:
    """A group norm, computed in float32 where the data are narrower."""
    if x.type.rank < 3:
        raise ValueError(f"a group norm has a batch axis, channels and space, not {x.type}")
    y = channels_first(b, x) if last else x
    shape = n, c, *space = y.shape
    if isinstance(c, int) and c % groups:
        raise ValueError(f"{c} channels do not divide into groups = {groups}")
    wide = stash(x.type.dtype, FLOAT)
    y = cast(b, declare.reshape(b, y, (n, groups, d.floordiv(c, groups), *space)), wide)
    y = b.op("LayerNormalization", y, axes=tuple(range(2, len(space) + 3)), epsilon=epsilon, center=True)
    scale, shift = (along_channel(b, cast(b, v, wide), len(shape)) for v in (gamma, beta))
    y = affine(b, declare.reshape(b, y, shape), scale, shift)
    y = cast(b, b.op("Silu", y) if silu else y, x.type.dtype)
    return channels_last(b, y) if last else y


@onnx_op("GroupNorm", domain=MS)
def group_norm(
    b: Scope, x: Value, gamma: Value, beta: Value, *, groups: Positive, activation: SILU, channels_last: int = 1,
    epsilon: Finite = 1e-5,
) -> Value:  # fmt: skip
    return _normalized(b, x, gamma, beta, groups, epsilon, bool(activation), bool(channels_last))


@onnx_op("SkipGroupNorm", domain=MS)
def skip_group_norm(
    b: Scope, x: Value, gamma: Value, beta: Value, skip: Value, bias: Value | None = None, *, groups: Positive,
    activation: SILU, channels_last: int = 1, epsilon: Finite = 1e-5,
) -> tuple[Value, Value]:  # fmt: skip
    """``skip`` is of x's shape, or [N, C] for all places of an image."""
    axis = x.type.rank - 1 if channels_last else 1
    if skip.type.rank == 2:
        skip = declare.unsqueeze(b, skip, (i for i in range(x.type.rank) if i not in (0, axis)))
    total = b.op("Add", x, skip)
    if bias is not None:
        total = b.op("Add", total, along_channel(b, bias, x.type.rank, axis))
    return _normalized(b, total, gamma, beta, groups, epsilon, bool(activation), bool(channels_last)), total


@onnx_op("BiasSplitGelu", domain=MS)
def bias_split_gelu(b: Scope, x: Value, bias: Value) -> Value:
    """The first half of the last axis times the Gelu of the second."""
    y = b.op("Add", x, bias)
    axis = x.type.rank - 1
    if isinstance(x.shape[axis], int) and x.shape[axis] % 2:
        raise ValueError(f"the last axis of {x.type} has no two halves")
    half = d.floordiv(x.shape[axis], 2)
    left, right = (declare.slice_axis(b, y, axis, start, half) for start in (0, half))
    return b.op("Mul", left, b.op("Gelu", right, approximate="none"))


@onnx_op("BiasAdd", domain=MS)
def bias_add(b: Scope, x: Value, bias: Value, skip: Value) -> Value:
    return b.op("Add", b.op("Add", x, bias), skip)


@onnx_op("GemmFastGelu", domain=MS)
def gemm_fast_gelu(b: Scope, x: Value, w: Value, bias: Value | None = None) -> Value:
    y = matmul(b, x, w)
    return b.op("Gelu", y if bias is None else b.op("Add", y, bias), approximate="tanh")


@onnx_op("NhwcConv", domain=MS)
def nhwc_conv(
    b: Scope, x: Value, w: Value, bias: Value | None = None, *, auto_pad: AutoPad = "NOTSET",
    dilations: Positives | None = None, group: Positive = 1, kernel_shape: Positives | None = None,
    pads: Counts | None = None, strides: Positives | None = None,
) -> Value:  # fmt: skip
    """Data and filter [M, space..., C / group] have their channels last."""
    first = channels_first(b, x), channels_first(b, w)
    return channels_last(b, convolution(b, *first, bias, auto_pad, dilations, group, kernel_shape, pads, strides))


@onnx_op("NhwcFusedConv", domain=MS)
def nhwc_fused_conv(
    b: Scope, x: Value, w: Value, bias: Value | None = None, z: Value | None = None, *, activation: FusedActivation = "",
    activation_params: tuple[float, ...] = (), auto_pad: AutoPad = "NOTSET", dilations: Positives | None = None,
    group: Positive = 1, kernel_shape: Positives | None = None, pads: Counts | None = None,
    strides: Positives | None = None,
) -> Value:  # fmt: skip
    """The data have their channels last, the filter is one of Conv."""
    y = convolution(b, channels_first(b, x), w, bias, auto_pad, dilations, group, kernel_shape, pads, strides)
    y = channels_last(b, y)
    return activated(b, y if z is None else b.op("Add", y, z), activation, activation_params)


@onnx_op("NhwcMaxPool", domain=MS)
def nhwc_max_pool(
    b: Scope, x: Value, *, kernel_shape: Positives, auto_pad: AutoPad = "NOTSET", ceil_mode: int = 0,
    dilations: Positives | None = None, pads: Counts | None = None, strides: Positives | None = None,
) -> Value:  # fmt: skip
    y, _ = max_pool(
        b, channels_first(b, x), kernel_shape=kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations,
        pads=pads, strides=strides,
    )  # fmt: skip
    assert y is not None
    return channels_last(b, y)
