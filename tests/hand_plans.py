"""Plans written by hand: what the emitter, the build and the run time are tested with, without the compiler's earlier stages."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from aitc.errors import Loc
from aitc.ir import dim as dims
from aitc.ir.dim import Dim
from aitc.ir.dtype import F32, I64
from aitc.schedule.plan.plan import (
    Buffer,
    DimArg,
    DimSource,
    KernelSource,
    Launch,
    Plan,
    PointerArg,
    Port,
    Space,
    TensorMapArg,
    Weight,
)


@dataclass(frozen=True, slots=True)
class Context:
    """What kernels/kernel.j2 asks of a context, filled by hand."""

    entry: str
    banner: tuple[str, ...]
    parameters: tuple[str, ...]
    call: tuple[str, ...]
    headers: tuple[str, ...] = ("aitc/platform.h", "aitc/types.h")
    index_type: str = "int64_t"
    shape: tuple[()] = ()
    structs: tuple[tuple[str, ...], ...] = ()
    functors: tuple[()] = ()
    threads: int = 256
    min_blocks: int = 0
    fast_math: bool = False


def kernel(
    entry: str,
    parameters: tuple[str, ...],
    members: str,
    body: str,
    construct: str,
    count: str,
    locs: tuple[Loc, ...] = (),
) -> KernelSource:
    """A map kernel whose body is the C++ statement ``body`` for element i."""
    struct = (
        "struct Body {",
        f"  {members}",
        "  template <int V> AITC_FN void operator()(int64_t i) const {",
        f"    for (int j = 0; j < V; ++j, ++i) {{ {body} }}",
        "  }",
        "};",
    )
    context = Context(
        entry, ("by hand",), parameters, (f"for_each<1>({count}, Body{{{construct}}});",), structs=(struct,)
    )
    return KernelSource(entry, "map", "v1", "kernel", context, parameters, locs)


def loc(index: int, name: str, op_type: str) -> Loc:
    return Loc("hand.onnx", "main", index, name, op_type)


def scale_then_shift(
    name: str = "hand", api: str = "cpu", target: str = "cpu", symbolic: bool = True, seed: int = 0
) -> Plan:
    """y[batch, 4] = x[batch, 4] * scale[4] + shift[4] in two launches, and n[1] = ids + 1; the third output repeats x."""
    batch: Dim = dims.symbol("batch", 1, 8) if symbolic else 2
    rng = np.random.default_rng(seed)
    scale, shift = rng.normal(size=4).astype(np.float32), rng.normal(size=4).astype(np.float32)
    members = "const float* x; const float* w; float* y;"
    pointers = ("const float* x", "const float* w", "float* y")
    mul_locs, add_locs = (loc(0, "scale", "Mul"),), (loc(1, "shift", "Add"),)
    multiply = kernel(
        "multiply_0", (*pointers, "int64_t n"), members, "y[i] = x[i] * w[i % 4];", "x, w, y", "n", mul_locs
    )
    add = kernel("add_1", (*pointers, "int n"), members, "y[i] = x[i] + w[i % 4];", "x, w, y", "n", add_locs)
    increment = kernel(
        "increment_2",
        ("const int64_t* x", "int64_t* y"),
        "const int64_t* x; int64_t* y;",
        "y[i] = x[i] + 1;",
        "x, y",
        "1",
        (loc(2, "", "Add"),),
    )
    count = dims.mul(batch, 4)
    grid, block = (dims.ceildiv(count, 256), 1, 1), (256, 1, 1)

    def binary(x: str, w: str, y: str) -> tuple[PointerArg, ...]:
        return PointerArg("x", "float", x), PointerArg("w", "float", w), PointerArg("y", "float", y, const=False)

    def unary(x: str, y: str) -> tuple[PointerArg, ...]:
        return PointerArg("x", "int64_t", x), PointerArg("y", "int64_t", y, const=False)

    blob = np.concatenate([scale, np.zeros(12, np.float32), shift]).view(np.uint8)
    return Plan(
        version=1,
        name=name,
        model="hand.onnx",
        targets=(target,),
        api=api,
        precision="model",
        dims=(DimSource("batch", "batch", 0, 0, 1, 8, 1, 2),) if symbolic else (),
        inputs=(Port("x", F32, (batch, 4), "x"), Port("token/ids:0", I64, (1,), "ids", "ids:100")),
        outputs=(Port("y", F32, (batch, 4), "y"), Port("n", I64, (1,), "n"), Port("x again", F32, (batch, 4), "x")),
        buffers=(
            Buffer("x", Space.INPUT, F32, dims.mul(count, 4), 128),
            Buffer("ids", Space.INPUT, I64, 8, 8),
            Buffer("scale", Space.WEIGHT, F32, 16, 16, 0),
            Buffer("shift", Space.WEIGHT, F32, 16, 16, 64),
            Buffer("t0", Space.ARENA, F32, dims.mul(count, 4), 128, 256),
            Buffer("y", Space.OUTPUT, F32, dims.mul(count, 4), 128),
            Buffer("n", Space.OUTPUT, I64, 8, 8),
        ),
        weights=(Weight("scale", F32, (4,), 0, 16, "", scale), Weight("shift", F32, (4,), 64, 16, "", shift)),
        kernels=(multiply, add, increment),
        launches=(
            Launch("multiply_0", "multiply_0", (*binary("x", "scale", "t0"), DimArg("n", count)), grid, block, locs=multiply.locs),
            Launch(
                "add_1", "add_1", (*binary("t0", "shift", "y"), DimArg("n", count, "int")), grid, block,
                locs=add.locs, note="in a launch of its own", overlap=api == "cuda",
            ),
            Launch("increment_2", "increment_2", unary("ids", "n"), (1, 1, 1), (32, 1, 1), locs=increment.locs),
        ),
        arena_bytes=512,
        weights_bytes=80,
        weights_digest=hashlib.sha256(blob.tobytes()).hexdigest(),
        statistics=(("nodes", 3),),
    )  # fmt: skip


def expected(plan: Plan, x: np.ndarray, ids: np.ndarray) -> list[np.ndarray]:
    """What ``scale_then_shift`` computes."""
    scale, shift = (w.data for w in plan.weights)
    return [x * scale + shift, ids + 1, x]


def broken(plan: Plan) -> Plan:
    """The plan with a second kernel that does not compile."""
    bad = plan.kernels[1]
    context = replace(bad.context, call=("this_is_no_function();",))
    return replace(plan, kernels=(plan.kernels[0], replace(bad, context=context), plan.kernels[2]))


WIDE = (
    "extern __shared__ float block[];",
    "const int last = 25 * 1024 - 1;  // the end of 100 KiB",
    "block[last - threadIdx.x] = threadIdx.x;",
    "__syncthreads();",
    'unsigned blocks; asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));',
    "if (threadIdx.x == 0) y[blockIdx.x] = 1000 * blocks + block[last - 31];",
)
TILED = (
    "__shared__ __align__(128) float tile[8 * 4];",
    "__shared__ __align__(8) unsigned long long barrier;",
    "const unsigned b = (unsigned)__cvta_generic_to_shared(&barrier), t = (unsigned)__cvta_generic_to_shared(tile);",
    "if (threadIdx.x == 0) {",
    '  asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.mbarrier_init.release.cluster;" ::"r"(b) : "memory");',
    '  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 128;" ::"r"(b) : "memory");',
    '  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"',
    '               ::"r"(t), "l"(&x), "r"(0), "r"(0), "r"(b) : "memory");',
    "}",
    "__syncthreads();",
    "unsigned done = 0;",
    "while (!done)",
    '  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"',
    '               : "=r"(done) : "r"(b) : "memory");',
    "y[threadIdx.x] = tile[threadIdx.x];",
)


def hopper_features() -> Plan:
    """``scale_then_shift`` for sm90, and two more outputs: ``wide`` [4] of a kernel with 100 KiB of shared memory in clusters of two
    blocks (2031 each), and ``tile`` [8, 4], x read through a tensor map (rows beyond the batch are zero)."""
    base = scale_then_shift("hopper", "cuda", "sm90")
    count = dims.symbol("batch", 1, 8)

    def raw(entry: str, parameters: tuple[str, ...], lines: tuple[str, ...]) -> KernelSource:
        return KernelSource(
            entry,
            "hand",
            "v1",
            "kernel",
            Context(entry, ("by hand",), parameters, lines, ("cuda.h", "aitc/platform.h", "aitc/types.h")),
            parameters,
        )

    wide = raw("wide_3", ("float* y",), WIDE)
    tiled = raw("tiled_4", ("const __grid_constant__ CUtensorMap x", "float* y"), TILED)
    columns = TensorMapArg("x", F32, "x", 0, (4, count), (16,), (4, 8), (1, 1), swizzle=0)
    return replace(
        base,
        outputs=(*base.outputs, Port("wide", F32, (4,), "wide"), Port("tile", F32, (8, 4), "tile")),
        buffers=(*base.buffers, Buffer("wide", Space.OUTPUT, F32, 16, 16), Buffer("tile", Space.OUTPUT, F32, 128, 128)),
        kernels=(*base.kernels, wide, tiled),
        launches=(
            *base.launches,
            Launch(
                "wide_3",
                "wide_3",
                (PointerArg("y", "float", "wide", const=False),),
                (4, 1, 1),
                (32, 1, 1),
                100 * 1024,
                2,
            ),
            Launch(
                "tiled_4", "tiled_4", (columns, PointerArg("y", "float", "tile", const=False)), (1, 1, 1), (32, 1, 1)
            ),
        ),
    )
