"""Whose fault a difference is.

An output passes by the first of these rules that it meets; the evidence is gathered only when one asks for it.

1. It agrees with onnxruntime within the tolerance (``compare.py``).
2. It agrees with onnxruntime where that does not saturate sums of u8·s8 products, as it does on an x86 without VNNI.
3. It is within the tolerance and 8 times the spread of onnxruntime. The spread of an element is by how much it moves when each floating
   value of the model is moved by one rounding (``noise.py``): a value next to a rounding boundary becomes the other step of its
   QuantizeLinear, and what follows moves with it. It counts up to a hundredth of the output's size.
4. It agrees with float64 (``exact.py``) in the same way. Where onnxruntime does not, onnxruntime is at fault.
5. The model is ill-conditioned: onnxruntime's own distance from float64 is what its spread explains, and the binary's is of that size.
   Where the spread is more than a twentieth of the output, nothing is excused so.
6. As a set of detections it agrees with onnxruntime or with float64; one may be without a partner where noise has that effect, too.

Otherwise the binary is at fault. An output without any size (all below one rounding of 1) is held to its own size where float64 shows
that onnxruntime computes it so well.

A tolerance that a user asks for replaces the one of rules 1, 2 and 4, without any spread; the other rules excuse nothing then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aitc.ir.dtype import DType
from aitc.verify.compare import ROUNDOFF, OutputReport, Tolerance, compare, compare_rows, smallest
from aitc.verify.exact import exact_outputs
from aitc.verify.noise import spreads
from aitc.verify.reference import NoReference, Reference

Spread = dict[str, np.ndarray]

LEAST_RUNS, MOST_RUNS = 3, 12  # with noise; more than the least while they help
NOISE_S = 60.0  # for all of them together
TIMES = 8.0  # of the spread: see ``compare``
AS_FAR = 4.0  # times as far from float64 as onnxruntime is as far
LARGEST_SPREAD = 0.05  # of an ill-conditioned output


class Evidence:
    """What is known of a model on one set of inputs; ``want`` is onnxruntime's answer. Each kind is computed once, when it is asked for.

    Where a user gives ``want``, ``own`` is onnxruntime's answer (or empty): it is the middle of the spread, and no other evidence
    excuses a difference from what a user wants.
    """

    def __init__(
        self, reference: Reference, arrays: Mapping[str, np.ndarray], want: Mapping[str, Any], roundoff: float, own: Mapping[str, Any] | None = None
    ):
        self._own = own
        self.reference = reference
        self.want = dict(want)
        self.why_not: list[str] = []  # kinds of evidence that could not be had
        self._arrays = dict(arrays)
        self._roundoff = max(roundoff, ROUNDOFF["f32"])
        self._kept: dict[str, Any] = {}
        self._spreads: list[Spread] = []
        self.noisy: list[dict[str, Any]] = []  # what the runs with noise gave
        self._runs: Iterator[Spread] | None = None

    def _once(self, what: str, compute: Callable[[], Any]) -> Any:
        if what not in self._kept:
            try:
                self._kept[what] = compute()
            except NoReference as none:
                self._kept[what] = None
                self.why_not.append(str(none))
        return self._kept[what]

    def exact_products(self) -> dict[str, Any] | None:
        """onnxruntime's answer without saturated sums; None where the model has no products of integers."""
        if self._own is not None or not self.reference.multiplies_integers:
            return None
        return self._once("products", lambda: Reference(self.reference.whole(), exact_products=True).run(self._arrays))

    def exact(self) -> dict[str, Any] | None:
        """The outputs in float64."""
        if self._own is not None:
            return None
        return self._once("float64", lambda: exact_outputs(self.reference.whole(), self._arrays))

    def spread(self, run: int) -> Spread | None:
        """The spread after run number ``run`` with noise, from 0; None where there are no more."""
        if self._runs is None:
            products = self.exact_products()
            middle = self.want if self._own is None else self._own
            self._runs = self._measured(middle if products is None else products, products is not None) if middle else iter(())
        while len(self._spreads) <= run:
            measured = next(self._runs, None)
            if measured is None:
                return None
            self._spreads.append(measured)
        return self._spreads[run]

    def _measured(self, middle: Mapping[str, Any], exact_products: bool) -> Iterator[Spread]:
        start = time.monotonic()
        try:
            for i, (found, results) in enumerate(spreads(self.reference, self._arrays, self._roundoff, middle, exact_products)):
                self.noisy.append(results)
                yield found
                if i + 1 >= MOST_RUNS or time.monotonic() - start > NOISE_S:
                    return
        except (NoReference, MemoryError) as none:
            self.why_not.append(f"its sensitivity to rounding is not known: {none}")


