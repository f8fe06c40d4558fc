"""A product runs in the launch of the one before where that one's rows stay in a block; else each has its own, and the reason is written down."""

from __future__ import annotations

import pytest

from aitc.ir.text import from_text
from aitc.passes import stages
from aitc.passes.base import Context
from aitc.registry import load
from aitc.schedule.choose.select import Candidates, Select, choosing
from aitc.schedule.choose.table import Entry, parse, to_text
from aitc.schedule.core.why import Fusions, counts
from aitc.schedule.group import chain
from aitc.schedule.plan.check import check_plan
from aitc.schedule.plan.plan import DimArg, Plan
from aitc.schedule.rewrite import sum_convs
from aitc.schedule.schedule import PlanOptions, schedule, schedule_with
from aitc.targets.target import find_target

for package in ("aitc.ops", "aitc.passes", "aitc.kernels"):
    load(package)

ROWS = 100352
PRODUCTS = f"""
input %x: f16[{ROWS}, 64]
const %w: f16[64, 256] = random(1)
const %v: f16[256, 64] = random(2)
"""
TWO = """
%d = MatMul(%x, %w)
%y = MatMul(%d, %v)
output "y" = %y
"""


def planned(body: str, target: str = "h200", select: Select | None = None) -> tuple[Plan, Fusions]:
    lines = "\n".join(f"  {line}" for line in body.strip().splitlines())
    graph, machine, why = from_text(f'graph "main" {{\n{lines}\n}}\n'), find_target(target), Fusions()
    stages.layout(graph, Context(target=machine))
    options = PlanOptions("m", "m.onnx")
    plan = schedule(graph, machine, options, why=why) if select is None else schedule_with(graph, machine, options, select, why=why)[0]
    return check_plan(plan), why


def notes(body: str, target: str = "h200") -> list[str]:
    return [launch.note for launch in planned(body, target)[0].launches]


def apart(body: str, pair: str = "MatMul %d MatMul %y") -> str:
    """The reason why the two do not share a launch, which they must not."""
    plan, why = planned(body)
    assert not any(" then " in launch.note for launch in plan.launches) and why.chained == 0
    found = {f"{a.first} {a.second}": a.reason for a in why.apart if a.kind == "vertical"}
    return found[pair]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever time is predicted."""
    monkeypatch.setattr(chain, "GAIN_SHARE", -100.0)
    monkeypatch.setattr(chain, "GAIN_US", -1e9)


# --- what is one launch
def test_what_nobody_else_reads_is_not_stored() -> None:
    plan, why = planned(PRODUCTS + TWO)
    (launch,) = plan.launches
    assert launch.note == "MatMul then MatMul" and plan.kernels[0].kernel == "chain_sm90" and plan.kernels[0].entry == "chain_sm90_1"
    assert not any("d" in b.holds for b in plan.buffers) and plan.arena_bytes == 0
    assert {a.parameter for a in launch.args if not isinstance(a, DimArg)} == {"map_a", "map_b", "map_c", "map_e"}
    assert launch.flops == 2 * ROWS * 64 * 256 * 2
    assert why.chained == 1 and why.apart == [] and why.groups == 1


def test_what_is_also_read_elsewhere_is_stored() -> None:
    """A residual network: the sum is what the next block begins with, and what is added at its end."""
    body = """
