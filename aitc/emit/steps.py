"""The body of run() where the data decides: steps as C++ text, in the order of the plan, branches and loops nested."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aitc.emit.host import Writer, dtype_enum
from aitc.emit.render import c_string, comment
from aitc.ir.dim import Dim, mul
from aitc.schedule.plan.plan import (
    Branch,
    Fail,
    Give,
    Move,
    Place,
    Plan,
    ReadDims,
    Repeat,
    Require,
    SetDims,
    Space,
    Step,
    Take,
)

INDENT = "  "


class StepWriter:
    """Spells the steps of one plan. Late buffers are variables of run(); late dims are members of ``dims``."""

    def __init__(self, plan: Plan, writer: Writer):
        self.plan = plan
        self.writer = writer
        self.loops = 0
        self.launches = [writer.launch(i, launch) for i, launch in enumerate(plan.launches)]

    def declarations(self) -> list[str]:
        """The variables that hold late buffers."""
        return [f"char* {self.writer.variable(b.name)} = nullptr;" for b in self.plan.buffers if b.space is Space.LATE]

    def lines(self) -> list[str]:
        return self._block(self.plan.steps, 1)

    def _block(self, steps: Iterable[Step], depth: int) -> list[str]:
        out: list[str] = []
        for step in steps:
            out += [INDENT * depth + line if line else "" for line in self._step(step, depth)]
        return out

    def _step(self, step: Step, depth: int) -> list[str]:
        if isinstance(step, int):
            view = self.launches[step]
            return ["", *(f"// {c}" for c in view.comments), view.statement]
        if isinstance(step, Take):
            return [self._take(step)]
        if isinstance(step, Give):
            return [f"r.give({self.writer.variable(step.buffer)});"]
        if isinstance(step, Move):
            return [f"{self.writer.variable(step.to)} = {self.writer.variable(step.source)};"]
        if isinstance(step, ReadDims):
            return self._read(step)
        if isinstance(step, Require):
            return [self.writer.require(step)]
        if isinstance(step, Fail):
            return [f"fail({c_string(step.what)});"]
        if isinstance(step, SetDims):
            return self._set(step)
        if isinstance(step, Branch):
            return [
                f"if (r.truth({self._at(step.condition)})) {{", *self._inner(step.then), "} else {", *self._inner(step.otherwise), "}",
            ]  # fmt: skip
        return self._repeat(step)

    def _inner(self, steps: Sequence[Step]) -> list[str]:
        return self._block(steps, 1)

    def _at(self, place: Place) -> str:
        return self.writer.address(place.buffer, mul(place.offset, place.dtype.bytes))

    def _take(self, step: Take) -> str:
        buffer = self.writer.buffers[step.buffer]
        variable = self.writer.variable(step.buffer)
        if buffer.space is Space.OUTPUT:
            return self.writer.take_output(step.buffer)
        return f"{variable} = r.take({self.writer.expr(buffer.bytes)});"

    def _read(self, step: ReadDims) -> list[str]:
        late = {d.name: d for d in self.plan.late}
        slots = ", ".join(f"{{&dims.{n}, {late[n].lo}, INT64_C({late[n].hi})}}" for n in step.dims)
        return ["", f"// {comment(step.what)}: sizes that the data gives",
                f"read_dims(r, {self._at(step.source)}, {dtype_enum(step.source.dtype)}, {{{slots}}}, {c_string(step.what)});"]  # fmt: skip

    def _set(self, step: SetDims) -> list[str]:
        if len(step.dims) == 1:
            return [f"dims.{step.dims[0]} = {self.writer.expr(step.values[0])};"]
        values = ", ".join(self.writer.expr(v) for v in step.values)
        return [f"set_dims({{{', '.join(f'&dims.{n}' for n in step.dims)}}}, {{{values}}});"]

    def _count(self, trips: Place | Dim | None) -> str:
        if trips is None:
            return "INT64_MAX"
        return f"read_integer(r, {self._at(trips)}, {dtype_enum(trips.dtype)})" if isinstance(trips, Place) else self.writer.expr(trips)

    def _repeat(self, step: Repeat) -> list[str]:
        n, self.loops = self.loops, self.loops + 1
        w = self.writer
        out = ["", "{", f"  const int64_t trips_{n} = {self._count(step.trips)};"]
        asks = step.again is not None
        if step.go is not None or asks:
            out.append(f"  bool go_{n} = {'true' if step.go is None else f'r.truth({self._at(step.go)})'};")
        for c in step.carried:
            size = w.expr(c.bytes)
            out.append(f"  {w.variable(c.variable)} = r.take({size});")
            out.append(f"  r.copy({w.variable(c.variable)}, {self._at(c.initial)}, {size});")
        for k, s in enumerate(step.stacked):
            out += [f"  int64_t used_{n}_{k} = 0;", f"  {w.variable(s.whole)} = r.take(0);"]
        condition = f"go_{n} && " if step.go is not None or asks else ""
        out.append(f"  for (dims.{step.counter} = 0; {condition}dims.{step.counter} < trips_{n}; ++dims.{step.counter}) {{")
        body = self._inner(step.body)
        if step.again is not None:
            body.append(f"{INDENT}go_{n} = r.truth({self._at(step.again)});")
            body.append(f"{INDENT}r.give({w.variable(step.again.buffer)});")
        for k, s in enumerate(step.stacked):
            body.append(f"{INDENT}append(r, {w.variable(s.whole)}, used_{n}_{k}, {w.variable(s.part)}, {w.expr(s.bytes)});")
            body.append(f"{INDENT}r.give({w.variable(s.part)});")
        for c in step.carried:
            body.append(f"{INDENT}r.give({w.variable(c.variable)});")
            body.append(f"{INDENT}{w.variable(c.variable)} = {w.variable(c.next)};")
        body += self._inner(step.ends)
        return [*out, *(INDENT + line if line else "" for line in body), "  }", "}"]
