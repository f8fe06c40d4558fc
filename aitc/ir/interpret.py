"""Evaluates a core graph with the numpy reference of each op: the semantics that every pass and rule must keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from aitc.ir import dim as dm
from aitc.ir.graph import Graph, Node, Value

Env = dict[Value, Any]  # arrays by value, of this graph and of those around it


class InterpretError(Exception):
    """A node failed, or gave something else than its type says; the message names the node and where it came from."""


def interpret(
    graph: Graph, inputs: Mapping[str, np.ndarray], keep: bool = False, dims: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Runs ``graph`` on ``inputs`` (by name) and returns its outputs by the model's names, in order.

    Symbols are bound from the shapes of the inputs, then from ``dims``, then from what data-dependent ops return. With
    ``keep`` the result also holds every other value by its own name. Raises InterpretError.
    """
    env: Env = {}
    symbols: dict[str, int] = dict(dims or {})
    for v in graph.inputs:
        if v.name not in inputs:
            raise InterpretError(f"no input {v.name!r}")
        array = np.asarray(inputs[v.name], dtype=v.type.dtype.numpy)
        if array.ndim != v.type.rank:
            raise InterpretError(f"input {v.name!r} has rank {array.ndim}, expected {v.type}")
        env[v] = array
    for v in graph.inputs:
        bind(v.shape, env[v].shape, symbols)
    for v in graph.inputs:
        _check(v, env[v], symbols, f"input {v.name!r}")
    results = _run(graph, env, symbols, keep)
    names = graph.output_names or [v.name for v in graph.outputs]
    outputs = dict(zip(names, results))
    if keep:
        for v, array in env.items():
            outputs.setdefault(v.name, array)
    return outputs


def bind(shape: Sequence[dm.Dim], actual: Sequence[int], symbols: dict[str, int]) -> None:
    """Binds the symbols that ``shape`` leaves open to what ``actual`` says: bare symbols, and one symbol in a linear expression."""
    for d, n in zip(shape, actual):
        if isinstance(d, int):
            continue
        name = dm.as_symbol(d)
        if name is not None:
            symbols.setdefault(name.name, n)
            continue
        rest = dm.substitute(d, symbols)
        if isinstance(rest, dm.Sum) and len(rest.terms) == 1:
            ((product, c),) = rest.terms
            if len(product) == 1 and isinstance(product[0], dm.Symbol) and (n - rest.const) % c == 0:
                symbols[product[0].name] = (n - rest.const) // c


def resolve(attrs: Any, symbols: Mapping[str, int]) -> Any:
    """``attrs`` with each Dim in it evaluated. Raises KeyError for a symbol without a value."""
    if not is_dataclass(attrs):
        return attrs
    changes = {}
    for f in fields(attrs):
        old = getattr(attrs, f.name)
        new = _resolve(old, symbols)
        if new is not old:
            changes[f.name] = new
    return replace(attrs, **changes) if changes else attrs  # type: ignore[type-var]


def _resolve(x: Any, symbols: Mapping[str, int]) -> Any:
    if isinstance(x, dm.Sum):
        unbound = [s for s in dm.symbols(x) if s.name not in symbols]
        return x if unbound else dm.evaluate(x, symbols)  # a size that the node itself decides stays a Dim
    if isinstance(x, tuple) and any(isinstance(e, (dm.Sum, tuple)) for e in x):
        return tuple(_resolve(e, symbols) for e in x)
    return x


def _check(v: Value, array: Any, symbols: dict[str, int], where: str) -> None:
    bind(v.shape, array.shape, symbols)
    try:
        expected = tuple(dm.evaluate(d, symbols) for d in v.shape)
    except KeyError:
        return  # a symbol that nothing binds: its value cannot be checked
    if tuple(array.shape) != expected:
        raise InterpretError(f"{where} has shape {tuple(array.shape)}, but its type is {v.type} = {list(expected)}")
    if array.dtype != v.type.dtype.numpy:
        raise InterpretError(f"{where} has element type {array.dtype}, but its type is {v.type}")


def _read(v: Value | None, env: Env) -> Any:
    if v is None:
        return None
    return v.const if v.const is not None else env[v]


def _run(graph: Graph, env: Env, symbols: dict[str, int], keep: bool) -> list[Any]:
    last: dict[Value, Node] = {}
    nodes = list(graph.nodes)
    if not keep:
        for node in nodes:
            for v in node.inputs:
                if v is not None and v.producer is not None and v.producer in graph:
                    last[v] = node
            for body in node.bodies:
                for v in body.captured:
                    last[v] = node
        for v in graph.outputs:
            last.pop(v, None)
    for node in nodes:
        _step(node, env, symbols, keep)
        if not keep:
            for v in {v for v in node.inputs if v is not None and last.get(v) is node}:
                env.pop(v, None)
    return [_read(v, env) for v in graph.outputs]


def _step(node: Node, env: Env, symbols: dict[str, int], keep: bool) -> None:
    where = f"{node!r}" + (f" of {node.locs[0]}" if node.locs else "")
    try:
        results = evaluate(node, [_read(v, env) for v in node.inputs], env, symbols, keep)
    except InterpretError:
        raise
    except Exception as e:  # the reference of any op may raise anything; say which node
        raise InterpretError(f"{where}: {type(e).__name__}: {e}") from e
    if len(results) < len(node.outputs):
        raise InterpretError(f"{where}: the reference gave {len(results)} results for {len(node.outputs)} outputs")
    for v, array in zip(node.outputs, results):
        _check(v, array, symbols, where)
        env[v] = array