input %r: f16[{rows}, 256]
const %b: f16[256] = random(3)
%p = MatMul(%x, %w)
%q = Add(%p, %b)
%s = Add(%q, %r)
%d = Relu(%s)
%e = MatMul(%d, %v)
%f = Relu(%e)
%z = Softmax(%f) {axis = 1}
%g = MatMul(%z, %w)
%y = Add(%g, %d)
output "y" = %y
"""
    plan, why = planned(PRODUCTS + body.replace("{rows}", str(ROWS)))
    assert [launch.note for launch in plan.launches] == ["MatMul + Add + Add + Relu then MatMul + Relu", "Softmax", "MatMul + Add"]
    written = {a.parameter: a.buffer for a in plan.launches[0].args if not isinstance(a, DimArg)}
    assert any("d" in b.holds and b.name == written["map_d"] for b in plan.buffers)
    assert written["map_s"] == "r", "the residual comes by the copy engine"
    pairs = [f"{a.first} {a.second}" for a in why.apart]
    assert pairs == ["Relu %f Softmax %z", "Softmax %z MatMul %g", "Relu %d Add %y"], "the two of one launch are none"


def test_an_output_of_the_model_is_stored() -> None:
    plan, _ = planned(PRODUCTS + TWO + 'output "d" = %d')
    (launch,) = plan.launches
    assert {a.buffer for a in launch.args if a.parameter in ("map_d", "map_e") and not isinstance(a, DimArg)} == {"d", "y"}


def test_rows_that_are_known_at_run_time() -> None:
    body = PRODUCTS.replace(f"[{ROWS}, 64]", "[n, 64]")
    plan, _ = planned(f"dim n in 1..200000 hint {ROWS}\n" + body + TWO)
    (launch,) = plan.launches
    assert launch.note == "MatMul then MatMul" and [a.parameter for a in launch.args if isinstance(a, DimArg)] == ["dim_n"]
    assert plan.kernels[0].context.call[0].endswith("(shape, Shape2{dim_n},")


def test_pixels_are_rows() -> None:
    body = """
input %x: f16[32, 64, 56, 56]
const %w: f16[256, 64, 3, 3] = random(1)
const %v: f16[64, 256, 1, 1] = random(2)
%c = Conv(%x, %w) {strides = (1, 1), pads = (1, 1, 1, 1), dilations = (1, 1)}
%d = Relu(%c)
%y = Conv(%d, %v) {strides = (1, 1), pads = (0, 0, 0, 0), dilations = (1, 1)}
%m = Reduce(%y) {function = "mean", axes = (2, 3), keepdims = false}
output "y" = %m
"""
    assert notes(body) == ["Copy", "Conv + Relu then Conv", "Reduce"]


def test_views_that_keep_the_rows() -> None:
    body = """
%d = MatMul(%x, %w)
%s = Reshape(%d) {shape = (32, 3136, 256)}
%y = MatMul(%s, %v)
output "y" = %y
"""
    assert notes(PRODUCTS + body) == ["MatMul then MatMul"]


def test_one_of_two_readers_is_chained() -> None:
    body = """
%d = MatMul(%x, %w)
%y = MatMul(%d, %v)
%r = Relu(%y)
%u = MatMul(%d, %t)
%z = Sigmoid(%u)
output "y" = %r
output "z" = %z
"""
    plan, why = planned(PRODUCTS + "const %t: f16[256, 72] = random(4)\n" + body)
    assert len(plan.launches) == 2 and sum(" then " in launch.note for launch in plan.launches) == 1
    (pair,) = [a for a in why.apart if a.kind == "vertical"]
    assert pair.reason == "one of the two shares its launch with another product, which saves more"


def test_of_three_in_a_row_two_are_chained() -> None:
    body = """
%d = MatMul(%x, %w)
%e = MatMul(%d, %v)
%y = MatMul(%e, %w)
output "y" = %y
"""
    assert sorted(len(n.split(" then ")) for n in notes(PRODUCTS + body)) == [1, 2]


def test_what_a_concat_joins_is_written_there() -> None:
    body = """
%d = MatMul(%x, %w)
%y = MatMul(%d, %v)
%s = Softmax(%y) {axis = 1}
%c = Concat(%d, %s) {axis = 1}
%z = Softmax(%c) {axis = 1}
output "z" = %z
"""
    plan, why = planned(PRODUCTS + body)
    assert why.joined == 1 and [launch.note for launch in plan.launches] == ["MatMul then MatMul", "Softmax", "Softmax"]
    buffers = [{a.parameter: a.buffer for a in launch.args if not isinstance(a, DimArg)} for launch in plan.launches]
    assert buffers[0]["map_d"] in buffers[2].values() and buffers[1].items() - buffers[0].items()


def test_what_a_branch_reads_is_stored() -> None:
    body = """
