"""How far a result is from the reference, and how far it may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite, sqrt
from typing import Any

import ml_dtypes
import numpy as np

from aitc.errors import AitcError, Diagnostic, Exit
from aitc.ir import dtype as dt
from aitc.ir.dim import hint
from aitc.ir.dtype import DType
from aitc.ir.graph import Graph, Node
from aitc.ir.op import Kind

ROUNDOFF = {"f64": 2.0**-53, "f32": 2.0**-24, "tf32": 2.0**-11, "f16": 2.0**-11, "bf16": 2.0**-8}
_EIGHT_BITS = 2.0**-4  # float8 values in the middle of a model
_QUIET = frozenset({Kind.VIEW, Kind.MOVE, Kind.SOURCE})  # they do no arithmetic


@dataclass(frozen=True, slots=True)
class Tolerance:
    """An element may be off by ``relative · (|reference| + rms of the reference)``; the whole by half of that in root
    mean square.

    The second bound is what a mistake in a few channels trips over, since rounding errors are far below their maximum
    on average.

    Where a user asks for a tolerance (``absolute``), it alone holds: an element may be off by ``absolute + relative · |reference|``.
    """

    relative: float
    why: str
    absolute: float | None = None

    @property
    def cosine(self) -> float:
        """The least cosine similarity."""
        return 1 - max(self.relative**2, 1e-12)


def tolerance(roundoff: float, depth: int, factor: float = 1.0) -> Tolerance:
    """Storage rounds once a layer and the errors add up like a random walk: √depth. Sums of thousands in fp32 add
    their own."""
    layers = sqrt(max(depth, 1))
    relative = factor * layers * (4 * roundoff + 64 * min(roundoff, ROUNDOFF["f32"]))
    return Tolerance(min(relative, 0.25), f"unit roundoff {roundoff:.1e}, depth {depth}")


def asked_tolerance(rtol: float | None, atol: float | None) -> Tolerance | None:
    """What --rtol and --atol ask for; the one that is not given is 0, and without both there is None. Raises AitcError (USAGE)."""
    given = [(flag, value) for flag, value in (("--rtol", rtol), ("--atol", atol)) if value is not None]
    bad = [Diagnostic("C02", f"{flag} {value:g}: it is a finite number of at least 0") for flag, value in given if not (isfinite(value) and value >= 0)]
    if bad:
        raise AitcError(bad, Exit.USAGE)
    return Tolerance(rtol or 0.0, "asked for", atol or 0.0) if given else None


def roundoff(graph: Graph, precision: str = "model") -> float:
    """The unit roundoff of the narrowest floating type in ``graph`` (float8 counts as 2**-4, tf32 by ``precision``)."""
    worst = ROUNDOFF["tf32"] if precision == "tf32" else 0.0
    for v in graph.values():
        if v.const is None and v.type.dtype.is_float:
            worst = max(worst, ROUNDOFF.get(v.type.dtype.name, _EIGHT_BITS))
    return worst or ROUNDOFF["f32"]


def depth(graph: Graph) -> int:
    """The most arithmetic nodes on a path from an input to an output; a node on a sum counts more the longer the sum
    is."""
    at: dict[Node, float] = {}
    for node in graph.nodes:
        below = max((at.get(v.producer, 0) for v in node.inputs if v is not None and v.producer is not None), default=0)
        inner = sum(depth(body) for body in node.bodies)
        at[node] = below + inner + (0 if node.op.kind in _QUIET else _weight(node))
    return round(max(at.values(), default=1)) or 1


def _weight(node: Node) -> float:
    if node.op.kind is Kind.RECURRENT and node.inputs[0] is not None:
        return max(1.0, float(hint(node.inputs[0].shape[0])))  # one step after another
    return 1.0


@dataclass(frozen=True, slots=True)
class OutputReport:
    """One output beside its reference. ``max_rel`` is relative to max(|reference|, 1e-3 · rms); ``max_ulp`` counts in
    its own type."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    elements: int
    ok: bool
    max_abs: float = 0.0
    max_rel: float = 0.0
    rms_rel: float = 0.0
    max_ulp: float = 0.0
    cosine: float = 1.0
    allowed: float = 0.0  # the tolerance's relative bound
    wrong: int = 0  # elements beyond it
    where: tuple[int, ...] = ()  # the worst element
    got: str = ""
    want: str = ""
    note: str = ""
    fault: str = ""  # of a difference that was judged: "binary", "onnxruntime" or "model", which is ill-conditioned
    binary_off: float = 0.0  # from float64, in root mean square, relative to the output's own
    reference_off: float = 0.0  # the same of onnxruntime


