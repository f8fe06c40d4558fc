"""Import of small models: names, dims, constants, functions, control flow."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from aitc.errors import AitcError
from aitc.importer.dims import parse_binding, parse_shape
from aitc.importer.onnx import Imported, import_model
from aitc.ir import dim as d
from aitc.ir.interpret import interpret
from aitc.ir.verify import verify

HEAD = '<ir_version: 8, opset_import: ["" : 17{extra}]>\n'


def model(text: str, extra: str = "") -> onnx.ModelProto:
    return parser.parse_model(HEAD.format(extra=extra) + text)


def imported(text: str, extra: str = "", **options: Any) -> Imported:
    return import_model(model(text, extra), **options)


def ops(result: Imported) -> Counter[str]:
    return Counter(n.op.name for n in result.graph.nodes)


def run(result: Imported, **inputs: np.ndarray) -> list[np.ndarray]:
    return list(interpret(result.graph, inputs).values())


# --- names, inputs, outputs -------------------------------------------------------------------------------------------


def test_values_keep_the_names_of_the_model() -> None:
    result = imported("g (float[2] x) => (float[2] y) { a = Relu(x)\n y = Exp(a) }")
    assert [n.output.name for n in result.graph.nodes] == ["a", "y"]
    assert result.graph.output_names == ["y"]
    assert str(next(iter(result.graph.nodes)).locs[0]).endswith("node #0 (Relu)")


def test_an_output_may_be_an_input_a_constant_or_given_twice() -> None:
    result = imported(
        "g (float[2] x) => (float[2] x, float[2] c, float[2] a, float[2] b) {"
        "c = Constant<value = float[2] {1, 2}>()\n a = Neg(x)\n b = Identity(a) }"
    )
    assert result.graph.output_names == ["x", "c", "a", "b"]
    assert result.graph.outputs[2] is result.graph.outputs[3]
    outputs = run(result, x=np.array([3, 4], np.float32))
    np.testing.assert_array_equal(np.stack(outputs), [[3, 4], [1, 2], [-3, -4], [-3, -4]])


def test_an_initializer_that_is_also_an_input_is_a_constant() -> None:
    m = model("g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }")
    m.graph.initializer.append(numpy_helper.from_array(np.array([10, 20], np.float32), "w"))
    result = import_model(m)
    assert [v.name for v in result.graph.inputs] == ["x"]
    np.testing.assert_array_equal(run(result, x=np.array([1, 2], np.float32))[0], [11, 22])


def test_sparse_initializer() -> None:
    m = model("g (float[2,3] x) => (float[2,3] y) { y = Add(x, w) }")
    values, indices = (
        numpy_helper.from_array(np.array([5, 7], np.float32), "w"),
        numpy_helper.from_array(np.array([[0, 1], [1, 2]]), "i"),
    )
    m.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 3]))
    np.testing.assert_array_equal(run(import_model(m), x=np.zeros((2, 3), np.float32))[0], [[0, 5, 0], [0, 0, 7]])


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("value = float[2] {1, 2}", np.array([1, 2], np.float32)), ("value_float = 2.5", np.array(2.5, np.float32)),
        ("value_floats = [1.0, 2.0]", np.array([1, 2], np.float32)), ("value_int = 3", np.array(3, np.int64)),
        ("value_ints = [3, 4]", np.array([3, 4], np.int64)),
    ],
)  # fmt: skip
def test_constant_in_every_form(attribute: str, expected: np.ndarray) -> None:
    declared = {"f": "float", "i": "int64"}[expected.dtype.kind]
    (actual,) = run(imported(f"g () => ({declared}[N] y) {{ y = Constant<{attribute}>() }}"))
    np.testing.assert_array_equal(actual, expected)
    assert actual.dtype == expected.dtype


def test_optional_inputs_may_be_left_out_in_the_middle() -> None:
    result = imported("g (float[2] x) => (float[2] y) { high = Constant<value_float = 1.0>()\n y = Clip(x, , high) }")
    assert ops(result) == {"Min": 1}


# --- dims -------------------------------------------------------------------------------------------------------------


def test_names_of_dims_are_symbols_of_at_least_one() -> None:
    result = imported("g (float[batch, 4] x) => (float[batch, 4] y) { y = Relu(x) }")
    batch = d.as_symbol(result.graph.outputs[0].shape[0])
    assert batch is not None and (batch.name, batch.lo, batch.hi) == ("batch", 1, None)


def shape_of_second(first: list[Any], second: list[Any], **options: Any) -> tuple[Any, ...]:
    """The shape that an input of ``second`` gets beside one of ``first``."""
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("a", first), ("b", second))]
    nodes = [helper.make_node("Relu", [n], [f"{n}_out"]) for n in "ab"]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("b_out", TensorProto.FLOAT, None)])
    return (
        import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), **options)
        .graph.inputs[1]
        .shape
    )


def test_expressions_over_dims_are_understood_where_their_names_are_sizes() -> None:
    past, seq = d.symbol("past", 1), d.symbol("seq", 1)
    assert shape_of_second(["past", "seq"], ["past + seq", "2*past", "seq//2"]) == (
        past + seq,
        past * 2,
        d.floordiv(seq, 2),
    )
    assert shape_of_second(["seq"], ["past + seq"]) == (d.symbol("past_plus_seq", 1),)
    assert shape_of_second([4], [None]) == (d.symbol("b_0", 1),)


SIZES = {
    "Reshape": ("y = Reshape(x, s)", [2, -1], (2, 3)),
    "Expand": ("y = Expand(x, s)", [2, 2, 3], (2, 2, 3)),
    "Squeeze": ("y = Squeeze(x, s)", [1], (2, 3)),
    "Unsqueeze": ("y = Unsqueeze(x, s)", [0, -1], (1, 2, 1, 3, 1)),
    "ReduceSum": ("y = ReduceSum<keepdims = 0>(x, s)", [1, -1], (2,)),
    "Slice": ("y = Slice(x, s, s)", [0, 0], (0, 0, 3)),
}


@pytest.mark.parametrize("op", SIZES)
def test_sizes_and_axes_of_which_only_the_data_knows_how_many(op: str) -> None:
    node, given, shape = SIZES[op]
    text = f"g (float[2,1,3] x, int64[k] s) => (float y) {{ {node} }}"
    with pytest.raises(AitcError, match="bind it with --dim k=SIZE") as e:
        imported(text)
    assert [p.code for p in e.value.diagnostics] == ["I05"]
    x = np.arange(6, dtype=np.float32).reshape(2, 1, 3)
    (y,) = run(imported(text, dims={"k": len(given)}), x=x, s=np.array(given))
    assert y.shape == shape


@pytest.mark.parametrize("axes", [[0], [1, -1], [0, 1, 2]])
def test_a_reduction_that_keeps_its_axes_needs_not_know_how_many(axes: list[int]) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 1, 3)
    (y,) = run(imported("g (float[2,1,3] x, int64[k] s) => (float[a,b,c] y) { y = ReduceSum(x, s) }"), x=x, s=np.array(axes))
    np.testing.assert_array_equal(y, x.sum(axis=tuple(axes), keepdims=True))


def test_binding_dims() -> None:
    assert shape_of_second(["n"], ["n", "m"], dims={"n": 8}) == (8, d.symbol("m", 1))
    assert shape_of_second(["n"], ["n", "m"], dims={"n": (2, 5)})[0] == d.symbol("n", 2, 5)
    assert shape_of_second(["n"], ["n", "2*n"], input_shapes={"a": (3,)}) == (3, 6)
    assert shape_of_second(["n"], ["n", None], input_shapes={"b": (3, 7)}) == (3, 7)
    assert shape_of_second(["n"], ["n", "m"], dims={"n": (1, 9)}, input_shapes={"a": (3,)})[0] == 3


def test_dims_bound_to_others() -> None:
    past, seq = d.symbol("past", 1), d.symbol("seq", 1)
    assert shape_of_second(["past", "seq"], ["total", 3], dims={"total": "past+seq"}) == (past + seq, 3)
    assert shape_of_second(["past", "seq"], ["total", "half"], dims={"total": "past+seq", "half": "total//2"}) == (
        past + seq,
        d.floordiv(past + seq, 2),
    )
    assert shape_of_second(["past", "seq"], ["total"], dims={"total": "past+seq", "past": 3}) == (seq + 3,)
    assert shape_of_second(["n"], ["m"], dims={"m": "n"}) == (d.symbol("n", 1),)
    for bound in ({"m": "n + k"}, {"m": "m + 1"}, {"m": "n + 1", "n": "m - 1"}):
        with pytest.raises(AitcError) as caught:
            shape_of_second(["n"], ["m"], dims=bound)
        assert all(problem.code == "I10" for problem in caught.value.diagnostics)


def test_names_of_dims_that_are_no_identifiers() -> None:
    n = d.symbol("model_dim_0", 1)
    assert shape_of_second(["model_dim.0"], ["model_dim.0", 3]) == (n, 3)
    for name in ("model_dim.0", "model_dim_0"):
        assert shape_of_second(["model_dim.0"], ["model_dim.0", "k"], dims={name: 5}) == (5, d.symbol("k", 1))
        assert shape_of_second(["model_dim_0"], ["model_dim_0", "k"], dims={name: 5}) == (5, d.symbol("k", 1))
    assert shape_of_second(["a b"], ["a b", 3], input_shapes={"a": (7,)}) == (7, 3)
    assert shape_of_second([None], ["x"], dims={"a_0": 5}) == (d.symbol("x", 1),)


def test_dims_of_like_names_are_not_one() -> None:
    first, second = shape_of_second(["a.b"], ["a_b", "a b"])
    assert (str(first), str(second)) == ("a_b", "a_b__")
    assert shape_of_second(["a.b"], ["a_b", "a b"], dims={"a_b": 4})[0] == 4  # one is spelled so
    assert shape_of_second(["a_b"], ["a.b", "a b"], dims={"a.b": 4}) == (4, d.symbol("a_b__", 1))
    assert shape_of_second(["b_0"], [None]) == (d.symbol("b_0_", 1),)  # the name that the unnamed axis would get is another dim's
    assert shape_of_second([3], ["b.c", "b_c + 1"])[1] == d.symbol("b_c_plus_1", 1)
    with pytest.raises(AitcError, match=r"may be any of 'a\.b', 'a b'"):
        shape_of_second(["a.b"], ["a b"], dims={"a_b": 4})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dims": {"k": 2}}, "no such dim"),
        ({"input_shapes": {"z": (2,)}}, "no such input"),
        ({"input_shapes": {"a": (2, 3)}}, "rank 1"),
        ({"input_shapes": {"a": (3,), "b": (4, 1)}}, "bound to 3 and to 4"),
        ({"dims": {"n": (5, 9)}, "input_shapes": {"a": (3,)}}, "bound to"),
    ],
)
def test_bindings_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AitcError, match=message) as problem:
        shape_of_second(["n"], ["n", "m"], **options)
    assert {p.code for p in problem.value.diagnostics} == {"I10"}


def test_parsing_of_flags() -> None:
    assert parse_binding("batch=8") == ("batch", 8)
    assert parse_binding("batch=1..32") == ("batch", (1, 32))
    assert parse_binding("batch=4..") == ("batch", (4, None))
    assert parse_shape("serving:0=1,3,h,w") == ("serving:0", (1, 3, "h", "w"))
    assert parse_shape("x=") == ("x", ())
    for wrong in ("batch", "batch=x", "=3", "batch=5..2"):
        with pytest.raises(ValueError, match=r"batch|="):
            parse_binding(wrong)
    with pytest.raises(ValueError, match="neither a size nor a name"):
        parse_shape("x=1,-3")


# --- shape arithmetic vanishes ----------------------------------------------------------------------------------------


def test_chains_of_shape_arithmetic_become_shapes() -> None:
    result = imported("""g (float[B, T, 12] x) => (float[B, T, 3, 4] y) {
        s = Shape(x)
        i0 = Constant<value_int = 0>()
        i1 = Constant<value_int = 1>()
        axis = Constant<value_ints = [0]>()
        three = Constant<value_ints = [3]>()
        rest = Constant<value_ints = [-1]>()
        b = Gather(s, i0)
        t = Gather(s, i1)
        b1 = Unsqueeze(b, axis)
        t1 = Unsqueeze(t, axis)
        target = Concat<axis = 0>(b1, t1, three, rest)
        y = Reshape(x, target)
    }""")
    assert result.graph.outputs[0].shape == (d.symbol("B", 1), d.symbol("T", 1), 3, 4)


def test_expand_as_torch_writes_it() -> None:
    """Equal(-1), Where, Expand: decided by the bounds of the dims."""
    result = imported("""g (float[B, 1] x) => (float[B, 5] y) {
        s = Shape<start = 0, end = 1>(x)
        five = Constant<value_ints = [5]>()
        shape = Concat<axis = 0>(s, five)
        minus = Constant<value_ints = [-1]>()
        ones = ConstantOfShape<value = int64[1] {1}>(rank)
        rank = Constant<value_ints = [2]>()
        open = Equal(shape, minus)
        final = Where(open, ones, shape)
        y = Expand(x, final)
    }""".replace("ones = ConstantOfShape<value = int64[1] {1}>(rank)\n        rank = Constant<value_ints = [2]>()",
                 "rank = Constant<value_ints = [2]>()\n        ones = ConstantOfShape<value = int64[1] {1}>(rank)"))  # fmt: skip
    assert result.graph.outputs[0].shape == (d.symbol("B", 1), 5)


def test_sizes_by_factors_of_floats() -> None:
    result = imported("""g (float[1, 3, H, 16] x) => (float[1, 3, K, 8] y) {
        s = Shape<start = 2>(x)
        f = Cast<to = 1>(s)
        half = Constant<value_float = 0.5>()
        scaled = Mul(f, half)
        down = Floor(scaled)
        i = Cast<to = 7>(down)
        lead = Constant<value_ints = [1, 3]>()
        sizes = Concat<axis = 0>(lead, i)
        y = Resize<mode = "linear">(x, , , sizes)
    }""")
    assert result.graph.outputs[0].shape == (1, 3, d.floordiv(d.symbol("H", 1), 2), 8)


# --- functions and domains --------------------------------------------------------------------------------------------

SCALED = """
<domain: "my", opset_import: ["" : 17]>
scaled <factor: float = 2.0> (x) => (y) { c = Constant<value_float: float = @factor>()
 y = Mul(x, c) }
