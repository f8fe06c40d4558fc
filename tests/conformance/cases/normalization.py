"""Norms with one group, norms spelled by exporters, and attention whose rows see few keys or none."""

from __future__ import annotations

import numpy as np
from conformance.cases.case import EPS, Array, Case, Expect, case, normal

EPSILON = 1e-5


def _normalized(x: Array, groups: int) -> Array:
    rows = x.astype(np.float64).reshape(x.shape[0], groups, -1)
    rows = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + EPSILON)
    return rows.reshape(x.shape)


def _by_channel(v: Array, x: Array) -> Array:
    return v.reshape(-1, *[1] * (x.ndim - 2))


def _group_norms() -> list[Case]:
    cases = []
    x, s, b = normal(2, 6, 5, 3), normal(6, seed=1), normal(6, seed=2)
    small = {"x": normal(1, 6, 1, 4, mean=3), "s": s, "b": b}
    for groups in (1, 2, 3, 6):

        def expect(x: Array, s: Array, b: Array, groups: int = groups) -> Array:
            return _normalized(x, groups) * _by_channel(s, x) + _by_channel(b, x)

        for form, shape in (("", "2,6,5,3"), ("_symbolic", "n,6,h,w")):
            given = f"(float[{shape}] x, float[6] s, float[6] b) => (float[{shape}] y)"
            runs = [{"x": x, "s": s, "b": b}, *([small] if form else [])]
            node = f"{{ y = GroupNormalization<num_groups = {groups}, epsilon = {EPSILON}>(x, s, b) }}"
            cases.append(case(f"group_norm_{groups}{form}", f"{given} {node}", *runs, expect=expect))
            # as PyTorch exports it: the groups are the channels of an InstanceNormalization
            ones, zeros = ", ".join("1" * groups), ", ".join("0" * groups)
            spelled = f"""<int64[3] to = {{0, {groups}, -1}}, float[{groups}] one = {{{ones}}}, float[{groups}] zero = {{{zeros}}},
                int64[2] a = {{1, 2}}> {{
                r = Reshape(x, to) i = InstanceNormalization<epsilon = {EPSILON}>(r, one, zero) z = Shape(x) g = Reshape(i, z)
                s3 = Unsqueeze(s, a) b3 = Unsqueeze(b, a) m = Mul(g, s3) y = Add(m, b3) }}"""
            cases.append(case(f"group_norm_{groups}_exported{form}", f"{given} {spelled}", *runs, expect=expect))
    of_groups = """(float[n,6,h,w] x, float[2] s, float[2] b) => (float[n,6,h,w] y) {
        y = GroupNormalization<num_groups = 2>(x, s, b) }"""
    cases.append(
        case(
            "group_norm_scale_of_groups",
            of_groups,
            {"x": x, "s": s[:2], "b": b[:2]},
            expect=lambda x, s, b: _normalized(x, 2) * _by_channel(np.repeat(s, 3), x) + _by_channel(np.repeat(b, 3), x),
            opset=18,
        )
    )
    for rank, shape in ((3, "n,6,h"), (4, "n,6,h,w"), (5, "n,6,h,w,d")):
        text = f"(float[{shape}] x, float[6] s, float[6] b) => (float[{shape}] y) {{ y = InstanceNormalization(x, s, b) }}"
        run = {"x": normal(2, 6, *(4, 3, 5)[: rank - 2]), "s": s, "b": b}
        cases.append(
            case(
                f"instance_norm_rank_{rank}",
                text,
                run,
                expect=lambda x, s, b: _normalized(x, 6) * _by_channel(s, x) + _by_channel(b, x),
            )
        )
    return cases


def _layer_norms() -> list[Case]:
    cases = []
    for axis in (0, 1, -1):
        for form, shape in (("", "3,4,5"), ("_symbolic", "a,b,5")):
            kept = {0: 0, 1: 1, -1: 2}[axis]
            dims = shape.split(",")[kept:]
            given = f"(float[{shape}] x, float[{','.join(dims)}] s) => (float[{shape}] y, float[m,o,p] mean, float[m,o,p] inv)"
            node = f"{{ y, mean, inv = LayerNormalization<axis = {axis}>(x, s) }}"
            run = {"x": normal(3, 4, 5, mean=1), "s": normal(*(3, 4, 5)[kept:], seed=1)}
            cases.append(case(f"layer_norm_axis_{'last' if axis < 0 else axis}{form}", f"{given} {node}", run))
    return cases