def compare(
    name: str, dtype: DType, got: Any, want: Any, limit: Tolerance, spread: np.ndarray | None = None, floor: float | None = None
) -> OutputReport:
    """Compares an output with its reference.

    ``spread`` (same shape) is by how much each element of the reference itself moves when the model's numbers are
    moved by one rounding; an element may be off by 8 times that besides. NaNs and infinities must be at the same
    places. Integers and bools are exact but for their spread; integers are held to a tolerance that a user asks for, too, and it
    counts neither spread nor floor. ``floor``: the absolute error that is no mistake (``smallest``
    unless given).
    """
    got, want = np.asarray(got), np.asarray(want)
    report = OutputReport(name, dtype.name, tuple(got.shape), int(got.size), True, allowed=limit.relative)
    if got.shape != want.shape:
        return replace(report, ok=False, note=f"shape {list(got.shape)}, the reference's is {list(want.shape)}")
    if got.size == 0:
        return report
    if dtype.kind == "string" or got.dtype == object:
        bad = got != want
        return _worst(replace(report, ok=not bad.any(), wrong=int(bad.sum())), bad.astype(float), got, want)
    if not (dtype.is_float or dtype.kind == "complex"):
        return _exact(report, got, want, spread, limit)
    return _close(report, dtype, got, want, limit, spread, smallest(dtype) if floor is None else floor)


def _exact(report: OutputReport, got: np.ndarray, want: np.ndarray, spread: np.ndarray | None, limit: Tolerance) -> OutputReport:
    off = np.abs(got.astype(np.float64) - want.astype(np.float64))
    off = np.where(got != want, np.maximum(off, 1), 0)
    # a quantised value may move as far as the reference does; how far an index moves says nothing
    steps = 1 if np.issubdtype(want.dtype, np.integer) and want.dtype.itemsize == 1 else 2
    bad = off > (0 if spread is None else steps * spread)
    if limit.absolute is not None:
        bad = off > (0 if want.dtype == np.bool_ else limit.absolute + limit.relative * np.abs(want.astype(np.float64)))
    different = int(np.count_nonzero(off))
    note = (
        ""
        if bad.any() or not different
        else f"{different} of {off.size} differ where the reference is not certain either"
        if limit.absolute is None
        else f"{different} of {off.size} differ within the tolerance asked for"
    )
    result = replace(report, ok=not bad.any(), wrong=int(bad.sum()), max_abs=float(off.max()), allowed=0.0, note=note)
    return _worst(result, np.where(bad, off, 0), got, want)


