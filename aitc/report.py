"""<name>.json: everything about a compiled model that a script wants, and the way back from it to what verify needs."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aitc import __version__
from aitc.build.cmake import BuildResult
from aitc.build.resources import resources_json, usage
from aitc.errors import AitcError, Diagnostic, Exit
from aitc.importer.values import Bound
from aitc.ir import dim as dm
from aitc.ir import dtype as dt
from aitc.ir.parse import parse_dim
from aitc.passes.base import Context
from aitc.schedule.plan.plan import DimSource, Launch, Plan, PointerArg, Port, Require, Space, TensorMapArg
from aitc.verify.run import Subject, Verification

FORMAT = 1


def report_of(
    plan: Plan,
    seconds: Mapping[str, float],
    verification: Verification | None,
    subject: Subject,
    context: Context,
    built: BuildResult,
    model_sha256: str,
) -> dict[str, Any]:
    """The JSON object. Keys are only ever added; ``format`` counts the changes that break a reader."""
    kernels = Counter(k.kernel for k in plan.kernels)
    entries = {k.entry: k for k in plan.kernels}
    files = {p.name: p.stat().st_size for p in sorted(built.library.parent.iterdir()) if p.is_file()}
    return {
        "format": FORMAT,
        "aitc": __version__,
        "name": plan.name,
        "model": {"file": plan.model, "metadata": dict(plan.metadata)},
        "targets": list(plan.targets),
        "api": plan.api,
        "precision": plan.precision,
        "magnitudes": context.ranges.how,
        "nodes": [{"node": d.node, "op": d.op, "dtype": d.dtype, "reason": d.reason} for d in context.decisions],
        "rules": context.log.counts(),
        "roundoff": subject.roundoff,
        "depth": subject.depth,
        "dims": [asdict(d) for d in plan.dims],
        "requires": [{"less": _number(r.less), "more": _number(r.more), "equal": r.equal, "what": r.what} for r in plan.requires],
        "inputs": [_port(p) for p in plan.inputs],
        "values": [b.json() for b in subject.bound],
        "outputs": [_port(p) for p in plan.outputs],
        "files": files,
        "bytes": {"arena": plan.arena_bytes, "weights": plan.weights_bytes, "state": plan.state_bytes},
        "peak": peak(plan),
        "digests": {"model": model_sha256, "weights": plan.weights_digest},
        "objects": {"compiled": built.compiled, "cached": built.cached},
        "kernels": {"files": len(plan.kernels), "by_kernel": dict(sorted(kernels.items()))},
        "resources": [resources_json(u) for u in usage(plan, built.resources)],
        "launches": [
            {
                "name": n.name,
                "entry": n.entry,
                "kernel": entries[n.entry].kernel,
                "config": entries[n.entry].config,
                "rate": operand_rate(plan, n),
                "nodes": [str(loc) for loc in n.locs],
                "note": n.note,
                "flops": _number(n.flops),
                "bytes": _number(n.bytes),
            }
            for n in plan.launches
        ],
        "forks": [{"first": f.first, "lanes": list(f.lanes)} for f in plan.forks],
        "statistics": dict(plan.statistics),
        "seconds": {k: round(v, 4) for k, v in seconds.items()},
        "verified": verification is not None and verification.ok and not verification.hollow,
        "verification": verification_json(verification),
    }


_RATES = {"half_t": "fp16", "bfloat16_t": "bf16"}


def operand_rate(plan: Plan, launch: Launch) -> str:
    """Which of the target's rates (``Target.tflops``) bounds a launch's arithmetic: that of the narrowest type it reads."""
    types = {a.c_type for a in launch.args if isinstance(a, PointerArg) and a.const}
    types |= {a.dtype.c for a in launch.args if isinstance(a, TensorMapArg)}
    if any(t.startswith("float8") for t in types):
        return "fp8"
    return next((_RATES[t] for t in sorted(types) if t in _RATES), "tf32" if plan.precision == "tf32" else "fp32")


def digest(model: str | Path | bytes) -> str:
    """SHA-256 of the model file (not of its external data)."""
    if isinstance(model, bytes):
        return hashlib.sha256(model).hexdigest()
    result = hashlib.sha256()
    with open(model, "rb") as file:
        while block := file.read(1 << 20):
            result.update(block)
    return result.hexdigest()


def verification_json(v: Verification | None) -> dict[str, Any]:
    """The verification as JSON; NaNs and infinities as text, since JSON has none."""
    if v is None:
        return {"status": "not run", "reason": "not asked for"}
    return {k: _plain(x) for k, x in asdict(v).items() if x not in ("", (), None)}


def _plain(x: Any) -> Any:
    if isinstance(x, float):
        return x if x == x and abs(x) != float("inf") else str(x)
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    return [_plain(v) for v in x] if isinstance(x, (list, tuple)) else x


def _port(p: Port) -> dict[str, Any]:
    return {"name": p.name, "dtype": p.dtype.name, "shape": [_number(d) for d in p.shape], "use": p.use}


def _number(d: dm.Dim) -> int | str:
    return d if isinstance(d, int) else str(d)


def peak(plan: Plan) -> dict[str, Any]:
    """The launch at which most of the arena is live, and what holds it, largest first."""
    arena = [b for b in plan.buffers if b.space is Space.ARENA]
    best, at = 0, 0
    for i in range(len(plan.launches)):
        live = sum(b.upper_bytes for b in arena if b.first <= i <= b.last)
        if live > best:
            best, at = live, i
    held = sorted((b for b in arena if b.first <= at <= b.last), key=lambda b: (-b.upper_bytes, b.name))
    return {
        "bytes": best,
        "launch": plan.launches[at].name if plan.launches else "",
        "holders": [{"values": list(b.holds), "bytes": b.upper_bytes} for b in held[:8]],
    }


def find_report(folder: Path, name: str = "") -> tuple[Path, dict[str, Any]]:
    """The report in an output folder: of model ``name``, or of the only one. Raises AitcError (IO or USAGE)."""
    if not folder.is_dir():
        raise AitcError(Diagnostic("O03", f"{folder} is not a folder", help="give the -o of `aitc compile`"), Exit.IO)
    found: dict[str, tuple[Path, dict[str, Any]]] = {}
    for path in sorted(folder.glob(f"{name or '*'}.json")):
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(raw, dict) and "aitc" in raw and raw.get("format") == FORMAT:
            found[path.stem] = (path, raw)
    if not found:
        raise AitcError(Diagnostic("O03", f"{folder} holds no model that aitc {__version__} compiled"), Exit.IO)
    if len(found) > 1:
        raise AitcError(
            Diagnostic("C02", f"{folder} holds {', '.join(found)}", help="say which with --name"), Exit.USAGE
        )
    return next(iter(found.values()))


def subject_of(folder: Path, report: Mapping[str, Any], device: int = 0) -> Subject:
    """What verify needs, from a report."""
    dims = tuple(DimSource(**d) for d in report["dims"])
    symbols = {d.name: dm.Symbol(d.name, d.lo, d.hi, d.multiple_of, d.hint) for d in dims}

    def port(raw: Mapping[str, Any], known: Mapping[str, dm.Symbol] | None) -> Port:
        shape = tuple(d if isinstance(d, int) else parse_dim(d, known) for d in raw["shape"])
        return Port(raw["name"], dt.BY_NAME[raw["dtype"]], shape, "", raw["use"])

    inputs = tuple(port(p, symbols) for p in report["inputs"])
    outputs = tuple(port(p, None) for p in report["outputs"])  # their dims may depend on data

    def side(raw: int | str) -> dm.Dim:
        return raw if isinstance(raw, int) else parse_dim(raw, symbols)

    requires = tuple(Require(side(r["less"]), side(r["more"]), r["equal"], r["what"]) for r in report.get("requires", ()))
    return Subject(
        folder, report["name"], report["api"], inputs, outputs, dims, report["roundoff"], report["depth"], device, requires,
        bound=tuple(Bound.of_json(b) for b in report.get("values", ())),
    )