def judge(
    types: Mapping[str, DType], evidence: Evidence, got: Mapping[str, np.ndarray], limit: Tolerance
) -> tuple[OutputReport, ...]:
    """The reports of all outputs (``types`` by name) of one run of a binary, by the rules above."""
    want, reference = evidence.want, evidence.reference
    reports = {n: compare(n, t, got[n], want[n], limit) for n, t in types.items()}
    for n in reference.random & reports.keys():
        if np.shape(got[n]) == np.shape(want[n]):
            shape = tuple(np.shape(got[n]))
            note = "depends on numbers drawn at random: the shape alone was compared"
            reports[n] = OutputReport(n, types[n].name, shape, int(np.size(got[n])), True, note=note)
    for n, r in list(reports.items()):
        if not r.ok:
            reports[n] = _judged(n, types[n], evidence, got[n], limit, r)
        elif limit.absolute is None and n not in reference.random and _only_small(n, types[n], got[n], want[n], limit):
            reports[n] = _judged_small(n, types[n], evidence, got[n], limit, r)
    if limit.absolute is None:
        reports = _as_detections(types, evidence, got, limit, reports)
    return tuple(reports.values())


def _judged(n: str, t: DType, evidence: Evidence, got: Any, limit: Tolerance, plain: OutputReport) -> OutputReport:
    """Rules 2 to 5 for an output that differs from onnxruntime's."""
    products = evidence.exact_products()
    middle = evidence.want[n] if products is None else products[n]
    if products is not None and (report := compare(n, t, got, middle, limit)).ok:
        return replace(report, fault="onnxruntime", note="onnxruntime saturates sums of u8·s8 products on this processor; without, they agree")
    report = plain if products is None else report
    spread: Spread = {}
    for run in range(MOST_RUNS) if limit.absolute is None else ():
        more = evidence.spread(run)
        if more is None:
            break
        spread = more
        if run + 1 < LEAST_RUNS or n not in spread or spread[n].shape != np.shape(got):
            continue
        report = compare(n, t, got, middle, limit, _bounded(spread[n], middle))
        if report.ok:
            return replace(report, fault="model")
        if run + 1 >= LEAST_RUNS and report.wrong > max(8, report.elements // 1000):
            break  # no boundary that one more run would find
    exact = evidence.exact()
    if exact is None:
        return replace(report, note="; ".join([*filter(None, [report.note]), *(f"not judged: {w}" for w in evidence.why_not)]))
    return _beside_float64(n, t, got, middle, exact[n], limit, spread.get(n), report)


def _beside_float64(
    n: str, t: DType, got: Any, want: Any, exact: Any, limit: Tolerance, spread: np.ndarray | None, plain: OutputReport
) -> OutputReport:
    """Rules 4 and 5; ``plain`` is the report that stays where neither holds."""
    allowed = None if spread is None or spread.shape != np.shape(exact) else _bounded(spread, exact)
    ours, theirs = (compare(n, t, a, exact, limit, allowed) for a in (got, want))
    if ours.ok and np.issubdtype(np.asarray(got).dtype, np.integer) and np.shape(got) == np.shape(want):
        ours = compare(n, t, got, _between(got, want, exact, allowed), limit)  # not one step beyond the one beyond a boundary
    ours_off, theirs_off = ours.rms_rel, theirs.rms_rel
    if not (t.is_float or t.kind == "complex"):
        how = f"{ours.wrong} of {ours.elements} elements of the binary differ from float64, of onnxruntime {theirs.wrong}"
    else:
        how = f"from float64 the binary is off by {ours_off:.1e} of the output's size, onnxruntime by {theirs_off:.1e}"
    measured = replace(plain, binary_off=ours_off, reference_off=theirs_off)
    if ours.ok:
        fault = "model" if theirs.ok else "onnxruntime"
        who = "the model amplifies rounding" if theirs.ok else "onnxruntime is at fault"
        return replace(ours, fault=fault, note=f"{who}: {how}", binary_off=ours_off, reference_off=theirs_off)
    if spread is not None and _as_far(t, got, want, exact, limit, spread):
        note = f"the model is ill-conditioned: {how}"
        return replace(measured, ok=True, wrong=0, where=(), got="", want="", fault="model", note=note)
    if theirs.ok:
        return replace(measured, fault="binary", note="; ".join(filter(None, [plain.note, f"the binary is at fault: {how}"])))
    return replace(measured, note="; ".join(filter(None, [plain.note, f"neither agrees with float64: {how}"])))


def _between(got: Any, want: Any, exact: Any, spread: np.ndarray | None) -> np.ndarray:
    """``got`` where it is a step that onnxruntime takes, too, or between its and that of float64; else the nearest such step."""
    low, high = np.minimum(want, exact), np.maximum(want, exact)
    far = np.abs(np.asarray(got, np.float64) - np.asarray(want, np.float64)) > (0 if spread is None else spread)
    return np.asarray(np.where(far, np.clip(got, low, high), got))


def _as_far(t: DType, got: Any, want: Any, exact: Any, limit: Tolerance, spread: np.ndarray) -> bool:
    """Rule 5."""
    got, want, exact = (np.asarray(a, np.complex128 if t.kind == "complex" else np.float64) for a in (got, want, exact))
    if not (t.is_float or t.kind == "complex") or not got.shape == want.shape == exact.shape == spread.shape:
        return False
    finite = np.isfinite(exact)
    if (np.isfinite(got) != finite).any() or (np.isfinite(want) != finite).any() or not finite.any():
        return False
    ours, theirs, noise, size = (np.abs(a[finite]) for a in (got - exact, want - exact, spread, exact))
    noise_rms, size_rms = _rms(noise), _rms(size)
    explained = theirs <= limit.relative * (size + size_rms) + TIMES * np.maximum(noise, noise_rms)
    if noise_rms > LARGEST_SPREAD * size_rms or not explained.all():
        return False
    as_far = _rms(ours) <= AS_FAR * max(_rms(theirs), noise_rms)
    return as_far and float(ours.max()) <= AS_FAR * max(float(theirs.max()), float(noise.max()))


def _only_small(n: str, t: DType, got: Any, want: Any, limit: Tolerance) -> bool:
    """Whether an output agrees for no other reason than that it is smaller than one rounding of 1."""
    if not t.is_float or np.size(want) == 0:
        return False
    finite = np.abs(np.nan_to_num(np.asarray(want, np.float64), nan=0, posinf=0, neginf=0))
    if limit.relative * _rms(finite) > smallest(t) or not finite.any():
        return False
    return not compare(n, t, got, want, limit, floor=0.0).ok


def _judged_small(n: str, t: DType, evidence: Evidence, got: Any, limit: Tolerance, plain: OutputReport) -> OutputReport:
    """A sigmoid of -20 is 2e-9, and a runtime may round it to 0; but an output of that size may also be a model's own."""
    exact = evidence.exact()
    if exact is None or np.shape(exact[n]) != np.shape(got):
        return plain
    if not compare(n, t, evidence.want[n], exact[n], limit, floor=0.0).ok or compare(n, t, got, exact[n], limit, floor=0.0).ok:
        return plain
    strict = compare(n, t, got, exact[n], limit, floor=0.0)
    spread = evidence.spread(LEAST_RUNS - 1)
    if spread is not None and n in spread:
        strict = compare(n, t, got, exact[n], limit, _bounded(spread[n], exact[n]), floor=0.0)
    if strict.ok:
        return plain
    note = f"the binary is at fault: it is off by {strict.rms_rel:.1e} of this small output's size, and onnxruntime is not"
    return replace(strict, fault="binary", note=note)


def _as_detections(
    types: Mapping[str, DType],
    evidence: Evidence,
    got: Mapping[str, np.ndarray],
    limit: Tolerance,
    reports: dict[str, OutputReport],
) -> dict[str, OutputReport]:
    """Rule 6."""
    missed = [n for n, r in reports.items() if not r.ok]
    if not missed or not evidence.reference.detects:
        return reports
    for want in filter(None, (evidence.want, evidence.exact())):
        rows = _detections(want[missed[0]])
        group = [n for n in types if rows and _detections(want[n]) == rows and np.ndim(got[n]) == np.ndim(want[n])]
        agree, alone = compare_rows(got, want, types, limit, group) if group else (False, 0)
        moved = (_alone(other, want, types, limit, group) for other in evidence.noisy) if alone else ()
        if agree and set(missed) <= set(group) and (not alone or any(moved)):
            note = f"agrees as a set of detections, {alone} of {rows[-1]} without a partner"
            return {n: replace(r, ok=True, note=note, fault="model") if n in missed else r for n, r in reports.items()}
    return reports


def _detections(array: Any) -> tuple[int, ...]:
    """The leading axes up to the one of detections: the first, behind batches of one."""
    shape = np.shape(array)
    ones = next((i for i, n in enumerate(shape) if n != 1), len(shape))
    return shape[: ones + 1]


def _alone(got: Mapping[str, Any], want: Mapping[str, Any], types: Mapping[str, DType], limit: Tolerance, group: Sequence[str]) -> bool:
    """Whether a run with noise loses or wins a detection, too: one at the threshold."""
    if any(np.ndim(got[n]) != np.ndim(want[n]) for n in group):
        return True
    return compare_rows(got, want, types, limit, group)[1] > 0


def _bounded(spread: np.ndarray, want: Any) -> np.ndarray:
    """What of ``spread`` may excuse an output. It comes of a few runs, so an element that happened not to move is as
    uncertain as its neighbours; and an output that moves by more than a hundredth of its own size would excuse all.
    """
    want = np.asarray(want)
    if want.dtype.kind not in "fc":
        return spread
    spread = np.maximum(spread, np.sqrt(np.mean(spread**2)))
    finite = np.abs(np.where(np.isfinite(want), want, 0))
    return np.asarray(np.minimum(spread, 0.01 * (_rms(finite) + finite)))


def _rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.asarray(x, np.float64) ** 2))) if x.size else 0.0
