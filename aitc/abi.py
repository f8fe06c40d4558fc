"""codegen_templates/include/aitc/host/abi.h in ctypes: the interface that every compiled library has."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_void_p

ABI_VERSION = 1
OK, BAD_ARGUMENT, BAD_INPUT, NO_DEVICE, OUT_OF_MEMORY, DEVICE_ERROR, FILE_ERROR, INTERNAL = range(8)
MEMORY_AUTO, MEMORY_HOST, MEMORY_DEVICE = range(3)


class Symbol(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("lo", c_int64),
        ("hi", c_int64),
        ("multiple_of", c_int64),
        ("hint", c_int64),
        ("input", c_int32),
        ("axis", c_int32),
    ]


class Axis(ctypes.Structure):
    _fields_ = [("text", c_char_p), ("size", c_int64)]


class Port(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int32), ("rank", c_int32), ("shape", POINTER(Axis)), ("use", c_char_p)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("shape", POINTER(c_int64)),
        ("rank", c_int32),
        ("dtype", c_int32),
        ("memory", c_int32),
    ]


class Span(ctypes.Structure):
    _fields_ = [("run", c_int32), ("launch", c_int32), ("begin", c_double), ("end", c_double)]


_Status = c_int
_Instance = c_void_p


class Model(ctypes.Structure):
    _fields_ = [
        ("abi_version", c_uint32),
        ("size", c_uint32),
        ("name", c_char_p),
        ("api", c_char_p),
        ("targets", c_char_p),
        ("model", c_char_p),
        ("digest", c_char_p),
        ("input_count", c_int32),
        ("output_count", c_int32),
        ("symbol_count", c_int32),
        ("launch_count", c_int32),
        ("inputs", POINTER(Port)),
        ("outputs", POINTER(Port)),
        ("symbols", POINTER(Symbol)),
        ("launches", POINTER(c_char_p)),
        ("last_error", ctypes.CFUNCTYPE(c_char_p)),
        ("device_count", ctypes.CFUNCTYPE(c_int)),
        ("create", ctypes.CFUNCTYPE(_Status, c_int, c_char_p, POINTER(_Instance))),
        ("destroy", ctypes.CFUNCTYPE(None, _Instance)),
        ("device_name", ctypes.CFUNCTYPE(c_char_p, _Instance)),
        ("output_shapes", ctypes.CFUNCTYPE(_Status, POINTER(Tensor), c_size_t, POINTER(c_int64))),
        ("run", ctypes.CFUNCTYPE(_Status, _Instance, POINTER(Tensor), c_size_t, POINTER(Tensor), c_size_t, c_void_p)),
        (
            "bench",
            ctypes.CFUNCTYPE(
                _Status, _Instance, POINTER(Tensor), c_size_t, c_int, c_int, POINTER(c_double), POINTER(c_double)
            ),
        ),
        ("allocate", ctypes.CFUNCTYPE(_Status, c_int, c_size_t, POINTER(c_void_p))),
        ("release", ctypes.CFUNCTYPE(None, c_int, c_void_p)),
        ("copy", ctypes.CFUNCTYPE(_Status, c_int, c_void_p, c_void_p, c_size_t)),
        (
            "run_sized",
            ctypes.CFUNCTYPE(
                _Status, _Instance, POINTER(Tensor), c_size_t, POINTER(Tensor), c_size_t, POINTER(c_int64), c_void_p
            ),
        ),
        (
            "profile",
            ctypes.CFUNCTYPE(
                _Status,
                _Instance,
                POINTER(Tensor),
                c_size_t,
                c_int,
                c_int,
                POINTER(c_uint8),
                POINTER(POINTER(Span)),
                POINTER(c_size_t),
            ),
        ),
        (
            "bench_chosen",
            ctypes.CFUNCTYPE(
                _Status, _Instance, POINTER(Tensor), c_size_t, POINTER(c_uint8), c_int, c_int, POINTER(c_double)
            ),
        ),
    ]
