"""LSTM, GRU and RNN: the sequential part (include/aitc/generic/recurrent.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aitc.ir.cpp import c_expr
from aitc.ir.dim import Dim, hint, product
from aitc.ir.dtype import F32
from aitc.ir.graph import Node, Value
from aitc.ir.index import Index
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import FunctorBuilder, Parameters, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.spelling import literal
from aitc.targets.target import Target

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FUNCTIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}

# The C++ text of each activation of x, with alpha and beta as {a} and {b}.
ACTIVATIONS = {
    "Relu": "relu(x)", "Tanh": "tanh_(x)", "Sigmoid": "sigmoid(x)", "Affine": "{a} * x + {b}", "LeakyRelu": "x >= 0 ? x : {a} * x",
    "ThresholdedRelu": "x >= {a} ? x : 0.0f", "ScaledTanh": "{a} * tanh_({b} * x)", "HardSigmoid": "hard_sigmoid(x, {a}, {b})",
    "Elu": "x >= 0 ? x : {a} * (exp_(x) - 1)", "Softsign": "softsign(x)", "Softplus": "softplus(x)",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecurrentProblem:
    op: str
    dtype: str
    directions: int
    steps: Dim
    batch: Dim
    hidden: int

    def __str__(self) -> str:
        return f"{self.op} {self.dtype} d{self.directions} t{self.steps} b{self.batch} h{self.hidden}"


@dataclass(frozen=True, slots=True)
class RecurrentConfig:
    threads: int = 0

    def __str__(self) -> str:
        return f"t{self.threads}" if self.threads else "auto"


@k.register
class Recurrent(k.Kernel):
    name = "recurrent"
    template = "kernel"
    anchors = frozenset({"LSTM", "GRU", "RNN"})
    tails = False
    doc = "what is sequential of LSTM, GRU and RNN, a block (or thread) for each direction and batch"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> RecurrentProblem | k.No:
        node = group.anchor
        assert node is not None
        x, r = node.inputs[:2]
        assert x is not None and r is not None
        if not isinstance(x.shape[0], int) or not isinstance(r.shape[2], int):
            return k.No("directions and hidden size must be known when compiling")
        if target.gpu and 6 * 4 * r.shape[2] > target.smem_bytes:
            return k.No(f"a hidden size of {r.shape[2]} does not fit the shared memory of a block")
        return RecurrentProblem(node.op.name, x.type.dtype.name, x.shape[0], x.shape[1], x.shape[2], r.shape[2])

    def configs(self, problem: RecurrentProblem, target: Target) -> Sequence[RecurrentConfig]:
        if not target.gpu:
            return (RecurrentConfig(),)
        return (RecurrentConfig(min(1024, max(target.warp, -(-problem.hidden // target.warp) * target.warp))),)

    def score_us(self, problem: RecurrentProblem, config: RecurrentConfig, target: Target) -> float:
        return target.launch_us + hint(problem.steps) * (2.0 + problem.hidden * 0.02)

    def build(
        self, group: Group, problem: RecurrentProblem, config: RecurrentConfig, storage: StorageOf, target: Target
    ) -> k.Draft:
        node = group.anchor
        assert node is not None
        parts = _Parts(node, problem, storage)
        structs = [parts.shape(), parts.x(), parts.r(), parts.state(), parts.act(), parts.out()]
        call = (f"{problem.op.lower()}({', '.join(make for _, make in structs)});",)
        context = k.Context(
            "", k.banner(group), ("aitc/generic/recurrent.h",), "int64_t", (), (), tuple(lines for lines, _ in structs),
            k.entry_parameters(parts.parameters), config.threads, call,
        )  # fmt: skip
        items = product((problem.directions, problem.batch))
        flops = product((items, problem.steps, GATES[problem.op] * 2 * problem.hidden * problem.hidden))
        return k.Draft(
            self.name, str(config), self.template, context, parts.parameters, grid=(items, 1, 1), block=(max(config.threads, 1), 1, 1),
            smem_bytes=6 * 4 * problem.hidden if config.threads else 0, skip_if_zero=items, flops=flops,
        )  # fmt: skip


class _Parts:
    """The structs that the header asks for, each as (lines, expression that makes one)."""

    def __init__(self, node: Node, problem: RecurrentProblem, storage: StorageOf):
        self.node = node
        self.problem = problem
        self.storage = storage
        self.parameters = Parameters()

    def _method(
        self, signature: str, v: Value | None, coords: dict[str, Dim], index: list[str], default: str
    ) -> tuple[list[str], dict[str, None]]:
        """A member function that loads ``v`` at ``index`` (names of coordinates), or returns ``default`` without one."""
        if v is None:
            return [f"  AITC_FN float {signature} const {{ return {default}; }}"], {}
        symbols = {name: k.dim_of(k.coordinate(name, extent)) for name, extent in coords.items()}
        builder = FunctorBuilder(frozenset(), None, 1, self.parameters, self.storage)
        ref = builder.value(v, tuple(symbols[n] for n in index))
        builder.emit(f"return float({ref.text});", True)
        used = dict.fromkeys((*builder.used, *builder.used_dims))
        return [f"  AITC_FN float {signature} const {{", *("    " + line.code for line in builder.lines()), "  }"], used

    def _struct(self, name: str, members: dict[str, None], body: list[str]) -> tuple[tuple[str, ...], str]:
        pointers = {p.name: p.declaration for p in self.parameters.pointers.values()}
        lines = [f"struct {name} {{", *(f"  {pointers.get(m, f'int64_t {m}')};" for m in members), *body, "};"]
        return tuple(lines), f"{name}{{{', '.join(members)}}}"

    def shape(self) -> tuple[tuple[str, ...], str]:
        p, a = self.problem, self.node.attrs
        body = [f"  static constexpr int directions = {p.directions}, hidden = {p.hidden};"]
        values: list[str] = []
        for name, d in (("steps", p.steps), ("batch", p.batch)):
            if isinstance(d, int):
                body.append(f"  static constexpr int {name} = {d};")
            else:
                body.append(f"  int64_t {name};")
                values.append(c_expr(d, self.parameters.dim))
        backward = " || ".join(f"direction == {n}" for n, r in enumerate(a.reverse) if r) or "false"
        body += [
            f"  static constexpr float clip = {literal_float(a.clip)};",
            f"  static constexpr bool input_forget = {str(a.input_forget).lower()}, linear_before_reset = {str(a.linear_before_reset).lower()};",
            f"  AITC_FN static bool reverse([[maybe_unused]] int direction) {{ return {backward}; }}",
        ]
        return ("struct Shape {", *body, "};"), f"Shape{{{', '.join(values)}}}"

    def x(self) -> tuple[tuple[str, ...], str]:
        p = self.problem
        coords = {"direction": p.directions, "t": p.steps, "b": p.batch, "g": GATES[p.op] * p.hidden}
        body, used = self._method(
            "operator()(int direction, int64_t t, int64_t b, int64_t g)",
            self.node.input,
            coords,
            ["direction", "t", "b", "g"],
            "",
        )
        return self._struct("X", used, body)

    def r(self) -> tuple[tuple[str, ...], str]:
        p = self.problem
        coords: dict[str, Dim] = {"direction": p.directions, "g": GATES[p.op] * p.hidden, "k": p.hidden}
        body, used = self._method(
            "operator()(int direction, int64_t g, int64_t k)", self.node.inputs[1], coords, ["direction", "g", "k"], ""
        )
        return self._struct("R", used, body)

    def state(self) -> tuple[tuple[str, ...], str]:
        p, inputs = self.problem, self.node.inputs
        coords: dict[str, Dim] = {
            "direction": p.directions,
            "b": p.batch,
            "u": p.hidden,
            "p": 3 * p.hidden,
            "g": GATES[p.op] * p.hidden,
        }
        lines, members = self._method("length_of(int64_t b)", inputs[2], coords, ["b"], "0")
        body = [
            line.replace("float length_of", "int64_t length").replace("return float(", "return int64_t(")
            for line in lines
        ]
        if inputs[2] is None:
            steps = self.problem.steps
            body = [
                f"  AITC_FN int64_t length(int64_t) const {{ return {steps if isinstance(steps, int) else 'steps'}; }}"
            ]
            if not isinstance(steps, int):
                body.insert(0, "  int64_t steps;")
        more: list[tuple[str, Value | None, list[str]]] = [
            ("h0(int direction, int64_t b, int64_t u)", inputs[3], ["direction", "b", "u"])
        ]
        if p.op == "LSTM":
            more += [("c0(int direction, int64_t b, int64_t u)", inputs[4], ["direction", "b", "u"]),
                     ("peephole(int direction, int64_t p)", inputs[5], ["direction", "p"])]  # fmt: skip
        if p.op == "GRU":
            more.append(("bias(int direction, int64_t g)", inputs[4], ["direction", "g"]))
        for signature, v, index in more:
            lines, used = self._method(signature, v, coords, index, "0.0f")
            body += lines
            members |= used
        lines_, make = self._struct("State", members, [b for b in body if b != "  int64_t steps;"])
        if "  int64_t steps;" in body:
            lines_ = (lines_[0], "  int64_t steps;", *lines_[1:])
            inner = make[len("State{") : -1]
            make = f"State{{{', '.join(x for x in (c_expr(self.problem.steps, self.parameters.dim), inner) if x)}}}"
        return lines_, make

    def act(self) -> tuple[tuple[str, ...], str]:
        p = self.problem
        n = FUNCTIONS[p.op]
        body = ["  template <int which> AITC_FN float apply([[maybe_unused]] int direction, float x) const {"]
        for which in range(n):
            texts = []
            for d in range(p.directions):
                f = self.node.attrs.activations[n * d + which]
                texts.append(ACTIVATIONS[f.name].format(a=literal_float(f.alpha), b=literal_float(f.beta)))
            text = texts[0] if len(set(texts)) == 1 else f"direction == 0 ? ({texts[0]}) : ({texts[1]})"
            body.append(f"    if constexpr (which == {which}) return {text};")
        return ("struct Act {", *body, "  }", "};"), "Act{}"

    def out(self) -> tuple[tuple[str, ...], str]:
        p = self.problem
        body: list[str] = []
        members: dict[str, None] = {}
        kinds = (("y", "int64_t t, int direction, int64_t b, int64_t u", ("t", "direction", "b", "u")),
                 ("h", "int direction, int64_t b, int64_t u", ("direction", "b", "u")),
                 ("c", "int direction, int64_t b, int64_t u", ("direction", "b", "u")))  # fmt: skip
        extents: dict[str, Dim] = {"t": p.steps, "direction": p.directions, "b": p.batch, "u": p.hidden}
        for v, (name, signature, axes) in zip(self.node.outputs, kinds, strict=False):
            index: Index = tuple(k.dim_of(k.coordinate(a, extents[a])) for a in axes)
            storage = self.storage(v)
            pointer = self.parameters.pointer(storage.root, const=False)
            builder = FunctorBuilder(frozenset(), None, 1, self.parameters, self.storage)
            text = builder.c(storage.at(index))
            members[pointer] = None
            members |= dict.fromkeys(builder.used_dims)
            c_type = v.type.dtype.c
            value = "value" if c_type == "float" else f"convert<{c_type}>(value)"
            body.append(f"  AITC_FN void {name}({signature}, float value) const {{ {pointer}[{text}] = {value}; }}")
        return self._struct("Out", members, body)


def literal_float(x: float) -> str:
    return literal(x, F32)