"""


def test_local_functions_are_inlined_with_their_attributes() -> None:
    text = "g (float[2] x) => (float[2] y) { a = my.scaled(x)\n y = my.scaled<factor = 5.0>(a) }" + SCALED
    result = imported(text, ', "my" : 1')
    assert ops(result) == {"Mul": 2}
    np.testing.assert_array_equal(run(result, x=np.array([1, 2], np.float32))[0], [10, 20])


def test_the_bodies_that_onnx_gives_are_inlined() -> None:
    m = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 22]>\ng (float[2, 6] x) => (float[2, 6] y) { y = MeanVarianceNormalization<axes = [1]>(x) }'
    )
    assert "Reduce" in ops(import_model(m))
    window = import_model(
        parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 22]>\ng () => (float[8] y) { n = Constant<value_int = 8>()\n y = HannWindow(n) }'
        )
    )
    np.testing.assert_allclose(run(window)[0], 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(8) / 8), atol=1e-6)


def test_the_same_name_in_two_domains_is_told_apart() -> None:
    """Gelu of ai.onnx and of com.microsoft, QuantizeLinear's namesake, and a local function of that name."""
    own = '\n<domain: "mine", opset_import: ["" : 20]>\nGelu (x) => (y) { y = Neg(x) }'
    head = '<ir_version: 9, opset_import: ["" : 20, "com.microsoft" : 1, "mine" : 1]>\n'
    text = (
        "g (float[2] x) => (float[2] a, float[2] b, float[2] c) {"
        'a = Gelu<approximate = "tanh">(x)\n b = com.microsoft.Gelu(x)\n c = mine.Gelu(x) }'
    )
    result = import_model(parser.parse_model(head + text + own))
    assert [(n.op.name, getattr(n.attrs, "approximate", "")) for n in result.graph.nodes] == [
        ("Gelu", "tanh"),
        ("Gelu", "none"),
        ("Neg", ""),
    ]