def _close(
    report: OutputReport,
    dtype: DType,
    got: np.ndarray,
    want: np.ndarray,
    limit: Tolerance,
    spread: np.ndarray | None,
    floor: float,
) -> OutputReport:
    wide = np.complex128 if dtype.kind == "complex" else np.float64
    g, w = got.astype(wide), want.astype(wide)
    if dtype.kind == "complex":
        g, w = np.stack([g.real, g.imag], -1), np.stack([w.real, w.imag], -1)
        spread = None if spread is None else np.repeat(spread[..., None], 2, -1)
    finite = np.isfinite(g) & np.isfinite(w)
    same = (g == w) | (np.isnan(g) & np.isnan(w))
    if limit.absolute is None:
        same |= _overflowed(dtype, g, w, limit.relative)
    off = np.where(same, 0.0, np.where(finite, np.abs(np.where(finite, g, 0) - np.where(finite, w, 0)), np.inf))
    size = np.where(np.isfinite(w), np.abs(w), 0.0)
    if dtype.kind == "complex" and limit.absolute is not None:  # a user thinks of numbers, not of their parts
        off, size = (np.repeat(np.hypot(a[..., :1], a[..., 1:]), 2, -1) for a in (off, size))
    rms = _typical(size)
    if limit.absolute is not None:
        floor, spread = 0.0, None
    if floor and rms == 0 and 0 < off.max() <= ROUNDOFF.get(dtype.name, _EIGHT_BITS):
        # No size to be relative to: a sigmoid or softmax that saturated, and one runtime rounds the last 1e-9 away.
        return replace(
            report,
            max_abs=float(off.max()),
            note="the reference is zero throughout; this is less than one rounding of 1",
        )
    bound = limit.relative * (size + rms) + floor if limit.absolute is None else limit.relative * size + limit.absolute
    if spread is not None:
        bound = bound + 8 * spread
    bad = ~((off <= bound) & np.isfinite(off))
    finite_off = off[np.isfinite(off)]
    rms_off = float(np.sqrt(np.mean(finite_off**2))) if finite_off.size else 0.0
    slack = 0.0 if spread is None else 8 * float(np.sqrt(np.mean(spread**2)))
    cosine = _cosine(g[finite], w[finite])
    notes = []
    strict = limit.absolute is None  # ours bounds the whole, too
    if strict and not bad.any() and rms_off > limit.relative / 2 * rms + slack + floor:
        notes.append(f"root mean square of the error {rms_off / (rms or 1):.2e} is above {limit.relative / 2:.2e}")
    if strict and not bad.any() and not slack and cosine < limit.cosine and rms_off > floor:
        notes.append(f"cosine {cosine:.9f} is below {limit.cosine:.9f}")
    ok = not bad.any() and not notes
    mean = spread is not None and ok and bool((off > bound - 8 * spread).any())
    note = (
        "; ".join(notes)
        if notes
        else "the model amplifies rounding: within what the reference itself moves"
        if mean
        else ""
    )
    result = replace(
        report,
        ok=ok,
        wrong=int(bad.sum()),
        max_abs=float(off.max()),
        rms_rel=rms_off / (rms or 1.0),
        cosine=cosine,
        max_rel=float(np.max(off / np.maximum(size, max(1e-3 * rms, 1e-300)))),
        max_ulp=_ulps(dtype, g, w, finite),
        note=note,
    )
    excess = np.where(np.isfinite(off), off, 0) - np.where(np.isfinite(off), bound, -np.inf)
    if dtype.kind == "complex":
        excess = excess.max(-1)
    return _worst(result, excess - excess.min() if np.isfinite(excess).all() else excess, got, want)


def _typical(size: np.ndarray) -> float:
    """The root mean square of magnitudes. A few that are a million times the median, such as the least float that masks are filled
    with, are left out: they would excuse all the others."""
    counted = size[size > 0]
    if not counted.size:
        return 0.0
    usual = counted[counted / 1e6 <= np.median(counted)]
    if 2 * usual.size < size.size and usual.size < counted.size:
        usual = counted  # no outliers, but most of what is not zero
    largest = float(usual.max())
    return largest * float(np.sqrt(np.sum((usual / largest) ** 2) / (size.size - counted.size + usual.size)))


