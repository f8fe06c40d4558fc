"""Tree ensembles (ai.onnx.ml): all trees of all rows take one step at a time, by gathers from tables of nodes."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from aitc.ir.dtype import F32, F64
from aitc.ir.graph import Value
from aitc.ops import declare
from aitc.ops.attribute import Labels, NodeModes, PostTransform, Range
from aitc.ops.declare import Scope, Unsupported, cast, onnx_op
from aitc.ops.ml import labelled, post_transformed

Targets = Annotated[int, Range(1, 1 << 20)]
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


@dataclass(frozen=True, slots=True)
class Forest:
    """Nodes as columns. A leaf's two successors are itself. ``weights`` [nodes, targets] is what a leaf adds (or
    NaN where it has no say)."""

    feature: np.ndarray
    mode: np.ndarray  # index into MODES
    threshold: np.ndarray
    missing: np.ndarray  # NaN takes the true branch
    yes: np.ndarray
    no: np.ndarray
    roots: np.ndarray
    weights: np.ndarray
    depth: int


def depth_of(yes: np.ndarray, no: np.ndarray, roots: np.ndarray) -> int:
    """Steps until every path has reached its leaf. Raises ValueError for a cycle."""
    front, depth = set(roots.tolist()), 0
    while True:
        after = {n for i in front for n in (int(yes[i]), int(no[i])) if not (yes[i] == i and no[i] == i)}
        if not after:
            return depth
        front, depth = after, depth + 1
        if depth > len(yes):
            raise ValueError("the nodes of a tree form a cycle")


def walk(b: Scope, x: Value, forest: Forest, aggregate: str) -> Value:
    """[rows, targets]: the leaves' weights of all trees, aggregated."""
    rows, trees = x.shape[0], len(forest.roots)
    at = declare.expand(b, b.constant(forest.roots.reshape(1, -1).astype(np.int64)), (rows, trees))
    kinds = sorted(set(forest.mode.tolist()))

    def column(values: np.ndarray) -> Value:
        return b.op("Gather", b.constant(values), at, axis=0)

    if x.type.rank != 2:
        raise ValueError(f"rows of features needed, got {x.type}")
    width, read = x.shape[1], forest.feature
    if read.size and (int(read.min()) < 0 or (isinstance(width, int) and int(read.max()) >= width)):
        raise ValueError(f"a tree reads features {int(read.min())} to {int(read.max())} of {x.type}")
    for _ in range(forest.depth):
        seen = b.op("GatherElements", x, column(forest.feature.astype(np.int64)), axis=1)
        split = cast(b, column(forest.threshold), x.type.dtype)
        taken: Value | None = None
        for kind in kinds:
            test = _compare(b, kind, seen, split)
            taken = test if taken is None else b.op("Where", column(forest.mode == kind), test, taken)
        assert taken is not None
        if forest.missing.any():
            taken = b.op("Or", taken, b.op("And", b.op("IsNaN", seen), column(forest.missing.astype(np.bool_))))
        at = b.op("Where", taken, column(forest.yes.astype(np.int64)), column(forest.no.astype(np.int64)))
    given = b.op("Gather", cast(b, b.constant(forest.weights), x.type.dtype), at, axis=0)  # [rows, trees, targets]
    silent = b.op("IsNaN", given)
    if aggregate in ("SUM", "AVERAGE"):
        total = b.op(
            "Reduce", b.op("Where", silent, b.like(0, given), given), function="sum", axes=(1,), keepdims=False
        )
        return b.op("Mul", total, b.like(1 / trees, total)) if aggregate == "AVERAGE" else total
    if aggregate not in ("MIN", "MAX"):
        raise ValueError(f"aggregate_function {aggregate!r}")
    edge = np.finfo(x.type.dtype.numpy).max * (1 if aggregate == "MIN" else -1)
    return b.op(
        "Reduce",
        b.op("Where", silent, b.like(edge, given), given),
        function=aggregate.lower(),
        axes=(1,),
        keepdims=False,
    )


def _compare(b: Scope, kind: int, x: Value, y: Value) -> Value:
    op = ("LessOrEqual", "Less", "GreaterOrEqual", "Greater", "Equal", "Equal")[kind]
    test = b.op(op, x, y)
    return b.op("Not", test) if kind == 5 else test


