"""What a model should give without the rounding of its floats: ``onnx.reference`` on a copy of the model in float64.

It is the judge between a binary and onnxruntime. It shares no code with either: not the importer's lowering, not onnxruntime's kernels.
An operator that ``onnx.reference`` does not have, or that fails there, is computed by onnxruntime alone, with float64 where it has that,
and with whole products of 8-bit integers on every processor.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.reference
from onnx.reference.op_run import OpRun, RuntimeContextError

from aitc.build.memory import available_bytes
from aitc.verify.reference import NoReference, TooLarge, first_line, open_session, run_session, widen

TIME_S = 120.0  # for one evaluation
# Python loops over elements in onnx.reference, while onnxruntime only moves values, or has float64
_SLOW = frozenset({"MaxPool", "Resize", "Upsample", "NonMaxSuppression", "RoiAlign", "GridSample"})


def exact_outputs(
    model: str | Path | bytes | onnx.ModelProto, feeds: Mapping[str, np.ndarray], time_s: float = TIME_S
) -> dict[str, Any]:
    """All outputs by name, floats as float64. Raises NoReference; TooLarge (one of them) beyond this machine's memory or ``time_s``."""
    proto = _whole(model)
    weights = sum(int(np.prod(t.dims, dtype=np.int64)) for t in proto.graph.initializer) * 8
    if 3 * weights > available_bytes():
        raise TooLarge(f"float64 copies of the weights take {3 * weights / 2**30:.2f} GiB")
    widen(proto, (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16), onnx.TensorProto.DOUBLE)
    names = [o.name for o in proto.graph.output]
    try:
        evaluator = _Float64(proto)
    except NoReference:
        raise
    except Exception as error:
        raise NoReference(f"onnx.reference in float64: {first_line(error)}") from error
    evaluator.deadline = time.monotonic() + time_s
    try:
        results = evaluator.run(names, {n: wide(a) for n, a in feeds.items() if n in evaluator.input_names})
    except NoReference:
        raise
    except MemoryError:
        raise TooLarge("float64 copies of the values do not fit into this machine's memory") from None
    except Exception as error:
        raise NoReference(f"onnx.reference in float64: {first_line(error)}") from error
    return dict(zip(names, results))


def _whole(model: str | Path | bytes | onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model with its weights."""
    if isinstance(model, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        return copy
    return onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(str(model))


def wide(array: Any) -> Any:
    """A float array as float64; others as they are."""
    array = np.asarray(array)
    return array.astype(np.float64) if array.dtype.kind == "f" or array.dtype.name == "bfloat16" else array


class _Float64(onnx.reference.ReferenceEvaluator):
    """Frees a value behind its last use, stops at ``deadline``, and asks onnxruntime for what it does not have."""

    deadline = float("inf")

    def _load_impl(self, node: onnx.NodeProto, input_types: Any = None) -> Any:
        if node.domain == "" and node.op_type in _SLOW:
            return _alone(self.opsets)
        try:
            return super()._load_impl(node, input_types)
        except RuntimeContextError:
            raise
        except Exception:  # of many kinds: no such operator, no such version, no such domain
            return _alone(self.opsets)

    def run(self, output_names: Any, feed_inputs: Any, *args: Any, **more: Any) -> Any:
        if self.onnx_graph_ is None or args or more:
            return super().run(output_names, feed_inputs, *args, **more)  # a function, a body
        values = {"": None, **self.rt_inits_, **feed_inputs}
        last = {name: i for i, node in enumerate(self.rt_nodes_) for name in self._reads(i, node)}
        kept = set(output_names) | {""}
        for i, node in enumerate(self.rt_nodes_):
            if time.monotonic() > self.deadline:
                raise TooLarge("float64 takes too long")
            inputs = [values[n] for n in node.input]
            try:
                results = node.run(*inputs, context=values) if node.need_context() else node.run(*inputs)
            except Exception:
                if node.need_context() or isinstance(node, _Alone):
                    raise
                results = compute_alone(node.onnx_node, self.opsets, inputs)
            values.update(zip(node.output, results))
            for name in [*self._reads(i, node), *node.output]:
                if last.get(name, i) == i and name not in kept and not node.need_context():
                    values.pop(name, None)
        return [values[n] for n in output_names]

    def _reads(self, i: int, node: Any) -> list[str]:
        """What a node reads; one with bodies may read anything before it."""
        if not node.need_context():
            return list(node.input)
        return list(dict.fromkeys([*self.rt_inits_, *self.input_names, *(o for n in self.rt_nodes_[:i] for o in n.output)]))


class _Alone(OpRun):
    """An operator by onnxruntime."""

    opsets_: Mapping[str, int]

    def run(self, *args: Any, linked_attributes: Any = None, context: Any = None, bindings: Any = None) -> Any:
        return tuple(compute_alone(self.onnx_node, self.opsets_, args))

    def _run(self, *args: Any) -> Any:
        return self.run(*args)


def _alone(opsets: Mapping[str, int]) -> Any:
    return type("Alone", (_Alone,), {"opsets_": dict(opsets), "op_domain": ""})


def compute_alone(node: onnx.NodeProto, opsets: Mapping[str, int], inputs: Sequence[Any]) -> list[Any]:
    """The results of one node by onnxruntime: in float64, else in float32. Raises NoReference."""
    refusal = ""
    for narrow in (False, True):
        arrays = [a if a is None else np.asarray(a) for a in inputs]
        if narrow:
            arrays = [a.astype(np.float32) if a is not None and a.dtype == np.float64 else a for a in arrays]
        named = {n: a for n, a in zip(node.input, arrays) if n and a is not None}
        first = next(iter(named), "")
        graph = onnx.GraphProto(name="alone", node=[node])
        graph.output.extend(onnx.ValueInfoProto(name=o) for o in node.output if o)
        feeds = {}
        try:
            for n, a in named.items():
                if n == first:
                    kind = onnx.helper.np_dtype_to_tensor_dtype(a.dtype)
                    graph.input.append(onnx.helper.make_tensor_value_info(n, kind, a.shape))
                    feeds[n] = a
                else:
                    graph.initializer.append(onnx.numpy_helper.from_array(a, n))
            imports = [onnx.helper.make_opsetid(d, v) for d, v in {"com.microsoft": 1, **opsets}.items()]
            model = onnx.ModelProto(ir_version=10, graph=graph, opset_import=imports)
            session = open_session(model.SerializeToString(), exact_products=True)
            results = iter(run_session(session, [o for o in node.output if o], feeds))
        except TooLarge:
            raise
        except Exception as error:
            refusal = first_line(error)
            continue
        return [wide(next(results)) if o else None for o in node.output]
    raise NoReference(f"{node.op_type} {node.name!r}: {refusal}")