def _worst(report: OutputReport, badness: np.ndarray, got: np.ndarray, want: np.ndarray) -> OutputReport:
    if report.ok:
        return report
    where = np.unravel_index(int(np.argmax(badness)), badness.shape)
    return replace(report, where=tuple(int(i) for i in where), got=str(got[where]), want=str(want[where]))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a floating type (of a complex one each part) can hold."""

    largest: float
    overflows_to: str  # what a larger number becomes: "inf", "nan", or "largest" where the type has neither
    digits: int  # of the significand, the hidden one included
    least: int  # the exponent of the smallest subnormal

    @property
    def roundoff(self) -> float:
        """Half a unit in the last place of 1."""
        return 2.0**-self.digits


@cache
def limits(dtype: DType) -> Limits:
    """The limits of a floating or complex type. Raises ValueError for another one."""
    if not (dtype.is_float or dtype.kind == "complex"):
        raise ValueError(f"{dtype} is no floating type")
    part = dtype.numpy if dtype.is_float else np.zeros((), dtype.numpy).real.dtype
    info = ml_dtypes.finfo(part)
    with np.errstate(all="ignore"):
        beyond = np.array(np.inf, np.float32).astype(part).astype(np.float64)
    becomes = "inf" if np.isinf(beyond) else "nan" if np.isnan(beyond) else "largest"
    return Limits(float(info.max), becomes, info.nmant + 1, round(np.log2(float(info.smallest_subnormal))))


def _overflowed(dtype: DType, g: np.ndarray, w: np.ndarray, relative: float) -> np.ndarray:
    """Where ``g`` is what ``dtype`` makes of a number beyond its largest, and the reference, which is wider, holds such a number.

    Between the largest number and the next one that there would be, rounding decides; the reference's own error does, too.
    """
    limit = limits(dtype)
    beyond = np.abs(w) * (1 + relative) >= limit.largest * (1 + limit.roundoff)
    beyond &= np.isfinite(w)
    if limit.overflows_to == "nan":
        return np.asarray(beyond & np.isnan(g))
    if limit.overflows_to == "inf":
        return np.asarray(beyond & np.isinf(g) & (np.sign(g) == np.sign(w)))
    return np.asarray(beyond & (g == np.copysign(limit.largest, w)))


def smallest(dtype: DType) -> float:
    """Absolute errors below this are no mistakes: underflow, and the tails of functions with values around 1
    (onnxruntime's sigmoid is 0 where 1e-8 would be right)."""
    return 1e-6 if dtype is dt.F16 else 1e-12 if dtype is dt.F64 else 1.2e-7


def _cosine(g: np.ndarray, w: np.ndarray) -> float:
    gg, ww = float(np.dot(g.ravel(), g.ravel())), float(np.dot(w.ravel(), w.ravel()))
    if gg == 0 or ww == 0:
        return 1.0 if gg == ww else 0.0
    return float(np.dot(g.ravel() / sqrt(gg), w.ravel() / sqrt(ww)))


def _ulps(dtype: DType, g: np.ndarray, w: np.ndarray, finite: np.ndarray) -> float:
    """The largest distance in units in the last place of the reference, as ``dtype`` has them."""
    limit = limits(dtype)
    if not finite.any():
        return 0.0
    _, exponent = np.frexp(np.abs(w[finite]))
    return float(
        (np.abs(g[finite] - w[finite]) / np.exp2(np.maximum(exponent - limit.digits, limit.least).astype(np.float64))).max()
    )


def compare_rows(
    got: Mapping[str, np.ndarray],
    want: Mapping[str, np.ndarray],
    dtypes: Mapping[str, DType],
    limit: Tolerance,
    names: Sequence[str],
) -> tuple[bool, int]:
    """Whether detections agree as a set: (they do, rows without a partner).

    The outputs ``names`` share their first axis behind any of length 1, one row a detection; near-tied scores come in another order in any
    two runtimes, so each row of the reference looks for a row of the result that is within the tolerance in all
    outputs. One row in fifty (at least one, of four or more) may be without a partner: scores at the very threshold.
    """
    while all(np.ndim(a[n]) > 1 and len(a[n]) == 1 for a in (got, want) for n in names):
        got, want = ({n: np.asarray(a[n])[0] for n in names} for a in (got, want))
    ours, theirs, width = [], [], []
    for n in names:
        g, w = np.asarray(got[n], np.float64), np.asarray(want[n], np.float64)
        if g.shape[1:] != w.shape[1:]:
            return False, max(len(g), len(w))
        g, w = g.reshape(len(g), -1), w.reshape(len(w), -1)
        scale = float(np.sqrt(np.mean(w**2))) if w.size else 0.0
        slack = 0.0 if not dtypes[n].is_float else limit.relative * 8
        ours.append(g)
        theirs.append(w)
        width.append(slack * (np.abs(w) + scale))
    g, w, bound = np.concatenate(ours, 1), np.concatenate(theirs, 1), np.concatenate(width, 1)
    if not np.isfinite(g).all() and np.isfinite(w).all():
        return False, int((~np.isfinite(g)).any(1).sum())
    free = np.ones(len(g), bool)
    alone = 0
    for row, most in zip(w, bound):
        fits = free & (np.abs(g - row) <= most + 1e-30).all(1) if len(g) else free
        at = int(np.argmax(fits)) if len(g) else 0
        if len(g) and fits[at]:
            free[at] = False
        else:
            alone += 1
    alone = max(alone, int(free.sum()))
    return alone <= (max(1, len(w) // 50) if len(w) >= 4 else 0), alone
