"""DLPack through ctypes: reading tensors of other frameworks, and lending them device memory, without a copy."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p, py_object
from dataclasses import dataclass
from typing import Any

from aitc.ir import dtype as dtypes
from aitc.ir.dtype import DType

CPU, CUDA, CUDA_HOST, ROCM, ROCM_HOST, CUDA_MANAGED = 1, 2, 3, 10, 11, 13
_CODES = {"int": 0, "uint": 1, "float": 2, "complex": 5, "bool": 6}
_BFLOAT = 4


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("manager_ctx", c_void_p), ("deleter", _Deleter)]

_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = py_object, [c_void_p, c_char_p, c_void_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = c_void_p, [py_object, c_char_p]
# Destructors get a capsule that is being destroyed: by address, without touching its reference count.
_is_valid_raw = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer_raw = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


@dataclass(frozen=True, slots=True)
class View:
    """A tensor somewhere: ``address`` of its first element, C-contiguous. Valid while ``keep`` lives."""

    address: int
    shape: tuple[int, ...]
    dtype: DType
    device_type: int
    device_id: int
    keep: Any


def view(producer: Any, stream: int | None = None) -> View:
    """What ``producer.__dlpack__`` exports, its pending work ordered before ``stream``. Raises ValueError for strided tensors."""
    capsule = producer.__dlpack__(stream=stream) if stream is not None else producer.__dlpack__()
    address = _pointer(capsule, b"dltensor")
    t = ctypes.cast(address, POINTER(_Managed)).contents.tensor
    shape = tuple(t.shape[i] for i in range(t.ndim))
    if (
        t.strides
        and any(size > 1 and t.strides[i] != _product(shape[i + 1 :]) for i, size in enumerate(shape))
        and 0 not in shape
    ):
        raise ValueError(f"a tensor of shape {shape} is not contiguous: make it so first")
    found = [d for d in dtypes.ALL if d is dtypes.BF16 and t.code == _BFLOAT] or [
        d for d in dtypes.ALL if _CODES.get(d.kind) == t.code and d.bits == t.bits and d is not dtypes.BF16
    ]
    if t.lanes != 1 or not found:
        raise ValueError(f"DLPack type {t.code} of {t.bits} bits is not supported")
    return View((t.data or 0) + t.byte_offset, shape, found[0], t.device_type, t.device_id, (producer, capsule))


def _product(sizes: tuple[int, ...]) -> int:
    result = 1
    for s in sizes:
        result *= s
    return result


_exported: dict[int, tuple[Any, ...]] = {}  # what a consumer still holds, by address of its DLManagedTensor


@_Deleter
def _delete(managed: Any) -> None:
    _exported.pop(ctypes.addressof(managed.contents), None)


@ctypes.CFUNCTYPE(None, c_void_p)
def _drop(capsule: int) -> None:
    if _is_valid_raw(capsule, b"dltensor"):  # nobody took it
        _exported.pop(_pointer_raw(capsule, b"dltensor"), None)


def export(owner: Any, address: int, shape: tuple[int, ...], dtype: DType, device_type: int, device_id: int) -> Any:
    """A DLPack capsule over memory that lives as long as ``owner``, which the consumer keeps alive."""
    sizes = (c_int64 * max(1, len(shape)))(*shape)
    code = _BFLOAT if dtype is dtypes.BF16 else _CODES[dtype.kind]
    tensor = _Tensor(
        address, device_type, device_id, len(shape), code, dtype.bits, 1, ctypes.cast(sizes, POINTER(c_int64)), None, 0
    )
    managed = _Managed(tensor, None, _delete)
    where = ctypes.addressof(managed)
    _exported[where] = (managed, sizes, owner)
    return _new(where, b"dltensor", ctypes.cast(_drop, c_void_p))
