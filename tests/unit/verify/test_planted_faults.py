"""Planted faults are caught with the default tolerance, and answers that are right but rounded otherwise pass.

Nothing is compiled: what a faulty binary would give is what onnxruntime gives for a model that was changed, or a right answer that
was damaged. The comparison is the one of `aitc compile`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
import onnx.parser
import pytest

from aitc.ir import dtype as dt
from aitc.verify.compare import tolerance
from aitc.verify.exact import exact_outputs
from aitc.verify.judge import Evidence, judge
from aitc.verify.reference import Reference

U32 = 2.0**-24
TYPES = {1: dt.F32, 2: dt.U8, 3: dt.I8, 7: dt.I64, 9: dt.BOOL, 10: dt.F16, 11: dt.F64}


def weights(seed: int, **shapes: tuple[int, ...]) -> list[onnx.TensorProto]:
    rng = np.random.default_rng(seed)
    made = []
    for name, shape in shapes.items():
        fan = max(1, int(np.prod(shape[1:] if len(shape) == 4 else shape[:-1])))
        made.append(nh.from_array((rng.standard_normal(shape) / np.sqrt(fan)).astype(np.float32), name))
    return made


def model(text: str, init: list[onnx.TensorProto], opset: int = 18) -> onnx.ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> m {text}')
    made.graph.initializer.extend(init)
    return made


def conv_net() -> onnx.ModelProto:
    init = weights(1, w1=(16, 3, 3, 3), b1=(16,), w2=(16, 16, 3, 3), b2=(16,), w3=(16, 10), b3=(10,), s=(16,), o=(16,), m=(16,))
    init.append(nh.from_array(np.linspace(0.5, 2, 16).astype(np.float32), "v"))
    return model(
        "(float[2,3,16,16] x) => (float[2,10] y) { c1=Conv<pads=[1,1,1,1]>(x,w1,b1) n1=BatchNormalization<epsilon=0.01>(c1,s,o,m,v) "
        "r1=Relu(n1) c2=Conv<pads=[1,1,1,1]>(r1,w2,b2) a=Add(c2,r1) r2=Relu(a) p=MaxPool<kernel_shape=[2,2],strides=[2,2]>(r2) "
        "g=GlobalAveragePool(p) f=Flatten(g) y=Gemm(f,w3,b3) }",
        init,
    )


def segmenter() -> onnx.ModelProto:
    init = weights(2, w1=(8, 3, 3, 3), b1=(8,), w2=(8, 8, 3, 3), b2=(8,), w3=(2, 8, 1, 1), b3=(2,))
    init.append(nh.from_array(np.array([1, 1, 2, 2], np.float32), "z"))
    return model(
        "(float[1,3,32,32] x) => (float[1,2,32,32] y) { c1=Conv<pads=[1,1,1,1],strides=[2,2]>(x,w1,b1) s1=Sigmoid(c1) r1=Mul(c1,s1) "
        'c2=Conv<auto_pad="SAME_UPPER",dilations=[2,2]>(r1,w2,b2) r2=LeakyRelu<alpha=0.1>(c2) a=Add(r2,r1) '
        'u=Resize<mode="linear",coordinate_transformation_mode="half_pixel">(a,,z) c3=Conv(u,w3,b3) y=Softmax<axis=1>(c3) }',
        init,
    )


def transformer() -> onnx.ModelProto:
    e, t = 32, 12
    init = weights(3, wq=(e, e), wk=(e, e), wv=(e, e), wo=(e, e), bq=(e,), bo=(e,), w1=(e, 64), b1=(64,), w2=(64, e), b2=(e,), g=(e,), h=(e,))
    mask = np.where(np.tril(np.ones((t, t))), 0, -1e9).astype(np.float32)
    init += [nh.from_array(mask, "mask"), nh.from_array(np.array(1 / np.sqrt(8), np.float32), "scale")]
    init.append(nh.from_array(np.array([2, t, 4, 8], np.int64), "split"))
    init.append(nh.from_array(np.array([2, t, e], np.int64), "join"))
    return model(
        "(float[2,12,32] x) => (float[2,12,32] y) { n=LayerNormalization<epsilon=0.001>(x,g,h) q0=MatMul(n,wq) q1=Add(q0,bq) k0=MatMul(n,wk) "
        "v0=MatMul(n,wv) qr=Reshape(q1,split) kr=Reshape(k0,split) vr=Reshape(v0,split) q=Transpose<perm=[0,2,1,3]>(qr) "
        "k=Transpose<perm=[0,2,3,1]>(kr) v=Transpose<perm=[0,2,1,3]>(vr) l0=MatMul(q,k) l1=Mul(l0,scale) l=Add(l1,mask) p=Softmax<axis=-1>(l) "
        "c0=MatMul(p,v) c1=Transpose<perm=[0,2,1,3]>(c0) c=Reshape(c1,join) o0=MatMul(c,wo) o=Add(o0,bo) r=Add(o,x) "
        "f0=MatMul(r,w1) f1=Add(f0,b1) f2=Relu(f1) f3=MatMul(f2,w2) f=Add(f3,b2) y=Add(f,r) }",
        init,
    )


def recurrent() -> onnx.ModelProto:
    init = weights(4, w=(1, 32, 6), r=(1, 32, 8), b=(1, 64), wo=(8, 5), bo=(5,))
    return model(
        "(float[9,2,6] x) => (float[9,2,5] y) <int64[1] a={1}> { h,hn,cn=LSTM<hidden_size=8>(x,w,r,b) s=Squeeze(h,a) m=MatMul(s,wo) y=Add(m,bo) }", init
    )


def quantised() -> onnx.ModelProto:
    rng = np.random.default_rng(5)
    init = [nh.from_array(rng.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8), "w"), nh.from_array(np.full(8, 0.01, np.float32), "ws")]
    init += [nh.from_array(np.zeros(8, np.int8), "wz"), *weights(5, b=(8,))]
    return model(
        "(float[1,3,12,12] x) => (uint8[1,8,12,12] y) <float xs={0.03}, uint8 xz={128}, float ys={0.05}, uint8 yz={100}> { "
        "q=QuantizeLinear(x,xs,xz) d=DequantizeLinear(q,xs,xz) e=DequantizeLinear<axis=0>(w,ws,wz) c=Conv<pads=[1,1,1,1]>(d,e,b) r=Relu(c) "
        "y=QuantizeLinear(r,ys,yz) }",
        init,
    )


def dynamic() -> onnx.ModelProto:
    w = np.random.default_rng(6).integers(-127, 128, (64, 24)).astype(np.int8)
    return model(
        "(float[6,64] x) => (float[6,24] y) <float ws={0.02}> { q,s,z=DynamicQuantizeLinear(x) i=MatMulInteger(q,w,z) f=Cast<to=1>(i) "
        "t=Mul(s,ws) m=Mul(f,t) a=Add(m,b) y=Relu(a) }",
        [nh.from_array(w, "w"), *weights(6, b=(24,))],
    )


def detector() -> onnx.ModelProto:
    return model(
        "(float[1,64,8] x) => (float[1,10,4] y, float[1,10] scores) <int64[1] k={10}, int64[1] a={1}, int64[1] b={5}, int64[1] two={2}> { "
        "f=MatMul(x,w1) g=Relu(f) box=MatMul(g,wb) l=MatMul(g,wc) s=Sigmoid(l) m=ReduceMax<keepdims=0>(s,two) scores,i=TopK<axis=1>(m,k) "
        "j=Unsqueeze(i,two) e=Expand(j,four) y=GatherElements<axis=1>(box,e) }",
        [*weights(7, w1=(8, 32), wb=(32, 4), wc=(32, 3)), nh.from_array(np.array([1, 10, 4], np.int64), "four")],
    )


def cancelling() -> onnx.ModelProto:
    return model(
        "(float[2,256,4] x) => (float[2,256,4] y) <int64[1] a={1}, float e={0.000001}, float c={20}> { x2=Add(x,c) "
        "m=ReduceMean<keepdims=1>(x2,a) q=Mul(x2,x2) mq=ReduceMean<keepdims=1>(q,a) mm=Mul(m,m) v=Sub(mq,mm) ve=Add(v,e) s=Sqrt(ve) "
        "d=Sub(x2,m) z=Div(d,s) t=Mul(z,g) y=Add(t,b) }",
        weights(8, g=(4,), b=(4,)),
    )


def tiny() -> onnx.ModelProto:
    return model("(float[7] x) => (float[7] y) { a=Mul(x,w) b=Add(a,o) y=Tanh(b) }", weights(9, w=(7,), o=(7,)))


def small_scale() -> onnx.ModelProto:
    return model("(float[64,16] x) => (float[64,8] y) <float c={0.00000001}> { m=MatMul(x,w) a=Add(m,b) y=Mul(a,c) }", weights(10, w=(16, 8), b=(8,)))


def large() -> onnx.ModelProto:
    return model("(float[1000,16] x) => (float[1000,1000] y) { m=MatMul(x,w) y=Add(m,b) }", weights(11, w=(16, 1000), b=(1000,)))


MODELS = {
    f.__name__: f for f in (conv_net, segmenter, transformer, recurrent, quantised, dynamic, detector, cancelling, tiny, small_scale, large)
}


@dataclass
class Case:
    made: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    right: dict[str, np.ndarray]  # the float64 answer, in the outputs' types
    evidence: Evidence

    def passes(self, got: dict[str, np.ndarray]) -> bool:
        types = {o.name: TYPES[o.type.tensor_type.elem_type] for o in self.made.graph.output}
        given = {n: np.asarray(got[n]).astype(t.numpy) for n, t in types.items()}
        return all(r.ok for r in judge(types, self.evidence, given, tolerance(U32, len(self.made.graph.node))))


@cache
def case(name: str) -> Case:
    made = MODELS[name]()
    rng = np.random.default_rng(0)
    feeds = {i.name: rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32) for i in made.graph.input}
    raw = made.SerializeToString()
    reference = Reference(raw)
    want = reference.run(feeds)
    exact = exact_outputs(raw, feeds)
    return Case(made, feeds, {n: exact[n].astype(w.dtype) for n, w in want.items()}, Evidence(reference, feeds, want, U32))


# --- faults of the model: what a wrong importer, rule or kernel computes
Change = Callable[[onnx.ModelProto], None]


def tensor(m: onnx.ModelProto, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    for t in m.graph.initializer:
        if t.name == name:
            old = nh.to_array(t)
            t.CopyFrom(nh.from_array(np.ascontiguousarray(change(old.copy()), old.dtype).reshape(old.shape), name))


def one_wrong(a: np.ndarray, by: float) -> np.ndarray:
    a.reshape(-1)[a.size // 2] += by
    return a


def node_of(m: onnx.ModelProto, output: str) -> onnx.NodeProto:
    return next(n for n in m.graph.node if output in n.output)


def bypass(output: str, which: int = 0) -> Change:
    """The node of ``output`` is left out: its input ``which`` stands for it."""

    def change(m: onnx.ModelProto) -> None:
        node = node_of(m, output)
        node.CopyFrom(oh.make_node("Identity", [node.input[which]], [output]))

    return change


def attribute(output: str, key: str, value: object) -> Change:
    def change(m: onnx.ModelProto) -> None:
        node = node_of(m, output)
        kept = [a for a in node.attribute if a.name != key]
        del node.attribute[:]
        node.attribute.extend([*kept, oh.make_attribute(key, value)])

    return change


def operator(output: str, op: str) -> Change:
    def change(m: onnx.ModelProto) -> None:
        node_of(m, output).op_type = op

    return change


def constants(name: str) -> list[tuple[str, Change]]:
    """Faults of each float weight of a model."""
    kinds: list[tuple[str, Callable[[np.ndarray], np.ndarray]]] = [
        ("zero", lambda a: a * 0),
        ("scaled", lambda a: a * np.float32(1.01)),
        ("negated", lambda a: -a),
        ("shifted by one", lambda a: np.roll(a, 1, -1)),
        ("last one left out", lambda a: np.concatenate([a.reshape(-1)[:-1], np.zeros(1, a.dtype)])),
        ("backwards", lambda a: a.reshape(-1)[::-1]),
        ("in bfloat16", lambda a: a.astype(ml_dtypes.bfloat16).astype(a.dtype)),
        ("one element", lambda a: one_wrong(a, 0.05)),
    ]
    faults = []
    for t in MODELS[name]().graph.initializer:
        a = nh.to_array(t)
        if a.dtype != np.float32 or a.size < 2 or t.name in ("mask", "z"):
            continue
        for label, f in kinds:
            if name == "cancelling" and label == "in bfloat16":
                continue  # less than rounding does to it
            changed = np.asarray(f(a.copy()), np.float32).reshape(a.shape)
            if not np.array_equal(changed, a):
                faults.append((f"{name}: {t.name} {label}", lambda m, n=t.name, f=f: tensor(m, n, f)))
    return faults


STRUCTURAL: dict[str, dict[str, Change]] = {
    "conv_net": {
        "missing Relu": bypass("r1"),
        "missing last Relu": bypass("r2"),
        "dropped residual": bypass("a"),
        "eps 10 times": attribute("n1", "epsilon", 0.1),
        "padding edge": attribute("c1", "pads", [2, 1, 0, 1]),
        "padding left": attribute("c2", "pads", [1, 2, 1, 0]),
        "average for max": lambda m: node_of(m, "p").CopyFrom(oh.make_node("AveragePool", ["r2"], ["p"], kernel_shape=[2, 2], strides=[2, 2])),
        "pool shifted": attribute("p", "pads", [1, 1, 0, 0]),
        "bias left out": lambda m: node_of(m, "c2").input.pop(),
        "alpha": attribute("y", "alpha", 1.001),
    },
    "segmenter": {
        "missing activation": bypass("r1"),
        "dropped residual": bypass("a", 1),
        "leak": attribute("r2", "alpha", 0.01),
        "align corners": attribute("u", "coordinate_transformation_mode", "asymmetric"),
        "nearest": attribute("u", "mode", "nearest"),
        "softmax axis": attribute("y", "axis", 2),
        "dilation": attribute("c2", "dilations", [1, 1]),
        "padding edge": attribute("c1", "pads", [0, 1, 2, 1]),
    },
    "transformer": {
        "eps 10 times": attribute("n", "epsilon", 0.01),
        "swapped heads": lambda m: tensor(m, "wo", lambda a: np.concatenate([a[8:16], a[:8], a[16:]])),
        "wrong mask column": lambda m: tensor(m, "mask", lambda a: np.roll(a, 1, 1)),
        "no mask": bypass("l"),
        "mask of another row": lambda m: tensor(m, "mask", lambda a: np.concatenate([a[:5], a[4:5], a[6:]])),
        "scale": lambda m: tensor(m, "scale", lambda a: a * np.float32(1.01)),
        "no scale": bypass("l1"),
        "softmax axis": attribute("p", "axis", 2),
        "dropped residual": bypass("r"),
        "dropped last residual": bypass("y"),
        "missing Relu": bypass("f2"),
        "bias left out": bypass("q1"),
        "transposed weight": lambda m: tensor(m, "wk", lambda a: a.T),
        "keys for values": lambda m: node_of(m, "vr").input.__setitem__(0, "k0"),
    },
    "recurrent": {
        "reverse": attribute("h", "direction", "reverse"),
        "clipped": attribute("h", "clip", 0.3),
        "gates in another order": lambda m: tensor(m, "w", lambda a: np.roll(a, 8, 1)),
        "no bias": lambda m: node_of(m, "h").input.pop(),
        "bias left out": bypass("y"),
        "input forget": attribute("h", "input_forget", 1),
    },
    "quantised": {
        "missing Relu": bypass("r"),
        "zero point of the output": lambda m: tensor(m, "yz", lambda a: a + np.uint8(1)),
        "scale of the input": lambda m: tensor(m, "xs", lambda a: a * np.float32(1.02)),
        "scale of the output": lambda m: tensor(m, "ys", lambda a: a * np.float32(1.01)),
        "zero point of the weights": lambda m: tensor(m, "wz", lambda a: a + np.int8(1)),
        "padding edge": attribute("c", "pads", [2, 1, 0, 1]),
        "bias left out": lambda m: node_of(m, "c").input.pop(),
        "weights unsigned": lambda m: tensor(m, "w", np.abs),
        "last channel": lambda m: tensor(m, "w", lambda a: np.concatenate([a[:-1], a[:1]])),
        "one weight": lambda m: tensor(m, "w", lambda a: one_wrong(a, 9)),
    },
    "dynamic": {
        "missing Relu": bypass("y"),
        "bias left out": bypass("a"),
        "no zero point": lambda m: node_of(m, "i").input.pop(),
        "scale": lambda m: tensor(m, "ws", lambda a: a * np.float32(1.01)),
        "weights of the next row": lambda m: tensor(m, "w", lambda a: np.roll(a, 1, 0)),
        "one weight": lambda m: tensor(m, "w", lambda a: one_wrong(a, 5)),
    },
    "detector": {
        "missing Relu": bypass("g"),
        "smallest first": attribute("scores", "largest", 0),
        "min for max": operator("m", "ReduceMin"),
        "mean for max": operator("m", "ReduceMean"),
        "no sigmoid": bypass("s"),
    },
    "cancelling": {
        "no mean": bypass("d"),
        "no root": bypass("s"),
        "eps as one": lambda m: tensor(m, "e", lambda a: a + 1),
        "wrong constant": lambda m: tensor(m, "e", lambda a: a + np.float32(0.05)),
        "bias left out": bypass("y"),
        "scale left out": bypass("t"),
    },
    "tiny": {"no tanh": bypass("y"), "sigmoid": operator("y", "Sigmoid"), "bias left out": bypass("b"), "scale left out": bypass("a")},
    "small_scale": {"bias left out": bypass("a"), "scale": lambda m: tensor(m, "c", lambda a: a * np.float32(1.01))},
}


def of_models() -> list[tuple[str, str, Change]]:
    found = []
    for name in MODELS:
        found += [(f"{name}: {label}", name, c) for label, c in STRUCTURAL.get(name, {}).items()]
        found += [(label, name, c) for label, c in constants(name)] if name != "large" else []
    return found


# --- faults of an output: what a wrong kernel writes
def at(a: np.ndarray, index: object, value: object) -> np.ndarray:
    a = a.copy()
    a[index] = value
    return a


OUTPUT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "one wrong element": lambda a: at(a, tuple(n // 2 for n in a.shape), a.flat[0] + 0.1 * np.abs(a).max()),
    "one NaN": lambda a: at(a, tuple(n - 1 for n in a.shape), np.nan),
    "one infinity": lambda a: at(a, (0,) * a.ndim, np.inf),
    "wrong tail": lambda a: at(a.reshape(-1), slice(-max(1, a.size // 50), None), 0).reshape(a.shape),
    "last channel stale": lambda a: at(a, (..., -1), a[..., 0]),
    "first row left out": lambda a: at(a, 0, 0),
    "batch elements swapped": lambda a: a[::-1],
    "shifted by one": lambda a: np.roll(a, 1, -1),
    "a stale buffer": lambda a: np.random.default_rng(1).permutation(a.reshape(-1)).reshape(a.shape),
    "scale of 1.001": lambda a: a * 1.002,
    "zeros": lambda a: a * 0,
}


def of_outputs() -> list[tuple[str, str, Callable[[np.ndarray], np.ndarray]]]:
    return [(f"{m}: {label}", m, f) for m in MODELS for label, f in OUTPUT.items() if not (m == "quantised" and label in ("one NaN", "one infinity"))]


def test_there_are_enough_of_them() -> None:
    assert len(of_models()) + len(of_outputs()) >= 200


@pytest.mark.parametrize("name", MODELS)
def test_faults_of_the_model_are_caught(name: str) -> None:
    c = case(name)
    assert c.passes(c.right)
    survivors = []
    for label, of, change in of_models():
        if of != name:
            continue
        faulty = onnx.ModelProto()
        faulty.CopyFrom(c.made)
        change(faulty)
        got = Reference(faulty.SerializeToString(), exact_products=c.evidence.reference.multiplies_integers).run(c.feeds)
        if all(np.shape(got[n]) == np.shape(a) and np.allclose(got[n], a, 1e-6, 1e-6 * np.abs(a).max()) for n, a in c.right.items()):
            assert name == "detector", label  # whose largest class another class may be, and another order of classes
            continue
        if c.passes(got):
            survivors.append(label)
    assert not survivors


@pytest.mark.parametrize("name", MODELS)
def test_faults_of_the_output_are_caught(name: str) -> None:
    c = case(name)
    survivors = []
    for label, of, damage in of_outputs():
        if of != name:
            continue
        first = next(iter(c.right))
        damaged = damage(c.right[first])
        if np.array_equal(np.asarray(damaged).astype(c.right[first].dtype), c.right[first]):
            continue  # one batch element, say
        if c.passes({**c.right, first: damaged}):  # other outputs are right
            survivors.append(label)
    assert not survivors


def test_quantised_outputs() -> None:
    c = case("quantised")
    right = c.right["y"].astype(np.int64)
    changes = {
        "off by 2 steps": right + 2,
        "off by 1 step": np.clip(right + 1, 0, 255),
        "one element by 2": at(right, (0, 0, 5, 5), right[0, 0, 5, 5] + 2),
        "signed": (right - 128) % 256,
    }
    assert [label for label, got in changes.items() if c.passes({"y": got})] == []


@pytest.mark.parametrize("name", [n for n in MODELS if n != "large"])
def test_other_orders_of_summation_pass(name: str) -> None:
    """onnxruntime with its fusions, float64 rounded once, and each result moved by the last place."""
    c = case(name)
    fused = Reference(c.made.SerializeToString(), exact_products=True).run(c.feeds)
    assert c.passes(fused)
    if all(a.dtype == np.float32 for a in c.right.values()):
        rng = np.random.default_rng(2)
        assert c.passes({n: a * (1 + rng.integers(-2, 3, a.shape) * 2.0**-23) for n, a in c.right.items()})


@pytest.mark.parametrize("name", ["conv_net", "segmenter", "transformer", "recurrent", "tiny"])
@pytest.mark.parametrize("kind", ["tf32", "f16", "bf16"])
def test_what_a_narrow_type_rounds_passes_with_its_tolerance(name: str, kind: str) -> None:
    """Weights and inputs rounded to the type: what a binary of that precision computes with."""
    digits = {"tf32": 11, "f16": 11, "bf16": 8}[kind]

    def rounded(a: np.ndarray) -> np.ndarray:
        mantissa, exponent = np.frexp(a.astype(np.float64))
        return np.asarray(np.ldexp(np.rint(np.ldexp(mantissa, digits)), exponent - digits), np.float32)

    c = case(name)
    other = onnx.ModelProto()
    other.CopyFrom(c.made)
    for t in c.made.graph.initializer:
        if t.data_type == onnx.TensorProto.FLOAT:
            tensor(other, t.name, rounded)
    got = Reference(other.SerializeToString()).run({n: rounded(a) for n, a in c.feeds.items()})
    u = 2.0**-digits
    evidence = Evidence(c.evidence.reference, c.feeds, c.evidence.want, u)
    types = {o.name: TYPES[o.type.tensor_type.elem_type] for o in c.made.graph.output}
    assert all(r.ok for r in judge(types, evidence, got, tolerance(u, len(c.made.graph.node))))