def check_columns(count: int, **columns: Sized) -> None:
    """Raises ValueError unless each column has ``count`` entries."""
    for name, column in columns.items():
        if len(column) != count:
            raise ValueError(f"{name} has {len(column)} entries for {count} of them")


def old_forest(
    treeids: Sequence[int], nodeids: Sequence[int], features: Sequence[int], modes: Sequence[str],
    values: Sequence[float], missing: Sequence[int], yes: Sequence[int], no: Sequence[int],
    leaves: Sequence[tuple[int, int, int, float]], targets: int,
) -> Forest:  # fmt: skip
    """From the attributes of TreeEnsembleRegressor and -Classifier; ``leaves``: (tree, node, target, weight)."""
    place = {(t, n): i for i, (t, n) in enumerate(zip(treeids, nodeids))}
    count = len(place)
    columns = {"nodes_nodeids": nodeids, "nodes_featureids": features, "nodes_modes": modes, "nodes_values": values,
               "nodes_truenodeids": yes, "nodes_falsenodeids": no}  # fmt: skip
    check_columns(len(treeids), **columns, **({"nodes_missing_value_tracks_true": missing} if missing else {}))
    if count != len(treeids):
        raise ValueError("two nodes of a tree have the same id")
    for i in range(count):
        for after_ in (yes[i], no[i]) if modes[i] != "LEAF" else ():
            if (treeids[i], after_) not in place:
                raise ValueError(f"node {nodeids[i]} of tree {treeids[i]} leads to node {after_}, which the tree does not have")
    for tree, node, target, _ in leaves:
        if (tree, node) not in place or not 0 <= target < targets:
            raise ValueError(f"a weight for node {node} of tree {tree}, target {target} of {targets}: there is none")
    leaf = np.array([m == "LEAF" for m in modes])
    after = [np.array([i if leaf[i] else place[treeids[i], branch[i]] for i in range(count)]) for branch in (yes, no)]
    unknown = sorted(set(modes) - set(MODES) - {"LEAF"})
    if unknown:
        raise ValueError(f"nodes_modes has {', '.join(unknown)}, which are no modes")
    mode = np.array([0 if m == "LEAF" else MODES.index(m) for m in modes])
    weights = np.full((count, targets), np.nan)
    for tree, node, target, weight in leaves:
        at = place[tree, node]
        weights[at, target] = weight + (0 if np.isnan(weights[at, target]) else weights[at, target])
    entered = {int(i) for branch in after for k, i in enumerate(branch) if i != k}
    roots = np.array([i for i in range(count) if i not in entered])
    track = np.array(missing or [0] * count, bool)
    depth = depth_of(after[0], after[1], roots)
    threshold = np.array(values, np.float64)
    return Forest(np.array(features), mode, threshold, track, after[0], after[1], roots, weights, depth)


def _given(plain: Sequence[float] | None, tensor: np.ndarray | None) -> list[float]:
    return list(plain) if plain else [] if tensor is None else tensor.ravel().tolist()


@onnx_op("TreeEnsembleRegressor", domain="ai.onnx.ml")
def tree_ensemble_regressor(
    b: Scope, x: Value, *, n_targets: Targets = 1, aggregate_function: Literal["SUM", "AVERAGE", "MIN", "MAX"] = "SUM",
    base_values: tuple[float, ...] | None = None, base_values_as_tensor: np.ndarray | None = None,
    nodes_falsenodeids: tuple[int, ...] = (), nodes_featureids: tuple[int, ...] = (),
    nodes_hitrates: tuple[float, ...] = (), nodes_hitrates_as_tensor: np.ndarray | None = None,
    nodes_missing_value_tracks_true: tuple[int, ...] = (), nodes_modes: NodeModes = (),
    nodes_nodeids: tuple[int, ...] = (), nodes_treeids: tuple[int, ...] = (), nodes_truenodeids: tuple[int, ...] = (),
    nodes_values: tuple[float, ...] | None = None, nodes_values_as_tensor: np.ndarray | None = None,
    post_transform: PostTransform = "NONE", target_ids: tuple[int, ...] = (), target_nodeids: tuple[int, ...] = (),
    target_treeids: tuple[int, ...] = (), target_weights: tuple[float, ...] | None = None,
    target_weights_as_tensor: np.ndarray | None = None,
) -> Value:  # fmt: skip
    weights = _given(target_weights, target_weights_as_tensor)
    forest = old_forest(
        nodes_treeids, nodes_nodeids, nodes_featureids, nodes_modes, _given(nodes_values, nodes_values_as_tensor),
        nodes_missing_value_tracks_true, nodes_truenodeids, nodes_falsenodeids, list(zip(target_treeids, target_nodeids,
        target_ids, weights)), n_targets,
    )  # fmt: skip
    x = x if x.type.dtype is F64 else cast(b, x, F32)
    y = walk(b, x, forest, aggregate_function)
    base = _given(base_values, base_values_as_tensor)
    if base:
        y = b.op("Add", y, b.constant(np.array(base, y.type.dtype.numpy).reshape(1, -1)))
    return post_transformed(b, cast(b, y, F32), post_transform)


