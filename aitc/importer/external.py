"""Data of tensors that lie outside of the model's message: which file a tensor may name, and where in it its bytes are.

A model must not make a compiler read any file it likes: what a tensor names has to be a regular file that, with all links followed, lies
in the model's folder. Marks of aitc's own say more than a file may: they hold a random word of this process, which no file can know.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import onnx
from google.protobuf.message import Message  # type: ignore[import-untyped]

_WORD = secrets.token_hex(16)
INSIDE = f"aitc {_WORD}: inside the model's file"  # to be copied, since the file may be written again
ABSENT = f"aitc {_WORD}: shape alone"  # of a tensor whose elements nobody will look at
_MARK = "checksum"  # the key of external data that a mark has; what files have there is not looked at
_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)


class BadTensor(Exception):
    """A tensor that cannot be read; ``code`` is that of the diagnostic."""

    def __init__(self, message: str, code: str = "I12", help: str = ""):
        super().__init__(message)
        self.code = code
        self.help = help


class MissingFile(BadTensor):
    """The file of external data does not exist."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a tensor says of its external data. ``length`` None: not stated."""

    location: str
    offset: int
    length: int | None
    inside: bool  # the model's own file


def mark(tensor: onnx.TensorProto, location: str = "", offset: int = 0, length: int = 0, inside: bool = False) -> None:
    """Makes ``tensor`` one of aitc's own: a part of the model's file, or a shape without elements."""
    del tensor.external_data[:]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entries = {"location": location, "offset": offset, "length": length} if inside else {}
    for key, value in {**entries, _MARK: INSIDE if inside else ABSENT}.items():
        tensor.external_data.add(key=key, value=str(value))


def is_absent(tensor: onnx.TensorProto) -> bool:
    """Whether aitc left the elements out."""
    return any(e.key == _MARK and e.value == ABSENT for e in tensor.external_data)


def place_of(tensor: onnx.TensorProto) -> Place:
    """What ``tensor`` says, read strictly. Raises BadTensor."""
    entries: dict[str, str] = {}
    for e in tensor.external_data:
        if e.key in entries and e.key in ("location", "offset", "length"):
            raise BadTensor(f"tensor {tensor.name!r} states the {e.key} of its external data twice", "I08")
        entries[e.key] = e.value
    numbers: list[int | None] = []
    for key in ("offset", "length"):
        text = entries.get(key, "")
        if text and (not _NUMBER.fullmatch(text) or int(text) >= 1 << 63):
            raise BadTensor(f"tensor {tensor.name!r} has a bad {key} in its external data: {text[:40]!r}", "I08")
        numbers.append(int(text) if text else None)
    return Place(entries.get("location", ""), numbers[0] or 0, numbers[1], entries.get(_MARK) == INSIDE)


def open_data(name: str, place: Place, folder: Path | None) -> BinaryIO:
    """The file in which tensor ``name`` lies. Raises BadTensor."""
    shown = repr(place.location if len(place.location) <= 200 else place.location[:200] + "…")
    if folder is None:
        raise BadTensor(
            f"tensor {name!r} lies in {shown}, but the model was not read from a file", "I08", "compile the .onnx file itself"
        )
    if not place.location:
        raise BadTensor(f"tensor {name!r} has external data without a location", "I08")
    try:
        if place.inside:  # of a model that is a link, too
            path = folder / place.location
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        else:
            path = (folder / place.location).resolve()
            if not path.is_relative_to(folder.resolve()):
                raise BadTensor(
                    f"tensor {name!r} lies in {shown}, outside of the model's folder", "I08", "put the file into the model's folder"
                )
            # No link is followed any more, and a pipe without a writer is not waited for.
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        way_out = "its name has a backslash: was it written on Windows?" if "\\" in place.location else "copy it into the model's folder"
        raise MissingFile(f"tensor {name!r} lies in {shown}, which does not exist in {folder}", "I08", way_out) from None
    except (OSError, ValueError, RuntimeError) as problem:  # NUL, a loop of links, too long a name, no permission
        reason = getattr(problem, "strerror", None) or str(problem)
        raise BadTensor(f"tensor {name!r} lies in {shown}, which cannot be read: {reason}", "I08") from problem
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise BadTensor(f"tensor {name!r} lies in {shown}, which is no regular file", "I08")
    return os.fdopen(handle, "rb")


def tensors(message: Message) -> Iterator[onnx.TensorProto]:
    """All tensors in a message and in those in it: initializers, attributes, sparse ones, those of bodies and functions."""
    if isinstance(message, onnx.TensorProto):
        yield message
        return
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in [value] if isinstance(value, Message) else value:
                yield from tensors(part)


def external_files(model: onnx.ModelProto) -> list[str]:
    """The files of the model's external data, as it names them, sorted."""
    return sorted({place_of(t).location for t in tensors(model) if _is_external(t)})


def check_external(model: onnx.ModelProto, folder: Path | None) -> Iterator[BadTensor]:
    """What is wrong with places of external data, those of tensors that nobody reads included: another reader of the same file, the
    reference, may. Files of such that are missing are let pass."""
    seen: set[str] = set()
    for tensor in tensors(model):
        if not _is_external(tensor):
            continue
        try:
            place = place_of(tensor)
            if place.inside or place.location in seen or folder is None:
                continue
            seen.add(place.location)
            open_data(tensor.name, place, folder).close()
        except MissingFile:
            pass
        except BadTensor as problem:
            yield problem


def _is_external(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL and not is_absent(tensor)