input %yes: bool[]
%d = MatMul(%x, %w)
%y = MatMul(%d, %v)
%i = If(%yes) {dtypes = (#f16,), shapes = ((ROWS, 256),)} do {
  graph "then" {
    %n: f16[ROWS, 256] = Neg(%^d)
    output %n
  }
  graph "else" {
    %m: f16[ROWS, 256] = Exp(%^d)
    output %m
  }
}
output "y" = %y
output "i" = %i
"""
    plan, _ = planned(PRODUCTS + body.replace("ROWS", str(ROWS)))
    (launch,) = [launch for launch in plan.launches if " then " in launch.note]
    assert any(a.parameter == "map_d" for a in launch.args) and any("d" in b.holds for b in plan.buffers)


def test_in_a_loop() -> None:
    body = f"""
input %n: i64[]
input %h: f16[{ROWS}, 256]
const %w: f16[256, 256] = random(1)
const %v: f16[256, 256] = random(2)
const %yes: bool[] = [true]
%y = Loop(%n, none, %h) {{dtypes = (#f16,), shapes = (({ROWS}, 256),), carried = 1}} do {{
  graph "body" {{
    input %i: i64[]
    input %go: bool[]
    input %a: f16[{ROWS}, 256]
    %d: f16[{ROWS}, 256] = MatMul(%a, %^w)
    %e: f16[{ROWS}, 256] = MatMul(%d, %^v)
    output %^yes
    output %e
  }}
}}
output "y" = %y
"""
    plan, why = planned(body)
    assert [launch.note for launch in plan.launches] == ["MatMul then MatMul", "Copy"]
    assert why.chained == 1, "though the graph around it has none"


# --- what runs between the two
BETWEEN = f"""
input %r: f16[{ROWS}, 64]
const %u: f16[256, 512] = random(5)
const %t: f16[512, 64] = random(6)
%d = MatMul(%x, %w)
"""


def test_what_the_second_waits_for_runs_first() -> None:
    body = """
%s = Softmax(%r) {axis = 1}
%e = MatMul(%d, %v)
%y = Add(%e, %s)
output "y" = %y
"""
    assert notes(PRODUCTS + BETWEEN + body) == ["Softmax", "MatMul then MatMul + Add"]


def test_what_waits_for_the_first_runs_last() -> None:
    body = """
%s = Softmax(%d) {axis = 1}
%y = MatMul(%d, %v)
output "s" = %s
output "y" = %y
"""
    assert notes(PRODUCTS + BETWEEN + body) == ["MatMul then MatMul", "Softmax"]


def test_what_waits_for_the_first_and_is_waited_for() -> None:
    body = """
%g = MatMul(%d, %u)
%s = Softmax(%g) {axis = 1}
%f = MatMul(%s, %t)
%z = Softmax(%f) {axis = 1}
%y = MatMul(%d, %v)
%o = Add(%y, %z)
output "o" = %o
"""
    assert "waits for the first, and the second for that" in apart(PRODUCTS + BETWEEN + body)


def test_a_branch_between_keeps_its_place() -> None:
    body = f"""
input %yes: bool[]
%d = MatMul(%x, %w)
%i = If(%yes) {{dtypes = (#f16,), shapes = (({ROWS}, 64),)}} do {{
  graph "then" {{
    %n: f16[{ROWS}, 64] = Neg(%^x)
    output %n
  }}
  graph "else" {{
    %m: f16[{ROWS}, 64] = Exp(%^x)
    output %m
  }}
}}
%y = MatMul(%d, %v)
output "i" = %i
output "y" = %y
"""
    assert "may decide dims, branch or repeat" in apart(PRODUCTS + body)


def test_nothing_moves_around_late_dims() -> None:
    """How many rows of x are asked for is read from memory between the two products."""
    body = f"""
dim found in 1..{ROWS}
input %k: i64[1]
%d = MatMul(%x, %w)
%t = Relu(%k)
%h = ReadDims(%t) {{dims = (found,)}}
%s = Slice(%x) {{starts = (0, 0), sizes = (found, 64), steps = (1, 1)}}
%o = Relu(%s)
%y = MatMul(%d, %v)
output "o" = %o
output "y" = %y
"""
    assert "may decide dims, branch or repeat" in apart(PRODUCTS + body)


# --- what stays two launches, and why
OTHER = "does not read the first's rows one by one, whole and as they are"


def test_an_epilogue_that_reads_the_rows_as_well() -> None:
    body = """
%d = MatMul(%x, %w)
%y = MatMul(%d, %u)
%o = Add(%y, %d)
output "y" = %o
"""
    assert apart(PRODUCTS + "const %u: f16[256, 256] = random(3)" + body) == "it reads these in other places, too, which it does from memory"


def test_an_epilogue_that_reads_what_they_were_joined_into() -> None:
    body = """
%d = MatMul(%x, %w)
%s = Softmax(%x) {axis = 1}
%c = Concat(%d, %s) {axis = 1}
%h = Slice(%c) {starts = (0, 64), sizes = (ROWS, 256), steps = (1, 1)}
%y = MatMul(%d, %u)
%o = Add(%y, %h)
output "y" = %o
""".replace("ROWS", str(ROWS))
    assert "in other places, too" in apart(PRODUCTS + "const %u: f16[256, 256] = random(3)" + body)


@pytest.mark.parametrize(
    ("view", "weights"),
    [
        ("Slice(%d) {starts = (0, 0), sizes = (ROWS, 128), steps = (1, 1)}", "f16[128, 64]"),
        ("Slice(%d) {starts = (0, 128), sizes = (ROWS, 128), steps = (1, 1)}", "f16[128, 64]"),
        ("Slice(%d) {starts = (64, 0), sizes = (1024, 256), steps = (1, 1)}", "f16[256, 64]"),
        ("Slice(%d) {starts = (0, 0), sizes = (50176, 256), steps = (2, 1)}", "f16[256, 64]"),
        ("Reshape(%d) {shape = (HALF, 512)}", "f16[512, 64]"),
        ("Reshape(%d) {shape = (TWICE, 128)}", "f16[128, 64]"),
    ],
)
def test_views_that_do_not_keep_the_rows(view: str, weights: str) -> None:
    for name, value in (("ROWS", ROWS), ("HALF", ROWS // 2), ("TWICE", 2 * ROWS)):
        view = view.replace(name, str(value))
    body = f"""
const %t: {weights} = random(4)
%d = MatMul(%x, %w)
%s = {view}
%y = MatMul(%s, %t)
output "y" = %y
"""
    assert OTHER in apart(PRODUCTS + body)


def test_rows_in_another_order() -> None:
    body = """
%d = MatMul(%x, %w)
%s = Reshape(%d) {shape = (32, 3136, 256)}
%t = Transpose(%s) {perm = (1, 0, 2)}
%y = MatMul(%t, %v)
output "y" = %y
"""
    assert OTHER in apart(PRODUCTS + body)


def test_a_window_reads_several_pixels() -> None:
    body = """
input %x: f16[32, 64, 56, 56]
const %w: f16[256, 64, 1, 1] = random(1)
const %v: f16[64, 256, K, K] = random(2)
%c = Conv(%x, %w) {strides = (1, 1), pads = (0, 0, 0, 0), dilations = (1, 1)}
%d = Relu(%c)
%y = Conv(%d, %v) {strides = (S, S), pads = (P, P, P, P), dilations = (1, 1)}
%m = Reduce(%y) {function = "mean", axes = (2, 3), keepdims = false}
output "y" = %m
"""
    for K, S, P in (3, 1, 1), (1, 2, 0), (1, 1, 1):
        assert OTHER in apart(body.replace("K", str(K)).replace("S", str(S)).replace("P", str(P)), "Relu %d Conv %y")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (PRODUCTS.replace("256", "264") + TWO, "the first has 264 columns of depth 64: not whole 64, or known only at run time"),
        (PRODUCTS.replace("[256, 64]", "[256, 264]") + TWO, "the second has 264 columns: a block holds the sums of 256 at most, by eights"),
        (PRODUCTS.replace("[256, 64]", "[256, 60]") + TWO, "results that are no one matrix of 16-bit elements"),
        (PRODUCTS.replace("256", "64") + TWO.replace("%v)", "%w)"), "a weight is read twice"),
        (PRODUCTS.replace("const %w:", "input %w:").replace(" = random(1)", "") + TWO, "weights are computed at run time"),
        (PRODUCTS.replace("const %v:", "input %v:").replace(" = random(2)", "") + TWO, "weights are computed at run time"),
        (PRODUCTS.replace("f16", "f32") + TWO, "wgmma takes two operands of fp16, bf16, float8 or, with --precision tf32, fp32"),
        (PRODUCTS.replace(f"%x: f16[{ROWS}, 64]", f"%z: f16[64, {ROWS}]") + "%x = Transpose(%z) {perm = (1, 0)}" + TWO, "the first reads columns, not rows"),
    ],
)  # fmt: skip
def test_others(body: str, reason: str) -> None:
    assert apart(body) == reason


@pytest.mark.parametrize(
    ("products", "pair"),
    [
        ("%p = MatMul(%x, %w)\n%d = Add(%p, %w)\n%y = MatMul(%d, %v)", "Add %d MatMul %y"),
        ("%d = MatMul(%x, %w)\n%p = MatMul(%d, %v)\n%y = Add(%p, %v)", "MatMul %d MatMul %p"),
        ("%d = MatMul(%x, %w)\n%p = MatMul(%d, %v)\n%y = Add(%p, %w)", "MatMul %d MatMul %p"),
    ],
)
def test_an_epilogue_that_reads_a_weight(products: str, pair: str) -> None:
    """It lies in another order for the product."""
    head = "input %x: f16[256, 256]\nconst %w: f16[256, 256] = random(1)\nconst %v: f16[256, 256] = random(2)\n"
    assert apart(head + products + '\noutput "y" = %y', pair) == "a weight is read twice"


def test_two_convolutions_that_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the first of a chain, never the second: what the shortcut reads is not in registers."""
    monkeypatch.setattr(sum_convs, "_gain_us", lambda *_: 1.0)
    body = """
input %x: f16[32, 64, 56, 56]
const %w: f16[64, 64, 3, 3] = random(1)
const %v: f16[256, 64, 1, 1] = random(2)
const %u: f16[256, 64, 1, 1] = random(3)
const %t: f16[64, 256, 1, 1] = random(4)
%c = Conv(%x, %w) {strides = (1, 1), pads = (1, 1, 1, 1), dilations = (1, 1)}
%d = Relu(%c)
%e = Conv(%d, %v) {strides = (1, 1), pads = (0, 0, 0, 0), dilations = (1, 1)}
%f = Conv(%x, %u) {strides = (1, 1), pads = (0, 0, 0, 0), dilations = (1, 1)}
%s = Add(%e, %f)
%r = Relu(%s)
%y = Conv(%r, %t) {strides = (1, 1), pads = (0, 0, 0, 0), dilations = (1, 1)}
%m = Reduce(%y) {function = "mean", axes = (2, 3), keepdims = false}
output "y" = %m
"""
    plan, why = planned(body)
    assert [launch.note for launch in plan.launches] == ["Copy", "Conv + Relu", "Conv + Relu then Conv", "Reduce"]
    assert "the second is two convolutions that add up" in {a.reason for a in why.apart if a.first == "Relu %d"}


def test_batches() -> None:
    body = """
input %x: f16[16, 256, 64]
const %w: f16[16, 64, 256] = random(1)
const %v: f16[16, 256, 64] = random(2)
"""
    assert OTHER in apart(body + TWO)


def test_statistics_of_rows() -> None:
    body = """
input %x: f16[64, 128]
const %w: f16[128, 256] = random(1)
const %v: f16[256, 64] = random(2)
const %s: f16[256] = random(3)
const %u: f16[256, 256] = random(3)
%p = MatMul(%x, %w)
%l = LayerNormalization(%p) {axes = (1,), epsilon = 1e-05}
%d = MatMul(%l, %u)
%y = MatMul(%d, %v)
output "y" = %y
"""
    assert apart(body, "Standardize %standardize MatMul %y") == "statistics of rows are taken or applied"


@pytest.mark.parametrize("target", ["cpu", "a100", "mi250", "mi300x"])
def test_other_machines(target: str) -> None:
    plan, why = planned(PRODUCTS.replace(str(ROWS), "512") + TWO, target)
    assert len(plan.launches) == 2 and why.chained == 0


def test_what_saves_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "GAIN_US", 1e9)
    assert apart(PRODUCTS + TWO).startswith("one after another they are predicted to take ")


# --- counts and tables
def test_counts() -> None:
    _, why = planned(PRODUCTS + TWO)
    assert [(n, more) for what, n, more in counts(why, 0) if what.startswith("vertical")] == [(2, "0 fewer"), (1, "1 fewer")]


@pytest.mark.parametrize("rows", [str(ROWS), "n"])
def test_tuning(rows: str) -> None:
    """Each candidate is a launch of both products, with one key, in which symbolic dims come with their bounds; a table names one of them."""
    head = f"dim n in 1..200000 hint {ROWS}\n" if rows == "n" else ""
    body = head + PRODUCTS.strip().replace(f"[{ROWS}, 64]", f"[{rows}, 64]") + TWO
    candidates = Candidates(None, 4)
    plan, _ = planned(body, select=candidates)
    (slot,) = candidates.slots
    assert len(slot) == len(plan.launches) == len({str(c.config) for c in slot}) == 4
    assert {launch.note for launch in plan.launches} == {"MatMul then MatMul"}
    (key,) = {c.key for c in slot}
    assert key.split(" n:")[0] == f"chain_sm90 f16 1x{rows}x256x64 K16 N16 const dense then f16 1x{rows}x64x256 K16 N16 const dense"
    assert key.endswith(" n:1..200000~100352") == (rows == "n")
    (entry,) = parse(to_text([Entry(key, str(slot[-1].config), 1.0)]), "table")
    plan, _ = planned(body, select=choosing({entry.problem: entry.config}))
    assert [(launch.chosen, k.config) for launch, k in zip(plan.launches, plan.kernels, strict=True)] == [("table", str(slot[-1].config))]


def test_keys_tell_tails_and_what_is_stored_apart() -> None:
    keys = set()
    for tail in "", "%q = Add(%p, %b)\n%d = Relu(%q)", "%d = Gelu(%p)":
        for stored in "", '\noutput "d" = %d':
            body = PRODUCTS + "const %b: f16[256] = random(3)\n" + (TWO.replace("%d = MatMul", "%p = MatMul") if tail else TWO) + stored
            candidates = Candidates(None, 1)
            planned(body.replace("%y =", tail + "\n%y =", 1), select=candidates)
            keys |= {s[0].key for s in candidates.slots}
    assert len(keys) == 6 and all("  " not in key and key == key.strip() for key in keys)
    assert {key.partition(" stored ")[2] for key in keys} == {"", "tail 2 1v then none", "tail 1 exp then none"}