# --- control flow -----------------------------------------------------------------------------------------------------


def branchy(condition: str) -> str:
    return f"""g (float[2] x, bool flag) => (float[2] y) {{
        outer = Exp(x)
        known = Constant<value = bool {{1}}>()
        y = If({condition})<
            then_branch = t () => (float[2] a) {{ a = Add(x, outer) }},
            else_branch = e () => (float[2] b) {{ b = Neg(outer) }}
        >
    }}"""


def test_if_with_a_known_condition_is_its_branch() -> None:
    assert ops(imported(branchy("known"))) == {"Exp": 1, "Add": 1}


def test_if_with_an_unknown_condition_keeps_both_and_says_what_they_capture() -> None:
    result = imported(branchy("flag"))
    assert ops(result) == {"Exp": 1, "If": 1}
    (node,) = [n for n in result.graph.nodes if n.op.name == "If"]
    assert [sorted(v.name for v in body.captured) for body in node.bodies] == [["outer", "x"], ["outer"]]
    x = np.array([1, 2], np.float32)
    np.testing.assert_allclose(run(result, x=x, flag=np.array(True))[0], x + np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(run(result, x=x, flag=np.array(False))[0], -np.exp(x), rtol=1e-6)


def loop(trip: str, grow: bool = False) -> str:
    step = "next = Concat<axis = 0>(acc, acc)" if grow else "next = Add(acc, x)"
    return f"""g (float[2] x, int64 n) => (float[M] y, float[K, L] all) {{
        three = Constant<value_int = 3>()
        yes = Constant<value = bool {{1}}>()
        y, all = Loop({trip}, yes, x)<body = b (int64 i, bool go, float[2] acc) => (bool on, float[2] next, float[2] seen) {{
            on = Identity(go)
            {step}
            seen = Identity(x)
        }}>
    }}"""


def test_short_loops_are_unrolled() -> None:
    result = imported(loop("three"))
    assert "Loop" not in ops(result)
    x = np.array([1, 2], np.float32)
    y, seen = run(result, x=x, n=np.array(0))
    np.testing.assert_array_equal(y, 4 * x)
    np.testing.assert_array_equal(seen, [x] * 3)
    assert imported(loop("three", grow=True)).graph.outputs[0].shape == (16,)


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_loops_whose_length_the_data_decides(trips: int) -> None:
    result = imported(loop("n"))
    assert ops(result)["Loop"] == 1
    x = np.array([1, 2], np.float32)
    y, seen = run(result, x=x, n=np.array(trips))
    np.testing.assert_array_equal(y, (trips + 1) * x)
    assert seen.shape == (trips, 2)


def test_what_a_loop_carries_may_grow() -> None:
    result = imported(loop("n", grow=True))
    y, _ = run(result, x=np.array([1, 2], np.float32), n=np.array(3))
    np.testing.assert_array_equal(y, [1, 2] * 8)


def test_a_body_that_is_imported_twice_reads_outer_values_once() -> None:
    text = """g (float[n,4] x, int64 trips) => (float[m,4] y, float[t,4] all) <bool go = {1}, float[0,4] none = {}> {
        t = Relu(x)
        y, all = Loop(trips, go, none) <body = body (int64 i, bool c, float[p,4] acc) => (bool c, float[q,4] more, float[4] row) {
            row = Gather(t, i) axis = Constant<value_ints = [0]>() r = Unsqueeze(row, axis) more = Concat<axis = 0>(acc, r) }> }"""
    for given in (text, text.replace("int64 trips)", "int64 unused)").replace("{1}", "{1}, int64 trips = {0}")):  # no trip: only types are taken
        graph = imported(given).graph
        verify(graph)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    y, rows = run(imported(text), x=x, trips=np.array(2))
    np.testing.assert_array_equal(y, np.maximum(x, 0)[:2])
    np.testing.assert_array_equal(rows, y)


def test_scan_unrolled_and_not() -> None:
    text = """g (float[2] s, float[{n}, 2] x) => (float[2] last, float[N, 2] sums) {{
        last, sums = Scan(s, x)<num_scan_inputs = 1, body = b (float[2] acc, float[2] row) => (float[2] next, float[2] out) {{
            next = Add(acc, row)
            out = Identity(next)
        }}>
    }}"""
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    for n, name in (("4", "Add"), ("N", "Scan")):
        result = imported(text.format(n=n))
        assert name in ops(result)
        last, sums = run(result, s=np.ones(2, np.float32), x=x)
        np.testing.assert_array_equal(sums, np.cumsum(x, 0) + 1)
        np.testing.assert_array_equal(last, sums[-1])