def evaluate(
    node: Node, arrays: Sequence[Any], env: Env | None = None, symbols: dict[str, int] | None = None, keep: bool = False
) -> list[Any]:
    """The results of one node on ``arrays`` (None for absent inputs); ``env`` holds the captured values of its bodies."""
    symbols = {} if symbols is None else symbols
    if node.bodies:
        return _CONTROL[node.op.name](node, arrays, {} if env is None else env, symbols, keep)
    if node.op.name == "ReadDims":
        bind(node.attrs.dims, [int(n) for n in np.asarray(arrays[0]).reshape(-1)], symbols)
    with np.errstate(all="ignore"):
        result = node.op.reference(*arrays, resolve(node.attrs, symbols))
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    return [_as_typed(r, v) for r, v in zip(results, node.outputs)]


def _as_typed(x: Any, v: Value) -> np.ndarray:
    """numpy returns scalars for arrays of rank 0, and widens narrow floats; anything else is the reference's error."""
    array = np.asarray(x)
    want = v.type.dtype
    if array.dtype != want.numpy and want.is_float and array.dtype.kind in "fV":
        array = array.astype(want.numpy)
    return array


# --- control flow: inputs and outputs of bodies are ONNX's
def _body(graph: Graph, arrays: Sequence[Any], env: Env, symbols: dict[str, int], keep: bool) -> list[Any]:
    inner = dict(env)
    own = dict(symbols)  # the dims of a body are bound anew in each iteration
    for v, array in zip(graph.inputs, arrays):
        inner[v] = np.asarray(array)
        bind(v.shape, inner[v].shape, own)
    results = _run(graph, inner, own, keep)
    if keep:
        env.update({v: a for v, a in inner.items() if v not in env})
    return results


def _if(node: Node, arrays: Sequence[Any], env: Env, symbols: dict[str, int], keep: bool) -> list[Any]:
    taken = 0 if bool(np.asarray(arrays[0]).reshape(())) else 1
    if node.attrs.fails and node.attrs.fails[taken]:
        raise ValueError(f"a branch that cannot run was taken: {node.attrs.fails[taken]}")
    return _body(node.bodies[taken], arrays[1:], env, symbols, keep)


def _loop(node: Node, arrays: Sequence[Any], env: Env, symbols: dict[str, int], keep: bool) -> list[Any]:
    limit = None if arrays[0] is None else int(np.asarray(arrays[0]).reshape(()))
    go = arrays[1] is None or bool(np.asarray(arrays[1]).reshape(()))
    carried = list(arrays[2:])
    body = node.bodies[0]
    scans: list[list[Any]] = [[] for _ in body.outputs[1 + len(carried) :]]
    i = 0
    while go and (limit is None or i < limit):
        results = _body(body, [np.array(i, np.int64), np.array(go), *carried], env, symbols, keep)
        go = bool(np.asarray(results[0]).reshape(()))
        carried = results[1 : 1 + len(carried)]
        for scan, r in zip(scans, results[1 + len(carried) :]):
            scan.append(r)
        i += 1
    return carried + [_stack(s, v, 0) for s, v in zip(scans, node.outputs[len(carried) :])]


def _scan(node: Node, arrays: Sequence[Any], env: Env, symbols: dict[str, int], keep: bool) -> list[Any]:
    a = node.attrs
    count = a.num_scan_inputs
    states, scanned = list(arrays[: len(arrays) - count]), arrays[len(arrays) - count :]
    outputs = len(node.outputs) - len(states)
    in_axes = tuple(a.scan_input_axes) or (0,) * count
    in_back = tuple(a.scan_input_directions) or (0,) * count
    out_axes = tuple(a.scan_output_axes) or (0,) * outputs
    out_back = tuple(a.scan_output_directions) or (0,) * outputs
    length = scanned[0].shape[in_axes[0]]
    collected: list[list[Any]] = [[] for _ in range(outputs)]
    for i in range(length):
        slices = [
            np.take(x, length - 1 - i if back else i, axis=axis) for x, axis, back in zip(scanned, in_axes, in_back)
        ]
        results = _body(node.bodies[0], [*states, *slices], env, symbols, keep)
        states = results[: len(states)]
        for c, r in zip(collected, results[len(states) :]):
            c.append(r)
    stacked = []
    for c, v, axis, back in zip(collected, node.outputs[len(states) :], out_axes, out_back):
        stacked.append(_stack(c[::-1] if back else c, v, axis))
    return states + stacked


def _stack(parts: Sequence[Any], v: Value, axis: int) -> np.ndarray:
    if parts:
        return np.stack([np.asarray(p) for p in parts], axis=axis)
    shape = [d if isinstance(d, int) else 0 for d in v.shape]
    shape[axis] = 0
    return np.zeros(shape, v.type.dtype.numpy)


_CONTROL = {"If": _if, "Loop": _loop, "Scan": _scan}
