"""Random generators: no number is compared, but means, moments, extremes, shares and correlations of many of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from conformance.cases.case import Case, case, normal

COUNT = 40000  # of draws: three deviations of a mean are 0.015 of one
STATISTICS = """
    mean = ReduceMean<keepdims = 0>(y) d = Sub(y, mean) square = Mul(d, d) variance = ReduceMean<keepdims = 0>(square)
    fourth = Mul(square, square) kurtosis = ReduceMean<keepdims = 0>(fourth)
    least = ReduceMin<keepdims = 0>(y) most = ReduceMax<keepdims = 0>(y)
    a = Slice(d, zero, minus_one) b = Slice(d, one, far) ab = Mul(a, b) neighbours = ReduceMean<keepdims = 0>(ab)
"""
OUTPUTS = ("mean", "variance", "kurtosis", "least", "most", "neighbours")


def _drawn(name: str, node: str, asked: Mapping[str, float], tolerance: float, of: float = 0) -> Case:
    """``node`` draws y from x, whose elements are ``of``; ``asked``: the expected statistics of the draws."""
    outputs = ", ".join(f"float {o}" for o in asked)
    text = f"""(float[n] x) => ({outputs}) <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] minus_one = {{-1}}, int64[1] far = {{{2**60}}}>
        {{ {node} {STATISTICS} }}"""
    x = np.full(COUNT, of, np.float32)
    scale = tolerance / max(map(abs, asked.values()))
    return case(name, text, {"x": x}, expect=lambda x: tuple(asked.values()), rtol=tolerance, scale=scale)


def _generators() -> list[Case]:
    uniform = dict(zip(OUTPUTS, (1.0, 4 / 3, 16 / 5, -1.0, 3.0, 0.0), strict=True))
    gauss = dict(zip(OUTPUTS[:3], (2.0, 0.25, 3 / 16), strict=True)) | {"neighbours": 0.0}
    coin = dict(zip(OUTPUTS, (0.3, 0.21, 0.0777, 0.0, 1.0, 0.0), strict=True))
    return [
        _drawn("uniform_like", "y = RandomUniformLike<low = -1.0, high = 3.0>(x)", uniform, 0.05),
        _drawn("uniform_like_seeded", "y = RandomUniformLike<low = -1.0, high = 3.0, seed = 7.0>(x)", uniform, 0.05),
        _drawn("uniform", f"y = RandomUniform<low = -1.0, high = 3.0, shape = [{COUNT}]>()", uniform, 0.05),
        _drawn("normal_like", "y = RandomNormalLike<mean = 2.0, scale = 0.5>(x)", gauss, 0.02),
        _drawn("normal", f"y = RandomNormal<mean = 2.0, scale = 0.5, shape = [{COUNT}]>()", gauss, 0.02),
        _drawn("bernoulli", "y = Bernoulli(x)", coin, 0.02, of=0.3),
        _drawn("dropout", "r = Constant<value_float = 0.25>() t = Constant<value = bool {1}>() y = Dropout(x, r, t)",
               {"mean": 1.5, "variance": 0.75, "least": 0.0, "most": 2.0}, 0.03, of=1.5),
    ]  # fmt: skip


def _multinomial() -> Case:
    """Three classes of 1/2, 1/3 and 1/6, two rows that are drawn apart."""
    text = f"""(float[n,3] logits) => (float[n,1] first, float[n,1] second, float[n,1] third, float both) {{
        y = Multinomial<sample_size = {COUNT}, dtype = 7>(logits) k = Constant<value = int64[3] {{0, 1, 2}}>()
        i, j, l = Split(k) e = Equal(y, i) g = Equal(y, j) h = Equal(y, l)
        ef = Cast<to = 1>(e) gf = Cast<to = 1>(g) hf = Cast<to = 1>(h)
        first = ReduceMean<axes = [1]>(ef) second = ReduceMean<axes = [1]>(gf) third = ReduceMean<axes = [1]>(hf)
        all = ReduceMin<axes = [0]>(ef) both = ReduceMean<keepdims = 0>(all) }}"""
    shares = np.array([1 / 2, 1 / 3, 1 / 6])
    logits = np.tile(np.log(shares) + 4, (2, 1)).astype(np.float32)
    expected = (*(np.full((2, 1), s) for s in shares), 1 / 4)
    return case("multinomial", text, {"logits": logits}, expect=lambda logits: expected, opset=17, rtol=0, scale=0.03)


def _apart() -> list[Case]:
    """Nodes without a seed draw different numbers, those with the same seed the same ones."""
    text = """(float[n] x) => (float apart, float same) <float one = {1}> {
        a = RandomNormalLike(x) b = RandomNormalLike(x) ab = Mul(a, b) product = ReduceMean<keepdims = 0>(ab) apart = Add(one, product)
        c = RandomNormalLike<seed = 3.0>(x) d = RandomNormalLike<seed = 3.0>(x) e = Sub(c, d) f = Abs(e)
        same = ReduceMax<keepdims = 0>(f) }"""
    return [case("seeds", text, {"x": normal(COUNT)}, expect=lambda x: (1.0, 0.0), rtol=0.03, scale=0)]


CASES = [*_generators(), _multinomial(), *_apart()]