@onnx_op("TreeEnsembleClassifier", domain="ai.onnx.ml")
def tree_ensemble_classifier(
    b: Scope, x: Value, *, base_values: tuple[float, ...] | None = None, base_values_as_tensor: np.ndarray | None = None,
    class_ids: tuple[int, ...] = (), class_nodeids: tuple[int, ...] = (), class_treeids: tuple[int, ...] = (),
    class_weights: tuple[float, ...] | None = None, class_weights_as_tensor: np.ndarray | None = None,
    classlabels_int64s: tuple[int, ...] | None = None, classlabels_strings: Labels | None = None,
    nodes_falsenodeids: tuple[int, ...] = (), nodes_featureids: tuple[int, ...] = (),
    nodes_hitrates: tuple[float, ...] = (), nodes_hitrates_as_tensor: np.ndarray | None = None,
    nodes_missing_value_tracks_true: tuple[int, ...] = (), nodes_modes: NodeModes = (),
    nodes_nodeids: tuple[int, ...] = (), nodes_treeids: tuple[int, ...] = (), nodes_truenodeids: tuple[int, ...] = (),
    nodes_values: tuple[float, ...] | None = None, nodes_values_as_tensor: np.ndarray | None = None,
    post_transform: PostTransform = "NONE",
) -> tuple[Value, ...]:  # fmt: skip
    if not classlabels_int64s:
        raise Unsupported(f"classlabels_strings of {len(classlabels_strings or ())} strings", "export the classifier with integer labels")
    classes = len(classlabels_int64s)
    weights = _given(class_weights, class_weights_as_tensor)
    binary = len(set(class_ids)) == 1 and classes <= 2
    leaves = [(t, n, 0 if binary else c, w) for t, n, c, w in zip(class_treeids, class_nodeids, class_ids, weights)]
    forest = old_forest(
        nodes_treeids, nodes_nodeids, nodes_featureids, nodes_modes, _given(nodes_values, nodes_values_as_tensor),
        nodes_missing_value_tracks_true, nodes_truenodeids, nodes_falsenodeids, leaves, 1 if binary else classes,
    )  # fmt: skip
    x = x if x.type.dtype is F64 else cast(b, x, F32)
    scores = cast(b, walk(b, x, forest, "SUM"), F32)
    base = _given(base_values, base_values_as_tensor)
    if base:
        scores = b.op("Add", scores, b.constant(np.array(base[-1:] if binary else base, np.float32).reshape(1, -1)))
    if binary:
        other = b.op("Sub", b.like(1, scores), scores) if post_transform in ("NONE", "PROBIT") else b.op("Neg", scores)
        scores = b.op("Concat", other, scores, axis=1)
    scores = post_transformed(b, scores, post_transform)
    return labelled(b, scores, classlabels_int64s if classes > 1 else (0, classlabels_int64s[0])), scores


