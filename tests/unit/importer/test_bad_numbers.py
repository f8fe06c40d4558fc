"""Attributes and constants outside of what an operator allows: an error that names the node, never a defect, never a hang,
and never a graph that reads beyond its inputs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from conformance.node_tests import cases
from onnx import numpy_helper

from aitc.errors import AitcError, Exit
from aitc.importer.onnx import import_model

A = onnx.AttributeProto
INTEGERS = (-2, -1, 0, 2**31, 2**63 - 1)
FLOATS = (float("inf"), float("nan"), -1.0, 0.0, 1e38)
OPERATORS = sorted({c.model.graph.node[0].op_type for c in cases().values() if c.model.graph.node})


def mutants(case: object) -> Iterator[tuple[str, onnx.ModelProto]]:
    """The model of a node test with one number of an attribute, or of a small integer input made constant, replaced."""
    model: onnx.ModelProto = case.model  # type: ignore[attr-defined]
    for n, node in enumerate(model.graph.node):
        for a, attribute in enumerate(node.attribute):
            field = {A.INT: "i", A.FLOAT: "f", A.INTS: "ints", A.FLOATS: "floats"}.get(attribute.type)
            if field is None:
                continue
            many = getattr(attribute, field) if field.endswith("s") else None
            for value in INTEGERS if field.startswith("i") else FLOATS:
                copy = onnx.ModelProto()
                copy.CopyFrom(model)
                to = copy.graph.node[n].attribute[a]
                if many is None:
                    setattr(to, field, value)
                elif len(many):
                    getattr(to, field)[-1] = value
                yield f"{attribute.name} = {value}", copy
            if many is not None and len(many):
                copy = onnx.ModelProto()
                copy.CopyFrom(model)
                getattr(copy.graph.node[n].attribute[a], field).append(many[-1])
                yield f"{attribute.name} longer", copy
    inputs = case.data_sets[0][0] if case.data_sets else ()  # type: ignore[attr-defined]
    small = [i for i, x in enumerate(inputs) if isinstance(x, np.ndarray) and 0 < x.size <= 16 and x.dtype.kind in "iu"]
    for i in small if len(model.graph.input) == len(inputs) else ():
        for value in INTEGERS:
            if not np.iinfo(inputs[i].dtype).min <= value <= np.iinfo(inputs[i].dtype).max:
                continue
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            changed = np.array(inputs[i])
            changed.reshape(-1)[-1] = value
            for j in small:
                array = changed if j == i else inputs[j]
                copy.graph.initializer.append(numpy_helper.from_array(array, model.graph.input[j].name))
            yield f"{model.graph.input[i].name}[-1] = {value}", copy


@pytest.mark.parametrize("op", OPERATORS)
def test_mutants_end_well(op: str) -> None:
    seen: set[str] = set()
    for case in cases().values():
        if not case.model.graph.node or case.model.graph.node[0].op_type != op:
            continue
        for what, model in mutants(case):
            if what in seen:
                continue
            seen.add(what)
            try:
                import_model(model)
            except AitcError as problem:
                assert problem.exit_code in (Exit.MODEL, Exit.UNSUPPORTED), (what, problem.diagnostics)


X = "float[1,4,8,8] x"
REFUSED = {
    "stride": f"({X}) => (float[a,b,c,d] y) {{ y = MaxPool<kernel_shape = [2, 2], strides = [-1, -1]>(x) }}",
    "kernel": f"({X}) => (float[a,b,c,d] y) {{ y = MaxPool<kernel_shape = [0, 0]>(x) }}",
    "pads below zero": f"({X}) => (float[a,b,c,d] y) {{ y = AveragePool<kernel_shape = [2, 2], pads = [-1, 0, 0, 0]>(x) }}",
    "pads beyond the kernel": f"({X}) => (float[a,b,c,d] y) {{ y = MaxPool<kernel_shape = [2, 2], pads = [2, 0, 0, 0]>(x) }}",
    "norm of order 0": f"({X}) => (float[a,b,c,d] y) {{ y = LpPool<kernel_shape = [2, 2], p = 0>(x) }}",
    "three strides": f"({X}) => (float[a,b,c,d] y) {{ y = LpPool<kernel_shape = [2, 2], strides = [1, 1, 1]>(x) }}",
    "dilation": f"({X}, float[4,4,3,3] w) => (float[a,b,c,d] y) {{ y = Conv<dilations = [0, 1]>(x, w) }}",
    "no group": f"({X}, float[4,4,3,3] w) => (float[a,b,c,d] y) {{ y = Conv<group = 0>(x, w) }}",
    "groups": f"({X}, float[4,1,3,3] w) => (float[a,b,c,d] y) {{ y = ConvTranspose<group = 3>(x, w) }}",
    "transposed stride": f"({X}, float[4,4,3,3] w) => (float[a,b,c,d] y) {{ y = ConvTranspose<strides = [0, 1]>(x, w) }}",
    "transposed to nothing": f"({X}, float[4,4,3,3] w) => (float[a,b,c,d] y) {{ y = ConvTranspose<pads = [9, 9, 9, 9]>(x, w) }}",
    "norm groups": f"({X}, float[4] s) => (float[a,b,c,d] y) {{ y = GroupNormalization<num_groups = 0>(x, s, s) }}",
    "block": f"({X}) => (float[a,b,c,d] y) {{ y = DepthToSpace<blocksize = -2>(x) }}",
    "block of channels": f"({X}) => (float[a,b,c,d] y) {{ y = DepthToSpace<blocksize = 3>(x) }}",
    "space": f"({X}) => (float[a,b,c,d] y) {{ y = SpaceToDepth<blocksize = -2>(x) }}",
    "tile": f"({X}) => (float[a,b,c,d] y) <int64[4] r = {{1, 1, -1, 1}}> {{ y = Tile(x, r) }}",
    "tile of symbols": "(float[n,m] x) => (float[a,b] y) <int64[2] r = {1, -1}> { y = Tile(x, r) }",
    "gather": f"({X}) => (float[a,b,c,d] y) <int64[2] i = {{0, 4}}> {{ y = Gather<axis = 1>(x, i) }}",
    "gather one": f"({X}) => (float[a,b,c,d] y) <int64[1] i = {{-5}}> {{ y = Gather<axis = 1>(x, i) }}",
    "gather computed": f"({X}) => (float[a,b,c,d] y) <int64[2] i = {{0, 3}}, int64 o = {{1}}> {{ j = Add(i, o) y = Gather<axis = 1>(x, j) }}",
    "gather elements": "(float[2,3] x) => (float[a,b] y) <int64[1,3] i = {0, 1, 2}> { y = GatherElements(x, i) }",
    "gather elements beside": "(float[2,3] x, int64[2,4] i) => (float[a,b] y) { y = GatherElements(x, i) }",
    "gather nd": "(float[2,3] x) => (float[a] y) <int64[2,2] i = {0, 0, 1, 3}> { y = GatherND(x, i) }",
    "batches of gather nd": "(float[2,3] x, int64[2,1] i) => (float[a] y) { y = GatherND<batch_dims = -1>(x, i) }",
    "scatter": "(float[2,3] x, float[1,3] u) => (float[a,b] y) <int64[1,3] i = {0, 1, 2}> { y = ScatterElements(x, i, u) }",
    "scatter few": "(float[2,3] x, int64[2,3] i, float[1,3] u) => (float[a,b] y) { y = ScatterElements(x, i, u) }",
    "scatter nd": "(float[2,3] x, float[1,3] u) => (float[a,b] y) <int64[1,1] i = {2}> { y = ScatterND(x, i, u) }",
    "scatter nd few": "(float[2,3] x, int64[2,1] i, float[1,3] u) => (float[a,b] y) { y = ScatterND(x, i, u) }",
    "depth": "(int64[3] i, float[2] v) => (float[a,b] y) <int64 d = {-4}> { y = OneHot(i, d, v) }",
    "k": "(float[2,3] x) => (float[a,b] y, int64[a,b] i) <int64[1] k = {4}> { y, i = TopK(x, k) }",
    "axis": "(float[2,3] x) => (float[a,b] y) { y = Softmax<axis = 2>(x) }",
    "perm": "(float[2,3] x) => (float[a,b] y) { y = Transpose<perm = [0, 0]>(x) }",
    "short perm": "(float[2,3] x) => (float[a,b] y) { y = Transpose<perm = [0]>(x) }",
    "axes": "(float[2,3] x) => (float[a,b] y) <int64[2] a = {0, -2}> { y = ReduceSum(x, a) }",
    "axes of slice": "(float[2,3] x) => (float[a,b] y) <int64[2] s = {0, 0}, int64[2] e = {1, 1}, int64[2] a = {0, -2}> { y = Slice(x, s, e, a) }",
    "fill": "() => (float[a] y) <int64[1] s = {-3}> { y = ConstantOfShape(s) }",
    "negative symbol": "(float[n] x) => (float[a] y) <int64[2] p = {0, 0}, int64[1] s = {-3}, float[1] z = {0}> { y = Expand(x, s) }",
    "scale": f"({X}) => (float[a,b,c,d] y) <float[4] s = {{1, 1, 0, 1}}> {{ y = Resize(x, , s) }}",
    "scale below zero": f"({X}) => (float[a,b,c,d] y) <float[4] s = {{1, 1, -2, 1}}> {{ y = Resize(x, , s) }}",
    "scale to no end": f"({X}) => (float[a,b,c,d] y) <float[4] s = {{1, 1, 1e30, 1}}> {{ y = Resize(x, , s) }}",
    "size": f"({X}) => (float[a,b,c,d] y) <int64[4] s = {{1, 4, -2, 8}}> {{ y = Resize(x, , , s) }}",
    "frame step": "(float[1,16,1] x) => (float[a,b,c,d] y) <int64 s = {0}, int64 l = {4}> { y = STFT(x, s, , l) }",
    "frame": "(float[1,16,1] x) => (float[a,b,c,d] y) <int64 s = {2}, int64 l = {32}> { y = STFT(x, s, , l) }",
    "lengths": "(float[4,2] x) => (float[4,2] y) <int64[2] l = {4, 5}> { y = ReverseSequence(x, l) }",
    "regions of no image": "(float[1,1,4,4] x, float[1,4] r) => (float[a,b,c,d] y) <int64[1] i = {1}> { y = RoiAlign(x, r, i) }",
    "words": "(float[2,3] x, int64[2] t) => (float y) { y = NegativeLogLikelihoodLoss<reduction = \"bogus\">(x, t) }",
    "policy": f"({X}) => (float[a,b,c,d] y) <int64[4] s = {{1, 4, 4, 4}}> {{ y = Resize<keep_aspect_ratio_policy = \"bogus\">(x, , , s) }}",
    "coordinates": f"({X}) => (float[a,b,c,d] y) <int64[4] s = {{1, 4, 4, 4}}> {{ y = Resize<coordinate_transformation_mode = \"bogus\">(x, , , s) }}",
    "regions": "(float[1,1,4,4] x, float[1,4] r, int64[1] i) => (float[a,b,c,d] y) { y = RoiAlign<mode = \"bogus\">(x, r, i) }",
    "equation": "(float[2,2] x) => (float[a,b] y) { y = Einsum<equation = \"i!->i!\">(x) }",
    "equation of dots": "(float[2,2] x) => (float[a,b] y) { y = Einsum<equation = \"i.j->ij\">(x) }",
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 21]>\nmain {REFUSED[name]}')
    with pytest.raises(AitcError) as problem:
        import_model(model)
    assert problem.value.exit_code is Exit.MODEL, problem.value.diagnostics
    assert problem.value.diagnostics[0].locs
