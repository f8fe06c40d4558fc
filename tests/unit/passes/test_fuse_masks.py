"""Masks that replace scores: fused, an attention answers as the model does, also where a row keeps no key at all."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from aitc.importer.onnx import import_model
from aitc.ir.interpret import interpret
from aitc.passes import stages
from aitc.passes.base import Context

ONE = "(float[2,3,8] q, float[2,5,8] k, bool[2,1,5] m, bool[2,1,5] n) => (float[2,3,8] y) <float f={{{first}}}, float g={{{second}}}> {{ "
BODY = "t=Transpose<perm=[0,2,1]>(k) s=MatMul(q,t) a=Where(m,f,s) {more} p=Softmax<axis=-1>({last}) y=MatMul(p,k) }}"


@pytest.mark.parametrize(("first", "second"), [("-10000.0", ""), ("-1e9", ""), ("-3.4028234e38", ""), ("-1e9", "-1e9"), ("-3.4028234e38", "-1e4")])
def test_rows_without_keys(first: str, second: str) -> None:
    more, last = ("z=Where(n,g,a)", "z") if second else ("u=Or(m,n)", "a")
    text = (ONE + BODY).format(first=first, second=second or "0.0", more=more, last=last)
    graph = import_model(onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g ' + text).SerializeToString()).graph
    rng = np.random.default_rng(0)
    feeds = {"q": rng.standard_normal((2, 3, 8)).astype(np.float32), "k": 3 * rng.standard_normal((2, 5, 8)).astype(np.float32)}
    feeds["m"] = np.array([[[True] * 5], [[True, False, True, False, False]]])
    feeds["n"] = feeds["m"] if second else np.zeros((2, 1, 5), bool)
    want = interpret(graph, feeds)["y"]
    np.testing.assert_allclose(want[0], np.broadcast_to(feeds["k"][0].mean(0), (3, 8)), rtol=1e-5, atol=1e-6)
    stages.simplify(graph, Context())
    stages.fuse(graph, Context())
    assert [n.op.name for n in graph.nodes].count("Attention") == 1
    np.testing.assert_allclose(interpret(graph, feeds)["y"], want, rtol=1e-5, atol=1e-5)
