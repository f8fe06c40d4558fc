"""``aitc.load``: a compiled model in Python, through ctypes. Nothing of the compiler is needed to run one."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from ctypes import POINTER, Array, byref, c_double, c_int64, c_size_t, c_uint8, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aitc import abi, dlpack
from aitc.errors import AitcError, Diagnostic, Exit
from aitc.ir import dtype as dtypes
from aitc.ir.dim import evaluate
from aitc.ir.dtype import DType
from aitc.ir.parse import parse_dim
from aitc.whole import check_weights, require_whole

_EXITS = {abi.BAD_ARGUMENT: Exit.USAGE, abi.BAD_INPUT: Exit.USAGE, abi.FILE_ERROR: Exit.IO, abi.INTERNAL: Exit.INTERNAL}
_DEVICES = {
    "cpu": (dlpack.CPU, dlpack.CUDA_HOST, dlpack.ROCM_HOST),
    "cuda": (dlpack.CUDA, dlpack.CUDA_MANAGED),
    "hip": (dlpack.ROCM,),
}


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output: ``shape`` of sizes, and of expressions over the model's dims as text."""

    name: str
    dtype: DType
    shape: tuple[int | str, ...]
    use: str = ""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A dim that each call chooses, in ``lo..hi``."""

    name: str
    lo: int
    hi: int
    multiple_of: int
    hint: int
    input: int
    axis: int


@dataclass(frozen=True, slots=True)
class Span:
    """Launch number ``launch`` in run ``run``: when it began and ended, in seconds since the run began."""

    run: int
    launch: int
    begin: float
    end: float


def load(path: str | Path, device: int = 0, weights: str | Path | None = None, check: bool = False) -> Model:
    """The compiled model in ``path``: an output folder of ``aitc compile``, or the library itself. ``device`` numbers GPUs.

    ``check``: the weights are read whole and compared with their SHA-256; without it their size and what the file says of itself are.
    A library runs code in this process: load only what you trust. Raises AitcError: IO if there is no such library, if it is
    truncated or if its weights are damaged, RUNTIME if the device does not fit.
    """
    return Model(_library(Path(path)), device, weights, check)


def _library(path: Path) -> Path:
    if not path.is_dir():
        if not path.is_file():
            raise AitcError(
                Diagnostic("R01", f"{path} does not exist", help="give the folder that `aitc compile -o` wrote"),
                Exit.IO,
            )
        return path
    found = sorted(path.glob("lib*.so"))
    if len(found) != 1:
        names = ", ".join(f.name for f in found) or "none"
        raise AitcError(
            Diagnostic(
                "R01",
                f"{path} holds not one compiled library, but {names}",
                help="name the library itself" if found else "",
            ),
            Exit.IO,
        )
    return found[0]


@dataclass(frozen=True, slots=True)
class _Operand:
    """Memory of the caller as the library takes it; ``keep`` holds on to its owner."""

    address: int
    shape: tuple[int, ...]
    dtype: int
    memory: int
    keep: Any


class DeviceArray:
    """Device memory of its own, for frameworks that speak DLPack (``torch.from_dlpack(a)``, ``cupy.from_dlpack(a)``)."""

    def __init__(self, model: Model, shape: tuple[int, ...], dtype: DType, address: int | None = None):
        """Allocates, or takes over the memory at ``address``."""
        self.shape, self.dtype = shape, dtype
        self._model = model
        self._address = c_void_p(address)
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.bytes
        if address is None:
            model._check(model._table.allocate(model.device, max(1, self.nbytes), byref(self._address)))

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DEVICES[self._model.api][0], self._model.device

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        return dlpack.export(self, self.address, self.shape, self.dtype, *self.__dlpack_device__())

    @property
    def address(self) -> int:
        return self._address.value or 0

    def numpy(self) -> np.ndarray:
        """A copy in host memory."""
        result = np.empty(self.shape, self.dtype.numpy)
        self._model._check(self._model._table.copy(self._model.device, result.ctypes.data, self.address, self.nbytes))
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("memory of a device has one owner; numpy() copies it")

    def __del__(self) -> None:
        if getattr(self, "_address", None):
            self._model._table.release(self._model.device, self._address)


class Model:
    """A compiled model on a device. Calls may come from several threads (they take turns). ``with`` or ``close()`` frees it."""

    def __init__(self, library: Path, device: int = 0, weights: str | Path | None = None, check: bool = False):
        self._handle = c_void_p()
        self._lock = threading.Lock()
        require_whole(library)
        try:
            self._dll = ctypes.CDLL(str(library.resolve()))
            entry = self._dll.aitc_model_v1
        except (OSError, AttributeError) as e:
            raise AitcError(Diagnostic("R01", f"{library} is not a compiled model: {e}"), Exit.IO) from e
        entry.restype = POINTER(abi.Model)
        self._table = entry().contents
        version, size = self._table.abi_version, self._table.size
        if version != abi.ABI_VERSION or size < ctypes.sizeof(abi.Model):
            message = f"{library} has ABI version {version}, this aitc speaks {abi.ABI_VERSION}"
            if version == abi.ABI_VERSION:
                message = f"{library} was made by an older aitc: it lacks functions that this one calls"
            raise AitcError(Diagnostic("R01", message, help="compile the model again"), Exit.IO)
        t = self._table
        self.path = library
        self._weights = None if weights is None else Path(weights).absolute()
        self.name, self.api, self.targets, self.source = (s.decode() for s in (t.name, t.api, t.targets, t.model))
        self.device = device
        self.inputs = tuple(_port(t.inputs[i]) for i in range(t.input_count))
        self.outputs = tuple(_port(t.outputs[i]) for i in range(t.output_count))
        self.dims = tuple(
            Symbol(s.name.decode(), s.lo, s.hi, s.multiple_of, s.hint, s.input, s.axis)
            for s in (t.symbols[i] for i in range(t.symbol_count))
        )
        self.launches = tuple(t.launches[i].decode() for i in range(t.launch_count))
        if check:
            beside = library.resolve().with_name(f"{self.name}.weights")
            for path in [Path(weights)] if weights else [library, *([beside] if beside.is_file() else [])]:
                check_weights(path, t.digest.decode())
        self._check(t.create(device, os.fsencode(weights) if weights else None, byref(self._handle)))
        self.device_name = t.device_name(self._handle).decode()

    def __call__(self, *arrays: Any, **by_name: Any) -> list[Any]:
        """Runs the model on ``arrays`` in graph order, or given by name; returns the outputs in graph order.

        numpy arrays give numpy arrays; torch tensors give torch tensors on the same device, without a copy and on torch's current
        stream; other device arrays with DLPack give ``DeviceArray``s. Raises AitcError (USAGE) that names the input, expected and given.
        """
        return self.run(self._ordered(arrays, by_name))

    def run(self, arrays: Sequence[Any], stream: int | None = None) -> list[Any]:
        """Like a call, on ``stream``: a cudaStream_t or hipStream_t as an integer (None: torch's current one, or the default)."""
        if len(arrays) != len(self.inputs):
            names = ", ".join(p.name for p in self.inputs)
            raise AitcError(
                Diagnostic(
                    "R02", f"{self.name} takes {len(self.inputs)} inputs, given {len(arrays)}; they are {names}"
                ),
                Exit.USAGE,
            )
        torch = _torch(arrays)
        on_device = any(_on_device(a) for a in arrays)
        if stream is None and on_device and torch is not None:
            stream = torch.cuda.current_stream(self.device).cuda_stream
        operands = [self._operand(_whole_bytes(a), p, stream) for a, p in zip(arrays, self.inputs, strict=False)]
        with self._lock:
            if not self._handle:
                raise AitcError(Diagnostic("R02", f"model {self.name} is closed"), Exit.USAGE)
            shapes = self._output_shapes(operands)
            if any(d < 0 for s in shapes for d in s):
                return self._run_sized(operands, shapes, stream, torch, on_device)
            results = [self._empty(p, s, torch, on_device) for p, s in zip(self.outputs, shapes, strict=True)]
            targets = [self._operand(r, p, stream) for r, p in zip(results, self.outputs, strict=True)]
            status = self._table.run(
                self._handle, _tensors(operands), len(operands), _tensors(targets), len(targets), stream
            )
            self._check(status)
        return results

    def _run_sized(
        self, operands: list[_Operand], shapes: list[tuple[int, ...]], stream: int | None, torch: Any, on_device: bool
    ) -> list[Any]:
        """A run with outputs whose sizes only the data decides (-1 in ``shapes``): the library allocates all outputs."""
        memory = abi.MEMORY_DEVICE if on_device else abi.MEMORY_HOST
        targets = _tensors([_Operand(0, tuple(max(d, 0) for d in s), p.dtype.onnx, memory, None) for s, p in zip(shapes, self.outputs, strict=True)])
        sizes = (c_int64 * max(1, sum(len(s) for s in shapes)))()
        table = self._table
        self._check(table.run_sized(self._handle, _tensors(operands), len(operands), targets, len(shapes), sizes, stream))
        flat = iter(sizes)
        results: list[Any] = []
        for i, port in enumerate(self.outputs):
            shape = tuple(next(flat) for _ in port.shape)
            if on_device:
                array = DeviceArray(self, shape, port.dtype, targets[i].data)
                results.append(array if torch is None else torch.from_dlpack(array))
                continue
            host = np.empty(shape, port.dtype.numpy)
            ctypes.memmove(host.ctypes.data, targets[i].data, host.nbytes)
            table.release(-1, targets[i].data)
            results.append(host if torch is None else torch.from_numpy(host))
        return results

    def output_shapes(self, *shapes: Sequence[int]) -> list[tuple[int, ...]]:
        """The outputs' shapes for inputs of these shapes; -1 where only the data decides."""
        return self._output_shapes(
            [
                _Operand(0, tuple(s), p.dtype.onnx, abi.MEMORY_HOST, None)
                for s, p in zip(shapes, self.inputs, strict=False)
            ]
        )

    def random_inputs(self, seed: int = 0, **sizes: int) -> list[np.ndarray]:
        """Made-up inputs that fit types and uses: ids below their limit, masks of 0 and 1, images in [0, 1). ``sizes``: of dims."""
        rng = np.random.default_rng(seed)
        values = {s.name: sizes.get(s.name, s.hint) for s in self.dims}
        return [
            _random(p, values, tuple(evaluate(parse_dim(d), values) if isinstance(d, str) else d for d in p.shape), rng)
            for p in self.inputs
        ]

    def bench(
        self,
        iters: int = 100,
        warmup: int = 10,
        inputs: Sequence[np.ndarray] | None = None,
        chosen: Sequence[bool] | None = None,
    ) -> list[float]:
        """Seconds of each of ``iters`` runs after ``warmup`` untimed ones, on data that already is on the device.
        ``chosen`` has a flag for each launch: the others are left out, and so is what they compute."""
        operands = self._host_operands(inputs)
        seconds = (c_double * max(1, iters))()
        with self._lock:
            self._check(
                self._table.bench_chosen(
                    self._handle, _tensors(operands), len(operands), self._flags(chosen), warmup, iters, seconds
                )
            )
        return list(seconds)[:iters]

    def profile(
        self,
        iters: int = 20,
        warmup: int = 3,
        inputs: Sequence[np.ndarray] | None = None,
        chosen: Sequence[bool] | None = None,
    ) -> list[Span]:
        """When each launch of ``iters`` runs began and ended, in order, each with a mark before and after: together they take longer
        than a run without. ``chosen`` has a flag for each launch: the others are left out, and so is what they compute."""
        operands = self._host_operands(inputs)
        spans, count = POINTER(abi.Span)(), c_size_t()
        with self._lock:
            self._check(
                self._table.profile(
                    self._handle, _tensors(operands), len(operands), warmup, iters, self._flags(chosen), byref(spans), byref(count)
                )
            )
            return [Span(s.run, s.launch, s.begin, s.end) for s in (spans[i] for i in range(count.value))]

    def _flags(self, chosen: Sequence[bool] | None) -> Array[c_uint8] | None:
        if chosen is None:
            return None
        if len(chosen) != len(self.launches):
            raise AitcError(Diagnostic("R02", f"{self.name} has {len(self.launches)} launches, given {len(chosen)} flags"), Exit.USAGE)
        return (c_uint8 * len(self.launches))(*map(bool, chosen))

    def _host_operands(self, inputs: Sequence[np.ndarray] | None) -> list[_Operand]:
        arrays = self.random_inputs() if inputs is None else inputs
        return [self._operand(np.asarray(a), p, None) for a, p in zip(arrays, self.inputs, strict=True)]

    def close(self) -> None:
        """Frees device memory. Calls after it are errors; calling it twice is none."""
        with self._lock:
            handle, self._handle = self._handle, c_void_p()
        if handle:
            self._table.destroy(handle)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy (``copy``, ``pickle``, another process) is the library loaded once more: no two own one instance."""
        return Model, (self.path.absolute(), self.device, self._weights)

    def __repr__(self) -> str:
        ports = (
            ", ".join(f"{p.name}: {p.dtype}[{', '.join(map(str, p.shape))}]" for p in group)
            for group in (self.inputs, self.outputs)
        )
        return f"<{self.name}({next(ports)}) -> ({next(ports)}) on {self.device_name}>"

    # ---- helpers

    def _check(self, status: int) -> None:
        if status != abi.OK:
            code = "R02" if status in (abi.BAD_ARGUMENT, abi.BAD_INPUT) else "R03"
            raise AitcError(
                Diagnostic(code, self._table.last_error().decode(errors="replace")), _EXITS.get(status, Exit.RUNTIME)
            )

    def _ordered(self, arrays: Sequence[Any], by_name: dict[str, Any]) -> list[Any]:
        names = [p.name for p in self.inputs]
        if not by_name:
            return list(arrays)
        unknown = [n for n in by_name if n not in names]
        doubled = [n for n in names[: len(arrays)] if n in by_name]
        missing = [n for n in names[len(arrays) :] if n not in by_name]
        for problem, which in (("has no input", unknown), ("got twice", doubled), ("needs", missing)):
            if which:
                raise AitcError(
                    Diagnostic("R02", f"{self.name} {problem} {', '.join(which)}; its inputs are {', '.join(names)}"),
                    Exit.USAGE,
                )
        return [*arrays, *(by_name[n] for n in names[len(arrays) :])]

    def _operand(self, array: Any, port: Port, stream: int | None) -> _Operand:
        try:
            return self._accept(array, port, stream)
        except (ValueError, TypeError, BufferError, KeyError, RuntimeError) as e:  # the last is what torch raises
            raise AitcError(
                Diagnostic("R02", f'"{port.name}": a {type(array).__name__} cannot be used as a tensor: {e}'),
                Exit.USAGE,
            ) from e

    def _accept(self, array: Any, port: Port, stream: int | None) -> _Operand:
        if array is None:
            raise TypeError("it is missing")  # numpy would make NaN of it
        if isinstance(array, DeviceArray):
            return _Operand(array.address, array.shape, array.dtype.onnx, abi.MEMORY_DEVICE, array)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(array, torch.Tensor):
            tensor = array.detach().contiguous()
            dtype = _torch_dtypes(torch)[tensor.dtype]
            self._same_device(
                port,
                tensor.device.type if tensor.device.type != "cuda" else self.api if self.api != "cpu" else "cuda",
                tensor.device.index,
            )
            memory = abi.MEMORY_HOST if tensor.device.type == "cpu" else abi.MEMORY_DEVICE
            return _Operand(tensor.data_ptr(), tuple(tensor.shape), dtype.onnx, memory, tensor)
        if (
            not isinstance(array, np.ndarray)
            and hasattr(array, "__dlpack_device__")
            and array.__dlpack_device__()[0] != dlpack.CPU
        ):
            v = dlpack.view(array, 1 if not stream and self.api == "cuda" else stream)
            host = v.device_type in _DEVICES["cpu"]
            self._same_device(
                port,
                "cpu" if host else next((a for a, d in _DEVICES.items() if v.device_type in d), "unknown"),
                v.device_id,
            )
            return _Operand(v.address, v.shape, v.dtype.onnx, abi.MEMORY_HOST if host else abi.MEMORY_DEVICE, v)
        if not isinstance(array, np.ndarray):
            array = np.from_dlpack(array) if hasattr(array, "__dlpack__") else np.asarray(array, port.dtype.numpy)
        dense = np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray makes scalars one-dimensional
        if not dense.dtype.isnative:
            dense = dense.astype(dense.dtype.newbyteorder("="))
        if dense.dtype not in dtypes.BY_NUMPY:
            raise TypeError(f"arrays of {dense.dtype} are not supported")
        return _Operand(dense.ctypes.data, dense.shape, dtypes.of(dense).onnx, abi.MEMORY_HOST, dense)

    def _same_device(self, port: Port, kind: str, index: int | None) -> None:
        if kind != "cpu" and (kind != self.api or (index or 0) != self.device):
            message = (
                f'"{port.name}" is on {kind} device {index or 0}, {self.name} runs on {self.api} device {self.device}'
            )
            raise AitcError(Diagnostic("R02", message), Exit.USAGE)

    def _output_shapes(self, operands: Sequence[_Operand]) -> list[tuple[int, ...]]:
        ranks = [len(p.shape) for p in self.outputs]
        sizes = (c_int64 * max(1, sum(ranks)))()
        self._check(self._table.output_shapes(_tensors(operands), len(operands), sizes))
        flat = iter(sizes)
        return [tuple(next(flat) for _ in range(rank)) for rank in ranks]

    def _empty(self, port: Port, shape: tuple[int, ...], torch: Any, on_device: bool) -> Any:
        if torch is not None:
            place = f"cuda:{self.device}" if on_device else "cpu"
            return torch.empty(
                shape, dtype=next(t for t, d in _torch_dtypes(torch).items() if d is port.dtype), device=place
            )
        return DeviceArray(self, shape, port.dtype) if on_device else np.empty(shape, port.dtype.numpy)


def _port(port: abi.Port) -> Port:
    shape = tuple(a.text.decode() if a.text else a.size for a in (port.shape[i] for i in range(port.rank)))
    return Port(port.name.decode(), dtypes.BY_ONNX[port.dtype], shape, port.use.decode())


def _tensors(operands: Sequence[_Operand]) -> Any:
    """A C array of them. The shapes stay alive with it, by ctypes' references."""
    array = (abi.Tensor * max(1, len(operands)))()
    for slot, o in zip(array, operands, strict=False):
        slot.data, slot.rank, slot.dtype, slot.memory = o.address, len(o.shape), o.dtype, o.memory
        slot.shape = (c_int64 * max(1, len(o.shape)))(*o.shape)
    return array


def _torch(arrays: Sequence[Any]) -> Any:
    """The torch module if any of ``arrays`` is its tensor."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and any(isinstance(a, torch.Tensor) for a in arrays) else None


def _torch_dtypes(torch: Any) -> dict[Any, DType]:
    """torch's types that have one of ours: its names are numpy's and ml_dtypes', and newer torch has more of them."""
    return {
        getattr(torch, d.numpy.name): d for d in dtypes.ALL if d is not dtypes.STRING and hasattr(torch, d.numpy.name)
    }


def _whole_bytes(array: Any) -> Any:
    """Arrays of less than a byte an element have undefined upper bits in numpy; in a library each is a whole number of a byte."""
    if not isinstance(array, np.ndarray) or array.dtype not in dtypes.BY_NUMPY:
        return array
    dtype = dtypes.of(array)
    if not dtype.is_integer or dtype.bits >= 8:
        return array
    return array.astype(np.int8 if dtype.kind == "int" else np.uint8).view(array.dtype)


def _on_device(array: Any) -> bool:
    if isinstance(array, np.ndarray) or not hasattr(array, "__dlpack_device__"):
        return False
    try:
        return array.__dlpack_device__()[0] not in _DEVICES["cpu"]
    except (ValueError, RuntimeError, BufferError):  # torch's meta and nested tensors: what they lack is said later
        return False


def _random(port: Port, sizes: Mapping[str, int], shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    d = port.dtype
    if port.use == "mask":
        values: np.ndarray = rng.integers(0, 2, shape) if d.is_float else np.ones(shape)
    elif port.use.startswith("ids:"):
        values = rng.integers(0, max(1, evaluate(parse_dim(port.use[4:]), sizes)), shape)
    elif port.use == "positive":
        values = rng.uniform(0.05, 1, shape)
    elif port.use == "count" or port.use.startswith("length:"):
        values = np.ones(shape)
    elif port.use == "image":
        values = rng.random(shape) if d.is_float else rng.integers(0, 256, shape)
    elif d.kind == "complex":
        values = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    else:
        values = rng.standard_normal(shape) if d.is_float else rng.integers(0, 2, shape)
    return values.astype(d.numpy)
