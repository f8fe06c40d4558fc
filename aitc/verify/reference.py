"""What a model should give: onnxruntime on the CPU in float32, and ``onnx.reference`` where it has no kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.helper
import onnx.inliner
import onnx.numpy_helper
import onnx.reference
import onnx.shape_inference

from aitc.build.memory import available_bytes
from aitc.build.scratch import scratch
from aitc.importer.order import sort
from aitc.importer.wire import read_structure
from aitc.verify.child import begin

MESSAGE_BYTES = 2**31 - 2**20  # what a protobuf message may have
LARGE_BYTES = 65536
_COPIES = 5  # of the weights, while they are moved: the file's, the moved ones, as bytes, onnxruntime's, and as it packs them
BFLOAT16 = onnx.TensorProto.BFLOAT16
FLOAT = onnx.TensorProto.FLOAT


class NoReference(Exception):
    """No oracle could compute the model; the message says what each of them answered."""


class TooLarge(NoReference):
    """This machine's memory does not hold what an oracle needs."""


_avoided: list[str] = []  # why this process does without onnxruntime
avoid_onnxruntime = _avoided.append  # takes how it ended in another process; from now on ``onnx.reference`` computes alone


class Reference:
    """A model that can be run by an oracle. ``oracle`` says which one the last run used.

    A model with bfloat16 anywhere is computed in float32 from end to end (onnxruntime's CPU has no bfloat16 kernels);
    inputs are converted, outputs come back as float32.
    """

    def __init__(self, model: str | Path | bytes | onnx.ModelProto, outputs: Sequence[str] = (), exact_products: bool = False):
        """``outputs``: further values of the main graph (ONNX names) to return beside the model's outputs. ``exact_products``: see
        ``open_session``."""
        self.oracle = ""
        self._path = Path(model) if isinstance(model, (str, Path)) else None
        raw = model if isinstance(model, onnx.ModelProto) else load_structure(model)
        self._widened = _has_bfloat16(raw)
        self._proto: onnx.ModelProto | None = None
        unsorted = sort(raw)  # onnxruntime sorts the main graph, not bodies; onnx.reference takes nodes as they come
        mixed = _mixes_opsets(raw)
        if self._widened or outputs or unsorted or mixed:
            full = onnx.load(str(self._path)) if self._path else raw
            sort(full)
            if mixed:
                full = _of_one_opset(full)
            if self._widened:
                widen(full)
            have = {o.name for o in full.graph.output}
            full.graph.output.extend(onnx.ValueInfoProto(name=n) for n in outputs if n not in have)
            self._proto = full
        elif self._path is None:
            self._proto = raw
        initial = {i.name for i in raw.graph.initializer}
        self.inputs = [i.name for i in raw.graph.input if i.name not in initial]
        self.outputs = [o.name for o in (self._proto or raw).graph.output]
        self._bytes = sum(_bytes(t) for t in raw.graph.initializer)
        self.random = random_values(raw)
        self.detects = any(n.op_type in ("NonMaxSuppression", "TopK", "NonZero") for n in raw.graph.node)
        self.multiplies_integers = any(n.op_type in INTEGER_PRODUCTS for g in graphs(raw) for n in g.node)
        self._exact_products = exact_products
        self._session: Any = None
        self._evaluator: Any = None
        self._why_not = ""

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """All outputs by name (arrays; lists for sequences; None for absent optionals). Raises NoReference."""
        begin()
        feeds = {name: _plain(a, self._widened) for name, a in feeds.items() if name in self.inputs}
        if _avoided:
            self._why_not = _avoided[-1]
        elif self._evaluator is None or self._session is not None:  # what reads the model may have refused other inputs alone
            try:
                return self._run_session(feeds)
            except TooLarge:
                raise  # onnx.reference keeps all values, and would take more
            except Exception as error:
                self._why_not = first_line(error)
        try:
            return self._run_evaluator(feeds)
        except Exception as error:
            raise NoReference(f"onnxruntime: {self._why_not}; onnx.reference: {first_line(error)}") from error

    @property
    def refuses(self) -> bool:
        """Whether onnxruntime, which reads this model, would not compute the last run."""
        return self._session is not None and not self.oracle.startswith("onnxruntime")

    def whole(self) -> onnx.ModelProto:
        """The model with its weights, as this oracle reads it. Raises TooLarge where memory does not hold the copies that changing
        it takes."""
        if _COPIES * self._bytes > available_bytes():
            raise TooLarge(f"{_COPIES} copies of {self._bytes / 2**30:.2f} GiB of weights do not fit into this machine's memory")
        return self._proto or onnx.load(str(self._path))

    def _run_session(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        import onnxruntime as ort

        if self._session is None:
            with scratch("reference") as folder:
                self._session = open_session(self._source(folder), None, self._exact_products)
        results = run_session(self._session, self.outputs, feeds)
        self.oracle = f"onnxruntime {ort.__version__}"
        return dict(zip(self.outputs, results))

    def _source(self, folder: Path) -> str | bytes:
        """What onnxruntime is to read: the user's file, or what became of it; over 2 GB that has to be a file with
        external data."""
        if self._proto is None:
            return str(self._path)
        if self._proto.ByteSize() < MESSAGE_BYTES:
            return bytes(self._proto.SerializeToString())
        onnx.save(self._proto, str(folder / "model.onnx"), save_as_external_data=True, location="data")
        return str(folder / "model.onnx")

    def _run_evaluator(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        if self._evaluator is None:
            proto = self._proto or onnx.load(str(self._path))
            self._evaluator = onnx.reference.ReferenceEvaluator(proto)
        results = self._evaluator.run(self.outputs, dict(feeds))
        self.oracle = f"onnx.reference {onnx.__version__}"
        return dict(zip(self.outputs, results))


def _mixes_opsets(model: onnx.ModelProto) -> bool:
    """Whether a local function imports other operators than the model, which both oracles would take for the model's."""
    versions = {i.domain: i.version for i in model.opset_import}
    return any(versions.get(i.domain, i.version) != i.version for f in model.functions for i in f.opset_import)


def _of_one_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with its functions written out and converted to its opset, or as it is where onnx cannot do that."""
    try:
        return onnx.inliner.inline_local_functions(model, convert_version=True)
    except Exception:
        return model


_limited: list[int] = []  # the limit of the one arena that all sessions of this process share


def open_session(source: str | bytes, beside: Path | None = None, exact_products: bool = False) -> Any:
    """A session of onnxruntime. ``beside``: where the external data of a model in memory lie.

    ``exact_products``: on an x86 without VNNI onnxruntime adds pairs of u8·s8 products in 16 bits, which overflow; with this it
    multiplies u8 by u8. It does so among its fusions only, which change the arithmetic of floats.
    """
    import onnxruntime as ort

    if not _limited:  # an error where memory ends: without a limit the kernel would kill this process without a word
        _limited.append(available_bytes() // 8 * 7)
        place = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
        exactly = 1  # an arena that grows by what is asked for
        ort.create_and_register_allocator(place, ort.OrtArenaCfg({"max_mem": _limited[0], "arena_extend_strategy": exactly}))
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC  # fusions change the arithmetic
    if exact_products:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.execution_order = ort.ExecutionOrder.PRIORITY_BASED  # as the nodes stand: a value is measured and freed at once
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    if beside is not None:
        options.add_session_config_entry("session.disable_prepacking", "1")  # for one run it takes longer than it saves
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(beside))
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def run_session(session: Any, outputs: Sequence[str], feeds: Mapping[str, np.ndarray]) -> list[Any]:
    """Runs a session; what it held is free afterwards. Raises TooLarge where the memory does not suffice."""
    import onnxruntime as ort

    options = ort.RunOptions()
    options.log_severity_level = 4
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    try:
        return list(session.run(list(outputs), dict(feeds), options))
    except Exception as error:
        if isinstance(error, MemoryError) or re.search("Available memory of|bad_?alloc|Failed to allocate", str(error)):
            raise TooLarge(f"onnxruntime needs more memory than this machine has ({_limited[0] / 2**30:.2f} GiB)") from error
        raise


def largest_magnitudes(
    model: onnx.ModelProto, folder: Path | None, names: Sequence[str], feeds: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """The largest finite magnitude of each named float32 value of the main graph; 0 where nothing is finite, none where
    there are no elements.

    These are the only outputs, computed right behind the nodes that make the values, so that onnxruntime frees the values as it
    goes. External data in ``folder`` are mapped, not read. ``model`` is changed. Raises NoReference where onnxruntime cannot do it.
    """
    if _has_bfloat16(model):
        raise NoReference("onnxruntime has no bfloat16")
    graph = model.graph
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in graph.node]
    del graph.node[:]
    del graph.output[:]
    for name, number in (("infinity", np.inf), ("nothing", 0.0)):
        graph.initializer.append(onnx.numpy_helper.from_array(np.float32(number), f"{_PROBE}-{name}"))
    wanted, values = set(names), []
    for node in nodes:
        graph.node.append(node)
        for value in wanted.intersection(node.output):
            own = {"": value, **{step: f"{_PROBE}/{value}/{step}" for step, _, _ in _LARGEST}}
            for step, op, reads in _LARGEST:
                graph.node.append(onnx.helper.make_node(op, [own.get(n, f"{_PROBE}-{n}") for n in reads], [own[step]]))
            graph.node[-1].attribute.append(onnx.helper.make_attribute("keepdims", 0))
            values.append(value)
    outputs = [f"{_PROBE}/{value}/{_LARGEST[-1][0]}" for value in values]
    graph.output.extend(onnx.ValueInfoProto(name=output) for output in outputs)
    try:
        data = model.SerializeToString()
        model.Clear()  # the weights are in the bytes
        results = run_session(open_session(data, folder), outputs, feeds)
    except NoReference:
        raise
    except Exception as error:
        raise NoReference(f"onnxruntime: {first_line(error)}") from error
    # of no elements the largest is infinite
    return {n: float(largest) for n, largest in zip(values, results) if np.isfinite(largest)}


_PROBE = "aitc-probe"
# What follows a value "": steps (name, operator, inputs), the last one a reduction. No operator is newer than opset 9.
_LARGEST = (
    ("size", "Abs", ("",)),
    ("finite", "Less", ("size", "infinity")),  # no NaN is
    ("counted", "Where", ("finite", "size", "nothing")),
    ("largest", "ReduceMax", ("counted",)),
)


def load_structure(model: str | Path | bytes) -> onnx.ModelProto:
    """The model without its external data, and without its own large weights where they can stay in the file."""
    if isinstance(model, bytes):
        return onnx.load_from_string(model)
    return read_structure(Path(model)) or onnx.load(str(model), load_external_data=False)


def float_values(model: str | Path | bytes | onnx.ModelProto) -> list[str]:
    """Names of the float32 results of nodes of the main graph, as far as onnx's shape inference types them."""
    raw = without_weights(model if isinstance(model, onnx.ModelProto) else load_structure(model))
    made = {o for n in raw.graph.node for o in n.output if o}
    inferred = onnx.shape_inference.infer_shapes(raw)
    typed = [*inferred.graph.value_info, *inferred.graph.output]
    return list(dict.fromkeys(v.name for v in typed if v.name in made and v.type.tensor_type.elem_type == FLOAT))


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of ``model`` for shape inference: shapes never depend on large weights, and copying them takes seconds."""
    copy = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    graph = copy.graph
    for name in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(graph, name).extend(getattr(model.graph, name))
    for t in model.graph.initializer:
        large = len(t.raw_data) > LARGE_BYTES
        graph.initializer.append(onnx.TensorProto(name=t.name, data_type=t.data_type, dims=t.dims) if large else t)
    return copy


def _plain(array: np.ndarray, widened: bool) -> np.ndarray:
    return array.astype(np.float32) if widened and array.dtype == ml_dtypes.bfloat16 else array


def _bytes(tensor: onnx.TensorProto) -> int:
    """What a tensor takes in memory, wherever its data lie."""
    return int(np.prod(tensor.dims, dtype=np.int64)) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def load_oracle() -> None:
    """Imports onnxruntime now rather than at the first run: an interruption in the middle of an import is an ugly
    thing."""
    import onnxruntime  # noqa: F401


def node_outputs(model: str | Path | bytes) -> list[tuple[str, str, str]]:
    """(output name, node name, op type) of every node of the main graph, in file order."""
    raw = load_structure(model)
    return [(o, n.name, n.op_type) for n in raw.graph.node for o in n.output if o]


def graphs(model: onnx.ModelProto) -> list[Any]:
    """The main graph, all nested graphs and the local functions: whatever has ``node``."""
    found: list[Any] = []
    stack: list[Any] = [model.graph, *model.functions]
    while stack:
        g = stack.pop()
        found.append(g)
        for node in g.node:
            for a in node.attribute:
                stack.extend([a.g] if a.type == onnx.AttributeProto.GRAPH else a.graphs)
    return found


# onnxruntime may saturate their sums of u8·s8 products, see ``open_session``
INTEGER_PRODUCTS = frozenset(
    "ConvInteger DynamicQuantizeLSTM DynamicQuantizeMatMul MatMulInteger MatMulIntegerToFloat QAttention QGemm QLinearConv QLinearMatMul".split()
)

RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)


def random_values(model: onnx.ModelProto) -> frozenset[str]:
    """Names of the main graph's values that depend on numbers drawn at random: ONNX does not say which ones."""
    functions = {(f.domain, f.name): f for f in model.functions}

    def draws(node: onnx.NodeProto, calls: tuple[Any, ...] = ()) -> bool:
        trains = node.op_type == "Dropout" and len(node.input) > 2 and node.input[2] != ""
        if node.domain in ("", "ai.onnx") and (node.op_type in RANDOM or trains):
            return True
        called = functions.get((node.domain, node.op_type))
        if called is not None and called not in calls:
            return any(draws(n, (*calls, called)) for n in called.node)
        bodies = [g for a in node.attribute for g in ([a.g] if a.type == onnx.AttributeProto.GRAPH else a.graphs)]
        return any(draws(n, calls) or found & set(n.input) for g in bodies for n in g.node)

    found: set[str] = set()
    for node in model.graph.node:
        if found & set(node.input) or draws(node):
            found |= set(node.output) - {""}
    return frozenset(found)


def _typed(g: Any) -> list[onnx.ValueInfoProto]:
    """What says a type in a graph or a function, whose inputs and outputs are bare names."""
    ports = [] if isinstance(g, onnx.FunctionProto) else [*g.input, *g.output]
    return [*ports, *g.value_info]


def _has_bfloat16(model: onnx.ModelProto) -> bool:
    for g in graphs(model):
        tensors = list(getattr(g, "initializer", ()))
        for node in g.node:
            for a in node.attribute:
                tensors += [a.t] if a.type == onnx.AttributeProto.TENSOR else list(a.tensors)
                if a.name in ("to", "dtype", "output_dtype") and a.i == BFLOAT16:
                    return True
        if any(t.data_type == BFLOAT16 for t in tensors):
            return True
        if any(v.type.tensor_type.elem_type == BFLOAT16 for v in _typed(g)):
            return True
    return False


def widen(model: onnx.ModelProto, narrow: Sequence[int] = (BFLOAT16,), to: int = FLOAT) -> None:
    """Turns every float of the types ``narrow`` of ``model`` (with its data loaded), bfloat16 unless they are given, into ``to``, in place."""
    for g in graphs(model):
        for t in getattr(g, "initializer", ()):
            _widen_tensor(t, narrow, to)
        for v in _typed(g):
            if v.type.tensor_type.elem_type in narrow:
                v.type.tensor_type.elem_type = to
        for node in g.node:
            for a in node.attribute:
                if a.name in _TYPE_ATTRIBUTES and a.i in narrow:
                    a.i = to
                for t in [a.t] if a.type == onnx.AttributeProto.TENSOR else a.tensors:
                    _widen_tensor(t, narrow, to)


_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "stash_type", "softmax_precision", "precision")


def _widen_tensor(t: onnx.TensorProto, narrow: Sequence[int], to: int) -> None:
    if t.data_type in narrow:
        name, array = t.name, onnx.numpy_helper.to_array(t)
        t.CopyFrom(onnx.numpy_helper.from_array(array.astype(onnx.helper.tensor_dtype_to_np_dtype(to)), name))