@onnx_op("TreeEnsemble", domain="ai.onnx.ml")
def tree_ensemble(
    b: Scope, x: Value, *, nodes_splits: np.ndarray, nodes_featureids: tuple[int, ...], nodes_modes: np.ndarray,
    nodes_truenodeids: tuple[int, ...], nodes_falsenodeids: tuple[int, ...], nodes_trueleafs: tuple[int, ...],
    nodes_falseleafs: tuple[int, ...], leaf_targetids: tuple[int, ...], leaf_weights: np.ndarray,
    tree_roots: tuple[int, ...], aggregate_function: Annotated[int, Range(0, 3)] = 1,
    post_transform: Annotated[int, Range(0, 4)] = 0, n_targets: Targets = 1,
    nodes_hitrates: np.ndarray | None = None, nodes_missing_value_tracks_true: tuple[int, ...] | None = None,
    membership_values: np.ndarray | None = None,
) -> Value:  # fmt: skip
    """Leaves follow the inner nodes in the tables; a membership test becomes a chain of equality tests."""
    inner, leaves = len(nodes_featureids), len(leaf_targetids)
    check_columns(inner, nodes_splits=nodes_splits.ravel(), nodes_modes=nodes_modes.ravel(), nodes_truenodeids=nodes_truenodeids,
                  nodes_falsenodeids=nodes_falsenodeids, nodes_trueleafs=nodes_trueleafs, nodes_falseleafs=nodes_falseleafs,
                  **({"nodes_missing_value_tracks_true": nodes_missing_value_tracks_true} if nodes_missing_value_tracks_true else {}))  # fmt: skip
    check_columns(leaves, leaf_weights=leaf_weights.ravel())
    for what, ids, are_leaves in (("nodes_truenodeids", nodes_truenodeids, nodes_trueleafs), ("nodes_falsenodeids", nodes_falsenodeids, nodes_falseleafs)):
        for i, is_leaf in zip(ids, are_leaves):
            if not 0 <= i < (leaves if is_leaf else inner):
                raise ValueError(f"{what} holds {i}, of {leaves if is_leaf else inner} {'leaves' if is_leaf else 'nodes'}")
    if not all(0 <= r < inner for r in tree_roots) or not all(0 <= t < n_targets for t in leaf_targetids):
        raise ValueError(f"tree_roots or leaf_targetids hold what {inner} nodes and {n_targets} targets do not have")
    if not all(0 <= m <= 6 for m in nodes_modes.ravel().tolist()):
        raise ValueError("nodes_modes holds a mode that ONNX does not have")
    feature, mode, threshold = (
        list(nodes_featureids),
        nodes_modes.ravel().tolist(),
        nodes_splits.astype(np.float64).ravel().tolist(),
    )
    missing = list(nodes_missing_value_tracks_true or [0] * inner)
    yes = [n + inner if leaf else n for n, leaf in zip(nodes_truenodeids, nodes_trueleafs)]
    no = [n + inner if leaf else n for n, leaf in zip(nodes_falsenodeids, nodes_falseleafs)]
    roots = [
        yes[r] if nodes_trueleafs[r] and nodes_falseleafs[r] and nodes_truenodeids[r] == nodes_falsenodeids[r] else r
        for r in tree_roots
    ]
    for k in range(len(leaf_targetids)):
        threshold.append(0.0)
        for table, entry in ((feature, 0), (mode, 0), (missing, 0), (yes, inner + k), (no, inner + k)):
            table.append(entry)
    _expand_members(
        inner,
        feature,
        mode,
        threshold,
        missing,
        yes,
        no,
        [] if membership_values is None else membership_values.ravel().tolist(),
    )
    weights = np.full((len(feature), n_targets), np.nan)
    for k, (target, weight) in enumerate(zip(leaf_targetids, leaf_weights.astype(np.float64).ravel().tolist())):
        weights[inner + k, target] = weight
    after = np.array(yes), np.array(no)
    forest = Forest(np.array(feature), np.array(mode), np.array(threshold), np.array(missing, bool), *after, np.array(roots), weights,
                    depth_of(*after, np.array(roots)))  # fmt: skip
    y = walk(b, x, forest, ("AVERAGE", "SUM", "MIN", "MAX")[aggregate_function])
    return post_transformed(b, y, ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[post_transform])


def _expand_members(
    inner: int,
    feature: list[int],
    mode: list[int],
    threshold: list[float],
    missing: list[int],
    yes: list[int],
    no: list[int],
    values: list[Any],
) -> None:
    """Node i of mode MEMBER (6) tests its first value; nodes that are added at the end test the others."""
    members = iter(values)
    for i in range(inner):
        if mode[i] != 6:
            continue
        own: list[float] = []
        for v in members:
            if np.isnan(v):
                break
            own.append(v)
        mode[i], threshold[i] = 4, own[0] if own else float("nan")
        at, otherwise = i, no[i]
        for v in own[1:]:
            no[at] = len(feature)
            for table, entry in (
                (feature, feature[i]),
                (mode, 4),
                (threshold, v),
                (missing, missing[i]),
                (yes, yes[i]),
                (no, otherwise),
            ):
                table.append(entry)  # type: ignore[arg-type]
            at = len(feature) - 1
