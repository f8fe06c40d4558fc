"""What a stage's result looks like: one line for the progress display, texts for --dump and ``aitc show``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from aitc.build.cmake import BuildResult
from aitc.build.resources import Usage
from aitc.importer.onnx import Imported
from aitc.ir import dim as dm
from aitc.ir.graph import Graph
from aitc.ir.op import Kind
from aitc.ir.text import to_text, walk
from aitc.passes.base import Context
from aitc.progress import Said
from aitc.report import verification_json
from aitc.schedule.plan.plan import DimArg, Plan, Space
from aitc.schedule.plan.serialize import plan_to_json
from aitc.verify.run import Verification


def size(n: float) -> str:
    """A number of bytes as people write it."""
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.2f} GiB"


def count(n: int, what: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{n:,} {what}{'' if n == 1 else 'es' if what.endswith('ch') else 's'}"


def graph_said(graph: Graph) -> Said:
    """Nodes, as one line and as the text IR."""
    nodes = [n for g in walk(graph) for n in g.nodes]
    views = sum(n.op.kind is Kind.VIEW for n in nodes)
    line = count(len(nodes), "node") + (f", {views:,} of them views" if views else "")
    return Said(line, lambda: {"txt": to_text(graph)}, (("nodes", len(nodes)),))


def import_said(imported: Imported) -> Said:
    """As ``graph_said``, with opsets."""
    said = graph_said(imported.graph)
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in dict(imported.opset_imports).items())
    return replace(said, line=f"{said.line}; opset {opsets}")


def fuse_said(graph: Graph, context: Context) -> Said:
    """As ``graph_said``, with the rules that matched most and the match log."""
    said = graph_said(graph)
    most = sorted(context.log.counts().items(), key=lambda e: (-e[1], e[0]))[:5]
    line = "; ".join([said.line, *([", ".join(f"{n} {rule}" for rule, n in most)] if most else [])])
    return replace(said, line=line, texts=lambda: {**said.texts(), "rules.txt": context.log.to_text()})


def layout_said(graph: Graph, context: Context) -> Said:
    """As ``graph_said``, with what runs in which type."""
    said = graph_said(graph)
    rows = [f"{d.dtype:5} {d.op:24} {d.node}" + (f"  ({d.reason})" if d.reason else "") for d in context.decisions]
    types = Counter(d.dtype for d in context.decisions)
    line = "; ".join([said.line, *([", ".join(f"{n} in {t}" for t, n in types.most_common())] if rows else [])])
    line += f"; magnitudes {context.ranges.how}" if context.ranges.how else ""
    return replace(
        said, line=line, texts=lambda: {**said.texts(), **({"precision.txt": "\n".join(rows) + "\n"} if rows else {})}
    )


def graph_statistics(graph: Graph) -> dict[str, Any]:
    """Nodes by op and by kind, constants and their bytes, inputs and outputs as text."""
    nodes = [n for g in walk(graph) for n in g.nodes]
    constants = {id(v): v.const.nbytes for g in walk(graph) for v in g.values() if v.const is not None}
    return {
        "nodes": len(nodes),
        "ops": dict(Counter(n.op.name for n in nodes).most_common()),
        "kinds": dict(Counter(n.op.kind.value for n in nodes).most_common()),
        "constants": len(constants),
        "constant_bytes": sum(constants.values()),
        "inputs": [f"{v.name} {v.type}" for v in graph.inputs],
        "outputs": [f"{name} {v.type}" for name, v in zip(graph.output_names, graph.outputs)],
    }


def launches_said(plan: Plan) -> Said:
    """Launches and kernels."""
    kernels = Counter(k.kernel for k in plan.kernels)
    most = ", ".join(f"{n} {k}" for k, n in kernels.most_common(4))
    line = f"{count(len(plan.launches), 'launch')}, {count(len(plan.kernels), 'kernel file')}: {most}"
    shared = sum(" | " in launch.note for launch in plan.launches)
    line += f"; {count(shared, 'launch')} of several groups side by side" if shared else ""
    chained = sum(" then " in launch.note for launch in plan.launches)
    line += f"; {count(chained, 'launch')} of two products one after another" if chained else ""
    beside = sum(sum(f.lanes) for f in plan.forks)
    line += f"; {count(beside, 'launch')} in {count(len(plan.forks), 'fork')}" if beside else ""
    tuned, gone = (sum(bool(x) for x in found) for found in ([n.chosen == "table" for n in plan.launches], [n.gone for n in plan.launches]))
    if tuned or gone:
        line += f"; {tuned} chosen by tuning tables" + (f", {gone} times what they name is gone" if gone else "")
    return Said(line, lambda: {"txt": launches_text(plan)})


def usage_text(u: Usage) -> str:
    """A kernel's figures as one line: what it takes, and how much of the machine then runs it."""
    r, unit = u.resources, u.target.unit
    if u.target.api == "hip":
        registers = f"{r.registers} VGPRs ({r.accumulation_registers} of them AGPRs), {r.scalar_registers} SGPRs"
        registers += f" (and {r.scalar_spills} in VGPRs)" if r.scalar_spills else ""
        words = ("LDS", "registers spilled", "wave")
    else:
        registers, words = f"{r.registers} registers", ("shared memory", "bytes spilled", "warp")
    spills = f"{r.spills} {words[1]}" if r.spills else "no spills"
    stack = f", {r.stack_bytes} bytes of stack" if r.stack_bytes else ""
    claim = f" ({u.claimed} claimed)" if u.claimed else ""
    resident = f"{count(u.blocks, 'block')} a unit{claim}, {u.warps:g} of {unit.warps // unit.simds} {words[2]}s a SIMD"
    return f"{r.arch}: {registers}, {u.smem_bytes} bytes of {words[0]}, {spills}{stack}; {resident}"


