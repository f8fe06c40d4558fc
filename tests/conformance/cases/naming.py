"""Names that mean something in C++, in the generated code or in Python: of inputs, outputs, nodes, values and dims."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.cases.case import Case, case, normal

WORDS = """
    and or not xor int float double class new delete default this template typename namespace operator inline
    register union auto concept requires co_await char8_t NULL EOF INT_MAX M_PI errno stdin assert linux unix main
    std aitc run dims places arena k r i j n x at acc row col batch V T M N K A B load store Store Load Shape Body
    index_t size_t int64_t weights Run Dims Kernels shape data out in self None lambda min max exp relu Vec convert
""".split()

ROLES = ("x", "w", "softmax", "product", "sum", "relu", "y", "n", "m", "node", "graph")


def _named(words: Sequence[str]) -> Case:
    """A model with a product, a norm and two symbols, whose parts are called by ``words``, a word for each of ROLES."""
    text = """(float[n,m,8] x, float[8,4] w) => (float[n,m,4] y) {
        softmax = Softmax(x)
        product = MatMul(softmax, w)
        t = Transpose<perm = [1, 0, 2]>(product)
        sum = Add(t, t)
        u = Transpose<perm = [1, 0, 2]>(sum)
        relu = Relu(u)
        y = Add(relu, product) }"""
    made = case(" ".join(words), text, {"x": normal(2, 3, 8), "w": normal(8, 4, seed=1)})
    rename = dict(zip(ROLES, words, strict=True))
    graph = made.model.graph
    for value in (*graph.input, *graph.output):
        value.name = rename[value.name]
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = rename[dim.dim_param]
    for node in graph.node:
        node.name = rename["node"]
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                names[i] = rename.get(name, name)
    graph.name = rename["graph"]
    return made


def _rotated() -> list[Case]:
    """Each word once as the name of a symbol, of an input, of an output and of a value."""
    size = len(ROLES)
    cases = []
    for turn in (0, 2, 5, 7):
        turned = [*WORDS[turn:], *WORDS[:turn]]
        cases += [_named([*turned[i : i + size], *WORDS][:size]) for i in range(0, len(turned), size)]
    return cases


CASES = [*_rotated(), _named(["n", "n.1", "n/2", "n:0", "_n", "n_", "N+", "n_1", "_1", "n", ""])]
