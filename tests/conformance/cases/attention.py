"""Attention with masks, of every element type: a NaN of q, k or v stays NaN in the rows that it reaches, a query that sees no key is 0."""

from __future__ import annotations

import itertools

import numpy as np
from conformance.cases.case import EPS, Array, Case, case, normal

TYPES = {"float": (1, EPS), "half": (10, 2.0**-11), "bfloat16": (16, 2.0**-8), "double": (11, EPS)}  # ONNX's number, roundoff
B, H, S, T, D = 2, 2, 7, 9, 16
EMULATED = (  # on a GPU that the CPU emulates, too
    "float_bool", "half_bool", "half_add", "bfloat16_add", "half_bool_causal", "half_decoding_bool", "double_bool", "float_softcap_bool",
    "half_heads_of_64_bool",
)  # fmt: skip


def _expected(q: Array, k: Array, v: Array, keep: Array, causal: bool, softcap: float = 0) -> Array:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    with np.errstate(all="ignore"):
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        seen = np.broadcast_to(keep, scores.shape)
        if causal:
            seen = seen & np.tri(*scores.shape[-2:], dtype=bool)
        scores = np.where(seen, scores, -np.inf)
        top = np.max(scores, -1, keepdims=True)
        e = np.exp(scores - np.where(top == -np.inf, 0, top))
        total = e.sum(-1, keepdims=True)
        return e / np.where(total == 0, 1, total) @ v


def _case(name: str, mask: str, causal: bool = False, rows: int = S, softcap: float = 0, size: int = D) -> Case:
    """Runs without a NaN, and with one in q, k and v of the second of the batch; the first has a query without keys."""
    element = next(t for t in TYPES if name.startswith(t))
    number, roundoff = TYPES[element]
    keep = np.random.default_rng(0).random((B, 1, rows, T)) > 0.4
    keep[0, :, rows // 2] = False
    keep[1, ..., 0] = True
    given = {n: normal(B, H, length, size, seed=i) for i, (n, length) in enumerate((("q", rows), ("k", T), ("v", T)))}
    kind = "bool" if mask == "bool" else "float"
    m = keep if mask == "bool" else np.where(keep, 0, -np.inf).astype(np.float32)
    shapes = ", ".join(f"float[{B},{H},{x.shape[2]},{size}] {n}" for n, x in given.items())
    casts = " ".join(f"c{n} = Cast<to = {number}>({n})" for n in (*given, *(["m"] if mask == "add" else [])))
    text = f"""({shapes}, {kind}[{B},1,{rows},{T}] m) => (float[{B},{H},{rows},{size}] y) {{ {casts}
        z = Attention<is_causal = {int(causal)}, softcap = {float(softcap)}>(cq, ck, cv, {"m" if mask == "bool" else "cm"}) y = Cast<to = 1>(z) }}"""
    runs = [given]
    for n in given:
        broken = given[n].copy()
        broken[1, 1, 0, 3] = np.nan
        runs.append({**given, n: broken})

    def expect(q: Array, k: Array, v: Array, m: Array) -> Array:
        return _expected(q, k, v, keep, causal, softcap)

    return case(name, text, *({**r, "m": m} for r in runs), expect=expect, opset=23, rtol=1e-4, scale=32 * roundoff)


CASES = [
    *(_case(f"{t}_{m}{'_causal' * c}", m, bool(c)) for t, m, c in itertools.product(TYPES, ("bool", "add"), (0, 1))),
    *(_case(f"{t}_decoding_{m}", m, rows=1) for t in ("float", "half") for m in ("bool", "add")),
    *(_case(f"{t}_softcap_{m}", m, softcap=5) for t in ("float", "half") for m in ("bool", "add")),
    *(_case(f"half_heads_of_64_{m}", m, size=64) for m in ("bool", "add")),
]