def launches_text(plan: Plan, used: Sequence[Usage] = ()) -> str:
    """One launch a paragraph: what it runs, where, with which arguments, and the ONNX nodes it stands for.

    ``used``: what the kernels take of the machine, where they are compiled.
    """
    kernels = {k.entry: k for k in plan.kernels}
    lanes = _lanes_text(plan)
    lines = []
    for at, launch in enumerate(plan.launches):
        k = kernels[launch.entry]
        lines += lanes.get(at, [])
        grid, block = "x".join(map(str, launch.grid)), "x".join(map(str, launch.block))
        where = "" if plan.api == "cpu" else f" grid {grid} block {block} smem {launch.smem_bytes}"
        word = " by table" if launch.chosen == "table" else f" (the table's {launch.gone} is gone)" if launch.gone else ""
        lines.append(f"{launch.name}: {k.kernel} [{k.config}]{word}{where}; {launch.note}")
        lines += [f"    {usage_text(u)}" for u in used if u.kernel.entry == launch.entry]
        lines.append(
            "    " + ", ".join(f"{a.parameter}={a.value if isinstance(a, DimArg) else a.buffer}" for a in launch.args)
        )
        lines += [f'    <- {loc.op_type} "{loc.name or f"#{loc.index}"}"' for loc in launch.locs]
    return "\n".join(lines) + "\n"


def _lanes_text(plan: Plan) -> dict[int, list[str]]:
    """The line that stands before the launch with that number, where lanes begin or end."""
    found: dict[int, list[str]] = {}
    for f in plan.forks:
        at = f.first
        for lane, size in enumerate(f.lanes, 1):
            found.setdefault(at, []).append(f"-- side by side, lane {lane} of {len(f.lanes)}: {count(size, 'launch')}")
            at += size
        found[at] = ["-- all lanes have ended"]
    return found


def plan_said(plan: Plan) -> Said:
    """Memory, and the Plan as JSON."""
    arena = size(arena_bytes(plan)) + (" at typical sizes" if plan.arena_bytes < 0 else "")
    return Said(f"arena {arena}, weights {size(plan.weights_bytes)}", lambda: {"json": plan_to_json(plan)})


def arena_bytes(plan: Plan) -> int:
    """The size of the arena; where it depends on symbolic dims, the least that it can be with them at their hints."""
    if plan.arena_bytes >= 0:
        return plan.arena_bytes
    change = [0] * (len(plan.launches) + 2)
    for b in plan.buffers:
        if b.space is Space.ARENA:
            size = dm.hint(b.bytes)
            change[b.first] += size
            change[min(b.last, len(plan.launches)) + 1] -= size
    return max(accumulate(change))


def plan_statistics(plan: Plan) -> dict[str, Any]:
    """Launches, kernels, bytes."""
    return {
        "launches": len(plan.launches),
        "kernel_files": len(plan.kernels),
        "forks": len(plan.forks),
        "launches_side_by_side": sum(sum(f.lanes) for f in plan.forks),
        "kernels": dict(Counter(k.kernel for k in plan.kernels).most_common()),
        "arena_bytes": arena_bytes(plan),
        "weights_bytes": plan.weights_bytes,
    }


def sources_said(sources: Mapping[str, str]) -> Said:
    """Files and lines."""
    lines = sum(t.count("\n") for t in sources.values())
    return Said(
        f"{count(len(sources), 'file')}, {count(lines, 'line')}",
        lambda: {f"/{name}": text for name, text in sources.items()},
    )


def build_said(built: BuildResult) -> Said:
    """What was compiled and what came out of the cache; the compilers' words."""
    bytes_ = built.library.stat().st_size
    line = f"{count(built.compiled, 'object')} compiled, {built.cached} cached; library {size(bytes_)}"
    return Said(line, lambda: {"log": built.log + "\n"})


def verification_said(verification: Verification) -> Said:
    """How far from the reference."""
    return Said(str(verification), lambda: {"json": json.dumps(verification_json(verification), indent=1) + "\n"})
