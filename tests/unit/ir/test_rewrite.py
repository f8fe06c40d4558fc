"""The driver of rules: locs, near misses, liveness, and that it ends and stays linear."""

from __future__ import annotations

import time

import pytest

from aitc.errors import Loc
from aitc.ir.builder import Builder
from aitc.ir.dtype import F16, F32
from aitc.ir.graph import Graph, Node
from aitc.ir.match import made_by
from aitc.ir.rewrite import Match, MatchLog, Outcome, Reason, Rule, apply_rules
from aitc.ir.types import TensorType
from aitc.ir.verify import verify
from aitc.registry import load

load("aitc.ops")


def chain(*ops: str) -> Graph:
    graph = Graph("main")
    v = graph.add_input("x", TensorType(F32, (4,)))
    for i, op in enumerate(ops):
        v = Builder(graph, (Loc("m", "main", i, f"n{i}", op),)).op(op, v)
    graph.outputs = [v]
    return graph


def _log_of_exp(node: Node) -> Outcome:
    exp = made_by(node.input, "Exp")
    if exp is None:
        return None
    if len(exp.output.users) > 1:
        return Reason("the Exp is read by others as well", exp)
    return Match((exp,), exp.input)


RULE = Rule("log-of-exp", "log(exp(x)) becomes |x|", ("Log",), _log_of_exp, lambda b, node, x: b.op("Abs", x))


def test_locs_are_united_and_the_rest_dies() -> None:
    graph = chain("Neg", "Exp", "Log", "Sqrt")
    log = MatchLog()
    assert apply_rules(graph, [RULE], log) == 1
    verify(graph, "rules")
    assert [n.op.name for n in graph.nodes] == ["Neg", "Abs", "Sqrt"]
    made = list(graph.nodes)[1]
    assert [loc.name for loc in made.locs] == ["n1", "n2"]
    assert log.counts() == {"log-of-exp": 1}
    assert str(log.matches[0]) == 'log-of-exp: matched at m: node #1 "n1" (Exp) and 1 more'


def test_a_near_miss_has_its_reason() -> None:
    graph = chain("Exp", "Log")
    exp = next(graph.nodes)
    graph.outputs.append(Builder(graph).op("Sin", exp.output))
    log = MatchLog()
    assert apply_rules(graph, [RULE], log) == 0
    assert [m.reason for m in log.misses] == ["the Exp is read by others as well"]
    assert "near miss: log-of-exp" in log.to_text()


def test_a_miss_that_matches_later_is_no_miss() -> None:
    graph = chain("Exp", "Log")
    exp = next(graph.nodes)
    sine = Builder(graph).op("Sin", exp.output)
    graph.outputs.append(Builder(graph).op("Cos", sine))
    drop = Rule(
        "drop", "cos becomes the input", ("Cos",), lambda n: Match(), lambda b, node, _: b.op("Abs", graph.inputs[0])
    )
    log = MatchLog()
    assert apply_rules(graph, [RULE, drop], log) == 2
    assert log.misses == []


def test_graph_outputs_follow() -> None:
    graph = chain("Exp", "Log")
    name = graph.outputs[0].name
    apply_rules(graph, [RULE])
    assert graph.outputs[0].producer.op.name == "Abs"
    assert graph.outputs[0].name == name


def test_rules_that_undo_each_other_are_reported() -> None:
    a = Rule("a", "exp becomes sin", ("Exp",), lambda n: Match(), lambda b, node, _: b.op("Sin", node.input))
    c = Rule("c", "sin becomes exp", ("Sin",), lambda n: Match(), lambda b, node, _: b.op("Exp", node.input))
    with pytest.raises(RuntimeError, match="do not come to an end"):
        apply_rules(chain("Exp"), [a, c])


def test_a_replacement_of_another_type_is_reported() -> None:
    bad = Rule(
        "bad", "exp becomes float16", ("Exp",), lambda n: Match(), lambda b, node, _: b.op("Cast", node.input, to=F16)
    )
    with pytest.raises(RuntimeError, match="rule bad replaces"):
        apply_rules(chain("Exp"), [bad])


def test_a_replacement_that_broadcasts_is_expanded() -> None:
    graph = chain("Exp", "Sin")
    rule = Rule("zero", "exp becomes a number", ("Exp",), lambda n: Match(), lambda b, node, _: b.like(0, node.input))
    assert apply_rules(graph, [rule]) == 1
    verify(graph, "rules")
    assert [n.op.name for n in graph.nodes] == ["Expand", "Sin"]


def test_time_grows_with_the_graph_only() -> None:
    def seconds(n: int) -> float:
        graph = chain(*(("Exp", "Log") * n))
        start = time.process_time()
        assert apply_rules(graph, [RULE]) == n
        return time.process_time() - start

    seconds(100)
    pairs = ((seconds(500), seconds(4000)) for _ in range(3))  # the machine may be busy
    assert any(large < 8 * small * 4 + 0.1 for small, large in pairs)  # eight times the nodes; a quadratic walk would take 64 times as long
