"""Whether a compiled library is whole: the loader maps what the headers promise, and a file that ends before is a SIGBUS."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

from aitc.errors import AitcError, Diagnostic, Exit

_FOOTER = struct.Struct("<8sQ64s48x")  # see host/weights.h
_MAGIC = b"AITCWGT1"


def require_whole(library: Path) -> None:
    """Raises AitcError (IO) if the file ends before what its ELF headers promise. Other files are left to the loader."""
    try:
        with open(library, "rb") as file:
            head = file.read(64)
            if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
                return
            segments, sections = struct.unpack_from("<QQ", head, 32)
            segment_size, count, section_size, section_count = struct.unpack_from("<HHHH", head, 54)
            file.seek(segments)
            table = file.read(segment_size * count)
            size = file.seek(0, 2)
    except OSError as e:
        raise AitcError(Diagnostic("R01", f"cannot read {library}: {e.strerror}"), Exit.IO) from e
    ends = [sections + section_size * section_count, segments + segment_size * count]
    if segment_size >= 40:
        ends += [sum(struct.unpack_from("<Q16xQ", table, at + 8)) for at in range(0, len(table) - segment_size + 1, segment_size)]
    if max(ends) > size:
        message = f"{library} is truncated: it has {size} bytes, and its headers speak of {max(ends)}"
        raise AitcError(Diagnostic("R01", message, help="copy it again"), Exit.IO)


def check_weights(path: Path, digest: str) -> None:
    """Reads the weights at the end of ``path`` whole. Raises AitcError (IO) unless their SHA-256 is ``digest``; a file that ends in
    no weights is let pass."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            if size < _FOOTER.size:
                return
            file.seek(size - _FOOTER.size)
            magic, count, stated = _FOOTER.unpack(file.read(_FOOTER.size))
            if magic != _MAGIC:
                return
            begin = size - _FOOTER.size - count
            found = hashlib.sha256()
            file.seek(max(0, begin))
            left = count if begin >= 0 else 0
            while left and (block := file.read(min(left, 1 << 22))):
                found.update(block)
                left -= len(block)
    except OSError as e:
        raise AitcError(Diagnostic("R01", f"cannot read {path}: {e.strerror}"), Exit.IO) from e
    if begin < 0 or found.hexdigest() != digest or stated.decode("ascii", "replace") != digest:
        message = f"the weights in {path} are damaged: their SHA-256 is {found.hexdigest()}, expected {digest}"
        raise AitcError(Diagnostic("R01", message, help="copy it again, or compile the model again"), Exit.IO)
