"""A model's structure without its weights: large initializers stay in the file, and the message names where they are.

protobuf would hold the file, the message and each array that is made of it: three times the weights. Here the bytes of the message
are walked (fields of ModelProto, GraphProto and TensorProto, as onnx.proto numbers them), and what is large is cut out.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

from aitc.importer.external import mark

LARGE_BYTES = 1 << 16  # of an initializer that stays in the file

_GRAPH, _INITIALIZER, _RAW_DATA, _EXTERNAL_DATA = 7, 5, 9, 13
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class _Field:
    number: int
    begin: int  # of the tag
    value: int  # of the bytes of a string or a message
    end: int


def read_structure(path: Path) -> onnx.ModelProto | None:
    """The model in ``path``, its large initializers as external data in that file itself.

    None where that would gain nothing or is not certain to be right: the file is small or damaged.
    """
    try:
        if path.stat().st_size <= LARGE_BYTES:
            return None
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            model = onnx.ModelProto()
            model.ParseFromString(_without_weights(data, path.name))
            return model
    except (OSError, ValueError, IndexError, UnicodeEncodeError):
        return None
    except Exception as error:  # protobuf's DecodeError derives from Exception alone
        if type(error).__name__ != "DecodeError":
            raise
        return None


def _without_weights(data: mmap.mmap, name: str) -> bytes:
    fields = list(_fields(data, 0, len(data)))
    if sum(f.number == _GRAPH for f in fields) != 1:
        raise ValueError("not one graph")
    parts = []
    for f in fields:
        if f.number == _GRAPH:
            graph = b"".join(_graph_parts(data, f, name))
            parts += [_tag(_GRAPH), _varint(len(graph)), graph]
        else:
            parts.append(data[f.begin : f.end])
    return b"".join(parts)


def _graph_parts(data: mmap.mmap, graph: _Field, name: str) -> Iterator[bytes]:
    for f in _fields(data, graph.value, graph.end):
        if f.number != _INITIALIZER or f.end - f.value <= LARGE_BYTES:
            yield data[f.begin : f.end]
            continue
        inside = list(_fields(data, f.value, f.end))
        raw = [i for i in inside if i.number == _RAW_DATA and i.end - i.value > LARGE_BYTES]
        if len(raw) != 1 or sum(i.number == _RAW_DATA for i in inside) != 1:
            yield data[f.begin : f.end]
            continue
        if any(i.number == _EXTERNAL_DATA for i in inside):  # these would be mixed with ours
            yield data[f.begin : f.end]
            continue
        place = onnx.TensorProto()
        mark(place, name, raw[0].value, raw[0].end - raw[0].value, inside=True)
        tensor = b"".join([*(data[i.begin : i.end] for i in inside if i is not raw[0]), place.SerializeToString()])
        yield b"".join((_tag(_INITIALIZER), _varint(len(tensor)), tensor))


def _fields(data: mmap.mmap, start: int, stop: int) -> Iterator[_Field]:
    """The fields of a message. Raises ValueError or IndexError where the bytes are none."""
    at = start
    while at < stop:
        begin = at
        tag, at = _number(data, at)
        kind, value = tag & 7, at
        if kind == _BYTES:
            size, value = _number(data, at)
            at = value + size
        elif kind == _VARINT:
            _, at = _number(data, at)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at > stop:
            raise ValueError("truncated")
        yield _Field(tag >> 3, begin, value, at)


def _number(data: mmap.mmap, at: int) -> tuple[int, int]:
    """A varint and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a varint of more than 64 bits")


def _varint(n: int) -> bytes:
    made = bytearray()
    while n > 127:
        made.append(n & 127 | 128)
        n >>= 7
    return bytes((*made, n))


def _tag(number: int) -> bytes:
    return _varint(number << 3 | _BYTES)
