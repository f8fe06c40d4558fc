"""Numeric operators of ai.onnx.ml against onnxruntime."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from conformance.cases.case import Array, Case, normal, onnxruntime_gives, whole
from onnx import helper

ROWS, FEATURES = 7, 4
POSTS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _case(op: str, label: str, x: Array, attrs: Mapping[str, Any], outputs: int = 1) -> Case:
    """One node whose first axis is a symbol."""
    node = helper.make_node(op, ["x"], [f"y{n}" for n in range(outputs)], domain="ai.onnx.ml", **attrs)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    given = helper.make_tensor_value_info("x", kind, ["n", *x.shape[1:]])
    graph = helper.make_graph([node], "ml", [given], [onnx.ValueInfoProto(name=f"y{n}") for n in range(outputs)])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    sets = [([part], list(onnxruntime_gives(model)(x=part))) for part in (x, x[:1])]
    return Case(f"{op}_{label}", model, sets, 1e-4, 1e-5, {})


def _floats(*shape: int, seed: int) -> list[float]:
    return [float(v) for v in normal(*shape, seed=seed).ravel()]


def _plain() -> Iterator[Case]:
    x = normal(ROWS, FEATURES)
    yield _case("Scaler", "of_features", x, {"offset": _floats(FEATURES, seed=1), "scale": _floats(FEATURES, seed=2)})
    yield _case("Scaler", "of_all", whole(ROWS, FEATURES), {"offset": [0.5], "scale": [2.0]})
    for norm in ("MAX", "L1", "L2"):
        yield _case("Normalizer", norm, np.abs(x) if norm == "MAX" else x, {"norm": norm})
    yield _case("Binarizer", "at_a_half", x, {"threshold": 0.5})
    holes = np.where(x > 0, x, np.nan).astype(np.float32)
    yield _case("Imputer", "of_nan", holes, {"imputed_value_floats": _floats(FEATURES, seed=3), "replaced_value_float": float("nan")})
    yield _case("Imputer", "of_ints", whole(ROWS, FEATURES, hi=3), {"imputed_value_int64s": [9], "replaced_value_int64": 1})
    yield _case("OneHotEncoder", "of_ints", whole(ROWS, 2, hi=5), {"cats_int64s": [1, 0, 3], "zeros": 1})
    yield _case("LabelEncoder", "of_ints", whole(ROWS, 2, hi=6),
                {"keys_int64s": [1, 4, 2], "values_floats": [0.5, -1.0, 3.0], "default_float": 7.0})  # fmt: skip
    yield _case("FeatureVectorizer", "of_one", x, {"inputdimensions": [FEATURES]})


def _linear() -> Iterator[Case]:
    x = normal(ROWS, FEATURES)
    for post in POSTS[:3]:
        attrs = {"coefficients": _floats(3, FEATURES, seed=4), "intercepts": _floats(3, seed=5), "post_transform": post}
        yield _case("LinearClassifier", f"of_three_{post}", x, {**attrs, "classlabels_ints": [5, 7, 9]}, 2)
    yield _case("LinearRegressor", "to_three", x, {"coefficients": _floats(3, FEATURES, seed=4), "intercepts": _floats(3, seed=5), "targets": 3})
    two = {"coefficients": _floats(2, FEATURES, seed=6), "intercepts": _floats(2, seed=7), "classlabels_ints": [0, 1]}
    yield _case("LinearClassifier", "of_two", x, {**two, "post_transform": "LOGISTIC"}, 2)


def _vector_machines() -> Iterator[Case]:
    x, count = normal(ROWS, FEATURES), 5
    for kind, one in itertools.product(("LINEAR", "POLY", "RBF", "SIGMOID"), (0, 1)):
        attrs = {
            "kernel_type": kind, "kernel_params": [0.3, 0.2, 2.0], "n_supports": count, "one_class": one, "rho": [0.1],
            "coefficients": _floats(count, seed=8), "support_vectors": _floats(count, FEATURES, seed=9),
        }  # fmt: skip
        yield _case("SVMRegressor", f"{kind}{'_one_class' if one else ''}", x, attrs)
    plain = {"kernel_type": "RBF", "kernel_params": [0.3, 0.2, 2.0], "coefficients": _floats(FEATURES, seed=8), "rho": [0.1]}
    yield _case("SVMRegressor", "without_vectors", x, plain)


def _forest(trees: int, targets: int, weight: str) -> dict[str, Any]:
    """Complete trees of depth 3, in the attributes of opset 3; ``weight`` is what the leaves' attributes are called."""
    nodes: dict[str, list[Any]] = {k: [] for k in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")}
    leaves: dict[str, list[Any]] = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    rng = np.random.default_rng(10)
    for tree, node in itertools.product(range(trees), range(15)):
        inner = node < 7
        row = (tree, node, node % FEATURES, "BRANCH_LEQ" if inner else "LEAF", float(rng.standard_normal()) if inner else 0.0,
               2 * node + 1 if inner else 0, 2 * node + 2 if inner else 0)  # fmt: skip
        for values, value in zip(nodes.values(), row, strict=True):
            values.append(value)
        for target in range(0 if inner else targets):
            for values, value in zip(leaves.values(), (tree, node, target, float(rng.standard_normal())), strict=True):
                values.append(value)
    return {f"nodes_{k}": v for k, v in nodes.items()} | {f"{weight}_{k}": v for k, v in leaves.items()}


def _trees() -> Iterator[Case]:
    x = normal(ROWS, FEATURES)
    for how in ("SUM", "AVERAGE", "MIN", "MAX"):
        attrs = {**_forest(3, 2, "target"), "n_targets": 2, "aggregate_function": how, "base_values": [0.5, -0.5]}
        yield _case("TreeEnsembleRegressor", how, x, attrs)
    for post in POSTS[:3]:
        attrs = {**_forest(4, 3, "class"), "classlabels_int64s": [3, 1, 2], "post_transform": post}
        yield _case("TreeEnsembleClassifier", post, x, attrs, 2)


CASES = [*_plain(), *_linear(), *_vector_machines(), *_trees()]