def _attend(
    q: Array, k: Array, v: Array, mask: Array | None = None, causal: bool = False, lengths: Array | None = None, past: int = 0
) -> Array:
    """[B, H, S, D] in float64. Causal is aligned at the bottom right of the keys that the queries add to: ``past`` ones are
    before them, or ``lengths`` less the queries. A row that sees no key is 0."""
    share = q.shape[1] // k.shape[1]
    k, v = (np.repeat(a.astype(np.float64), share, axis=1) for a in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    s, t = scores.shape[-2:]
    seen = np.ones(scores.shape, bool)
    if causal:
        offset = past if lengths is None else (lengths - s).reshape(-1, 1, 1, 1)
        seen &= np.arange(t) <= np.arange(s)[:, None] + offset
    if lengths is not None:
        seen &= (np.arange(t) < lengths[:, None])[:, None, None]
    if mask is not None and mask.dtype == bool:
        seen &= mask
    elif mask is not None:
        scores = scores + mask
    scores = np.where(seen, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    p = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = p.sum(-1, keepdims=True)
    return np.where(total == 0, 0, p / np.where(total == 0, 1, total)) @ v


def _attentions() -> list[Case]:
    cases = []
    rows = np.ones((4, 6), bool)
    rows[1] = False
    rows[3, :5] = False
    bias = np.where(rows, 0, -np.inf).astype(np.float32)
    sizes = {  # queries, keys, query heads, key heads
        "one_query": (1, 7, 2, 2), "fewer_queries": (3, 7, 4, 2), "square": (5, 5, 2, 2), "more_queries": (6, 3, 2, 1), "one_key": (4, 1, 2, 2),
    }  # fmt: skip
    for name, (s, t, h, hk) in sizes.items():
        run = {"q": normal(2, h, s, 8), "k": normal(2, hk, t, 8, seed=1), "v": normal(2, hk, t, 8, seed=2)}
        for form, dims in (("", ("2", str(s), str(t))), ("_symbolic", ("b", "s", "t"))):
            batch, ss, tt = dims
            given = f"float[{batch},{h},{ss},8] q, float[{batch},{hk},{tt},8] k, float[{batch},{hk},{tt},8] v"
            text = f"({given}) => (float[{batch},{h},{ss},8] y) {{ y = Attention<is_causal = 1>(q, k, v) }}"
            cases.append(
                case(f"causal_{name}{form}", text, run, expect=lambda q, k, v: _attend(q, k, v, causal=True), opset=23)
            )
            cached = f"""({given}, float[{batch},{hk},p,8] pk, float[{batch},{hk},p,8] pv) => (float[{batch},{h},{ss},8] y,
                float[{batch},{hk},u,8] k2, float[{batch},{hk},u,8] v2) {{ y, k2, v2 = Attention<is_causal = 1>(q, k, v, , pk, pv) }}"""
            before = {"pk": normal(2, hk, 5, 8, seed=3), "pv": normal(2, hk, 5, 8, seed=4)}

            def with_past(q: Array, k: Array, v: Array, pk: Array, pv: Array) -> tuple[Array, Array, Array]:
                k2, v2 = np.concatenate([pk, k], 2), np.concatenate([pv, v], 2)
                return _attend(q, k2, v2, causal=True, past=pk.shape[2]), k2, v2

            cases.append(case(f"causal_{name}_after_5_keys{form}", cached, run | before, expect=with_past, opset=23))
    run = {"q": normal(2, 2, 4, 8), "k": normal(2, 2, 6, 8, seed=1), "v": normal(2, 2, 6, 8, seed=2)}
    given = "float[2,2,4,8] q, float[2,2,6,8] k, float[2,2,6,8] v"
    symbolic = "float[b,2,s,8] q, float[b,2,t,8] k, float[b,2,t,8] v"
    for name, mask, kind in (("bool", rows, "bool"), ("float", bias, "float")):
        for form, inputs, sizes_ in (("", given, "[4,6]"), ("_symbolic", symbolic, "[s,t]")):
            for causal in (0, 1):
                text = f"({inputs}, {kind}{sizes_} m) => (float[b,2,s,8] y) {{ y = Attention<is_causal = {causal}>(q, k, v, m) }}"

                def expect(q: Array, k: Array, v: Array, m: Array, causal: int = causal) -> Array:
                    return _attend(q, k, v, m, bool(causal))

                label = f"masked_rows_{name}{'_causal' if causal else ''}{form}"
                cases.append(case(label, text, run | {"m": mask}, expect=expect, opset=23))
    lengths = f"({given}, int64[2] n) => (float[2,2,4,8] y) {{ y = Attention(q, k, v, , , , n) }}"
    for n in ((6, 3), (1, 0)):
        feeds = run | {"n": np.array(n)}
        label = f"key_lengths_{n[0]}_{n[1]}"
        cases.append(case(label, lengths, feeds, expect=lambda q, k, v, n: _attend(q, k, v, lengths=n), opset=24))
        causal = lengths.replace("Attention(", "Attention<is_causal = 1>(")
        seen = case(f"{label}_causal", causal, feeds, expect=lambda q, k, v, n: _attend(q, k, v, None, True, n), opset=24)
        cases.append(seen)
    # as it is spelled by exporters: NaN rows of a softmax over nothing are replaced
    spelled = """(float[b,2,s,8] q, float[b,2,t,8] k, float[b,2,t,8] v, bool[s,t] m) => (float[b,2,s,8] y)
        <float scale = {0.35355338}, float low = {-inf}, float zero = {0}> {
        kt = Transpose<perm = [0, 1, 3, 2]>(k) s0 = MatMul(q, kt) s1 = Mul(s0, scale) s2 = Where(m, s1, low)
        p = Softmax(s2) bad = IsNaN(p) p1 = Where(bad, zero, p) y = MatMul(p1, v) }"""
    low = spelled.replace("-inf", "-1e9").replace("bad = IsNaN(p) p1 = Where(bad, zero, p) y = MatMul(p1, v)", "y = MatMul(p, v)")
    uniform = np.where(rows.any(-1, keepdims=True), rows, True)

    def even(q: Array, k: Array, v: Array, m: Array) -> Array:
        return np.where(rows.any(-1)[:, None], _attend(q, k, v, uniform), v.mean(2, keepdims=True, dtype=np.float64))

    cases.append(case("masked_rows_spelled", spelled, run | {"m": rows}, expect=lambda q, k, v, m: _attend(q, k, v, m)))
    cases.append(case("masked_rows_spelled_with_a_low_number", low, run | {"m": rows}, expect=even))
    return cases


def _double() -> Case:
    """Statistics have the type that stash_type says, also of wider data."""

    def expect(x: Array, s: Array) -> tuple[Array, ...]:
        mean = x.mean(-1, keepdims=True)
        inverse = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return (x - mean) * inverse * s, mean, inverse

    text = "(double[n,24] x, double[24] s) => (double[n,24] y, float[n,1] m, float[n,1] i) { y, m, i = LayerNormalization(x, s) }"
    return case("layer_norm_of_double_with_statistics", text, {"x": normal(3, 24, dtype=np.float64), "s": normal(24, dtype=np.float64)},
                expect=expect)  # fmt: skip


def _log_softmaxes() -> list[Case]:
    """Of numbers near 1000 the maximum is taken off first: what is left is as exact as the exponentials."""

    def expect(axis: int) -> Expect:
        def of(x: Array) -> Array:
            d = x.astype(np.float64) - x.max(axis, keepdims=True)
            return d - np.log(np.exp(d).sum(axis, keepdims=True))

        return of

    return [
        case(
            f"log_softmax_near_1000_{n}_{m}_axis_{axis}", f"(float[{n},{m}] x) => (float[{n},{m}] y) {{ y = LogSoftmax<axis = {axis}>(x) }}",
            {"x": normal(n, m, mean=1000)}, expect=expect(axis), rtol=1e-6, scale=2 * EPS,
        )
        for axis, n, m in ((1, 3, 700), (0, 700, 5), (1, 3, 9000))
    ]  # fmt: skip


CASES = [*_group_norms(), *_layer_norms(), _double(), *_attentions(), *_log_softmaxes()]
