"""A profile: what each launch of a compiled model took, beside what it computes, moves and stands for.

Times come from the binary (``NAME --bench --profile --json``), everything else from its report (NAME.json).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aitc import __version__
from aitc.ir import dim as dm
from aitc.ir.parse import parse_dim
from aitc.targets.target import Target, find_target


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """One launch: its median and least time, less what a mark costs, its rates, and how near it comes to its floor.

    ``floor_us`` is the larger of its operations at the target's dense rate and its operands, each moved once, at the
    target's bandwidth; ``share`` is floor over median (1: nothing is faster). ``gap_us`` passed before it began since
    the launch before it ended, in the run of the timeline.
    """

    name: str
    kernel: str
    config: str
    us: float
    min_us: float
    tflops: float
    gbps: float
    floor_us: float
    share: float
    gap_us: float
    note: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """``latency_us``: median of whole runs as they are without marks (on GPUs: replayed). ``mark_us``: what the mark before and after a launch adds
    to it (see ``mark_cost_us``), taken off all times but the timeline's. ``between_us``: what of the latency is in no launch, for each launch."""

    model: str
    device: str
    target: str
    latency_us: float
    launches_us: float
    floor_us: float
    between_us: float
    mark_us: float
    launches: tuple[LaunchTime, ...]
    timeline: tuple[tuple[int, float, float], ...]  # (number of the launch, begin, end) in us, of one run

    def to_json(self) -> dict[str, Any]:
        """The profile as plain data."""
        return asdict(self)


def profile_of(answer: Mapping[str, Any], report: Mapping[str, Any]) -> Profile:
    """The profile in the JSON ``answer`` of a binary, joined with its report."""
    target = find_target(report["targets"][0])
    values = {d["name"]: answer["inputs"][d["input"]]["shape"][d["axis"]] for d in report["dims"]}
    timeline = tuple((s["launch"], s["begin_us"], s["end_us"]) for s in answer["timeline"])
    gaps = _gaps(timeline)
    latency = answer["latency_ms"]["p50"] * 1e3
    mark = mark_cost_us(sum(time["us"] for time in answer["launches"]), latency, len(answer["launches"]))
    rows = []
    for i, (time, told) in enumerate(zip(answer["launches"], report["launches"], strict=True)):
        flops, moved = (_number(told[key], values) for key in ("flops", "bytes"))
        floor = floor_us(target, told["rate"], flops, moved)
        us, least = (round(without_mark(time[key], mark), 3) for key in ("us", "min_us"))
        rows.append(
            LaunchTime(
                time["name"], told["kernel"], told["config"], us, least, _rate(flops, us, 1e6), _rate(moved, us, 1e3),
                round(floor, 3), round(floor / us, 4) if us else 0.0, gaps.get(i, 0.0), told["note"], tuple(told["nodes"]),
            )
        )  # fmt: skip
    spent = sum(r.us for r in rows)
    return Profile(
        answer["model"], answer["device"], target.name, round(latency, 3), round(spent, 3), round(sum(r.floor_us for r in rows), 3),
        round(max(0.0, latency - spent) / max(1, len(rows)), 3), round(mark, 3), tuple(rows), timeline,
    )  # fmt: skip


def mark_cost_us(marked_us: float, latency_us: float, count: int) -> float:
    """What marks add to each of ``count`` launches that take ``marked_us`` together, in a run that takes ``latency_us`` without marks.

    On a GPU a mark waits for the launch before it and holds up the one behind, whose beginning is hidden otherwise: about the same for all launches.
    Marked runs have one lane: what lanes save in the other (``Plan.forks``) counts as the marks' cost, too.
    """
    return max(0.0, marked_us - latency_us) / max(1, count)


def without_mark(us: float, mark_us: float) -> float:
    """A marked launch's time less the mark's; at least a fifth of it, since marks cost a little less beside the shortest launches."""
    return max(us - mark_us, us / 5)


def floor_us(target: Target, rate: str, flops: float, moved: float) -> float:
    """The least time in us for ``flops`` operations on operands of type ``rate`` and ``moved`` bytes."""
    peak = target.tflops.get(rate, target.tflops["fp32"])
    return max(flops / peak * 1e-6, moved / target.gbps * 1e-3)


def _number(d: int | str, values: Mapping[str, int]) -> int:
    """A size of the report at these dims; what only the data decides counts with its hint."""
    if isinstance(d, int):
        return d
    return dm.hint(dm.substitute(parse_dim(d, None), values))


def _rate(amount: float, us: float, unit: float) -> float:
    return round(amount / us / unit, 3) if us else 0.0


def _gaps(timeline: Sequence[tuple[int, float, float]]) -> dict[int, float]:
    """Number of a launch -> what passed before it since the end of the one before, in us."""
    gaps: dict[int, float] = {}
    before = timeline[0][1] if timeline else 0.0
    for launch, begin, end in timeline:
        gaps[launch] = round(gaps.get(launch, 0.0) + begin - before, 3)
        before = end
    return gaps


def table(profile: Profile) -> str:
    """The launches, the longest first, and the sums, as text."""
    head = f"{'us':>10} {'share':>6} {'TFLOP/s':>8} {'GB/s':>8} {'floor us':>9} {'of floor':>8} {'gap us':>7}  launch"
    lines = [f"{profile.model} on {profile.device}", head]
    for r in sorted(profile.launches, key=lambda r: -r.us):
        part = r.us / profile.launches_us if profile.launches_us else 0.0
        lines.append(
            f"{r.us:10.2f} {part:6.1%} {r.tflops:8.2f} {r.gbps:8.1f} {r.floor_us:9.2f} {r.share:8.1%} {r.gap_us:7.2f}  "
            f"{r.name} {r.kernel} [{r.config}] {r.note}"
        )
        lines += [f"{'':63}<- {node.partition(': ')[2] or node}" for node in r.nodes]  # without the model's name
    lines.append(
        f"{len(profile.launches)} launches take {profile.launches_us:.2f} us, less {profile.mark_us:.2f} us each for the marks around it; a run takes "
        f"{profile.latency_us:.2f} us; their floors add up to {profile.floor_us:.2f} us"
    )
    return "\n".join(lines) + "\n"


def chrome_trace(profile: Profile) -> dict[str, Any]:
    """The timeline in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open."""
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": f"{profile.model} on {profile.device}"}},
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "launches"}},
    ]
    for number, begin, end in profile.timeline:
        r = profile.launches[number]
        what = {"config": r.config, "what": r.note, "TFLOP/s": r.tflops, "GB/s": r.gbps, "share of floor": r.share}
        events.append(
            {
                "name": r.name, "cat": r.kernel, "ph": "X", "pid": 0, "tid": 0, "ts": begin, "dur": round(end - begin, 3),
                "args": {**what, "ONNX nodes": list(r.nodes)},
            }
        )  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ns", "aitc": __version__}
